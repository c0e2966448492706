//! Sending a command through the broker, and waiting for the event that it leads to.
//!
//! The event is read from the stream of events, beginning with what comes after the command was
//! sent, so that none is missed however often the connection breaks in between.

use std::error::Error;
use std::time::Duration;

use futures_util::StreamExt;
use punctual_adapters_nats::async_nats::connection::State;
use punctual_adapters_nats::async_nats::jetstream::consumer::{
    AckPolicy, DeliverPolicy, PullConsumer, pull,
};
use punctual_adapters_nats::async_nats::jetstream::context::{
    GetStreamError, GetStreamErrorKind, PublishError, PublishErrorKind,
};
use punctual_adapters_nats::async_nats::jetstream::message::PublishMessage;
use punctual_adapters_nats::async_nats::jetstream::publish::PublishAck;
use punctual_adapters_nats::async_nats::jetstream::{self, Context, ErrorCode};
use punctual_adapters_nats::{NatsSettings, Prefix, connect};
use punctual_adapters_system::{SystemClock, UuidIds};
use punctual_domain::{
    CorrelationId, EnvelopeId, Message, MessageEnvelope, MessageMetadata, ScheduleTimer, TimerKey,
    Timestamp, Topic,
};
use punctual_ports::{ClockPort, IdPort};
use serde::Serialize;

use super::clock;
use super::output::Answers;
use super::schedule::{due_at, key_or_new};
use crate::cli::SendArgs;
use crate::failure::Failure;
use crate::settings::Environment;

/// How often a command is published before its fate counts as unknown. Each time waits for the
/// acknowledgement as long as the settings say.
const TRIES: usize = 3;

/// How long one fetch of events waits at the broker.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);

/// How long to wait after an error of the broker.
const PAUSE: Duration = Duration::from_millis(500);

/// How long an inactive consumer is kept by the broker.
const FORGET_AFTER: Duration = Duration::from_mins(1);

/// A longer wait for the due time is announced.
const LONG: Duration = Duration::from_mins(1);

/// What was sent, and where the broker has stored it.
#[derive(Serialize)]
struct Stored<'a> {
    sent: &'a MessageEnvelope,
    stream: &'a str,
    sequence: u64,
}

/// Sends a command and waits for its event.
pub(crate) async fn run(args: SendArgs, environment: &Environment<'_>) -> Result<(), Failure> {
    let clock = clock()?;
    let wait = (!args.no_wait).then_some(args.wait);
    let Some(settings) = environment.good_sources(&args.broker.0)?.broker()? else {
        return Err(Failure::usage(
            "there is no broker to send to: give --broker nats://host:4222, or set TIMER_BROKER_URL",
        ));
    };
    let command = command(args, clock.now())?;
    // Nothing is sent if that cannot be reported.
    let mut answers = Answers::open_for_changes()?;
    let jetstream = reach(&settings).await?;
    let mut waiting = match wait {
        Some(wait) => Some(Waiting::begin(&jetstream, &settings.prefix, &command, wait).await?),
        None => None,
    };
    let stored = publish(&jetstream, &settings, &command).await?;
    answers.line(&Stored {
        sent: &command,
        stream: &stored.stream,
        sequence: stored.sequence,
    })?;
    match &mut waiting {
        Some(waiting) => answers.line(&waiting.until_it_fires(&clock).await?),
        None => Ok(()),
    }
}

/// A connection to a broker that keeps messages.
async fn reach(settings: &NatsSettings) -> Result<Context, Failure> {
    let client = connect(settings).await.map_err(Failure::failed)?;
    if !client.server_info().jetstream {
        return Err(Failure::failed(format!(
            "the broker at {} runs without JetStream: start nats-server with -js, or give its configuration a jetstream section",
            settings.redacted_url()
        )));
    }
    let mut jetstream = jetstream::new(client);
    jetstream.set_timeout(settings.ack_timeout);
    Ok(jetstream)
}

/// The command that the flags ask for.
fn command(args: SendArgs, now: Timestamp) -> Result<MessageEnvelope, Failure> {
    let due_at = due_at(args.timer.due, args.timer.after, now)?;
    let key = key_or_new(args.tenant, args.timer.id, args.timer.name.as_deref());
    let correlation_id = args.timer.correlation;
    let correlation_id =
        correlation_id.unwrap_or_else(|| CorrelationId::from_uuid(UuidIds.next_id()));
    Ok(MessageEnvelope {
        id: EnvelopeId::from_uuid(UuidIds.next_id()),
        timestamp: now,
        metadata: MessageMetadata {
            correlation_id: Some(correlation_id),
            causation_id: None,
        },
        message: Message::ScheduleTimer(ScheduleTimer {
            tenant_id: key.tenant_id,
            service_call_id: key.service_call_id,
            due_at,
            data: args.timer.data,
        }),
    })
}

/// Where messages about timers of the command's tenant go.
fn subject(prefix: &Prefix, topic: Topic, command: &MessageEnvelope) -> String {
    format!("{}.{}", prefix.topic(topic), command.tenant_id())
}

/// Publishes until the broker has acknowledged. The id is the same each time, so it is stored once.
async fn publish(
    jetstream: &Context,
    settings: &NatsSettings,
    command: &MessageEnvelope,
) -> Result<PublishAck, Failure> {
    let payload = command
        .to_json()
        .map_err(|error| Failure::failed(format!("the command cannot be written: {error}")))?;
    let subject = subject(&settings.prefix, Topic::TimerCommands, command);
    let mut tries = 0;
    loop {
        tries += 1;
        let message = PublishMessage::build()
            .payload(payload.clone().into())
            .message_id(command.deduplication_id());
        let published = async {
            let sent = jetstream.send_publish(subject.clone(), message).await?;
            sent.await
        };
        match published.await {
            Ok(stored) => return Ok(stored),
            Err(error) if is_unknown(&error) && tries < TRIES => {}
            Err(error) => return Err(not_published(settings, command, &error)),
        }
    }
}

/// Whether the command may have been stored all the same.
fn is_unknown(error: &PublishError) -> bool {
    matches!(
        error.kind(),
        PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe
    )
}

fn not_published(
    settings: &NatsSettings,
    command: &MessageEnvelope,
    error: &PublishError,
) -> Failure {
    if is_unknown(error) {
        return Failure::failed(format!(
            "the broker at {} did not acknowledge the command, which it may have all the same: send it again with --id {}",
            settings.redacted_url(),
            command.message.service_call_id()
        ));
    }
    match error.kind() {
        PublishErrorKind::StreamNotFound => no_stream(&settings.prefix.stream("COMMANDS")),
        _ => Failure::failed(format!(
            "the broker at {} does not take the command: {}",
            settings.redacted_url(),
            with_causes(error)
        )),
    }
}

fn no_stream(name: &str) -> Failure {
    Failure::failed(format!(
        "the broker has no stream {name}: is timer-service running with this broker? its streams are made at its first start"
    ))
}

/// What an error says, with what led to it.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        let more = deeper.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = deeper.source();
    }
    text
}

/// Any error of the broker's client.
type NatsFailure = Box<dyn Error + Send + Sync>;

/// A wait for an event at or after a position in the stream.
struct Waiting {
    jetstream: Context,
    stream: String,
    subject: String,
    key: TimerKey,
    /// First sequence at which the event can be.
    first: u64,
    due_at: Timestamp,
    /// How long after its due time the event may come.
    wait: Duration,
}

impl Waiting {
    /// Takes note of where the stream ends, before anything is sent.
    async fn begin(
        jetstream: &Context,
        prefix: &Prefix,
        command: &MessageEnvelope,
        wait: Duration,
    ) -> Result<Self, Failure> {
        let stream = prefix.stream("EVENTS");
        let found = jetstream.get_stream(&stream).await;
        let found = found.map_err(|error| not_found(&stream, &error))?;
        let Message::ScheduleTimer(timer) = &command.message else {
            return Err(Failure::failed("only a ScheduleTimer can be waited for"));
        };
        Ok(Self {
            jetstream: jetstream.clone(),
            first: found.cached_info().state.last_sequence + 1,
            subject: subject(prefix, Topic::TimerEvents, command),
            key: timer.key(),
            due_at: timer.due_at,
            stream,
            wait,
        })
    }

    /// Waits until `wait` after the due time, or after now if that is later.
    async fn until_it_fires(&mut self, clock: &SystemClock) -> Result<MessageEnvelope, Failure> {
        let now = clock.now();
        let until = self.due_at.max(now).saturating_add(self.wait);
        if self.due_at.since(now) > LONG {
            crate::say(&format!(
                "waiting until {until} at the latest; --no-wait sends without waiting"
            ));
        }
        let mut trouble = None;
        tokio::select! {
            event = self.poll(clock, &mut trouble) => Ok(event),
            () = clock.sleep_until(until) => Err(self.not_fired(trouble)),
        }
    }

    fn not_fired(&self, trouble: Option<String>) -> Failure {
        let (due_at, seconds) = (self.due_at, self.wait.as_secs());
        let what = format!(
            "no event of that timer, due at {due_at}, came within {seconds} s of its due time"
        );
        let is_connected = self.jetstream.client().connection_state() == State::Connected;
        Failure::failed(match trouble {
            _ if !is_connected => format!("{what}: the connection to the broker is broken"),
            Some(trouble) => format!("{what}: the broker could not be read: {trouble}"),
            None => format!(
                "{what}: is timer-service running with this broker? A timer that has fired already does not fire again"
            ),
        })
    }

    /// Polls until the event is there. The last error is kept in `trouble` for a timeout.
    async fn poll(&mut self, clock: &SystemClock, trouble: &mut Option<String>) -> MessageEnvelope {
        loop {
            match self.consume().await {
                Ok(event) => return event,
                Err(error) => *trouble = Some(with_causes(error.as_ref())),
            }
            clock.sleep_for(PAUSE).await;
        }
    }

    /// Reads the stream until the event is there, or the reading breaks off.
    async fn consume(&mut self) -> Result<MessageEnvelope, NatsFailure> {
        let consumer = self.consumer().await?;
        loop {
            let fetch = consumer.batch().max_messages(16).expires(FETCH_TIMEOUT);
            let mut batch = fetch.messages().await?;
            let mut has_answered = false;
            while let Some(message) = batch.next().await {
                has_answered = true;
                if let Some(event) = self.read(&message?.payload) {
                    return Ok(event);
                }
            }
            if !has_answered {
                // A restarted broker has lost the ephemeral consumer.
                let stream = self.jetstream.get_stream(&self.stream).await?;
                stream.consumer_info(&consumer.cached_info().name).await?;
            }
        }
    }

    /// Creates an ephemeral consumer at the position.
    async fn consumer(&mut self) -> Result<PullConsumer, NatsFailure> {
        let stream = self.jetstream.get_stream(&self.stream).await?;
        if stream.cached_info().state.last_sequence + 1 < self.first {
            // It was made anew, or has lost its end: the numbers begin again.
            self.first = 1;
        }
        let config = pull::Config {
            deliver_policy: DeliverPolicy::ByStartSequence {
                start_sequence: self.first,
            },
            ack_policy: AckPolicy::None,
            filter_subject: self.subject.clone(),
            inactive_threshold: FORGET_AFTER,
            ..pull::Config::default()
        };
        Ok(stream.create_consumer(config).await?)
    }

    /// The event, if it is the one.
    fn read(&self, payload: &[u8]) -> Option<MessageEnvelope> {
        let envelope = MessageEnvelope::from_json(payload).ok()?;
        let Message::DueTimeReached(event) = &envelope.message else {
            return None;
        };
        (event.key() == self.key && event.due_at == self.due_at).then_some(envelope)
    }
}

fn not_found(stream: &str, error: &GetStreamError) -> Failure {
    match error.kind() {
        GetStreamErrorKind::JetStream(said) if said.error_code() == ErrorCode::STREAM_NOT_FOUND => {
            no_stream(stream)
        }
        _ => Failure::failed(format!(
            "the broker does not answer for its stream {stream}: {}",
            with_causes(error)
        )),
    }
}
