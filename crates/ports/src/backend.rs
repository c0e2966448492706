//! A store as an engine uses it: its ports, change feed, health, capabilities and close.

use std::any::Any;
use std::future::pending;
use std::sync::Arc;

use async_trait::async_trait;
use punctual_domain::Timestamp;

use crate::{
    BusPositionPort, ClockPort, DeadLetterPort, ExecutionLogPort, Instance, OutboxPort, PortError,
    ServiceCallPersistencePort, TimerPersistencePort, TimerQueuePort,
};

/// The ports of timers, on one database.
#[derive(Clone)]
pub struct TimerStores {
    /// The timers, to schedule, read and delete them.
    pub persistence: Arc<dyn TimerPersistencePort>,
    /// The same timers, for the worker.
    pub queue: Arc<dyn TimerQueuePort>,
    /// The dead letters.
    pub dead_letters: Arc<dyn DeadLetterPort>,
    /// The positions of buses.
    pub positions: Arc<dyn BusPositionPort>,
}

impl TimerStores {
    /// The four ports of one adapter.
    pub fn new<S>(store: S) -> Self
    where
        S: TimerPersistencePort + TimerQueuePort + DeadLetterPort + BusPositionPort + 'static,
    {
        let store = Arc::new(store);
        Self {
            persistence: Arc::<S>::clone(&store),
            queue: Arc::<S>::clone(&store),
            dead_letters: Arc::<S>::clone(&store),
            positions: store,
        }
    }
}

/// The ports of service calls, on one database.
#[derive(Clone)]
pub struct CallStores {
    /// The calls.
    pub calls: Arc<dyn ServiceCallPersistencePort>,
    /// Their messages, committed with them and published after.
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
    /// Whether an engine fires the timers of this store. If not, an engine on it schedules, reads and
    /// cancels beside the one that fires, and cannot be started.
    pub fires: bool,
    /// Whether a timer may be stored that belongs to no service call.
    pub standalone_timers: bool,
    /// Whether several instances may fire its timers at once. Leases are short then, since what a crashed
    /// instance had claimed waits for their end.
    pub several_instances: bool,
}

impl Default for Capabilities {
    /// A store of timers that one engine fires.
    fn default() -> Self {
        Self {
            fires: true,
            standalone_timers: true,
            several_instances: false,
        }
    }
}

/// Health of a store's writes, known without writing.
#[derive(Debug, Clone, Default)]
pub struct WriteHealth {
    /// Number of commits since the store was opened.
    pub commits: u64,
    /// Why the last write failed, until the cause is known to be resolved.
    pub problem: Option<PortError>,
}

/// Callback of a change feed. It is cheap, does not block, and may be called from any thread.
pub type OnChange = Arc<dyn Fn() + Send + Sync>;

/// A store that an engine runs on.
///
/// # Contract
/// - All ports are views of one database: a write acknowledged by one of them is visible to the others.
///   Each of them fulfils its own contract, whose test cases are in the crate `conformance`.
/// - An instance is one opening of the store. Several may be open at once where the store allows it, and a
///   write acknowledged by one is visible to the others. If it allows only one that fires, the others have
///   `fires` false.
/// - `call_stores`, `capabilities`, `has_timers` and `name` return the same as long as the store is open.
/// - `watch` calls `on_change` after a commit that did not come through these ports, such as another
///   process's or instance's, soon enough that a timer due at once may wait for it. Spurious calls are allowed. A commit
///   that it misses is found by the worker's next poll: late, not lost.
/// - `watch` returns, with the reason, only when the store can no longer be relied on; the engine then
///   stops. A transient failure is no reason to return.
/// - `instances` returns those that `watch` the store and have said so within [`Instance::LIVES_FOR`], in the
///   order of their ids, at most [`Instance::MOST`]; `None` if only one can watch it. One that was closed is
///   not among them.
/// - `write_health` returns at once, without I/O.
/// - `probe_write` writes as durably as a timer is written, and changes nothing that is stored. It
///   fails if a new timer would be refused.
/// - `close` returns when every acknowledged write is durable and the store can be opened again. Its
///   ports may return `Stopped` from then on. Idempotent.
/// - `close_soon` starts the same without waiting, and needs no runtime. The engine calls it when it is
///   dropped.
///
/// On a fake clock an engine does not call `watch`: it polls at the start of every `advance`.
#[async_trait]
pub trait Backend: Any + Send + Sync {
    /// The timers, their dead letters and the positions of buses.
    fn timer_stores(&self) -> TimerStores;

    /// The service calls, if the store has them. An engine calls this once.
    fn call_stores(&self) -> Option<CallStores> {
        None
    }

    /// The capabilities of the store.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// Whether it keeps timers at all: there are databases for attempts alone.
    fn has_timers(&self) -> bool {
        true
    }

    /// Name of the store, such as its path, for error messages.
    fn name(&self) -> String {
        "the store".to_owned()
    }

    /// The change feed. Without one, commits of other processes are found by polling.
    async fn watch(&self, _clock: Arc<dyn ClockPort>, _on_change: OnChange) -> PortError {
        pending().await
    }

    /// The instances that live, where several share the store.
    async fn instances(&self, _now: Timestamp) -> Result<Option<Vec<Instance>>, PortError> {
        Ok(None)
    }

    /// Health of the writes, as far as known.
    fn write_health(&self) -> WriteHealth {
        WriteHealth::default()
    }

    /// Tests by a write whether something new can be stored now.
    async fn probe_write(&self) -> Result<(), PortError> {
        Ok(())
    }

    /// Finishes the operations in flight and closes the store.
    async fn close(&self) {}

    /// Starts closing the store and does not wait for it.
    fn close_soon(&self) {}
}
