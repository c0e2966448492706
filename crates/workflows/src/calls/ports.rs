//! The adapters of service calls.

use std::sync::Arc;

use punctual_domain::messages::Listeners;
use punctual_ports::{
    CallStores, ClockPort, EventBusPort, ExecutionLogPort, IdPort, OutboxPort,
    ServiceCallPersistencePort, TimerPersistencePort,
};

use crate::Notifier;

/// The ports that service calls use, and the notifiers between them. Clones share it.
#[derive(Clone)]
pub struct CallPorts {
    /// The time.
    pub clock: Arc<dyn ClockPort>,
    /// New ids.
    pub ids: Arc<dyn IdPort>,
    /// The bus between the modules.
    pub bus: Arc<dyn EventBusPort>,
    /// The calls.
    pub calls: Arc<dyn ServiceCallPersistencePort>,
    /// Who receives what is published on that bus.
    pub listeners: Listeners,
    /// The messages to publish about them.
    pub outbox: Arc<dyn OutboxPort>,
    /// Their attempts.
    pub executions: Arc<dyn ExecutionLogPort>,
    /// Their timers.
    pub timers: Arc<dyn TimerPersistencePort>,
    /// Notified when the outbox has messages to publish.
    pub to_publish: Notifier,
    /// Notified when there is an attempt to start.
    pub to_execute: Notifier,
}

impl CallPorts {
    /// Ports on these adapters.
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
            listeners: Listeners::Anyone,
            outbox: stores.outbox,
            executions: stores.executions,
            timers,
            to_publish: Notifier::default(),
            to_execute: Notifier::default(),
        }
    }
}
