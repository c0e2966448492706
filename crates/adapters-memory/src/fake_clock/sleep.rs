//! A sleep on the fake clock, which undoes its registration when it is dropped.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use punctual_domain::Timestamp;

use super::{FakeClock, Inner};
use crate::lock;

pub(super) struct Sleep {
    clock: FakeClock,
    id: u64,
    end: End,
}

/// When a sleep ends: by the wall clock or by the monotonic one.
#[derive(Clone, Copy)]
enum End {
    Wall(Timestamp),
    Monotonic(Duration),
}

impl Sleep {
    pub(super) fn until(clock: FakeClock, instant: Timestamp) -> Self {
        Self::new(clock, |_| End::Wall(instant))
    }

    pub(super) fn timed(clock: FakeClock, duration: Duration) -> Self {
        Self::new(clock, |inner| {
            End::Monotonic(inner.monotonic.saturating_add(duration))
        })
    }

    fn new(clock: FakeClock, end: impl FnOnce(&Inner) -> End) -> Self {
        let (id, end) = {
            let mut inner = lock(&clock.inner);
            (inner.new_id(), end(&inner))
        };
        Self { clock, id, end }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut inner = lock(&self.clock.inner);
        let waker = cx.waker().clone();
        match self.end {
            End::Wall(instant) if inner.now() < instant => {
                inner.sleepers.insert((instant, self.id), waker);
                Poll::Pending
            }
            End::Monotonic(end) if inner.monotonic < end => {
                inner.timed_sleepers.insert((end, self.id), waker);
                Poll::Pending
            }
            End::Wall(_) | End::Monotonic(_) => Poll::Ready(()),
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let mut inner = lock(&self.clock.inner);
        match self.end {
            End::Wall(instant) => _ = inner.sleepers.remove(&(instant, self.id)),
            End::Monotonic(end) => _ = inner.timed_sleepers.remove(&(end, self.id)),
        }
    }
}
