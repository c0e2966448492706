//! A connection that does not wait for ever for its client to take what it is sent.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::BoxFuture;
use punctual_ports::ClockPort;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Fails a write that makes no progress for too long.
pub(super) struct Impatient<T> {
    inner: T,
    clock: Arc<dyn ClockPort>,
    patience: Duration,
    /// There while a write makes no progress.
    running_out: Option<BoxFuture<'static, ()>>,
}

impl<T> Impatient<T> {
    pub(super) fn new(inner: T, clock: Arc<dyn ClockPort>, patience: Duration) -> Self {
        Self {
            inner,
            clock,
            patience,
            running_out: None,
        }
    }

    /// Passes a result on, or the end of our patience.
    fn impatiently<R>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.running_out = None;
            return written;
        }
        let running_out = self.running_out.get_or_insert_with(|| {
            let (clock, patience) = (Arc::clone(&self.clock), self.patience);
            Box::pin(async move { clock.sleep_for(patience).await })
        });
        ready!(running_out.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Impatient<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Impatient<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.impatiently(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        self.impatiently(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.impatiently(cx, shut)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, slices);
        self.impatiently(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}
