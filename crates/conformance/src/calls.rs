//! A store of service calls under test, with the few words that cases are written in.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use punctual_domain::messages::{ExecutionStarted, Listeners};
use punctual_domain::service_call::call::{Outgoing, Start};
use punctual_domain::service_call::{
    CallDetails, CallName, CallStep, ErrorKind, ErrorMeta, FinishedCall, Headers, IdempotencyKey,
    Method, Outcome, RequestBody, RequestSpec, ResponseMeta, RunningCall, ScheduledCall,
    ServiceCall, Tag, Tags,
};
use punctual_domain::{
    CorrelationId, EnvelopeId, MessageEnvelope, MessageMetadata, TimerKey, Timestamp,
};
use punctual_ports::{
    AbandonedExecution, AcceptOutcome, CallChange, CallDeletion, CallPage, CallPageQuery,
    ChangeOutcome, ClaimedExecution, DeadLetterPort, DeletedCall, Execution, ExecutionClaim,
    ExecutionKey, ExecutionLogPort, ExecutionOutcome, Fingerprint, FinishExecution, NewCall,
    OutboxBatch, OutboxOutcome, OutboxPort, OutboxPosition, OutboxRow, PublishLater,
    ServiceCallPersistencePort, StoredCall, SubmitOutcome, TimerPersistencePort, TimerQueuePort,
    WaitingQuery,
};
use uuid::Uuid;

use crate::CallStoreFixture;
use crate::store::{LEASE, at, correlation, outcome, outcomes};

/// What must not be found where it does not belong.
pub(crate) const CANARY: &str = "canary-4711";
/// How long the attempts of cases may take.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// An id that no other case and no other message has.
pub(crate) fn envelope_id() -> EnvelopeId {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    EnvelopeId::from_uuid(Uuid::from_u128((1 << 100) + u128::from(number)))
}

/// A request with a secret in a header.
pub(crate) fn request_to(host: &str) -> RequestSpec {
    let headers = [("Authorization", CANARY), ("Accept", "text/plain")];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
    RequestSpec {
        method: Method::Post,
        url: format!("https://{host}/hook?a=b")
            .parse()
            .expect("a good url"),
        headers: Headers::new(headers.to_vec()).expect("good headers"),
        body: Some(RequestBody::new("{\"hello\":true}").expect("a short body")),
    }
}

pub(crate) fn tag(text: &str) -> Tag {
    Tag::new(text).expect("a case gives a good tag")
}

pub(crate) fn details(key: TimerKey, due_at: i64) -> CallDetails {
    CallDetails {
        key,
        correlation_id: correlation(1),
        command_id: EnvelopeId::from_uuid(Uuid::from_u128(7)),
        name: CallName::new("a call").expect("a good name"),
        tags: Tags::default(),
        submitted_at: at(1_000),
        due_at: at(due_at),
        request: request_to("example.com"),
    }
}

pub(crate) fn tagged(key: TimerKey, due_at: i64, tags: &[&str]) -> CallDetails {
    CallDetails {
        tags: Tags::new(tags.iter().map(|text| tag(text))).expect("few tags"),
        ..details(key, due_at)
    }
}

pub(crate) fn correlated(details: CallDetails, n: u128) -> CallDetails {
    CallDetails {
        correlation_id: correlation(n),
        ..details
    }
}

pub(crate) fn fingerprint(n: u8) -> Fingerprint {
    Fingerprint([n; 32])
}

/// The messages of a step, as they are written at an instant.
pub(crate) fn envelopes(
    outgoing: Vec<Outgoing>,
    of: CorrelationId,
    now: i64,
) -> Vec<MessageEnvelope> {
    let envelope = |outgoing: Outgoing| MessageEnvelope {
        id: outgoing.id.unwrap_or_else(envelope_id),
        timestamp: at(now),
        metadata: MessageMetadata {
            correlation_id: Some(of),
            causation_id: Some(outgoing.caused_by),
        },
        message: outgoing.message,
    };
    outgoing.into_iter().map(envelope).collect()
}

/// A submission with an id of its own and no key.
pub(crate) fn new_call(details: CallDetails) -> NewCall {
    let (correlation_id, now) = (details.correlation_id, details.submitted_at.as_millis());
    let CallStep { call, outgoing } = details.accept(envelope_id(), TIMEOUT);
    NewCall {
        call,
        id_was_given: true,
        idempotency_key: None,
        fingerprint: fingerprint(1),
        outbox: envelopes(outgoing, correlation_id, now),
        listeners: Listeners::Anyone,
    }
}

pub(crate) fn with_key(new: NewCall, key: &str) -> NewCall {
    NewCall {
        idempotency_key: Some(IdempotencyKey::new(key).expect("a good key")),
        ..new
    }
}

pub(crate) fn succeeded() -> Outcome {
    Outcome::Succeeded(ResponseMeta {
        status: 204,
        headers: vec![("server".to_owned(), "a".to_owned())],
        body_snippet: Some("ok".to_owned()),
        truncated: false,
        latency_ms: 7,
    })
}

pub(crate) fn failed() -> Outcome {
    let details = ResponseMeta {
        status: 503,
        headers: Vec::new(),
        body_snippet: None,
        truncated: false,
        latency_ms: 3,
    };
    Outcome::Failed(ErrorMeta {
        details: Some(Box::new(details)),
        ..ErrorMeta::new(ErrorKind::HttpStatus, "it answered with 503")
    })
}

pub(crate) fn scheduled(stored: &StoredCall) -> ScheduledCall {
    match &stored.call {
        ServiceCall::Scheduled(call) => call.clone(),
        other => panic!("{other:?} should be scheduled"),
    }
}

pub(crate) fn running(stored: &StoredCall) -> RunningCall {
    match &stored.call {
        ServiceCall::Running(call) => call.clone(),
        other => panic!("{other:?} should be running"),
    }
}

pub(crate) fn finished(stored: &StoredCall) -> FinishedCall {
    match &stored.call {
        ServiceCall::Finished(call) => call.clone(),
        other => panic!("{other:?} should be finished"),
    }
}

/// A store whose answers are outcomes; an error fails the case.
pub(crate) trait Calls: CallStoreFixture {
    fn calls(&self) -> Arc<dyn ServiceCallPersistencePort> {
        self.call_stores().calls
    }

    fn outbox(&self) -> Arc<dyn OutboxPort> {
        self.call_stores().outbox
    }

    fn attempts(&self) -> Arc<dyn ExecutionLogPort> {
        self.call_stores().executions
    }

    fn timers(&self) -> Arc<dyn TimerPersistencePort> {
        self.timer_stores().persistence
    }

    fn queue(&self) -> Arc<dyn TimerQueuePort> {
        self.timer_stores().queue
    }

    fn dead_letters(&self) -> Arc<dyn DeadLetterPort> {
        self.timer_stores().dead_letters
    }

    async fn submit(&self, new: NewCall) -> SubmitOutcome {
        outcome(self.calls().submit(vec![new]).await)
    }

    /// Submits calls that are new.
    async fn submit_all(&self, calls: Vec<CallDetails>) {
        let batch = calls.into_iter().map(new_call).collect();
        let answers = self.calls().submit(batch).await;
        for outcome in answers.expect("submit answers") {
            let outcome = outcome.expect("submit has an outcome");
            assert!(matches!(outcome, SubmitOutcome::Accepted(_)), "{outcome:?}");
        }
    }

    async fn submitted(&self, details: CallDetails) -> StoredCall {
        let key = details.key.clone();
        self.submit_all(vec![details]).await;
        self.found(key).await
    }

    async fn find(&self, key: TimerKey) -> Option<StoredCall> {
        let found = self.calls().find(vec![key]).await;
        let mut found = found.expect("find answers");
        assert_eq!(found.len(), 1);
        found.remove(0)
    }

    async fn found(&self, key: TimerKey) -> StoredCall {
        self.find(key).await.expect("the call is there")
    }

    async fn change(&self, expected_version: u64, step: CallStep, now: i64) -> ChangeOutcome {
        let correlation_id = step.call.details().correlation_id;
        let change = CallChange {
            call: step.call,
            expected_version,
            outbox: envelopes(step.outgoing, correlation_id, now),
            listeners: Listeners::Anyone,
        };
        outcome(self.calls().change(vec![change]).await)
    }

    /// Starts a call that is scheduled, at its due time.
    async fn started(&self, key: TimerKey) -> StoredCall {
        let stored = self.found(key.clone()).await;
        let call = scheduled(&stored);
        let now = call.details.due_at;
        let step = call.start(start(now)).expect("it is due");
        let changed = self.change(stored.version, step, now.as_millis()).await;
        assert_eq!(changed, ChangeOutcome::Changed);
        self.found(key).await
    }

    /// Brings a call that is scheduled to its end, at an instant.
    async fn ended(&self, key: TimerKey, now: i64) -> StoredCall {
        let stored = self.started(key.clone()).await;
        let step = running(&stored).finish(succeeded(), at(now), envelope_id());
        let changed = self.change(stored.version, step, now).await;
        assert_eq!(changed, ChangeOutcome::Changed);
        self.found(key).await
    }

    async fn delete(&self, key: TimerKey, expected_version: u64, now: i64) -> ChangeOutcome {
        let deletion = CallDeletion {
            key,
            expected_version,
            deleted_at: at(now),
            outbox: Vec::new(),
        };
        outcome(self.calls().delete(vec![deletion]).await)
    }

    async fn page(&self, query: CallPageQuery) -> CallPage {
        let page = self.calls().page(query).await;
        page.expect("page answers")
    }

    async fn purge(&self, before: i64, now: i64, limit: usize) -> usize {
        let calls = self.calls();
        let purged = calls.purge(at(before), at(now), limit).await;
        purged.expect("purge answers")
    }

    async fn claim_batch(&self, now: i64, limit: usize, lease: Duration) -> OutboxBatch {
        let batch = self.outbox().claim(at(now), limit, lease).await;
        batch.expect("claim answers")
    }

    /// Claims messages for the usual lease.
    async fn claim_messages(&self, now: i64, limit: usize) -> Vec<OutboxRow> {
        self.claim_batch(now, limit, LEASE).await.rows
    }

    /// What nobody has claimed. It stays so: the claim ends at once.
    async fn unpublished(&self) -> Vec<OutboxRow> {
        self.claim_batch(0, 100_000, Duration::ZERO).await.rows
    }

    async fn mark_published(&self, position: OutboxPosition, now: i64) -> OutboxOutcome {
        let outbox = self.outbox();
        outcome(outbox.mark_published(vec![position], at(now)).await)
    }

    async fn publish_later(&self, position: OutboxPosition, after: u64, now: i64) {
        let after = Duration::from_millis(after);
        let batch = vec![PublishLater { position, after }];
        let answer = self.outbox().retry_later(batch, at(now)).await;
        answer.expect("retry_later answers");
    }

    /// The messages that wait.
    async fn messages(&self) -> Vec<MessageEnvelope> {
        let rows = self.unpublished().await.into_iter();
        rows.map(|row| row.envelope.expect("it can be read"))
            .collect()
    }

    async fn accept(&self, execution: Execution) -> AcceptOutcome {
        outcome(self.attempts().accept(vec![execution]).await)
    }

    /// Submits the calls of attempts to come, where they have to be there.
    async fn prepare(&self, calls: Vec<CallDetails>) {
        if self.has_calls() {
            self.submit_all(calls).await;
        }
    }

    /// Three messages about a call, written at an instant.
    async fn three_messages(&self, key: TimerKey, now: i64) {
        if self.has_calls() {
            let mut call = details(key, 50_000);
            call.submitted_at = at(now);
            return self.submit_all(vec![call]).await;
        }
        let waiting = self.waiting(key, "example.com", now).await.key;
        let mut start = |execution: &Execution| {
            let messages = || (0..3).map(|_| began(&waiting, now)).collect();
            (execution.key == waiting).then(messages)
        };
        let (attempts, query) = (self.attempts(), waiting_up_to(100));
        let claimed = outcomes(attempts.claim(query, at(now), LEASE, &mut start).await);
        assert_eq!(claimed.len(), 1);
    }

    /// Deletes a call that was not started, wherever it is.
    async fn deleted(&self, key: TimerKey, now: i64) {
        if self.has_calls() {
            let stored = self.found(key.clone()).await;
            let deleted = self.delete(key, stored.version, now).await;
            assert_eq!(deleted, ChangeOutcome::Changed);
        } else {
            let deleted_at = at(now);
            let deleted = vec![DeletedCall { key, deleted_at }];
            outcomes(self.attempts().delete(deleted).await);
        }
    }

    /// A call with an attempt that waits.
    async fn waiting(&self, key: TimerKey, host: &str, accepted_at: i64) -> Execution {
        self.prepare(vec![details(key.clone(), 5_000)]).await;
        let execution = execution(key, host, accepted_at);
        let accepted = self.accept(execution.clone()).await;
        assert_eq!(accepted, AcceptOutcome::Accepted);
        execution
    }

    /// The attempts that a claim would start. It starts none.
    async fn asked(&self, query: WaitingQuery) -> Vec<Execution> {
        let mut asked = Vec::new();
        let mut leave = |execution: &Execution| {
            asked.push(execution.clone());
            None
        };
        let claimed = self.attempts().claim(query, at(0), LEASE, &mut leave).await;
        assert_eq!(outcomes(claimed), []);
        asked
    }

    /// Starts at most this many attempts.
    async fn claim_attempts(&self, limit: usize, now: i64) -> Vec<ClaimedExecution> {
        let mut start = |execution: &Execution| Some(vec![began(&execution.key, now)]);
        let (attempts, query) = (self.attempts(), waiting_up_to(limit));
        outcomes(attempts.claim(query, at(now), LEASE, &mut start).await)
    }

    /// Starts this attempt, if it waits, and leaves all others.
    async fn begin(&self, key: &ExecutionKey, now: i64) -> Option<ExecutionClaim> {
        let mut start = |execution: &Execution| {
            let is_it = execution.key == *key;
            is_it.then(|| vec![began(key, now)])
        };
        let (attempts, query) = (self.attempts(), waiting_up_to(100));
        let claimed = outcomes(attempts.claim(query, at(now), LEASE, &mut start).await);
        assert!(claimed.iter().all(|it| it.execution.key == *key));
        claimed.first().map(ClaimedExecution::reference)
    }

    /// Starts this attempt, which waits.
    async fn begun(&self, key: &ExecutionKey, now: i64) -> ExecutionClaim {
        self.begin(key, now).await.expect("the attempt waits")
    }

    async fn renew(&self, claim: &ExecutionClaim, now: i64) -> ExecutionOutcome {
        let batch = vec![claim.clone()];
        outcome(self.attempts().renew(batch, at(now), LEASE).await)
    }

    /// Takes over what nobody makes, this instance neither.
    async fn take_over(&self, held: &[&ExecutionClaim], now: i64) -> Vec<AbandonedExecution> {
        let held = held.iter().map(|claim| claim.key.clone()).collect();
        let taken = self.attempts().take_over(held, at(now), LEASE, 100).await;
        taken.expect("take_over answers")
    }

    async fn finish(&self, claim: &ExecutionClaim, now: i64, end: Outcome) -> ExecutionOutcome {
        let finish = FinishExecution {
            // What it says does not matter to the store.
            outbox: vec![began(&claim.key, now)],
            claim: claim.clone(),
            finished_at: at(now),
            outcome: end,
        };
        outcome(self.attempts().finish(vec![finish]).await)
    }
}

impl<F: CallStoreFixture + ?Sized> Calls for F {}

pub(crate) fn start(now: Timestamp) -> Start {
    Start {
        reached_at: now,
        now,
        execution_id: envelope_id(),
        caused_by: envelope_id(),
        timeout: TIMEOUT,
    }
}

/// An attempt to dispatch.
pub(crate) fn execution(key: TimerKey, host: &str, accepted_at: i64) -> Execution {
    Execution {
        key: ExecutionKey {
            call: key,
            execution_id: envelope_id(),
        },
        correlation_id: correlation(1),
        request: request_to(host),
        timeout: TIMEOUT,
        accepted_at: at(accepted_at),
    }
}

/// The message that an attempt has started.
pub(crate) fn began(key: &ExecutionKey, now: i64) -> MessageEnvelope {
    let event = ExecutionStarted {
        tenant_id: key.call.tenant_id.clone(),
        service_call_id: key.call.service_call_id,
        execution_id: key.execution_id,
        started_at: at(now),
    };
    MessageEnvelope {
        id: envelope_id(),
        timestamp: at(now),
        metadata: MessageMetadata {
            correlation_id: Some(correlation(1)),
            causation_id: Some(key.execution_id),
        },
        message: event.into(),
    }
}

/// The number by which a case knows a call.
pub(crate) fn number(call: &ServiceCall) -> u128 {
    call.details().key.service_call_id.as_uuid().as_u128()
}

/// All calls of a tenant.
pub(crate) fn all_of(tenant: &str, limit: usize) -> CallPageQuery {
    CallPageQuery {
        tenant_id: crate::store::key_of(tenant, 0).tenant_id,
        status: None,
        tags: Vec::new(),
        from: None,
        to: None,
        limit,
        after: None,
    }
}

/// The waiting attempts of all tenants, with one limit for all.
pub(crate) fn waiting_up_to(limit: usize) -> WaitingQuery {
    WaitingQuery {
        limit,
        per_tenant: limit,
        per_host: limit,
        without_tenants: Vec::new(),
        without_hosts: Vec::new(),
        without: BTreeSet::new(),
        after_tenant: None,
        after_host: None,
    }
}
