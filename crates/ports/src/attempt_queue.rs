//! The queue of waiting attempts in memory, for stores that keep them or some of them there.

use std::collections::BTreeMap;

use punctual_domain::{TenantId, interleave};

use crate::WaitingQuery;

/// Waiting attempts by tenant, host and position, chosen in turns as the contract of
/// [`ExecutionLogPort::claim`] says.
///
/// [`ExecutionLogPort::claim`]: crate::ExecutionLogPort::claim
#[derive(Debug)]
pub struct AttemptQueue<P, T>(BTreeMap<TenantId, BTreeMap<String, BTreeMap<P, T>>>);

impl<P, T> Default for AttemptQueue<P, T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<P: Ord, T> AttemptQueue<P, T> {
    /// Adds an attempt; returns the one that it replaces.
    pub fn insert(&mut self, tenant: TenantId, host: String, position: P, attempt: T) -> Option<T> {
        let hosts = self.0.entry(tenant).or_default();
        hosts.entry(host).or_default().insert(position, attempt)
    }

    /// Removes an attempt.
    pub fn remove(&mut self, tenant: &TenantId, host: &str, position: &P) -> Option<T> {
        let hosts = self.0.get_mut(tenant)?;
        let queue = hosts.get_mut(host)?;
        let removed = queue.remove(position);
        if queue.is_empty() {
            hosts.remove(host);
        }
        if hosts.is_empty() {
            self.0.remove(tenant);
        }
        removed
    }

    /// The attempts that a query wants: one of each tenant, then another of each. `last_host` returns the
    /// host of a tenant that came last, after which its turns continue.
    pub fn in_turn<'a>(
        &'a self,
        query: &WaitingQuery,
        last_host: impl Fn(&TenantId) -> Option<String>,
    ) -> Vec<&'a T> {
        let tenants = rotated(&self.0, query.after_tenant.as_ref());
        let wanted = tenants.filter(|(tenant, _)| !query.without_tenants.contains(tenant));
        let queues = wanted.map(|(tenant, hosts)| {
            let is_last = query.after_tenant.as_ref() == Some(tenant);
            let last = if is_last { None } else { last_host(tenant) };
            let after = last.or_else(|| query.after_host.clone());
            of_tenant(query, tenant, hosts, after.as_ref()).peekable()
        });
        let queues = queues.filter_map(|mut queue| queue.peek().is_some().then_some(queue));
        let chosen = interleave(queues.take(query.limit));
        chosen.take(query.limit).collect()
    }
}

/// One of each host, then another of each, until the tenant has enough.
fn of_tenant<'a, P: Ord, T>(
    query: &WaitingQuery,
    tenant: &TenantId,
    hosts: &'a BTreeMap<String, BTreeMap<P, T>>,
    after: Option<&String>,
) -> impl Iterator<Item = &'a T> + use<'a, P, T> {
    let per_host = query.per_host;
    let hosts: Vec<_> = rotated(hosts, after)
        .filter(|(host, _)| !query.without_hosts.contains(host))
        .filter(|(host, _)| !query.without.contains(&(tenant.clone(), (*host).clone())))
        .map(|(_, queue)| queue.values().take(per_host))
        .collect();
    interleave(hosts).take(query.per_tenant)
}

/// Every entry once, beginning after a key.
fn rotated<'a, K: Ord + Clone, V>(
    map: &'a BTreeMap<K, V>,
    after: Option<&K>,
) -> impl Iterator<Item = (&'a K, &'a V)> + use<'a, K, V> {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    let (start, end) = match after.cloned() {
        Some(after) => (Excluded(after.clone()), Some(Included(after))),
        None => (Unbounded, None),
    };
    let earlier = end.map(|end| map.range((Unbounded, end)));
    map.range((start, Unbounded))
        .chain(earlier.into_iter().flatten())
}
