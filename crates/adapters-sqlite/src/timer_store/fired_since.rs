//! Pages of the timers that fired since an instant.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use punctual_domain::{ReachedTimer, TimerKey, Timestamp};
use punctual_ports::{FiredCursor, FiredPage};
use rusqlite::{Connection, Row, params};

use super::rows::TimerRow;
use crate::sql;

/// Its index among the columns that [`TimerRow`] reads.
const REACHED_AT: usize = 6;

/// A firing in the order of pages.
struct InOrder(ReachedTimer);

impl InOrder {
    const fn position(&self) -> (Timestamp, &TimerKey) {
        (self.0.reached_at(), &self.0.timer().key)
    }
}

impl Ord for InOrder {
    fn cmp(&self, other: &Self) -> Ordering {
        self.position().cmp(&other.position())
    }
}
impl PartialOrd for InOrder {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for InOrder {
    fn eq(&self, other: &Self) -> bool {
        self.position() == other.position()
    }
}
impl Eq for InOrder {}

/// The index orders the instants, but not the timers of one instant: those are sorted in a heap.
pub(super) fn fired_since(
    connection: &Connection,
    since: Timestamp,
    after: Option<&FiredCursor>,
    limit: usize,
) -> rusqlite::Result<FiredPage> {
    let from = after.map_or(since, |cursor| cursor.reached_at.max(since));
    let after = after.map(|cursor| (cursor.reached_at, &cursor.key));
    let wanted = limit.saturating_add(1);
    let mut first = BinaryHeap::new();
    let mut statement = connection.prepare_cached(sql::FIRED_SINCE)?;
    let mut rows = statement.query(params![from.to_string()])?;
    while let Some(row) = rows.next()? {
        let Some(fired) = ours(row).map(InOrder) else {
            continue;
        };
        if after.is_some_and(|cursor| fired.position() <= cursor) {
            continue;
        }
        let is_full = first.len() >= wanted;
        let last = first.peek().map(|last: &InOrder| last.0.reached_at());
        if is_full && last.is_some_and(|last| fired.0.reached_at() > last) {
            break;
        }
        first.push(fired);
        if is_full {
            first.pop();
        }
    }
    let more = first.len() > limit;
    let sorted = first.into_sorted_vec().into_iter();
    let timers: Vec<ReachedTimer> = sorted.take(limit).map(|InOrder(fired)| fired).collect();
    let next = timers.last().filter(|_| more).map(FiredCursor::of);
    Ok(FiredPage { timers, next })
}

/// A row that this program has fired. What cannot be read, or has its `reached_at` in another form
/// than ours, was marked by another program: it was never published by us, and would only disturb
/// the order.
fn ours(row: &Row<'_>) -> Option<ReachedTimer> {
    let timer = TimerRow::read(row).ok()?;
    let reached_at = timer.reached_at?;
    let text = row.get_ref(REACHED_AT).ok()?.as_str().ok()?;
    (text == reached_at.to_string()).then(|| ReachedTimer::restore(timer.timer, reached_at))
}
