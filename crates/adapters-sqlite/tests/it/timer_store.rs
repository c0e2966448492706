//! The store keeps the contract of a store, with either set of tables.

use async_trait::async_trait;
use punctual_adapters_sqlite::SchemaSet;
use punctual_conformance::TimerStoreFixture;
use punctual_domain::TimerKey;
use punctual_ports::TimerStores;

use crate::store::{OnFile, put_call};

struct Fixture(OnFile);

#[async_trait]
impl TimerStoreFixture for Fixture {
    fn timer_stores(&self) -> TimerStores {
        TimerStores::new(self.0.store.clone())
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

    /// One process fires a file, and others schedule and delete beside it.
    async fn client(&self) -> Option<TimerStores> {
        Some(TimerStores::new(self.0.client()))
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
