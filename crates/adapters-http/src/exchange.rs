//! One request and its response, on a dedicated connection.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper::header::HeaderMap;
use hyper_util::rt::TokioIo;
use punctual_ports::{HttpFailure, HttpResponse};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::coop::unconstrained;

use crate::failure::{lost, of_hyper, too_long};
use crate::wire::Settled;

/// Maximum number of headers of a response.
const MAX_HEADERS: usize = 100;
/// Maximum number of bytes of its head, and of the buffer.
const LONGEST_HEAD: usize = 64 * 1_024;

/// Maximum number of bytes of its body.
const LONGEST_BODY: u64 = HttpResponse::LONGEST as u64;

/// Sends the request and reads the response. Dropping the future drops the connection.
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
        .max_headers(MAX_HEADERS)
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
    let (body, truncated) = connection.read(host, body, settled).await?;
    // Before the connection is dropped, which closes it.
    settled.complete();
    Ok(HttpResponse {
        status: head.status.as_u16(),
        headers: as_text(&head.headers),
        body,
        truncated,
    })
}

fn as_text(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let pairs = headers.iter();
    pairs
        .map(|(name, value)| (name.to_string(), text(value.as_bytes())))
        .collect()
}

/// A connection that is polled only while something on it is awaited.
struct Driven<C> {
    /// Kept even when it has ended: dropping it closes the socket, and how depends on the response.
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

    /// Awaits a future and polls the connection meanwhile. `None` if the connection ended and the future can
    /// never complete.
    ///
    /// The future is polled without the cooperative budget of tokio: once a task with many attempts has used
    /// that up, even a ready response is pending, and the attempt would be taken for lost.
    async fn beside<F: Future>(&mut self, waited_for: F) -> Option<F::Output> {
        let mut waited_for = pin!(unconstrained(waited_for));
        poll_fn(|cx| {
            if let Poll::Ready(output) = waited_for.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            if !self.is_over {
                // The awaited future reports how it ended.
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

    /// The start of a complete body, and whether there was more of it.
    async fn read(
        &mut self,
        host: &str,
        mut body: Incoming,
        settled: &Settled,
    ) -> Result<(Vec<u8>, bool), HttpFailure> {
        let (mut kept, mut length) = (Vec::new(), 0_u64);
        loop {
            // The length according to the headers, if they have it.
            if length.saturating_add(body.size_hint().lower()) > LONGEST_BODY {
                return Err(too_long(host));
            }
            match self.beside(body.frame()).await {
                None => return Err(lost(host)),
                Some(None) => return Ok((kept, length > HttpResponse::KEPT as u64)),
                Some(Some(Err(error))) => return Err(of_hyper(host, &error)),
                Some(Some(Ok(frame))) => {
                    // Trailers are ignored.
                    let data = frame.into_data().unwrap_or_default();
                    length += data.len() as u64;
                    settled.add_body(data.len());
                    let room = HttpResponse::KEPT - kept.len();
                    kept.extend_from_slice(&data[..data.len().min(room)]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::task::{Context, Waker};

    use tokio::io::ReadBuf;
    use tokio::task::coop::{consume_budget, has_budget_remaining};

    use super::*;

    /// A target that responds at once and hangs up, on a socket that uses up the budget of the task.
    #[derive(Default)]
    struct Exhausting {
        requested: bool,
        answered: bool,
        reader: Option<Waker>,
    }

    impl AsyncRead for Exhausting {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if !self.requested {
                self.reader = Some(cx.waker().clone());
                return Poll::Pending;
            }
            if !self.answered {
                self.answered = true;
                buffer.put_slice(
                    b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nwell",
                );
            }
            while has_budget_remaining() {
                let _ = pin!(consume_budget()).poll(cx);
            }
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Exhausting {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.requested = true;
            self.reader.take().into_iter().for_each(Waker::wake);
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn a_response_is_not_lost_to_a_task_without_budget() {
        let mut request = Request::new(Full::new(Bytes::new()));
        let host = hyper::header::HeaderValue::from_static("target");
        request.headers_mut().insert(hyper::header::HOST, host);
        let (stream, settled) = (Exhausting::default(), Settled::default());
        let answered = exchange("target", stream, request, &settled).await.unwrap();
        assert_eq!(answered.status, 200);
        assert_eq!(answered.body, b"well");
    }
}
