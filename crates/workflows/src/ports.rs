//! The adapters that a timer service is made of, in one place.

use std::sync::Arc;

use punctual_ports::{ClockPort, EventBusPort, IdPort, TimerPersistencePort, TimerQueuePort};

use crate::{InFlightEpoch, LastPoll, WakeSignal};

/// Everything that scheduling and firing need from outside. Clones share it.
#[derive(Clone)]
pub struct TimerPorts {
    /// The time.
    pub clock: Arc<dyn ClockPort>,
    /// New ids.
    pub ids: Arc<dyn IdPort>,
    /// The store, for those who schedule.
    pub persistence: Arc<dyn TimerPersistencePort>,
    /// The same store, for the worker.
    pub queue: Arc<dyn TimerQueuePort>,
    /// Where events go.
    pub bus: Arc<dyn EventBusPort>,
    /// How a save wakes the worker.
    pub wake: WakeSignal,
    /// What the worker has begun, for whoever has to wait for it.
    pub begun: InFlightEpoch,
    /// When the worker last looked for what is due.
    pub last_poll: LastPoll,
}

impl TimerPorts {
    /// Puts adapters together; one store serves both sides.
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
            begun: InFlightEpoch::default(),
            last_poll: LastPoll::default(),
        }
    }
}
