//! The store as an engine takes it: every port, the watch over other instances, its health and its end.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use punctual_domain::Timestamp;
use punctual_ports::{
    Backend, CallStores, CallsElsewhere, Capabilities, ClockPort, Instance, OnChange, PortError,
    PortErrorKind, TimerStores, TimersElsewhere, WriteHealth,
};

use crate::lane::BEGIN_DURABLE;
use crate::{PostgresCallStore, PostgresTimerStore, Role, SchemaSet};

/// Clocks that differ by more than this are a reason not to be ready.
const MAX_OFFSET_MILLIS: i64 = 5_000;

impl PostgresTimerStore {
    /// Why timers would not be fired in time by this instance, if so.
    fn clock_problem(&self) -> Option<PortError> {
        let offset = self.inner.offset.load(Ordering::Acquire).abs();
        (offset > MAX_OFFSET_MILLIS).then(|| {
            let reason = format!(
                "the clocks of this machine and of the database server differ by {offset} ms: synchronize both"
            );
            PortError::new(PortErrorKind::Unavailable, "agree about time", reason)
        })
    }
}

#[async_trait]
impl Backend for PostgresTimerStore {
    fn timer_stores(&self) -> TimerStores {
        if self.inner.set.has_timers() {
            return TimerStores::new(self.clone());
        }
        let store = Arc::new(self.clone());
        TimerStores {
            persistence: Arc::new(TimersElsewhere),
            queue: Arc::new(TimersElsewhere),
            dead_letters: Arc::<Self>::clone(&store),
            positions: store,
        }
    }

    fn call_stores(&self) -> Option<CallStores> {
        let calls = self.calls()?;
        if self.inner.set == SchemaSet::Shared {
            return Some(CallStores::new(calls));
        }
        let calls = Arc::new(calls);
        Some(CallStores {
            calls: Arc::new(CallsElsewhere),
            outbox: Arc::<PostgresCallStore>::clone(&calls),
            executions: calls,
        })
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            fires: self.inner.role != Role::Client,
            standalone_timers: self.inner.set == SchemaSet::TimersOnly,
            several_instances: true,
        }
    }

    fn has_timers(&self) -> bool {
        self.inner.set.has_timers()
    }

    fn name(&self) -> String {
        Self::name(self).to_owned()
    }

    async fn watch(&self, _clock: Arc<dyn ClockPort>, on_change: OnChange) -> PortError {
        Box::pin(self.watch_others(on_change)).await;
        // It was closed.
        pending().await
    }

    async fn instances(&self, now: Timestamp) -> Result<Option<Vec<Instance>>, PortError> {
        self.list_instances(now).await.map(Some)
    }

    fn write_health(&self) -> WriteHealth {
        let mut health = self.inner.connector.health.get();
        health.problem = health.problem.or_else(|| self.clock_problem());
        health
    }

    async fn probe_write(&self) -> Result<(), PortError> {
        let probed = self.query(
            &self.inner.write,
            "test whether timers can be stored",
            BEGIN_DURABLE,
            |sql| &sql.probe,
            Vec::new(),
            |_| Ok(()),
        );
        probed.await?;
        // What is stored now would fire late, or wait for an instance whose clock is right.
        self.clock_problem().map_or(Ok(()), Err)
    }

    async fn close(&self) {
        Self::close(self).await;
    }

    fn close_soon(&self) {
        Self::close_soon(self);
    }
}
