//! Just enough of the NATS protocol to make a stream and to count its messages.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(20);

/// How long nothing has to come for a server to count as silent.
const SILENCE: Duration = Duration::from_millis(200);

/// A connection that asks one question at a time.
pub(crate) struct RawClient {
    pub(crate) info: Value,
    stream: BufReader<TcpStream>,
}

impl RawClient {
    pub(crate) fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Self {
            info: Value::Null,
            stream: BufReader::new(stream),
        };
        let greeting = client.line();
        client.info = serde_json::from_str(greeting.strip_prefix("INFO ").unwrap()).unwrap();
        client.write("CONNECT {\"verbose\":false,\"pedantic\":false}\r\nSUB answers 1\r\n");
        client
    }

    /// Publishes and returns the answer.
    pub(crate) fn request(&mut self, subject: &str, body: &str) -> Value {
        self.send(subject, body);
        self.answer()
    }

    /// Publishes without waiting for the answer.
    pub(crate) fn send(&mut self, subject: &str, body: &str) {
        let length = body.len();
        self.write(&format!("PUB {subject} answers {length}\r\n{body}\r\n"));
    }

    pub(crate) fn answer(&mut self) -> Value {
        loop {
            let line = self.line();
            if line == "PING" {
                self.write("PONG\r\n");
            } else if line.starts_with("MSG ") {
                let length: usize = line.rsplit(' ').next().unwrap().parse().unwrap();
                let mut body = vec![0; length + 2];
                self.stream.read_exact(&mut body).unwrap();
                return serde_json::from_slice(&body[..length]).unwrap();
            } else {
                assert!(line.starts_with("INFO "), "{line}");
            }
        }
    }

    /// Whether nothing comes for a while.
    pub(crate) fn is_silent(&mut self) -> bool {
        self.stream
            .get_ref()
            .set_read_timeout(Some(SILENCE))
            .unwrap();
        let silent = match self.stream.fill_buf() {
            Ok(_) => false,
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        };
        self.stream
            .get_ref()
            .set_read_timeout(Some(PATIENCE))
            .unwrap();
        silent
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn write(&mut self, text: &str) {
        self.stream.get_mut().write_all(text.as_bytes()).unwrap();
    }
}
