//! The in-memory store keeps the contract of a store, bare and inside both wrappers.

use std::sync::Arc;

use async_trait::async_trait;
use punctual_adapters_memory::faults::{Faults, Faulty};
use punctual_adapters_memory::{Awaited, FakeClock, MemoryTimerStore};
use punctual_conformance::TimerStoreFixture;
use punctual_domain::Timestamp;
use punctual_ports::TimerStores;

struct Bare(MemoryTimerStore);

#[async_trait]
impl TimerStoreFixture for Bare {
    fn timer_stores(&self) -> TimerStores {
        TimerStores::new(self.0.clone())
    }

    async fn crash_and_reopen(&mut self) {
        self.0.crash_and_reopen();
    }

    fn claims_survive_a_crash(&self) -> bool {
        false
    }

    async fn second_instance(&self) -> Option<TimerStores> {
        Some(TimerStores::new(self.0.another_instance()))
    }

    fn has_store_clock(&self) -> bool {
        true
    }

    fn set_store_clock(&self, now: Option<Timestamp>) {
        self.0.set_clock(now);
    }

    async fn crash_store(&self) -> bool {
        self.0.lose_claims();
        true
    }
}

/// The same store behind both wrappers without any fault: they must not change its behaviour.
struct Decorated {
    store: MemoryTimerStore,
    clock: FakeClock,
    faults: Faults,
}

impl Decorated {
    fn new() -> Self {
        let clock = FakeClock::new(Timestamp::MIN);
        Self {
            store: MemoryTimerStore::new(),
            faults: Faults::new(Arc::new(clock.clone())),
            clock,
        }
    }

    fn decorated(&self, store: MemoryTimerStore) -> TimerStores {
        let awaited = Awaited::new(Arc::new(store), &self.clock);
        TimerStores::new(Faulty::new(Arc::new(awaited), &self.faults))
    }
}

#[async_trait]
impl TimerStoreFixture for Decorated {
    fn timer_stores(&self) -> TimerStores {
        self.decorated(self.store.clone())
    }

    async fn crash_and_reopen(&mut self) {
        self.store.crash_and_reopen();
    }

    fn claims_survive_a_crash(&self) -> bool {
        false
    }

    async fn second_instance(&self) -> Option<TimerStores> {
        Some(self.decorated(self.store.another_instance()))
    }
}

mod bare {
    use super::{Bare, MemoryTimerStore};
    punctual_conformance::timer_store_suites!(Bare(MemoryTimerStore::new()));
}

mod inside_both_wrappers {
    use super::Decorated;
    punctual_conformance::timer_store_suites!(Decorated::new());
}
