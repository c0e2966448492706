//! One request and its answer, on a connection that is used for nothing else.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper::header::HeaderMap;
use hyper::{Request, body::Incoming};
use hyper_util::rt::TokioIo;
use punctual_ports::{HttpFailure, HttpResponse};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::failure::{lost, of_hyper};
use crate::wire::Settled;

/// The most headers that an answer may have.
const MOST_HEADERS: usize = 100;
/// The most bytes that its head may have; also the most that is buffered.
const LONGEST_HEAD: usize = 64 * 1_024;

/// Sends the request and reads the answer. When this is dropped, so is the connection.
pub(crate) async fn exchange<S>(
    host: &str,
    stream: S,
    request: Request<Full<Bytes>>,
    settled: &Settled,
) -> Result<HttpResponse, HttpFailure>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let failed = |error: hyper::Error| of_hyper(host, &error);
    let (mut sender, connection) = http1::Builder::new()
        .max_headers(MOST_HEADERS)
        .max_header_size(LONGEST_HEAD)
        .max_buf_size(LONGEST_HEAD)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(failed)?;
    let mut connection = Driven::new(connection);
    let answered = connection.beside(sender.send_request(request)).await;
    let (head, body) = answered
        .ok_or_else(|| lost(host))?
        .map_err(failed)?
        .into_parts();
    let body = connection.read(host, body).await?;
    // Before the connection is dropped, which closes it.
    settled.tell();
    Ok(HttpResponse {
        status: head.status.as_u16(),
        headers: as_text(&head.headers),
        body,
    })
}

fn as_text(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let pairs = headers.iter();
    pairs
        .map(|(name, value)| (name.to_string(), text(value.as_bytes())))
        .collect()
}

/// A connection that moves only while somebody waits for something on it.
struct Driven<C> {
    /// Kept also when it is over: dropping it closes the socket, and how depends on the whole answer.
    connection: Pin<Box<C>>,
    is_over: bool,
}

impl<C: Future<Output = hyper::Result<()>>> Driven<C> {
    fn new(connection: C) -> Self {
        Self {
            connection: Box::pin(connection),
            is_over: false,
        }
    }

    /// Waits, and moves the connection meanwhile. `None` if it ended and left nothing to wait for.
    async fn beside<F: Future>(&mut self, waited_for: F) -> Option<F::Output> {
        let mut waited_for = pin!(waited_for);
        poll_fn(|cx| {
            if let Poll::Ready(output) = waited_for.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            if !self.is_over {
                // How it ended is told to who waits on it; what it cannot tell, nobody waits for.
                if self.connection.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                self.is_over = true;
            }
            match waited_for.as_mut().poll(cx) {
                Poll::Ready(output) => Poll::Ready(Some(output)),
                Poll::Pending => Poll::Ready(None),
            }
        })
        .await
    }

    /// The beginning of a body; all of it, if it is not longer.
    async fn read(&mut self, host: &str, mut body: Incoming) -> Result<Vec<u8>, HttpFailure> {
        let mut read = Vec::new();
        while read.len() < HttpResponse::READ {
            match self.beside(body.frame()).await {
                None => return Err(lost(host)),
                Some(None) => break,
                Some(Some(Err(error))) => return Err(of_hyper(host, &error)),
                Some(Some(Ok(frame))) => {
                    // What is no data is a trailer, which nobody asked for.
                    let data = frame.into_data().unwrap_or_default();
                    let room = HttpResponse::READ - read.len();
                    read.extend_from_slice(&data[..data.len().min(room)]);
                }
            }
        }
        Ok(read)
    }
}
