//! Ports that misbehave in ways that no adapter of ours would: their answers are altered on the way.

use std::any::Any;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use punctual_adapters_memory::{Driving, Intercepted, Interceptor, MemoryTimerStore};
use punctual_domain::{EnvelopeId, MessageEnvelope, MessageMetadata, ScheduleTimer};
use punctual_ports::{
    Answer, BatchResult, ClaimBatch, MarkOutcome, MessageHandler, PortError, PortErrorKind,
    PublishOutcome, SaveOutcome, TimerPersistencePort, TimerQueuePort,
};
use punctual_workflows::{Driven, ScheduleTimers, TimerPorts, TimerWorker, WorkerSettings};

use crate::world::{World, key, secs};

type Alter<A> = Box<dyn FnMut(Result<A, PortError>) -> Result<A, PortError> + Send>;

/// An interceptor that alters what a port answers to one operation, and counts its calls.
struct Altered<A> {
    operation: &'static str,
    alter: Arc<Mutex<Alter<A>>>,
    calls: Arc<AtomicUsize>,
}

impl<A: Send + 'static> Altered<A> {
    fn new(
        operation: &'static str,
        alter: impl FnMut(Result<A, PortError>) -> Result<A, PortError> + Send + 'static,
    ) -> Self {
        Self {
            operation,
            alter: Arc::new(Mutex::new(Box::new(alter))),
            calls: Arc::default(),
        }
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

impl<A> Clone for Altered<A> {
    fn clone(&self) -> Self {
        Self {
            operation: self.operation,
            alter: Arc::clone(&self.alter),
            calls: Arc::clone(&self.calls),
        }
    }
}

impl<A: Send + 'static> Interceptor for Altered<A> {
    async fn around<T: Send + 'static>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T, PortError>> + Send,
    ) -> Result<T, PortError> {
        let answer = call.await;
        if operation != self.operation {
            return answer;
        }
        self.calls.fetch_add(1, Ordering::SeqCst);
        // The operation answers with `A`, so `T` is `A`.
        let answer: Box<dyn Any> = Box::new(answer);
        let answer = answer.downcast().unwrap();
        let altered: Box<dyn Any> = Box::new((self.alter.lock().unwrap())(*answer));
        *altered.downcast().unwrap()
    }
}

fn drive(world: &World, ports: &TimerPorts, settings: WorkerSettings) -> Driving {
    let worker = TimerWorker::new(ports, settings).unwrap();
    world.clock.drive(Driven::new(worker))
}

/// A worker whose marks reach an empty store, not the one that it claims from, and are answered so.
fn with_marks(world: &World, marks: &Altered<Vec<Result<MarkOutcome, PortError>>>) -> Driving {
    let mut ports = world.ports.clone();
    ports.persistence = Arc::new(Intercepted::new(Arc::new(MemoryTimerStore::new()), marks));
    drive(world, &ports, WorkerSettings::default())
}

#[tokio::test]
async fn a_mark_without_an_answer_is_repeated() {
    let mut world = World::new().await;
    world.stop();
    let mut is_first = true;
    let marks = Altered::new("mark_fired", move |answers: BatchResult<MarkOutcome>| {
        if std::mem::take(&mut is_first) {
            return Ok(Vec::new());
        }
        Ok(answers?.iter().map(|_| Ok(MarkOutcome::Marked)).collect())
    });
    let _driving = with_marks(&world, &marks);
    world.schedule(&key("a"), secs(1)).await;
    world.advance(secs(10)).await;
    assert_eq!(world.ledger.count(&key("a")), 1);
    assert_eq!(marks.calls(), 2);
}

#[tokio::test]
async fn each_command_is_answered_by_what_became_of_itself() {
    let world = World::new().await;
    let saves = Altered::new("save", |_: BatchResult<SaveOutcome>| {
        let refused = |kind| Err(PortError::new(kind, "save", "no"));
        Ok(vec![
            Ok(SaveOutcome::Created),
            refused(PortErrorKind::Rejected),
            refused(PortErrorKind::Busy),
        ])
    });
    let mut ports = world.ports.clone();
    ports.persistence = Arc::new(Intercepted::new(Arc::new(world.store.clone()), &saves));
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
    assert!(matches!(answers[2], Answer::Pause { .. }));
    assert!(
        matches!(answers[3], Answer::RetryLater { .. }),
        "no answer is no success"
    );
    assert_eq!(saves.calls(), 1);
}

#[tokio::test]
async fn a_mark_that_is_refused_for_ever_delays_no_other() {
    let mut world = World::new().await;
    world.stop();
    let marks = Altered::new("mark_fired", |answers: BatchResult<MarkOutcome>| {
        let refuse = |_| Err(PortError::new(PortErrorKind::Rejected, "mark", "never"));
        Ok(answers?.iter().map(refuse).collect())
    });
    let _driving = with_marks(&world, &marks);
    for n in 0..10 {
        world.schedule(&key(&n.to_string()), secs(n)).await;
    }
    world.advance(secs(10)).await;
    let seen = world.ledger.seen();
    assert_eq!(seen.len(), 10);
    assert!(seen.iter().all(|seen| seen.at == seen.event.due_at));
}

#[tokio::test]
async fn a_store_that_gives_a_timer_early_makes_nothing_fire_early() {
    let mut world = World::new().await;
    world.stop();
    world.schedule(&key("early"), secs(60)).await;
    let due_at = world.now().saturating_add(secs(60));
    let at_due_time = world.store.claim_due(due_at, 1, secs(30)).await.unwrap();
    let mut given = at_due_time.claims.into_iter();
    assert_eq!(given.len(), 1);
    let claims = Altered::new("claim_due", move |answer: Result<ClaimBatch, PortError>| {
        Ok(ClaimBatch {
            claims: given.next().into_iter().collect(),
            ..answer?
        })
    });
    let mut ports = world.ports.clone();
    ports.queue = Arc::new(Intercepted::new(Arc::new(world.store.clone()), &claims));
    let _driving = drive(&world, &ports, WorkerSettings::default());
    world.advance(secs(20)).await;
    assert!(world.ledger.seen().is_empty());
    let entry = world.store.find(key("early")).await.unwrap().unwrap();
    assert_eq!((entry.reached_at(), entry.failures().attempts), (None, 1));
    let next = world.store.claim_due(world.now(), 1, secs(30)).await;
    assert_eq!(
        next.unwrap().next_due_at,
        Some(due_at),
        "given back until then"
    );
}

#[tokio::test]
async fn a_store_that_says_more_and_gives_nothing_makes_no_busy_loop() {
    let mut world = World::new().await;
    world.stop();
    let claims = Altered::new("claim_due", |answer: Result<ClaimBatch, PortError>| {
        Ok(ClaimBatch {
            more_due: true,
            ..answer?
        })
    });
    let mut ports = world.ports.clone();
    ports.queue = Arc::new(Intercepted::new(Arc::new(world.store.clone()), &claims));
    let _driving = drive(&world, &ports, WorkerSettings::default());
    world.advance(secs(60)).await;
    assert!((1..=14).contains(&claims.calls()), "{}", claims.calls());
}

#[tokio::test]
async fn a_bus_that_answers_for_too_few_has_answered_for_none_of_the_rest() {
    let mut world = World::new().await;
    world.stop();
    let mut is_first = true;
    let publishes = Altered::new("publish", move |answers: BatchResult<PublishOutcome>| {
        let mut answers = answers?;
        if std::mem::take(&mut is_first) {
            answers.truncate(1);
        }
        Ok(answers)
    });
    let mut ports = world.ports.clone();
    ports.bus = Arc::new(Intercepted::new(Arc::new(world.bus.clone()), &publishes));
    let settings = WorkerSettings {
        publish_batch: 10,
        ..WorkerSettings::default()
    };
    let _driving = drive(&world, &ports, settings);
    for name in ["a", "b", "c"] {
        world.schedule(&key(name), secs(1)).await;
    }
    world.advance(secs(1)).await;
    let reached = reached(&world.store).await;
    assert_eq!(reached, 1, "only the one that was answered for");
    world.advance(secs(10)).await;
    assert_eq!(self::reached(&world.store).await, 3);
    assert_eq!(publishes.calls(), 2);
}

async fn reached(store: &MemoryTimerStore) -> usize {
    let mut reached = 0;
    for name in ["a", "b", "c"] {
        let found = store.find(key(name)).await.unwrap().unwrap();
        reached += usize::from(found.reached_at().is_some());
    }
    reached
}
