//! The commands and events of execution.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::call_messages::about_a_call;
use crate::service_call::{ErrorMeta, RequestSpec, ResponseMeta};
use crate::{EnvelopeId, ServiceCallId, TenantId, TimerKey, Timestamp};

about_a_call! {
    /// Command: make the attempt of a call. The id of the envelope is the id of the attempt.
    StartExecution {
        /// The request, secrets included.
        request_spec: RequestSpec,
        /// Time limit of the complete attempt, in milliseconds.
        timeout_ms: u64,
    }

    /// Event: the attempt has started.
    ExecutionStarted {
        /// The id of the attempt.
        execution_id: EnvelopeId,
        /// When the attempt started.
        started_at: Timestamp,
    }

    /// Event: the target responded with 2xx.
    ExecutionSucceeded {
        /// The id of the attempt.
        execution_id: EnvelopeId,
        /// When the attempt ended.
        finished_at: Timestamp,
        /// The response.
        response_meta: ResponseMeta,
    }

    /// Event: the attempt has failed, finally.
    ExecutionFailed {
        /// The id of the attempt.
        execution_id: EnvelopeId,
        /// When the attempt ended.
        finished_at: Timestamp,
        /// The reason.
        error_meta: ErrorMeta,
    }
}

impl StartExecution {
    /// Time limit of the complete attempt.
    pub const fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }
}
