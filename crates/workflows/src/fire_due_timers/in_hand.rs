//! What the worker has claimed and not yet settled: a bounded set.

use std::collections::HashMap;

use punctual_domain::{FiringId, TenantId, Timestamp};
use punctual_ports::{Claim, ClaimRef, ClaimToken};

/// How far a claimed timer has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// It waits for a place.
    Ready,
    /// Its event is on the way.
    Publishing,
    /// The store has yet to hear what became of it.
    Settling,
}

#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) token: ClaimToken,
    pub(super) lease_until: Timestamp,
    pub(super) attempts: u32,
    stage: Stage,
}

impl Held {
    pub(super) fn is_ready(&self) -> bool {
        self.stage == Stage::Ready
    }
}

/// The claims of this worker, by what they would fire.
#[derive(Default)]
pub(super) struct InHand {
    held: HashMap<FiringId, Held>,
    publishing: HashMap<TenantId, usize>,
}

impl InHand {
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub(super) fn get(&self, firing_id: &FiringId) -> Option<&Held> {
        self.held.get(firing_id)
    }

    /// Takes a claim in hand; false if its firing was in hand already. Then the lease had ended
    /// under us and was ours again before anybody else's: what is under way goes on, under the new
    /// token, and the event is not published a second time.
    pub(super) fn take(&mut self, claim: &Claim) -> bool {
        let firing_id = claim.timer.firing_id();
        if let Some(held) = self.held.get_mut(&firing_id) {
            held.token = claim.token;
            held.lease_until = claim.lease_until;
            return false;
        }
        self.held.insert(
            firing_id,
            Held {
                token: claim.token,
                lease_until: claim.lease_until,
                attempts: claim.attempts,
                stage: Stage::Ready,
            },
        );
        true
    }

    /// How to name a claim in hand to the store.
    pub(super) fn reference(&self, firing_id: &FiringId) -> Option<ClaimRef> {
        let held = self.held.get(firing_id)?;
        Some(ClaimRef {
            firing_id: firing_id.clone(),
            token: held.token,
        })
    }

    pub(super) fn set_stage(&mut self, firing_id: &FiringId, stage: Stage) {
        let Some(held) = self.held.get_mut(firing_id) else {
            return;
        };
        let was = std::mem::replace(&mut held.stage, stage);
        self.count(&firing_id.key.tenant_id, was, stage);
    }

    pub(super) fn remove(&mut self, firing_id: &FiringId) {
        if let Some(held) = self.held.remove(firing_id) {
            self.count(&firing_id.key.tenant_id, held.stage, Stage::Settling);
        }
    }

    fn count(&mut self, tenant: &TenantId, was: Stage, is: Stage) {
        match (was == Stage::Publishing, is == Stage::Publishing) {
            (false, true) => *self.publishing.entry(tenant.clone()).or_default() += 1,
            (true, false) => {
                if let Some(count) = self.publishing.get_mut(tenant) {
                    *count -= 1;
                    if *count == 0 {
                        self.publishing.remove(tenant);
                    }
                }
            }
            _ => {}
        }
    }

    /// How many of a tenant's events are on the way.
    pub(super) fn publishing_of(&self, tenant: &TenantId) -> usize {
        self.publishing.get(tenant).copied().unwrap_or(0)
    }

    /// The claims whose lease ends at `until` or before.
    pub(super) fn ending_by(&self, until: Timestamp) -> Vec<ClaimRef> {
        let ending = self
            .held
            .iter()
            .filter(|(_, held)| held.lease_until <= until);
        ending
            .map(|(firing_id, held)| ClaimRef {
                firing_id: firing_id.clone(),
                token: held.token,
            })
            .collect()
    }

    pub(super) fn renewed(&mut self, claim: &ClaimRef, until: Timestamp) {
        if let Some(held) = self.held_under(claim) {
            held.lease_until = until;
        }
    }

    /// A claim was lost: what has not begun is given up. What is on the way may arrive, and what
    /// has arrived is still marked, which is right whoever holds the claim.
    pub(super) fn lost(&mut self, claim: &ClaimRef) {
        let not_begun = |held: &mut Held| held.stage == Stage::Ready;
        if self.held_under(claim).is_some_and(not_begun) {
            self.remove(&claim.firing_id);
        }
    }

    fn held_under(&mut self, claim: &ClaimRef) -> Option<&mut Held> {
        let held = self.held.get_mut(&claim.firing_id)?;
        (held.token == claim.token).then_some(held)
    }
}
