//! Finishing what its caller no longer waits for.
//!
//! Whoever drops the future of a save may do so after the store has begun with it: what it commits
//! then is there, and the worker has to hear of it when it is, not before. So the rest of the work is
//! handed to the worker, which does it beside its own.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::WakeSignal;

/// Work that goes on in the worker's hands if this is dropped once it has begun.
pub(crate) struct Finished<T: 'static> {
    /// None when it is over, and while it is polled: what panicked must not be polled again.
    work: Option<BoxFuture<'static, T>>,
    worker: WakeSignal,
}

impl<T> Finished<T> {
    pub(crate) const fn new(work: BoxFuture<'static, T>, worker: WakeSignal) -> Self {
        Self {
            work: Some(work),
            worker,
        }
    }
}

impl<T> Future for Finished<T> {
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

impl<T> Drop for Finished<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.worker.adopt(work.map(drop).boxed());
        }
    }
}
