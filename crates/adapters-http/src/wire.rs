//! The socket of one attempt, which limits what is read and decides how it is closed.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Maximum number of bytes read from one target in addition to twice the body: interim responses, headers,
/// chunk framing, TLS records. Only a hostile target gets there.
const MAX_OVERHEAD: usize = 1 << 20;

/// A target sent more than any response needs.
#[derive(Debug, Error)]
#[error("more was sent than an answer needs")]
pub(crate) struct TooMuch;

/// A socket that is reset when it is dropped before [`Settled`] is complete.
///
/// An ordinary close still delivers what the operating system has buffered: a target that starts reading
/// after the deadline would get the complete request of a call that is recorded as failed. A reset discards
/// it.
pub(crate) struct Wire {
    socket: TcpStream,
    read: usize,
    settled: Settled,
}

/// Progress of the response on a [`Wire`].
#[derive(Clone, Default)]
pub(crate) struct Settled(Arc<Response>);

#[derive(Default)]
struct Response {
    is_complete: AtomicBool,
    body: AtomicUsize,
}

impl Settled {
    /// The response is complete: the socket may be closed ordinarily.
    pub(crate) fn complete(&self) {
        self.0.is_complete.store(true, Ordering::Relaxed);
    }

    /// Counts bytes of the body.
    pub(crate) fn add_body(&self, bytes: usize) {
        self.0.body.fetch_add(bytes, Ordering::Relaxed);
    }

    fn is_complete(&self) -> bool {
        self.0.is_complete.load(Ordering::Relaxed)
    }

    /// Number of bytes that may be read by now.
    fn read_limit(&self) -> usize {
        let body = self.0.body.load(Ordering::Relaxed);
        body.saturating_mul(2).saturating_add(MAX_OVERHEAD)
    }
}

impl Wire {
    pub(crate) fn new(socket: TcpStream, settled: Settled) -> Self {
        // The last piece of the request must not wait for an acknowledgement. If this fails, it is slower.
        let _ = socket.set_nodelay(true);
        Self {
            socket,
            read: 0,
            settled,
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if !self.settled.is_complete() {
            // Fails only on a closed socket.
            let _ = self.socket.set_zero_linger();
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read >= self.settled.read_limit() {
            return Poll::Ready(Err(io::Error::other(TooMuch)));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(cx, buffer))?;
        let read = buffer.filled().len() - before;
        self.read = self.read.saturating_add(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
