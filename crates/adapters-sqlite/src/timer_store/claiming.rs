//! Which due timers a claim gets: all of them, or a fair share if there are too many.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use punctual_domain::{TenantId, Timestamp};
use punctual_ports::{Claim, ClaimBatch};
use rusqlite::{Connection, Rows, params};

use super::by_tenant::{Next, readable};
use super::rows::TimerRow;
use crate::claims::{RowId, SharedClaims};
use crate::sql;
use crate::writer::execute;

/// What became ready within this time is fresh, and does not wait for a backlog.
const FRESH: Duration = Duration::from_secs(10);
/// So many tenants are visited at least when a claim is shared; the next claim goes on there.
const TENANTS_VISITED: usize = 256;
/// So many rows of tenants that are passed over may be in the way of a look through all that is
/// ready. If there are more, it goes from tenant to tenant instead, and so do the next ones for a
/// while.
const MOST_IN_THE_WAY: usize = 512;
const TENANT_BY_TENANT_FOR: Duration = Duration::from_secs(1);
/// The same for a look at what is newest, which then does without.
const MOST_BEFORE_THE_NEWEST: usize = 64;
/// So many rows that cannot be read are remembered. If there are more, they may take places.
const MOST_UNREADABLE: usize = 10_000;
/// When to look again if a row was changing under the look: the change may be undone.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// How long a row that cannot be read is passed over before it is tried again.
const MENDED_AFTER: Duration = Duration::from_mins(1);

/// When a row is ready, and where it is: the order in which timers are claimed.
pub(super) type Ready = (Timestamp, RowId);

/// The connection that claims, and whose turn it is.
pub(crate) struct Claimer {
    connection: Connection,
    /// The tenant that was served last when a claim had to be shared. As bytes: another program may
    /// have written one that is no text.
    last_served: Vec<u8>,
    unreadable: Unreadable,
    /// When there was last too much in the way.
    was_in_the_way: Option<Timestamp>,
}

/// Rows that were written by some other program and cannot be read, with when they are ready. They
/// are passed over, since they would take the places of those that can be read, for ever.
struct Unreadable {
    rows: HashMap<RowId, Timestamp>,
    /// From when on they are remembered: now and then, one may have been mended.
    since: Timestamp,
}

impl Unreadable {
    fn forget_sometimes(&mut self, now: Timestamp) {
        if now < self.since || now.since(self.since) >= MENDED_AFTER {
            self.rows.clear();
            self.since = now;
        }
    }
}

impl Claimer {
    pub(crate) fn new(connection: Connection) -> Self {
        Self {
            connection,
            last_served: Vec::new(),
            unreadable: Unreadable {
                rows: HashMap::new(),
                since: Timestamp::MIN,
            },
            was_in_the_way: None,
        }
    }

    /// Looks at one snapshot of the file and claims what is due in it.
    pub(crate) fn claim_due(
        &mut self,
        claims: &SharedClaims,
        now: Timestamp,
        limit: usize,
        lease: Duration,
        passed_over: &BTreeSet<TenantId>,
    ) -> rusqlite::Result<ClaimBatch> {
        // Before the snapshot: what changes from here on is known to be out of date in it.
        let in_flight = claims.lock().begin_poll(now);
        let look = self.look(&in_flight, passed_over, now, limit);
        let mut claims = claims.lock();
        let Seen {
            rows,
            mut more_due,
            mut next_due_at,
        } = match look {
            Ok(seen) => seen,
            Err(error) => {
                claims.abandon_poll();
                return Err(error);
            }
        };
        let until = now.saturating_add(lease);
        let mut claimed = Vec::with_capacity(rows.len());
        for row in rows {
            if claims.is_out_of_date(row.place) {
                more_due = true;
                let again = now.saturating_add(LOOK_AGAIN);
                next_due_at = Some(next_due_at.map_or(again, |next| next.min(again)));
                continue;
            }
            let token = claims.claim(row.place, row.timer.firing_id(), row.ready_at, until);
            claimed.push(Claim {
                timer: row.timer,
                attempts: row.failures.attempts,
                token,
                lease_until: until,
            });
        }
        claims.abandon_poll();
        Ok(ClaimBatch {
            claims: claimed,
            more_due,
            next_due_at,
        })
    }

    fn look(
        &mut self,
        in_flight: &HashMap<RowId, Timestamp>,
        passed_over: &BTreeSet<TenantId>,
        now: Timestamp,
        limit: usize,
    ) -> rusqlite::Result<Seen> {
        self.unreadable.forget_sometimes(now);
        let in_the_way = self.was_in_the_way.filter(|since| {
            !passed_over.is_empty() && now >= *since && now.since(*since) < TENANT_BY_TENANT_FOR
        });
        self.was_in_the_way = in_the_way;
        let passed_over = passed_over.iter();
        let mut look = Look {
            connection: &self.connection,
            snapshot: None,
            in_flight,
            passed_over: passed_over
                .map(|tenant| tenant.as_str().as_bytes())
                .collect(),
            unreadable: &mut self.unreadable.rows,
            now,
            until: now.to_string(),
        };
        loop {
            let mut last_served = self.last_served.clone();
            let first = match self.was_in_the_way {
                Some(_) => None,
                None => look.first(limit.saturating_add(1))?,
            };
            let Chosen {
                rows: chosen,
                more_due,
                next_due_at,
            } = if let Some(first) = first {
                look.share(first, limit, &mut last_served)?
            } else {
                self.was_in_the_way.get_or_insert(now);
                look.tenant_by_tenant(limit, &mut last_served)?
            };
            let rows = look.rows(&chosen)?;
            if rows.len() < chosen.len() && look.unreadable.len() < MOST_UNREADABLE {
                // Some cannot be read, and now it is known which: others get their places.
                continue;
            }
            self.last_served = last_served;
            return Ok(Seen {
                rows,
                more_due,
                next_due_at,
            });
        }
    }
}

/// What a look has found.
struct Seen {
    rows: Vec<TimerRow>,
    more_due: bool,
    next_due_at: Option<Timestamp>,
}

/// What comes first in the order of readiness.
struct First {
    /// The rows that are ready, up to as many as were asked for.
    ready: BTreeMap<RowId, Timestamp>,
    /// When the next one will be, if fewer than that are ready.
    next_due_at: Option<Timestamp>,
}

/// The rows that are to be claimed.
pub(super) struct Chosen {
    pub(super) rows: BTreeMap<RowId, Timestamp>,
    pub(super) more_due: bool,
    pub(super) next_due_at: Option<Timestamp>,
}

pub(super) struct Look<'a> {
    pub(super) connection: &'a Connection,
    /// Open from the first row on that is ready, for all that follows.
    snapshot: Option<Snapshot<'a>>,
    in_flight: &'a HashMap<RowId, Timestamp>,
    /// The tenants that get nothing, as bytes, as they are compared with what is in the file.
    pub(super) passed_over: HashSet<&'a [u8]>,
    unreadable: &'a mut HashMap<RowId, Timestamp>,
    pub(super) now: Timestamp,
    pub(super) until: String,
}

impl Look<'_> {
    /// Whether a row's tenant gets nothing. A row whose tenant is no text is nobody's we know.
    fn is_passed_over(&self, row: RowId) -> rusqlite::Result<bool> {
        if self.passed_over.is_empty() {
            return Ok(false);
        }
        let mut statement = self.connection.prepare_cached(sql::TENANT_OF)?;
        let mut rows = statement.query(params![row])?;
        let Some(row) = rows.next()? else {
            return Ok(false);
        };
        Ok(self.passed_over.contains(row.get_ref(0)?.as_bytes()?))
    }

    /// Keeps one state of the file for all that follows.
    pub(super) fn keep_snapshot(&mut self) -> rusqlite::Result<()> {
        if self.snapshot.is_none() {
            self.snapshot = Some(Snapshot::keep(self.connection)?);
        }
        Ok(())
    }

    /// Whether somebody has a row in hand, as it is now, or it cannot be read: one that was moved
    /// since is in no hand.
    pub(super) fn is_in_flight(&self, (ready_at, row): Ready) -> bool {
        let is_known = |rows: &HashMap<_, _>| rows.get(&row) == Some(&ready_at);
        is_known(self.in_flight) || is_known(self.unreadable)
    }

    /// The first few free rows that are ready, and when the next one will be; `None` if too much of
    /// those who are passed over is in the way.
    ///
    /// Mostly nothing is ready, and then this one statement is all there is to a look.
    fn first(&mut self, limit: usize) -> rusqlite::Result<Option<First>> {
        let mut in_the_way = 0;
        let mut first = First {
            ready: BTreeMap::new(),
            next_due_at: None,
        };
        let connection = self.connection;
        let mut statement = connection.prepare_cached(sql::READY)?;
        let mut rows = statement.query([])?;
        while first.ready.len() < limit
            && let Some(row) = rows.next()?
        {
            let Some(ready) = readable(row)? else {
                continue;
            };
            if self.is_in_flight(ready) {
                continue;
            }
            if self.is_passed_over(ready.1)? {
                in_the_way += 1;
                if in_the_way > MOST_IN_THE_WAY {
                    return Ok(None);
                }
                continue;
            }
            // The order of texts is the order of times only if we wrote them: what another program
            // wrote with an offset of its own may come too soon or too late.
            let comes_later = row.get_ref(1)?.as_bytes()? > self.until.as_bytes();
            match (comes_later, ready.0 > self.now) {
                (false, false) => {
                    self.keep_snapshot()?;
                    first.ready.insert(ready.1, ready.0);
                }
                (true, true) => {
                    first.next_due_at = Some(ready.0);
                    break;
                }
                // A time that has passed would be looked for without end, and one that has not
                // must not fire.
                _ => {}
            }
        }
        Ok(Some(first))
    }

    /// The newest free row, and as many more as are fresh. The newest of a backlog would be no more
    /// urgent than the rest of it, and far from it in the file.
    pub(super) fn newest(&self, limit: usize) -> rusqlite::Result<BTreeMap<RowId, Timestamp>> {
        let fresh_since = self.now.saturating_sub(FRESH);
        let mut in_the_way = 0;
        let mut found = BTreeMap::new();
        let mut statement = self.connection.prepare_cached(sql::NEWEST_READY)?;
        let mut rows = statement.query(params![self.until])?;
        while found.len() < limit {
            let Some(ready) = next(&mut rows)? else { break };
            if ready.0 < fresh_since && !found.is_empty() {
                break;
            }
            if ready.0 > self.now || self.is_in_flight(ready) {
                continue;
            }
            if self.is_passed_over(ready.1)? {
                in_the_way += 1;
                if in_the_way > MOST_BEFORE_THE_NEWEST {
                    break;
                }
                continue;
            }
            found.insert(ready.1, ready.0);
        }
        Ok(found)
    }

    /// All that is ready, if that is not too much. Else up to a quarter for what is fresh, so that it
    /// does not wait for a backlog; up to a quarter for the tenants in turn, so that none waits for
    /// another's; the rest for the oldest.
    fn share(
        &self,
        first: First,
        limit: usize,
        last_served: &mut Vec<u8>,
    ) -> rusqlite::Result<Chosen> {
        let First {
            ready: oldest,
            next_due_at,
        } = first;
        if oldest.len() <= limit {
            return Ok(Chosen {
                rows: oldest,
                more_due: false,
                next_due_at,
            });
        }
        let quarter = limit / 4;
        let mut chosen = self.newest(quarter)?;
        self.serve_tenants_in_turn(quarter.max(1).min(limit), last_served, &mut chosen)?;
        let mut oldest: Vec<Ready> = oldest.into_iter().map(|(row, at)| (at, row)).collect();
        oldest.sort_unstable();
        for (ready_at, row) in oldest {
            if chosen.len() >= limit {
                break;
            }
            chosen.insert(row, ready_at);
        }
        Ok(Chosen {
            rows: chosen,
            more_due: true,
            next_due_at: self.next_due_at()?,
        })
    }

    /// Gives each tenant after the one that was served last its oldest free timer.
    fn serve_tenants_in_turn(
        &self,
        places: usize,
        last_served: &mut Vec<u8>,
        chosen: &mut BTreeMap<RowId, Timestamp>,
    ) -> rusqlite::Result<()> {
        let mut round = self.round(last_served)?;
        let mut served = 0;
        for _ in 0..TENANTS_VISITED.max(places * 2) {
            if served >= places {
                break;
            }
            let Some(tenant) = round.next()? else {
                break;
            };
            let next = self.next_of_tenant(&tenant, chosen)?;
            if let Next::Ready((ready_at, row)) = next {
                chosen.insert(row, ready_at);
                served += 1;
            }
            *last_served = tenant;
        }
        Ok(())
    }

    /// The chosen rows whole, in the order in which they became ready.
    fn rows(&mut self, chosen: &BTreeMap<RowId, Timestamp>) -> rusqlite::Result<Vec<TimerRow>> {
        let mut statement = self.connection.prepare_cached(sql::FIND_ROW)?;
        let mut rows = Vec::with_capacity(chosen.len());
        // In the order of the table, which touches each page once.
        for (place, ready_at) in chosen {
            match statement.query_row(params![place], TimerRow::read) {
                Ok(row) => rows.push(row),
                Err(error) if error.sqlite_error_code().is_none() => {
                    // Written by some other program. It must not hold up everybody else.
                    tracing::error!(%error, place, "a timer cannot be read and does not fire");
                    self.unreadable.insert(*place, *ready_at);
                }
                Err(error) => return Err(error),
            }
        }
        rows.sort_by_key(|row| (row.ready_at, row.place));
        Ok(rows)
    }

    /// When to come back if more is due than was claimed. It may be for a tenant that is passed over:
    /// whose it is would be a look at the table, and the worker comes back anyway.
    pub(super) fn next_due_at(&self) -> rusqlite::Result<Option<Timestamp>> {
        let mut statement = self.connection.prepare_cached(sql::NEXT_READY)?;
        let mut rows = statement.query(params![self.until])?;
        while let Some(ready) = next(&mut rows)? {
            // Again the order of texts: a time that has passed would be looked for without end.
            if ready.0 > self.now && !self.is_in_flight(ready) {
                return Ok(Some(ready.0));
            }
        }
        Ok(None)
    }
}

/// One state of the file for several statements.
struct Snapshot<'a> {
    connection: &'a Connection,
}

impl<'a> Snapshot<'a> {
    /// Keeps what the statement sees that is being read. By itself, that would end with its last
    /// row, or when it is let go.
    fn keep(connection: &'a Connection) -> rusqlite::Result<Self> {
        execute(connection, "BEGIN")?;
        Ok(Self { connection })
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        // Nothing was written, so there is nothing to undo. If it fails, SQLite has ended it.
        if let Err(error) = execute(self.connection, "ROLLBACK") {
            tracing::debug!(%error, "a look at the database had ended by itself");
        }
    }
}

/// The next row of a list that can be read.
fn next(rows: &mut Rows<'_>) -> rusqlite::Result<Option<Ready>> {
    while let Some(row) = rows.next()? {
        if let Some(ready) = readable(row)? {
            return Ok(Some(ready));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SchemaSet;

    #[test]
    fn a_row_that_changes_under_the_look_is_looked_for_again_soon() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("timer.db");
        crate::migrate(&path, SchemaSet::TimersOnly, Timestamp::MIN).unwrap();
        let connection = Connection::open(&path).unwrap();
        let id = "00000000-0000-7000-8000-000000000001";
        let insert = "INSERT INTO timer_schedules (tenant_id, service_call_id, correlation_id, \
                      due_at, registered_at) VALUES ('a', ?1, ?1, ?2, ?2)";
        connection
            .execute(insert, [id, &Timestamp::MIN.to_string()])
            .unwrap();
        let claims = SharedClaims::default();
        let mut claimer = Claimer::new(connection);
        let now = Timestamp::MIN.saturating_add(Duration::from_secs(1));
        let nobody = BTreeSet::new();
        let mut claim = || claimer.claim_due(&claims, now, 10, Duration::from_secs(30), &nobody);

        claims.lock().is_changing(1);
        let batch = claim().unwrap();
        assert!(batch.claims.is_empty() && batch.more_due);
        assert_eq!(batch.next_due_at, Some(now.saturating_add(LOOK_AGAIN)));

        // The change is undone, and nobody else would have woken the worker for it.
        claims.lock().rolled_back();
        assert_eq!(claim().unwrap().claims.len(), 1);
    }
    #[test]
    fn all_statements_of_a_look_see_what_its_first_one_saw() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("timer.db");
        let writer = Connection::open(&path).unwrap();
        let prepare = "PRAGMA journal_mode = WAL; CREATE TABLE t (x); INSERT INTO t VALUES (1)";
        writer.execute_batch(prepare).unwrap();
        let reader = Connection::open(&path).unwrap();
        let count = || reader.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0));

        let mut statement = reader.prepare("SELECT x FROM t").unwrap();
        let mut rows = statement.query([]).unwrap();
        assert!(rows.next().unwrap().is_some());
        writer.execute_batch("INSERT INTO t VALUES (2)").unwrap();
        let snapshot = Snapshot::keep(&reader).unwrap();
        assert!(rows.next().unwrap().is_none());
        drop(rows);
        writer.execute_batch("INSERT INTO t VALUES (3)").unwrap();
        assert_eq!(count(), Ok(1));
        drop(snapshot);
        assert_eq!(count(), Ok(3));
    }

    /// All claims wait for one that visits all tenants: with a hundred thousand of them, for a second.
    #[test]
    fn a_claim_visits_some_of_very_many_tenants_and_the_next_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("timer.db");
        crate::migrate(&path, SchemaSet::TimersOnly, Timestamp::MIN).unwrap();
        let connection = Connection::open(&path).unwrap();
        let after = |seconds| Timestamp::MIN.saturating_add(Duration::from_secs(seconds));
        let insert = "INSERT INTO timer_schedules (tenant_id, service_call_id, correlation_id, \
                      due_at, registered_at) VALUES (?1, ?2, ?2, ?3, ?3)";
        let timer = |tenant: &str, n: usize, due_at: Timestamp| {
            let id = format!("00000000-0000-7000-8000-{n:012}");
            connection
                .execute(insert, [tenant, &id, &due_at.to_string()])
                .unwrap();
        };
        connection.execute_batch("BEGIN").unwrap();
        (0..3_000).for_each(|n| timer(&format!("tenant-{n:04}"), n, after(9_000)));
        // As the last one visited, and neither among the first nor the newest.
        timer("z", 0, after(500));
        (0..1_000).for_each(|n| timer("slow", n, after(if n % 2 == 0 { 400 } else { 600 })));
        connection.execute_batch("COMMIT").unwrap();
        let (claims, now) = (SharedClaims::default(), after(1_000));
        let slow = BTreeSet::from([TenantId::new("slow").unwrap()]);
        let mut claimer = Claimer::new(connection);
        let mut claim = || {
            claimer
                .claim_due(&claims, now, 100, Duration::from_secs(30), &slow)
                .unwrap()
        };
        for _ in 0..2 {
            let batch = claim();
            assert_eq!((batch.claims.len(), batch.more_due), (0, true));
            let soon = now.saturating_add(LOOK_AGAIN);
            assert!(batch.next_due_at.is_some_and(|it| now < it && it <= soon));
        }
        assert_eq!(claim().claims.len(), 1);
    }
}
