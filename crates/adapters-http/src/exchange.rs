//! One request and its answer, on a connection that is used for nothing else.

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

/// The most headers that an answer may have.
const MOST_HEADERS: usize = 100;
/// The most bytes that its head may have; also the most that is buffered.
const LONGEST_HEAD: usize = 64 * 1_024;

/// The most bytes that its body may have.
const LONGEST_BODY: u64 = HttpResponse::LONGEST as u64;

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
    let (body, truncated) = connection.read(host, body, settled).await?;
    // Before the connection is dropped, which closes it.
    settled.tell();
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
    ///
    /// What waits is asked whatever the task has done before: a task that makes many attempts may use
    /// up what tokio lets it do at a time, and then even an answer that is there says that it is not.
    /// An attempt whose connection is over would be taken for lost.
    async fn beside<F: Future>(&mut self, waited_for: F) -> Option<F::Output> {
        let mut waited_for = pin!(unconstrained(waited_for));
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

    /// The beginning of a body that came whole, and whether there was more of it.
    async fn read(
        &mut self,
        host: &str,
        mut body: Incoming,
        settled: &Settled,
    ) -> Result<(Vec<u8>, bool), HttpFailure> {
        let (mut kept, mut length) = (Vec::new(), 0_u64);
        loop {
            // What it has to be by its header, if that says it.
            if length.saturating_add(body.size_hint().lower()) > LONGEST_BODY {
                return Err(too_long(host));
            }
            match self.beside(body.frame()).await {
                None => return Err(lost(host)),
                Some(None) => return Ok((kept, length > HttpResponse::KEPT as u64)),
                Some(Some(Err(error))) => return Err(of_hyper(host, &error)),
                Some(Some(Ok(frame))) => {
                    // What is no data is a trailer, which nobody asked for.
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

    /// A target that answers at once and hangs up, on a socket that uses up all that the task may do
    /// at a time.
    #[derive(Default)]
    struct Exhausting {
        asked: bool,
        answered: bool,
        reader: Option<Waker>,
    }

    impl AsyncRead for Exhausting {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if !self.asked {
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
            self.asked = true;
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
    async fn an_answer_is_not_lost_to_a_task_that_has_done_enough_for_now() {
        let mut request = Request::new(Full::new(Bytes::new()));
        let host = hyper::header::HeaderValue::from_static("target");
        request.headers_mut().insert(hyper::header::HOST, host);
        let (stream, settled) = (Exhausting::default(), Settled::default());
        let answered = exchange("target", stream, request, &settled).await.unwrap();
        assert_eq!(answered.status, 200);
        assert_eq!(answered.body, b"well");
    }
}
