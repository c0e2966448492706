//! Nothing of a request but its host is in failures or in what is logged.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use punctual_domain::service_call::Headers;
use punctual_ports::HttpClientPort;
use tokio::io::AsyncReadExt;
use tracing_subscriber::fmt::MakeWriter;

use crate::fixture::{LOOPBACK, Target, client, client_with, post, write};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;
    fn make_writer(&self) -> Self {
        self.clone()
    }
}

const CANARY: &str = "canary7";

#[tokio::test]
async fn no_secret_is_in_failures_or_logs() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(log.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let mut said = Vec::new();
    let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = dead.local_addr().unwrap();
    drop(dead);
    let mut urls = vec![(client(LOOPBACK), format!("http://{nobody}"))];
    urls.push((client(""), "http://127.0.0.1:1".to_owned()));
    let unknown = client_with("", |_, _| Err(io::Error::other("no such name")));
    urls.push((unknown, "http://nowhere.test".to_owned()));
    // Targets that answer with what they were sent.
    let mut targets = Vec::new();
    for prefix in [
        "",
        "HTTP/1.1 200 OK\r\ncanary7\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: canary7\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\ncanary7",
        "HTTP/1.1 200 OK\r\ncontent-length: 99999\r\n\r\n",
    ] {
        let target = Target::start(move |mut socket| async move {
            // Once, because a greeting of TLS has no end that we would know.
            let mut got = vec![0; 16_384];
            let length = socket.read(&mut got).await.unwrap();
            write(&mut socket, prefix.as_bytes()).await;
            write(&mut socket, &got[..length]).await;
        });
        let target = target.await;
        urls.push((client(LOOPBACK), target.url("")));
        urls.push((client(LOOPBACK), target.url("").replace("http:", "https:")));
        targets.push(target);
    }
    for (client, url) in urls {
        let mut attempt = post(&format!("{url}/{CANARY}?token={CANARY}"), CANARY);
        let headers = [("Authorization", "Bearer canary7"), ("X-Mine", CANARY)];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        attempt.request.headers = Headers::new(headers.to_vec()).unwrap();
        let failure = client.attempt(attempt).await.unwrap_err();
        said.push(format!("{failure:?} {client:?}"));
    }
    let logged = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(
        logged.contains("calls may not reach an address"),
        "{logged}"
    );
    for text in [said.concat(), logged] {
        assert!(!text.contains(CANARY), "{text}");
    }
}
