//! The store of calls keeps the contract of a store, in a schema that its timers share, with several instances
//! on it.

use async_trait::async_trait;
use punctual_adapters_postgres::SchemaSet;
use punctual_conformance::CallStoreFixture;
use punctual_domain::Timestamp;
use punctual_ports::{Backend, CallStores, TimerStores};

use crate::store::InSchema;

struct Fixture {
    schema: InSchema,
    set: SchemaSet,
}

impl Fixture {
    async fn new(set: SchemaSet) -> Option<Self> {
        let schema = InSchema::new(set).await?;
        Some(Self { schema, set })
    }
}

#[async_trait]
impl CallStoreFixture for Fixture {
    fn call_stores(&self) -> CallStores {
        CallStores::new(self.schema.store.calls().unwrap())
    }

    fn timer_stores(&self) -> TimerStores {
        self.schema.store.timer_stores()
    }

    fn has_calls(&self) -> bool {
        self.set == SchemaSet::Shared
    }

    async fn crash_and_reopen(&mut self) {
        self.schema.crash_and_reopen().await;
    }

    fn claims_survive_a_crash(&self) -> bool {
        true
    }

    async fn second_instance(&self) -> Option<(CallStores, TimerStores)> {
        let other = self.schema.another().await;
        Some((CallStores::new(other.calls()?), other.timer_stores()))
    }

    fn has_store_clock(&self) -> bool {
        true
    }

    fn set_store_clock(&self, now: Option<Timestamp>) {
        self.schema.clock.set(now);
    }
}

punctual_conformance::call_store_suites!(optional Fixture::new(SchemaSet::Shared).await);

mod in_a_schema_of_their_own {
    use super::{Fixture, SchemaSet};
    punctual_conformance::execution_store_suites!(optional Fixture::new(SchemaSet::ExecutionOnly).await);
}
