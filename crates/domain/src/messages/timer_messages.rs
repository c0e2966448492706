//! The commands and events of the timer.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{FiringId, ServiceCallId, TenantId, TimerData, TimerDataError, TimerKey, Timestamp};

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
