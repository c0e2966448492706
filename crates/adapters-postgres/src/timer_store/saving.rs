//! Scheduling: inserts first, since most timers are new, and decides about the others by the rules of the
//! domain, with their rows locked.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use futures_util::future::{join_all, join3};
use punctual_domain::{
    Existing, Registration, ScheduleDecision, ScheduleOrigin, TimerData, TimerKey, Timestamp,
};
use punctual_ports::{PortError, PortErrorKind, SaveOutcome, SaveTimer};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Row, Transaction};
use uuid::Uuid;

use super::PostgresTimerStore;
use super::rows::{Keys, column, instant, instant_or_null, key, registration};
use super::save_queue::OPERATION;
use crate::SchemaSet;
use crate::lane::{
    BEGIN_DURABLE, BEGIN_GROUPED, BEGIN_SPLIT, Parameter, Session, Statement, beginning, grouped,
    rest, roll_back, transaction,
};
use crate::port_errors::Failure;
use crate::sql::Statements;
use crate::values::Instant;

/// Maximum number of rows in a transaction.
const MAX_ROWS: usize = 1_000;
/// How often a key is tried that is found when it is inserted, and is gone when it is to be changed.
pub(crate) const TRIES: usize = 3;

/// The outcome of a schedule.
type Saved = Result<SaveOutcome, PortError>;

/// Stores schedules, those with the same key in their order. Returns their outcomes in the order given.
pub(super) async fn save(
    store: &PostgresTimerStore,
    lane: usize,
    timers: Vec<SaveTimer>,
    clock: Option<Instant>,
) -> Vec<Saved> {
    let mut outcomes: Vec<Option<Saved>> = vec![None; timers.len()];
    let mut timers = timers.into_iter().enumerate().peekable();
    let mut away: Option<PortError> = None;
    while timers.peek().is_some() {
        let part = timers.by_ref().take(MAX_ROWS).unzip();
        let mut parts = vec![Part::new(part, false)];
        while let Some(part) = parts.pop() {
            // If the database is away, the rest does not wait for it again.
            let saved = match &away {
                Some(error) => Err(error.during(OPERATION)),
                None => store.save_part(lane, &part, clock).await,
            };
            if let Err(error) = &saved
                && error.kind() == PortErrorKind::Unavailable
            {
                away = Some(error.during(OPERATION));
            }
            parts.extend(part.settle(saved, &mut outcomes));
        }
    }
    let outcomes = outcomes.into_iter();
    outcomes
        .map(|it| it.unwrap_or_else(|| Err(removed_again(OPERATION))))
        .collect()
}

/// Schedules that share transactions.
struct Part {
    places: Vec<usize>,
    timers: Arc<Vec<SaveTimer>>,
    /// How its transactions begin: alone, it waits for others longest.
    begin: &'static str,
}

impl Part {
    fn new((places, timers): (Vec<usize>, Vec<SaveTimer>), is_split: bool) -> Self {
        let begin = match (is_split, timers.len()) {
            (false, 1) => BEGIN_DURABLE,
            (true, 2..) => BEGIN_SPLIT,
            _ => BEGIN_GROUPED,
        };
        Self {
            places,
            timers: Arc::new(timers),
            begin,
        }
    }

    /// Puts the outcomes where they belong. One that cannot be stored, or waits for somebody, must not keep
    /// the others from it: returns the halves of those to be tried again, the first one last.
    fn settle(
        self,
        saved: Result<Vec<Saved>, PortError>,
        outcomes: &mut [Option<Saved>],
    ) -> Vec<Self> {
        let mut again = Vec::new();
        for (n, saved) in each(saved, self.timers.len()).into_iter().enumerate() {
            match saved {
                Err(error) if self.timers.len() > 1 && concerns_one(&error) => {
                    again.push((self.places[n], self.timers[n].clone()));
                }
                saved => outcomes[self.places[n]] = Some(saved),
            }
        }
        let first = again.len().div_ceil(2);
        let second: Vec<_> = again.split_off(first);
        let halves = [second, again].into_iter();
        halves
            .filter(|half| !half.is_empty())
            .map(|half| Self::new(half.into_iter().unzip(), true))
            .collect()
    }
}

fn concerns_one(error: &PortError) -> bool {
    matches!(error.kind(), PortErrorKind::Rejected | PortErrorKind::Busy)
}

fn each(saved: Result<Vec<Saved>, PortError>, count: usize) -> Vec<Saved> {
    saved.unwrap_or_else(|error| (0..count).map(|_| Err(error.during(OPERATION))).collect())
}

impl PostgresTimerStore {
    async fn save_part(
        &self,
        lane: usize,
        part: &Part,
        clock: Option<Instant>,
    ) -> Result<Vec<Saved>, PortError> {
        let timers = &part.timers;
        let mut outcomes: Vec<Option<Saved>> = vec![None; timers.len()];
        for round in 0..TRIES {
            let open: BTreeSet<usize> = open_ones(&outcomes);
            if open.is_empty() {
                break;
            }
            let firsts = firsts_of(timers, &open);
            let inserted = self.insert(lane, part, firsts.clone(), clock).await;
            // Nothing before it was committed, unless an earlier round did: then those stand.
            let inserted = match inserted {
                Ok(inserted) => inserted,
                Err(error) => return failed(outcomes, error),
            };
            for place in firsts {
                if inserted.contains(&timers[place].key) {
                    outcomes[place] = Some(Ok(SaveOutcome::Created));
                }
            }
            let open = open_ones(&outcomes);
            if open.is_empty() {
                break;
            }
            match self.change(lane, part, open, clock, round > 0).await {
                Ok(changed) => {
                    for (place, outcome) in changed {
                        outcomes[place] = Some(Ok(outcome));
                    }
                }
                Err(error) => return failed(outcomes, error),
            }
        }
        self.expect_saved(timers, &outcomes);
        Ok(outcomes
            .into_iter()
            .map(|it| it.unwrap_or_else(|| Err(removed_again(OPERATION))))
            .collect())
    }

    /// Inserts the new ones, and returns their keys.
    async fn insert(
        &self,
        lane: usize,
        part: &Part,
        places: Vec<usize>,
        clock: Option<Instant>,
    ) -> Result<HashSet<TimerKey>, PortError> {
        let (store, timers, begin) = (self.clone(), Arc::clone(&part.timers), part.begin);
        self.inner.saves[lane]
            .run(OPERATION, move |session| {
                let (store, timers, places) = (store.clone(), Arc::clone(&timers), places.clone());
                Box::pin(async move {
                    let new = places.iter().map(|place| &timers[*place]);
                    let insert = Insert::of(new);
                    let params = insert.params(&clock).to_vec();
                    let text = match store.inner.set {
                        SchemaSet::Shared => store.inner.sql.insert_owned.as_str(),
                        SchemaSet::TimersOnly | SchemaSet::ExecutionOnly => {
                            store.inner.sql.insert.as_str()
                        }
                    };
                    if begin == BEGIN_GROUPED && session.is_direct {
                        let rows = grouped(&session, text, &params).await?;
                        return rows.iter().map(key).collect();
                    }
                    let statement = [(text, params)];
                    let answers = transaction(&session, begin, &statement).await?;
                    answers.iter().flatten().map(key).collect()
                })
            })
            .await
    }

    /// Applies schedules to what is stored. Leaves out those whose key is gone.
    async fn change(
        &self,
        lane: usize,
        part: &Part,
        places: BTreeSet<usize>,
        clock: Option<Instant>,
        was_absent: bool,
    ) -> Result<Vec<(usize, SaveOutcome)>, PortError> {
        let (store, timers, begin) = (self.clone(), Arc::clone(&part.timers), part.begin);
        self.inner.saves[lane]
            .run(OPERATION, move |session| {
                let (store, timers, places) = (store.clone(), Arc::clone(&timers), places.clone());
                Box::pin(async move {
                    let wanted: Vec<_> = places.iter().map(|it| (*it, &timers[*it])).collect();
                    let sql = &store.inner.sql;
                    // Absent once may be purged just now; absent twice has no parent.
                    let owns = was_absent && store.inner.set == SchemaSet::Shared;
                    change_on(&session, begin, sql, &wanted, clock, owns).await
                })
            })
            .await
    }

    /// Tells the worker, here or elsewhere, what has become due earlier than it may know.
    fn expect_saved(&self, timers: &[SaveTimer], outcomes: &[Option<Saved>]) {
        let first = timers
            .iter()
            .zip(outcomes)
            .filter(|(_, outcome)| {
                use SaveOutcome::{Created, Rescheduled};
                matches!(outcome, Some(Ok(Created | Rescheduled)))
            })
            .map(|(timer, _)| timer.due_at)
            .min();
        if let Some(first) = first {
            self.polling().expect(first);
            self.notify_of_saved(first);
        }
    }
}

/// The error of a key that was found each time it was inserted, and gone each time it was to be changed.
pub(crate) fn removed_again(operation: &'static str) -> PortError {
    let reason = "the timer was removed again and again: try again";
    PortError::new(PortErrorKind::Busy, operation, reason)
}

/// The outcomes so far, and an error in the place of the others.
fn failed(outcomes: Vec<Option<Saved>>, error: PortError) -> Result<Vec<Saved>, PortError> {
    if outcomes.iter().all(Option::is_none) {
        return Err(error);
    }
    let failed = || Err(error.during(OPERATION));
    Ok(outcomes
        .into_iter()
        .map(|it| it.unwrap_or_else(failed))
        .collect())
}

fn open_ones(outcomes: &[Option<Saved>]) -> BTreeSet<usize> {
    let places = outcomes.iter().enumerate();
    places
        .filter(|(_, it)| it.is_none())
        .map(|(place, _)| place)
        .collect()
}

/// The first schedule of each key, in the order of keys: two that insert the same keys never wait for each
/// other in a circle.
fn firsts_of(timers: &[SaveTimer], open: &BTreeSet<usize>) -> Vec<usize> {
    let mut firsts = BTreeMap::new();
    for place in open {
        firsts.entry(&timers[*place].key).or_insert(*place);
    }
    firsts.into_values().collect()
}

/// The columns of new timers.
struct Insert<'a> {
    keys: Keys,
    correlations: Vec<Uuid>,
    due: Vec<Instant>,
    sent: Vec<Option<Instant>>,
    data: Vec<Option<&'a str>>,
}

impl<'a> Insert<'a> {
    fn of(timers: impl Iterator<Item = &'a SaveTimer> + Clone) -> Self {
        Self {
            keys: timers.clone().map(|timer| &timer.key).collect(),
            correlations: timers
                .clone()
                .map(|it| it.correlation_id.as_uuid())
                .collect(),
            due: timers.clone().map(|timer| Instant(timer.due_at)).collect(),
            sent: timers
                .clone()
                .map(|timer| match timer.origin {
                    ScheduleOrigin::Command { sent_at } => Some(Instant(sent_at)),
                    _ => None,
                })
                .collect(),
            data: timers
                .map(|timer| timer.data.as_ref().map(TimerData::as_json))
                .collect(),
        }
    }

    fn params<'b>(&'b self, clock: &'b (dyn ToSql + Sync)) -> [Parameter<'b>; 7] {
        [
            (&self.keys.tenants, Type::TEXT_ARRAY),
            (&self.keys.calls, Type::UUID_ARRAY),
            (&self.correlations, Type::UUID_ARRAY),
            (&self.due, Type::TIMESTAMPTZ_ARRAY),
            (&self.sent, Type::TIMESTAMPTZ_ARRAY),
            (&self.data, Type::TEXT_ARRAY),
            (clock, Type::TIMESTAMPTZ),
        ]
    }
}

/// Applies schedules with their rows locked, in a transaction of its own. Leaves out those whose key is gone.
async fn change_on(
    session: &Session,
    begin: &str,
    sql: &Statements,
    wanted: &[(usize, &SaveTimer)],
    clock: Option<Instant>,
    owns: bool,
) -> Result<Vec<(usize, SaveOutcome)>, Failure> {
    let locking = Locking::of(wanted, clock);
    let mut statements = locking.statements(sql).to_vec();
    if owns {
        statements.push((&sql.gone, locking.keys.params()));
    }
    let answers = beginning(session, begin, &statements).await?;
    match Changes::decide(&answers, wanted, owns) {
        Ok(changes) => {
            rest(&session.client, &changes.statements(sql)).await?;
            Ok(changes.outcomes)
        }
        Err(failure) => {
            roll_back(&session.client).await;
            Err(failure)
        }
    }
}

/// The same within a transaction of a caller's.
pub(crate) async fn change_in(
    transaction: &Transaction<'_>,
    sql: &Statements,
    timer: &SaveTimer,
    clock: Option<Instant>,
    owns: bool,
) -> Result<Option<SaveOutcome>, Failure> {
    let wanted = [(0, timer)];
    let locking = Locking::of(&wanted, clock);
    let mut statements = locking.statements(sql).to_vec();
    statements[2].0 = &sql.clock_in;
    if owns {
        statements.push((&sql.gone, locking.keys.params()));
    }
    let answers = with_bounded_waits(transaction, sql, &statements).await?;
    let changes = Changes::decide(&answers, &wanted, owns)?;
    for (text, params) in changes.statements(sql) {
        transaction.query_typed(text, &params).await?;
    }
    Ok(changes.outcomes.first().map(|(_, outcome)| *outcome))
}

/// Inserts a new timer within a transaction of a caller's. False if its key exists.
pub(crate) async fn insert_in(
    transaction: &Transaction<'_>,
    sql: &Statements,
    set: SchemaSet,
    timer: &SaveTimer,
    clock: Option<Instant>,
) -> Result<bool, Failure> {
    let insert = Insert::of(std::iter::once(timer));
    let text = match set {
        SchemaSet::Shared => &sql.insert_owned_in,
        SchemaSet::TimersOnly | SchemaSet::ExecutionOnly => &sql.insert_in,
    };
    let statement = [(text.as_str(), insert.params(&clock).to_vec())];
    let answers = with_bounded_waits(transaction, sql, &statement).await?;
    Ok(answers.iter().any(|rows| !rows.is_empty()))
}

/// Runs statements that may wait for locks, sent at once with what bounds those waits: a caller that no
/// longer awaits the answer finds its own bound in place, too.
async fn with_bounded_waits(
    transaction: &Transaction<'_>,
    sql: &Statements,
    statements: &[Statement<'_>],
) -> Result<Vec<Vec<Row>>, Failure> {
    let answers = join_all(
        statements
            .iter()
            .map(|(text, params)| transaction.query_typed(text, params)),
    );
    let whole = join3(
        transaction.query_typed(&sql.bound_waits, &[]),
        answers,
        transaction.query_typed(&sql.restore_waits, &[]),
    );
    let (bounded, answers, restored) = whole.await;
    bounded?;
    let answers: Result<Vec<_>, _> = answers.into_iter().collect();
    // After a failed statement the transaction can only be rolled back, and its settings with it.
    let answers = answers?;
    restored?;
    Ok(answers)
}

/// The keys whose rows are to be locked.
struct Locking {
    keys: Keys,
    clock: Option<Instant>,
}

impl Locking {
    fn of(wanted: &[(usize, &SaveTimer)], clock: Option<Instant>) -> Self {
        let keys: BTreeSet<_> = wanted.iter().map(|(_, timer)| &timer.key).collect();
        Self {
            keys: keys.into_iter().collect(),
            clock,
        }
    }

    /// Locks the timers, then their queue rows, and reads the clock after that.
    fn statements<'a>(&'a self, sql: &'a Statements) -> [Statement<'a>; 3] {
        [
            (&sql.lock_timers, self.keys.params()),
            (&sql.lock_queue, self.keys.params()),
            (&sql.clock, vec![(&self.clock, Type::TIMESTAMPTZ)]),
        ]
    }
}

/// A locked timer.
pub(super) struct Locked {
    pub(super) id: i64,
    pub(super) existing: Existing,
    /// When it may be claimed, if it is scheduled.
    pub(super) ready_at: Option<Timestamp>,
}

/// Reads what the first two statements of a lock have returned.
pub(super) fn locked(timers: &[Row], queue: &[Row]) -> Result<HashMap<TimerKey, Locked>, Failure> {
    let queue = queue
        .iter()
        .map(|row| Ok((column::<i64>(row, "timer_id")?, instant(row, "ready_at")?)));
    let queue: HashMap<_, _> = queue.collect::<Result<_, Failure>>()?;
    let timers = timers.iter().map(|row| {
        let id = column(row, "id")?;
        let ready_at = queue.get(&id).copied();
        let existing = match instant_or_null(row, "deleted_at")? {
            Some(deleted_at) => Existing::Deleted { deleted_at },
            None => Existing::timer(registration(row)?, ready_at.is_none()),
        };
        let locked = Locked {
            id,
            existing,
            ready_at,
        };
        Ok((key(row)?, locked))
    });
    timers.collect()
}

/// The outcome of a schedule whose call is not there. One that is gone has left the tombstone of its timer.
fn without_call(timer: &SaveTimer, gone_at: Option<Timestamp>, clock: Timestamp) -> SaveOutcome {
    let decide = |deleted_at| {
        let existing = Existing::Deleted { deleted_at };
        timer.origin.decide(existing, timer.due_at, clock)
    };
    match gone_at.map(decide) {
        Some(ScheduleDecision::Stale) => SaveOutcome::Stale,
        _ => SaveOutcome::NoParent,
    }
}

/// What schedules change in rows that are locked.
#[derive(Default)]
struct Changes {
    outcomes: Vec<(usize, SaveOutcome)>,
    ids: Vec<i64>,
    tenants: Vec<String>,
    correlations: Vec<Uuid>,
    due: Vec<Instant>,
    registered: Vec<Instant>,
    data: Vec<Option<String>>,
}

impl Changes {
    /// Decides in the order of the schedules: those of one key build on each other.
    fn decide(
        answers: &[Vec<Row>],
        wanted: &[(usize, &SaveTimer)],
        owns: bool,
    ) -> Result<Self, Failure> {
        let [timers, queue, clock, gone @ ..] = answers else {
            return Err(Failure::Unreadable("an answer is missing".to_owned()));
        };
        let gone = gone.iter().flatten();
        let gone = gone.map(|row| Ok((key(row)?, instant(row, "gone_at")?)));
        let gone: HashMap<TimerKey, Timestamp> = gone.collect::<Result<_, Failure>>()?;
        let mut rows = locked(timers, queue)?;
        let clock = clock.first().map(|row| instant(row, "clock"));
        let clock = clock.unwrap_or(Ok(Timestamp::MIN))?;
        let mut changes = Self::default();
        let mut written = BTreeMap::new();
        for (place, timer) in wanted {
            let Some(row) = rows.get_mut(&timer.key) else {
                if owns {
                    let gone_at = gone.get(&timer.key).copied();
                    let outcome = without_call(timer, gone_at, clock);
                    changes.outcomes.push((*place, outcome));
                }
                continue;
            };
            let decision = timer.origin.decide(row.existing, timer.due_at, clock);
            if let Some(registered_at) = decision.registered_at() {
                let registration = Registration {
                    registered_at,
                    due_at: timer.due_at,
                };
                row.existing = Existing::Scheduled(registration);
                written.insert(row.id, (*timer, registered_at));
            }
            changes.outcomes.push((*place, decision.into()));
        }
        for (id, (timer, registered_at)) in written {
            changes.ids.push(id);
            changes
                .tenants
                .push(timer.key.tenant_id.as_str().to_owned());
            changes.correlations.push(timer.correlation_id.as_uuid());
            changes.due.push(Instant(timer.due_at));
            changes.registered.push(Instant(registered_at));
            let data = timer.data.as_ref().map(|data| data.as_json().to_owned());
            changes.data.push(data);
        }
        Ok(changes)
    }

    fn statements<'a>(&'a self, sql: &'a Statements) -> Vec<Statement<'a>> {
        if self.ids.is_empty() {
            return Vec::new();
        }
        let ids = || (&self.ids as &(dyn ToSql + Sync), Type::INT8_ARRAY);
        vec![
            (
                &sql.reschedule_timers,
                vec![
                    ids(),
                    (&self.correlations, Type::UUID_ARRAY),
                    (&self.due, Type::TIMESTAMPTZ_ARRAY),
                    (&self.registered, Type::TIMESTAMPTZ_ARRAY),
                    (&self.data, Type::TEXT_ARRAY),
                ],
            ),
            (
                &sql.requeue,
                vec![
                    ids(),
                    (&self.due, Type::TIMESTAMPTZ_ARRAY),
                    (&self.registered, Type::TIMESTAMPTZ_ARRAY),
                    (&self.tenants, Type::TEXT_ARRAY),
                ],
            ),
            (&sql.remove_firings, vec![ids()]),
            (&sql.remove_claims, vec![ids()]),
        ]
    }
}
