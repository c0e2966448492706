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

/// Subject of a message: `timer.events.<tenant>.<service call>`.
pub(crate) fn subject(prefix: &Prefix, envelope: &MessageEnvelope) -> String {
    let message = &envelope.message;
    format!(
        "{}.{}.{}",
        prefix.topic(message.topic()),
        message.tenant_id(),
        message.service_call_id()
    )
}

/// The two subjects of a topic. The server refuses one filter for both, so there are two durable consumers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filter {
    /// Messages whose subject names tenant and service call.
    Below,
    /// Messages whose envelope alone does.
    Bare,
}

impl Filter {
    pub(crate) const ALL: [Self; 2] = [Self::Below, Self::Bare];

    pub(crate) fn subject(self, prefix: &Prefix, topic: Topic) -> String {
        let topic = prefix.topic(topic);
        match self {
            Self::Below => format!("{topic}.>"),
            Self::Bare => topic,
        }
    }

    /// Name of the durable consumer: `timer_timer-commands` and `timer_timer-commands_bare`.
    pub(crate) fn durable(self, consumer: &ConsumerName, topic: Topic) -> String {
        let topic = topic.as_str().replace('.', "-");
        match self {
            Self::Below => format!("{consumer}_{topic}"),
            Self::Bare => format!("{consumer}_{topic}_bare"),
        }
    }
}
