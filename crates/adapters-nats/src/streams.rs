//! The required streams and consumers: created if missing, and checked if they exist. One that would drop
//! messages is refused with what to change, and never changed: an operator configured it.

use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, FromConsumer, PullConsumer, pull};
use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::stream::{
    Config, DiscardPolicy, Info, RetentionPolicy, StorageType, Stream,
};
use async_nats::jetstream::{self, ErrorCode};
use punctual_ports::ConsumerName;

use crate::names::{Source, StreamKind};
use crate::{MAX_MESSAGE_BYTES, NatsError, NatsSettings, Prefix};

/// Retention of events.
pub(crate) const KEEP_EVENTS: Duration = Duration::from_hours(7 * 24);

/// Deduplication window of the server. A message published again within it, after its acknowledgement was
/// lost, is stored once.
const DUPLICATE_WINDOW: Duration = Duration::from_mins(2);

/// Maximum number of delivered commands without an acknowledgement, deferred ones included.
const MAX_COMMANDS_PENDING: i64 = 20_000;

/// The same for events. Up to this number, unsettled events of some tenants delay no other tenant: the
/// server delivers those behind them, too.
const MAX_EVENTS_PENDING: i64 = 100_000;

/// Configuration of a stream.
fn wanted(kind: StreamKind, prefix: &Prefix) -> Config {
    let (retention, max_age) = match kind {
        StreamKind::Commands => (RetentionPolicy::WorkQueue, Duration::ZERO),
        StreamKind::Events => (RetentionPolicy::Limits, KEEP_EVENTS),
    };
    Config {
        name: kind.name(prefix),
        subjects: kind.subjects(prefix).to_vec(),
        retention,
        max_age,
        max_messages: -1,
        max_bytes: -1,
        max_messages_per_subject: -1,
        // A full stream refuses new messages instead of dropping old ones.
        discard: DiscardPolicy::New,
        storage: StorageType::File,
        num_replicas: 1,
        duplicate_window: DUPLICATE_WINDOW,
        ..Config::default()
    }
}

/// Gets the stream, if it exists, and refuses one that would lose messages.
pub(crate) async fn find(
    context: &jetstream::Context,
    kind: StreamKind,
    prefix: &Prefix,
) -> Result<Option<Stream<Info>>, NatsError> {
    let found = match context.get_stream(kind.name(prefix)).await {
        Ok(found) => found,
        Err(error) if is_missing(&error.kind()) => return Ok(None),
        Err(error) => return Err(unavailable(kind, prefix, &error)),
    };
    match problems(kind, prefix, &found.cached_info().config).as_slice() {
        [] => Ok(Some(found)),
        problems => Err(NatsError::unsuitable(problems.join("; "))),
    }
}

/// Creates the stream.
pub(crate) async fn make(
    context: &jetstream::Context,
    kind: StreamKind,
    prefix: &Prefix,
) -> Result<Stream<Info>, NatsError> {
    let made = context.create_stream(wanted(kind, prefix)).await;
    let made = made.map_err(|error| unavailable(kind, prefix, &error))?;
    tracing::info!(
        stream = kind.name(prefix),
        "a stream was missing and was made"
    );
    Ok(made)
}

fn is_missing(kind: &GetStreamErrorKind) -> bool {
    matches!(kind, GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

/// A refusal by the server needs an operator; a missing response may be transient.
fn unavailable(kind: StreamKind, prefix: &Prefix, error: &impl std::fmt::Display) -> NatsError {
    let (name, error) = (kind.name(prefix), error.to_string());
    let no_jetstream = ["no responders", "not enabled", "resource does not exist"];
    if no_jetstream.iter().any(|words| error.contains(words)) {
        return NatsError::unsuitable(
            "the broker has no JetStream for this account: start it with -js, or give the account a jetstream section",
        );
    }
    if error.contains("overlap") {
        return NatsError::unsuitable(format!(
            "stream {name} cannot be made, because another stream takes some of its subjects already ({error}): where several installations share a broker each needs a prefix, also the first one"
        ));
    }
    NatsError::stream_unreachable(&name, &error)
}

/// The subjects that a stream lacks.
fn missing(wanted: &[String], found: &[String]) -> String {
    let missing = wanted.iter().filter(|subject| !found.contains(subject));
    let missing: Vec<&str> = missing.map(String::as_str).collect();
    missing.join(" and ")
}

/// Problems of an existing stream, each with what to change.
pub(crate) fn problems(kind: StreamKind, prefix: &Prefix, found: &Config) -> Vec<String> {
    let wanted = wanted(kind, prefix);
    let name = &wanted.name;
    let mut problems = Vec::new();
    let mut wrong = |is_wrong: bool, what: &str| {
        if is_wrong {
            problems.push(format!("stream {name} {what}"));
        }
    };
    let missing = missing(&wanted.subjects, &found.subjects);
    wrong(
        !missing.is_empty(),
        &format!("does not take {missing}: add it to its subjects"),
    );
    wrong(
        found.retention != wanted.retention,
        match kind {
            StreamKind::Commands => {
                "is not a work queue: make it anew with the retention workqueue"
            }
            StreamKind::Events => {
                "does not keep what was read: make it anew with the retention limits"
            }
        },
    );
    wrong(
        found.storage != StorageType::File,
        "is kept in memory, so a restart of the broker empties it: make it anew with file storage",
    );
    wrong(
        found.max_age > Duration::ZERO
            && (wanted.max_age.is_zero() || found.max_age < wanted.max_age),
        match kind {
            StreamKind::Commands => "drops commands by age: set its max age to unlimited",
            StreamKind::Events => "drops events before seven days: set its max age to 7d or more",
        },
    );
    let drops_old = found.discard == DiscardPolicy::Old;
    wrong(
        drops_old && (found.max_messages > 0 || found.max_bytes > 0),
        "drops its oldest messages when it is full: set its discard policy to new, or its limits of messages and bytes to unlimited",
    );
    wrong(
        found.max_messages_per_subject > 0,
        "keeps only some messages of each subject: set its max messages per subject to unlimited",
    );
    wrong(
        found.max_message_size > 0
            && usize::try_from(found.max_message_size).is_ok_and(|size| size < MAX_MESSAGE_BYTES),
        "refuses messages of a size that we take: set its max message size to 1 MiB or more",
    );
    wrong(
        found.no_ack,
        "acknowledges nothing, so whether it has stored a message is unknown: make it anew with acknowledgements",
    );
    wrong(
        found.sealed,
        "is sealed and takes no more messages: make it anew",
    );
    wrong(
        found.mirror.is_some(),
        "is a mirror of another stream and takes no messages: make it anew without",
    );
    problems
}

/// Problems of the existing streams. Nothing is created or changed.
///
/// # Errors
/// If the broker does not respond.
pub async fn examine(client: &Client, prefix: &Prefix) -> Result<Vec<String>, NatsError> {
    let context = jetstream::new(client.clone());
    let mut found = Vec::new();
    for kind in StreamKind::ALL {
        match context.get_stream(kind.name(prefix)).await {
            Ok(stream) => found.extend(problems(kind, prefix, &stream.cached_info().config)),
            Err(error) if is_missing(&error.kind()) => {}
            Err(error) => match unavailable(kind, prefix, &error) {
                NatsError::Unsuitable { what } => found.push(what),
                error => return Err(error),
            },
        }
    }
    Ok(found)
}

/// Gets the durable consumer, creating it if missing, and refuses one that would lose messages.
pub(crate) async fn ensure_consumer(
    context: &jetstream::Context,
    settings: &NatsSettings,
    consumer: &ConsumerName,
    source: Source,
) -> Result<PullConsumer, NatsError> {
    let prefix = &settings.prefix;
    let kind = source.stream();
    // The link creates it at the right time.
    let Some(stream) = find(context, kind, prefix).await? else {
        let missing = NatsError::stream_unreachable(&kind.name(prefix), &"it is missing");
        return Err(missing);
    };
    let durable = source.durable(consumer);
    let owner = settings.owners.get(consumer.as_str());
    let wanted = pull::Config {
        durable_name: Some(durable.clone()),
        description: owner.map(|owner| owned_by(owner)),
        deliver_policy: DeliverPolicy::All,
        ack_policy: AckPolicy::Explicit,
        ack_wait: settings.ack_wait,
        max_deliver: -1,
        filter_subject: source.subject(prefix),
        max_ack_pending: match kind {
            StreamKind::Commands => MAX_COMMANDS_PENDING,
            StreamKind::Events => MAX_EVENTS_PENDING,
        },
        ..pull::Config::default()
    };
    let mut found: PullConsumer = stream
        .get_or_create_consumer(&durable, wanted.clone())
        .await
        .map_err(|error| consumer_unavailable(&kind.name(prefix), &durable, &error))?;
    if (1..wanted.max_ack_pending).contains(&found.cached_info().config.max_ack_pending) {
        // An earlier version created it.
        let max_ack_pending = wanted.max_ack_pending;
        let raised = |config| pull::Config {
            max_ack_pending,
            ..config
        };
        match changed(&stream, &found, raised).await {
            Ok(raised) => found = raised,
            Err(error) => tracing::warn!(
                error,
                consumer = durable,
                "the consumer may have fewer messages unfinished than it should"
            ),
        }
    }
    if let Some(owner) = owner {
        found = check_owner(&stream, &durable, found, owner).await?;
    }
    match consumer_problems(&durable, &wanted, &found.cached_info().config).as_slice() {
        [] => Ok(found),
        problems => Err(NatsError::unsuitable(problems.join("; "))),
    }
}

/// The same consumer with something changed. The rest of its configuration stays.
async fn changed(
    stream: &Stream<Info>,
    found: &PullConsumer,
    change: impl FnOnce(pull::Config) -> pull::Config,
) -> Result<PullConsumer, String> {
    let config = found.cached_info().config.clone();
    let config = pull::Config::try_from_consumer_config(config);
    let config = change(config.map_err(|error| error.to_string())?);
    let changed = stream.create_consumer(config).await;
    changed.map_err(|error| error.to_string())
}

/// How the description of a consumer begins whose messages go into one database. Servers before 2.10 have no
/// other place for it.
const OWNED_BY: &str = "Its messages go into the database ";

fn owned_by(owner: &str) -> String {
    format!("{OWNED_BY}{owner}")
}

/// Whose a consumer is, if it says so.
fn owner_of(found: &PullConsumer) -> Option<&str> {
    let description = found.cached_info().config.description.as_deref();
    description?.strip_prefix(OWNED_BY)
}

/// Refuses a consumer of another database, and takes one that is nobody's.
async fn check_owner(
    stream: &Stream<Info>,
    durable: &str,
    found: PullConsumer,
    owner: &str,
) -> Result<PullConsumer, NatsError> {
    match owner_of(&found) {
        Some(other) if other == owner => Ok(found),
        Some(other) => Err(NatsError::unsuitable(format!(
            "consumer {durable} belongs to the database {other}, and the one here is {owner}: two services that shared it would each get a part of its messages. Give one of them another prefix; or, if that database is gone or was moved here, remove the consumer, and it is made anew"
        ))),
        None => {
            // An earlier version created it, or an operator.
            let described = |config| pull::Config {
                description: Some(owned_by(owner)),
                ..config
            };
            match changed(stream, &found, described).await {
                Ok(described) => Ok(described),
                Err(error) => {
                    tracing::warn!(
                        error,
                        consumer = durable,
                        "the consumer does not say which database its messages go into"
                    );
                    Ok(found)
                }
            }
        }
    }
}

fn consumer_unavailable(stream: &str, durable: &str, error: &impl std::fmt::Display) -> NatsError {
    let error = error.to_string();
    if error.contains("not unique") || error.contains("multiple non-filtered") {
        return NatsError::unsuitable(format!(
            "consumer {durable} cannot be made, because another one takes the same messages of the work queue {stream} already: remove that one"
        ));
    }
    NatsError::Unreachable {
        servers: format!("the consumer {durable}"),
        reason: error,
    }
}

fn consumer_problems(
    durable: &str,
    wanted: &pull::Config,
    found: &jetstream::consumer::Config,
) -> Vec<String> {
    let mut problems = Vec::new();
    let mut wrong = |is_wrong: bool, what: &str| {
        if is_wrong {
            problems.push(format!(
                "consumer {durable} {what}: remove it, and it is made anew as it should be"
            ));
        }
    };
    wrong(
        found.filter_subject != wanted.filter_subject,
        &format!("does not listen to {}", wanted.filter_subject),
    );
    wrong(
        found.ack_policy != wanted.ack_policy,
        "does not ask for an acknowledgement of each message",
    );
    wrong(
        found.max_deliver > 0,
        "gives up on messages after some deliveries",
    );
    wrong(found.headers_only, "delivers no payloads");
    wrong(
        found.deliver_policy != wanted.deliver_policy,
        "leaves out what was there before it",
    );
    wrong(
        found.ack_wait < wanted.ack_wait,
        "gives out messages again before we had our time",
    );
    problems
}

#[cfg(test)]
mod tests {
    use super::StreamKind::{Commands, Events};
    use super::*;

    fn good(kind: StreamKind) -> Config {
        wanted(kind, &Prefix::default())
    }

    #[test]
    fn created_streams_are_accepted() {
        for kind in StreamKind::ALL {
            assert!(problems(kind, &Prefix::default(), &good(kind)).is_empty());
        }
    }

    #[test]
    fn a_stream_that_would_lose_messages_is_refused_with_what_to_change() {
        type Spoil = fn(&mut Config);
        let cases: [(StreamKind, Spoil, &str); 11] = [
            (Commands, |c| c.subjects.clear(), "add it to its subjects"),
            (
                Commands,
                |c| c.retention = RetentionPolicy::Limits,
                "retention workqueue",
            ),
            (
                Events,
                |c| c.retention = RetentionPolicy::Interest,
                "retention limits",
            ),
            (Events, |c| c.storage = StorageType::Memory, "file storage"),
            (
                Commands,
                |c| c.max_age = KEEP_EVENTS,
                "max age to unlimited",
            ),
            (Events, |c| c.max_age = KEEP_EVENTS / 2, "7d or more"),
            (
                Events,
                |c| {
                    c.discard = DiscardPolicy::Old;
                    c.max_bytes = 1;
                },
                "discard policy to new",
            ),
            (
                Commands,
                |c| c.max_messages_per_subject = 1,
                "per subject to unlimited",
            ),
            (Events, |c| c.max_message_size = 1_000, "1 MiB or more"),
            (Events, |c| c.no_ack = true, "with acknowledgements"),
            (Events, |c| c.sealed = true, "is sealed"),
        ];
        for (kind, spoil, advice) in cases {
            let mut config = good(kind);
            spoil(&mut config);
            let found = problems(kind, &Prefix::default(), &config);
            assert!(
                matches!(found.as_slice(), [one] if one.contains(advice)),
                "{found:?}"
            );
        }
    }

    #[test]
    fn limits_that_refuse_the_new_and_a_longer_age_are_fine() {
        let mut config = good(Events);
        config.max_bytes = 1 << 30;
        config.max_age = KEEP_EVENTS * 2;
        assert!(problems(Events, &Prefix::default(), &config).is_empty());
        config.max_age = Duration::ZERO;
        assert!(problems(Events, &Prefix::default(), &config).is_empty());
    }
}
