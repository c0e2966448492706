//! Who may begin another attempt, so that no tenant and no slow host takes all the places.

use std::collections::BTreeMap;

use punctual_domain::TenantId;
use punctual_ports::{Execution, WaitingQuery};

use super::CallSettings;

/// The places for attempts, and who has them.
#[derive(Debug, Default)]
pub(super) struct Places {
    taken: usize,
    by_tenant: BTreeMap<TenantId, usize>,
    by_host: BTreeMap<String, usize>,
    /// Whose turn was last.
    last: Option<(TenantId, String)>,
}

/// A place that an attempt has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    tenant_id: TenantId,
    host: String,
}

impl Places {
    /// Which attempts may begin; `None` if no place is free.
    pub(super) fn query(&self, settings: &CallSettings) -> Option<WaitingQuery> {
        let free = settings.attempts.saturating_sub(self.taken);
        if free == 0 {
            return None;
        }
        let full = |taken: usize, limit: usize| taken >= limit;
        let tenants = self.by_tenant.iter();
        let hosts = self.by_host.iter();
        Some(WaitingQuery {
            limit: free,
            per_tenant: settings.attempts_per_tenant,
            per_host: settings.attempts_per_host,
            without_tenants: tenants
                .filter(|(_, taken)| full(**taken, settings.attempts_per_tenant))
                .map(|(tenant, _)| tenant.clone())
                .collect(),
            without_hosts: hosts
                .filter(|(_, taken)| full(**taken, settings.attempts_per_host))
                .map(|(host, _)| host.clone())
                .collect(),
            after_tenant: self.last.as_ref().map(|(tenant, _)| tenant.clone()),
            after_host: self.last.as_ref().map(|(_, host)| host.clone()),
        })
    }

    /// Takes a place, if the limits leave one.
    pub(super) fn take(&mut self, execution: &Execution, settings: &CallSettings) -> Option<Place> {
        let tenant_id = execution.key.call.tenant_id.clone();
        let host = execution.request.url.host().to_owned();
        let of_tenant = self.by_tenant.get(&tenant_id).copied().unwrap_or_default();
        let of_host = self.by_host.get(&host).copied().unwrap_or_default();
        if self.taken >= settings.attempts
            || of_tenant >= settings.attempts_per_tenant
            || of_host >= settings.attempts_per_host
        {
            return None;
        }
        self.taken += 1;
        *self.by_tenant.entry(tenant_id.clone()).or_default() += 1;
        *self.by_host.entry(host.clone()).or_default() += 1;
        self.last = Some((tenant_id.clone(), host.clone()));
        Some(Place { tenant_id, host })
    }

    /// Gives a place back.
    pub(super) fn give_back(&mut self, place: &Place) {
        self.taken = self.taken.saturating_sub(1);
        leave(&mut self.by_tenant, &place.tenant_id);
        leave(&mut self.by_host, &place.host);
    }
}

fn leave<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}
