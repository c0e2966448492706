//! The calls and the indexes over them.
//!
//! Rows change only through [`Calls::put`] and [`Calls::remove`], which keep all indexes in step.

use std::collections::{BTreeMap, BTreeSet};

use punctual_domain::service_call::ServiceCall;
use punctual_domain::{CorrelationId, ServiceCallId, TenantId, TimerKey, Timestamp};
use punctual_ports::{ChangeOutcome, StoredCall};

#[derive(Default)]
pub(super) struct Calls {
    pub(super) rows: BTreeMap<TimerKey, StoredCall>,
    pub(super) by_due: BTreeSet<(TenantId, Timestamp, ServiceCallId)>,
    pub(super) by_correlation: BTreeSet<(CorrelationId, TimerKey)>,
    /// Unfinished calls, by when they are checked next.
    pub(super) to_check: BTreeSet<(Timestamp, TimerKey)>,
    finished: BTreeSet<(Timestamp, TimerKey)>,
}

impl Calls {
    pub(super) fn has(&self, key: &TimerKey) -> bool {
        self.rows.contains_key(key)
    }

    pub(super) fn find(&self, key: &TimerKey) -> Option<StoredCall> {
        self.rows.get(key).cloned()
    }

    pub(super) fn insert(&mut self, call: ServiceCall) {
        self.put(StoredCall { call, version: 1 });
    }

    pub(super) fn change(&mut self, call: ServiceCall, expected_version: u64) -> ChangeOutcome {
        let stored = self.rows.get(&call.details().key);
        let is_open = |call: &ServiceCall| !matches!(call, ServiceCall::Finished(_));
        let fits = |it: &&StoredCall| it.version == expected_version && is_open(&it.call);
        let Some(version) = stored.filter(fits).map(|it| it.version + 1) else {
            return ChangeOutcome::Outdated;
        };
        self.put(StoredCall { call, version });
        ChangeOutcome::Changed
    }

    /// Removes a call that is scheduled, and gives it back.
    pub(super) fn delete(&mut self, key: &TimerKey, expected_version: u64) -> Option<ServiceCall> {
        let stored = self.rows.get(key)?;
        let is_scheduled = matches!(stored.call, ServiceCall::Scheduled(_));
        (is_scheduled && stored.version == expected_version).then(|| self.remove(key))?
    }

    pub(super) fn finished_before(&self, before: Timestamp, limit: usize) -> Vec<TimerKey> {
        let old = self.finished.iter().take_while(|(at, _)| *at < before);
        old.take(limit).map(|(_, key)| key.clone()).collect()
    }

    pub(super) fn remove(&mut self, key: &TimerKey) -> Option<ServiceCall> {
        let call = self.rows.remove(key)?.call;
        let details = call.details();
        let (tenant, id) = (key.tenant_id.clone(), key.service_call_id);
        self.by_due.remove(&(tenant, details.due_at, id));
        let correlated = (details.correlation_id, key.clone());
        self.by_correlation.remove(&correlated);
        if let Some(at) = call.next_check_at() {
            self.to_check.remove(&(at, key.clone()));
        }
        if let ServiceCall::Finished(finished) = &call {
            self.finished.remove(&(finished.finished_at(), key.clone()));
        }
        Some(call)
    }

    fn put(&mut self, stored: StoredCall) {
        let details = stored.call.details();
        let key = details.key.clone();
        let (tenant, id) = (key.tenant_id.clone(), key.service_call_id);
        let due = (tenant, details.due_at, id);
        let correlated = (details.correlation_id, key.clone());
        self.remove(&key);
        self.by_due.insert(due);
        self.by_correlation.insert(correlated);
        if let Some(at) = stored.call.next_check_at() {
            self.to_check.insert((at, key.clone()));
        }
        if let ServiceCall::Finished(finished) = &stored.call {
            self.finished.insert((finished.finished_at(), key.clone()));
        }
        self.rows.insert(key, stored);
    }
}
