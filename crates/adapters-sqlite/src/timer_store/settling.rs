//! What follows a firing: marks, retries, burials. Also deleting and purging.

use std::time::Duration;

use punctual_domain::schedule_order::deletion_time;
use punctual_domain::{FiringId, TimerKey, Timestamp};
use punctual_ports::{
    ClaimOutcome, DeadLetterClaim, DeleteOutcome, FiredTimer, MarkOutcome, RetryLater,
};
use rusqlite::params;

use super::rows::sql_limit;
use super::saving::{Found, existing};
use crate::claims::{Claims, RowId};
use crate::dead_letters;
use crate::sql;
use crate::writer::Transaction;

/// Sorts marks by their rows, as far as those are in hand, and tells where each was before: to
/// write a table from its beginning to its end is faster than to jump about in it.
///
/// Marks of one firing stay in their order. Those of different firings of one timer may not, which
/// changes nothing: at most one of them is of the schedule that the row has.
pub(super) fn in_the_order_of_the_table(
    claims: &Claims,
    batch: Vec<FiredTimer>,
) -> (Vec<usize>, Vec<FiredTimer>) {
    let mut sorted: Vec<_> = batch.into_iter().enumerate().collect();
    sorted.sort_by_cached_key(|(_, fired)| claims.row_of(&fired.firing_id));
    sorted.into_iter().unzip()
}

/// Undoes that for the answers.
pub(super) fn in_the_order_given<T>(
    places: &[usize],
    answers: impl IntoIterator<Item = T>,
) -> Vec<T> {
    let mut answers: Vec<_> = places.iter().zip(answers).collect();
    answers.sort_unstable_by_key(|(place, _)| **place);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// Marks one firing. Its row is known if it is in hand; if not, it is looked up by its key.
pub(super) fn mark(
    transaction: &mut Transaction<'_>,
    fired: &FiredTimer,
) -> rusqlite::Result<MarkOutcome> {
    let firing = &fired.firing_id;
    let in_flight = transaction.claims().row_of(firing);
    if let Some((row, _)) = in_flight
        && write_row(transaction, &MARK, row, (fired.reached_at, None), firing)?
    {
        return Ok(MarkOutcome::Marked);
    }
    let Some(found) = existing(transaction.connection, &firing.key)? else {
        end_claim(transaction, in_flight.map(|(row, _)| row));
        return Ok(MarkOutcome::NotFound);
    };
    if found.registration != firing.registration {
        end_claim(transaction, in_flight.map(|(row, _)| row));
        return Ok(MarkOutcome::Moved);
    }
    if found.reached_at.is_some() {
        return Ok(MarkOutcome::AlreadyReached);
    }
    write_row(
        transaction,
        &MARK,
        found.place,
        (fired.reached_at, None),
        firing,
    )?;
    Ok(MarkOutcome::Marked)
}

/// The row that was claimed is gone or moved, by somebody whose writes do not pass through here.
fn end_claim(transaction: &mut Transaction<'_>, row: Option<RowId>) {
    if let Some(row) = row {
        transaction.changes(row);
    }
}

/// A change of a row, in two forms.
struct Change {
    /// Finds out by itself whether the row is the firing's, by the text of its times.
    if_written_by_us: &'static str,
    /// For a row that was read before.
    at_place: &'static str,
}

const MARK: Change = Change {
    if_written_by_us: sql::MARK_ROW,
    at_place: sql::MARK_PLACE,
};

const RETRY: Change = Change {
    if_written_by_us: sql::RETRY_ROW,
    at_place: sql::RETRY_PLACE,
};

/// When something is, and why if a firing has failed.
type When<'a> = (Timestamp, Option<&'a str>);

/// Changes the row of a firing, if it still is that firing's.
fn write_row(
    transaction: &mut Transaction<'_>,
    change: &Change,
    row: RowId,
    (at, reason): When<'_>,
    firing: &FiringId,
) -> rusqlite::Result<bool> {
    let changed = transaction
        .connection
        .prepare_cached(change.if_written_by_us)?
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

/// The same for a row whose times another program wrote in a form of its own, such as without
/// milliseconds. What cannot be marked would fire for ever.
fn write_foreign_row(
    transaction: &Transaction<'_>,
    change: &Change,
    row: RowId,
    (at, reason): When<'_>,
    firing: &FiringId,
) -> rusqlite::Result<bool> {
    let found = existing(transaction.connection, &firing.key)?;
    let is_it = |found: &Found| found.place == row && found.registration == firing.registration;
    if !found.as_ref().is_some_and(is_it) {
        return Ok(false);
    }
    let at = at.max(firing.registration.due_at).to_string();
    let mut statement = transaction.connection.prepare_cached(change.at_place)?;
    Ok(statement.execute(params![row, at, reason])? == 1)
}

/// Makes a claimed timer due again later.
pub(super) fn retry_later(
    transaction: &mut Transaction<'_>,
    retry: &RetryLater,
) -> rusqlite::Result<ClaimOutcome> {
    let firing = &retry.claim.firing_id;
    let held = transaction.claims().held_by(&retry.claim);
    let Some(row) = held else {
        return moved_or_lost(transaction, firing);
    };
    let when = (retry.retry_at, Some(retry.reason.as_str()));
    let applied = write_row(transaction, &RETRY, row, when, firing)?;
    outcome(transaction, applied, row, firing)
}

/// Makes a claimed timer reached, with its dead letter: both or neither.
pub(super) fn dead_letter(
    transaction: &mut Transaction<'_>,
    dead: &DeadLetterClaim,
) -> rusqlite::Result<ClaimOutcome> {
    let firing = &dead.claim.firing_id;
    let held = transaction.claims().held_by(&dead.claim);
    let Some(row) = held else {
        return moved_or_lost(transaction, firing);
    };
    let when = (dead.reached_at, Some(dead.dead_letter.reason.as_str()));
    let applied = transaction.all_or_nothing(|transaction| {
        let applied = write_row(transaction, &MARK, row, when, firing)?;
        if applied {
            dead_letters::record(transaction.connection, &dead.dead_letter)?;
        }
        Ok(applied)
    })?;
    outcome(transaction, applied, row, firing)
}

fn outcome(
    transaction: &mut Transaction<'_>,
    applied: bool,
    row: RowId,
    firing: &FiringId,
) -> rusqlite::Result<ClaimOutcome> {
    if applied {
        return Ok(ClaimOutcome::Applied);
    }
    end_claim(transaction, Some(row));
    moved_or_lost(transaction, firing)
}

/// Why a claim is no longer the timer's: it may have another schedule by now.
fn moved_or_lost(
    transaction: &Transaction<'_>,
    firing: &FiringId,
) -> rusqlite::Result<ClaimOutcome> {
    let found = existing(transaction.connection, &firing.key)?;
    let is_moved = |found: &Found| found.registration != firing.registration;
    Ok(if found.as_ref().is_some_and(is_moved) {
        ClaimOutcome::Moved
    } else {
        ClaimOutcome::Lost
    })
}

/// Who else may be firing what is to be deleted.
#[derive(Debug, Clone, Copy)]
pub(super) enum OthersMayFire {
    /// Nobody: all claims are known here.
    No,
    /// Another process, whose claims are not known here: it may have in hand whatever is ready
    /// within this time.
    Within(Duration),
}

/// Deletes one timer that nobody is firing.
pub(super) fn delete(
    transaction: &mut Transaction<'_>,
    key: &TimerKey,
    now: Timestamp,
    others: OthersMayFire,
) -> rusqlite::Result<DeleteOutcome> {
    let Some(found) = existing(transaction.connection, key)? else {
        return Ok(DeleteOutcome::NotFound);
    };
    if found.reached_at.is_some() {
        return Ok(DeleteOutcome::AlreadyReached);
    }
    if let OthersMayFire::Within(time) = others
        && found.ready_at <= now.saturating_add(time)
    {
        return Ok(DeleteOutcome::Firing);
    }
    {
        // Checked and noted in one step, so that no look can claim the row in between.
        let mut claims = transaction.claims();
        if claims.is_live(found.place, now) {
            return Ok(DeleteOutcome::Firing);
        }
        claims.is_changing(found.place);
    }
    transaction.all_or_nothing(|transaction| remove(transaction, key, &found, now))?;
    transaction.changes(found.place);
    transaction.tombstone_added();
    Ok(DeleteOutcome::Deleted)
}

/// Takes a row out of the table and remembers that it was deleted.
fn remove(
    transaction: &Transaction<'_>,
    key: &TimerKey,
    found: &Found,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let connection = transaction.connection;
    connection
        .prepare_cached(sql::DELETE_ROW)?
        .execute(params![found.place])?;
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

/// Removes what is older than an instant, at most so many rows.
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
    fn marks_are_written_by_row_and_answered_in_their_own_order() {
        let mut claims = Claims::default();
        let batch = vec![fired("c"), fired("not in hand"), fired("a"), fired("b")];
        for (row, place) in [(30, 0), (10, 2), (20, 3)] {
            let firing: &FiringId = &batch[place].firing_id;
            claims.claim(row, firing.clone(), Timestamp::MIN, Timestamp::MAX);
        }
        let (places, sorted) = in_the_order_of_the_table(&claims, batch.clone());
        assert_eq!(places, [1, 2, 3, 0]);
        assert_eq!(sorted, ["not in hand", "a", "b", "c"].map(fired));
        assert_eq!(in_the_order_given(&places, sorted), batch);
    }
}
