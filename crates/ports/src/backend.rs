//! A store as an engine takes it: its ports, its change feed, its health and its end.

use std::any::Any;
use std::future::pending;
use std::sync::Arc;

use async_trait::async_trait;

use crate::{
    BusPositionPort, ClockPort, DeadLetterPort, ExecutionLogPort, OutboxPort, PortError,
    ServiceCallPersistencePort, TimerPersistencePort, TimerQueuePort,
};

/// The ports of service calls, on one database.
#[derive(Clone)]
pub struct CallStores {
    /// The calls.
    pub calls: Arc<dyn ServiceCallPersistencePort>,
    /// Their messages, committed with them and published later.
    pub outbox: Arc<dyn OutboxPort>,
    /// Their attempts.
    pub executions: Arc<dyn ExecutionLogPort>,
}

impl CallStores {
    /// The three ports of one adapter.
    pub fn new<S>(store: S) -> Self
    where
        S: ServiceCallPersistencePort + OutboxPort + ExecutionLogPort + 'static,
    {
        let store = Arc::new(store);
        Self {
            calls: Arc::<S>::clone(&store),
            outbox: Arc::<S>::clone(&store),
            executions: store,
        }
    }
}

/// Capabilities of a store, as it was opened.
///
/// ```
/// use punctual_ports::Capabilities;
///
/// let client = Capabilities { fires: false, ..Capabilities::default() };
/// assert!(client.standalone_timers);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Whether timers are fired from it. If not, an engine on it schedules, reads and cancels beside
    /// the engine that fires, and cannot be started.
    pub fires: bool,
    /// Whether a timer may be stored that belongs to no service call.
    pub standalone_timers: bool,
}

impl Default for Capabilities {
    /// A store of timers that an engine fires.
    fn default() -> Self {
        Self {
            fires: true,
            standalone_timers: true,
        }
    }
}

/// Health of a store's writes, known without writing.
#[derive(Debug, Clone, Default)]
pub struct WriteHealth {
    /// Number of commits since the store was opened.
    pub commits: u64,
    /// Why the last write failed, if nothing has shown since that the reason is gone.
    pub problem: Option<PortError>,
}

/// Callback of a change feed. It is cheap, does not block, and may be called from any thread.
pub type OnChange = Arc<dyn Fn() + Send + Sync>;

/// A store that an engine runs on.
///
/// # Contract
/// - All ports are views of one database: a write that one of them has acknowledged is visible to the
///   others. Each of them keeps its own contract, of which the crate `conformance` has the test cases.
/// - `call_stores`, `capabilities` and `name` answer the same as long as the store is open.
/// - `watch` calls `on_change` after a commit that did not come through these ports, such as another
///   process's, soon enough that a timer due at once may wait for it. It may call it without a cause. What
///   it misses is found by the worker's next poll, late and not lost.
/// - `watch` returns only when the store cannot be relied on any more, and then with the reason: the
///   engine stops. Trouble that may pass is no reason.
/// - `write_health` answers at once, without I/O.
/// - `probe_write` writes, as durably as a timer is written, and changes nothing that is stored. It
///   fails if a new timer would be refused.
/// - `close` returns when everything that was acknowledged is safe and the store can be opened again. Its
///   ports may answer `Stopped` from then on. Closing twice is closing once.
/// - `close_soon` begins the same, waits for nothing, and needs no runtime. The engine calls it where it
///   is dropped.
///
/// On a fake clock an engine does not call `watch`: it polls at the beginning of every `advance`.
#[async_trait]
pub trait Backend: Any + Send + Sync {
    /// The timers, for those who schedule, read and delete them.
    fn persistence(&self) -> Arc<dyn TimerPersistencePort>;

    /// The same timers, for the worker.
    fn queue(&self) -> Arc<dyn TimerQueuePort>;

    /// The dead letters.
    fn dead_letters(&self) -> Arc<dyn DeadLetterPort>;

    /// The positions of buses.
    fn positions(&self) -> Arc<dyn BusPositionPort>;

    /// The service calls, if the store keeps them. An engine asks once.
    fn call_stores(&self) -> Option<CallStores> {
        None
    }

    /// What the store can do.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// What people call the store, such as its path, for the sentence that says why it cannot be
    /// written to.
    fn name(&self) -> String {
        "the store".to_owned()
    }

    /// The change feed. Without one, commits made elsewhere are found by polling.
    async fn watch(&self, _clock: Arc<dyn ClockPort>, _on_change: OnChange) -> PortError {
        pending().await
    }

    /// How writing goes, as far as it is known.
    fn write_health(&self) -> WriteHealth {
        WriteHealth::default()
    }

    /// Finds out by writing whether something new can be stored now.
    async fn probe_write(&self) -> Result<(), PortError> {
        Ok(())
    }

    /// Finishes what was begun and closes the store.
    async fn close(&self) {}

    /// Closes the store without waiting for it.
    fn close_soon(&self) {}
}
