//! A store under test, with the few words that cases are written in.

use std::sync::Arc;
use std::time::Duration;

use punctual_domain::{
    CorrelationId, DeadLetterOrigin, Registration, ScheduleOrigin, ScheduledTimer, ServiceCallId,
    TenantId, TimerData, TimerEntry, TimerKey, Timestamp,
};
use punctual_ports::{
    BatchResult, BusPositionPort, Claim, ClaimBatch, ClaimOutcome, ClaimRef, DeadLetter,
    DeadLetterClaim, DeadLetterPort, DeleteOutcome, FiredTimer, MarkOutcome, PortError, RetryLater,
    SaveOutcome, SaveTimer, TimerPage, TimerPageQuery, TimerPersistencePort, TimerQueuePort,
};
use uuid::Uuid;

use crate::TimerStoreFixture;

/// The lease that cases claim with.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// An instant, in milliseconds since 1970.
pub(crate) fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis).expect("a case names an instant in range")
}

/// Timer number `n` of a tenant.
pub(crate) fn key_of(tenant: &str, n: u128) -> TimerKey {
    TimerKey::new(
        TenantId::new(tenant).expect("a case names a good tenant"),
        ServiceCallId::from_uuid(Uuid::from_u128(n)),
    )
}

/// Timer number `n` of the tenant that most cases use.
pub(crate) fn key(n: u128) -> TimerKey {
    key_of("tenant-a", n)
}

pub(crate) fn correlation(n: u128) -> CorrelationId {
    CorrelationId::from_uuid(Uuid::from_u128(n))
}

pub(crate) fn registration(registered_at: i64, due_at: i64) -> Registration {
    Registration {
        registered_at: at(registered_at),
        due_at: at(due_at),
    }
}

/// A direct schedule.
pub(crate) fn direct(key: TimerKey, due_at: i64) -> SaveTimer {
    SaveTimer {
        key,
        correlation_id: correlation(1),
        due_at: at(due_at),
        data: None,
        origin: ScheduleOrigin::Direct,
    }
}

/// The same schedule for another request.
pub(crate) fn of_request(timer: SaveTimer, n: u128) -> SaveTimer {
    SaveTimer {
        correlation_id: correlation(n),
        ..timer
    }
}

/// A schedule that came as a message.
pub(crate) fn command(key: TimerKey, sent_at: i64, due_at: i64) -> SaveTimer {
    SaveTimer {
        origin: ScheduleOrigin::Command {
            sent_at: at(sent_at),
        },
        ..direct(key, due_at)
    }
}

/// A schedule that replaces what is there.
pub(crate) fn replacement(key: TimerKey, due_at: i64) -> SaveTimer {
    SaveTimer {
        origin: ScheduleOrigin::Replacement,
        ..direct(key, due_at)
    }
}

/// A schedule that leaves alone what is there.
pub(crate) fn ensured(key: TimerKey, due_at: i64) -> SaveTimer {
    SaveTimer {
        origin: ScheduleOrigin::Ensure,
        ..direct(key, due_at)
    }
}

pub(crate) fn with_data(timer: SaveTimer, json: &str) -> SaveTimer {
    SaveTimer {
        data: Some(TimerData::from_json(json).expect("a case gives good JSON")),
        ..timer
    }
}

pub(crate) fn a_dead_letter(id: &str) -> DeadLetter {
    DeadLetter {
        id: id.to_owned(),
        origin: DeadLetterOrigin::Firing,
        tenant_id: Some(key(1).tenant_id),
        payload: vec![0, 159, 146, 150, b'"', b'\'', b'\n'],
        reason: "it can never be handled".to_owned(),
        failed_at: at(5_000),
    }
}

/// The timers of a tenant.
pub(crate) fn timers_of(tenant: &str, limit: usize) -> TimerPageQuery {
    TimerPageQuery {
        tenant_id: key_of(tenant, 0).tenant_id,
        state: None,
        after: None,
        limit,
    }
}

/// The only result of a batch of one.
pub(crate) fn only<T>(mut answers: Vec<Result<T, PortError>>) -> Result<T, PortError> {
    assert_eq!(answers.len(), 1, "a batch of one has one answer");
    answers.remove(0)
}

/// The outcomes of a batch in which nothing fails.
pub(crate) fn outcomes<T>(answers: BatchResult<T>) -> Vec<T> {
    let answers = answers.expect("a batch is answered").into_iter();
    answers
        .map(|one| one.expect("an item has an outcome"))
        .collect()
}

/// The outcome of a batch of one.
pub(crate) fn outcome<T>(answers: BatchResult<T>) -> T {
    let mut outcomes = outcomes(answers);
    assert_eq!(outcomes.len(), 1, "a batch of one has one answer");
    outcomes.remove(0)
}

/// A store whose answers are outcomes; an error fails the case.
pub(crate) trait Store: TimerStoreFixture {
    fn persistence(&self) -> Arc<dyn TimerPersistencePort> {
        self.timer_stores().persistence
    }

    fn queue(&self) -> Arc<dyn TimerQueuePort> {
        self.timer_stores().queue
    }

    fn dead_letters(&self) -> Arc<dyn DeadLetterPort> {
        self.timer_stores().dead_letters
    }

    fn positions(&self) -> Arc<dyn BusPositionPort> {
        self.timer_stores().positions
    }

    async fn save_all(&self, batch: Vec<SaveTimer>, now: i64) -> Vec<SaveOutcome> {
        for timer in &batch {
            self.prepare(&timer.key).await;
        }
        outcomes(self.persistence().save(batch, at(now)).await)
    }

    async fn save(&self, timer: SaveTimer, now: i64) -> SaveOutcome {
        self.prepare(&timer.key).await;
        outcome(self.persistence().save(vec![timer], at(now)).await)
    }

    /// Schedules timers of the tenant that most cases use, all for one instant.
    async fn save_many(&self, numbers: impl IntoIterator<Item = u128>, due_at: i64) {
        let timers = numbers.into_iter().map(|n| direct(key(n), due_at));
        self.save_all(timers.collect(), 0).await;
    }

    async fn find(&self, key: TimerKey) -> Option<TimerEntry> {
        self.persistence().find(key).await.expect("find answers")
    }

    async fn found(&self, key: TimerKey) -> TimerEntry {
        self.find(key).await.expect("the timer is there")
    }

    async fn scheduled(&self, key: TimerKey) -> ScheduledTimer {
        match self.found(key).await {
            TimerEntry::Scheduled { timer, .. } => timer,
            TimerEntry::Reached { timer, .. } => panic!("{timer:?} should still be scheduled"),
        }
    }

    async fn due(&self, tenant: &str, now: i64, limit: usize) -> Vec<ScheduledTimer> {
        let tenant = key_of(tenant, 0).tenant_id;
        let persistence = self.persistence();
        let due = persistence.find_due(tenant, at(now), limit).await;
        due.expect("find_due answers")
    }

    async fn claim_batch(&self, now: i64, limit: usize) -> ClaimBatch {
        let claimed = self.queue().claim_due(at(now), limit, LEASE).await;
        claimed.expect("claim_due answers")
    }

    async fn claim_except(&self, now: i64, limit: usize, excluded: &[&str]) -> ClaimBatch {
        let excluded = excluded.iter().map(|name| key_of(name, 0).tenant_id);
        let claimed = self
            .queue()
            .claim_due_except(at(now), limit, LEASE, excluded.collect())
            .await;
        claimed.expect("claim_due_except answers")
    }

    async fn claim(&self, now: i64, limit: usize) -> Vec<Claim> {
        self.claim_batch(now, limit).await.claims
    }

    /// Claims the one timer that is due.
    async fn claim_one(&self, now: i64) -> Claim {
        let mut claims = self.claim(now, 10).await;
        assert_eq!(claims.len(), 1, "exactly one timer is due at {now}");
        claims.remove(0)
    }

    /// Schedules a timer and claims it at its due time.
    async fn claimed(&self, key: TimerKey, due_at: i64) -> Claim {
        self.save(direct(key, due_at), 0).await;
        self.claim_one(due_at).await
    }

    async fn try_mark(
        &self,
        timer: &ScheduledTimer,
        reached_at: i64,
    ) -> Result<MarkOutcome, PortError> {
        let fired = FiredTimer {
            firing_id: timer.firing_id(),
            reached_at: at(reached_at),
        };
        only(self.persistence().mark_fired(vec![fired]).await?)
    }

    async fn mark(&self, timer: &ScheduledTimer, reached_at: i64) -> MarkOutcome {
        self.try_mark(timer, reached_at)
            .await
            .expect("mark_fired answers")
    }

    /// Schedules a timer and marks it as reached at its due time.
    async fn reached(&self, key: TimerKey, due_at: i64) {
        self.save(direct(key.clone(), due_at), 0).await;
        let timer = self.scheduled(key).await;
        assert_eq!(self.mark(&timer, due_at).await, MarkOutcome::Marked);
    }

    async fn delete(&self, key: TimerKey, now: i64) -> DeleteOutcome {
        outcome(self.persistence().delete(vec![key], at(now)).await)
    }

    async fn release(&self, claim: &Claim) -> ClaimOutcome {
        outcome(self.queue().release(vec![claim.reference()]).await)
    }

    async fn renew(&self, claim: &Claim, now: i64) -> ClaimOutcome {
        let batch: Vec<ClaimRef> = vec![claim.reference()];
        outcome(self.queue().renew(batch, at(now), LEASE).await)
    }

    async fn retry(&self, claim: &Claim, retry_at: i64) -> ClaimOutcome {
        let retry = RetryLater::new(claim.reference(), at(retry_at), "it failed");
        outcome(self.queue().retry_later(vec![retry]).await)
    }

    /// Dead-letters a firing under its id.
    async fn dead_letter(&self, claim: &Claim, reached_at: i64) -> ClaimOutcome {
        let dead = DeadLetterClaim {
            claim: claim.reference(),
            reached_at: at(reached_at),
            dead_letter: a_dead_letter(&claim.timer.firing_id().to_string()),
        };
        outcome(self.queue().dead_letter(vec![dead]).await)
    }

    async fn page(&self, query: TimerPageQuery) -> TimerPage {
        self.persistence().page(query).await.expect("page answers")
    }

    async fn purge(&self, before: i64, limit: usize) -> usize {
        let purged = self.persistence().purge(at(before), limit).await;
        purged.expect("purge answers")
    }
}

impl<F: TimerStoreFixture + ?Sized> Store for F {}
