//! Ports that misbehave in ways that no adapter of ours would: here a mock says more than a fake.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mockall::mock;
use mockall::predicate::always;
use punctual_adapters_memory::{FakeClock, MemoryTimerStore};
use punctual_domain::{
    CorrelationId, EnvelopeId, MessageEnvelope, MessageMetadata, Registration, ScheduleTimer,
    ScheduledTimer, TenantId, TimerEntry, TimerKey, Timestamp,
};
use punctual_ports::{
    Answer, Backlog, BatchResult, Burial, Claim, ClaimBatch, ClaimOutcome, ClaimRef, ClaimToken,
    ClockPort, DeleteOutcome, EventBusPort, FiredCursor, FiredPage, FiredTimer, MarkOutcome,
    MessageHandler, PortError, PortErrorKind, PublishOutcome, RetryLater, SaveOutcome, SaveTimer,
    Subscribe, Subscription, TimerPage, TimerPageQuery, TimerPersistencePort, TimerQueuePort,
};
use punctual_workflows::{Driven, ScheduleTimers, TimerWorker, WorkerSettings};

use crate::world::{World, key, secs};

mock! {
    Bus {}
    #[async_trait]
    impl EventBusPort for Bus {
        async fn publish(&self, batch: Vec<MessageEnvelope>) -> BatchResult<PublishOutcome>;
        async fn subscribe(&self, wish: Subscribe) -> Result<Box<dyn Subscription>, PortError>;
    }
}

mock! {
    Queue {}
    #[async_trait]
    impl TimerQueuePort for Queue {
        async fn claim_due_except(
            &self,
            now: Timestamp,
            limit: usize,
            lease: Duration,
            passed_over: BTreeSet<TenantId>,
        ) -> Result<ClaimBatch, PortError>;
        async fn retry_later(&self, batch: Vec<RetryLater>) -> BatchResult<ClaimOutcome>;
        async fn release(&self, batch: Vec<ClaimRef>) -> BatchResult<ClaimOutcome>;
        async fn bury(&self, batch: Vec<Burial>) -> BatchResult<ClaimOutcome>;
        async fn renew(
            &self,
            batch: Vec<ClaimRef>,
            now: Timestamp,
            lease: Duration,
        ) -> BatchResult<ClaimOutcome>;
        async fn backlog(&self, now: Timestamp, limit: usize) -> Result<Backlog, PortError>;
        async fn fired_since(
            &self,
            since: Timestamp,
            after: Option<FiredCursor>,
            limit: usize,
        ) -> Result<FiredPage, PortError>;
    }
}

mock! {
    Persistence {}
    #[async_trait]
    impl TimerPersistencePort for Persistence {
        async fn save(&self, batch: Vec<SaveTimer>, now: Timestamp) -> BatchResult<SaveOutcome>;
        async fn find(&self, key: TimerKey) -> Result<Option<TimerEntry>, PortError>;
        async fn find_due(
            &self,
            tenant_id: TenantId,
            now: Timestamp,
            limit: usize,
        ) -> Result<Vec<ScheduledTimer>, PortError>;
        async fn mark_fired(&self, batch: Vec<FiredTimer>) -> BatchResult<MarkOutcome>;
        async fn delete(
            &self,
            batch: Vec<TimerKey>,
            now: Timestamp,
        ) -> BatchResult<DeleteOutcome>;
        async fn find_by_correlation(
            &self,
            correlation_id: CorrelationId,
            after: Option<TimerKey>,
            limit: usize,
        ) -> Result<Vec<TimerEntry>, PortError>;
        async fn page(&self, query: TimerPageQuery) -> Result<TimerPage, PortError>;
        async fn purge(&self, before: Timestamp, limit: usize) -> Result<usize, PortError>;
    }
}

/// A worker whose marks get the answers of a mock.
fn with_marks(world: &World, persistence: MockPersistence) -> punctual_adapters_memory::Driving {
    let mut ports = world.ports.clone();
    ports.persistence = Arc::new(persistence);
    let worker = TimerWorker::new(&ports, WorkerSettings::default()).unwrap();
    world.clock.drive(Driven::new(worker))
}

#[tokio::test]
async fn a_mark_without_an_answer_is_told_again() {
    let mut world = World::new().await;
    world.stop();
    let mut persistence = MockPersistence::new();
    let mut sequence = mockall::Sequence::new();
    persistence
        .expect_mark_fired()
        .times(1)
        .in_sequence(&mut sequence)
        .returning(|_| Ok(Vec::new()));
    persistence
        .expect_mark_fired()
        .times(1)
        .in_sequence(&mut sequence)
        .returning(|batch| Ok(batch.iter().map(|_| Ok(MarkOutcome::Marked)).collect()));
    let _driving = with_marks(&world, persistence);
    world.schedule(&key("a"), secs(1)).await;
    world.advance(secs(10)).await;
    assert_eq!(world.ledger.count(&key("a")), 1);
}

#[tokio::test]
async fn each_command_is_answered_by_what_became_of_itself() {
    let world = World::new().await;
    let mut persistence = MockPersistence::new();
    persistence.expect_save().times(1).returning(|_, _| {
        let refused = |kind| Err(PortError::new(kind, "save", "no"));
        Ok(vec![
            Ok(SaveOutcome::Created),
            refused(PortErrorKind::Rejected),
            refused(PortErrorKind::Busy),
        ])
    });
    let mut ports = world.ports.clone();
    ports.persistence = Arc::new(persistence);
    let timers = ScheduleTimers::new(&ports);
    let command = |name: &str| MessageEnvelope {
        id: EnvelopeId::from_uuid(uuid::Uuid::nil()),
        timestamp: world.now(),
        metadata: MessageMetadata::default(),
        message: ScheduleTimer {
            tenant_id: key(name).tenant_id,
            service_call_id: key(name).service_call_id,
            due_at: world.now(),
            data: None,
        }
        .into(),
    };
    let batch = ["a", "b", "c", "d"].map(command).to_vec();
    let answers = timers.handle(batch).await;
    assert_eq!(answers[0], Answer::Done);
    assert!(matches!(answers[1], Answer::Poison { .. }));
    assert!(matches!(answers[2], Answer::HoldBack { .. }));
    assert!(
        matches!(answers[3], Answer::RetryLater { .. }),
        "no answer is no success"
    );
}

#[tokio::test]
async fn a_mark_that_is_refused_for_ever_holds_up_nobody() {
    let mut world = World::new().await;
    world.stop();
    let mut persistence = MockPersistence::new();
    persistence.expect_mark_fired().returning(|batch| {
        let refuse = |_| Err(PortError::new(PortErrorKind::Rejected, "mark", "never"));
        Ok(batch.iter().map(refuse).collect())
    });
    let _driving = with_marks(&world, persistence);
    for n in 0..10 {
        world.schedule(&key(&n.to_string()), secs(n)).await;
    }
    world.advance(secs(10)).await;
    let seen = world.ledger.seen();
    assert_eq!(seen.len(), 10);
    assert!(seen.iter().all(|seen| seen.at == seen.event.due_at));
}

/// A timer that is due a minute from now.
fn early_claim(clock: &FakeClock) -> Claim {
    Claim {
        timer: ScheduledTimer {
            key: key("early"),
            correlation_id: CorrelationId::from_uuid(uuid::Uuid::nil()),
            registration: Registration {
                registered_at: clock.now(),
                due_at: clock.now().saturating_add(secs(60)),
            },
            data: None,
        },
        attempts: 0,
        token: ClaimToken(1),
        lease_until: clock.now().saturating_add(secs(30)),
    }
}

#[tokio::test]
async fn a_store_that_gives_a_timer_early_makes_nothing_fire_early() {
    let mut world = World::new().await;
    world.stop();
    let claim = early_claim(&world.clock);
    let due_at = claim.timer.registration.due_at;
    let mut queue = MockQueue::new();
    let mut given = Some(claim);
    queue
        .expect_claim_due_except()
        .returning(move |_, _, _, _| {
            Ok(ClaimBatch {
                claims: given.take().into_iter().collect(),
                more_due: false,
                next_due_at: None,
            })
        });
    queue
        .expect_retry_later()
        .withf(move |batch| batch.len() == 1 && batch[0].retry_at == due_at)
        .times(1)
        .returning(|_| Ok(vec![Ok(ClaimOutcome::Applied)]));
    let mut bus = MockBus::new();
    bus.expect_publish().with(always()).never();
    let mut ports = world.ports.clone();
    ports.queue = Arc::new(queue);
    ports.bus = Arc::new(bus);
    let worker = TimerWorker::new(&ports, WorkerSettings::default()).unwrap();
    let _driving = world.clock.drive(Driven::new(worker));
    world.advance(secs(20)).await;
}

#[tokio::test]
async fn a_store_that_says_more_and_gives_nothing_makes_no_busy_loop() {
    let mut world = World::new().await;
    world.stop();
    let mut queue = MockQueue::new();
    queue
        .expect_claim_due_except()
        .times(1..=14)
        .returning(|_, _, _, _| {
            Ok(ClaimBatch {
                claims: Vec::new(),
                more_due: true,
                next_due_at: None,
            })
        });
    let mut ports = world.ports.clone();
    ports.queue = Arc::new(queue);
    let worker = TimerWorker::new(&ports, WorkerSettings::default()).unwrap();
    let _driving = world.clock.drive(Driven::new(worker));
    world.advance(secs(60)).await;
}

#[tokio::test]
async fn a_bus_that_answers_for_too_few_has_answered_for_none_of_the_rest() {
    let mut world = World::new().await;
    world.stop();
    let mut bus = MockBus::new();
    let mut sequence = mockall::Sequence::new();
    bus.expect_publish()
        .times(1)
        .in_sequence(&mut sequence)
        .returning(|_| Ok(vec![Ok(PublishOutcome::Accepted)]));
    bus.expect_publish()
        .in_sequence(&mut sequence)
        .times(1)
        .returning(|batch| {
            Ok(batch
                .iter()
                .map(|_| Ok(PublishOutcome::Duplicate))
                .collect())
        });
    let mut ports = world.ports.clone();
    ports.bus = Arc::new(bus);
    let settings = WorkerSettings {
        publish_batch: 10,
        ..WorkerSettings::default()
    };
    let worker = TimerWorker::new(&ports, settings).unwrap();
    let _driving = world.clock.drive(Driven::new(worker));
    for name in ["a", "b", "c"] {
        world.schedule(&key(name), secs(1)).await;
    }
    world.advance(secs(1)).await;
    let reached = reached(&world.store).await;
    assert_eq!(reached, 1, "only the one that was answered for");
    world.advance(secs(10)).await;
    assert_eq!(self::reached(&world.store).await, 3);
}

async fn reached(store: &MemoryTimerStore) -> usize {
    let mut reached = 0;
    for name in ["a", "b", "c"] {
        let found = store.find(key(name)).await.unwrap().unwrap();
        reached += usize::from(found.reached_at().is_some());
    }
    reached
}
