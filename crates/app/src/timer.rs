//! A timer that a caller wants.

use std::time::Duration;

use punctual_domain::{CorrelationId, TimerData, TimerDataError, TimerKey, Timestamp};
use punctual_workflows::TimerRequest;
use serde::Serialize;

/// A timer to be scheduled: which, when, and what comes back when it fires.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use punctual::{TenantId, Timer, TimerKey};
///
/// let key = TimerKey::named(TenantId::new("acme")?, "order-123");
/// let in_an_hour = Timer::after(key.clone(), Duration::from_hours(1));
/// let tomorrow = Timer::at(key.clone(), SystemTime::now() + Duration::from_hours(24));
/// let at_six = Timer::at(key, "2026-12-24T18:00:00+01:00".parse::<punctual::Timestamp>()?)
///     .data(&serde_json::json!({ "say": "closing time" }))?;
/// # Ok::<(), punctual::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a timer fires only if it is given to `schedule`"]
pub struct Timer {
    key: TimerKey,
    due: Due,
    correlation_id: Option<CorrelationId>,
    data: Option<TimerData>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    At(Timestamp),
    After(Duration),
}

impl Timer {
    /// A timer that is due at an instant; one that has passed means now. What is finer than a
    /// millisecond is rounded up, so that it is never early.
    pub fn at(key: TimerKey, due_at: impl Into<Timestamp>) -> Self {
        Self::new(key, Due::At(due_at.into()))
    }

    /// A timer that is due so long after it is scheduled, by the engine's clock.
    pub const fn after(key: TimerKey, delay: Duration) -> Self {
        Self::new(key, Due::After(delay))
    }

    const fn new(key: TimerKey, due: Due) -> Self {
        Self {
            key,
            due,
            correlation_id: None,
            data: None,
        }
    }

    /// Attaches a value that comes back with the event, as JSON of at most 16 KiB.
    ///
    /// # Errors
    /// If it is longer, or cannot be written as JSON.
    pub fn data<T: Serialize + ?Sized>(self, value: &T) -> Result<Self, TimerDataError> {
        Ok(self.raw_data(TimerData::of(value)?))
    }

    /// Attaches JSON that was checked before.
    pub fn raw_data(mut self, data: TimerData) -> Self {
        self.data = Some(data);
        self
    }

    /// Says which request it belongs to, for [`Punctual::trace`](crate::Punctual::trace). Without
    /// it, a new id is drawn.
    pub const fn correlation(mut self, id: CorrelationId) -> Self {
        self.correlation_id = Some(id);
        self
    }

    /// Which timer it is.
    pub const fn key(&self) -> &TimerKey {
        &self.key
    }

    /// The request to the workflow. `now` is rounded up: a delay counted from an instant that has
    /// passed already would be over early.
    pub(crate) fn request(self, now: Timestamp) -> TimerRequest {
        let due_at = match self.due {
            Due::At(instant) => instant,
            Due::After(delay) => now.saturating_add(delay),
        };
        TimerRequest {
            key: self.key,
            due_at,
            correlation_id: self.correlation_id,
            data: self.data,
        }
    }
}
