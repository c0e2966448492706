//! The store keeps the contract of a store, with either set of tables.

use std::sync::Arc;

use async_trait::async_trait;
use punctual_adapters_sqlite::SchemaSet;
use punctual_conformance::TimerStoreFixture;
use punctual_domain::TimerKey;
use punctual_ports::{BusPositionPort, DeadLetterPort, TimerPersistencePort, TimerQueuePort};

use crate::store::{OnFile, put_call};

struct Fixture(OnFile);

#[async_trait]
impl TimerStoreFixture for Fixture {
    fn persistence(&self) -> Arc<dyn TimerPersistencePort> {
        Arc::new(self.0.store.clone())
    }

    fn queue(&self) -> Arc<dyn TimerQueuePort> {
        Arc::new(self.0.store.clone())
    }

    fn dead_letters(&self) -> Arc<dyn DeadLetterPort> {
        Arc::new(self.0.store.clone())
    }

    fn positions(&self) -> Arc<dyn BusPositionPort> {
        Arc::new(self.0.store.clone())
    }

    async fn prepare(&self, key: &TimerKey) {
        if self.0.settings.set == SchemaSet::Shared {
            put_call(&self.0.outsider(), key);
        }
    }

    async fn crash_and_reopen(&mut self) {
        self.0.crash_and_reopen();
    }

    fn claims_survive_a_crash(&self) -> bool {
        false
    }
}

mod timers_only {
    use super::{Fixture, OnFile, SchemaSet};
    punctual_conformance::timer_store_suites!(Fixture(OnFile::new(SchemaSet::TimersOnly)));
}

mod shared {
    use super::{Fixture, OnFile, SchemaSet};
    punctual_conformance::timer_store_suites!(Fixture(OnFile::new(SchemaSet::Shared)));
}
