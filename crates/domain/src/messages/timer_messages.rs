//! The commands and events of the timer.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Envelope, Payload};
use crate::{
    FiringId, Registration, ServiceCallId, TenantId, TimerData, TimerDataError, TimerKey, Timestamp,
};

/// Command: schedule a timer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleTimer {
    /// The tenant.
    pub tenant_id: TenantId,
    /// The service call, or any other subject of the timer.
    pub service_call_id: ServiceCallId,
    /// When the timer is to fire.
    pub due_at: Timestamp,
    /// Data returned with the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<TimerData>,
}

impl Payload for ScheduleTimer {
    fn parse(json: &str, _: &Envelope) -> serde_json::Result<Self> {
        serde_json::from_str(json)
    }
}

/// Event: the due time of a timer was reached. Published at least once for every accepted schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DueTimeReached {
    /// The tenant.
    pub tenant_id: TenantId,
    /// The service call, or any other subject of the timer.
    pub service_call_id: ServiceCallId,
    /// When the worker noticed that the due time was reached; never before `due_at`.
    pub reached_at: Timestamp,
    /// When the timer was due.
    pub due_at: Timestamp,
    /// The id of the firing: the same in every repetition of it, and in no other firing.
    pub firing_id: FiringId,
    /// Data given with the schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<TimerData>,
}

/// The event as other timers may write it: with nothing but its key.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IncomingDueTimeReached {
    tenant_id: TenantId,
    service_call_id: ServiceCallId,
    #[serde(default)]
    reached_at: Option<Timestamp>,
    #[serde(default)]
    due_at: Option<Timestamp>,
    #[serde(default)]
    firing_id: Option<FiringId>,
    #[serde(default)]
    data: Option<TimerData>,
}

impl Payload for DueTimeReached {
    /// What is absent is taken from the envelope's timestamp: the time at which the event was written. That
    /// never makes a call early, because a timer writes its event at the due time or later.
    fn parse(json: &str, envelope: &Envelope) -> serde_json::Result<Self> {
        let read: IncomingDueTimeReached = serde_json::from_str(json)?;
        let reached_at = read.reached_at.unwrap_or(envelope.timestamp);
        let named = read.firing_id.as_ref().map(|it| it.registration.due_at);
        let due_at = read.due_at.or(named).unwrap_or(reached_at);
        // Two events of one timer that were written at different times may be two firings. To take them for
        // one would lose the second.
        let firing_id = read.firing_id.unwrap_or_else(|| FiringId {
            key: TimerKey::new(read.tenant_id.clone(), read.service_call_id),
            registration: Registration {
                registered_at: envelope.timestamp,
                due_at,
            },
        });
        Ok(Self {
            tenant_id: read.tenant_id,
            service_call_id: read.service_call_id,
            reached_at,
            due_at,
            firing_id,
            data: read.data,
        })
    }
}

impl ScheduleTimer {
    /// The key of the timer to schedule.
    pub fn key(&self) -> TimerKey {
        TimerKey::new(self.tenant_id.clone(), self.service_call_id)
    }
}

impl DueTimeReached {
    /// Reads the data given with the schedule.
    ///
    /// # Errors
    /// If there is none, or it has another shape.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, TimerDataError> {
        self.data.as_ref().ok_or(TimerDataError::Missing)?.read()
    }

    /// The key of the timer that fired.
    pub fn key(&self) -> TimerKey {
        TimerKey::new(self.tenant_id.clone(), self.service_call_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EnvelopeId;

    #[test]
    fn data_is_read_as_its_type_and_its_absence_is_an_error() {
        let mut event = event();
        assert_eq!(event.read::<u8>(), Err(TimerDataError::Missing));
        event.data = Some(TimerData::of(&7).unwrap());
        assert_eq!(event.read::<u8>(), Ok(7));
        assert!(event.read::<String>().is_err());
    }

    const CALL: &str = "0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8e";

    fn event() -> DueTimeReached {
        let firing_id: FiringId = format!("tenant-a:{CALL}:1000:2000").parse().unwrap();
        DueTimeReached {
            tenant_id: firing_id.key.tenant_id.clone(),
            service_call_id: firing_id.key.service_call_id,
            reached_at: Timestamp::from_millis(2_005).unwrap(),
            due_at: firing_id.registration.due_at,
            firing_id,
            data: None,
        }
    }

    #[test]
    fn an_old_writer_without_data_is_still_understood() {
        let json = format!(
            "{{\"tenantId\":\"tenant-a\",\"serviceCallId\":\"{CALL}\",\
             \"dueAt\":\"2026-12-24T18:00:00Z\"}}"
        );
        let command: ScheduleTimer = serde_json::from_str(&json).unwrap();
        assert_eq!(command.data, None);
        assert_eq!(command.key().to_string(), format!("tenant-a:{CALL}"));
    }

    #[test]
    fn a_newer_writer_s_unknown_fields_are_ignored() {
        let json = format!(
            "{{\"tenantId\":\"tenant-a\",\"serviceCallId\":\"{CALL}\",\"priority\":[1,{{}}],\
             \"dueAt\":\"2026-12-24T18:00:00Z\",\"data\":{{\"a\": 1}}}}"
        );
        let command: ScheduleTimer = serde_json::from_str(&json).unwrap();
        assert_eq!(command.data.unwrap().as_json(), "{\"a\": 1}");
    }

    #[test]
    fn an_old_reader_understands_the_event() {
        /// The event as the first version of the protocol knew it.
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct FirstVersion {
            tenant_id: String,
            service_call_id: String,
            reached_at: Option<String>,
        }
        let json = serde_json::to_string(&event()).unwrap();
        let old: FirstVersion = serde_json::from_str(&json).unwrap();
        assert_eq!(old.tenant_id, "tenant-a");
        assert_eq!(old.service_call_id, CALL);
        assert_eq!(old.reached_at.as_deref(), Some("1970-01-01T00:00:02.005Z"));
    }

    #[test]
    fn what_another_timer_leaves_out_is_taken_from_the_envelope() {
        let envelope = Envelope {
            id: EnvelopeId::MIN,
            timestamp: Timestamp::from_millis(2_007).unwrap(),
            aggregate_id: None,
        };
        let whole = serde_json::to_value(event()).unwrap();
        let without = |fields: &[&str]| {
            let mut json = whole.clone();
            for field in fields {
                json.as_object_mut().unwrap().remove(*field);
            }
            let read = DueTimeReached::parse(&json.to_string(), &envelope).unwrap();
            let firing_id = read.firing_id.to_string().replace(CALL, "");
            (
                read.reached_at.as_millis(),
                read.due_at.as_millis(),
                firing_id,
            )
        };
        let firing = |text: &str| format!("tenant-a::{text}");
        for (fields, expected) in [
            (&[][..], (2_005, 2_000, firing("1000:2000"))),
            (&["reachedAt"], (2_007, 2_000, firing("1000:2000"))),
            (&["dueAt"], (2_005, 2_000, firing("1000:2000"))),
            (&["firingId"], (2_005, 2_000, firing("2007:2000"))),
            (&["dueAt", "firingId"], (2_005, 2_005, firing("2007:2005"))),
            (
                &["dueAt", "firingId", "reachedAt"],
                (2_007, 2_007, firing("2007:2007")),
            ),
        ] {
            assert_eq!(without(fields), expected, "{fields:?}");
        }
        let nulls = whole
            .to_string()
            .replace("\"1970-01-01T00:00:02.005Z\"", "null");
        let read = DueTimeReached::parse(&nulls, &envelope).unwrap();
        assert_eq!(read.reached_at, envelope.timestamp);
        let wrong = whole.to_string().replace(":1000:2000", ":1000");
        assert!(DueTimeReached::parse(&wrong, &envelope).is_err());
    }

    #[test]
    fn absent_data_is_left_out_and_null_data_is_absent() {
        let json = serde_json::to_string(&event()).unwrap();
        assert!(!json.contains("data"));
        let with_null = json.replacen('{', "{\"data\":null,", 1);
        assert_eq!(
            serde_json::from_str::<DueTimeReached>(&with_null).unwrap(),
            event()
        );
    }

    #[test]
    fn a_missing_or_bad_field_is_named() {
        let missing = serde_json::from_str::<ScheduleTimer>("{\"tenantId\":\"a\"}").unwrap_err();
        assert!(missing.to_string().contains("serviceCallId"), "{missing}");
        let json = format!("{{\"tenantId\":\"a.b\",\"serviceCallId\":\"{CALL}\",\"dueAt\":\"\"}}");
        let bad = serde_json::from_str::<ScheduleTimer>(&json).unwrap_err();
        assert!(bad.to_string().contains("tenant id has '.'"), "{bad}");
    }
}
