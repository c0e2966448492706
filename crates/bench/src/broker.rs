//! The broker that some lines are measured on: a nats-server that `cargo xtask bench` has started
//! for this run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use punctual_adapters_nats::async_nats::jetstream::{self, context::ContextBuilder};
use punctual_adapters_nats::{NatsEventBus, NatsParts, NatsSettings};
use punctual_adapters_sqlite::SqliteTimerStore;
use punctual_adapters_system::{SystemClock, UuidIds};
use punctual_domain::{
    CorrelationId, EnvelopeId, Message, MessageEnvelope, MessageMetadata, Registration,
    ScheduleTimer, ScheduledTimer, Timestamp,
};
use punctual_ports::{BatchResult, ClockPort, EventBusPort, IdPort, PublishOutcome};
use punctual_workflows::{TimerPorts, TimerRequest, WorkerSettings};
use tokio::task::JoinSet;

use crate::Outcome;
use crate::databases::Copy;
use crate::ours::join;

/// Where its address is.
const VARIABLE: &str = "PUNCTUAL_TEST_NATS_URL";

/// How long a timer that fires was registered before it was due.
const REGISTERED_BEFORE: Duration = Duration::from_hours(1);

/// How many of them may be on the way is what a line measures, and no bound of the library's.
const NO_BOUND: usize = 100_000;

/// A broker, and how to reach it.
#[derive(Debug, Clone)]
pub(crate) struct Broker {
    url: String,
}

impl Broker {
    /// The broker of this run.
    ///
    /// # Errors
    /// With the sentence that says why nothing is measured.
    pub(crate) fn of_this_run() -> Result<Self, String> {
        Self::named_by(std::env::var(VARIABLE).ok())
    }

    fn named_by(value: Option<String>) -> Result<Self, String> {
        match value {
            Some(url) if !url.is_empty() => Ok(Self { url }),
            _ => Err(format!(
                "there is no broker: install nats-server and use `cargo xtask bench`, or name one in {VARIABLE}"
            )),
        }
    }

    /// New streams with a prefix of their own.
    pub(crate) fn streams(&self) -> Outcome<Streams> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let mut settings = NatsSettings::new(&self.url)?;
        settings.prefix = format!("bench{}x{count}", std::process::id()).parse()?;
        Ok(Streams { settings })
    }
}

/// The streams of one turn.
pub(crate) struct Streams {
    settings: NatsSettings,
}

impl Streams {
    /// Our bus on them, as a process has it. It makes them if they are missing.
    pub(crate) async fn connect(&self, copy: &Copy, clock: &SystemClock) -> Outcome<Connected> {
        let store = SqliteTimerStore::open(&copy.settings(), clock.now())?;
        let parts = NatsParts {
            clock: Arc::new(clock.clone()),
            dead_letters: Arc::new(store.clone()),
            positions: Arc::new(store.clone()),
        };
        let bus = NatsEventBus::connect(self.settings.clone(), parts).await?;
        Ok(Connected {
            clock: clock.clone(),
            store,
            bus,
        })
    }

    /// A plain client of its own.
    pub(crate) async fn plain(&self) -> Outcome<jetstream::Context> {
        let client = punctual_adapters_nats::connect(&self.settings).await?;
        Ok(ContextBuilder::new()
            .max_ack_inflight(NO_BOUND)
            .build(client))
    }

    /// What the subject of an envelope is.
    pub(crate) fn subject(&self, envelope: &MessageEnvelope) -> String {
        let message = &envelope.message;
        let topic = self.settings.prefix.topic(message.topic());
        format!("{topic}.{}", message.tenant_id())
    }

    /// How many messages a stream has.
    pub(crate) async fn count(&self, plain: &jetstream::Context, name: &str) -> Outcome<u64> {
        let stream = plain.get_stream(self.settings.prefix.stream(name)).await?;
        Ok(stream.cached_info().state.messages)
    }

    /// Leaves nothing behind.
    pub(crate) async fn remove(self, plain: &jetstream::Context) -> Outcome<()> {
        for name in ["COMMANDS", "EVENTS"] {
            let name = self.settings.prefix.stream(name);
            plain.delete_stream(name).await?;
        }
        Ok(())
    }
}

/// A file and the bus that keeps its position there.
pub(crate) struct Connected {
    clock: SystemClock,
    store: SqliteTimerStore,
    pub(crate) bus: NatsEventBus,
}

impl Connected {
    /// What works on both.
    pub(crate) fn ports(&self, bus: impl EventBusPort + 'static) -> TimerPorts {
        TimerPorts::new(self.clock.clone(), UuidIds, self.store.clone(), bus)
    }

    pub(crate) async fn close(self) {
        self.bus.close().await;
        self.store.close().await;
    }
}

/// Publishes as the worker does: several batches at once. All messages have to be accepted.
pub(crate) async fn publish(bus: &NatsEventBus, batches: Vec<Vec<MessageEnvelope>>) -> Outcome<()> {
    let most = WorkerSettings::for_a_broker().publishes_in_flight;
    let mut running = JoinSet::new();
    for batch in batches {
        if running.len() == most
            && let Some(published) = running.join_next().await
        {
            published??;
        }
        let bus = bus.clone();
        running.spawn(async move { all_accepted(bus.publish(batch).await) });
    }
    join(running).await
}

/// Messages in batches of the size that the worker hands over.
pub(crate) fn batches(messages: &[MessageEnvelope]) -> Vec<Vec<MessageEnvelope>> {
    let size = WorkerSettings::for_a_broker().publish_batch;
    messages.chunks(size).map(<[_]>::to_vec).collect()
}

/// The event of a timer that fires now.
pub(crate) fn event(timer: TimerRequest, now: Timestamp) -> Outcome<MessageEnvelope> {
    let correlation_id = CorrelationId::from_uuid(UuidIds.next_id());
    let scheduled = ScheduledTimer {
        key: timer.key,
        correlation_id,
        registration: Registration {
            registered_at: timer.due_at.saturating_sub(REGISTERED_BEFORE),
            due_at: timer.due_at,
        },
        data: timer.data,
    };
    let reached = scheduled.reach(now)?;
    Ok(envelope(reached.event().into(), correlation_id, now))
}

/// The command that asks for a timer.
pub(crate) fn command(timer: TimerRequest, now: Timestamp) -> MessageEnvelope {
    let command = ScheduleTimer {
        tenant_id: timer.key.tenant_id,
        service_call_id: timer.key.service_call_id,
        due_at: timer.due_at,
        data: timer.data,
    };
    let correlation_id = CorrelationId::from_uuid(UuidIds.next_id());
    envelope(command.into(), correlation_id, now)
}

fn envelope(
    message: Message,
    correlation_id: CorrelationId,
    timestamp: Timestamp,
) -> MessageEnvelope {
    MessageEnvelope {
        id: EnvelopeId::from_uuid(UuidIds.next_id()),
        timestamp,
        metadata: MessageMetadata {
            correlation_id: Some(correlation_id),
            causation_id: None,
        },
        message,
    }
}

/// Every message of this benchmark is new; any other answer would measure something else.
fn all_accepted(answered: BatchResult<PublishOutcome>) -> Outcome<()> {
    for outcome in answered? {
        match outcome? {
            PublishOutcome::Accepted => {}
            other => return Err(format!("a new message was answered with {other:?}").into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{Rows, tenants};

    const NOW: Timestamp = Timestamp::MIN;

    fn timers(count: usize) -> Vec<TimerRequest> {
        let now = SystemClock::start().map(|clock| clock.now());
        let mut rows = Rows::new(tenants(3).unwrap(), 1, now.unwrap());
        (0..count).map(|_| rows.overdue()).collect()
    }

    #[test]
    fn without_an_address_there_is_no_broker_and_a_sentence_says_so() {
        for value in [None, Some(String::new())] {
            let sentence = Broker::named_by(value).unwrap_err();
            assert!(sentence.contains("there is no broker"), "{sentence}");
            assert!(sentence.contains("cargo xtask bench"), "{sentence}");
        }
        let broker = Broker::named_by(Some("nats://a:1".to_owned())).unwrap();
        assert_eq!(broker.url, "nats://a:1");
    }

    #[test]
    fn no_two_turns_share_their_streams() {
        let broker = Broker::named_by(Some("nats://a:1".to_owned())).unwrap();
        let [one, other] = [(); 2].map(|()| broker.streams().unwrap().settings.prefix);
        assert_ne!(one, other);
    }

    #[test]
    fn batches_are_as_large_as_the_workers_and_lose_nothing() {
        let commands: Vec<_> = timers(600).into_iter().map(|it| command(it, NOW)).collect();
        let batches = batches(&commands);
        let sizes: Vec<_> = batches.iter().map(Vec::len).collect();
        assert_eq!(sizes, [256, 256, 88]);
        assert_eq!(batches.concat(), commands);
    }

    #[test]
    fn an_event_names_its_firing_and_a_timer_that_is_not_due_has_none() {
        let timer = timers(1).remove(0);
        let (key, due_at) = (timer.key.clone(), timer.due_at);
        let early = event(timer.clone(), due_at.saturating_sub(REGISTERED_BEFORE));
        assert!(early.is_err());
        let event = event(timer, due_at).unwrap();
        assert!(event.deduplication_id().starts_with(&key.to_string()));
    }
}
