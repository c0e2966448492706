//! The state machine of a timer.
//!
//! | from | event | to | rule |
//! |---|---|---|---|
//! | – | schedule | Scheduled | [`crate::schedule_order`] |
//! | Scheduled | schedule again | Scheduled | [`crate::schedule_order`] |
//! | Scheduled | its due time is reached | Reached | only at or after `due_at`: [`ScheduledTimer::reach`] |
//! | Scheduled | delete | – | not while it fires |
//! | Reached | – | – | final; to fire again takes a new schedule |
//!
//! The states are types. There is no way to make a [`ReachedTimer`] out of a [`ScheduledTimer`]
//! before its due time, and no way back.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    CorrelationId, DueTimeReached, FiringId, Registration, ServiceCallId, TenantId, TimerData,
    TimerKey, Timestamp,
};

/// A timer waiting for its due time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduledTimer {
    /// The key of the timer.
    pub key: TimerKey,
    /// The request that the timer belongs to.
    pub correlation_id: CorrelationId,
    /// When it was registered and when it is due.
    pub registration: Registration,
    /// Data attached by the caller.
    pub data: Option<TimerData>,
}

/// A timer whose due time was reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReachedTimer {
    timer: ScheduledTimer,
    reached_at: Timestamp,
}

/// Error for a timer that was to fire before its due time.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{} is due at {}, which is after {now}", .timer.key, .timer.registration.due_at)]
pub struct NotYetDue {
    /// The timer, unchanged.
    pub timer: Box<ScheduledTimer>,
    /// The time at which it was to fire.
    pub now: Timestamp,
}

impl ScheduledTimer {
    /// Marks the due time as reached: the only transition to a [`ReachedTimer`].
    ///
    /// # Errors
    /// If `now` is before the due time, with the unchanged timer: no timer fires early.
    pub fn reach(self, now: Timestamp) -> Result<ReachedTimer, NotYetDue> {
        if now < self.registration.due_at {
            return Err(NotYetDue {
                timer: Box::new(self),
                now,
            });
        }
        Ok(ReachedTimer {
            timer: self,
            reached_at: now,
        })
    }

    /// The id of the firing of this schedule.
    pub fn firing_id(&self) -> FiringId {
        FiringId {
            key: self.key.clone(),
            registration: self.registration,
        }
    }
}

impl ReachedTimer {
    /// Restores a reached timer from storage. Not for firing: that is
    /// [`ScheduledTimer::reach`].
    pub const fn restore(timer: ScheduledTimer, reached_at: Timestamp) -> Self {
        Self { timer, reached_at }
    }

    /// The timer as it was scheduled.
    pub const fn timer(&self) -> &ScheduledTimer {
        &self.timer
    }

    /// When the worker noticed that the due time was reached.
    pub const fn reached_at(&self) -> Timestamp {
        self.reached_at
    }

    /// The event to publish.
    pub fn event(&self) -> DueTimeReached {
        DueTimeReached {
            tenant_id: self.timer.key.tenant_id.clone(),
            service_call_id: self.timer.key.service_call_id,
            reached_at: self.reached_at,
            due_at: self.timer.registration.due_at,
            firing_id: self.timer.firing_id(),
            data: self.timer.data.clone(),
        }
    }
}

/// State of a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TimerState {
    /// Waiting for its due time.
    Scheduled,
    /// Its due time was reached.
    Reached,
}

/// The failed firings of the current schedule; a reschedule clears them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Failures {
    /// Number of firings that failed and were to be retried.
    pub attempts: u32,
    /// Why the last one failed. It stays after a success; a dead letter sets it to its own reason.
    pub last_error: Option<String>,
}

/// A timer in any state.
///
/// Serialised as the timer of the public contract: `tenantId`, `serviceCallId`, `correlationId`,
/// `dueAt`, `registeredAt`, `reachedAt` if it was reached, `state`, `data` if there is any, and `attempts`
/// and `lastError` if firings have failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schemars",
    derive(schemars::JsonSchema),
    schemars(rename = "Timer", description = "")
)]
#[serde(into = "TimerJson", try_from = "TimerJson")]
pub enum TimerEntry {
    /// Waiting for its due time.
    Scheduled {
        /// The timer.
        timer: ScheduledTimer,
        /// Its failed firings.
        failures: Failures,
    },
    /// Its due time was reached.
    Reached {
        /// The timer.
        timer: ReachedTimer,
        /// Its failed firings.
        failures: Failures,
    },
}

impl TimerEntry {
    /// The timer as it was scheduled.
    pub const fn timer(&self) -> &ScheduledTimer {
        match self {
            Self::Scheduled { timer, .. } => timer,
            Self::Reached { timer, .. } => timer.timer(),
        }
    }

    /// Its failed firings.
    pub const fn failures(&self) -> &Failures {
        match self {
            Self::Scheduled { failures, .. } | Self::Reached { failures, .. } => failures,
        }
    }

    /// The state.
    pub const fn state(&self) -> TimerState {
        match self {
            Self::Scheduled { .. } => TimerState::Scheduled,
            Self::Reached { .. } => TimerState::Reached,
        }
    }

    /// When the worker noticed that the due time was reached, if it was.
    pub const fn reached_at(&self) -> Option<Timestamp> {
        match self {
            Self::Scheduled { .. } => None,
            Self::Reached { timer, .. } => Some(timer.reached_at()),
        }
    }
}

/// A timer: when it is due, and whether that time was reached.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct TimerJson {
    tenant_id: TenantId,
    service_call_id: ServiceCallId,
    correlation_id: CorrelationId,
    due_at: Timestamp,
    registered_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reached_at: Option<Timestamp>,
    state: TimerState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<TimerData>,
    /// Number of failed firings; omitted if zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schemars", schemars(range(min = 1)))]
    attempts: Option<u32>,
    /// Why the last one failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
}

impl From<TimerEntry> for TimerJson {
    fn from(entry: TimerEntry) -> Self {
        let (state, reached_at) = (entry.state(), entry.reached_at());
        let (TimerEntry::Scheduled { timer, failures }
        | TimerEntry::Reached {
            timer: ReachedTimer { timer, .. },
            failures,
        }) = entry;
        Self {
            tenant_id: timer.key.tenant_id,
            service_call_id: timer.key.service_call_id,
            correlation_id: timer.correlation_id,
            due_at: timer.registration.due_at,
            registered_at: timer.registration.registered_at,
            reached_at,
            state,
            data: timer.data,
            attempts: (failures.attempts > 0).then_some(failures.attempts),
            last_error: failures.last_error,
        }
    }
}

impl TryFrom<TimerJson> for TimerEntry {
    type Error = &'static str;

    fn try_from(json: TimerJson) -> Result<Self, Self::Error> {
        let timer = ScheduledTimer {
            key: TimerKey::new(json.tenant_id, json.service_call_id),
            correlation_id: json.correlation_id,
            registration: Registration {
                registered_at: json.registered_at,
                due_at: json.due_at,
            },
            data: json.data,
        };
        let failures = Failures {
            attempts: json.attempts.unwrap_or_default(),
            last_error: json.last_error,
        };
        match (json.state, json.reached_at) {
            (TimerState::Scheduled, None) => Ok(Self::Scheduled { timer, failures }),
            (TimerState::Reached, Some(at)) => Ok(Self::Reached {
                timer: ReachedTimer::restore(timer, at),
                failures,
            }),
            (TimerState::Scheduled, Some(_)) => Err("a Scheduled timer has no reachedAt"),
            (TimerState::Reached, None) => Err("a Reached timer needs reachedAt"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timer(due_at: i64) -> ScheduledTimer {
        ScheduledTimer {
            key: TimerKey::named(TenantId::default(), "t"),
            correlation_id: "0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8e".parse().unwrap(),
            registration: Registration {
                registered_at: Timestamp::MIN,
                due_at: Timestamp::from_millis(due_at).unwrap(),
            },
            data: Some(TimerData::from_json("{\"order\":1}").unwrap()),
        }
    }

    fn scheduled(failures: Failures) -> TimerEntry {
        let timer = timer(1_000);
        TimerEntry::Scheduled { timer, failures }
    }

    #[test]
    fn a_timer_reaches_its_due_time_at_it_and_not_a_millisecond_before() {
        let early = timer(1_000).reach(Timestamp::from_millis(999).unwrap());
        let error = early.unwrap_err();
        assert_eq!(*error.timer, timer(1_000));
        assert!(
            error
                .to_string()
                .contains("is due at 1970-01-01T00:00:01.000Z")
        );
        let due = Timestamp::from_millis(1_000).unwrap();
        assert_eq!(timer(1_000).reach(due).unwrap().reached_at(), due);
    }

    #[test]
    fn the_event_carries_what_the_receiver_needs() {
        let now = Timestamp::from_millis(1_234).unwrap();
        let event = timer(1_000).reach(now).unwrap().event();
        assert_eq!(event.reached_at, now);
        assert_eq!(event.due_at.as_millis(), 1_000);
        assert_eq!(event.firing_id, timer(1_000).firing_id());
        assert_eq!(event.data, timer(1_000).data);
    }

    #[test]
    fn the_json_is_the_one_of_the_contract_and_leads_back() {
        let scheduled = scheduled(Failures::default());
        let json = serde_json::to_string(&scheduled).unwrap();
        assert_eq!(
            json,
            format!(
                "{{\"tenantId\":\"default\",\"serviceCallId\":\"{}\",\
                 \"correlationId\":\"0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8e\",\
                 \"dueAt\":\"1970-01-01T00:00:01.000Z\",\
                 \"registeredAt\":\"1970-01-01T00:00:00.000Z\",\
                 \"state\":\"Scheduled\",\"data\":{{\"order\":1}}}}",
                timer(0).key.service_call_id
            )
        );
        assert_eq!(
            serde_json::from_str::<TimerEntry>(&json).unwrap(),
            scheduled
        );

        let now = Timestamp::from_millis(2_000).unwrap();
        let reached = TimerEntry::Reached {
            timer: timer(1_000).reach(now).unwrap(),
            failures: Failures::default(),
        };
        let json = serde_json::to_string(&reached).unwrap();
        assert!(json.contains("\"reachedAt\":\"1970-01-01T00:00:02.000Z\",\"state\":\"Reached\""));
        assert_eq!(serde_json::from_str::<TimerEntry>(&json).unwrap(), reached);
    }

    #[test]
    fn failed_firings_are_in_the_json_and_lead_back() {
        let failing = scheduled(Failures {
            attempts: 3,
            last_error: Some("no route".to_owned()),
        });
        let json = serde_json::to_string(&failing).unwrap();
        assert!(
            json.ends_with(",\"attempts\":3,\"lastError\":\"no route\"}"),
            "{json}"
        );
        assert_eq!(serde_json::from_str::<TimerEntry>(&json).unwrap(), failing);
    }

    #[test]
    fn a_state_that_contradicts_itself_is_refused() {
        let json = serde_json::to_string(&scheduled(Failures::default())).unwrap();
        let contradiction = json.replace("\"Scheduled\"", "\"Reached\"");
        let error = serde_json::from_str::<TimerEntry>(&contradiction).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("a Reached timer needs reachedAt")
        );
    }
}
