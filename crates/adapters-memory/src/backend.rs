//! The stores as a backend. They need neither a change feed nor a close.

use punctual_ports::{Backend, CallStores, TimerStores};

use crate::{MemoryCallStore, MemoryTimerStore};

impl Backend for MemoryTimerStore {
    fn timer_stores(&self) -> TimerStores {
        TimerStores::new(self.clone())
    }
}

impl Backend for MemoryCallStore {
    fn timer_stores(&self) -> TimerStores {
        TimerStores::new(self.timers())
    }

    fn call_stores(&self) -> Option<CallStores> {
        Some(CallStores::new(self.clone()))
    }
}
