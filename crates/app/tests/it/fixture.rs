//! An engine whose handler tells what it was told.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use punctual::testing::FakeClock;
use punctual::{Builder, DueTimeReached, Punctual, Running, TenantId, TimerKey, Timestamp};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A clock at the beginning of a day.
pub(crate) fn clock() -> FakeClock {
    FakeClock::new(at("2026-12-24T00:00:00Z"))
}

pub(crate) fn key(name: &str) -> TimerKey {
    TimerKey::named(TenantId::default(), name)
}

/// What a handler was told, in order.
#[derive(Clone, Default)]
pub(crate) struct Heard(Arc<Mutex<Vec<DueTimeReached>>>);

impl Heard {
    pub(crate) fn hear(&self, due: DueTimeReached) {
        self.0.lock().unwrap().push(due);
    }

    pub(crate) fn all(&self) -> Vec<DueTimeReached> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// A builder whose handler is this.
    pub(crate) fn builder(&self) -> Builder {
        let heard = self.clone();
        Punctual::builder().on_due(move |due| {
            heard.hear(due);
            async { Ok(()) }
        })
    }
}

/// An engine in memory on a fake clock, running.
pub(crate) async fn in_memory() -> (FakeClock, Heard, Punctual, Running) {
    let (clock, heard) = (clock(), Heard::default());
    let punctual = heard.builder().in_memory(clock.clone()).build().await;
    let punctual = punctual.unwrap();
    let running = punctual.start().await.unwrap();
    (clock, heard, punctual, running)
}
