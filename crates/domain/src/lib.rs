//! The nouns of Punctual: ids, instants, timers and messages, with no I/O and no clock.
//!
//! Everything here is a plain value. A value that exists is valid: text and numbers from outside
//! are parsed once, at the boundary, into the types below, and the rest of the code never checks
//! again. The rules that decide what a second schedule, a deletion or a firing means are pure
//! functions over these values, so that every adapter applies the same ones:
//!
//! - [`schedule_order`]: what a schedule does to what is already stored;
//! - [`timer_entry`]: the states of a timer and the one transition between them;
//! - [`service_call`]: the states of a service call, and what is told when they change;
//! - [`FiringId`]: which firings are the same firing;
//! - [`fair_share()`]: how many of a limited number of slots one tenant may hold.

mod backoff;
mod dead_letter_origin;
mod fair_share;
mod firing_id;
mod ids;
#[cfg(feature = "schemars")]
mod json_schema;
pub mod messages;
pub mod schedule_order;
pub mod service_call;
mod tenant_id;
mod timer_data;
pub mod timer_entry;
mod timer_key;
mod timestamp;
#[cfg(any(test, feature = "time", feature = "jiff", feature = "chrono"))]
mod timestamp_conversions;

pub use backoff::Backoff;
pub use dead_letter_origin::DeadLetterOrigin;
pub use fair_share::fair_share;
pub use firing_id::{FiringId, FiringIdError};
pub use ids::{CorrelationId, EnvelopeId, IdError, ServiceCallId};
pub use messages::{
    DueTimeReached, EnvelopeError, Message, MessageEnvelope, MessageMetadata, ScheduleTimer, Topic,
};
pub use schedule_order::{Existing, Registration, ScheduleDecision, ScheduleOrigin};
pub use tenant_id::{TenantId, TenantIdError};
pub use timer_data::{TimerData, TimerDataError};
pub use timer_entry::{Failures, NotYetDue, ReachedTimer, ScheduledTimer, TimerEntry, TimerState};
pub use timer_key::TimerKey;
pub use timestamp::{Timestamp, TimestampError};

/// Shortens text from outside before it is put into an error message, so that a message stays one
/// readable line however long the input was.
fn excerpt(given: &str) -> String {
    const LONGEST: usize = 48;
    let mut shown: String = given
        .chars()
        .take(LONGEST)
        .flat_map(char::escape_debug)
        .collect();
    if given.chars().nth(LONGEST).is_some() {
        shown.push('…');
    }
    shown
}
