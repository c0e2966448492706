//! The store keeps the contract of a store, with either set of tables.

use async_trait::async_trait;
use punctual_adapters_postgres::SchemaSet;
use punctual_conformance::TimerStoreFixture;
use punctual_domain::{TimerKey, Timestamp};
use punctual_ports::TimerStores;

use crate::store::InSchema;

struct Fixture(InSchema);

impl Fixture {
    async fn new(set: SchemaSet) -> Option<Self> {
        InSchema::new(set).await.map(Self)
    }
}

#[async_trait]
impl TimerStoreFixture for Fixture {
    fn timer_stores(&self) -> TimerStores {
        TimerStores::new(self.0.store.clone())
    }

    async fn prepare(&self, key: &TimerKey) {
        if self.0.settings.set == SchemaSet::Shared {
            self.0.put_call(key).await;
        }
    }

    async fn crash_and_reopen(&mut self) {
        self.0.crash_and_reopen().await;
    }

    async fn disconnect(&self) {
        self.0.disconnect().await;
    }

    fn histories(&self) -> u32 {
        20
    }

    fn claims_survive_a_crash(&self) -> bool {
        true
    }

    async fn second_instance(&self) -> Option<TimerStores> {
        Some(TimerStores::new(self.0.another().await))
    }

    fn has_store_clock(&self) -> bool {
        true
    }

    fn set_store_clock(&self, now: Option<Timestamp>) {
        self.0.clock.set(now);
    }

    async fn crash_store(&self) -> bool {
        self.0.lose_claims().await;
        true
    }
}

mod timers_only {
    use super::{Fixture, SchemaSet};
    punctual_conformance::timer_store_suites!(optional Fixture::new(SchemaSet::TimersOnly).await);
}

mod shared {
    use super::{Fixture, SchemaSet};
    punctual_conformance::timer_store_suites!(optional Fixture::new(SchemaSet::Shared).await);
}
