//! The adapters of a timer service.

use std::sync::Arc;

use punctual_ports::{ClockPort, EventBusPort, IdPort, TimerPersistencePort, TimerQueuePort};

use crate::{InFlightEpoch, LastPoll, WakeSignal};

/// The ports that scheduling and firing use, and the state they share. Clones share it.
#[derive(Clone)]
pub struct TimerPorts {
    /// The time.
    pub clock: Arc<dyn ClockPort>,
    /// New ids.
    pub ids: Arc<dyn IdPort>,
    /// The store, for scheduling.
    pub persistence: Arc<dyn TimerPersistencePort>,
    /// The same store, for the worker.
    pub queue: Arc<dyn TimerQueuePort>,
    /// Where events go.
    pub bus: Arc<dyn EventBusPort>,
    /// How a save wakes the worker.
    pub wake: WakeSignal,
    /// The firings in flight, for recovery to wait for.
    pub in_flight_epoch: InFlightEpoch,
    /// When the worker last polled.
    pub last_poll: LastPoll,
}

impl TimerPorts {
    /// Ports on these adapters; one store serves both sides.
    pub fn new(
        clock: impl ClockPort + 'static,
        ids: impl IdPort + 'static,
        store: impl TimerPersistencePort + TimerQueuePort + 'static,
        bus: impl EventBusPort + 'static,
    ) -> Self {
        let store = Arc::new(store);
        Self {
            clock: Arc::new(clock),
            ids: Arc::new(ids),
            persistence: Arc::<_>::clone(&store) as Arc<dyn TimerPersistencePort>,
            queue: store,
            bus: Arc::new(bus),
            wake: WakeSignal::new(),
            in_flight_epoch: InFlightEpoch::default(),
            last_poll: LastPoll::default(),
        }
    }
}
