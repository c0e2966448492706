//! Polling for due timers tenant by tenant, through an index on tenant and ready time.

use std::collections::BTreeMap;
use std::time::Duration;

use punctual_domain::Timestamp;
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, params};

use super::claiming::{Chosen, Poll, Ready};
use super::rows::parsed;
use crate::claims::RowId;
use crate::sql;

/// Maximum number of tenants that one claim visits, due or not: each is two steps in an index, and all
/// other claims wait. The next claim continues there.
const MAX_VISITED: usize = 1_024;
/// Delay of the next poll if this one has not visited all tenants.
const CONTINUE_AFTER: Duration = Duration::from_millis(20);

/// Iterates once over the tenants that have scheduled timers, starting after a given one.
pub(super) struct TenantCycle<'a> {
    statement: CachedStatement<'a>,
    start: Vec<u8>,
    last: Vec<u8>,
    has_wrapped: bool,
}

impl TenantCycle<'_> {
    /// The next tenant; `None` at the end of the cycle.
    pub(super) fn next(&mut self) -> rusqlite::Result<Option<Vec<u8>>> {
        loop {
            let after = self
                .statement
                .query_row(params![self.last], |row| {
                    Ok(row.get_ref(0)?.as_bytes()?.to_vec())
                })
                .optional()?;
            match after {
                Some(tenant) if self.has_wrapped && tenant > self.start => return Ok(None),
                Some(tenant) => {
                    self.last.clone_from(&tenant);
                    return Ok(Some(tenant));
                }
                None if self.has_wrapped => return Ok(None),
                None => {
                    self.has_wrapped = true;
                    self.last.clear();
                }
            }
        }
    }
}

/// A tenant's next free timer.
pub(super) enum Next {
    /// Ready now.
    Ready(Ready),
    /// Ready later.
    At(Timestamp),
    Nothing,
}

impl<'a> Poll<'a> {
    pub(super) fn tenants_after(&self, last_served: &[u8]) -> rusqlite::Result<TenantCycle<'a>> {
        let connection: &'a Connection = self.connection;
        Ok(TenantCycle {
            statement: connection.prepare_cached(sql::NEXT_TENANT)?,
            start: last_served.to_vec(),
            last: last_served.to_vec(),
            has_wrapped: false,
        })
    }

    /// The oldest free row of a tenant that is not chosen yet.
    pub(super) fn next_of_tenant(
        &self,
        tenant: &[u8],
        chosen: &BTreeMap<RowId, Timestamp>,
    ) -> rusqlite::Result<Next> {
        if self.passed_over.contains(tenant) {
            return Ok(Next::Nothing);
        }
        let mut next = Next::Nothing;
        self.of_tenant(tenant, |ready| {
            let is_free = !chosen.contains_key(&ready.1);
            if is_free {
                next = Next::Ready(ready);
            }
            !is_free
        })
        .map(|later| match (next, later) {
            (Next::Nothing, Some(at)) => Next::At(at),
            (next, _) => next,
        })
    }

    /// Passes the ready, free rows of a tenant to `takes_more`, oldest first, until it returns false.
    /// Returns when the next one is ready.
    fn of_tenant(
        &self,
        tenant: &[u8],
        mut takes_more: impl FnMut(Ready) -> bool,
    ) -> rusqlite::Result<Option<Timestamp>> {
        let mut statement = self.connection.prepare_cached(sql::READY_OF_TENANT)?;
        let mut rows = statement.query(params![tenant])?;
        while let Some(row) = rows.next()? {
            let Some(ready) = readable(row)? else {
                continue;
            };
            if self.is_in_flight(ready) {
                continue;
            }
            // As in `first`: the order of texts is that of times only if we wrote them.
            let comes_later = row.get_ref(1)?.as_bytes()? > self.until.as_bytes();
            match (comes_later, ready.0 > self.now) {
                (false, false) if takes_more(ready) => {}
                (false, false) => return Ok(None),
                (true, true) => return Ok(Some(ready.0)),
                _ => {}
            }
        }
        Ok(None)
    }

    /// Ready rows of all tenants that are not saturated: fresh ones, then the oldest of each tenant in
    /// turn, then their other rows. No row of a saturated tenant is read.
    ///
    /// With very many tenants, a claim visits some of them and requests another poll soon.
    pub(super) fn tenant_by_tenant(
        &mut self,
        limit: usize,
        last_served: &mut Vec<u8>,
    ) -> rusqlite::Result<Chosen> {
        self.keep_snapshot()?;
        let mut rows = self.newest(limit / 4)?;
        let (mut next_due_at, mut more_due) = (None, false);
        let mut with_more = Vec::new();
        let mut tenants = self.tenants_after(last_served)?;
        let mut to_visit = MAX_VISITED.max(limit);
        let (mut last_visited, mut has_unvisited) = (Vec::new(), false);
        while let Some(tenant) = tenants.next()? {
            if to_visit == 0 {
                has_unvisited = true;
                break;
            }
            to_visit -= 1;
            match self.next_of_tenant(&tenant, &rows)? {
                Next::Ready(_) if rows.len() >= limit => {
                    more_due = true;
                    break;
                }
                Next::Ready((ready_at, row)) => {
                    rows.insert(row, ready_at);
                    last_served.clone_from(&tenant);
                    with_more.push(tenant.clone());
                }
                Next::At(at) => next_due_at = earlier(next_due_at, Some(at)),
                Next::Nothing => {}
            }
            last_visited = tenant;
        }
        if has_unvisited {
            *last_served = last_visited;
        }
        for tenant in with_more {
            if more_due {
                break;
            }
            let later = self.of_tenant(&tenant, |(ready_at, row)| {
                let has_room = rows.len() < limit || rows.contains_key(&row);
                if has_room {
                    rows.insert(row, ready_at);
                }
                more_due |= !has_room;
                has_room
            })?;
            next_due_at = earlier(next_due_at, later);
        }
        if more_due || has_unvisited {
            next_due_at = self.next_due_at()?;
        }
        if has_unvisited {
            // Whether one of them has something due is unknown until the next poll.
            more_due = true;
            let soon = self.now.saturating_add(CONTINUE_AFTER);
            next_due_at = earlier(next_due_at, Some(soon));
        }
        Ok(Chosen {
            rows,
            more_due,
            next_due_at,
        })
    }
}

pub(super) fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}

/// When a row is ready, and its rowid; `None` if the time is unreadable.
pub(super) fn readable(row: &Row<'_>) -> rusqlite::Result<Option<Ready>> {
    let row_id: RowId = row.get(0)?;
    match parsed(row, 1) {
        Ok(ready_at) => Ok(Some((ready_at, row_id))),
        Err(error) if error.sqlite_error_code().is_none() => {
            tracing::error!(%error, row_id, "a timer cannot be read and does not fire");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
