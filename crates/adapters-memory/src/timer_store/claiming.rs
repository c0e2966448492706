//! Claiming of due timers: all of them, or a fair share if there are too many.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::ops::Bound::{Excluded, Unbounded};
use std::time::Duration;

use punctual_domain::claim_sharing::{Chosen, DueTimers, earlier, share};
use punctual_domain::{ServiceCallId, TenantId, TimerKey, Timestamp};
use punctual_ports::{Claim, ClaimBatch, ClaimToken};

use super::state::{Lease, State};
use crate::LAST;

type Ready = (Timestamp, TimerKey);

/// The last position in the order of readiness that is not later than `now`.
fn last_at(now: Timestamp) -> Ready {
    // No tenant id sorts after the longest one of the greatest allowed character.
    let last = TenantId::new(&"z".repeat(TenantId::MAX_LEN)).unwrap_or_default();
    (now, TimerKey::new(last, LAST))
}

impl State {
    /// Claims for an instance what is due by its clock and by the store's.
    pub(super) fn claim_due(
        &mut self,
        instance: u64,
        now: Timestamp,
        limit: usize,
        lease: Duration,
        excluded: &BTreeSet<TenantId>,
    ) -> ClaimBatch {
        let clock = self.clock;
        self.end_leases_up_to(clock.or(now));
        self.claims_known.at(clock.or(now));
        self.claims_known.claimed_for(lease);
        let mut last_served = self.last_served.remove(&instance);
        let mut due = Due {
            state: self,
            now: now.min(clock.or(now)),
            excluded,
        };
        let first = Chosen {
            timers: due.oldest(limit.saturating_add(1)),
            more_due: false,
            next_due_at: due.next_ready(),
        };
        let Ok(chosen) = share(&mut due, first, limit, &mut last_served);
        let next_ready = chosen.next_due_at.map(|at| clock.when_both_reach(at, now));
        let foreign = self.next_foreign_lease(instance, excluded);
        let next_lease_end = foreign.map(|until| clock.to_caller(until, now));
        if let Some(tenant) = last_served {
            self.last_served.insert(instance, tenant);
        }
        let timers = chosen.timers.into_iter();
        let in_ready_order: BTreeSet<Ready> = timers.map(|(key, at)| (at, key)).collect();
        let until = clock.or(now).saturating_add(lease);
        let claimed = in_ready_order.into_iter();
        let claimed = claimed.filter_map(|(_, key)| self.claim(&key, until, instance));
        ClaimBatch {
            claims: claimed
                .map(|claim| Claim {
                    lease_until: now.saturating_add(lease),
                    ..claim
                })
                .collect(),
            more_due: chosen.more_due,
            next_due_at: earlier(next_ready, next_lease_end),
        }
    }

    fn claim(&mut self, key: &TimerKey, until: Timestamp, owner: u64) -> Option<Claim> {
        let mut row = self.take(key)?;
        self.last_token += 1;
        let token = ClaimToken(self.last_token);
        row.lost = None;
        row.lease = Some(Lease {
            token,
            until,
            owner,
        });
        let claim = Claim {
            timer: row.timer.clone(),
            attempts: row.failures.attempts,
            token,
            lease_until: until,
        };
        self.put(row);
        Some(claim)
    }

    /// When the first lease of another instance ends.
    fn next_foreign_lease(
        &self,
        instance: u64,
        excluded: &BTreeSet<TenantId>,
    ) -> Option<Timestamp> {
        let is_foreign = |key: &TimerKey| {
            let lease = self.rows.get(key).and_then(|row| row.lease);
            lease.is_some_and(|lease| lease.owner != instance)
        };
        let mut leased = self.leased.iter();
        let foreign = leased.find(|(_, key)| !excluded.contains(&key.tenant_id) && is_foreign(key));
        foreign.map(|(until, _)| *until)
    }
}

/// The unclaimed timers of the tenants that a claim does not exclude.
struct Due<'a> {
    state: &'a State,
    now: Timestamp,
    excluded: &'a BTreeSet<TenantId>,
}

impl Due<'_> {
    /// The timers of each tenant, for claims that exclude some.
    fn by_tenant(
        &self,
    ) -> impl Iterator<Item = (&TenantId, &BTreeSet<(Timestamp, ServiceCallId)>)> {
        let tenants = self.state.ready_by_tenant.iter();
        tenants.filter(|(tenant, _)| !self.excluded.contains(tenant))
    }

    fn oldest(&self, limit: usize) -> BTreeMap<TimerKey, Timestamp> {
        if self.excluded.is_empty() {
            let due = self.state.ready.range(..=last_at(self.now)).take(limit);
            return due.map(|(at, key)| (key.clone(), *at)).collect();
        }
        let due: BTreeSet<Ready> = self
            .by_tenant()
            .flat_map(|(tenant, ready)| {
                let due = ready.range(..=(self.now, LAST)).take(limit);
                due.map(|(at, call)| (*at, TimerKey::new(tenant.clone(), *call)))
            })
            .collect();
        let oldest = due.into_iter().take(limit);
        oldest.map(|(at, key)| (key, at)).collect()
    }

    /// When the next one is ready.
    fn next_ready(&self) -> Option<Timestamp> {
        if self.excluded.is_empty() {
            let later = (Excluded(last_at(self.now)), Unbounded);
            return self.state.ready.range(later).next().map(|(at, _)| *at);
        }
        let later = self.by_tenant().filter_map(|(_, ready)| {
            let mut later = ready.range((Excluded((self.now, LAST)), Unbounded));
            later.next().map(|(at, _)| *at)
        });
        later.min()
    }
}

impl DueTimers for Due<'_> {
    type Id = TimerKey;
    type Tenant = TenantId;
    type Error = Infallible;

    fn now(&self) -> Timestamp {
        self.now
    }

    fn newest(&self, limit: usize) -> Result<BTreeMap<TimerKey, Timestamp>, Infallible> {
        if self.excluded.is_empty() {
            let due = self.state.ready.range(..=last_at(self.now)).rev();
            return Ok(due
                .take(limit)
                .map(|(at, key)| (key.clone(), *at))
                .collect());
        }
        let due: BTreeSet<Ready> = self
            .by_tenant()
            .flat_map(|(tenant, ready)| {
                let due = ready.range(..=(self.now, LAST)).rev().take(limit);
                due.map(|(at, call)| (*at, TimerKey::new(tenant.clone(), *call)))
            })
            .collect();
        let newest = due.into_iter().rev().take(limit);
        Ok(newest.map(|(at, key)| (key, at)).collect())
    }

    fn tenant_after(&mut self, tenant: Option<&TenantId>) -> Result<Option<TenantId>, Infallible> {
        let from = tenant.map_or(Unbounded, Excluded);
        let tenants = self.state.ready_by_tenant.range((from, Unbounded));
        let mut tenants = tenants.map(|(tenant, _)| tenant);
        Ok(tenants.find(|it| !self.excluded.contains(it)).cloned())
    }

    fn of_tenant(
        &self,
        tenant: &TenantId,
        mut takes_more: impl FnMut(TimerKey, Timestamp) -> bool,
    ) -> Result<Option<Timestamp>, Infallible> {
        let ready = self.state.ready_by_tenant.get(tenant);
        for (at, call) in ready.into_iter().flatten() {
            if *at > self.now {
                return Ok(Some(*at));
            }
            if !takes_more(TimerKey::new(tenant.clone(), *call), *at) {
                return Ok(None);
            }
        }
        Ok(None)
    }

    fn next_due_at(&self) -> Result<Option<Timestamp>, Infallible> {
        Ok(self.next_ready())
    }
}
