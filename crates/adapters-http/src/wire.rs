//! The socket of one attempt: it bounds what is read, and says how it is closed.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The most bytes that are read from one target besides twice the body: interim answers, headers, the
/// marks between chunks, the records of TLS. Only a target that means to keep us busy gets there, and
/// what it sends instead of a body may be dear to read.
const MOST_READ: usize = 1 << 20;

/// A target sent more than any answer needs.
#[derive(Debug, Error)]
#[error("more was sent than an answer needs")]
pub(crate) struct TooMuch;

/// One socket, which is reset when it is dropped before [`Settled`] was told.
///
/// A socket that is closed in the usual way still delivers what the operating system has buffered: a
/// target that begins to read after the deadline would get the whole request of a call that is
/// recorded as failed. A reset takes it back.
pub(crate) struct Wire {
    socket: TcpStream,
    read: usize,
    settled: Settled,
}

/// How far the attempt on a [`Wire`] has come with its answer.
#[derive(Clone, Default)]
pub(crate) struct Settled(Arc<Answer>);

#[derive(Default)]
struct Answer {
    is_whole: AtomicBool,
    body: AtomicUsize,
}

impl Settled {
    /// The answer is there: the socket may be closed in the usual way.
    pub(crate) fn tell(&self) {
        self.0.is_whole.store(true, Ordering::Relaxed);
    }

    /// So much of its body came.
    pub(crate) fn add_body(&self, bytes: usize) {
        self.0.body.fetch_add(bytes, Ordering::Relaxed);
    }

    fn is_told(&self) -> bool {
        self.0.is_whole.load(Ordering::Relaxed)
    }

    /// How much may be read by now.
    fn most_read(&self) -> usize {
        let body = self.0.body.load(Ordering::Relaxed);
        body.saturating_mul(2).saturating_add(MOST_READ)
    }
}

impl Wire {
    pub(crate) fn new(socket: TcpStream, settled: Settled) -> Self {
        // The request is written in few pieces, and the last must not wait for an acknowledgement.
        // Where that cannot be set it is slower, and as right.
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
        if !self.settled.is_told() {
            // Fails only on a socket that is gone already.
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
        if self.read >= self.settled.most_read() {
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
