//! An accepted message arrives, whatever its receivers do.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use punctual_domain::{
    CorrelationId, EnvelopeId, MessageEnvelope, MessageMetadata, Registration, ScheduleTimer,
    ScheduledTimer, TimerData, Topic,
};
use punctual_ports::{
    Answer, ConsumerName, MessageHandler, PortError, PortErrorKind, PublishOutcome, Subscribe,
    Subscription,
};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::EventBusFixture;
use crate::store::{at, key, key_of};

suite! { $ event_bus_suite, event_bus =>
    an_accepted_message_arrives_as_it_was_published,
    every_consumer_of_an_event_gets_it,
    commands_have_one_consumer,
    subscriptions_of_one_consumer_share_the_messages,
    a_message_goes_to_its_own_topic_only,
    outcomes_come_in_the_order_of_the_envelopes,
    an_empty_batch_of_messages_is_answered_with_an_empty_list,
    a_message_to_retry_is_delivered_again,
    a_paused_message_is_delivered_again_however_often,
    a_panic_is_a_retry,
    a_missing_answer_is_a_retry,
    poison_is_not_delivered_again_and_the_next_message_is,
    one_message_to_retry_affects_no_other,
    a_message_without_subscriber_is_never_accepted_and_lost,
    a_handler_gets_at_most_its_batch_size_at_once,
    a_handler_of_single_messages_that_hangs_for_one_tenant_is_called_for_others,
    a_stopped_subscription_gets_nothing_more,
    stopping_waits_for_what_is_in_flight,
    stopping_twice_is_stopping_once,
    publishing_the_same_message_again_is_safe,
}

const ALPHA: ConsumerName = ConsumerName::new("alpha");
const BETA: ConsumerName = ConsumerName::new("beta");

/// Message number `n`.
fn message(n: u128) -> MessageEnvelope {
    let key = key(n);
    MessageEnvelope {
        id: EnvelopeId::from_uuid(Uuid::from_u128(n)),
        timestamp: at(1_000),
        metadata: MessageMetadata {
            correlation_id: Some(CorrelationId::from_uuid(Uuid::from_u128(7))),
            causation_id: Some(EnvelopeId::from_uuid(Uuid::from_u128(8))),
        },
        message: ScheduleTimer {
            tenant_id: key.tenant_id,
            service_call_id: key.service_call_id,
            due_at: at(5_000),
            data: Some(TimerData::from_json("{ \"a\": \"☃\" }").expect("good JSON")),
        }
        .into(),
    }
}

/// Event number `n`, which may have several consumers.
fn event(n: u128) -> MessageEnvelope {
    event_of("tenant-a", n)
}

fn event_of(tenant: &str, n: u128) -> MessageEnvelope {
    let timer = ScheduledTimer {
        key: key_of(tenant, n),
        correlation_id: CorrelationId::from_uuid(Uuid::from_u128(7)),
        registration: Registration {
            registered_at: at(1_000),
            due_at: at(5_000),
        },
        data: None,
    };
    let reached = timer.reach(at(5_001)).expect("it is due");
    MessageEnvelope {
        message: reached.event().into(),
        ..message(n)
    }
}

type Script = Box<dyn Fn(&MessageEnvelope, usize) -> Option<Answer> + Send + Sync>;

/// Records what it gets and answers as its script says.
struct Recorder {
    seen: Mutex<Vec<MessageEnvelope>>,
    largest_batch: Mutex<usize>,
    script: Script,
}

impl Recorder {
    /// The script gets a message and how often it was seen before; `None` is no answer at all.
    fn new(
        script: impl Fn(&MessageEnvelope, usize) -> Option<Answer> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            seen: Mutex::default(),
            largest_batch: Mutex::default(),
            script: Box::new(script),
        })
    }

    fn content() -> Arc<Self> {
        Self::new(|_, _| Some(Answer::Done))
    }

    fn seen(&self) -> Vec<MessageEnvelope> {
        self.seen.lock().expect("no panic while locked").clone()
    }

    fn count(&self, n: u128) -> usize {
        let is_it = |seen: &&MessageEnvelope| **seen == message(n) || **seen == event(n);
        self.seen().iter().filter(is_it).count()
    }
}

#[async_trait]
impl MessageHandler for Recorder {
    async fn handle(&self, batch: Vec<MessageEnvelope>) -> Vec<Answer> {
        let earlier: BTreeMap<EnvelopeId, usize> = {
            let mut seen = self.seen.lock().expect("no panic while locked");
            let earlier = batch
                .iter()
                .map(|m| (m.id, seen.iter().filter(|s| s.id == m.id).count()))
                .collect();
            seen.extend(batch.iter().cloned());
            earlier
        };
        {
            let mut largest = self.largest_batch.lock().expect("no panic while locked");
            *largest = batch.len().max(*largest);
        }
        batch
            .iter()
            .map_while(|m| (self.script)(m, earlier[&m.id]))
            .collect()
    }
}

/// Subscribes to commands with batches of ten; `None`, and a refusal, if the bus publishes only.
async fn subscribe(
    fixture: &dyn EventBusFixture,
    consumer: ConsumerName,
    handler: Arc<dyn MessageHandler>,
) -> Option<Box<dyn Subscription>> {
    request(fixture, Topic::TimerCommands, consumer, 10, handler).await
}

/// Subscribes to events in the same way.
async fn subscribe_to_events(
    fixture: &dyn EventBusFixture,
    consumer: ConsumerName,
    handler: Arc<dyn MessageHandler>,
) -> Option<Box<dyn Subscription>> {
    request(fixture, Topic::TimerEvents, consumer, 10, handler).await
}

async fn request(
    fixture: &dyn EventBusFixture,
    topic: Topic,
    consumer: ConsumerName,
    max_batch: usize,
    handler: Arc<dyn MessageHandler>,
) -> Option<Box<dyn Subscription>> {
    let request = Subscribe {
        topic,
        consumer,
        max_batch,
        handler,
    };
    let answer = fixture.bus().subscribe(request).await;
    if fixture.delivers() {
        return Some(answer.expect("subscribe answers"));
    }
    let refusal = answer.err().expect("a bus that publishes only refuses");
    assert_eq!(refusal.kind(), PortErrorKind::Rejected);
    None
}

/// The subscription; where a bus publishes only, the case ends with the refusal.
macro_rules! or_end {
    ($subscribe:expr) => {
        match $subscribe.await {
            Some(subscription) => subscription,
            None => return,
        }
    };
}

async fn publish(
    fixture: &dyn EventBusFixture,
    batch: Vec<MessageEnvelope>,
) -> Vec<Result<PublishOutcome, PortError>> {
    let length = batch.len();
    let answers = fixture.bus().publish(batch).await.expect("publish answers");
    assert_eq!(answers.len(), length);
    answers
}

/// Publishes until the bus accepts, as a publisher does that needs the message to arrive.
async fn publish_until_accepted(fixture: &dyn EventBusFixture, message: MessageEnvelope) {
    for _ in 0..100 {
        match publish(fixture, vec![message.clone()]).await.remove(0) {
            Ok(_) => return,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    }
    panic!("the message is never accepted");
}

/// Publishes a command to a handler until it has come as often as it has to.
async fn delivered(
    fixture: &dyn EventBusFixture,
    handler: &Arc<Recorder>,
    is_often_enough: &(dyn Fn(usize) -> bool + Sync),
) {
    let subscribed = subscribe(fixture, ALPHA, Arc::<Recorder>::clone(handler)).await;
    if let Some(subscription) = subscribed {
        publish_until_accepted(fixture, message(1)).await;
        let is_done = || is_often_enough(handler.count(1));
        fixture.until("it is done", &is_done).await;
        subscription.stop().await;
    }
}

/// Every field of it.
pub async fn an_accepted_message_arrives_as_it_was_published(fixture: Box<dyn EventBusFixture>) {
    let handler = Recorder::content();
    let subscription = or_end!(subscribe(&fixture, ALPHA, handler.clone()));
    let answers = publish(&fixture, vec![message(1)]).await;
    assert_eq!(*answers[0].as_ref().unwrap(), PublishOutcome::Accepted);
    fixture
        .until("it arrives", &|| !handler.seen().is_empty())
        .await;
    assert_eq!(handler.seen(), [message(1)]);
    subscription.stop().await;
}

/// Consumers are independent of each other.
pub async fn every_consumer_of_an_event_gets_it(fixture: Box<dyn EventBusFixture>) {
    let (alpha, beta) = (Recorder::content(), Recorder::content());
    let first = or_end!(subscribe_to_events(&fixture, ALPHA, alpha.clone()));
    let second = or_end!(subscribe_to_events(&fixture, BETA, beta.clone()));
    publish(&fixture, vec![event(1)]).await;
    fixture
        .until("both get it", &|| alpha.count(1) == 1 && beta.count(1) == 1)
        .await;
    first.stop().await;
    second.stop().await;
}

/// A command is carried out by one module.
pub async fn commands_have_one_consumer(fixture: Box<dyn EventBusFixture>) {
    let handler = Recorder::content();
    let first = or_end!(subscribe(&fixture, ALPHA, handler.clone()));
    let second = Subscribe {
        topic: Topic::TimerCommands,
        consumer: BETA,
        max_batch: 10,
        handler,
    };
    let refused = fixture.bus().subscribe(second).await;
    let error = refused.err().expect("a second consumer is refused");
    assert_eq!(error.kind(), PortErrorKind::Rejected);
    first.stop().await;
}

/// Each message goes to one of them.
pub async fn subscriptions_of_one_consumer_share_the_messages(fixture: Box<dyn EventBusFixture>) {
    let (one, two) = (Recorder::content(), Recorder::content());
    let first = or_end!(subscribe(&fixture, ALPHA, one.clone()));
    let second = or_end!(subscribe(&fixture, ALPHA, two.clone()));
    for n in 0..10 {
        publish(&fixture, vec![message(n)]).await;
    }
    let arrived = || one.seen().len() + two.seen().len();
    fixture.until("all arrive", &|| arrived() >= 10).await;
    for n in 0..10 {
        assert_eq!(one.count(n) + two.count(n), 1, "message {n}");
    }
    first.stop().await;
    second.stop().await;
}

/// Subscribers of other topics do not get it.
pub async fn a_message_goes_to_its_own_topic_only(fixture: Box<dyn EventBusFixture>) {
    let (commands, events) = (Recorder::content(), Recorder::content());
    let second = or_end!(subscribe_to_events(&fixture, BETA, events.clone()));
    let first = or_end!(subscribe(&fixture, ALPHA, commands.clone()));
    publish(&fixture, vec![message(1)]).await;
    fixture
        .until("it arrives", &|| commands.count(1) == 1)
        .await;
    assert_eq!(events.seen(), []);
    first.stop().await;
    second.stop().await;
}

/// Answers belong to envelopes by position.
pub async fn outcomes_come_in_the_order_of_the_envelopes(fixture: Box<dyn EventBusFixture>) {
    let handler = Recorder::content();
    let subscription = subscribe(&fixture, ALPHA, handler.clone()).await;
    let answers = publish(&fixture, (0..25).map(message).collect()).await;
    assert!(answers.iter().all(Result::is_ok));
    let Some(subscription) = subscription else {
        return;
    };
    fixture
        .until("all arrive", &|| handler.seen().len() >= 25)
        .await;
    for n in 0..25 {
        assert_eq!(handler.count(n), 1, "message {n}");
    }
    subscription.stop().await;
}

/// Nothing to do is not an error.
pub async fn an_empty_batch_of_messages_is_answered_with_an_empty_list(
    fixture: Box<dyn EventBusFixture>,
) {
    assert!(publish(&fixture, vec![]).await.is_empty());
}

/// Until it is done.
pub async fn a_message_to_retry_is_delivered_again(fixture: Box<dyn EventBusFixture>) {
    let handler = Recorder::new(|_, earlier| match earlier {
        0 | 1 => Some(Answer::RetryLater {
            reason: "not yet".to_owned(),
        }),
        _ => Some(Answer::Done),
    });
    delivered(&fixture, &handler, &|times| times >= 3).await;
}

/// The message is not at fault, so it is never dead-lettered.
pub async fn a_paused_message_is_delivered_again_however_often(fixture: Box<dyn EventBusFixture>) {
    const OFTEN: usize = 25;
    let handler = Recorder::new(|_, earlier| {
        Some(if earlier < OFTEN {
            Answer::Pause {
                reason: "the store is away".to_owned(),
            }
        } else {
            Answer::Done
        })
    });
    delivered(&fixture, &handler, &|times| times > OFTEN).await;
}

/// A handler's bug is not a lost message.
pub async fn a_panic_is_a_retry(fixture: Box<dyn EventBusFixture>) {
    let handler = Recorder::new(|_, earlier| {
        assert!(earlier > 0, "this panic belongs to the case");
        Some(Answer::Done)
    });
    delivered(&fixture, &handler, &|times| times >= 2).await;
}

/// Silence is not consent.
pub async fn a_missing_answer_is_a_retry(fixture: Box<dyn EventBusFixture>) {
    let handler = Recorder::new(|_, earlier| (earlier > 0).then_some(Answer::Done));
    delivered(&fixture, &handler, &|times| times >= 2).await;
}

/// One bad message stops nothing.
pub async fn poison_is_not_delivered_again_and_the_next_message_is(
    fixture: Box<dyn EventBusFixture>,
) {
    let handler = Recorder::new(|seen, _| {
        Some(if *seen == message(1) {
            Answer::Poison {
                reason: "it is broken".to_owned(),
            }
        } else {
            Answer::Done
        })
    });
    let subscription = or_end!(subscribe(&fixture, ALPHA, handler.clone()));
    publish_until_accepted(&fixture, message(1)).await;
    publish_until_accepted(&fixture, message(2)).await;
    fixture
        .until("both arrive", &|| {
            handler.count(1) >= 1 && handler.count(2) == 1
        })
        .await;
    assert_eq!(handler.count(1), 1);
    subscription.stop().await;
}

/// Each message is answered for by itself.
pub async fn one_message_to_retry_affects_no_other(fixture: Box<dyn EventBusFixture>) {
    let handler = Recorder::new(|seen, earlier| {
        Some(if *seen == message(1) && earlier == 0 {
            Answer::RetryLater {
                reason: "not yet".to_owned(),
            }
        } else {
            Answer::Done
        })
    });
    let subscription = or_end!(subscribe(&fixture, ALPHA, handler.clone()));
    let answers = publish(&fixture, vec![message(0), message(1), message(2)]).await;
    assert!(answers[0].is_ok() && answers[2].is_ok(), "{answers:?}");
    if answers[1].is_err() {
        publish_until_accepted(&fixture, message(1)).await;
    }
    fixture.until("it is done", &|| handler.count(1) >= 2).await;
    assert_eq!((handler.count(0), handler.count(2)), (1, 1));
    subscription.stop().await;
}

/// Kept for later, or refused in a way that can be retried.
pub async fn a_message_without_subscriber_is_never_accepted_and_lost(
    fixture: Box<dyn EventBusFixture>,
) {
    let answer = publish(&fixture, vec![message(1)]).await.remove(0);
    let handler = Recorder::content();
    if fixture.keeps_messages_for_later() {
        assert_eq!(answer.unwrap(), PublishOutcome::Accepted);
    } else {
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), PortErrorKind::NoSubscriber);
        assert!(error.is_retryable());
    }
    let subscription = or_end!(subscribe(&fixture, ALPHA, handler.clone()));
    if !fixture.keeps_messages_for_later() {
        publish_until_accepted(&fixture, message(1)).await;
    }
    fixture.until("it arrives", &|| handler.count(1) == 1).await;
    subscription.stop().await;
}

/// The subscription declares its maximum batch.
pub async fn a_handler_gets_at_most_its_batch_size_at_once(fixture: Box<dyn EventBusFixture>) {
    let handler = Recorder::content();
    let subscription = or_end!(subscribe(&fixture, ALPHA, handler.clone()));
    publish(&fixture, (0..35).map(message).collect()).await;
    fixture
        .until("all arrive", &|| handler.seen().len() >= 35)
        .await;
    assert!(*handler.largest_batch.lock().unwrap() <= 10);
    subscription.stop().await;
}

/// Stopped is stopped.
pub async fn a_stopped_subscription_gets_nothing_more(fixture: Box<dyn EventBusFixture>) {
    let (stopped, other) = (Recorder::content(), Recorder::content());
    let first = or_end!(subscribe_to_events(&fixture, ALPHA, stopped.clone()));
    let second = or_end!(subscribe_to_events(&fixture, BETA, other.clone()));
    first.stop().await;
    publish(&fixture, vec![event(1)]).await;
    fixture
        .until("the other gets it", &|| other.count(1) == 1)
        .await;
    assert_eq!(stopped.seen(), []);
    second.stop().await;
}

/// Starts to handle, and goes on when the case lets it.
struct Slow {
    started: Notify,
    go_on: Notify,
    done: Mutex<bool>,
}

#[async_trait]
impl MessageHandler for Slow {
    async fn handle(&self, batch: Vec<MessageEnvelope>) -> Vec<Answer> {
        self.started.notify_one();
        self.go_on.notified().await;
        *self.done.lock().expect("no panic while locked") = true;
        vec![Answer::Done; batch.len()]
    }
}

/// Never returns for one tenant.
struct HangsForOne(Mutex<usize>);

#[async_trait]
impl MessageHandler for HangsForOne {
    async fn handle(&self, batch: Vec<MessageEnvelope>) -> Vec<Answer> {
        if batch[0].tenant_id().as_str() == "tenant-a" {
            std::future::pending::<()>().await;
        }
        *self.0.lock().expect("no panic while locked") += batch.len();
        vec![Answer::Done; batch.len()]
    }
}

/// Where `publish` waits for the handler, the publisher has to be fair.
pub async fn a_handler_of_single_messages_that_hangs_for_one_tenant_is_called_for_others(
    fixture: Box<dyn EventBusFixture>,
) {
    if !fixture.keeps_messages_for_later() {
        return;
    }
    let handler = Arc::new(HangsForOne(Mutex::new(0)));
    let subscribed = request(&fixture, Topic::TimerEvents, ALPHA, 1, handler.clone()).await;
    let Some(subscription) = subscribed else {
        return;
    };
    publish(&fixture, (0..500).map(event).collect()).await;
    let others = (500..510).map(|n| event_of("tenant-b", n)).collect();
    publish(&fixture, others).await;
    let all = || *handler.0.lock().expect("no panic while locked") >= 10;
    fixture.until("the others arrive", &all).await;
    // Not stopped: that would wait for those that hang.
    drop(subscription);
}

/// A batch in flight is finished first.
pub async fn stopping_waits_for_what_is_in_flight(fixture: Box<dyn EventBusFixture>) {
    let handler = Arc::new(Slow {
        started: Notify::new(),
        go_on: Notify::new(),
        done: Mutex::new(false),
    });
    let subscription = or_end!(subscribe(&fixture, ALPHA, handler.clone()));
    let bus = fixture.bus();
    let publishing = tokio::spawn(async move { bus.publish(vec![message(1)]).await });
    handler.started.notified().await;
    let (stopping, letting) = tokio::join!(subscription.stop(), async {
        // By now `stop` is waiting, and must still be.
        tokio::task::yield_now().await;
        assert!(!*handler.done.lock().unwrap());
        handler.go_on.notify_one();
    });
    let ((), ()) = (stopping, letting);
    assert!(*handler.done.lock().unwrap());
    let answers = publishing
        .await
        .expect("no panic")
        .expect("publish answers");
    assert!(answers[0].is_ok());
}

/// One after the other, and at once.
pub async fn stopping_twice_is_stopping_once(fixture: Box<dyn EventBusFixture>) {
    let handler = Recorder::content();
    let subscription = or_end!(subscribe(&fixture, ALPHA, handler.clone()));
    publish(&fixture, vec![message(1)]).await;
    fixture
        .until("it arrives", &|| !handler.seen().is_empty())
        .await;
    tokio::join!(subscription.stop(), subscription.stop());
    subscription.stop().await;
}

/// The receiver may see it twice, and the publisher gets no error.
pub async fn publishing_the_same_message_again_is_safe(fixture: Box<dyn EventBusFixture>) {
    let handler = Recorder::content();
    let subscription = subscribe(&fixture, ALPHA, handler.clone()).await;
    for _ in 0..3 {
        let answers = publish(&fixture, vec![message(1)]).await;
        assert!(answers[0].is_ok());
    }
    let Some(subscription) = subscription else {
        return;
    };
    fixture.until("it arrives", &|| handler.count(1) >= 1).await;
    subscription.stop().await;
}
