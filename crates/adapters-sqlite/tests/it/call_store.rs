//! The store of calls keeps the contract of a store, on a file that its timers share.

use async_trait::async_trait;
use punctual_adapters_sqlite::{SchemaSet, SqliteCallStore};
use punctual_conformance::CallStoreFixture;
use punctual_ports::{CallStores, TimerStores};

use crate::store::OnFile;

struct Fixture {
    file: OnFile,
    calls: SqliteCallStore,
}

impl Fixture {
    fn new() -> Self {
        let file = OnFile::new(SchemaSet::Shared);
        let calls = file.store.calls().unwrap();
        Self { file, calls }
    }
}

#[async_trait]
impl CallStoreFixture for Fixture {
    fn call_stores(&self) -> CallStores {
        CallStores::new(self.calls.clone())
    }

    fn timer_stores(&self) -> TimerStores {
        TimerStores::new(self.file.store.clone())
    }

    async fn crash_and_reopen(&mut self) {
        self.file.crash_and_reopen();
        self.calls = self.file.store.calls().unwrap();
    }
}

punctual_conformance::call_store_suites!(Fixture::new());
