//! Selection of the due timers for a claim: all of them, or a fair share if there are too many.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use punctual_domain::claim_sharing::{self, Chosen, DueTimers, earlier};
use punctual_domain::{TenantId, Timestamp};
use punctual_ports::{Claim, ClaimBatch};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, Rows, params};

use super::rows::{TimerRow, parsed};
use crate::claims::{RowId, SharedClaims};
use crate::sql;
use crate::writer::execute;

/// Age up to which a ready timer is fresh and does not wait for a backlog.
const FRESH: Duration = Duration::from_secs(10);
/// Maximum number of rows of saturated tenants that a poll in ready order skips. Beyond that, it and
/// the polls of the next moments go from tenant to tenant instead.
const MAX_SKIPPED: usize = 512;
const TENANT_BY_TENANT_FOR: Duration = Duration::from_secs(1);
/// Maximum number of such rows that the search for the newest skips before it gives up.
const MAX_SKIPPED_BEFORE_NEWEST: usize = 64;
/// Maximum number of unreadable rows that are remembered. Further ones may use up slots of a claim.
const MAX_UNREADABLE: usize = 10_000;
/// Delay of the next poll if a row was changing during this one: the change may be rolled back.
const POLL_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// How long an unreadable row is skipped before it is tried again.
const RETRY_UNREADABLE_AFTER: Duration = Duration::from_mins(1);

/// When a row is ready, and its rowid: the order in which timers are claimed.
type Ready = (Timestamp, RowId);

/// The connection that polls, and the fairness state between claims.
pub(crate) struct Claimer {
    connection: Connection,
    /// The tenant that a shared claim served last. As bytes: another program may have written one
    /// that is no text.
    last_served: Option<Vec<u8>>,
    unreadable: Unreadable,
    /// Start of the period in which polls go from tenant to tenant.
    by_tenant_since: Option<Timestamp>,
}

/// Unreadable rows, written by another program, with their ready times. They are skipped: otherwise
/// they would use up slots of every claim.
struct Unreadable {
    rows: HashMap<RowId, Timestamp>,
    /// When the list was last emptied, so that repaired rows are found.
    since: Timestamp,
}

impl Unreadable {
    fn expire(&mut self, now: Timestamp) {
        if now < self.since || now.since(self.since) >= RETRY_UNREADABLE_AFTER {
            self.rows.clear();
            self.since = now;
        }
    }
}

impl Claimer {
    pub(crate) fn new(connection: Connection) -> Self {
        Self {
            connection,
            last_served: None,
            unreadable: Unreadable {
                rows: HashMap::new(),
                since: Timestamp::MIN,
            },
            by_tenant_since: None,
        }
    }

    /// Polls one snapshot of the file and claims what is due in it.
    pub(crate) fn claim_due(
        &mut self,
        claims: &SharedClaims,
        now: Timestamp,
        limit: usize,
        lease: Duration,
        excluded: &BTreeSet<TenantId>,
    ) -> rusqlite::Result<ClaimBatch> {
        // Before the snapshot, so that every later change is recorded as out of date in it.
        let in_flight = claims.lock().begin_poll(now);
        let polled = self.poll(&in_flight, excluded, now, limit);
        let mut claims = claims.lock();
        let (rows, chosen) = polled.inspect_err(|_| claims.end_poll())?;
        let (mut more_due, mut next_due_at) = (chosen.more_due, chosen.next_due_at);
        let until = now.saturating_add(lease);
        let mut claimed = Vec::with_capacity(rows.len());
        for row in rows {
            if claims.is_out_of_date(row.row_id) {
                more_due = true;
                let again = now.saturating_add(POLL_AGAIN_AFTER);
                next_due_at = earlier(next_due_at, Some(again));
                continue;
            }
            let token = claims.claim(row.row_id, row.timer.firing_id(), row.ready_at, until);
            claimed.push(Claim {
                timer: row.timer,
                attempts: row.failures.attempts,
                token,
                lease_until: until,
            });
        }
        claims.end_poll();
        Ok(ClaimBatch {
            claims: claimed,
            more_due,
            next_due_at,
        })
    }

    fn poll(
        &mut self,
        in_flight: &HashMap<RowId, Timestamp>,
        excluded: &BTreeSet<TenantId>,
        now: Timestamp,
        limit: usize,
    ) -> rusqlite::Result<(Vec<TimerRow>, Chosen<RowId>)> {
        self.unreadable.expire(now);
        self.by_tenant_since = self.by_tenant_since.filter(|since| {
            !excluded.is_empty() && now >= *since && now.since(*since) < TENANT_BY_TENANT_FOR
        });
        let excluded = excluded.iter();
        let mut poll = Poll {
            connection: &self.connection,
            snapshot: None,
            next_tenant: None,
            in_flight,
            excluded: excluded.map(|tenant| tenant.as_str().as_bytes()).collect(),
            unreadable: &mut self.unreadable.rows,
            now,
            until: now.to_string(),
        };
        loop {
            let mut last_served = self.last_served.clone();
            let first = match self.by_tenant_since {
                Some(_) => None,
                None => poll.first(limit.saturating_add(1))?,
            };
            let chosen = if let Some(first) = first {
                claim_sharing::share(&mut poll, first, limit, &mut last_served)?
            } else {
                self.by_tenant_since.get_or_insert(now);
                poll.keep_snapshot()?;
                claim_sharing::tenant_by_tenant(&mut poll, limit, &mut last_served)?
            };
            let rows = poll.rows(&chosen.timers)?;
            if rows.len() < chosen.timers.len() && poll.unreadable.len() < MAX_UNREADABLE {
                // The unreadable rows are known now: others get their slots.
                continue;
            }
            self.last_served = last_served;
            return Ok((rows, chosen));
        }
    }
}

/// One poll of the file.
struct Poll<'a> {
    connection: &'a Connection,
    /// Open from the first ready row to the end of the poll.
    snapshot: Option<Snapshot<'a>>,
    /// Prepared when the first tenant is visited.
    next_tenant: Option<CachedStatement<'a>>,
    in_flight: &'a HashMap<RowId, Timestamp>,
    /// Saturated tenants, whose timers are not claimed; as bytes, as the file has them.
    excluded: HashSet<&'a [u8]>,
    unreadable: &'a mut HashMap<RowId, Timestamp>,
    now: Timestamp,
    until: String,
}

impl Poll<'_> {
    /// Whether a row belongs to a saturated tenant.
    fn is_excluded(&self, row: RowId) -> rusqlite::Result<bool> {
        if self.excluded.is_empty() {
            return Ok(false);
        }
        let mut statement = self.connection.prepare_cached(sql::TENANT_OF)?;
        let mut rows = statement.query(params![row])?;
        let Some(row) = rows.next()? else {
            return Ok(false);
        };
        Ok(self.excluded.contains(row.get_ref(0)?.as_bytes()?))
    }

    /// Opens the snapshot that the rest of the poll reads.
    fn keep_snapshot(&mut self) -> rusqlite::Result<()> {
        if self.snapshot.is_none() {
            self.snapshot = Some(Snapshot::keep(self.connection)?);
        }
        Ok(())
    }

    /// Whether a row is in flight or unreadable. A row that was rescheduled since is neither.
    fn is_in_flight(&self, (ready_at, row): Ready) -> bool {
        let is_known = |rows: &HashMap<_, _>| rows.get(&row) == Some(&ready_at);
        is_known(self.in_flight) || is_known(self.unreadable)
    }

    /// The first free rows that are ready, and when the next one will be; `None` if too many rows of
    /// saturated tenants precede them.
    ///
    /// Mostly nothing is ready, and then a poll is this one statement.
    fn first(&mut self, limit: usize) -> rusqlite::Result<Option<Chosen<RowId>>> {
        let mut skipped = 0;
        let mut first = Chosen {
            timers: BTreeMap::new(),
            more_due: false,
            next_due_at: None,
        };
        let connection = self.connection;
        let mut statement = connection.prepare_cached(sql::READY)?;
        let mut rows = statement.query([])?;
        while first.timers.len() < limit
            && let Some(row) = rows.next()?
        {
            let Some(ready) = readable(row)? else {
                continue;
            };
            if self.is_in_flight(ready) {
                continue;
            }
            if self.is_excluded(ready.1)? {
                skipped += 1;
                if skipped > MAX_SKIPPED {
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
                    first.timers.insert(ready.1, ready.0);
                }
                (true, true) => {
                    first.next_due_at = Some(ready.0);
                    break;
                }
                // Reporting a past time as next due would poll for ever; a future one must not fire.
                _ => {}
            }
        }
        Ok(Some(first))
    }

    /// Reads the chosen rows completely, in the order in which they became ready.
    fn rows(&mut self, chosen: &BTreeMap<RowId, Timestamp>) -> rusqlite::Result<Vec<TimerRow>> {
        let mut statement = self.connection.prepare_cached(sql::FIND_ROW)?;
        let mut rows = Vec::with_capacity(chosen.len());
        // In rowid order, which reads each page once.
        for (row_id, ready_at) in chosen {
            match statement.query_row(params![row_id], TimerRow::read) {
                Ok(row) => rows.push(row),
                Err(error) if error.sqlite_error_code().is_none() => {
                    // Another program wrote it. It must not block the other timers.
                    tracing::error!(%error, row_id, "a timer cannot be read and does not fire");
                    self.unreadable.insert(*row_id, *ready_at);
                }
                Err(error) => return Err(error),
            }
        }
        rows.sort_by_key(|row| (row.ready_at, row.row_id));
        Ok(rows)
    }
}

impl DueTimers for Poll<'_> {
    type Id = RowId;
    type Tenant = Vec<u8>;
    type Error = rusqlite::Error;

    fn now(&self) -> Timestamp {
        self.now
    }

    /// The newest free row, and further ones as long as they are fresh. The newest row of a backlog is
    /// no more urgent than the rest, and far from it in the file.
    fn newest(&self, limit: usize) -> rusqlite::Result<BTreeMap<RowId, Timestamp>> {
        let fresh_since = self.now.saturating_sub(FRESH);
        let mut skipped = 0;
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
            if self.is_excluded(ready.1)? {
                skipped += 1;
                if skipped > MAX_SKIPPED_BEFORE_NEWEST {
                    break;
                }
                continue;
            }
            found.insert(ready.1, ready.0);
        }
        Ok(found)
    }

    fn tenant_after(&mut self, tenant: Option<&Vec<u8>>) -> rusqlite::Result<Option<Vec<u8>>> {
        let statement = match &mut self.next_tenant {
            Some(statement) => statement,
            none => none.insert(self.connection.prepare_cached(sql::NEXT_TENANT)?),
        };
        let after = tenant.map_or(&[][..], Vec::as_slice);
        statement
            .query_row(params![after], |row| {
                Ok(row.get_ref(0)?.as_bytes()?.to_vec())
            })
            .optional()
    }

    fn of_tenant(
        &self,
        tenant: &Vec<u8>,
        mut takes_more: impl FnMut(RowId, Timestamp) -> bool,
    ) -> rusqlite::Result<Option<Timestamp>> {
        if self.excluded.contains(tenant.as_slice()) {
            return Ok(None);
        }
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
                (false, false) if takes_more(ready.1, ready.0) => {}
                (false, false) => return Ok(None),
                (true, true) => return Ok(Some(ready.0)),
                _ => {}
            }
        }
        Ok(None)
    }

    /// The next due time if more is due than was claimed. It may be that of a saturated tenant: to
    /// exclude it would mean to read the table, and the worker polls again anyway.
    fn next_due_at(&self) -> rusqlite::Result<Option<Timestamp>> {
        let mut statement = self.connection.prepare_cached(sql::NEXT_READY)?;
        let mut rows = statement.query(params![self.until])?;
        while let Some(ready) = next(&mut rows)? {
            // As in `first`: the order of texts may differ from that of times.
            if ready.0 > self.now && !self.is_in_flight(ready) {
                return Ok(Some(ready.0));
            }
        }
        Ok(None)
    }
}

/// A read transaction over several statements.
struct Snapshot<'a> {
    connection: &'a Connection,
}

impl<'a> Snapshot<'a> {
    /// Keeps the snapshot of the statement that is being read, which would end with its last row.
    fn keep(connection: &'a Connection) -> rusqlite::Result<Self> {
        execute(connection, "BEGIN")?;
        Ok(Self { connection })
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        // Nothing was written. If it fails, SQLite has ended the transaction.
        if let Err(error) = execute(self.connection, "ROLLBACK") {
            tracing::debug!(%error, "the read transaction of a poll had already ended");
        }
    }
}

/// The next readable row.
fn next(rows: &mut Rows<'_>) -> rusqlite::Result<Option<Ready>> {
    while let Some(row) = rows.next()? {
        if let Some(ready) = readable(row)? {
            return Ok(Some(ready));
        }
    }
    Ok(None)
}

/// When a row is ready, and its rowid; `None` if the time is unreadable.
fn readable(row: &Row<'_>) -> rusqlite::Result<Option<Ready>> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SchemaSet;
    use tempfile::TempDir;

    /// A new file of timers.
    fn file() -> (TempDir, Connection) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("timer.db");
        crate::migrate(&path, SchemaSet::TimersOnly, Timestamp::MIN).unwrap();
        let connection = Connection::open(&path).unwrap();
        (folder, connection)
    }

    fn add_timer(connection: &Connection, tenant: &str, n: usize, due_at: Timestamp) {
        let insert = "INSERT INTO timer_schedules (tenant_id, service_call_id, correlation_id, \
                      due_at, registered_at) VALUES (?1, ?2, ?2, ?3, ?3)";
        let id = format!("00000000-0000-7000-8000-{n:012}");
        connection
            .execute(insert, [tenant, &id, &due_at.to_string()])
            .unwrap();
    }

    #[test]
    fn a_row_that_changes_during_a_poll_is_polled_again_soon() {
        let (_folder, connection) = file();
        add_timer(&connection, "a", 1, Timestamp::MIN);
        let claims = SharedClaims::default();
        let mut claimer = Claimer::new(connection);
        let now = Timestamp::MIN.saturating_add(Duration::from_secs(1));
        let none = BTreeSet::new();
        let mut claim = || claimer.claim_due(&claims, now, 10, Duration::from_secs(30), &none);

        claims.lock().record_change(1);
        let batch = claim().unwrap();
        assert!(batch.claims.is_empty() && batch.more_due);
        assert_eq!(
            batch.next_due_at,
            Some(now.saturating_add(POLL_AGAIN_AFTER))
        );

        // After a rollback, nothing else would wake the worker.
        claims.lock().rolled_back();
        assert_eq!(claim().unwrap().claims.len(), 1);
    }

    #[test]
    fn all_statements_of_a_poll_see_what_its_first_one_saw() {
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
        let (_folder, connection) = file();
        let after = |seconds| Timestamp::MIN.saturating_add(Duration::from_secs(seconds));
        let timer = |tenant: &str, n, due_at| add_timer(&connection, tenant, n, due_at);
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
            let soon = now.saturating_add(POLL_AGAIN_AFTER);
            assert!(batch.next_due_at.is_some_and(|it| now < it && it <= soon));
        }
        assert_eq!(claim().claims.len(), 1);
    }
}
