//! The timers that this worker has claimed and not settled: a bounded set of leases.

use std::collections::HashMap;
use std::time::Duration;

use punctual_domain::{FiringId, Timestamp};
use punctual_ports::{Claim, ClaimRef, ClaimToken, ClockPort, FiredTimer};

use crate::in_flight_epoch::EpochGuard;

/// The stage of a claimed timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// It waits for a publish slot.
    Ready,
    /// Its event is being published.
    Publishing,
    /// Its outcome has to be written to the store.
    Settling,
}

/// A lease on a timer.
#[derive(Debug, Clone)]
pub(super) struct Lease {
    token: ClaimToken,
    pub(super) attempts: u32,
    expiry: LeaseExpiry,
    stage: Stage,
    /// From the publish until the store has written the outcome.
    epoch: Option<EpochGuard>,
}

/// When a lease expires. The store counts by the wall clock; the monotonic clock still ends the lease
/// if the wall clock was set back meanwhile.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeaseExpiry {
    pub(crate) wall: Timestamp,
    pub(crate) monotonic: Duration,
}

impl LeaseExpiry {
    /// Whether another worker may have claimed by now what the lease is on.
    pub(crate) fn has_come(self, clock: &dyn ClockPort) -> bool {
        // A wall clock at the end of time can show no lease that has not expired.
        let by_wall = self.wall < Timestamp::MAX && clock.now() >= self.wall;
        by_wall || clock.monotonic() >= self.monotonic
    }
}

impl Lease {
    pub(super) fn is_ready(&self) -> bool {
        self.stage == Stage::Ready
    }

    /// Whether another worker may have claimed the timer by now.
    pub(super) fn has_expired(&self, clock: &dyn ClockPort) -> bool {
        self.expiry.has_come(clock)
    }
}

/// The leases of this worker, by firing.
#[derive(Default)]
pub(super) struct InFlight {
    leases: HashMap<FiringId, Lease>,
}

impl InFlight {
    pub(super) fn len(&self) -> usize {
        self.leases.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    pub(super) fn get(&self, firing_id: &FiringId) -> Option<&Lease> {
        self.leases.get(firing_id)
    }

    /// Adds a claim; false if its firing was in flight already. Its lease had expired then, and this
    /// worker claimed it again before any other: the firing continues under the new token, and its
    /// event is not published a second time.
    pub(super) fn insert(&mut self, claim: &Claim, monotonic: Duration) -> bool {
        let firing_id = claim.timer.firing_id();
        let expiry = LeaseExpiry {
            wall: claim.lease_until,
            monotonic,
        };
        if let Some(lease) = self.leases.get_mut(&firing_id) {
            lease.token = claim.token;
            lease.expiry = expiry;
            return false;
        }
        let lease = Lease {
            token: claim.token,
            attempts: claim.attempts,
            expiry,
            stage: Stage::Ready,
            epoch: None,
        };
        self.leases.insert(firing_id, lease);
        true
    }

    /// The claim of a firing in flight, as the store names it.
    pub(super) fn claim_of(&self, firing_id: &FiringId) -> Option<ClaimRef> {
        let lease = self.leases.get(firing_id)?;
        Some(ClaimRef {
            firing_id: firing_id.clone(),
            token: lease.token,
        })
    }

    pub(super) fn set_stage(&mut self, firing_id: &FiringId, stage: Stage) {
        if let Some(lease) = self.leases.get_mut(firing_id) {
            lease.stage = stage;
        }
    }

    /// Moves a firing to the stage `Publishing`.
    pub(super) fn publishing(&mut self, firing_id: &FiringId, epoch: EpochGuard) {
        if let Some(lease) = self.leases.get_mut(firing_id) {
            lease.stage = Stage::Publishing;
            lease.epoch = Some(epoch);
        }
    }

    /// Removes a settled firing. If it was claimed again meanwhile, the newer claim is returned, and
    /// has to be settled too.
    pub(super) fn settled(&mut self, settled: &SettledClaim) -> Option<ClaimRef> {
        let current = self.claim_of(&settled.firing_id)?;
        match settled.token {
            Some(token) if token != current.token => Some(current),
            _ => {
                self.leases.remove(&settled.firing_id);
                None
            }
        }
    }

    /// All claims.
    pub(super) fn claims(&self) -> Vec<ClaimRef> {
        let leases = self.leases.iter();
        leases
            .map(|(firing_id, lease)| ClaimRef {
                firing_id: firing_id.clone(),
                token: lease.token,
            })
            .collect()
    }

    pub(super) fn renewed(&mut self, claim: &ClaimRef, expiry: LeaseExpiry) {
        if let Some(lease) = self.lease_under(claim) {
            lease.expiry = expiry;
        }
    }

    /// Handles the loss of a claim: a firing that still waits is dropped, and true is returned. An
    /// event being published may arrive, and one that has arrived is marked, whichever worker has
    /// the claim.
    pub(super) fn lost(&mut self, claim: &ClaimRef) -> bool {
        let waits = self.lease_under(claim).is_some_and(|it| it.is_ready());
        if waits {
            self.leases.remove(&claim.firing_id);
        }
        waits
    }

    fn lease_under(&mut self, claim: &ClaimRef) -> Option<&mut Lease> {
        let lease = self.leases.get_mut(&claim.firing_id)?;
        (lease.token == claim.token).then_some(lease)
    }
}

/// What the store has settled: one claim of a firing, or without a token the firing itself.
#[derive(Debug, Clone)]
pub(super) struct SettledClaim {
    pub(super) firing_id: FiringId,
    pub(super) token: Option<ClaimToken>,
}

impl SettledClaim {
    pub(super) fn of_claim(claim: &ClaimRef) -> Self {
        Self {
            firing_id: claim.firing_id.clone(),
            token: Some(claim.token),
        }
    }

    pub(super) fn of_firing(mark: &FiredTimer) -> Self {
        Self {
            firing_id: mark.firing_id.clone(),
            token: None,
        }
    }
}
