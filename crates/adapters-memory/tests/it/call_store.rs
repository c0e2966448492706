//! The in-memory store of calls keeps the contract of a store, bare and inside both wrappers.

use std::sync::Arc;

use async_trait::async_trait;
use punctual_adapters_memory::faults::{Faults, Faulty};
use punctual_adapters_memory::{Awaited, FakeClock, MemoryCallStore, MemoryTimerStore};
use punctual_conformance::CallStoreFixture;
use punctual_domain::Timestamp;
use punctual_ports::{CallStores, TimerStores};

struct Bare(MemoryCallStore);

#[async_trait]
impl CallStoreFixture for Bare {
    fn call_stores(&self) -> CallStores {
        CallStores::new(self.0.clone())
    }

    fn timer_stores(&self) -> TimerStores {
        TimerStores::new(self.0.timers())
    }

    async fn crash_and_reopen(&mut self) {
        self.0.crash_and_reopen();
    }

    async fn second_instance(&self) -> Option<(CallStores, TimerStores)> {
        let second = self.0.another_instance();
        let timers = TimerStores::new(second.timers());
        Some((CallStores::new(second), timers))
    }

    fn has_store_clock(&self) -> bool {
        true
    }

    fn set_store_clock(&self, now: Option<Timestamp>) {
        self.0.timers().set_clock(now);
    }
}

/// The same store behind both wrappers without any fault: they must not change its behaviour.
struct Decorated {
    timers: MemoryTimerStore,
    calls: MemoryCallStore,
    clock: FakeClock,
    faults: Faults,
}

impl Decorated {
    fn new() -> Self {
        let timers = MemoryTimerStore::new();
        let clock = FakeClock::new(Timestamp::MIN);
        Self {
            calls: MemoryCallStore::beside(&timers),
            timers,
            faults: Faults::new(Arc::new(clock.clone())),
            clock,
        }
    }
}

#[async_trait]
impl CallStoreFixture for Decorated {
    fn call_stores(&self) -> CallStores {
        let awaited = Awaited::new(Arc::new(self.calls.clone()), &self.clock);
        CallStores::new(Faulty::new(Arc::new(awaited), &self.faults))
    }

    fn timer_stores(&self) -> TimerStores {
        TimerStores::new(self.timers.clone())
    }

    async fn crash_and_reopen(&mut self) {
        self.calls.crash_and_reopen();
    }
}

mod bare {
    use super::{Bare, MemoryCallStore};
    punctual_conformance::call_store_suites!(Bare(MemoryCallStore::new()));
}

mod inside_both_wrappers {
    use super::Decorated;
    punctual_conformance::call_store_suites!(Decorated::new());
}

/// Attempts and their messages, whose calls are elsewhere.
struct Apart(MemoryCallStore);

#[async_trait]
impl CallStoreFixture for Apart {
    fn call_stores(&self) -> CallStores {
        CallStores::new(self.0.clone())
    }

    fn timer_stores(&self) -> TimerStores {
        TimerStores::new(self.0.timers())
    }

    fn has_calls(&self) -> bool {
        false
    }

    async fn crash_and_reopen(&mut self) {
        self.0.crash_and_reopen();
    }

    async fn second_instance(&self) -> Option<(CallStores, TimerStores)> {
        let second = self.0.another_instance();
        let timers = TimerStores::new(second.timers());
        Some((CallStores::new(second), timers))
    }

    fn has_store_clock(&self) -> bool {
        true
    }

    fn set_store_clock(&self, now: Option<Timestamp>) {
        self.0.timers().set_clock(now);
    }
}

mod apart {
    use super::{Apart, MemoryCallStore};
    punctual_conformance::execution_store_suites!(Apart(MemoryCallStore::executions_alone()));
}
