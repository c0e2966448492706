//! Names of streams, subjects and consumers.
//!
//! Subjects consist of validated ids only: a tenant id has neither dots nor wildcards, so no tenant can
//! name a subject of another.

use punctual_domain::{MessageEnvelope, Topic};
use punctual_ports::ConsumerName;

use crate::Prefix;

/// A required stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamKind {
    Commands,
    Events,
}

impl StreamKind {
    pub(crate) const ALL: [Self; 2] = [Self::Commands, Self::Events];

    pub(crate) const fn of(topic: Topic) -> Self {
        if topic.is_of_commands() {
            Self::Commands
        } else {
            Self::Events
        }
    }

    pub(crate) fn name(self, prefix: &Prefix) -> String {
        prefix.stream(match self {
            Self::Commands => "COMMANDS",
            Self::Events => "EVENTS",
        })
    }

    /// The bare topics and all their subtopics.
    pub(crate) fn subjects(self, prefix: &Prefix) -> [String; 2] {
        match self {
            Self::Commands => ["*.commands", "*.commands.>"],
            Self::Events => ["*.events", "*.events.>"],
        }
        .map(|subject| prefix.subject(subject))
    }
}

/// Header that names the service call, for readers who sort messages without reading them.
pub(crate) const SERVICE_CALL_ID: &str = "Punctual-Service-Call-Id";

/// Subject of a message: `timer.events.<tenant>`. It does not name the call: the server keeps every subject
/// of a stream in memory for as long as there is a message.
pub(crate) fn subject(prefix: &Prefix, envelope: &MessageEnvelope) -> String {
    let message = &envelope.message;
    let topic = prefix.topic(message.topic());
    format!("{topic}.{}", message.tenant_id())
}

/// What a subject names after the name of its topic: nothing, the tenant, or, as the previous version wrote
/// it, tenant and service call. `None` if it is a subject of another topic.
pub(crate) fn below_topic<'a>(prefix: &Prefix, topic: Topic, subject: &'a str) -> Option<&'a str> {
    topic.names().find_map(|name| {
        let rest = subject.strip_prefix(prefix.subject(name).as_str())?;
        if rest.is_empty() {
            return Some(rest);
        }
        rest.strip_prefix('.')
    })
}

/// Where messages of a topic are read: one of its names, and the bare subject or those below it. The server
/// refuses one filter for both, so each has a durable consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Source {
    topic: Topic,
    name: &'static str,
    filter: Filter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Filter {
    /// Messages whose subject names the tenant.
    Below,
    /// Messages whose envelope alone does.
    Bare,
}

impl Source {
    /// All sources of a topic.
    pub(crate) fn of(topic: Topic) -> Vec<Self> {
        let both = |name| {
            let source = |filter| Self {
                topic,
                name,
                filter,
            };
            [Filter::Below, Filter::Bare].map(source)
        };
        topic.names().flat_map(both).collect()
    }

    pub(crate) const fn stream(self) -> StreamKind {
        StreamKind::of(self.topic)
    }

    pub(crate) fn subject(self, prefix: &Prefix) -> String {
        let name = prefix.subject(self.name);
        match self.filter {
            Filter::Below => format!("{name}.>"),
            Filter::Bare => name,
        }
    }

    /// Name of the durable consumer: `timer_timer-commands` and `timer_timer-commands_bare`.
    pub(crate) fn durable(self, consumer: &ConsumerName) -> String {
        let name = self.name.replace('.', "-");
        match self.filter {
            Filter::Below => format!("{consumer}_{name}"),
            Filter::Bare => format!("{consumer}_{name}_bare"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_domain::{EnvelopeId, MessageMetadata, ScheduleTimer, ServiceCallId};
    use punctual_domain::{TenantId, Timestamp};

    fn command(tenant_id: TenantId) -> MessageEnvelope {
        MessageEnvelope {
            id: EnvelopeId::MIN,
            timestamp: Timestamp::MIN,
            metadata: MessageMetadata::default(),
            message: ScheduleTimer {
                tenant_id,
                service_call_id: ServiceCallId::MAX,
                due_at: Timestamp::MIN,
                data: None,
            }
            .into(),
        }
    }

    #[test]
    fn a_topic_is_read_under_each_of_its_names_bare_and_below() {
        let prefix: Prefix = "acme".parse().unwrap();
        let consumer = ConsumerName::new("calls");
        let names = |topic| -> Vec<(String, String)> {
            let sources = Source::of(topic).into_iter();
            let both = sources.map(|it| (it.subject(&prefix), it.durable(&consumer)));
            both.collect()
        };
        let pair = |subject: &str, durable: &str| (subject.to_owned(), durable.to_owned());
        assert_eq!(
            names(Topic::TimerEvents),
            [
                pair("acme.timer.events.>", "calls_timer-events"),
                pair("acme.timer.events", "calls_timer-events_bare"),
            ]
        );
        assert_eq!(
            names(Topic::OrchestrationCommands),
            [
                pair(
                    "acme.orchestration.commands.>",
                    "calls_orchestration-commands"
                ),
                pair(
                    "acme.orchestration.commands",
                    "calls_orchestration-commands_bare"
                ),
                pair("acme.api.commands.>", "calls_api-commands"),
                pair("acme.api.commands", "calls_api-commands_bare"),
            ]
        );
    }

    #[test]
    fn a_subject_is_of_one_topic_only() {
        let prefix: Prefix = "acme".parse().unwrap();
        let below = |subject| below_topic(&prefix, Topic::OrchestrationCommands, subject);
        assert_eq!(below("acme.orchestration.commands"), Some(""));
        assert_eq!(below("acme.orchestration.commands.a"), Some("a"));
        assert_eq!(below("acme.api.commands.a.7"), Some("a.7"));
        for other in [
            "orchestration.commands",
            "acme.api.commandsX",
            "acme.timer.commands.a",
        ] {
            assert_eq!(below(other), None, "{other}");
        }
    }

    /// Whatever else a name has is refused when it is parsed, so nothing has to be escaped.
    #[test]
    fn every_tenant_is_one_token_of_its_subject() {
        let characters = ('\0'..='\u{2ff}').chain(['…', '日', '🍽', '\u{feff}']);
        let mut accepted = 0;
        for name in characters.flat_map(|it| [it.to_string(), format!("a{it}b")]) {
            let Ok(tenant_id) = TenantId::new(&name) else {
                continue;
            };
            let subject = subject(&Prefix::default(), &command(tenant_id));
            let tokens: Vec<&str> = subject.split('.').collect();
            assert_eq!(tokens, ["timer", "commands", name.as_str()]);
            let is_plain = |it: u8| it.is_ascii_alphanumeric() || b"_-".contains(&it);
            assert!(name.bytes().all(is_plain), "{name:?}");
            accepted += 1;
        }
        assert_eq!(accepted, 2 * 64);
    }
}
