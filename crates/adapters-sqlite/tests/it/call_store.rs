//! The store of calls keeps the contract of a store, on a file that its timers share.

use async_trait::async_trait;
use punctual_adapters_sqlite::{SchemaSet, SqliteCallStore};
use punctual_conformance::CallStoreFixture;
use punctual_ports::{Backend, CallStores, TimerStores};

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

/// Attempts and their messages on a file of their own.
struct Apart {
    file: OnFile,
    attempts: SqliteCallStore,
}

impl Apart {
    fn new() -> Self {
        let file = OnFile::new(SchemaSet::ExecutionOnly);
        let attempts = file.store.calls().unwrap();
        Self { file, attempts }
    }
}

#[async_trait]
impl CallStoreFixture for Apart {
    fn call_stores(&self) -> CallStores {
        CallStores::new(self.attempts.clone())
    }

    fn timer_stores(&self) -> TimerStores {
        self.file.store.timer_stores()
    }

    fn has_calls(&self) -> bool {
        false
    }

    async fn crash_and_reopen(&mut self) {
        self.file.crash_and_reopen();
        self.attempts = self.file.store.calls().unwrap();
    }
}

mod on_a_file_of_their_own {
    use super::Apart;
    punctual_conformance::execution_store_suites!(Apart::new());
}
