//! A sleep on the fake clock, which undoes its registration when it is dropped.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use punctual_domain::Timestamp;

use super::FakeClock;
use crate::lock;

pub(super) struct Sleep {
    clock: FakeClock,
    place: (Timestamp, u64),
}

impl Sleep {
    pub(super) fn new(clock: FakeClock, until: Timestamp) -> Self {
        let id = lock(&clock.inner).new_id();
        Self {
            clock,
            place: (until, id),
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut inner = lock(&self.clock.inner);
        if inner.now() >= self.place.0 {
            inner.sleepers.remove(&self.place);
            return Poll::Ready(());
        }
        inner.sleepers.insert(self.place, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        lock(&self.clock.inner).sleepers.remove(&self.place);
    }
}
