//! The file as an engine takes it: every port, the watch over the file, its health and its end.

use std::future::pending;
use std::sync::Arc;

use async_trait::async_trait;
use punctual_ports::{
    Backend, CallStores, CallsElsewhere, Capabilities, ClockPort, OnChange, PortError, TimerStores,
    TimersElsewhere, WriteHealth,
};

use crate::{Role, SchemaSet, SqliteCallStore, SqliteTimerStore};

#[async_trait]
impl Backend for SqliteTimerStore {
    fn timer_stores(&self) -> TimerStores {
        if self.set.has_timers() {
            return TimerStores::new(self.clone());
        }
        let file = Arc::new(self.clone());
        TimerStores {
            persistence: Arc::new(TimersElsewhere),
            queue: Arc::new(TimersElsewhere),
            dead_letters: Arc::<Self>::clone(&file),
            positions: file,
        }
    }

    fn call_stores(&self) -> Option<CallStores> {
        let calls = self.calls().ok()?;
        if self.set == SchemaSet::Shared {
            return Some(CallStores::new(calls));
        }
        let calls = Arc::new(calls);
        Some(CallStores {
            calls: Arc::new(CallsElsewhere),
            outbox: Arc::<SqliteCallStore>::clone(&calls),
            executions: calls,
        })
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            fires: self.role != Role::Client,
            standalone_timers: self.set == SchemaSet::TimersOnly,
            ..Capabilities::default()
        }
    }

    fn has_timers(&self) -> bool {
        self.set.has_timers()
    }

    fn name(&self) -> String {
        self.path().display().to_string()
    }

    async fn watch(&self, clock: Arc<dyn ClockPort>, on_change: OnChange) -> PortError {
        let commits = async {
            let clock = Arc::clone(&clock);
            self.watch_foreign_commits(clock, || on_change()).await;
            // It was closed, or is broken, which the worker notices by itself.
            pending().await
        };
        tokio::select! {
            moved = self.file_moved(clock.as_ref()) => moved,
            never = commits => never,
        }
    }

    fn write_health(&self) -> WriteHealth {
        Self::write_health(self)
    }

    async fn probe_write(&self) -> Result<(), PortError> {
        Self::probe_write(self).await
    }

    async fn close(&self) {
        Self::close(self).await;
    }

    fn close_soon(&self) {
        Self::close_soon(self);
    }
}
