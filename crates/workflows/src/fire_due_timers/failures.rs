//! Failed firings, each reported after the store has settled it.
//!
//! Not before: a handler may have rescheduled its own timer and failed then. The new schedule stands,
//! and the failure is neither retried nor a dead letter.

use punctual_ports::{ClaimOutcome, DeadLetterClaim, RetryLater};
use tracing::Span;

use crate::metric_names;

/// A firing to retry later.
#[derive(Debug, Clone)]
pub(super) struct Retry {
    pub(super) request: RetryLater,
    /// What is logged; `None` if nothing has failed.
    pub(super) failure: Option<Failure>,
}

#[derive(Debug, Clone)]
pub(super) struct Failure {
    /// The number of this failure of the schedule.
    pub(super) attempt: u32,
    /// Whether it fails again unless an operator intervenes.
    pub(super) is_permanent: bool,
    pub(super) span: Span,
}

impl Retry {
    pub(super) fn report(&self, outcome: ClaimOutcome) {
        let Some(failure) = &self.failure else {
            return;
        };
        let _in_span = failure.span.enter();
        let RetryLater {
            reason, retry_at, ..
        } = &self.request;
        if outcome != ClaimOutcome::Applied {
            return report_superseded(outcome, reason, "is not retried");
        }
        let attempt = failure.attempt;
        metrics::counter!(metric_names::RETRIES).increment(1);
        if failure.is_permanent {
            metrics::counter!(metric_names::PERMANENT_ERRORS).increment(1);
            tracing::error!(reason, attempt, %retry_at, "a timer will not be handled by itself");
        } else {
            tracing::warn!(reason, attempt, %retry_at, "a timer could not be handled");
        }
    }
}

/// A firing that can never succeed.
#[derive(Debug, Clone)]
pub(super) struct DeadLettered {
    pub(super) request: DeadLetterClaim,
    pub(super) span: Span,
}

impl DeadLettered {
    pub(super) fn report(&self, outcome: ClaimOutcome) {
        let _in_span = self.span.enter();
        let reason = &self.request.dead_letter.reason;
        if outcome != ClaimOutcome::Applied {
            return report_superseded(outcome, reason, "is no dead letter");
        }
        metrics::counter!(metric_names::PERMANENT_ERRORS).increment(1);
        tracing::error!(
            reason,
            "a timer can never be handled: it is a dead letter now"
        );
    }
}

/// The store has changed nothing, because the timer has another schedule or claim.
fn report_superseded(outcome: ClaimOutcome, reason: &str, consequence: &str) {
    if outcome == ClaimOutcome::Moved {
        metrics::counter!(metric_names::FAILURES_SUPERSEDED).increment(1);
        tracing::warn!(
            reason,
            "a timer was rescheduled and then its handler failed: the new schedule stands, and the failure {consequence}"
        );
    } else {
        tracing::warn!(
            reason,
            "a timer could not be handled, and is no longer ours: the failure {consequence}"
        );
    }
}
