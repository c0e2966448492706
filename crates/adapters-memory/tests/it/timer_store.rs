//! The in-memory store keeps the contract of a store, bare and inside both wrappers.

use std::sync::Arc;

use async_trait::async_trait;
use punctual_adapters_memory::faults::{Faults, Faulty};
use punctual_adapters_memory::{Awaited, FakeClock, MemoryTimerStore};
use punctual_conformance::TimerStoreFixture;
use punctual_domain::Timestamp;
use punctual_ports::{BusPositionPort, DeadLetterPort, TimerPersistencePort, TimerQueuePort};

struct Bare(MemoryTimerStore);

#[async_trait]
impl TimerStoreFixture for Bare {
    fn persistence(&self) -> Arc<dyn TimerPersistencePort> {
        Arc::new(self.0.clone())
    }

    fn queue(&self) -> Arc<dyn TimerQueuePort> {
        Arc::new(self.0.clone())
    }

    fn dead_letters(&self) -> Arc<dyn DeadLetterPort> {
        Arc::new(self.0.clone())
    }

    fn positions(&self) -> Arc<dyn BusPositionPort> {
        Arc::new(self.0.clone())
    }

    async fn crash_and_reopen(&mut self) {
        self.0.crash_and_reopen();
    }

    fn claims_survive_a_crash(&self) -> bool {
        false
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

    fn wrapped(&self) -> Arc<Faulty<Awaited<MemoryTimerStore>>> {
        let awaited = Awaited::new(Arc::new(self.store.clone()), &self.clock);
        Arc::new(Faulty::new(Arc::new(awaited), &self.faults))
    }
}

#[async_trait]
impl TimerStoreFixture for Decorated {
    fn persistence(&self) -> Arc<dyn TimerPersistencePort> {
        self.wrapped()
    }

    fn queue(&self) -> Arc<dyn TimerQueuePort> {
        self.wrapped()
    }

    fn dead_letters(&self) -> Arc<dyn DeadLetterPort> {
        self.wrapped()
    }

    fn positions(&self) -> Arc<dyn BusPositionPort> {
        self.wrapped()
    }

    async fn crash_and_reopen(&mut self) {
        self.store.crash_and_reopen();
    }

    fn claims_survive_a_crash(&self) -> bool {
        false
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
