//! The messages between modules, their envelope and their topics.

mod call_messages;
mod envelope;
mod execution_messages;
mod timer_messages;

use serde::{Serialize, Serializer};

pub use call_messages::{
    DeleteServiceCall, ServiceCallDeleted, ServiceCallFailed, ServiceCallRunning,
    ServiceCallScheduled, ServiceCallSubmitted, ServiceCallSucceeded, SubmitServiceCall,
};
pub use envelope::{EnvelopeError, MessageEnvelope, MessageMetadata};
pub use execution_messages::{
    ExecutionFailed, ExecutionStarted, ExecutionSucceeded, StartExecution,
};
pub use timer_messages::{DueTimeReached, ScheduleTimer};

use crate::text_forms::named_variants;
use crate::{EnvelopeId, ServiceCallId, TenantId, Timestamp};

named_variants! {
    /// Topic of messages. Its text is the prefix of its broker subjects.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[non_exhaustive]
    pub enum Topic {
        /// Commands to orchestration: `orchestration.commands`.
        OrchestrationCommands = "orchestration.commands",
        /// Events of calls: `orchestration.events`.
        OrchestrationEvents = "orchestration.events",
        /// Commands to the timer: `timer.commands`.
        TimerCommands = "timer.commands",
        /// Events of timers: `timer.events`.
        TimerEvents = "timer.events",
        /// Commands to execution: `execution.commands`.
        ExecutionCommands = "execution.commands",
        /// Events of attempts: `execution.events`.
        ExecutionEvents = "execution.events",
    }
}

impl Topic {
    /// Another name under which other programs may write to it.
    pub const fn alias(self) -> Option<&'static str> {
        match self {
            // The API of the original specification publishes its commands under its own name.
            Self::OrchestrationCommands => Some("api.commands"),
            Self::OrchestrationEvents
            | Self::TimerCommands
            | Self::TimerEvents
            | Self::ExecutionCommands
            | Self::ExecutionEvents => None,
        }
    }

    /// Every name under which it is read, its own first.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.as_str()).chain(self.alias())
    }

    /// Whether it carries commands, which have one consumer, rather than events.
    pub const fn is_of_commands(self) -> bool {
        match self {
            Self::OrchestrationCommands | Self::TimerCommands | Self::ExecutionCommands => true,
            Self::OrchestrationEvents | Self::TimerEvents | Self::ExecutionEvents => false,
        }
    }
}

/// Phase of a call in which a message is written. Phases are ordered, so that messages with the same
/// timestamp can be sorted by when they happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Phase {
    /// Up to the due time: the call is submitted, scheduled or deleted.
    BeforeDueTime,
    /// The due time itself.
    AtDueTime,
    /// From the due time on: the call is executed and has its outcome.
    AfterDueTime,
}

/// Who receives the messages about calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Listeners {
    /// Whoever subscribes to the bus.
    #[default]
    Anyone,
    /// The modules of the service alone: nobody else can subscribe to their bus.
    Modules,
}

impl Listeners {
    /// Whether anybody receives this message. What secrets are in is always received: by a module.
    pub const fn receive(self, message: &Message) -> bool {
        match self {
            Self::Anyone => true,
            Self::Modules => message.is_for_a_module(),
        }
    }
}

impl Message {
    /// Whether a module of the service acts on messages of this type. The others tell what has happened.
    const fn is_for_a_module(&self) -> bool {
        match self {
            Self::SubmitServiceCall(_)
            | Self::DeleteServiceCall(_)
            | Self::ScheduleTimer(_)
            | Self::StartExecution(_)
            | Self::DueTimeReached(_)
            | Self::ServiceCallDeleted(_)
            | Self::ExecutionStarted(_)
            | Self::ExecutionSucceeded(_)
            | Self::ExecutionFailed(_) => true,
            Self::ServiceCallSubmitted(_)
            | Self::ServiceCallScheduled(_)
            | Self::ServiceCallRunning(_)
            | Self::ServiceCallSucceeded(_)
            | Self::ServiceCallFailed(_) => false,
        }
    }
}

/// What an envelope says that its payload may leave out.
struct Envelope {
    id: EnvelopeId,
    timestamp: Timestamp,
    aggregate_id: Option<ServiceCallId>,
}

/// A payload as it is read: leniently, since other programs and other versions write it, too.
trait Payload: Sized {
    /// Reads it, completed by its envelope.
    fn parse(json: &str, envelope: &Envelope) -> serde_json::Result<Self>;
}

/// Defines all that is the same for every type of message, so that a new one is one line.
macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident => $topic:ident, $phase:ident;)*) => {
        /// A message of any type.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Message {
            $($(#[$doc])* $name($name),)*
        }

        impl Message {
            /// The names of all types.
            pub const TYPES: &'static [&'static str] = &[$(stringify!($name),)*];

            /// The name in the envelope's `type`.
            pub const fn type_name(&self) -> &'static str {
                match self {
                    $(Self::$name(_) => stringify!($name),)*
                }
            }

            /// The topic of this type.
            pub const fn topic(&self) -> Topic {
                match self {
                    $(Self::$name(_) => Topic::$topic,)*
                }
            }

            /// The phase in which messages of this type are written.
            pub const fn phase(&self) -> Phase {
                match self {
                    $(Self::$name(_) => Phase::$phase,)*
                }
            }

            /// The tenant that the payload names.
            pub const fn tenant_id(&self) -> &TenantId {
                match self {
                    $(Self::$name(message) => &message.tenant_id,)*
                }
            }

            /// The service call that the payload is about.
            pub const fn service_call_id(&self) -> ServiceCallId {
                match self {
                    $(Self::$name(message) => message.service_call_id,)*
                }
            }

            /// Parses the payload of a type; `None` if there is no such type.
            fn read(
                type_name: &str,
                payload: &str,
                envelope: &Envelope,
            ) -> Option<(&'static str, serde_json::Result<Self>)> {
                match type_name {
                    $(stringify!($name) => {
                        Some((stringify!($name), $name::parse(payload, envelope).map(Self::$name)))
                    })*
                    _ => None,
                }
            }
        }

        /// The payload alone.
        impl Serialize for Message {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    $(Self::$name(message) => message.serialize(serializer),)*
                }
            }
        }

        $(impl From<$name> for Message {
            fn from(message: $name) -> Self {
                Self::$name(message)
            }
        })*
    };
}

messages! {
    /// A call is submitted.
    SubmitServiceCall => OrchestrationCommands, BeforeDueTime;
    /// A call is to be deleted.
    DeleteServiceCall => OrchestrationCommands, BeforeDueTime;
    /// A timer is to be scheduled.
    ScheduleTimer => TimerCommands, BeforeDueTime;
    /// The attempt of a call is to be made.
    StartExecution => ExecutionCommands, AfterDueTime;
    /// A timer's due time was reached.
    DueTimeReached => TimerEvents, AtDueTime;
    /// A call was accepted.
    ServiceCallSubmitted => OrchestrationEvents, BeforeDueTime;
    /// A call is waiting for its due time.
    ServiceCallScheduled => OrchestrationEvents, BeforeDueTime;
    /// A call was started.
    ServiceCallRunning => OrchestrationEvents, AfterDueTime;
    /// A call has succeeded.
    ServiceCallSucceeded => OrchestrationEvents, AfterDueTime;
    /// A call has failed.
    ServiceCallFailed => OrchestrationEvents, AfterDueTime;
    /// A call was deleted.
    ServiceCallDeleted => OrchestrationEvents, BeforeDueTime;
    /// An attempt has started.
    ExecutionStarted => ExecutionEvents, AfterDueTime;
    /// An attempt has succeeded.
    ExecutionSucceeded => ExecutionEvents, AfterDueTime;
    /// An attempt has failed.
    ExecutionFailed => ExecutionEvents, AfterDueTime;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_topics_share_a_name_and_each_begins_with_its_own() {
        let mut all = Vec::new();
        for topic in Topic::ALL {
            assert_eq!(topic.names().next(), Some(topic.as_str()));
            all.extend(topic.names());
            // Streams tell commands from events by the second word.
            let kind = if topic.is_of_commands() {
                "commands"
            } else {
                "events"
            };
            let words = |name: &str| name.split('.').map(str::to_owned).collect::<Vec<_>>();
            assert!(topic.names().all(|name| words(name)[1..] == [kind]));
        }
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
        assert_eq!(Topic::OrchestrationCommands.alias(), Some("api.commands"));
    }
}
