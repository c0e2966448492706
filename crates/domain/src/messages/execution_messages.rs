//! The commands and events of execution.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::service_call::{ErrorMeta, RequestSpec, ResponseMeta};
use crate::{EnvelopeId, ServiceCallId, TenantId, TimerKey, Timestamp};

/// Command: make the attempt of a call. The id of the envelope is the id of the attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartExecution {
    /// The tenant.
    pub tenant_id: TenantId,
    /// The id of the call.
    pub service_call_id: ServiceCallId,
    /// The request, secrets included.
    pub request_spec: RequestSpec,
    /// Time limit of the complete attempt, in milliseconds.
    pub timeout_ms: u64,
}

impl StartExecution {
    /// The key of the call.
    pub fn key(&self) -> TimerKey {
        TimerKey::new(self.tenant_id.clone(), self.service_call_id)
    }

    /// Time limit of the complete attempt.
    pub const fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }
}

macro_rules! about_an_attempt {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            /// The tenant.
            pub tenant_id: TenantId,
            /// The id of the call.
            pub service_call_id: ServiceCallId,
            /// The id of the attempt.
            pub execution_id: EnvelopeId,
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

about_an_attempt! {
    /// Event: the attempt has started.
    ExecutionStarted {
        /// When the attempt started.
        started_at: Timestamp,
    }

    /// Event: the target responded with 2xx.
    ExecutionSucceeded {
        /// When the attempt ended.
        finished_at: Timestamp,
        /// The response.
        response_meta: ResponseMeta,
    }

    /// Event: the attempt has failed, finally.
    ExecutionFailed {
        /// When the attempt ended.
        finished_at: Timestamp,
        /// The reason.
        error_meta: ErrorMeta,
    }
}
