//! The domain model of Punctual: ids, instants, timers, service calls and messages. No I/O, no clock.
//!
//! Everything here is a plain value, valid once it exists: input is parsed once, at the boundary, and
//! never checked again. The rules of scheduling, deleting and firing are pure functions over these
//! values, so that every adapter applies the same ones:
//!
//! - [`schedule_order`]: the effect of a schedule on the stored timer;
//! - [`Existing`]: what a mark or a deletion does to it;
//! - [`timer_entry`]: the states of a timer and the transition between them;
//! - [`service_call`]: the states of a service call and the messages about their changes;
//! - [`FiringId`]: the identity of a firing;
//! - [`fair_share()`]: how many of a limited number of slots one tenant may hold;
//! - [`claim_sharing`]: which due timers a claim takes if there are too many.

mod backoff;
pub mod claim_sharing;
mod dead_letter_origin;
mod fair_share;
mod firing_id;
mod ids;
#[cfg(feature = "schemars")]
mod json_schema;
pub mod messages;
mod round_robin;
pub mod schedule_order;
pub mod service_call;
mod settlement;
mod tenant_id;
mod text_forms;
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
pub use round_robin::{Cycle, interleave};
pub use schedule_order::{Existing, Registration, ScheduleDecision, ScheduleOrigin};
pub use settlement::{DeleteOutcome, MarkOutcome};
pub use tenant_id::{TenantId, TenantIdError};
pub use timer_data::{TimerData, TimerDataError};
pub use timer_entry::{Failures, NotYetDue, ReachedTimer, ScheduledTimer, TimerEntry, TimerState};
pub use timer_key::TimerKey;
pub use timestamp::{Timestamp, TimestampError};

/// Truncates input for an error message, so that the message stays one readable line.
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
