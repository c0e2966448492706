//! The bus that a builder was given, and what an engine gets of it.

use std::future::ready;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use punctual_ports::EventBusPort;

use crate::Error;
use crate::clock::EngineClock;
use crate::stores::Stores;

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

    /// Connects it. A broker's bus keeps dead letters and positions in the store of the timers.
    async fn connect(
        self: Box<Self>,
        stores: &Stores,
        consumers: Vec<(&'static str, Owner)>,
        clock: &dyn EngineClock,
    ) -> Result<Connected, Error>;
}

/// The database that a consumer belongs to, by what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Timers,
    #[cfg_attr(not(feature = "calls"), expect(dead_code, reason = "there are none"))]
    Calls,
}

/// A bus that its owner has connected, and disconnects.
pub(crate) struct OwnBus(pub(crate) Arc<dyn EventBusPort>);

#[async_trait]
impl BusSource for OwnBus {
    async fn connect(
        self: Box<Self>,
        _stores: &Stores,
        _consumers: Vec<(&'static str, Owner)>,
        _clock: &dyn EngineClock,
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
