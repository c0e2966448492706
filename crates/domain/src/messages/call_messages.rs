//! The commands and events of orchestration.

use serde::de::Error as _;
use serde::{Deserialize, Serialize};

use super::{Envelope, Payload};
use crate::service_call::{
    CallName, ErrorMeta, IdempotencyKey, RequestSpec, ResponseMeta, Submission, Tags, UnknownFields,
};
use crate::{ServiceCallId, TenantId, TimerKey, Timestamp};

/// Command: submit a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SubmitServiceCall {
    /// The tenant.
    pub tenant_id: TenantId,
    /// The id of the call.
    pub service_call_id: ServiceCallId,
    /// Display name.
    pub name: CallName,
    /// When its request is to be made.
    pub due_at: Timestamp,
    /// The request.
    pub request_spec: RequestSpec,
    /// Tags to search by.
    #[serde(skip_serializing_if = "Tags::is_empty")]
    pub tags: Tags,
    /// Identifies repetitions of the submission.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<IdempotencyKey>,
}

impl Payload for SubmitServiceCall {
    /// Parses by the rules of a submission over HTTP, so that the same errors are reported. Without an id,
    /// it is drawn from the idempotency key, else from the message: a redelivery is the same call.
    fn parse(json: &str, envelope: &Envelope) -> serde_json::Result<Self> {
        let json: serde_json::Value = serde_json::from_str(json)?;
        let tenant_id = json.get("tenantId").cloned().unwrap_or_default();
        let tenant_id: TenantId = serde_json::from_value(tenant_id)?;
        let read = Submission::read(tenant_id, &json, UnknownFields::Ignored)
            .map_err(serde_json::Error::custom)?;
        let drawn = || match &read.idempotency_key {
            Some(key) => ServiceCallId::drawn_from_key(&read.tenant_id, key),
            None => ServiceCallId::drawn_from_message(&read.tenant_id, envelope.id),
        };
        let given = read.service_call_id.or(envelope.aggregate_id);
        Ok(Self {
            service_call_id: given.unwrap_or_else(drawn),
            tenant_id: read.tenant_id,
            name: read.name,
            due_at: read.due_at,
            request_spec: read.request,
            tags: read.tags,
            idempotency_key: read.idempotency_key,
        })
    }
}

impl From<SubmitServiceCall> for Submission {
    fn from(command: SubmitServiceCall) -> Self {
        Self {
            tenant_id: command.tenant_id,
            service_call_id: Some(command.service_call_id),
            name: command.name,
            due_at: command.due_at,
            request: command.request_spec,
            tags: command.tags,
            idempotency_key: command.idempotency_key,
        }
    }
}

/// Defines messages that name a call, with their other fields.
macro_rules! about_a_call {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            /// The tenant.
            pub tenant_id: TenantId,
            /// The id of the call.
            pub service_call_id: ServiceCallId,
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl super::Payload for $name {
            fn parse(json: &str, _: &super::Envelope) -> serde_json::Result<Self> {
                serde_json::from_str(json)
            }
        }

        impl $name {
            /// The key of the call.
            pub fn key(&self) -> TimerKey {
                TimerKey::new(self.tenant_id.clone(), self.service_call_id)
            }
        }
    )*};
}
pub(super) use about_a_call;

about_a_call! {
    /// Command: delete a call.
    DeleteServiceCall {}

    /// Event: a call was accepted.
    ServiceCallSubmitted {
        /// Display name.
        name: CallName,
        /// The redacted request.
        request_spec: RequestSpec,
        /// When the call was accepted.
        submitted_at: Timestamp,
        /// Tags to search by.
        #[serde(default)]
        tags: Tags,
    }

    /// Event: a call is waiting for its due time.
    ServiceCallScheduled {
        /// When the call is due.
        due_at: Timestamp,
    }

    /// Event: a call was started.
    ServiceCallRunning {
        /// When the call was started.
        started_at: Timestamp,
    }

    /// Event: a call has succeeded.
    ServiceCallSucceeded {
        /// When the call finished.
        finished_at: Timestamp,
        /// The response of the target.
        response_meta: ResponseMeta,
    }

    /// Event: a call has failed.
    ServiceCallFailed {
        /// When the call finished.
        finished_at: Timestamp,
        /// The reason.
        error_meta: ErrorMeta,
    }

    /// Event: a call was deleted before its due time.
    ServiceCallDeleted {
        /// When the call was deleted.
        deleted_at: Timestamp,
    }
}
