//! A future that the worker completes if its caller drops it.
//!
//! A caller may drop the future of a save after the store has started it. What the store commits then
//! exists, and the worker has to be notified after that commit, not before. So the rest of the future
//! is handed to the worker, which polls it beside its own operations.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::WakeSignal;

/// A future that is detached to the worker when it is dropped before it has completed.
pub(crate) struct DetachOnDrop<T: 'static> {
    /// None when it has completed, and while it is polled: a future that panicked is not polled again.
    work: Option<BoxFuture<'static, T>>,
    worker: WakeSignal,
}

impl<T> DetachOnDrop<T> {
    pub(crate) const fn new(work: BoxFuture<'static, T>, worker: WakeSignal) -> Self {
        Self {
            work: Some(work),
            worker,
        }
    }
}

impl<T> Future for DetachOnDrop<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Some(mut work) = self.work.take() else {
            return Poll::Pending;
        };
        let polled = work.poll_unpin(context);
        if polled.is_pending() {
            self.work = Some(work);
        }
        polled
    }
}

impl<T> Drop for DetachOnDrop<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.worker.detach(work.map(drop).boxed());
        }
    }
}
