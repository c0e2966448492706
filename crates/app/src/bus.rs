//! The bus that a builder was given, and what an engine gets of it.

use std::future::ready;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use punctual_ports::{Backend, ClockPort, EventBusPort};

use crate::Error;

/// A bus before it is connected.
#[async_trait]
pub(crate) trait BusSource: Send + Sync {
    /// All that is wrong with its settings, or with its use on a fake clock.
    fn problems(&self, _on_fake_clock: bool) -> Vec<String> {
        Vec::new()
    }

    /// Whether another process delivers events after they were accepted.
    fn is_broker(&self) -> bool {
        false
    }

    /// Connects it. A broker's bus keeps dead letters and positions in the store.
    async fn connect(
        self: Box<Self>,
        store: &dyn Backend,
        clock: Arc<dyn ClockPort>,
    ) -> Result<Connected, Error>;
}

/// A bus that its owner has connected, and disconnects.
pub(crate) struct OwnBus(pub(crate) Arc<dyn EventBusPort>);

#[async_trait]
impl BusSource for OwnBus {
    async fn connect(
        self: Box<Self>,
        _store: &dyn Backend,
        _clock: Arc<dyn ClockPort>,
    ) -> Result<Connected, Error> {
        Ok(Connected::to(self.0))
    }
}

/// Disconnects a bus.
pub(crate) type CloseBus = Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// A bus, and how it is disconnected at the end.
pub(crate) struct Connected {
    pub(crate) bus: Arc<dyn EventBusPort>,
    pub(crate) close: CloseBus,
}

impl Connected {
    /// A bus that needs no disconnect.
    pub(crate) fn to(bus: Arc<dyn EventBusPort>) -> Self {
        let close = Box::new(|| ready(()).boxed());
        Self { bus, close }
    }
}
