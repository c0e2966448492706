//! The adapters that service calls are made of, in one place.

use std::sync::Arc;

use punctual_ports::{
    CallStores, ClockPort, EventBusPort, ExecutionLogPort, IdPort, OutboxPort,
    ServiceCallPersistencePort, TimerPersistencePort,
};

use super::Notifier;

/// Everything that the life of a call needs from outside. Clones share it.
#[derive(Clone)]
pub struct CallPorts {
    /// The time.
    pub clock: Arc<dyn ClockPort>,
    /// New ids.
    pub ids: Arc<dyn IdPort>,
    /// How the modules talk.
    pub bus: Arc<dyn EventBusPort>,
    /// The calls.
    pub calls: Arc<dyn ServiceCallPersistencePort>,
    /// What is still to be told of them.
    pub outbox: Arc<dyn OutboxPort>,
    /// Their attempts.
    pub executions: Arc<dyn ExecutionLogPort>,
    /// Their timers.
    pub timers: Arc<dyn TimerPersistencePort>,
    /// Rings when there is something to publish.
    pub to_publish: Notifier,
    /// Rings when there is an attempt to make.
    pub to_execute: Notifier,
}

impl CallPorts {
    /// Puts adapters together.
    pub fn new(
        clock: Arc<dyn ClockPort>,
        ids: Arc<dyn IdPort>,
        bus: Arc<dyn EventBusPort>,
        stores: CallStores,
        timers: Arc<dyn TimerPersistencePort>,
    ) -> Self {
        Self {
            clock,
            ids,
            bus,
            calls: stores.calls,
            outbox: stores.outbox,
            executions: stores.executions,
            timers,
            to_publish: Notifier::default(),
            to_execute: Notifier::default(),
        }
    }
}
