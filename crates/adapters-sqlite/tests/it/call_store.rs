//! The store of calls keeps the contract of a store, on a file that its timers share.

use std::sync::Arc;

use async_trait::async_trait;
use punctual_adapters_sqlite::{SchemaSet, SqliteCallStore};
use punctual_conformance::CallStoreFixture;
use punctual_ports::{
    DeadLetterPort, ExecutionLogPort, OutboxPort, ServiceCallPersistencePort, TimerPersistencePort,
    TimerQueuePort,
};

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
    fn calls(&self) -> Arc<dyn ServiceCallPersistencePort> {
        Arc::new(self.calls.clone())
    }

    fn outbox(&self) -> Arc<dyn OutboxPort> {
        Arc::new(self.calls.clone())
    }

    fn attempts(&self) -> Arc<dyn ExecutionLogPort> {
        Arc::new(self.calls.clone())
    }

    fn timers(&self) -> Arc<dyn TimerPersistencePort> {
        Arc::new(self.file.store.clone())
    }

    fn queue(&self) -> Arc<dyn TimerQueuePort> {
        Arc::new(self.file.store.clone())
    }

    fn dead_letters(&self) -> Arc<dyn DeadLetterPort> {
        Arc::new(self.file.store.clone())
    }

    async fn crash_and_reopen(&mut self) {
        self.file.crash_and_reopen();
        self.calls = self.file.store.calls().unwrap();
    }
}

punctual_conformance::call_store_suites!(Fixture::new());
