//! Which due timers a claim gets: all of them, or a fair share if there are too many.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};
use std::time::Duration;

use punctual_domain::{TenantId, TimerKey, Timestamp};
use punctual_ports::{Claim, ClaimBatch, ClaimToken};

use super::reading::LAST;
use super::state::{Lease, State};

type Ready = (Timestamp, TimerKey);

/// The last place in the order of readiness that is not later than `now`.
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
    ) -> ClaimBatch {
        self.end_leases_up_to(now);
        let due = || self.ready.iter().take_while(|(at, _)| *at <= now);
        let more_due = due().nth(limit).is_some();
        let chosen: BTreeSet<Ready> = if more_due {
            self.share(now, limit)
        } else {
            due().cloned().collect()
        };
        let until = now.saturating_add(lease);
        let claims = chosen
            .into_iter()
            .filter_map(|(_, key)| self.claim(&key, until))
            .collect();
        let next_due_at = self.ready.range((Excluded(last_at(now)), Unbounded)).next();
        let next_due_at = next_due_at.map(|(at, _)| *at);
        ClaimBatch {
            claims,
            more_due,
            next_due_at,
        }
    }

    fn claim(&mut self, key: &TimerKey, until: Timestamp) -> Option<Claim> {
        let mut row = self.take(key)?;
        self.last_token += 1;
        let token = ClaimToken(self.last_token);
        row.lease = Some(Lease { token, until });
        let claim = Claim {
            timer: row.timer.clone(),
            attempts: row.attempts,
            token,
            lease_until: until,
        };
        self.put(row);
        Some(claim)
    }

    /// A quarter for the newest, so that fresh timers do not wait for a backlog; a quarter for the
    /// tenants in turn, so that none waits for another's; the rest for the oldest.
    fn share(&mut self, now: Timestamp, limit: usize) -> BTreeSet<Ready> {
        let mut chosen = BTreeSet::new();
        let quarter = limit / 4;
        let newest = self.ready.range(..=last_at(now)).rev();
        chosen.extend(newest.take(quarter).cloned());
        self.serve_tenants_in_turn(now, quarter.max(1).min(limit), &mut chosen);
        for ready in &self.ready {
            if chosen.len() >= limit {
                break;
            }
            chosen.insert(ready.clone());
        }
        chosen
    }

    /// Gives each tenant after the one that was served last its oldest timer.
    fn serve_tenants_in_turn(
        &mut self,
        now: Timestamp,
        places: usize,
        chosen: &mut BTreeSet<Ready>,
    ) {
        let last_served = self.last_served.clone();
        let is_later = |tenant: &TenantId| last_served.as_ref().is_none_or(|last| tenant > last);
        let (earlier, later): (Vec<_>, Vec<_>) = self
            .ready_by_tenant
            .iter()
            .filter_map(|(tenant, ready)| Some((tenant, ready.first()?)))
            .filter(|(_, (at, _))| *at <= now)
            .partition(|(tenant, _)| !is_later(tenant));
        for (tenant, (at, call)) in later.into_iter().chain(earlier).take(places) {
            chosen.insert((*at, TimerKey::new(tenant.clone(), *call)));
            self.last_served = Some(tenant.clone());
        }
    }
}
