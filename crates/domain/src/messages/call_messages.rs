//! The messages of orchestration: what is asked of it, and what it tells of a call's life.

use serde::{Deserialize, Deserializer, Serialize};

use crate::service_call::{
    CallName, ErrorMeta, IdempotencyKey, RequestSpec, ResponseMeta, Submission, Tags, UnknownFields,
};
use crate::{ServiceCallId, TenantId, TimerKey, Timestamp};

/// Asks for a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SubmitServiceCall {
    /// Whose call.
    pub tenant_id: TenantId,
    /// Which call.
    pub service_call_id: ServiceCallId,
    /// What people call it.
    pub name: CallName,
    /// When its request is to be made.
    pub due_at: Timestamp,
    /// The request.
    pub request_spec: RequestSpec,
    /// By what it is found.
    #[serde(skip_serializing_if = "Tags::is_empty")]
    pub tags: Tags,
    /// By what a repetition is recognised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<IdempotencyKey>,
}

impl<'de> Deserialize<'de> for SubmitServiceCall {
    /// By the rules that hold for a submission over HTTP, so that the same mistakes are told.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = serde_json::Value::deserialize(deserializer)?;
        let tenant_id = json.get("tenantId").cloned().unwrap_or_default();
        let tenant_id: TenantId =
            serde_json::from_value(tenant_id).map_err(serde::de::Error::custom)?;
        let read = Submission::read(tenant_id, &json, UnknownFields::Ignored)
            .map_err(serde::de::Error::custom)?;
        let missing = || serde::de::Error::missing_field("serviceCallId");
        Ok(Self {
            service_call_id: read.service_call_id.ok_or_else(missing)?,
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

macro_rules! about_a_call {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            /// Whose call.
            pub tenant_id: TenantId,
            /// Which call.
            pub service_call_id: ServiceCallId,
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl $name {
            /// The key of the call.
            pub fn key(&self) -> TimerKey {
                TimerKey::new(self.tenant_id.clone(), self.service_call_id)
            }
        }
    )*};
}

about_a_call! {
    /// Asks for a call to be deleted.
    DeleteServiceCall {}

    /// A call was accepted.
    ServiceCallSubmitted {
        /// What people call it.
        name: CallName,
        /// What may be shown of its request.
        request_spec: RequestSpec,
        /// When.
        submitted_at: Timestamp,
        /// By what it is found.
        #[serde(default)]
        tags: Tags,
    }

    /// A call waits for its due time.
    ServiceCallScheduled {
        /// When it is due.
        due_at: Timestamp,
    }

    /// A call's request is to be made.
    ServiceCallRunning {
        /// Since when.
        started_at: Timestamp,
    }

    /// A call has succeeded.
    ServiceCallSucceeded {
        /// When.
        finished_at: Timestamp,
        /// What the target answered.
        response_meta: ResponseMeta,
    }

    /// A call has failed.
    ServiceCallFailed {
        /// When.
        finished_at: Timestamp,
        /// Why.
        error_meta: ErrorMeta,
    }

    /// A call was deleted before its due time.
    ServiceCallDeleted {
        /// When.
        deleted_at: Timestamp,
    }
}
