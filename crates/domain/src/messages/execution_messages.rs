//! The messages of execution: the one attempt of a call, and what became of it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::service_call::{ErrorMeta, RequestSpec, ResponseMeta};
use crate::{EnvelopeId, ServiceCallId, TenantId, TimerKey, Timestamp};

/// Asks for the one attempt of a call. The attempt is named by the id of this command's envelope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartExecution {
    /// Whose call.
    pub tenant_id: TenantId,
    /// Which call.
    pub service_call_id: ServiceCallId,
    /// The request, with all its secrets.
    pub request_spec: RequestSpec,
    /// How long the whole attempt may take, in milliseconds.
    pub timeout_ms: u64,
}

impl StartExecution {
    /// The key of the call.
    pub fn key(&self) -> TimerKey {
        TimerKey::new(self.tenant_id.clone(), self.service_call_id)
    }

    /// How long the whole attempt may take.
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
            /// Whose call.
            pub tenant_id: TenantId,
            /// Which call.
            pub service_call_id: ServiceCallId,
            /// Which attempt.
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
    /// The attempt has begun.
    ExecutionStarted {
        /// When.
        started_at: Timestamp,
    }

    /// The target answered with 2xx.
    ExecutionSucceeded {
        /// When.
        finished_at: Timestamp,
        /// What it answered.
        response_meta: ResponseMeta,
    }

    /// There is no good answer, and there will be none.
    ExecutionFailed {
        /// When.
        finished_at: Timestamp,
        /// Why.
        error_meta: ErrorMeta,
    }
}
