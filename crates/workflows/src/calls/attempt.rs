//! One attempt, from its start to the record of its result.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use punctual_domain::messages::{ExecutionFailed, ExecutionStarted, ExecutionSucceeded};
use punctual_domain::service_call::{ErrorKind, ErrorMeta, Outcome, Redaction, ResponseMeta};
use punctual_domain::{
    CorrelationId, EnvelopeId, Message, MessageEnvelope, MessageMetadata, Timestamp,
};
use punctual_ports::{
    Execution, ExecutionClaim, ExecutionEntry, ExecutionKey, ExecutionOutcome, ExecutionState,
    FinishExecution, HttpAttempt, HttpClientPort, HttpFailure, HttpResponse, IdPort, only_answer,
};
use tokio::sync::watch;

use super::CallPorts;
use super::concurrency_limiter::Permit;
use crate::fire_due_timers::in_flight::LeaseExpiry;
use crate::retries::Retries;
use crate::retries::calls::OUTCOME_BACKOFF;
use crate::{WorkerStopped, metric_names};

/// Maximum number of response headers kept.
const HEADERS: usize = 64;
/// Maximum number of bytes of response headers kept.
const HEADER_BYTES: usize = 8 * 1_024;

/// A started attempt.
pub(super) struct Attempt {
    pub(super) ports: CallPorts,
    pub(super) http: Arc<dyn HttpClientPort>,
    pub(super) interrupted: watch::Receiver<bool>,
    pub(super) execution: Execution,
    pub(super) claim: ExecutionClaim,
    pub(super) lease: Duration,
    /// When another instance may call it abandoned unless the lease is renewed.
    pub(super) expiry: LeaseExpiry,
}

/// An ended attempt.
pub(super) struct Ended {
    pub(super) permit: Permit,
    pub(super) key: ExecutionKey,
    /// Fails with a critical error of the store.
    pub(super) recorded: Result<(), WorkerStopped>,
}

impl Attempt {
    /// Executes it and records its outcome, under a lease that is renewed meanwhile.
    pub(super) async fn execute(self) -> Result<(), WorkerStopped> {
        let renewing = renew(self.ports.clone(), self.claim.clone(), self.lease);
        tokio::select! {
            biased;
            recorded = self.execute_once() => recorded,
            () = renewing => Ok(()),
        }
    }

    async fn execute_once(mut self) -> Result<(), WorkerStopped> {
        let clock = Arc::clone(&self.ports.clock);
        let started = clock.monotonic();
        let outcome = self.outcome(started).await;
        let took = clock.monotonic().saturating_sub(started);
        let kind = match &outcome {
            Outcome::Succeeded(_) => "Succeeded",
            // An attempt of this version ends in a kind that it knows.
            Outcome::Failed(error) => error.kind.known().map_or("Other", ErrorKind::as_str),
        };
        metrics::histogram!(metric_names::EXECUTION_DURATION, "outcome" => kind)
            .record(took.as_secs_f64());
        tracing::debug!(
            execution_id = %self.execution.key.execution_id,
            outcome = kind,
            "an attempt has ended"
        );
        self.record(outcome).await
    }

    async fn outcome(&mut self, started: Duration) -> Outcome {
        let (key, correlation_id) = (&self.execution.key, self.execution.correlation_id);
        let request = HttpAttempt {
            execution_id: key.execution_id,
            key: key.call.clone(),
            correlation_id,
            request: self.execution.request.clone(),
        };
        let clock = Arc::clone(&self.ports.clock);
        if self.expiry.has_come(clock.as_ref()) {
            let message = "the start was confirmed too late: the request was not sent";
            return Outcome::Failed(ErrorMeta::new(ErrorKind::Interrupted, message));
        }
        let made = AssertUnwindSafe(self.http.attempt(request)).catch_unwind();
        let answered = tokio::select! {
            biased;
            made = made => made.unwrap_or_else(|_| Err(HttpFailure {
                kind: ErrorKind::Interrupted,
                message: "something went wrong here during the attempt: whether the target got the request is not known".to_owned(),
            })),
            () = clock.sleep_for(self.execution.timeout) => Err(HttpFailure {
                kind: ErrorKind::Timeout,
                message: format!("no complete response within {} ms", self.execution.timeout.as_millis()),
            }),
            _ = self.interrupted.wait_for(|interrupted| *interrupted) => Err(HttpFailure {
                kind: ErrorKind::Interrupted,
                message: "the process was stopped during the attempt: whether the target got the request is not known".to_owned(),
            }),
        };
        let latency = clock.monotonic().saturating_sub(started);
        let redaction = Redaction::of(&self.execution.request);
        outcome_of(answered, &redaction, latency)
    }

    /// Records the outcome, retrying until the store has it: without it the call would not finish.
    async fn record(self, outcome: Outcome) -> Result<(), WorkerStopped> {
        let (ports, correlation_id) = (&self.ports, self.execution.correlation_id);
        let (ids, now) = (ports.ids.as_ref(), ports.clock.now());
        let finish = finish_of(self.claim, correlation_id, outcome, now, ids);
        let message = "the outcome of an attempt could not be recorded";
        let retries = Retries::of(&self.execution.key, OUTCOME_BACKOFF, message);
        let finish = async || {
            let finished = ports.executions.finish(vec![finish.clone()]).await;
            ports.to_publish.notify();
            only_answer(finished, "finish an attempt")
        };
        retries.until_success(ports.clock.as_ref(), finish).await?;
        Ok(())
    }
}

/// Renews the lease of an attempt for as long as it is polled. Failures are left to the next time: a lease
/// that is lost cannot be had again, and what was sent cannot be taken back.
async fn renew(ports: CallPorts, claim: ExecutionClaim, lease: Duration) {
    loop {
        ports.clock.sleep_for(lease / 3).await;
        let (batch, now) = (vec![claim.clone()], ports.clock.now());
        let renewed = ports.executions.renew(batch, now, lease).await;
        let renewed = only_answer(renewed, "renew the lease of an attempt");
        if !matches!(renewed, Ok(ExecutionOutcome::Applied)) {
            let execution_id = claim.key.execution_id;
            tracing::debug!(%execution_id, ?renewed, "the lease of an attempt was not renewed");
        }
    }
}

/// The outcome of a response or of its failure.
fn outcome_of(
    answered: Result<HttpResponse, HttpFailure>,
    redaction: &Redaction,
    latency: Duration,
) -> Outcome {
    let latency_ms = u64::try_from(latency.as_millis()).unwrap_or(u64::MAX);
    match answered {
        Ok(response) => {
            let meta = response_meta(&response, redaction, latency_ms);
            if (200..300).contains(&meta.status) {
                return Outcome::Succeeded(meta);
            }
            Outcome::Failed(ErrorMeta {
                kind: ErrorKind::HttpStatus.into(),
                message: Some(format!("the target answered {}", meta.status)),
                latency_ms,
                details: Some(Box::new(meta)),
            })
        }
        Err(failure) => Outcome::Failed(ErrorMeta {
            latency_ms,
            ..ErrorMeta::new(failure.kind, redaction.redact(&failure.message))
        }),
    }
}

/// The redacted view of a response.
fn response_meta(response: &HttpResponse, redaction: &Redaction, latency_ms: u64) -> ResponseMeta {
    let mut bytes = 0;
    let headers = response
        .headers
        .iter()
        .take(HEADERS)
        .map(|(name, value)| (redaction.redact(name), redaction.header(name, value)))
        .take_while(|(name, value)| {
            bytes += name.len() + value.len();
            bytes <= HEADER_BYTES
        })
        .collect();
    let snippet = redaction.snippet(&response.body);
    let truncated = response.truncated || snippet.is_cut();
    ResponseMeta {
        status: response.status,
        headers,
        body_snippet: Some(snippet.into_string()).filter(|snippet| !snippet.is_empty()),
        truncated,
        latency_ms,
    }
}

/// The event that an attempt has started.
pub(super) fn started_envelope(
    execution: &Execution,
    now: Timestamp,
    ids: &dyn IdPort,
) -> MessageEnvelope {
    let (key, correlation_id) = (&execution.key, execution.correlation_id);
    envelope(started_event(key, now), key, correlation_id, now, ids)
}

/// The end of an attempt with its event.
pub(super) fn finish_of(
    claim: ExecutionClaim,
    correlation_id: CorrelationId,
    outcome: Outcome,
    now: Timestamp,
    ids: &dyn IdPort,
) -> FinishExecution {
    let event = finished_envelope(&claim.key, correlation_id, outcome.clone(), now, ids);
    FinishExecution {
        outbox: vec![event],
        claim,
        finished_at: now,
        outcome,
    }
}

/// The event of an outcome.
pub(super) fn finished_envelope(
    key: &ExecutionKey,
    correlation_id: CorrelationId,
    outcome: Outcome,
    now: Timestamp,
    ids: &dyn IdPort,
) -> MessageEnvelope {
    let event = finished_event(key, outcome, now);
    envelope(event, key, correlation_id, now, ids)
}

/// The last event of an attempt, to be published again; none if it has not started.
pub(super) fn last_event(
    attempt: ExecutionEntry,
    correlation_id: CorrelationId,
    now: Timestamp,
    ids: &dyn IdPort,
) -> Option<MessageEnvelope> {
    let key = attempt.key;
    let event = match attempt.state {
        ExecutionState::Waiting => return None,
        ExecutionState::Attempted => started_event(&key, attempt.started_at),
        ExecutionState::Finished {
            finished_at,
            outcome,
        } => finished_event(&key, outcome, finished_at),
    };
    Some(envelope(event, &key, correlation_id, now, ids))
}

fn started_event(key: &ExecutionKey, started_at: Timestamp) -> Message {
    ExecutionStarted {
        tenant_id: key.call.tenant_id.clone(),
        service_call_id: key.call.service_call_id,
        execution_id: key.execution_id,
        started_at,
    }
    .into()
}

fn finished_event(key: &ExecutionKey, outcome: Outcome, finished_at: Timestamp) -> Message {
    let (tenant_id, service_call_id) = (key.call.tenant_id.clone(), key.call.service_call_id);
    let execution_id = key.execution_id;
    match outcome {
        Outcome::Succeeded(response_meta) => Message::from(ExecutionSucceeded {
            tenant_id,
            service_call_id,
            execution_id,
            finished_at,
            response_meta,
        }),
        Outcome::Failed(error_meta) => Message::from(ExecutionFailed {
            tenant_id,
            service_call_id,
            execution_id,
            finished_at,
            error_meta,
        }),
    }
}

fn envelope(
    message: Message,
    key: &ExecutionKey,
    correlation_id: CorrelationId,
    now: Timestamp,
    ids: &dyn IdPort,
) -> MessageEnvelope {
    MessageEnvelope {
        id: EnvelopeId::from_uuid(ids.next_id()),
        timestamp: now,
        metadata: MessageMetadata {
            correlation_id: Some(correlation_id),
            // The id of an attempt is that of the command that dispatched it.
            causation_id: Some(key.execution_id),
        },
        message,
    }
}
