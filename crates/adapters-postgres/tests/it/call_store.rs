//! The store of calls keeps the contract of a store, in a schema that its timers share, with several instances
//! on it.

use async_trait::async_trait;
use punctual_adapters_postgres::SchemaSet;
use punctual_conformance::CallStoreFixture;
use punctual_domain::Timestamp;
use punctual_ports::{CallStores, TimerStores};

use crate::store::InSchema;

struct Fixture(InSchema);

impl Fixture {
    async fn new() -> Option<Self> {
        InSchema::new(SchemaSet::Shared).await.map(Self)
    }
}

#[async_trait]
impl CallStoreFixture for Fixture {
    fn call_stores(&self) -> CallStores {
        CallStores::new(self.0.store.calls().unwrap())
    }

    fn timer_stores(&self) -> TimerStores {
        TimerStores::new(self.0.store.clone())
    }

    async fn crash_and_reopen(&mut self) {
        self.0.crash_and_reopen().await;
    }

    fn claims_survive_a_crash(&self) -> bool {
        true
    }

    async fn second_instance(&self) -> Option<(CallStores, TimerStores)> {
        let other = self.0.another().await;
        Some((CallStores::new(other.calls()?), TimerStores::new(other)))
    }

    fn has_store_clock(&self) -> bool {
        true
    }

    fn set_store_clock(&self, now: Option<Timestamp>) {
        self.0.clock.set(now);
    }
}

punctual_conformance::call_store_suites!(optional Fixture::new().await);
