//! Calls inside a step that take real time, during which the fake clock must stand still.

use std::cell::Cell;
use std::future::Future;

use punctual_ports::PortError;

use super::FakeClock;
use crate::{Intercepted, Interceptor, lock};

/// A store that a [`FakeClock`] awaits, because the store's threads know nothing of that clock: without
/// this, time would pass by a read of a file as soon as some task sleeps on the clock.
pub type Awaited<P> = Intercepted<P, FakeClock>;

impl Interceptor for FakeClock {
    async fn around<T: Send + 'static>(
        &self,
        _operation: &'static str,
        call: impl Future<Output = Result<T, PortError>> + Send,
    ) -> Result<T, PortError> {
        let _at_work = self.at_work();
        call.await
    }
}

thread_local! {
    static IN_A_STEP: Cell<bool> = const { Cell::new(false) };
}

/// Polls a step, so that what begins in it is known to.
pub(super) fn in_a_step<T>(poll: impl FnOnce() -> T) -> T {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            IN_A_STEP.set(false);
        }
    }
    IN_A_STEP.set(true);
    let _leave = Leave;
    poll()
}

/// As long as it lives, a step is at work, and no time passes.
#[derive(Debug)]
pub struct AtWork {
    clock: FakeClock,
}

impl FakeClock {
    /// Stops the clock until the guard is dropped; `None` outside a step, where the call may never be polled
    /// while the clock waits. The call must not wait for the clock itself.
    pub fn at_work(&self) -> Option<AtWork> {
        if !IN_A_STEP.get() {
            return None;
        }
        lock(&self.inner).at_work += 1;
        let clock = self.clone();
        Some(AtWork { clock })
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        let waiting = {
            let mut inner = lock(&self.clock.inner);
            inner.at_work -= 1;
            std::mem::take(&mut inner.waits_for_work)
        };
        for waker in waiting {
            waker.wake();
        }
    }
}
