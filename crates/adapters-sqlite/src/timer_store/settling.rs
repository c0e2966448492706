//! Settlement of firings: marks, retries, dead letters. Also deletion and purge.

use std::time::Duration;

use punctual_domain::schedule_order::deletion_time;
use punctual_domain::{Existing, FiringId, TimerKey, Timestamp};
use punctual_ports::{
    ClaimOutcome, ClaimRef, DeadLetterClaim, DeleteOutcome, FiredTimer, MarkOutcome, RetryLater,
};
use rusqlite::params;

use super::rows::sql_limit;
use super::saving::{Found, existing};
use crate::claims::{Claims, RowId};
use crate::dead_letters;
use crate::sql;
use crate::writer::Transaction;

/// Sorts marks by the rows that are in flight, since sequential writes are faster, and returns the
/// previous index of each.
///
/// Marks of one firing keep their order. Those of different firings of one timer may not, which is
/// harmless: at most one of them matches the row's schedule.
pub(super) fn sort_by_row(
    claims: &Claims,
    batch: Vec<FiredTimer>,
) -> (Vec<usize>, Vec<FiredTimer>) {
    let mut sorted: Vec<_> = batch.into_iter().enumerate().collect();
    sorted.sort_by_cached_key(|(_, fired)| claims.row_of(&fired.firing_id));
    sorted.into_iter().unzip()
}

/// Restores the order of the marks in their outcomes.
pub(super) fn restore_order<T>(order: &[usize], outcomes: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut outcomes: Vec<_> = order.iter().zip(outcomes).collect();
    outcomes.sort_unstable_by_key(|(index, _)| **index);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

/// Marks one firing. Its row is known while it is in flight, and found by its key otherwise.
pub(super) fn mark(
    transaction: &mut Transaction<'_>,
    fired: &FiredTimer,
) -> rusqlite::Result<MarkOutcome> {
    let firing = &fired.firing_id;
    let in_flight = transaction.claims().row_of(firing).map(|(row, _)| row);
    if let Some(row) = in_flight
        && write_row(transaction, &MARK, row, (fired.reached_at, None), firing)?
    {
        return Ok(MarkOutcome::Marked);
    }
    let found = existing(transaction.connection, &firing.key)?;
    let stored = found.as_ref().map_or(Existing::Nothing, Found::existing);
    let outcome = stored.mark(firing.registration);
    match (outcome, found) {
        (MarkOutcome::Marked, Some(found)) => {
            let when = (fired.reached_at, None);
            write_row(transaction, &MARK, found.row_id, when, firing)?;
        }
        (MarkOutcome::AlreadyReached, _) => {}
        _ => end_claim(transaction, in_flight),
    }
    Ok(outcome)
}

/// Ends the lease on a row that another program has deleted or rescheduled.
fn end_claim(transaction: &mut Transaction<'_>, row: Option<RowId>) {
    if let Some(row) = row {
        transaction.changes(row);
    }
}

/// An update of a row, as two statements.
struct Change {
    /// Updates the row only if the texts of its times match the firing.
    if_matching: &'static str,
    /// Updates a row that was read before.
    by_rowid: &'static str,
}

const MARK: Change = Change {
    if_matching: sql::MARK_ROW,
    by_rowid: sql::MARK_BY_ROWID,
};

const RETRY: Change = Change {
    if_matching: sql::RETRY_ROW,
    by_rowid: sql::RETRY_BY_ROWID,
};

/// The time to write, and the reason if a firing has failed.
type When<'a> = (Timestamp, Option<&'a str>);

/// Updates the row of a firing, if its schedule is still that of the firing.
fn write_row(
    transaction: &mut Transaction<'_>,
    change: &Change,
    row: RowId,
    (at, reason): When<'_>,
    firing: &FiringId,
) -> rusqlite::Result<bool> {
    let changed = transaction
        .connection
        .prepare_cached(change.if_matching)?
        .execute(params![
            row,
            at.to_string(),
            firing.registration.due_at.to_string(),
            firing.registration.registered_at.to_string(),
            firing.key.tenant_id.as_str(),
            firing.key.service_call_id.to_string(),
            reason,
        ])?;
    if changed == 1 || write_foreign_row(transaction, change, row, (at, reason), firing)? {
        transaction.changes(row);
        return Ok(true);
    }
    Ok(false)
}

/// Updates a row whose times another program wrote in another form, such as without milliseconds. A
/// timer that cannot be marked would fire for ever.
fn write_foreign_row(
    transaction: &Transaction<'_>,
    change: &Change,
    row: RowId,
    (at, reason): When<'_>,
    firing: &FiringId,
) -> rusqlite::Result<bool> {
    let found = existing(transaction.connection, &firing.key)?;
    let is_it = |found: &Found| found.row_id == row && found.registration == firing.registration;
    if !found.as_ref().is_some_and(is_it) {
        return Ok(false);
    }
    let at = at.max(firing.registration.due_at).to_string();
    let mut statement = transaction.connection.prepare_cached(change.by_rowid)?;
    Ok(statement.execute(params![row, at, reason])? == 1)
}

/// Makes a claimed timer due again later.
pub(super) fn retry_later(
    transaction: &mut Transaction<'_>,
    retry: &RetryLater,
) -> rusqlite::Result<ClaimOutcome> {
    let firing = &retry.claim.firing_id;
    let leased = transaction.claims().row_of_claim(&retry.claim);
    let Some(row) = leased else {
        return moved_or_lost(transaction, &retry.claim);
    };
    let when = (retry.retry_at, Some(retry.reason.as_str()));
    let applied = write_row(transaction, &RETRY, row, when, firing)?;
    outcome(transaction, applied, row, &retry.claim)
}

/// Marks a claimed timer as reached and records its dead letter, atomically.
pub(super) fn dead_letter(
    transaction: &mut Transaction<'_>,
    request: &DeadLetterClaim,
) -> rusqlite::Result<ClaimOutcome> {
    let firing = &request.claim.firing_id;
    let leased = transaction.claims().row_of_claim(&request.claim);
    let Some(row) = leased else {
        return moved_or_lost(transaction, &request.claim);
    };
    let when = (
        request.reached_at,
        Some(request.dead_letter.reason.as_str()),
    );
    let applied = transaction.all_or_nothing(|transaction| {
        let applied = write_row(transaction, &MARK, row, when, firing)?;
        if applied {
            dead_letters::record(transaction.connection, &request.dead_letter)?;
        }
        Ok(applied)
    })?;
    outcome(transaction, applied, row, &request.claim)
}

fn outcome(
    transaction: &mut Transaction<'_>,
    applied: bool,
    row: RowId,
    claim: &ClaimRef,
) -> rusqlite::Result<ClaimOutcome> {
    if applied {
        return Ok(ClaimOutcome::Applied);
    }
    end_claim(transaction, Some(row));
    moved_or_lost(transaction, claim)
}

/// Why a claim is no longer valid: the timer may have another schedule by now.
fn moved_or_lost(
    transaction: &Transaction<'_>,
    claim: &ClaimRef,
) -> rusqlite::Result<ClaimOutcome> {
    let found = existing(transaction.connection, &claim.firing_id.key)?;
    let stored = found.as_ref().map_or(Existing::Nothing, Found::existing);
    Ok(ClaimOutcome::of_lost(claim, stored))
}

/// Whether another process may be firing a timer to be deleted.
#[derive(Debug, Clone, Copy)]
pub(super) enum OthersMayFire {
    /// All claims are known here.
    No,
    /// Another process, whose claims are unknown here, may have in flight what is ready within this
    /// time.
    Within(Duration),
}

impl OthersMayFire {
    fn may_fire(self, ready_at: Timestamp, now: Timestamp) -> bool {
        matches!(self, Self::Within(time) if ready_at <= now.saturating_add(time))
    }
}

/// Deletes one timer that is not in flight.
pub(super) fn delete(
    transaction: &mut Transaction<'_>,
    key: &TimerKey,
    now: Timestamp,
    others: OthersMayFire,
) -> rusqlite::Result<DeleteOutcome> {
    let Some(found) = existing(transaction.connection, key)? else {
        return Ok(DeleteOutcome::NotFound);
    };
    let outcome = found.existing().delete(|| {
        if others.may_fire(found.ready_at, now) {
            return true;
        }
        // Checked and recorded under one lock, so that no poll claims the row in between.
        let mut claims = transaction.claims();
        let is_leased = claims.is_leased(found.row_id, now);
        if !is_leased {
            claims.record_change(found.row_id);
        }
        is_leased
    });
    if outcome != DeleteOutcome::Deleted {
        return Ok(outcome);
    }
    transaction.all_or_nothing(|transaction| remove(transaction, key, &found, now))?;
    transaction.changes(found.row_id);
    transaction.tombstone_added();
    Ok(DeleteOutcome::Deleted)
}

/// Deletes a row and adds its tombstone.
fn remove(
    transaction: &Transaction<'_>,
    key: &TimerKey,
    found: &Found,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let connection = transaction.connection;
    connection
        .prepare_cached(sql::DELETE_ROW)?
        .execute(params![found.row_id])?;
    let deleted_at = deletion_time(found.registration, now);
    connection
        .prepare_cached(sql::ADD_TOMBSTONE)?
        .execute(params![
            key.tenant_id.as_str(),
            key.service_call_id.to_string(),
            deleted_at.to_string()
        ])
        .map(drop)
}

/// Removes at most `limit` rows that are older than an instant.
pub(super) fn purge(
    transaction: &Transaction<'_>,
    before: Timestamp,
    limit: usize,
) -> rusqlite::Result<usize> {
    let connection = transaction.connection;
    let before = before.to_string();
    let reached = connection
        .prepare_cached(sql::PURGE_REACHED)?
        .execute(params![before, sql_limit(limit)])?;
    let left = limit.saturating_sub(reached);
    let forgotten = connection
        .prepare_cached(sql::PURGE_TOMBSTONES)?
        .execute(params![before, sql_limit(left)])?;
    Ok(reached + forgotten)
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_domain::{Registration, TenantId};

    fn fired(name: &str) -> FiredTimer {
        let at = Timestamp::MIN;
        let registration = Registration {
            registered_at: at,
            due_at: at,
        };
        let key = TimerKey::named(TenantId::default(), name);
        FiredTimer {
            firing_id: FiringId { key, registration },
            reached_at: at,
        }
    }

    #[test]
    fn marks_are_written_in_row_order_and_answered_in_their_own() {
        let mut claims = Claims::default();
        let batch = vec![fired("c"), fired("not in flight"), fired("a"), fired("b")];
        for (row, index) in [(30, 0), (10, 2), (20, 3)] {
            let firing: &FiringId = &batch[index].firing_id;
            claims.claim(row, firing.clone(), Timestamp::MIN, Timestamp::MAX);
        }
        let (order, sorted) = sort_by_row(&claims, batch.clone());
        assert_eq!(order, [1, 2, 3, 0]);
        assert_eq!(sorted, ["not in flight", "a", "b", "c"].map(fired));
        assert_eq!(restore_order(&order, sorted), batch);
    }
}
