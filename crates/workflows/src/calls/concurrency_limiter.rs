//! A limit on concurrent attempts, so that no tenant and no slow host takes all the slots.
//!
//! An attempt that hangs keeps its slot until its timeout. So a tenant holds at most its
//! [fair share](fair_share) of all slots, and of those of each host: a tenant that holds none finds
//! one free.

use std::collections::BTreeMap;

use punctual_domain::{TenantId, fair_share};
use punctual_ports::{Execution, WaitingQuery};

use super::CallSettings;

/// The slots for attempts: their number in total, per tenant, and per host and port.
#[derive(Debug, Default)]
pub(super) struct ConcurrencyLimiter {
    acquired: usize,
    by_tenant: BTreeMap<TenantId, usize>,
    /// By host and port.
    by_host: BTreeMap<String, usize>,
    by_both: BTreeMap<(TenantId, String), usize>,
    /// The last tenant and host to acquire a slot, for round-robin.
    last: Option<(TenantId, String)>,
}

/// A slot of one attempt: its tenant, and its host and port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Permit(TenantId, String);

impl ConcurrencyLimiter {
    /// A query for attempts that may start; `None` if no slot is free. It leaves out exactly what
    /// [`ConcurrencyLimiter::try_acquire`] would refuse now, so the first result can always start.
    pub(super) fn query(&self, settings: &CallSettings) -> Option<WaitingQuery> {
        let free = settings.attempts.saturating_sub(self.acquired);
        if free == 0 {
            return None;
        }
        let of_all = self.share_of_all(settings);
        let of_host = |host: &str| self.share_of_host(host, settings);
        Some(WaitingQuery {
            limit: free,
            per_tenant: of_all,
            per_host: fair_share(settings.attempts_per_host, 0),
            without_tenants: keys_where(&self.by_tenant, |_, held| held >= of_all),
            without_hosts: keys_where(&self.by_host, |host, _| of_host(host) == 0),
            without: keys_where(&self.by_both, |(_, host), held| held >= of_host(host)),
            after_tenant: self.last.as_ref().map(|(tenant, _)| tenant.clone()),
            after_host: self.last.as_ref().map(|(_, host)| host.clone()),
        })
    }

    /// Acquires a slot, if the tenant's share and the host's limit allow it.
    pub(super) fn try_acquire(
        &mut self,
        execution: &Execution,
        settings: &CallSettings,
    ) -> Option<Permit> {
        let tenant_id = execution.key.call.tenant_id.clone();
        let host = execution.request.url.host_and_port();
        let both = (tenant_id, host);
        let held = self.by_tenant.get(&both.0).copied().unwrap_or_default();
        let held_there = self.by_both.get(&both).copied().unwrap_or_default();
        if held >= self.share_of_all(settings)
            || held_there >= self.share_of_host(&both.1, settings)
        {
            return None;
        }
        self.acquired += 1;
        *self.by_tenant.entry(both.0.clone()).or_default() += 1;
        *self.by_host.entry(both.1.clone()).or_default() += 1;
        *self.by_both.entry(both.clone()).or_default() += 1;
        self.last = Some(both.clone());
        Some(Permit(both.0, both.1))
    }

    /// Releases a slot.
    pub(super) fn release(&mut self, Permit(tenant_id, host): &Permit) {
        self.acquired = self.acquired.saturating_sub(1);
        decrement(&mut self.by_tenant, tenant_id);
        decrement(&mut self.by_host, host);
        decrement(&mut self.by_both, &(tenant_id.clone(), host.clone()));
    }

    /// Maximum number of slots of one tenant at the present load.
    fn share_of_all(&self, settings: &CallSettings) -> usize {
        fair_share(settings.attempts, self.acquired).min(settings.attempts_per_tenant)
    }

    /// Maximum number of slots of one tenant at one host.
    fn share_of_host(&self, host: &str, settings: &CallSettings) -> usize {
        let acquired = self.by_host.get(host).copied().unwrap_or_default();
        fair_share(settings.attempts_per_host, acquired)
    }
}

fn keys_where<K: Ord + Clone, C: FromIterator<K>>(
    counts: &BTreeMap<K, usize>,
    is_left_out: impl Fn(&K, usize) -> bool,
) -> C {
    let left_out = counts
        .iter()
        .filter(|(key, count)| is_left_out(key, **count));
    left_out.map(|(key, _)| key.clone()).collect()
}

fn decrement<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}
