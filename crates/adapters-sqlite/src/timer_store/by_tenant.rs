//! Looking for what is due tenant by tenant, through an index that knows when each one's is ready.

use std::collections::BTreeMap;
use std::time::Duration;

use punctual_domain::Timestamp;
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, params};

use super::claiming::{Chosen, Look, Ready};
use super::rows::parsed;
use crate::claims::RowId;
use crate::sql;

/// Maximum number of tenants that one claim visits, due or not: each is two steps in an index, and all
/// claims wait for this one. The next claim goes on there.
const MOST_VISITED: usize = 1_024;
/// How soon the next claim should come if this one has not visited all tenants.
const GO_ON_AFTER: Duration = Duration::from_millis(20);

/// The tenants that have something scheduled, from the one after a given one on, each once.
pub(super) struct Round<'a> {
    statement: CachedStatement<'a>,
    begin: Vec<u8>,
    last: Vec<u8>,
    has_wrapped: bool,
}

impl Round<'_> {
    /// The next tenant; `None` when each has had its turn.
    pub(super) fn next(&mut self) -> rusqlite::Result<Option<Vec<u8>>> {
        loop {
            let after = self
                .statement
                .query_row(params![self.last], |row| {
                    Ok(row.get_ref(0)?.as_bytes()?.to_vec())
                })
                .optional()?;
            match after {
                Some(tenant) if self.has_wrapped && tenant > self.begin => return Ok(None),
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

/// What comes next of a tenant, in nobody's hand.
pub(super) enum Next {
    /// It is ready.
    Ready(Ready),
    /// It will be.
    At(Timestamp),
    Nothing,
}

impl<'a> Look<'a> {
    pub(super) fn round(&self, last_served: &[u8]) -> rusqlite::Result<Round<'a>> {
        let connection: &'a Connection = self.connection;
        Ok(Round {
            statement: connection.prepare_cached(sql::NEXT_TENANT)?,
            begin: last_served.to_vec(),
            last: last_served.to_vec(),
            has_wrapped: false,
        })
    }

    /// The oldest free row of a tenant beside those that are chosen already.
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

    /// Hands over the ready rows of a tenant that are in nobody's hand, the oldest first, for as long
    /// as they are taken; then tells when the next one is ready.
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
            // As in a look through all: the order of texts is that of times only if we wrote them.
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

    /// What is ready of all tenants but those that are passed over: what is fresh, then the oldest of
    /// each tenant in turn, then whatever else they have. However much those have who are passed
    /// over, none of it is read.
    ///
    /// With very many tenants a claim visits some of them, and asks for the next one soon.
    pub(super) fn tenant_by_tenant(
        &mut self,
        limit: usize,
        last_served: &mut Vec<u8>,
    ) -> rusqlite::Result<Chosen> {
        self.keep_snapshot()?;
        let mut rows = self.newest(limit / 4)?;
        let (mut next_due_at, mut more_due) = (None, false);
        let mut with_more = Vec::new();
        let mut round = self.round(last_served)?;
        let mut to_visit = MOST_VISITED.max(limit);
        let (mut last_visited, mut has_unvisited) = (Vec::new(), false);
        while let Some(tenant) = round.next()? {
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
            // Whether any of them has something due is not known. Somebody has to come and see.
            more_due = true;
            let soon = self.now.saturating_add(GO_ON_AFTER);
            next_due_at = earlier(next_due_at, Some(soon));
        }
        Ok(Chosen {
            rows,
            more_due,
            next_due_at,
        })
    }
}

fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}

/// When and where a row is ready; `None` if that cannot be read.
pub(super) fn readable(row: &Row<'_>) -> rusqlite::Result<Option<Ready>> {
    let place: RowId = row.get(0)?;
    match parsed(row, 1) {
        Ok(ready_at) => Ok(Some((ready_at, place))),
        Err(error) if error.sqlite_error_code().is_none() => {
            tracing::error!(%error, place, "a timer cannot be read and does not fire");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
