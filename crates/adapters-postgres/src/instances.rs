//! Who else watches the same tables: a heartbeat of each instance, for people to see.

use std::sync::atomic::Ordering;

use punctual_domain::Timestamp;
use punctual_ports::{ClaimedWork, Instance, PortError};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::lane::BEGIN_QUICK;
use crate::port_errors::Failure;
use crate::sql::Statements;
use crate::timer_store::reading::{Owned, number, text};
use crate::timer_store::rows::{column, instant};
use crate::values::{sql_limit, sql_millis};
use crate::{PostgresTimerStore, SchemaSet};

impl PostgresTimerStore {
    fn id(&self) -> Owned {
        (Box::new(self.inner.instance), Type::UUID)
    }

    fn clock_at(&self, now: Timestamp) -> Owned {
        let given = self.inner.time.given(now);
        (Box::new(given), Type::TIMESTAMPTZ)
    }

    /// Records heartbeats, for ever.
    pub(crate) async fn heartbeats(&self) {
        let clock = &self.inner.connector.clock;
        loop {
            if let Err(error) = self.record_heartbeat(clock.now()).await {
                tracing::debug!(%error, "a heartbeat was not recorded");
            }
            clock.sleep_for(Instance::HEARTBEAT).await;
        }
    }

    /// Records that this instance lives, as [`watch`](punctual_ports::Backend::watch) does regularly.
    #[doc(hidden)]
    pub async fn record_heartbeat(&self, now: Timestamp) -> Result<(), PortError> {
        let label = &self.inner.label;
        let params = vec![
            self.id(),
            text(&label.name),
            text(env!("CARGO_PKG_VERSION")),
            text(&label.modules),
            self.clock_at(now),
            number(self.inner.offset.load(Ordering::Acquire)),
        ];
        let recorded = self.query(
            &self.inner.write,
            "record a heartbeat",
            BEGIN_QUICK,
            |sql| &sql.record_heartbeat,
            params,
            |_| Ok(()),
        );
        recorded.await.map(drop)
    }

    /// Forgets this instance, and those that ended long ago.
    pub(crate) async fn forget_instances(&self) {
        let now = self.inner.connector.clock.now();
        let forgotten = self.query(
            &self.inner.write,
            "forget an instance",
            BEGIN_QUICK,
            |sql| &sql.forget_instances,
            vec![self.id(), self.clock_at(now)],
            |_| Ok(()),
        );
        if let Err(error) = forgotten.await {
            tracing::debug!(%error, "others take this instance for living until its heartbeat is old");
        }
    }

    pub(crate) async fn list_instances(&self, now: Timestamp) -> Result<Vec<Instance>, PortError> {
        let params = vec![
            self.clock_at(now),
            (Box::new(sql_millis(Instance::LIVES_FOR)), Type::FLOAT8),
            number(sql_limit(Instance::MOST)),
        ];
        let operation = "list the instances";
        let statement: fn(&Statements) -> &String = match self.inner.set {
            SchemaSet::Shared => |sql| &sql.list_instances_of_calls,
            SchemaSet::TimersOnly => |sql| &sql.list_instances,
            SchemaSet::ExecutionOnly => |sql| &sql.list_instances_of_attempts,
        };
        self.read(operation, statement, params, instance).await
    }
}

fn instance(row: &Row) -> Result<Instance, Failure> {
    let count = |name| column::<i64>(row, name).map(i64::unsigned_abs);
    Ok(Instance {
        id: column::<Uuid>(row, "instance_id")?,
        name: column(row, "name")?,
        version: column(row, "version")?,
        modules: column(row, "modules")?,
        started_at: instant(row, "started_at")?,
        heartbeat_at: instant(row, "heartbeat_at")?,
        clock_offset_millis: column(row, "clock_offset_ms")?,
        claimed: Some(ClaimedWork {
            timers: count("timers")?,
            attempts: count("attempts")?,
            messages: count("messages")?,
        }),
    })
}
