//! The timers of the HTTP library, on the clock port: a test can let hours pass.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use hyper::rt::{Sleep, Timer};
use punctual_ports::ClockPort;

#[derive(Clone)]
pub(super) struct ClockTimer {
    clock: Arc<dyn ClockPort>,
}

impl ClockTimer {
    pub(super) fn new(clock: Arc<dyn ClockPort>) -> Self {
        Self { clock }
    }
}

impl Timer for ClockTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(Waiting(Mutex::new(sleep(&self.clock, duration))))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        self.sleep(deadline.saturating_duration_since(self.now()))
    }
}

/// A sleep that owns its clock.
pub(crate) fn sleep(clock: &Arc<dyn ClockPort>, duration: Duration) -> BoxFuture<'static, ()> {
    let clock = Arc::clone(clock);
    Box::pin(async move { clock.sleep_for(duration).await })
}

/// A sleep of the library, which wants a future that may be shared between threads and never shares it: the
/// mutex is never locked.
struct Waiting(Mutex<BoxFuture<'static, ()>>);

impl Future for Waiting {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let sleep = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        sleep.as_mut().poll(cx)
    }
}

impl Sleep for Waiting {}
