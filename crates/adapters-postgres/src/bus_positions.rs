//! Positions of broker streams, one row for each instance.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::Timestamp;
use punctual_ports::{BusPosition, BusPositionPort, PortError, PortErrorKind};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::PostgresTimerStore;
use crate::lane::{BEGIN_DURABLE, BEGIN_QUICK, Parameter, transaction};
use crate::port_errors::Failure;
use crate::timer_store::reading::text;
use crate::timer_store::rows::{column, instant};
use crate::values::{Instant, sql_millis};

/// How long the position of an instance counts that has saved no other since. What was in doubt for it is
/// long published again by then.
const COUNTS_FOR: Duration = Duration::from_hours(24);

fn position(row: &Row) -> Result<(Uuid, BusPosition), Failure> {
    let position = BusPosition {
        stream: column(row, "stream")?,
        stream_created_at: column(row, "made_at")?,
        last_sequence: column::<i64>(row, "last_sequence")?.unsigned_abs(),
        last_message_id: column(row, "last_message_id")?,
        acknowledged_at: instant(row, "acknowledged_at")?,
        covers_until: instant(row, "covers_until")?,
    };
    Ok((column(row, "instance_id")?, position))
}

#[async_trait]
impl BusPositionPort for PostgresTimerStore {
    async fn load(&self, stream: String) -> Result<Option<BusPosition>, PortError> {
        let operation = "load a stream position";
        let params = vec![text(&stream)];
        let read = self.read(operation, |sql| &sql.load_positions, params, position);
        let positions = read.await?;
        let own = positions
            .iter()
            .find(|(instance, _)| *instance == self.inner.instance);
        Ok(match own {
            Some((_, own)) => Some(own.clone()),
            None => BusPosition::merged(positions.into_iter().map(|(_, position)| position)),
        })
    }

    async fn save(&self, position: BusPosition) -> Result<(), PortError> {
        let operation = "store a stream position";
        let last_sequence = i64::try_from(position.last_sequence).map_err(|_| {
            let reason = format!(
                "sequence {} of stream {} is too great for the database: it can be up to {}",
                position.last_sequence,
                position.stream,
                i64::MAX
            );
            PortError::new(PortErrorKind::Rejected, operation, reason)
        })?;
        let (store, position) = (self.clone(), Arc::new(position));
        self.inner
            .write
            .run(operation, move |session| {
                let (store, position) = (store.clone(), Arc::clone(&position));
                Box::pin(async move {
                    let sql = &store.inner.sql;
                    let oldest = position.acknowledged_at.saturating_sub(COUNTS_FOR);
                    let (oldest, acknowledged_at, covers_until) = (
                        Instant(oldest),
                        Instant(position.acknowledged_at),
                        Instant(position.covers_until),
                    );
                    let saved: Vec<Parameter<'_>> = vec![
                        (&position.stream, Type::TEXT),
                        (&store.inner.instance, Type::UUID),
                        (&position.stream_created_at, Type::TEXT),
                        (&last_sequence, Type::INT8),
                        (&position.last_message_id, Type::TEXT),
                        (&acknowledged_at, Type::TIMESTAMPTZ),
                        (&covers_until, Type::TIMESTAMPTZ),
                    ];
                    let forgotten: Vec<Parameter<'_>> = vec![
                        (&position.stream, Type::TEXT),
                        (&store.inner.instance, Type::UUID),
                        (&oldest, Type::TIMESTAMPTZ),
                    ];
                    let statements = [
                        (sql.save_position.as_str(), saved),
                        (&sql.forget_positions, forgotten),
                    ];
                    transaction(&session, BEGIN_DURABLE, &statements).await?;
                    Ok(())
                })
            })
            .await
    }

    async fn owner(&self, new: Uuid) -> Result<Option<Uuid>, PortError> {
        let owner = self.query(
            &self.inner.write,
            "keep the id of the database",
            BEGIN_DURABLE,
            |sql| &sql.keep_id,
            vec![(Box::new(new), Type::UUID)],
            |row| column(row, "id"),
        );
        Ok(owner.await?.pop())
    }

    async fn own_republication(
        &self,
        stream: String,
        now: Timestamp,
        lease: Duration,
    ) -> Result<bool, PortError> {
        let clock = self.inner.time.given(now);
        let owned = self.query(
            &self.inner.write,
            "own a republication",
            BEGIN_QUICK,
            |sql| &sql.own_republication,
            vec![
                text(&stream),
                (Box::new(self.inner.instance), Type::UUID),
                (Box::new(clock), Type::TIMESTAMPTZ),
                (Box::new(sql_millis(lease)), Type::FLOAT8),
            ],
            |_| Ok(()),
        );
        Ok(!owned.await?.is_empty())
    }
}
