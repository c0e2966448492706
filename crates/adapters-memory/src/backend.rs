//! The stores as a backend. They need neither a change feed nor a close.

use std::sync::Arc;

use punctual_ports::{
    Backend, BusPositionPort, CallStores, DeadLetterPort, TimerPersistencePort, TimerQueuePort,
};

use crate::{MemoryCallStore, MemoryTimerStore};

impl Backend for MemoryTimerStore {
    fn persistence(&self) -> Arc<dyn TimerPersistencePort> {
        Arc::new(self.clone())
    }

    fn queue(&self) -> Arc<dyn TimerQueuePort> {
        Arc::new(self.clone())
    }

    fn dead_letters(&self) -> Arc<dyn DeadLetterPort> {
        Arc::new(self.clone())
    }

    fn positions(&self) -> Arc<dyn BusPositionPort> {
        Arc::new(self.clone())
    }
}

impl Backend for MemoryCallStore {
    fn persistence(&self) -> Arc<dyn TimerPersistencePort> {
        Arc::new(self.timers())
    }

    fn queue(&self) -> Arc<dyn TimerQueuePort> {
        Arc::new(self.timers())
    }

    fn dead_letters(&self) -> Arc<dyn DeadLetterPort> {
        Arc::new(self.timers())
    }

    fn positions(&self) -> Arc<dyn BusPositionPort> {
        Arc::new(self.timers())
    }

    fn call_stores(&self) -> Option<CallStores> {
        Some(CallStores::new(self.clone()))
    }
}
