//! Polling the queue: leases on what is due, shared between tenants when more is due than fits.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use punctual_domain::{Registration, TenantId, Timestamp};
use punctual_ports::{Claim, ClaimBatch, ClaimToken, PortError, PortErrorKind};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::PostgresTimerStore;
use super::rows::{attempts, column, instant, instant_or_null, registration, timer};
use crate::lane::{BEGIN_QUICK, Parameter, Session, Statement, transaction};
use crate::metric_names;
use crate::port_errors::Failure;
use crate::settings::Role;
use crate::sql::Statements;
use crate::values::{Instant, sql_limit, sql_millis};

const OPERATION: &str = "claim due timers";
/// Maximum number of rows of excluded tenants that a claim passes over before it goes tenant by tenant.
const MAX_SKIPPED: i64 = 1_000;
/// Maximum number of tenants that such a claim visits.
const MAX_VISITED: i64 = 1_024;
/// When a claim that has not visited all tenants is to be followed by the next.
const POLL_AGAIN_AFTER: Duration = Duration::from_millis(20);
/// Maximum number of lost claims that are remembered; their leases end by themselves.
const MAX_LOST: usize = 100;
/// An offset of the clocks above this is worth a warning.
const OFFSET_WARNING_MILLIS: i64 = 100;

/// One poll.
#[derive(Debug, Clone)]
pub(super) struct Poll {
    pub(super) now: Timestamp,
    pub(super) limit: usize,
    pub(super) lease: Duration,
    pub(super) excluded: Arc<Vec<String>>,
}

impl Poll {
    pub(super) fn new(
        now: Timestamp,
        limit: usize,
        lease: Duration,
        excluded: &BTreeSet<TenantId>,
    ) -> Self {
        let excluded = excluded.iter().map(|it| it.as_str().to_owned()).collect();
        Self {
            now,
            limit: limit.min(100_000),
            lease,
            excluded: Arc::new(excluded),
        }
    }
}

/// How timers are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// All that is due, if it fits.
    All,
    /// A share for the newest, for tenants in turn, and for the oldest.
    Shared,
    /// All that is due and not of an excluded tenant, if it fits.
    Beside,
    /// Tenant by tenant, without the excluded ones.
    ByTenant,
}

/// What a claim found.
struct Found {
    claims: Vec<Claim>,
    /// Timers whose row and schedule do not belong together, as they were rescheduled just now.
    torn: Vec<i64>,
    token: i64,
    /// How many rows were chosen, claimed or not.
    locked: usize,
    last_served: Option<String>,
    ends_early: bool,
    /// Nothing that nobody had claimed was left that was ready before this instant.
    searched_until: Option<Timestamp>,
    next: Next,
}

/// What comes after a claim, by the store's clock.
#[derive(Debug, Clone, Copy)]
struct Next {
    more_due: bool,
    ready_at: Option<Timestamp>,
    clock: Timestamp,
    leases: Option<ForeignLeases>,
    /// Whether it says when the next timer is ready, unless something is left already.
    is_complete: bool,
}

/// The leases of other instances, once they were checked.
#[derive(Debug, Clone, Copy)]
struct ForeignLeases {
    first_end: Option<Timestamp>,
}

impl PostgresTimerStore {
    /// Claims what is due.
    pub(super) async fn claim(&self, poll: Poll) -> Result<ClaimBatch, PortError> {
        if self.inner.role == Role::Client {
            let reason = "the store was opened to schedule and read, not to fire";
            return Err(PortError::new(PortErrorKind::Rejected, OPERATION, reason));
        }
        let monotonic = self.inner.connector.clock.monotonic();
        self.polling().begin(poll.now, monotonic, poll.lease);
        self.release_lost(&poll).await;
        if poll.limit == 0 || (poll.excluded.is_empty() && self.polling().is_quiet(poll.now)) {
            let next = self.check_due(&poll).await?;
            if !next.more_due || poll.limit == 0 {
                return Ok(self.batch(&poll, Vec::new(), next, next.more_due));
            }
        }
        let form = match (poll.excluded.is_empty(), self.polling().is_full) {
            (true, false) => Form::All,
            (true, true) => Form::Shared,
            (false, _) => Form::Beside,
        };
        let mut found = self.claim_as(form, &poll).await?;
        if form == Form::All && found.locked > poll.limit {
            found = self.claim_as(Form::Shared, &poll).await?;
        }
        if form == Form::Beside && found.ends_early {
            found = self.claim_as(Form::ByTenant, &poll).await?;
        }
        if !found.next.is_complete {
            match self.check_due(&poll).await {
                Ok(next) => found.next = next,
                // What was claimed must not be lost with it: the next poll tells.
                Err(_) => found.next.more_due = true,
            }
        }
        self.conclude(&poll, found).await
    }

    async fn conclude(&self, poll: &Poll, found: Found) -> Result<ClaimBatch, PortError> {
        if !found.torn.is_empty()
            && let Err(error) = self.unclaim(found.torn.clone(), found.token).await
        {
            tracing::debug!(%error, "timers that were rescheduled wait for the end of a lease");
        }
        let more_due = found.next.more_due || found.ends_early || !found.torn.is_empty();
        {
            let mut polling = self.polling();
            if let Some(tenant) = found.last_served {
                polling.last_served = tenant;
            }
            if poll.excluded.is_empty() {
                if more_due {
                    polling.found_more(found.searched_until);
                } else {
                    let until = found.next.clock.min(poll.now);
                    polling.found_nothing_more(until, found.next.ready_at);
                }
            } else {
                polling.expect(Timestamp::MIN);
            }
            if !found.torn.is_empty() {
                polling.expect(Timestamp::MIN);
            }
        }
        metrics::counter!(metric_names::CLAIMS).increment(found.claims.len() as u64);
        let mut batch = self.batch(poll, found.claims, found.next, more_due);
        if found.ends_early {
            let soon = poll.now.saturating_add(POLL_AGAIN_AFTER);
            batch.next_due_at = Some(batch.next_due_at.map_or(soon, |next| next.min(soon)));
        }
        Ok(batch)
    }

    /// What the worker gets. `next_due_at` is by its own clock, and covers the end of foreign leases.
    fn batch(&self, poll: &Poll, claims: Vec<Claim>, next: Next, more_due: bool) -> ClaimBatch {
        let monotonic = self.inner.connector.clock.monotonic();
        let mut polling = self.polling();
        let has_lease_ended = next
            .leases
            .is_some_and(|leases| polling.checked_leases(monotonic, leases.first_end, next.clock));
        let ahead = poll.now.since(next.clock);
        let behind = next.clock.since(poll.now);
        // A timer is due by the later of both clocks, a lease ends by the store's.
        let ready_at = next.ready_at.map(|at| at.saturating_add(ahead));
        let lease_end = polling.first_lease_end();
        let lease_end = lease_end.map(|at| at.saturating_add(ahead).saturating_sub(behind));
        let lease_end = lease_end.map(|at| at.max(poll.now.next()));
        let again = has_lease_ended.then(|| poll.now.next());
        ClaimBatch {
            claims,
            more_due,
            next_due_at: ready_at.into_iter().chain(lease_end).chain(again).min(),
        }
    }

    /// Checks whether something is due.
    async fn check_due(&self, poll: &Poll) -> Result<Next, PortError> {
        let (store, poll) = (self.clone(), poll.clone());
        let with_leases = self.should_check_leases();
        self.inner
            .claims
            .run(OPERATION, move |session| {
                let (store, poll) = (store.clone(), poll.clone());
                Box::pin(async move {
                    let sql = &store.inner.sql;
                    let low = Instant(store.low(poll.now));
                    let clock = store.inner.time.given(poll.now);
                    let params: [Parameter<'_>; 4] = [
                        (&low, Type::TIMESTAMPTZ),
                        (&Instant(poll.now), Type::TIMESTAMPTZ),
                        (&clock, Type::TIMESTAMPTZ),
                        (&store.inner.instance, Type::UUID),
                    ];
                    let (text, count) = if with_leases {
                        (&sql.next_due_or_free, 4)
                    } else {
                        (&sql.next_due, 3)
                    };
                    let before = store.inner.connector.clock.now();
                    let statement = [(text.as_str(), params[..count].to_vec())];
                    let answers = transaction(&session, BEGIN_QUICK, &statement).await?;
                    let answer = answers.first().map_or(&[][..], Vec::as_slice);
                    let next = Next::read(first_of(answer)?, with_leases)?;
                    store.note_offset(before, next.clock);
                    Ok(next)
                })
            })
            .await
    }

    async fn claim_as(&self, form: Form, poll: &Poll) -> Result<Found, PortError> {
        let token = self.new_token();
        let (store, poll) = (self.clone(), poll.clone());
        let claimed = self
            .inner
            .claims
            .run(OPERATION, move |session| {
                let (store, poll) = (store.clone(), poll.clone());
                Box::pin(async move { store.claim_on(&session, form, &poll, token).await })
            })
            .await;
        if claimed.is_err() {
            let mut polling = self.polling();
            if polling.lost.len() < MAX_LOST {
                polling.lost.push(token);
            }
            polling.expect(Timestamp::MIN);
        }
        claimed
    }

    async fn claim_on(
        &self,
        session: &Session,
        form: Form,
        poll: &Poll,
        token: i64,
    ) -> Result<Found, Failure> {
        let (inner, limit) = (&self.inner, sql_limit(poll.limit));
        let arguments = Arguments {
            low: Instant(self.low(poll.now)),
            now: Instant(poll.now),
            clock: inner.time.given(poll.now),
            limit,
            token,
            instance: inner.instance,
            lease: sql_millis(poll.lease),
            last_served: self.polling().last_served.clone(),
            visits: match form {
                Form::Shared => (limit / 4).max(32),
                Form::Beside => MAX_SKIPPED,
                Form::All | Form::ByTenant => MAX_VISITED,
            },
            excluded: Arc::clone(&poll.excluded),
        };
        let has_leases = poll.excluded.is_empty() && self.should_check_leases();
        let mut statements = vec![arguments.claim(&inner.sql, form)];
        // A claim from a backlog leaves something behind as a rule, and knows it: what comes after it is
        // then of no interest.
        if form != Form::Shared || has_leases {
            statements.push(arguments.next(&inner.sql, has_leases));
        }
        let before = inner.connector.clock.now();
        let answers = transaction(session, BEGIN_QUICK, &statements).await?;
        let claimed = answers.first().map_or(&[][..], Vec::as_slice);
        let next = match answers.get(1) {
            Some(next) => Next::read(first_of(next)?, has_leases)?,
            None => Next::left_by(first_of(claimed)?)?,
        };
        self.note_offset(before, next.clock);
        let epoch = column(first_of(claimed)?, "epoch")?;
        self.polling().claimed_in(epoch, number_of(token));
        Found::read(claimed, next, poll, token)
    }

    /// Ends claims that have just been made by this instance.
    async fn unclaim(&self, timers: Vec<i64>, token: i64) -> Result<(), PortError> {
        let (store, timers) = (self.clone(), Arc::new(timers));
        self.inner
            .claims
            .run(OPERATION, move |session| {
                let (store, timers) = (store.clone(), Arc::clone(&timers));
                Box::pin(async move {
                    let params: Vec<Parameter<'_>> =
                        vec![(&*timers, Type::INT8_ARRAY), (&token, Type::INT8)];
                    let statement = [(store.inner.sql.unclaim.as_str(), params)];
                    transaction(&session, BEGIN_QUICK, &statement).await?;
                    Ok(())
                })
            })
            .await
    }

    /// Ends the claims whose answers were lost, so that nobody waits for their leases.
    async fn release_lost(&self, poll: &Poll) {
        let lost = std::mem::take(&mut self.polling().lost);
        if lost.is_empty() {
            return;
        }
        let lost = Arc::new(lost);
        let (store, now, tokens) = (self.clone(), poll.now, Arc::clone(&lost));
        let released = self
            .inner
            .claims
            .run(OPERATION, move |session| {
                let (store, tokens) = (store.clone(), Arc::clone(&tokens));
                Box::pin(async move {
                    let clock = store.inner.time.given(now);
                    let params: Vec<Parameter<'_>> = vec![
                        (&store.inner.instance, Type::UUID),
                        (&*tokens, Type::INT8_ARRAY),
                        (&clock, Type::TIMESTAMPTZ),
                    ];
                    let statement = [(store.inner.sql.release_lost.as_str(), params)];
                    transaction(&session, BEGIN_QUICK, &statement).await?;
                    Ok(())
                })
            })
            .await;
        if released.is_err() {
            self.polling().lost.extend_from_slice(&lost);
        }
    }

    fn should_check_leases(&self) -> bool {
        let monotonic = self.inner.connector.clock.monotonic();
        let polling = self.polling();
        !self.inner.time.is_server()
            || polling.should_check_leases(monotonic)
            || polling.has_lease_ended(self.server_time(self.inner.connector.clock.now()))
    }

    /// The instant from which a poll searches. Where the store follows the callers' clocks, everything.
    fn low(&self, now: Timestamp) -> Timestamp {
        let monotonic = self.inner.connector.clock.monotonic();
        let polling = self.polling();
        let clock = self.server_time(now);
        if !self.inner.time.is_server() || polling.has_lease_ended(clock) {
            return Timestamp::MIN;
        }
        polling.low(monotonic)
    }

    fn new_token(&self) -> i64 {
        let number = self.polling().next_token();
        self.token(number)
    }

    /// The number of a claim, preceded by what differs between instances.
    fn token(&self, number: u32) -> i64 {
        let bytes = self.inner.instance.as_bytes();
        let instance = u32::from_be_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]);
        ((u64::from(instance) << 32) | u64::from(number)).cast_signed()
    }

    /// The epoch of the store in which a claim was made, if it is one of this instance's.
    pub(super) fn epoch_of(&self, token: i64) -> Option<i64> {
        let number = number_of(token);
        let is_own = self.token(number) == token;
        is_own.then(|| self.polling().epoch_of(number)).flatten()
    }

    /// Keeps the distance of both clocks, and says when it is large. `clock` is what the server's read
    /// between `before` and now.
    fn note_offset(&self, before: Timestamp, clock: Timestamp) {
        if !self.inner.time.is_server() {
            return;
        }
        let offset = least_offset(before, clock, self.inner.connector.clock.now());
        let before = self
            .inner
            .offset
            .swap(offset, std::sync::atomic::Ordering::AcqRel);
        let seconds = Duration::from_millis(offset.unsigned_abs()).as_secs_f64();
        let seconds = if offset < 0 { -seconds } else { seconds };
        metrics::gauge!(metric_names::CLOCK_OFFSET).set(seconds);
        let is_large = |offset: i64| offset.abs() > OFFSET_WARNING_MILLIS;
        if is_large(offset) && !is_large(before) {
            tracing::warn!(
                offset_ms = offset,
                "the clocks of this machine and of the database server differ: timers fire by the later of both"
            );
        }
    }
}

/// What the statements of a claim are given.
struct Arguments {
    low: Instant,
    now: Instant,
    clock: Option<Instant>,
    limit: i64,
    token: i64,
    instance: Uuid,
    lease: f64,
    last_served: String,
    /// Maximum number of tenants that are visited, or of rows that are passed over.
    visits: i64,
    excluded: Arc<Vec<String>>,
}

impl Arguments {
    fn times(&self) -> Vec<Parameter<'_>> {
        vec![
            (&self.low, Type::TIMESTAMPTZ),
            (&self.now, Type::TIMESTAMPTZ),
            (&self.clock, Type::TIMESTAMPTZ),
        ]
    }

    /// The claim itself.
    fn claim<'a>(&'a self, sql: &'a Statements, form: Form) -> Statement<'a> {
        let mut params = self.times();
        params.push((&self.limit, Type::INT8));
        params.push((&self.token, Type::INT8));
        params.push((&self.instance, Type::UUID));
        params.push((&self.lease, Type::FLOAT8));
        let excluded: Parameter<'_> = (&*self.excluded, Type::TEXT_ARRAY);
        let visits: Parameter<'_> = (&self.visits, Type::INT8);
        let last_served: Parameter<'_> = (&self.last_served, Type::TEXT);
        let text = match form {
            Form::All => &sql.claim_all,
            Form::Shared => {
                params.extend([last_served, visits]);
                &sql.claim_shared
            }
            Form::Beside => {
                params.extend([excluded, visits]);
                &sql.claim_beside
            }
            Form::ByTenant => {
                params.extend([last_served, visits, excluded]);
                &sql.claim_by_tenant
            }
        };
        (text, params)
    }

    /// What comes after it.
    fn next<'a>(&'a self, sql: &'a Statements, has_leases: bool) -> Statement<'a> {
        let mut params = self.times();
        let text = if !self.excluded.is_empty() {
            params.push((&*self.excluded, Type::TEXT_ARRAY));
            &sql.next_due_beside
        } else if has_leases {
            params.push((&self.instance, Type::UUID));
            &sql.next_due_or_free
        } else {
            &sql.next_due
        };
        (text, params)
    }
}

/// The number of a claim, which is the lower half of its token.
const fn number_of(token: i64) -> u32 {
    let [_, _, _, _, a, b, c, d] = token.to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// Milliseconds by which our clock is ahead of one that read `clock` between two readings of ours: the
/// smallest number that explains them, since an answer may have taken long.
fn least_offset(before: Timestamp, clock: Timestamp, after: Timestamp) -> i64 {
    let clock = clock.as_millis();
    (before.as_millis() - clock).max(0) + (after.as_millis() - clock).min(0)
}

/// The row that every answer has.
fn first_of(rows: &[Row]) -> Result<&Row, Failure> {
    rows.first()
        .ok_or_else(|| Failure::Unreadable("an answer is empty".to_owned()))
}

impl Next {
    fn read(row: &Row, has_leases: bool) -> Result<Self, Failure> {
        let leases = if has_leases {
            let first_end = instant_or_null(row, "lease_end")?;
            Some(ForeignLeases { first_end })
        } else {
            None
        };
        Ok(Self {
            more_due: column(row, "more_due")?,
            ready_at: instant_or_null(row, "next_due_at")?,
            clock: instant(row, "clock")?,
            leases,
            is_complete: true,
        })
    }

    /// What a shared claim knows by itself.
    fn left_by(row: &Row) -> Result<Self, Failure> {
        let more_due = column(row, "more_due")?;
        Ok(Self {
            more_due,
            ready_at: None,
            clock: instant(row, "clock")?,
            leases: None,
            is_complete: more_due,
        })
    }
}

impl Found {
    fn read(rows: &[Row], next: Next, poll: &Poll, token: i64) -> Result<Self, Failure> {
        let first = first_of(rows)?;
        let mut found = Self {
            claims: Vec::with_capacity(rows.len()),
            torn: Vec::new(),
            token,
            locked: usize::try_from(column::<i64>(first, "locked")?).unwrap_or_default(),
            last_served: column(first, "last_served")?,
            ends_early: column(first, "ends_early")?,
            searched_until: instant_or_null(first, "searched_until")?,
            next,
        };
        let mut taken_over = 0;
        for row in rows {
            let Some(id) = column::<Option<i64>>(row, "timer_id")? else {
                continue;
            };
            let current = Registration {
                registered_at: instant(row, "current_registered_at")?,
                due_at: instant(row, "current_due_at")?,
            };
            if registration(row)? != current {
                found.torn.push(id);
                continue;
            }
            let timer = match timer(row) {
                Ok(timer) => timer,
                Err(error) => {
                    // Another program wrote it. It must not be in the way of the other timers.
                    tracing::error!(
                        ?error,
                        timer_id = id,
                        "a timer cannot be read and does not fire"
                    );
                    continue;
                }
            };
            if column::<bool>(row, "is_taken_over")? {
                taken_over += 1;
            }
            let claim = Claim {
                timer,
                attempts: attempts(row)?,
                token: ClaimToken(token.cast_unsigned()),
                lease_until: poll.now.saturating_add(poll.lease),
            };
            found.claims.push(claim);
        }
        metrics::counter!(metric_names::TAKE_OVERS).increment(taken_over);
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis).unwrap()
    }

    #[test]
    fn clocks_differ_only_if_no_delay_explains_it() {
        for (before, clock, after, offset) in [
            (1_000, 1_000, 1_000, 0),
            (1_000, 1_004, 1_009, 0),
            (1_000, 7_000, 9_000, 0),
            (1_000, 990, 1_009, 10),
            (1_000, 1_020, 1_009, -11),
        ] {
            let found = least_offset(at(before), at(clock), at(after));
            assert_eq!(found, offset, "{before} {clock} {after}");
        }
    }
}
