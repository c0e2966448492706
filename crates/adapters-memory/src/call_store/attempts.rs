//! The attempts of calls, and whose turn it is.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use punctual_domain::service_call::{Outcome, RequestSpec};
use punctual_domain::{CorrelationId, TenantId, TimerKey, Timestamp};
use punctual_ports::{
    AbandonedExecution, AcceptOutcome, AttemptQueue, ClaimToken, DeletedCall, Execution,
    ExecutionClaim, ExecutionEntry, ExecutionKey, ExecutionOutcome, ExecutionState, WaitingQuery,
};

/// An attempt. Its request has its secrets until it is finished.
struct Attempt {
    key: ExecutionKey,
    correlation_id: CorrelationId,
    request: RequestSpec,
    timeout: Duration,
    started_at: Timestamp,
    state: ExecutionState,
    /// Whose it is. None while it waits, and after a crash of the store.
    lease: Option<Lease>,
    /// In which order attempts were accepted.
    number: u64,
}

/// A lease on an attempt.
#[derive(Clone, Copy)]
pub(super) struct Lease {
    /// The number of the instance.
    pub(super) owner: u64,
    pub(super) token: ClaimToken,
    pub(super) until: Timestamp,
}

impl Attempt {
    /// Whether it is attempted under a claim.
    fn is_under(&self, claim: &ExecutionClaim) -> bool {
        self.key == claim.key
            && self.state == ExecutionState::Attempted
            && self.lease.is_some_and(|lease| lease.token == claim.token)
    }
}

/// A call has one attempt, so the call's key is the attempt's.
#[derive(Default)]
pub(super) struct Attempts {
    rows: BTreeMap<TimerKey, Attempt>,
    waiting: AttemptQueue<(Timestamp, u64), TimerKey>,
    attempted: BTreeSet<(Timestamp, u64, TimerKey)>,
    /// The host that came last, of each tenant.
    last_hosts: HashMap<TenantId, String>,
    accepted: u64,
    last_token: u64,
    /// When calls of another database were deleted; `None` where calls are in the same one.
    tombstones: Option<BTreeMap<TimerKey, Timestamp>>,
}

impl Attempts {
    /// Attempts whose calls are in another database.
    pub(super) fn apart() -> Self {
        Self {
            tombstones: Some(BTreeMap::new()),
            ..Self::default()
        }
    }

    pub(super) const fn are_apart(&self) -> bool {
        self.tombstones.is_some()
    }

    /// Deletes the attempt of a call of another database, and remembers it.
    pub(super) fn delete(&mut self, deleted: &DeletedCall) {
        let Some(tombstones) = &mut self.tombstones else {
            return;
        };
        let at = tombstones
            .entry(deleted.key.clone())
            .or_insert(deleted.deleted_at);
        *at = deleted.deleted_at.max(*at);
        self.remove_of(&deleted.key);
    }

    /// Removes what is older than an instant. `waits` says of which calls a message is to be published.
    pub(super) fn purge(
        &mut self,
        before: Timestamp,
        limit: usize,
        waits: impl Fn(&TimerKey) -> bool,
    ) -> usize {
        let Some(tombstones) = &mut self.tombstones else {
            return 0;
        };
        let finished = self.rows.iter().filter_map(|(call, it)| match &it.state {
            ExecutionState::Finished { finished_at, .. } => Some((*finished_at, call)),
            _ => None,
        });
        let old: BTreeSet<(Timestamp, &TimerKey)> = finished
            .filter(|(finished_at, call)| *finished_at < before && !waits(call))
            .collect();
        let old: Vec<TimerKey> = old.into_iter().take(limit).map(|it| it.1.clone()).collect();
        let left = limit - old.len();
        let forgotten: BTreeSet<(Timestamp, &TimerKey)> = tombstones
            .iter()
            .map(|(call, deleted_at)| (*deleted_at, call))
            .filter(|(deleted_at, _)| *deleted_at < before)
            .collect();
        let forgotten: Vec<TimerKey> = forgotten
            .into_iter()
            .take(left)
            .map(|it| it.1.clone())
            .collect();
        for call in &forgotten {
            tombstones.remove(call);
        }
        for call in &old {
            self.remove_of(call);
        }
        old.len() + forgotten.len()
    }

    pub(super) fn accept(&mut self, execution: Execution) -> AcceptOutcome {
        let call = execution.key.call.clone();
        let tombstones = self.tombstones.as_ref();
        if tombstones.is_some_and(|deleted| deleted.contains_key(&call)) {
            return AcceptOutcome::NoParent;
        }
        if let Some(before) = self.rows.get(&call) {
            if before.key == execution.key {
                return AcceptOutcome::AlreadyThere;
            }
            return AcceptOutcome::AnotherAttempt;
        }
        self.accepted += 1;
        let position = (execution.accepted_at, self.accepted);
        let (tenant, host) = (
            call.tenant_id.clone(),
            execution.request.url.host_and_port(),
        );
        self.waiting.insert(tenant, host, position, call.clone());
        let attempt = Attempt {
            key: execution.key,
            correlation_id: execution.correlation_id,
            request: execution.request,
            timeout: execution.timeout,
            started_at: execution.accepted_at,
            state: ExecutionState::Waiting,
            lease: None,
            number: self.accepted,
        };
        self.rows.insert(call, attempt);
        AcceptOutcome::Accepted
    }

    /// A new lease of an instance.
    pub(super) fn new_lease(&mut self, owner: u64, until: Timestamp) -> Lease {
        self.last_token += 1;
        Lease {
            owner,
            token: ClaimToken(self.last_token),
            until,
        }
    }

    /// Starts an attempt that waits.
    pub(super) fn begin(&mut self, call: &TimerKey, at: Timestamp, lease: Lease) {
        let found = self.rows.get_mut(call);
        let Some(attempt) = found.filter(|it| it.state == ExecutionState::Waiting) else {
            return;
        };
        let position = (attempt.started_at, attempt.number);
        attempt.started_at = at;
        attempt.state = ExecutionState::Attempted;
        attempt.lease = Some(lease);
        let host = attempt.request.url.host_and_port();
        self.attempted.insert((at, attempt.number, call.clone()));
        self.waiting.remove(&call.tenant_id, &host, &position);
    }

    pub(super) fn renew(&mut self, claim: &ExecutionClaim, until: Timestamp) -> ExecutionOutcome {
        let found = self.rows.get_mut(&claim.key.call);
        let Some(attempt) = found.filter(|it| it.is_under(claim)) else {
            return ExecutionOutcome::NotThere;
        };
        if let Some(lease) = &mut attempt.lease {
            lease.until = until;
        }
        ExecutionOutcome::Applied
    }

    /// Claims what nobody makes any more.
    pub(super) fn take_over(
        &mut self,
        held: &BTreeSet<ExecutionKey>,
        owner: u64,
        now: Timestamp,
        until: Timestamp,
        limit: usize,
    ) -> Vec<AbandonedExecution> {
        let is_abandoned = |attempt: &Attempt| {
            let is_free = |lease: Lease| lease.owner == owner || lease.until <= now;
            attempt.lease.is_none_or(is_free) && !held.contains(&attempt.key)
        };
        let calls = self.attempted.iter().map(|(_, _, call)| call.clone());
        let is_to_take = |call: &TimerKey| self.rows.get(call).is_some_and(&is_abandoned);
        let calls: Vec<TimerKey> = calls.filter(is_to_take).take(limit).collect();
        let mut abandoned = Vec::with_capacity(calls.len());
        for call in &calls {
            let lease = self.new_lease(owner, until);
            if let Some(attempt) = self.rows.get_mut(call) {
                attempt.lease = Some(lease);
                let (key, token) = (attempt.key.clone(), lease.token);
                abandoned.push(AbandonedExecution {
                    claim: ExecutionClaim { key, token },
                    correlation_id: attempt.correlation_id,
                });
            }
        }
        abandoned
    }

    pub(super) fn count_waiting(&self, limit: usize) -> usize {
        let is_waiting = |it: &&Attempt| it.state == ExecutionState::Waiting;
        self.rows.values().filter(is_waiting).take(limit).count()
    }

    pub(super) fn finish(
        &mut self,
        claim: &ExecutionClaim,
        finished_at: Timestamp,
        outcome: Outcome,
    ) -> ExecutionOutcome {
        let found = self.rows.get_mut(&claim.key.call);
        let Some(attempt) = found.filter(|it| it.is_under(claim)) else {
            return ExecutionOutcome::NotThere;
        };
        let position = (attempt.started_at, attempt.number, claim.key.call.clone());
        attempt.request = attempt.request.redacted();
        attempt.state = ExecutionState::Finished {
            finished_at,
            outcome,
        };
        self.attempted.remove(&position);
        ExecutionOutcome::Applied
    }

    pub(super) fn remove_of(&mut self, call: &TimerKey) {
        let Some(attempt) = self.rows.remove(call) else {
            return;
        };
        let position = (attempt.started_at, attempt.number);
        self.attempted
            .remove(&(position.0, position.1, call.clone()));
        if attempt.state == ExecutionState::Waiting {
            let host = attempt.request.url.host_and_port();
            self.waiting.remove(&call.tenant_id, &host, &position);
        }
    }

    pub(super) fn entries(&self, call: &TimerKey, limit: usize) -> Vec<ExecutionEntry> {
        let attempts = self.rows.get(call).into_iter().take(limit);
        attempts
            .map(|attempt| ExecutionEntry {
                key: attempt.key.clone(),
                started_at: attempt.started_at,
                request: attempt.request.redacted(),
                state: attempt.state.clone(),
            })
            .collect()
    }

    /// Forgets what a crash of the store forgets: turns and leases.
    pub(super) fn forget_instances(&mut self) {
        self.last_hosts.clear();
        for (_, _, call) in &self.attempted {
            if let Some(attempt) = self.rows.get_mut(call) {
                attempt.lease = None;
            }
        }
    }

    pub(super) fn waiting(&mut self, query: &WaitingQuery) -> Vec<Execution> {
        let last_host = |tenant: &TenantId| self.last_hosts.get(tenant).cloned();
        let chosen = self.waiting.in_turn(query, last_host);
        let chosen: Vec<TimerKey> = chosen.into_iter().cloned().collect();
        let mut given = Vec::with_capacity(chosen.len());
        for call in &chosen {
            let Some(attempt) = self.rows.get(call) else {
                continue;
            };
            let host = attempt.request.url.host_and_port();
            self.last_hosts.insert(call.tenant_id.clone(), host);
            given.push(Execution {
                key: attempt.key.clone(),
                correlation_id: attempt.correlation_id,
                request: attempt.request.clone(),
                timeout: attempt.timeout,
                accepted_at: attempt.started_at,
            });
        }
        given
    }
}
