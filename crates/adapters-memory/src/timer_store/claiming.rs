//! Which due timers a claim gets: all of them, or a fair share if there are too many.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};
use std::time::Duration;

use punctual_domain::{ServiceCallId, TenantId, TimerKey, Timestamp};
use punctual_ports::{Claim, ClaimBatch, ClaimToken};

use super::reading::LAST;
use super::state::{Lease, State};

type Ready = (Timestamp, TimerKey);

/// The last position in the order of readiness that is not later than `now`.
fn last_at(now: Timestamp) -> Ready {
    // No tenant id sorts after the longest one of the greatest allowed character.
    let last = TenantId::new(&"z".repeat(TenantId::MAX_LEN)).unwrap_or_default();
    (now, TimerKey::new(last, LAST))
}

impl State {
    pub(super) fn claim_due(
        &mut self,
        now: Timestamp,
        limit: usize,
        lease: Duration,
        excluded: &BTreeSet<TenantId>,
    ) -> ClaimBatch {
        self.end_leases_up_to(now);
        let mut chosen = self.oldest(now, limit.saturating_add(1), excluded);
        let more_due = chosen.len() > limit;
        if more_due {
            chosen = self.share(now, limit, chosen, excluded);
        }
        let until = now.saturating_add(lease);
        let claims = chosen
            .into_iter()
            .filter_map(|(_, key)| self.claim(&key, until))
            .collect();
        ClaimBatch {
            claims,
            more_due,
            next_due_at: self.next_due_at(now, excluded),
        }
    }

    /// The unclaimed timers of each tenant that is not excluded.
    fn of_others<'a>(
        &'a self,
        excluded: &'a BTreeSet<TenantId>,
    ) -> impl Iterator<Item = (&'a TenantId, &'a BTreeSet<(Timestamp, ServiceCallId)>)> {
        let tenants = self.ready_by_tenant.iter();
        tenants.filter(|(tenant, _)| !excluded.contains(tenant))
    }

    /// The oldest that are due.
    fn oldest(
        &self,
        now: Timestamp,
        limit: usize,
        excluded: &BTreeSet<TenantId>,
    ) -> BTreeSet<Ready> {
        if excluded.is_empty() {
            let due = self.ready.iter().take_while(|(at, _)| *at <= now);
            return due.take(limit).cloned().collect();
        }
        let due: BTreeSet<Ready> = self
            .of_others(excluded)
            .flat_map(|(tenant, ready)| {
                let due = ready.iter().take_while(|(at, _)| *at <= now).take(limit);
                due.map(|(at, call)| (*at, TimerKey::new(tenant.clone(), *call)))
            })
            .collect();
        due.into_iter().take(limit).collect()
    }

    /// The newest that are due.
    fn newest(
        &self,
        now: Timestamp,
        limit: usize,
        excluded: &BTreeSet<TenantId>,
    ) -> BTreeSet<Ready> {
        if excluded.is_empty() {
            let due = self.ready.range(..=last_at(now)).rev();
            return due.take(limit).cloned().collect();
        }
        let due: BTreeSet<Ready> = self
            .of_others(excluded)
            .flat_map(|(tenant, ready)| {
                let due = ready.range(..=(now, LAST)).rev().take(limit);
                due.map(|(at, call)| (*at, TimerKey::new(tenant.clone(), *call)))
            })
            .collect();
        due.into_iter().rev().take(limit).collect()
    }

    fn next_due_at(&self, now: Timestamp, excluded: &BTreeSet<TenantId>) -> Option<Timestamp> {
        if excluded.is_empty() {
            let mut later = self.ready.range((Excluded(last_at(now)), Unbounded));
            return later.next().map(|(at, _)| *at);
        }
        let later = self.of_others(excluded).filter_map(|(_, ready)| {
            let mut later = ready.range((Excluded((now, LAST)), Unbounded));
            later.next().map(|(at, _)| *at)
        });
        later.min()
    }

    fn claim(&mut self, key: &TimerKey, until: Timestamp) -> Option<Claim> {
        let mut row = self.take(key)?;
        self.last_token += 1;
        let token = ClaimToken(self.last_token);
        row.lease = Some(Lease { token, until });
        let claim = Claim {
            timer: row.timer.clone(),
            attempts: row.failures.attempts,
            token,
            lease_until: until,
        };
        self.put(row);
        Some(claim)
    }

    /// A quarter for the newest, so that fresh timers do not wait for a backlog; a quarter for the
    /// tenants in turn, so that none waits for another's; the rest for the oldest.
    fn share(
        &mut self,
        now: Timestamp,
        limit: usize,
        oldest: BTreeSet<Ready>,
        excluded: &BTreeSet<TenantId>,
    ) -> BTreeSet<Ready> {
        let quarter = limit / 4;
        let mut chosen = self.newest(now, quarter, excluded);
        let slots = quarter.max(1).min(limit);
        self.serve_tenants_in_turn(now, slots, excluded, &mut chosen);
        for ready in oldest {
            if chosen.len() >= limit {
                break;
            }
            chosen.insert(ready);
        }
        chosen
    }

    /// Gives each tenant after the one that was served last its oldest timer.
    fn serve_tenants_in_turn(
        &mut self,
        now: Timestamp,
        slots: usize,
        excluded: &BTreeSet<TenantId>,
        chosen: &mut BTreeSet<Ready>,
    ) {
        let last_served = self.last_served.clone();
        let is_later = |tenant: &TenantId| last_served.as_ref().is_none_or(|last| tenant > last);
        let (earlier, later): (Vec<_>, Vec<_>) = self
            .of_others(excluded)
            .filter_map(|(tenant, ready)| Some((tenant, ready.first()?)))
            .filter(|(_, (at, _))| *at <= now)
            .map(|(tenant, (at, call))| (*at, TimerKey::new(tenant.clone(), *call)))
            .partition(|(_, key)| !is_later(&key.tenant_id));
        for ready in later.into_iter().chain(earlier).take(slots) {
            self.last_served = Some(ready.1.tenant_id.clone());
            chosen.insert(ready);
        }
    }
}
