//! What an instance does beside its work: it searches for what was passed over, and cleans up.

use std::time::Duration;

use punctual_domain::Timestamp;
use punctual_ports::OnChange;
use tokio_postgres::types::Type;

use super::PostgresTimerStore;
use super::rows::{column, instant_or_null};
use crate::connect::connect;
use crate::lane::BEGIN_QUICK;
use crate::metric_names;
use crate::migrate::quoted;

/// Maximum interval of polls. What others have stored for a later instant is not notified: the next poll
/// finds it in time, and the ends of their leases too.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of the search from the beginning of the queue.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);
/// Interval of the removal of dead rows, which the server's own comes too late for.
const VACUUM_INTERVAL: Duration = Duration::from_mins(1);
/// Maximum time of it.
const VACUUM_TIME: Duration = Duration::from_mins(5);

/// The age of the oldest snapshot, as far as this role may see, and the end of the write-ahead log.
const FIGURES: &str = "\
SELECT coalesce(max(pg_catalog.age(backend_xmin)), 0)::pg_catalog.float8 AS age,
       pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), '0/0')::pg_catalog.int8 AS wal_end
  FROM pg_catalog.pg_stat_activity WHERE pid <> pg_catalog.pg_backend_pid()";

impl PostgresTimerStore {
    /// Calls `on_change` whenever no poll was made for a second, for ever.
    pub(super) async fn poll_regularly(&self, on_change: OnChange) {
        let clock = &self.inner.connector.clock;
        loop {
            let since = self.polling().since_poll(clock.monotonic());
            let left = POLL_INTERVAL.saturating_sub(since);
            if left.is_zero() {
                on_change();
            }
            let pause = if left.is_zero() { POLL_INTERVAL } else { left };
            clock.sleep_for(pause).await;
        }
    }

    /// Searches from the beginning of the queue, for ever: polls begin where the last ones ended.
    pub(super) async fn sweep(&self, on_change: OnChange) {
        let clock = &self.inner.connector.clock;
        loop {
            let now = clock.now();
            let given = self.inner.time.given(now);
            let params = vec![(Box::new(given) as _, Type::TIMESTAMPTZ)];
            let found = self.read(
                "sweep the queue",
                |sql| &sql.oldest_ready,
                params,
                |row| {
                    let is_epoch_known: bool = column(row, "is_epoch_known")?;
                    Ok((instant_or_null(row, "ready_at")?, is_epoch_known))
                },
            );
            match found.await.map(|mut rows| rows.pop()) {
                Ok(Some((oldest, is_epoch_known))) => {
                    self.polling().swept(clock.monotonic(), oldest);
                    if oldest.is_some_and(|oldest| oldest <= now) {
                        on_change();
                    }
                    if !is_epoch_known {
                        self.record_epoch(now).await;
                    }
                }
                Ok(None) => {}
                Err(error) => tracing::debug!(%error, "the queue was not swept"),
            }
            clock.sleep_for(SWEEP_INTERVAL).await;
        }
    }

    /// Records that claims are known from now on. Before, the server crashed and lost them.
    async fn record_epoch(&self, now: Timestamp) {
        tracing::warn!("the database server has crashed: timers in flight may fire twice");
        let params = vec![
            (Box::new(self.inner.instance) as _, Type::UUID),
            (Box::new(self.inner.time.given(now)) as _, Type::TIMESTAMPTZ),
        ];
        let recorded = self.query(
            &self.inner.write,
            "record since when claims are known",
            BEGIN_QUICK,
            |sql| &sql.record_epoch,
            params,
            |_| Ok(()),
        );
        if let Err(error) = recorded.await {
            tracing::debug!(%error, "it is not recorded since when claims are known");
        }
    }

    /// Removes dead rows of the tables whose rows live shortly, for ever.
    pub(super) async fn clean_up(&self) {
        let clock = &self.inner.connector.clock;
        let mut wal = WalMeter::default();
        loop {
            clock.sleep_for(VACUUM_INTERVAL).await;
            tokio::select! {
                () = self.vacuum(&mut wal) => {}
                () = clock.sleep_for(VACUUM_TIME) => {
                    tracing::warn!("removing dead rows takes more than five minutes");
                }
            }
        }
    }

    async fn vacuum(&self, wal: &mut WalMeter) {
        let connector = &self.inner.connector;
        let schema = Some(connector.schema.as_str());
        let connected = connect(&connector.url, schema, connector.clock.as_ref(), "vacuum").await;
        let Ok(connected) = connected else {
            return;
        };
        if let Ok(row) = connected.client.query_typed_one(FIGURES, &[]).await
            && let (Ok(age), Ok(wal_end)) = (column::<f64>(&row, "age"), column(&row, "wal_end"))
        {
            metrics::gauge!(metric_names::OLDEST_XMIN_AGE).set(age);
            metrics::counter!(metric_names::WAL_BYTES).increment(wal.written(wal_end));
        }
        let schema = quoted(&connector.schema);
        let set = self.inner.set;
        let of_timers = ["timer_queue", "timer_claims"].into_iter();
        let of_timers = of_timers.filter(|_| set.has_timers());
        let of_calls = ["outbox_claims"].into_iter();
        let of_calls = of_calls.filter(|_| set.has_attempts());
        let tables: Vec<String> = of_timers
            .chain(of_calls)
            .map(|table| format!("{schema}.{table}"))
            .collect();
        let vacuum = format!("VACUUM (SKIP_LOCKED) {}", tables.join(", "));
        if let Err(error) = connected.client.batch_execute(&vacuum).await {
            tracing::debug!(%error, "dead rows were not removed");
        }
    }
}

/// How much log was written between two readings of its end.
#[derive(Default)]
struct WalMeter(Option<i64>);

impl WalMeter {
    /// Bytes since the last reading. A server that was restored from a backup begins anew.
    fn written(&mut self, end: i64) -> u64 {
        let before = self.0.replace(end).unwrap_or(end);
        u64::try_from(end.saturating_sub(before)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_counts_from_the_first_reading_on_and_never_backwards() {
        let mut wal = WalMeter::default();
        let written = [5_000, 5_700, 5_700, 100, 130].map(|end| wal.written(end));
        assert_eq!(written, [0, 700, 0, 0, 30]);
    }
}
