//! Settlement of firings: marks, retries, dead letters, renewals and releases.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use punctual_domain::{Existing, FiringId, TimerKey, Timestamp};
use punctual_ports::{
    BatchResult, ClaimOutcome, ClaimRef, DeadLetterClaim, FiredTimer, MarkOutcome, PortError,
    RetryLater,
};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::PostgresTimerStore;
use super::rows::{Keys, column, instant_or_null, key, registration};
use crate::dead_letters::Letters;
use crate::lane::{
    BEGIN_DURABLE, BEGIN_IMPATIENT, BEGIN_QUICK, Lane, Parameter, Session, Statement, beginning,
    rest, roll_back, transaction,
};
use crate::port_errors::{Failure, locked};
use crate::sql::Statements;
use crate::values::{Instant, sql_millis, storable};

const MARK: &str = "mark timers as reached";
const RETRY: &str = "retry timers later";
const DEAD_LETTER: &str = "dead-letter timers";

/// The outcome of each claim; `None` if a transaction of somebody else's has locked its timer.
type Outcomes = Vec<Option<ClaimOutcome>>;

/// Schedules that fired, as arrays.
#[derive(Debug, Default)]
struct Firings {
    keys: Keys,
    registered: Vec<Instant>,
    due: Vec<Instant>,
}

impl<'a> FromIterator<&'a FiringId> for Firings {
    fn from_iter<T: IntoIterator<Item = &'a FiringId>>(firings: T) -> Self {
        let firings: Vec<_> = firings.into_iter().collect();
        let at =
            |of: fn(&FiringId) -> Timestamp| firings.iter().map(|it| Instant(of(it))).collect();
        Self {
            keys: firings.iter().map(|it| &it.key).collect(),
            registered: at(|it| it.registration.registered_at),
            due: at(|it| it.registration.due_at),
        }
    }
}

impl Firings {
    fn params(&self) -> Vec<Parameter<'_>> {
        let mut params = self.keys.params();
        params.push((&self.registered, Type::TIMESTAMPTZ_ARRAY));
        params.push((&self.due, Type::TIMESTAMPTZ_ARRAY));
        params
    }
}

/// Claims, as arrays: their places in the batch, their firings and tokens.
struct Claims {
    places: Vec<i32>,
    firings: Firings,
    tokens: Vec<i64>,
}

impl Claims {
    /// The first claim of each firing: a second one of the same is no longer current.
    fn of<'a>(claims: impl Iterator<Item = &'a ClaimRef>) -> Self {
        let mut seen = HashSet::new();
        let firsts: Vec<_> = claims
            .enumerate()
            .filter(|(_, claim)| seen.insert(*claim))
            .collect();
        Self {
            places: firsts
                .iter()
                .map(|(place, _)| i32::try_from(*place).unwrap_or(i32::MAX))
                .collect(),
            firings: firsts.iter().map(|(_, claim)| &claim.firing_id).collect(),
            tokens: firsts
                .iter()
                .map(|(_, claim)| claim.token.0.cast_signed())
                .collect(),
        }
    }

    fn params(&self) -> Vec<Parameter<'_>> {
        let mut params: Vec<Parameter<'_>> = vec![(&self.places, Type::INT4_ARRAY)];
        params.extend(self.firings.params());
        params.push((&self.tokens, Type::INT8_ARRAY));
        params
    }
}

/// The claims that are current: the place of each and its timer.
fn current(rows: &[Row]) -> Result<HashMap<usize, i64>, Failure> {
    let read = |row: &Row| {
        let place = usize::try_from(column::<i32>(row, "place")?).unwrap_or(usize::MAX);
        Ok((place, column(row, "timer_id")?))
    };
    rows.iter().map(read).collect()
}

/// What is stored for keys.
pub(super) async fn existing(
    session: &Session,
    sql: &Statements,
    keys: Keys,
) -> Result<HashMap<TimerKey, Existing>, Failure> {
    let statement = [(sql.existing.as_str(), keys.params())];
    let answers = transaction(session, crate::lane::BEGIN_READ, &statement).await?;
    let read = |row: &Row| {
        let existing = match instant_or_null(row, "deleted_at")? {
            Some(deleted_at) => Existing::Deleted { deleted_at },
            None => Existing::timer(registration(row)?, !column::<bool>(row, "is_scheduled")?),
        };
        Ok((key(row)?, existing))
    };
    answers.iter().flatten().map(read).collect()
}

impl PostgresTimerStore {
    pub(super) async fn mark(&self, batch: Vec<FiredTimer>) -> BatchResult<MarkOutcome> {
        let batch = Arc::new(batch);
        let (store, fired) = (self.clone(), Arc::clone(&batch));
        let outcomes = self
            .inner
            .settle
            .run(MARK, move |session| {
                let (store, fired) = (store.clone(), Arc::clone(&fired));
                Box::pin(async move {
                    let sql = &store.inner.sql;
                    match mark_on(&session, sql, &sql.mark, &fired).await {
                        // One that somebody else has locked must not keep the others from it.
                        Err(failure) if failure.is_lock_timeout() => {
                            mark_on(&session, sql, &sql.mark_free, &fired).await
                        }
                        marked => marked,
                    }
                })
            })
            .await?;
        let checked = batch.iter().zip(outcomes);
        Ok(checked
            .map(|(fired, outcome)| {
                fired.check()?;
                outcome.ok_or_else(|| locked(MARK))
            })
            .collect())
    }

    pub(super) async fn retry(&self, batch: Vec<RetryLater>) -> BatchResult<ClaimOutcome> {
        for retry in &batch {
            let due_at = retry.claim.firing_id.registration.due_at;
            self.polling().expect(retry.retry_at.max(due_at));
        }
        let batch = Arc::new(batch);
        let store = self.clone();
        self.inner
            .settle
            .run(RETRY, move |session| {
                let (store, batch) = (store.clone(), Arc::clone(&batch));
                Box::pin(async move {
                    let claims: Vec<_> = batch.iter().map(|retry| &retry.claim).collect();
                    let settling = Settling::begin(&session, &store, BEGIN_QUICK, claims);
                    let settling = settling.await?;
                    let chosen = settling.chosen();
                    let chosen = || chosen.iter().map(|(place, id)| (&batch[*place], *id));
                    let ids: Vec<i64> = chosen().map(|(_, id)| id).collect();
                    let at: Vec<_> = chosen().map(|(it, _)| Instant(it.retry_at)).collect();
                    let reasons: Vec<_> = chosen().map(|(it, _)| storable(&it.reason)).collect();
                    let sql = &store.inner.sql;
                    let statements = [
                        (
                            sql.retry.as_str(),
                            vec![
                                (&ids as _, Type::INT8_ARRAY),
                                (&at as _, Type::TIMESTAMPTZ_ARRAY),
                                (&reasons as _, Type::TEXT_ARRAY),
                            ],
                        ),
                        (&sql.remove_claims, vec![(&ids as _, Type::INT8_ARRAY)]),
                    ];
                    settling.finish(&session, &store, &statements).await
                })
            })
            .await
            .map(|outcomes| each(outcomes, RETRY))
    }

    pub(super) async fn give_up(&self, batch: Vec<DeadLetterClaim>) -> BatchResult<ClaimOutcome> {
        let batch = Arc::new(batch);
        let store = self.clone();
        self.inner
            .settle
            .run(DEAD_LETTER, move |session| {
                let (store, batch) = (store.clone(), Arc::clone(&batch));
                Box::pin(async move {
                    let claims: Vec<_> = batch.iter().map(|it| &it.claim).collect();
                    let settling = Settling::begin(&session, &store, BEGIN_DURABLE, claims);
                    let settling = settling.await?;
                    let chosen = settling.chosen();
                    let chosen = || chosen.iter().map(|(place, id)| (&batch[*place], *id));
                    let ids: Vec<i64> = chosen().map(|(_, id)| id).collect();
                    let at: Vec<_> = chosen()
                        .map(|(it, _)| {
                            Instant(it.reached_at.max(it.claim.firing_id.registration.due_at))
                        })
                        .collect();
                    let reasons: Vec<_> = chosen()
                        .map(|(it, _)| storable(&it.dead_letter.reason))
                        .collect();
                    let letters: Letters = chosen().map(|(it, _)| &it.dead_letter).collect();
                    let sql = &store.inner.sql;
                    let statements = [
                        (
                            sql.give_up.as_str(),
                            vec![
                                (&ids as _, Type::INT8_ARRAY),
                                (&at as _, Type::TIMESTAMPTZ_ARRAY),
                                (&reasons as _, Type::TEXT_ARRAY),
                            ],
                        ),
                        (&sql.remove_claims, vec![(&ids as _, Type::INT8_ARRAY)]),
                        (&sql.record_dead_letters, letters.params()),
                    ];
                    settling.finish(&session, &store, &statements).await
                })
            })
            .await
            .map(|outcomes| each(outcomes, DEAD_LETTER))
    }

    pub(super) async fn end_claims(&self, batch: Vec<ClaimRef>) -> BatchResult<ClaimOutcome> {
        for claim in &batch {
            self.polling().expect(claim.firing_id.registration.due_at);
        }
        let applied = self
            .on_claims(&self.inner.settle, "release timers", batch, |sql, _| {
                (sql.release.as_str(), Vec::new())
            })
            .await?;
        // Others sleep until the leases would have ended.
        self.notify(Timestamp::MIN);
        Ok(applied)
    }

    pub(super) async fn extend(
        &self,
        batch: Vec<ClaimRef>,
        now: Timestamp,
        lease: Duration,
    ) -> BatchResult<ClaimOutcome> {
        let clock = self.inner.time.given(now);
        let millis = sql_millis(lease);
        let store = self.clone();
        let operation = "renew leases";
        self.on_claims(&self.inner.settle, operation, batch, move |sql, tokens| {
            let epochs = tokens.iter().map(|token| store.epoch_of(*token));
            let extra = vec![
                Extra::Clock(clock),
                Extra::Millis(millis),
                Extra::Epochs(epochs.collect()),
                Extra::Instance(store.inner.instance),
            ];
            (sql.renew.as_str(), extra)
        })
        .await
    }

    /// Runs a statement that changes claims and returns the places of those that were current.
    async fn on_claims(
        &self,
        lane: &Lane,
        operation: &'static str,
        batch: Vec<ClaimRef>,
        statement: impl for<'a> Fn(&'a Statements, &[i64]) -> (&'a str, Vec<Extra>)
        + Send
        + Sync
        + 'static,
    ) -> BatchResult<ClaimOutcome> {
        let (store, batch, statement) = (self.clone(), Arc::new(batch), Arc::new(statement));
        let outcomes: Result<Vec<ClaimOutcome>, PortError> = lane
            .run(operation, move |session| {
                let (store, batch) = (store.clone(), Arc::clone(&batch));
                let statement = Arc::clone(&statement);
                Box::pin(async move {
                    let claims = Claims::of(batch.iter());
                    let (text, extra) = statement(&store.inner.sql, &claims.tokens);
                    let mut params = claims.params();
                    params.extend(extra.iter().map(Extra::param));
                    let statements = [(text, params)];
                    let rows = transaction(&session, BEGIN_QUICK, &statements).await?;
                    let applied: HashSet<usize> = rows
                        .iter()
                        .flatten()
                        .map(|row| Ok(usize::try_from(column::<i32>(row, "place")?).unwrap_or(0)))
                        .collect::<Result<_, Failure>>()?;
                    let outcome = |place| {
                        if applied.contains(&place) {
                            ClaimOutcome::Applied
                        } else {
                            ClaimOutcome::Lost
                        }
                    };
                    Ok((0..batch.len()).map(outcome).collect())
                })
            })
            .await;
        outcomes.map(|outcomes| outcomes.into_iter().map(Ok).collect())
    }
}

/// A parameter after those of the claims.
enum Extra {
    Clock(Option<Instant>),
    Millis(f64),
    /// Those in which the claims were made.
    Epochs(Vec<Option<i64>>),
    Instance(Uuid),
}

impl Extra {
    fn param(&self) -> Parameter<'_> {
        match self {
            Self::Clock(clock) => (clock, Type::TIMESTAMPTZ),
            Self::Millis(millis) => (millis, Type::FLOAT8),
            Self::Epochs(epochs) => (epochs, Type::INT8_ARRAY),
            Self::Instance(instance) => (instance, Type::UUID),
        }
    }
}

fn each(outcomes: Outcomes, operation: &'static str) -> Vec<Result<ClaimOutcome, PortError>> {
    let outcomes = outcomes.into_iter();
    outcomes
        .map(|outcome| outcome.ok_or_else(|| locked(operation)))
        .collect()
}

/// Marks firings. `None` is the outcome of those that a transaction of somebody else's has locked.
async fn mark_on(
    session: &Session,
    sql: &Statements,
    text: &str,
    fired: &[FiredTimer],
) -> Result<Vec<Option<MarkOutcome>>, Failure> {
    let mut seen = HashSet::new();
    let firsts: Vec<_> = fired
        .iter()
        .enumerate()
        .filter(|(_, fired)| fired.check().is_ok() && seen.insert(&fired.firing_id))
        .collect();
    let firings: Firings = firsts.iter().map(|(_, fired)| &fired.firing_id).collect();
    let reached: Vec<_> = firsts
        .iter()
        .map(|(_, it)| Instant(it.reached_at))
        .collect();
    let mut params = firings.params();
    params.push((&reached, Type::TIMESTAMPTZ_ARRAY));
    let statements = [(text, params)];
    let answers = transaction(session, BEGIN_IMPATIENT, &statements).await?;
    let marked: HashSet<TimerKey> = answers
        .iter()
        .flatten()
        .map(key)
        .collect::<Result<_, Failure>>()?;
    let mut outcomes = vec![Some(MarkOutcome::NotFound); fired.len()];
    let mut others = Vec::new();
    let firsts: HashSet<usize> = firsts.into_iter().map(|(place, _)| place).collect();
    for (place, fired) in fired.iter().enumerate() {
        if firsts.contains(&place) && marked.contains(&fired.firing_id.key) {
            outcomes[place] = Some(MarkOutcome::Marked);
        } else {
            others.push(place);
        }
    }
    if others.is_empty() {
        return Ok(outcomes);
    }
    let keys = others.iter().map(|place| &fired[*place].firing_id.key);
    let stored = existing(session, sql, keys.collect()).await?;
    for place in others {
        let firing = &fired[place].firing_id;
        let stored = stored.get(&firing.key).copied();
        let outcome = stored
            .unwrap_or(Existing::Nothing)
            .mark(firing.registration);
        outcomes[place] = match outcome {
            // It could be marked, and was not.
            MarkOutcome::Marked => None,
            outcome => Some(outcome),
        };
    }
    Ok(outcomes)
}

/// A transaction that settles claims: their queue rows are locked before it is seen which are current.
struct Settling<'a> {
    claims: Vec<&'a ClaimRef>,
    current: HashMap<usize, i64>,
    /// The places of those whose timer somebody else has locked.
    locked: HashSet<usize>,
}

impl<'a> Settling<'a> {
    async fn begin(
        session: &Session,
        store: &PostgresTimerStore,
        begin: &str,
        claims: Vec<&'a ClaimRef>,
    ) -> Result<Self, Failure> {
        let sql = &store.inner.sql;
        let wanted = Claims::of(claims.iter().copied());
        let statements: [Statement<'_>; 2] = [
            (&sql.lock_free_queue, wanted.firings.keys.params()),
            (&sql.current_claims, wanted.params()),
        ];
        let answers = beginning(session, begin, &statements).await?;
        match Self::read(&answers) {
            Ok((current, locked)) => Ok(Self {
                claims,
                current,
                locked,
            }),
            Err(failure) => {
                roll_back(&session.client).await;
                Err(failure)
            }
        }
    }

    /// The current claims, and the places of those whose rows are not ours.
    fn read(answers: &[Vec<Row>]) -> Result<(HashMap<usize, i64>, HashSet<usize>), Failure> {
        let [ours, claims] = answers else {
            return Err(Failure::Unreadable("an answer is missing".to_owned()));
        };
        let ours = ours.iter().map(|row| column::<i64>(row, "timer_id"));
        let ours: HashSet<i64> = ours.collect::<Result<_, Failure>>()?;
        let (current, others): (HashMap<_, _>, HashMap<_, _>) = current(claims)?
            .into_iter()
            .partition(|(_, id)| ours.contains(id));
        Ok((current, others.into_keys().collect()))
    }

    /// The current claims: the place of each and its timer.
    fn chosen(&self) -> Vec<(usize, i64)> {
        let mut chosen: Vec<_> = self
            .current
            .iter()
            .map(|(place, id)| (*place, *id))
            .collect();
        chosen.sort_unstable();
        chosen
    }

    async fn finish(
        self,
        session: &Session,
        store: &PostgresTimerStore,
        statements: &[Statement<'_>],
    ) -> Result<Outcomes, Failure> {
        if self.current.is_empty() {
            roll_back(&session.client).await;
        } else {
            rest(&session.client, statements).await?;
        }
        let mut outcomes = vec![Some(ClaimOutcome::Applied); self.claims.len()];
        for place in &self.locked {
            outcomes[*place] = None;
        }
        let lost =
            |place: &usize| !self.current.contains_key(place) && !self.locked.contains(place);
        let lost: Vec<usize> = (0..self.claims.len()).filter(lost).collect();
        if lost.is_empty() {
            return Ok(outcomes);
        }
        let keys = lost.iter().map(|place| &self.claims[*place].firing_id.key);
        let stored = existing(session, &store.inner.sql, keys.collect()).await?;
        for place in lost {
            let claim = self.claims[place];
            let stored = stored.get(&claim.firing_id.key).copied();
            let outcome = ClaimOutcome::of_lost(claim, stored.unwrap_or(Existing::Nothing));
            outcomes[place] = Some(outcome);
        }
        Ok(outcomes)
    }
}
