//! The in-process bus is a bus, wherever its handlers run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use punctual_adapters_system::{Handlers, InProcessBus};
use punctual_conformance::EventBusFixture;
use punctual_domain::{
    CorrelationId, EnvelopeId, MessageEnvelope, MessageMetadata, Registration, ScheduledTimer,
    TenantId, TimerKey, Timestamp, Topic,
};
use punctual_ports::{
    Answer, ConsumerName, EventBusPort, MessageHandler, PortErrorKind, PublishOutcome, Subscribe,
};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use uuid::Uuid;

struct InProcess(InProcessBus);

#[async_trait]
impl EventBusFixture for InProcess {
    fn bus(&self) -> Arc<dyn EventBusPort> {
        Arc::new(self.0.clone())
    }

    fn keeps_messages_for_later(&self) -> bool {
        false
    }

    async fn until(&self, what: &str, condition: &(dyn Fn() -> bool + Sync)) {
        // Delivery comes before the answer of publish, so it is true now or never.
        assert!(condition(), "{what}: not so when publish answered");
    }
}

mod inline {
    use super::{Handlers, InProcess, InProcessBus};
    punctual_conformance::event_bus_suite!(InProcess(InProcessBus::new(Handlers::Inline)));
}

mod spawned {
    use super::{Handle, Handlers, InProcess, InProcessBus};
    punctual_conformance::event_bus_suite!(InProcess(InProcessBus::new(Handlers::Spawned(
        Handle::current()
    ))));
}

fn message(n: u128) -> MessageEnvelope {
    let timer = ScheduledTimer {
        key: TimerKey::named(TenantId::default(), &n.to_string()),
        correlation_id: CorrelationId::from_uuid(Uuid::nil()),
        registration: Registration {
            registered_at: Timestamp::MIN,
            due_at: Timestamp::MIN,
        },
        data: None,
    };
    MessageEnvelope {
        id: EnvelopeId::from_uuid(Uuid::from_u128(n)),
        timestamp: Timestamp::MIN,
        metadata: MessageMetadata::default(),
        message: timer.reach(Timestamp::MIN).unwrap().event().into(),
    }
}

fn subscribe(handler: Arc<dyn MessageHandler>, max_batch: usize) -> Subscribe {
    Subscribe {
        topic: Topic::TimerEvents,
        consumer: ConsumerName::new("alpha"),
        max_batch,
        handler,
    }
}

/// Counts how many of its calls run at once, and holds them until it is let.
#[derive(Default)]
struct Crowd {
    inside: AtomicUsize,
    most: AtomicUsize,
    go_on: Notify,
}

#[async_trait]
impl MessageHandler for Crowd {
    async fn handle(&self, batch: Vec<MessageEnvelope>) -> Vec<Answer> {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
        self.go_on.notified().await;
        self.inside.fetch_sub(1, Ordering::SeqCst);
        vec![Answer::Done; batch.len()]
    }
}

#[tokio::test]
async fn no_more_handlers_run_at_once_than_allowed() {
    let bus = InProcessBus::with_concurrency(Handlers::Inline, 3);
    let crowd = Arc::new(Crowd::default());
    let _subscription = bus.subscribe(subscribe(crowd.clone(), 1)).await.unwrap();
    let letting = async {
        for _ in 0..10 {
            crowd.go_on.notify_one();
            tokio::task::yield_now().await;
        }
    };
    let (published, ()) = tokio::join!(bus.publish((0..10).map(message).collect()), letting);
    assert!(published.unwrap().iter().all(Result::is_ok));
    assert_eq!(crowd.most.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn subscriptions_of_one_consumer_take_turns() {
    let bus = InProcessBus::new(Handlers::Inline);
    let (one, two) = (Arc::new(Counts::default()), Arc::new(Counts::default()));
    let _first = bus.subscribe(subscribe(one.clone(), 5)).await.unwrap();
    let _second = bus.subscribe(subscribe(two.clone(), 3)).await.unwrap();
    for n in 0..10 {
        bus.publish(vec![message(n)]).await.unwrap();
    }
    assert_eq!(one.0.load(Ordering::SeqCst), 5);
    assert_eq!(two.0.load(Ordering::SeqCst), 5);
}

/// Counts its messages.
#[derive(Default)]
struct Counts(AtomicUsize);

#[async_trait]
impl MessageHandler for Counts {
    async fn handle(&self, batch: Vec<MessageEnvelope>) -> Vec<Answer> {
        self.0.fetch_add(batch.len(), Ordering::SeqCst);
        vec![Answer::Done; batch.len()]
    }
}

#[tokio::test]
async fn a_dropped_subscription_is_no_subscription() {
    let bus = InProcessBus::new(Handlers::Inline);
    drop(
        bus.subscribe(subscribe(Arc::new(Crowd::default()), 1))
            .await
            .unwrap(),
    );
    let error = bus.publish(vec![message(1)]).await.unwrap().remove(0);
    assert_eq!(error.unwrap_err().kind(), PortErrorKind::NoSubscriber);
}

#[tokio::test]
async fn a_handler_that_takes_no_message_is_refused() {
    let bus = InProcessBus::new(Handlers::Inline);
    let refused = bus
        .subscribe(subscribe(Arc::new(Crowd::default()), 0))
        .await;
    let error = refused.err().unwrap();
    assert_eq!(error.kind(), PortErrorKind::Rejected);
    assert!(error.to_string().contains("max_batch"));
}

#[tokio::test]
async fn a_publisher_that_gives_up_takes_its_handlers_along() {
    let bus = InProcessBus::new(Handlers::Spawned(Handle::current()));
    let crowd = Arc::new(Crowd::default());
    let subscription = bus.subscribe(subscribe(crowd.clone(), 1)).await.unwrap();
    let publishing = tokio::spawn(async move { bus.publish(vec![message(1)]).await });
    while crowd.inside.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    publishing.abort();
    assert!(publishing.await.is_err());
    subscription.stop().await;
}

/// Answers poison for one consumer and whatever it is told for the other.
struct Says(Answer);

#[async_trait]
impl MessageHandler for Says {
    async fn handle(&self, batch: Vec<MessageEnvelope>) -> Vec<Answer> {
        vec![self.0.clone(); batch.len()]
    }
}

#[tokio::test]
async fn one_consumer_s_retry_counts_for_more_than_another_s_poison() {
    let poison = Answer::Poison {
        reason: "broken".to_owned(),
    };
    let retry = Answer::RetryLater {
        reason: "later".to_owned(),
    };
    for (other, expected_ok) in [(Answer::Done, true), (retry, false)] {
        let bus = InProcessBus::new(Handlers::Inline);
        let first = subscribe(Arc::new(Says(poison.clone())), 1);
        let second = Subscribe {
            consumer: ConsumerName::new("beta"),
            ..subscribe(Arc::new(Says(other)), 1)
        };
        let _first = bus.subscribe(first).await.unwrap();
        let _second = bus.subscribe(second).await.unwrap();
        let answer = bus.publish(vec![message(1)]).await.unwrap().remove(0);
        match answer {
            Ok(outcome) => {
                assert!(expected_ok && matches!(outcome, PublishOutcome::Refused { .. }));
            }
            Err(error) => assert!(!expected_ok && error.is_retryable()),
        }
    }
}

/// Asks for a retry, once it is let.
struct RetriesWhenLet(Notify);

#[async_trait]
impl MessageHandler for RetriesWhenLet {
    async fn handle(&self, batch: Vec<MessageEnvelope>) -> Vec<Answer> {
        self.0.notified().await;
        let retry = Answer::RetryLater {
            reason: "later".to_owned(),
        };
        vec![retry; batch.len()]
    }
}

#[tokio::test]
async fn a_consumer_that_stops_in_the_middle_hides_nothing_behind_another_s_success() {
    let bus = InProcessBus::with_concurrency(Handlers::Inline, 1);
    let handler = Arc::new(RetriesWhenLet(Notify::new()));
    let first = bus.subscribe(subscribe(handler.clone(), 1)).await.unwrap();
    let other = Subscribe {
        consumer: ConsumerName::new("beta"),
        ..subscribe(Arc::new(Says(Answer::Done)), 1)
    };
    let _second = bus.subscribe(other).await.unwrap();
    let publishing = {
        let bus = bus.clone();
        tokio::spawn(async move { bus.publish(vec![message(1), message(2)]).await })
    };
    tokio::task::yield_now().await;
    tokio::join!(first.stop(), async { handler.0.notify_one() });
    let answers = publishing.await.unwrap().unwrap();
    assert!(answers.iter().all(Result::is_err), "{answers:?}");
}

#[tokio::test]
async fn a_pause_is_an_error_of_the_bus_and_not_of_the_message() {
    let bus = InProcessBus::new(Handlers::Inline);
    let answer = Answer::Pause {
        reason: "the store is away".to_owned(),
    };
    let _subscription = bus.subscribe(subscribe(Arc::new(Says(answer)), 1)).await;
    let error = bus.publish(vec![message(1)]).await.unwrap().remove(0);
    assert_eq!(error.unwrap_err().kind(), PortErrorKind::Unavailable);
}

#[tokio::test]
async fn the_place_of_a_commands_consumer_is_free_again_once_it_is_gone() {
    let bus = InProcessBus::new(Handlers::Inline);
    let commands = |consumer| Subscribe {
        topic: Topic::TimerCommands,
        consumer: ConsumerName::new(consumer),
        ..subscribe(Arc::new(Counts::default()), 1)
    };
    let first = bus.subscribe(commands("alpha")).await.unwrap();
    let refused = bus.subscribe(commands("beta")).await.err().unwrap();
    assert!(refused.to_string().contains("alpha"), "{refused}");
    drop(first);
    assert!(bus.subscribe(commands("beta")).await.is_ok());
}
