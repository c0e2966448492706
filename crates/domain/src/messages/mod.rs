//! What modules say to each other: messages, the envelope around them, and where they go.

mod envelope;
mod timer_messages;

use std::fmt;

pub use envelope::{EnvelopeError, MessageEnvelope, MessageMetadata};
pub use timer_messages::{DueTimeReached, ScheduleTimer};

use crate::{ServiceCallId, TenantId};

/// Where messages of a kind go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Topic {
    /// What the timer is asked to do: `timer.commands`.
    TimerCommands,
    /// What the timer tells: `timer.events`.
    TimerEvents,
}

impl Topic {
    /// The name of the topic, which begins every broker subject of it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TimerCommands => "timer.commands",
            Self::TimerEvents => "timer.events",
        }
    }

    /// Whether it carries commands, which one module carries out, and not events, which anybody may
    /// want to know.
    pub const fn is_of_commands(self) -> bool {
        match self {
            Self::TimerCommands => true,
            Self::TimerEvents => false,
        }
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A message of any type.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Message {
    /// A timer is to be scheduled.
    ScheduleTimer(ScheduleTimer),
    /// A timer's due time was reached.
    DueTimeReached(DueTimeReached),
}

impl Message {
    /// The name in the envelope's `type`.
    pub const fn type_name(&self) -> &'static str {
        match self {
            Self::ScheduleTimer(_) => "ScheduleTimer",
            Self::DueTimeReached(_) => "DueTimeReached",
        }
    }

    /// Where messages of this type go.
    pub const fn topic(&self) -> Topic {
        match self {
            Self::ScheduleTimer(_) => Topic::TimerCommands,
            Self::DueTimeReached(_) => Topic::TimerEvents,
        }
    }

    /// The tenant that the payload names.
    pub const fn tenant_id(&self) -> &TenantId {
        match self {
            Self::ScheduleTimer(command) => &command.tenant_id,
            Self::DueTimeReached(event) => &event.tenant_id,
        }
    }

    /// The service call that the payload is about.
    pub const fn service_call_id(&self) -> ServiceCallId {
        match self {
            Self::ScheduleTimer(command) => command.service_call_id,
            Self::DueTimeReached(event) => event.service_call_id,
        }
    }
}

impl From<ScheduleTimer> for Message {
    fn from(command: ScheduleTimer) -> Self {
        Self::ScheduleTimer(command)
    }
}

impl From<DueTimeReached> for Message {
    fn from(event: DueTimeReached) -> Self {
        Self::DueTimeReached(event)
    }
}
