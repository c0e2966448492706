//! The envelope of a message, and its JSON form.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use thiserror::Error;

use super::{Envelope, Message};
use crate::{CorrelationId, EnvelopeId, ServiceCallId, TenantId, Timestamp, excerpt};

/// Correlation and causation of a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MessageMetadata {
    /// The request that the message belongs to.
    pub correlation_id: Option<CorrelationId>,
    /// The message that caused it; `None` for the event of a timer, which time causes.
    pub causation_id: Option<EnvelopeId>,
}

/// A message with its metadata for routing, tracing and deduplication.
///
/// As JSON: `{"id", "type", "tenantId", "aggregateId"?, "timestampMs", "correlationId"?,
/// "causationId"?, "payload"}`. Unknown fields are ignored and absent options left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageEnvelope {
    /// The id of the message.
    pub id: EnvelopeId,
    /// When the message was written, by the clock of its writer.
    pub timestamp: Timestamp,
    /// Correlation and causation.
    pub metadata: MessageMetadata,
    /// The payload, which also names the tenant and the service call.
    pub message: Message,
}

/// Error for bytes that are not an envelope. A retry never helps.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EnvelopeError {
    /// Not JSON, or not the JSON of an envelope.
    #[error("message is not an envelope: {reason}")]
    Malformed {
        /// What is wrong and where.
        reason: String,
    },
    /// The type is unknown to this version.
    #[error("message type \"{type_name}\" is unknown: {} are known", Message::TYPES.join(", "))]
    UnknownType {
        /// The type, shortened.
        type_name: String,
    },
    /// The payload does not match the type.
    #[error("payload of {type_name} is wrong: {reason}")]
    BadPayload {
        /// The type.
        type_name: &'static str,
        /// What is wrong and where.
        reason: String,
    },
    /// Envelope and payload name different tenants or service calls.
    #[error("{field} of the envelope is {envelope}, but its payload names {payload}")]
    Mismatch {
        /// The field of the envelope.
        field: &'static str,
        /// The value in the envelope.
        envelope: String,
        /// The value in the payload.
        payload: String,
    },
}

impl MessageEnvelope {
    /// The tenant of the message.
    pub const fn tenant_id(&self) -> &TenantId {
        self.message.tenant_id()
    }

    /// Deduplication id: the firing id for the event of a firing, and the id of the envelope for other
    /// messages. The command for an attempt is dispatched again under the same envelope id, which the
    /// broker must not drop as a duplicate: there the time of the dispatch is part of it.
    pub fn deduplication_id(&self) -> String {
        match &self.message {
            Message::DueTimeReached(event) => event.firing_id.to_string(),
            Message::StartExecution(_) => format!("{}:{}", self.id, self.timestamp.as_millis()),
            _ => self.id.to_string(),
        }
    }

    /// The same message for display and for storage after it was published: the secrets of its request
    /// are redacted.
    #[must_use]
    pub fn redacted(mut self) -> Self {
        match &mut self.message {
            Message::StartExecution(command) => {
                command.request_spec = command.request_spec.redacted();
            }
            Message::SubmitServiceCall(command) => {
                command.request_spec = command.request_spec.redacted();
            }
            // Its request was redacted when it was written.
            Message::ServiceCallSubmitted(_)
            // These carry no request.
            | Message::DeleteServiceCall(_)
            | Message::ScheduleTimer(_)
            | Message::DueTimeReached(_)
            | Message::ServiceCallScheduled(_)
            | Message::ServiceCallRunning(_)
            | Message::ServiceCallSucceeded(_)
            | Message::ServiceCallFailed(_)
            | Message::ServiceCallDeleted(_)
            | Message::ExecutionStarted(_)
            | Message::ExecutionSucceeded(_)
            | Message::ExecutionFailed(_) => {}
        }
        self
    }

    /// Parses an envelope from JSON and checks that envelope and payload agree.
    pub fn from_json(bytes: &[u8]) -> Result<Self, EnvelopeError> {
        // A list of the right length would pass otherwise, and make the order of fields part of the contract.
        if bytes
            .trim_ascii_start()
            .first()
            .is_some_and(|first| *first != b'{')
        {
            return Err(EnvelopeError::Malformed {
                reason: "it is not a JSON object".to_owned(),
            });
        }
        let wire: IncomingEnvelope =
            serde_json::from_slice(bytes).map_err(|e| EnvelopeError::Malformed {
                reason: e.to_string(),
            })?;
        wire.open()
    }

    /// Writes the envelope as JSON.
    ///
    /// # Errors
    /// Never in practice: every value of an envelope can be serialised.
    pub fn to_json(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OutgoingEnvelope<'a> {
    id: EnvelopeId,
    r#type: &'static str,
    tenant_id: &'a TenantId,
    aggregate_id: ServiceCallId,
    timestamp_ms: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_id: Option<CorrelationId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    causation_id: Option<EnvelopeId>,
    payload: &'a Message,
}

impl Serialize for MessageEnvelope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        OutgoingEnvelope {
            id: self.id,
            r#type: self.message.type_name(),
            tenant_id: self.message.tenant_id(),
            aggregate_id: self.message.service_call_id(),
            timestamp_ms: self.timestamp.as_millis(),
            correlation_id: self.metadata.correlation_id,
            causation_id: self.metadata.causation_id,
            payload: &self.message,
        }
        .serialize(serializer)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IncomingEnvelope {
    id: EnvelopeId,
    r#type: String,
    tenant_id: TenantId,
    #[serde(default)]
    aggregate_id: Option<ServiceCallId>,
    timestamp_ms: i64,
    #[serde(default)]
    correlation_id: Option<CorrelationId>,
    #[serde(default)]
    causation_id: Option<EnvelopeId>,
    payload: Box<RawValue>,
}

impl IncomingEnvelope {
    fn open(self) -> Result<MessageEnvelope, EnvelopeError> {
        let timestamp =
            Timestamp::from_millis(self.timestamp_ms).map_err(|e| EnvelopeError::Malformed {
                reason: format!("timestampMs: {e}"),
            })?;
        let message = self.message(timestamp)?;
        self.check_agreement(&message)?;
        Ok(MessageEnvelope {
            id: self.id,
            timestamp,
            metadata: MessageMetadata {
                correlation_id: self.correlation_id,
                causation_id: self.causation_id,
            },
            message,
        })
    }

    fn message(&self, timestamp: Timestamp) -> Result<Message, EnvelopeError> {
        let payload = self.payload.get();
        let unknown = || EnvelopeError::UnknownType {
            type_name: excerpt(&self.r#type),
        };
        let envelope = Envelope {
            id: self.id,
            timestamp,
            aggregate_id: self.aggregate_id,
        };
        let read = Message::read(&self.r#type, payload, &envelope);
        let (type_name, read) = read.ok_or_else(unknown)?;
        let bad = |reason: String| EnvelopeError::BadPayload { type_name, reason };
        if !payload.starts_with('{') {
            return Err(bad("it is not a JSON object".to_owned()));
        }
        read.map_err(|error| bad(error.to_string()))
    }

    fn check_agreement(&self, message: &Message) -> Result<(), EnvelopeError> {
        if self.tenant_id != *message.tenant_id() {
            return Err(EnvelopeError::Mismatch {
                field: "tenantId",
                envelope: self.tenant_id.to_string(),
                payload: message.tenant_id().to_string(),
            });
        }
        match self.aggregate_id {
            Some(id) if id != message.service_call_id() => Err(EnvelopeError::Mismatch {
                field: "aggregateId",
                envelope: id.to_string(),
                payload: message.service_call_id().to_string(),
            }),
            _ => Ok(()),
        }
    }
}

impl<'de> Deserialize<'de> for MessageEnvelope {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IncomingEnvelope::deserialize(deserializer)?
            .open()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FiringId, ScheduleTimer, ScheduledTimer, TimerData, TimerKey};
    use proptest::prelude::*;
    use uuid::Uuid;

    const CALL: &str = "0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8e";
    const ENVELOPE: &str = "0190a6e0-0000-7000-8000-000000000001";

    fn command_json() -> String {
        format!(
            "{{\"id\":\"{ENVELOPE}\",\"type\":\"ScheduleTimer\",\"tenantId\":\"tenant-a\",\
             \"aggregateId\":\"{CALL}\",\"timestampMs\":1000,\
             \"payload\":{{\"tenantId\":\"tenant-a\",\"serviceCallId\":\"{CALL}\",\
             \"dueAt\":\"2026-12-24T18:00:00.000Z\"}}}}"
        )
    }

    #[test]
    fn a_command_is_kept_without_the_secrets_of_its_request() {
        let request = r#"{"method":"GET","url":"http://a/","headers":{"X-Token":"canary"}}"#;
        let common = format!(r#""tenantId":"tenant-a","serviceCallId":"{CALL}""#);
        for (type_name, payload) in [
            (
                "StartExecution",
                format!(r#"{{{common},"requestSpec":{request},"timeoutMs":1}}"#),
            ),
            (
                "SubmitServiceCall",
                format!(
                    r#"{{{common},"name":"n","dueAt":"2026-12-24T18:00:00Z","requestSpec":{request}}}"#
                ),
            ),
        ] {
            let json = format!(
                r#"{{"id":"{ENVELOPE}","type":"{type_name}","tenantId":"tenant-a","timestampMs":1,"payload":{payload}}}"#
            );
            let envelope = MessageEnvelope::from_json(json.as_bytes()).unwrap();
            let kept = envelope.clone().redacted();
            assert_eq!(kept.id, envelope.id);
            let kept = String::from_utf8(kept.to_json().unwrap()).unwrap();
            assert!(!kept.contains("canary"), "{kept}");
        }
    }

    #[test]
    fn the_json_is_the_one_of_the_contract_and_leads_back() {
        let envelope = MessageEnvelope::from_json(command_json().as_bytes()).unwrap();
        assert_eq!(envelope.metadata, MessageMetadata::default());
        assert_eq!(envelope.deduplication_id(), ENVELOPE);
        let written = String::from_utf8(envelope.to_json().unwrap()).unwrap();
        assert_eq!(written, command_json());
        let again: MessageEnvelope = serde_json::from_str(&written).unwrap();
        assert_eq!(again, envelope);
    }

    #[test]
    fn an_envelope_without_aggregate_and_with_unknown_fields_is_understood() {
        let json = command_json()
            .replace(
                &format!("\"aggregateId\":\"{CALL}\","),
                "\"schemaVersion\":9,",
            )
            .replace("\"dueAt\"", "\"later\":null,\"dueAt\"");
        assert!(MessageEnvelope::from_json(json.as_bytes()).is_ok());
    }

    #[test]
    fn disagreement_is_refused_and_named() {
        let other_tenant = command_json().replacen("\"tenant-a\"", "\"tenant-b\"", 1);
        assert_eq!(
            MessageEnvelope::from_json(other_tenant.as_bytes())
                .unwrap_err()
                .to_string(),
            "tenantId of the envelope is tenant-b, but its payload names tenant-a"
        );
        let other_call = command_json().replacen(CALL, ENVELOPE, 1);
        let error = MessageEnvelope::from_json(other_call.as_bytes()).unwrap_err();
        assert!(matches!(
            error,
            EnvelopeError::Mismatch {
                field: "aggregateId",
                ..
            }
        ));
    }

    #[test]
    fn each_kind_of_poison_has_its_own_error() {
        let check = |json: &str| MessageEnvelope::from_json(json.as_bytes()).unwrap_err();
        for bad in ["", "{", "[]", "null", "{}", "\"x\""] {
            assert!(
                matches!(check(bad), EnvelopeError::Malformed { .. }),
                "{bad}"
            );
        }
        assert!(MessageEnvelope::from_json(&[0xff, 0xfe]).is_err());
        assert!(MessageEnvelope::from_json(&[0, 0]).is_err());
        let unknown = check(&command_json().replace("\"ScheduleTimer\"", "\"Launch\""));
        assert!(unknown.to_string().contains("\"Launch\" is unknown"));
        let payload = check(&command_json().replace("2026-12-24T", "tomorrow "));
        assert!(matches!(payload, EnvelopeError::BadPayload { .. }));
        let time = check(&command_json().replace(":1000", ":-1"));
        assert!(time.to_string().contains("timestampMs"));
        let twice = check(&command_json().replacen('{', "{\"type\":\"ScheduleTimer\",", 1));
        assert!(twice.to_string().contains("duplicate field"));
    }

    #[test]
    fn a_list_is_no_message_although_its_fields_are_in_order() {
        let payload = format!("[\"a\",\"{CALL}\",\"2026-12-24T18:00:00Z\",null]");
        let whole = format!("[\"{ENVELOPE}\",\"ScheduleTimer\",\"a\",null,1,null,null,{payload}]");
        let inner = format!(
            "{{\"id\":\"{ENVELOPE}\",\"type\":\"ScheduleTimer\",\"tenantId\":\"a\",\
             \"timestampMs\":1,\"payload\":{payload}}}"
        );
        for json in [whole, inner] {
            let error = MessageEnvelope::from_json(json.as_bytes()).unwrap_err();
            assert!(error.to_string().contains("not a JSON object"), "{error}");
        }
    }

    fn any_envelope() -> impl Strategy<Value = MessageEnvelope> {
        let ids = (
            any::<u128>(),
            any::<u128>(),
            any::<Option<u128>>(),
            any::<Option<u128>>(),
        );
        let times = (
            0..=Timestamp::MAX.as_millis(),
            0..=Timestamp::MAX.as_millis(),
        );
        let data = prop::option::of(prop::collection::vec(any::<String>(), 0..4));
        (ids, times, data, "[A-Za-z0-9_-]{1,16}", any::<bool>()).prop_map(
            |((id, call, correlation, causation), (at, due), data, tenant, is_event)| {
                let call = ServiceCallId::from_uuid(Uuid::from_u128(call));
                let key = TimerKey::new(TenantId::new(&tenant).unwrap(), call);
                let (at, due_at) = (
                    Timestamp::from_millis(at).unwrap(),
                    Timestamp::from_millis(due).unwrap(),
                );
                let data = data.map(|d| TimerData::of(&d).unwrap());
                let message = if is_event {
                    event(key, at.min(due_at), due_at, data)
                } else {
                    ScheduleTimer {
                        tenant_id: key.tenant_id,
                        service_call_id: call,
                        due_at,
                        data,
                    }
                    .into()
                };
                MessageEnvelope {
                    id: EnvelopeId::from_uuid(Uuid::from_u128(id)),
                    timestamp: at,
                    metadata: MessageMetadata {
                        correlation_id: correlation
                            .map(|c| CorrelationId::from_uuid(Uuid::from_u128(c))),
                        causation_id: causation.map(|c| EnvelopeId::from_uuid(Uuid::from_u128(c))),
                    },
                    message,
                }
            },
        )
    }

    fn event(
        key: TimerKey,
        registered_at: Timestamp,
        due_at: Timestamp,
        data: Option<TimerData>,
    ) -> Message {
        let timer = ScheduledTimer {
            key,
            correlation_id: CorrelationId::from_uuid(Uuid::nil()),
            registration: crate::Registration {
                registered_at,
                due_at,
            },
            data,
        };
        timer.reach(due_at).unwrap().event().into()
    }

    proptest! {
        #[test]
        fn every_envelope_survives_json(envelope in any_envelope()) {
            let json = envelope.to_json().unwrap();
            prop_assert_eq!(MessageEnvelope::from_json(&json).unwrap(), envelope);
        }

        #[test]
        fn an_event_is_recognised_by_its_firing(envelope in any_envelope()) {
            if let Message::DueTimeReached(event) = &envelope.message {
                let id: FiringId = envelope.deduplication_id().parse().unwrap();
                prop_assert_eq!(&id, &event.firing_id);
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = MessageEnvelope::from_json(&bytes);
        }

        #[test]
        fn damaged_json_never_panics(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut bytes = command_json().into_bytes();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = MessageEnvelope::from_json(&bytes);
        }
    }
}
