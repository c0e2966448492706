//! The stores of an engine: one for its timers, and another for its service calls if they are elsewhere.

use std::future::pending;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use punctual_ports::{Backend, ClockPort, OnChange, PortError};

use crate::Error;
use crate::clock::EngineClock;
use crate::write_check::{Probe, WriteCheck};

/// A store that a builder was given, before it is opened.
#[async_trait]
pub(crate) trait Storage: Send + Sync {
    /// Whether it schedules beside the engine that fires.
    fn is_client(&self) -> bool;

    /// Whether several engines may fire its timers at once.
    fn several_instances(&self) -> bool {
        false
    }

    /// What is wrong with it, as far as can be told before it is opened.
    fn problem(&self) -> Option<String> {
        None
    }

    /// Every command that schedules a timer belongs to a call that was accepted, because nothing else
    /// publishes on the bus: a limit on the size of the store must not refuse it.
    fn takes_commands_of_calls_alone(&mut self) {}

    /// Opens it.
    async fn open(self: Box<Self>, clock: &dyn EngineClock) -> Result<Arc<dyn Backend>, Error>;
}

/// A store that its owner has opened.
pub(crate) struct OwnStore(pub(crate) Arc<dyn Backend>);

#[async_trait]
impl Storage for OwnStore {
    fn is_client(&self) -> bool {
        !self.0.capabilities().fires
    }

    fn several_instances(&self) -> bool {
        self.0.capabilities().several_instances
    }

    async fn open(self: Box<Self>, _clock: &dyn EngineClock) -> Result<Arc<dyn Backend>, Error> {
        Ok(self.0)
    }
}

/// The open stores of an engine.
pub(crate) struct Stores {
    timers: Store,
    /// `None`: the calls, if there are any, are beside their timers.
    calls: Option<Store>,
}

struct Store {
    backend: Arc<dyn Backend>,
    write_check: WriteCheck,
}

impl Store {
    async fn open(storage: Box<dyn Storage>, clock: &dyn EngineClock) -> Result<Self, Error> {
        Ok(Self {
            backend: storage.open(clock).await?,
            write_check: WriteCheck::default(),
        })
    }
}

impl Stores {
    /// Opens all of them, or leaves none open.
    pub(crate) async fn open(
        timers: Box<dyn Storage>,
        calls: Option<Box<dyn Storage>>,
        clock: &dyn EngineClock,
    ) -> Result<Self, Error> {
        let mut stores = Self {
            timers: Store::open(timers, clock).await?,
            calls: None,
        };
        if let Some(calls) = calls {
            match Store::open(calls, clock).await {
                Ok(calls) => stores.calls = Some(calls),
                Err(error) => {
                    // The next try has to find the timers' store free.
                    stores.close().await;
                    return Err(error);
                }
            }
        }
        Ok(stores)
    }

    /// The store of the timers.
    pub(crate) fn timers(&self) -> &dyn Backend {
        self.timers.backend.as_ref()
    }

    /// The store of the service calls.
    pub(crate) fn calls(&self) -> &dyn Backend {
        let store = self.calls.as_ref().unwrap_or(&self.timers);
        store.backend.as_ref()
    }

    /// Whether timers are fired by another engine.
    pub(crate) fn is_client(&self) -> bool {
        !self.timers().capabilities().fires
    }

    /// Why nothing new can be stored now, if so, with the name of the store.
    pub(crate) async fn write_problem(
        &self,
        clock: &dyn ClockPort,
        probe: Probe,
    ) -> Option<String> {
        // At once: two stores that do not answer take no longer than one.
        let checks = self.each().map(|store| async move {
            let problem = store.write_check.problem(&store.backend, clock, probe);
            let problem = problem.await?;
            Some(format!("{}: {problem}", store.backend.name()))
        });
        join_all(checks).await.into_iter().flatten().next()
    }

    /// Watches all of them until one cannot be relied on any more. Timers that were committed elsewhere
    /// call `on_change`.
    pub(crate) async fn watch(&self, clock: &Arc<dyn ClockPort>, on_change: OnChange) -> PortError {
        let calls = async {
            match &self.calls {
                // Its workers poll.
                Some(calls) => {
                    let watch = calls.backend.watch(Arc::clone(clock), Arc::new(|| {}));
                    watch.await
                }
                None => pending().await,
            }
        };
        tokio::select! {
            cause = self.timers.backend.watch(Arc::clone(clock), on_change) => cause,
            cause = calls => cause,
        }
    }

    pub(crate) async fn close(&self) {
        for store in self.each() {
            store.backend.close().await;
        }
    }

    /// Closes them a moment later, whether or not there is a runtime.
    pub(crate) fn close_soon(&self) {
        for store in self.each() {
            store.backend.close_soon();
        }
    }

    fn each(&self) -> impl Iterator<Item = &Store> {
        std::iter::once(&self.timers).chain(&self.calls)
    }
}
