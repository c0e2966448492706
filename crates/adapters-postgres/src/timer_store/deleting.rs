//! Deletion of timers that nobody is firing, and retention.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use punctual_domain::schedule_order::deletion_time;
use punctual_domain::{DeleteOutcome, Existing, TimerKey, Timestamp};
use punctual_ports::{BatchResult, PortError, PortErrorKind};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::PostgresTimerStore;
use super::rows::{Keys, column, instant};
use super::saving::{Locked, locked};
use crate::lane::{
    BEGIN_DURABLE, BEGIN_TRY, Parameter, Session, Statement, beginning, rest, roll_back,
    transaction,
};
use crate::port_errors::Failure;
use crate::values::{Instant, sql_limit, sql_millis};

const OPERATION: &str = "delete timers";
/// How long a claim that is unknown may last where this instance has made none itself.
const UNKNOWN_LEASE: Duration = Duration::from_secs(30);

/// How long a deletion waits for transactions of others, in all its tries.
const MAX_WAIT: Duration = Duration::from_secs(3);
/// Maximum number of tries after the first one: as many as wait for their locks in that time.
const MAX_TURNS: usize = 12;

/// What becomes of locked timers.
struct Deletions {
    outcomes: Vec<DeleteOutcome>,
    ids: Vec<i64>,
    deleted: Vec<Instant>,
    is_epoch_known: bool,
}

impl PostgresTimerStore {
    pub(super) async fn delete_all(
        &self,
        batch: Vec<TimerKey>,
        now: Timestamp,
    ) -> BatchResult<DeleteOutcome> {
        let batch = Arc::new(batch);
        let clock = Arc::clone(&self.inner.connector.clock);
        let deadline = clock.monotonic().saturating_add(MAX_WAIT);
        let mut outcomes = self.try_delete(&batch, now, false).await;
        if is_busy(&outcomes) {
            let blocked = self.inner.blocked.add(&batch);
            for _ in 0..MAX_TURNS {
                let left = deadline.saturating_sub(clock.monotonic());
                let turn = tokio::select! {
                    biased;
                    () = clock.sleep_for(left) => break,
                    turn = blocked.turn() => turn,
                };
                outcomes = self.try_delete(&batch, now, true).await;
                drop(turn);
                if !is_busy(&outcomes) {
                    break;
                }
            }
        }
        Ok(outcomes?.into_iter().map(Ok).collect())
    }

    /// Deletes all, or is busy after a short wait. Only whoever has the turn tries keys that are blocked.
    async fn try_delete(
        &self,
        batch: &Arc<Vec<TimerKey>>,
        now: Timestamp,
        has_turn: bool,
    ) -> Result<Vec<DeleteOutcome>, PortError> {
        let (store, batch) = (self.clone(), Arc::clone(batch));
        let deleting = self.inner.write.run(OPERATION, move |session| {
            let (store, batch) = (store.clone(), Arc::clone(&batch));
            Box::pin(async move {
                if !has_turn && store.inner.blocked.has_any(&batch) {
                    return Err(Failure::Locked);
                }
                store.delete_on(&session, &batch, now).await
            })
        });
        deleting.await
    }

    async fn delete_on(
        &self,
        session: &Session,
        batch: &[TimerKey],
        now: Timestamp,
    ) -> Result<Vec<DeleteOutcome>, Failure> {
        let (sql, client) = (&self.inner.sql, &session.client);
        let keys: BTreeSet<_> = batch.iter().collect();
        let keys: Keys = keys.into_iter().collect();
        let clock = self.inner.time.given(now);
        let lease = sql_millis(self.polling().lease.unwrap_or(UNKNOWN_LEASE));
        let mut claim_params = keys.params();
        claim_params.push((&clock, Type::TIMESTAMPTZ));
        claim_params.push((&lease, Type::FLOAT8));
        // The claims last: a claim that is being made holds the lock on its queue row.
        let statements: [Statement<'_>; 4] = [
            (&sql.lock_timers, keys.params()),
            (&sql.lock_queue, keys.params()),
            (&sql.clock, vec![(&clock, Type::TIMESTAMPTZ)]),
            (&sql.claims_of, claim_params),
        ];
        let answers = beginning(session, BEGIN_TRY, &statements).await?;
        let deletions = match Deletions::decide(&answers, batch) {
            Ok(deletions) => deletions,
            Err(failure) => {
                roll_back(client).await;
                return Err(failure);
            }
        };
        let ids = || (&deletions.ids as _, Type::INT8_ARRAY);
        let mut statements: Vec<Statement<'_>> = Vec::new();
        if !deletions.ids.is_empty() {
            let params: Vec<Parameter<'_>> =
                vec![ids(), (&deletions.deleted, Type::TIMESTAMPTZ_ARRAY)];
            statements.push((&sql.delete_timers, params));
            statements.push((&sql.unqueue, vec![ids()]));
            statements.push((&sql.remove_claims, vec![ids()]));
        }
        if !deletions.is_epoch_known {
            let params: Vec<Parameter<'_>> = vec![
                (&self.inner.instance, Type::UUID),
                (&clock, Type::TIMESTAMPTZ),
            ];
            statements.push((&sql.record_epoch, params));
        }
        rest(client, &statements).await?;
        Ok(deletions.outcomes)
    }

    pub(super) async fn purge_before(
        &self,
        before: Timestamp,
        limit: usize,
    ) -> Result<usize, PortError> {
        let store = self.clone();
        self.inner
            .write
            .run("purge timers", move |session| {
                let store = store.clone();
                Box::pin(async move {
                    let sql = &store.inner.sql;
                    let before = Instant(before);
                    let mut removed = 0;
                    for text in [&sql.purge_reached, &sql.purge_tombstones] {
                        let left = sql_limit(limit.saturating_sub(removed));
                        let params: Vec<Parameter<'_>> =
                            vec![(&before, Type::TIMESTAMPTZ), (&left, Type::INT8)];
                        let statement = [(text.as_str(), params)];
                        let rows = transaction(&session, BEGIN_DURABLE, &statement).await?;
                        let count = rows.iter().flatten().next();
                        let count = count.map_or(Ok(0), |row| column::<i64>(row, "count"))?;
                        removed += usize::try_from(count).unwrap_or_default();
                    }
                    Ok(removed)
                })
            })
            .await
    }
}

/// Whether another transaction was in the way.
fn is_busy(outcomes: &Result<Vec<DeleteOutcome>, PortError>) -> bool {
    matches!(outcomes, Err(error) if error.kind() == PortErrorKind::Busy)
}

impl Deletions {
    fn decide(answers: &[Vec<Row>], batch: &[TimerKey]) -> Result<Self, Failure> {
        let [timers, queue, clock, claims] = answers else {
            return Err(Failure::Unreadable("an answer is missing".to_owned()));
        };
        let clock = clock.first().map(|row| instant(row, "clock"));
        let clock = clock.unwrap_or(Ok(Timestamp::MAX))?;
        let mut rows: HashMap<TimerKey, Locked> = locked(timers, queue)?;
        let mut leased = HashSet::new();
        let (mut is_epoch_known, mut is_recent) = (false, true);
        for row in claims {
            let id: i64 = column(row, "timer_id")?;
            if id == 0 {
                is_epoch_known = true;
                is_recent = column(row, "is_recent")?;
            } else if column(row, "is_leased")? {
                leased.insert(id);
            }
        }
        let mut deletions = Self {
            outcomes: Vec::with_capacity(batch.len()),
            ids: Vec::new(),
            deleted: Vec::new(),
            is_epoch_known,
        };
        for key in batch {
            let Some(row) = rows.get_mut(key) else {
                deletions.outcomes.push(DeleteOutcome::NotFound);
                continue;
            };
            // Claims from before a crash of the server are unknown.
            let may_be_claimed = is_recent && row.ready_at.is_some_and(|ready| ready <= clock);
            let outcome = row
                .existing
                .delete(|| leased.contains(&row.id) || may_be_claimed);
            if outcome == DeleteOutcome::Deleted
                && let Existing::Scheduled(registration) = row.existing
            {
                let deleted_at = deletion_time(registration, clock);
                deletions.ids.push(row.id);
                deletions.deleted.push(Instant(deleted_at));
                row.existing = Existing::Deleted { deleted_at };
            }
            deletions.outcomes.push(outcome);
        }
        Ok(deletions)
    }
}
