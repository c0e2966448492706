//! What the worker has claimed and not yet settled: a bounded set.

use std::collections::HashMap;
use std::time::Duration;

use punctual_domain::{FiringId, Timestamp};
use punctual_ports::{Claim, ClaimRef, ClaimToken, ClockPort, FiredTimer};

use crate::in_flight_epoch::Round;

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
    token: ClaimToken,
    pub(super) attempts: u32,
    lease: Lease,
    stage: Stage,
    /// From when its event may be with the bus until the store has heard of it.
    begun: Option<Round>,
}

/// How long a claim lasts. The store counts by the wall clock; the monotonic clock still tells when
/// the lease has passed if the wall clock was set back meanwhile.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lease {
    pub(super) wall: Timestamp,
    pub(super) monotonic: Duration,
}

impl Held {
    pub(super) fn is_ready(&self) -> bool {
        self.stage == Stage::Ready
    }

    /// Whether somebody else may have the timer by now.
    pub(super) fn lease_has_ended(&self, clock: &dyn ClockPort) -> bool {
        // A wall clock at the end of time can show no lease that has not ended.
        let by_wall = self.lease.wall < Timestamp::MAX && clock.now() >= self.lease.wall;
        by_wall || clock.monotonic() >= self.lease.monotonic
    }
}

/// The claims of this worker, by what they would fire.
#[derive(Default)]
pub(super) struct InFlight {
    held: HashMap<FiringId, Held>,
}

impl InFlight {
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub(super) fn get(&self, firing_id: &FiringId) -> Option<&Held> {
        self.held.get(firing_id)
    }

    /// Takes a claim in hand, and says what to do with it.
    pub(super) fn take(&mut self, claim: &Claim, monotonic: Duration) -> Admission {
        let firing_id = claim.timer.firing_id();
        let lease = Lease {
            wall: claim.lease_until,
            monotonic,
        };
        if let Some(held) = self.held.get_mut(&firing_id) {
            held.token = claim.token;
            held.lease = lease;
            return Admission::WasInFlight;
        }
        self.held.insert(
            firing_id,
            Held {
                token: claim.token,
                attempts: claim.attempts,
                lease,
                stage: Stage::Ready,
                begun: None,
            },
        );
        Admission::Ready
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
        if let Some(held) = self.held.get_mut(firing_id) {
            held.stage = stage;
        }
    }

    /// Its event is on the way.
    pub(super) fn begins(&mut self, firing_id: &FiringId, round: Round) {
        if let Some(held) = self.held.get_mut(firing_id) {
            held.stage = Stage::Publishing;
            held.begun = Some(round);
        }
    }

    /// The store has heard what became of a firing: it is off our hands. If it was claimed again
    /// meanwhile, the newer claim is returned, and has to be settled too.
    pub(super) fn settled(&mut self, told: &Told) -> Option<ClaimRef> {
        let current = self.reference(&told.firing_id)?;
        match told.token {
            Some(token) if token != current.token => Some(current),
            _ => {
                self.remove(&told.firing_id);
                None
            }
        }
    }

    pub(super) fn remove(&mut self, firing_id: &FiringId) {
        self.held.remove(firing_id);
    }

    /// All claims.
    pub(super) fn references(&self) -> Vec<ClaimRef> {
        let held = self.held.iter();
        held.map(|(firing_id, held)| ClaimRef {
            firing_id: firing_id.clone(),
            token: held.token,
        })
        .collect()
    }

    pub(super) fn renewed(&mut self, claim: &ClaimRef, lease: Lease) {
        if let Some(held) = self.held_under(claim) {
            held.lease = lease;
        }
    }

    /// A claim was lost: what has not begun is given up, and true is returned. What is on the way
    /// may arrive, and what has arrived is still marked, which is right whoever holds the claim.
    pub(super) fn lost(&mut self, claim: &ClaimRef) -> bool {
        let not_begun = self.held_under(claim).is_some_and(|held| held.is_ready());
        if not_begun {
            self.remove(&claim.firing_id);
        }
        not_begun
    }

    fn held_under(&mut self, claim: &ClaimRef) -> Option<&mut Held> {
        let held = self.held.get_mut(&claim.firing_id)?;
        (held.token == claim.token).then_some(held)
    }
}

/// What the store has heard of: a firing, whoever claimed it, or one claim of it.
#[derive(Debug, Clone)]
pub(super) struct Told {
    pub(super) firing_id: FiringId,
    pub(super) token: Option<ClaimToken>,
}

impl Told {
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

/// What to do with a new claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// It waits for its turn.
    Ready,
    /// Its firing was in hand already: the lease had ended under us and was ours again before
    /// anybody else's. What is under way goes on, under the new token, and the event is not
    /// published a second time.
    WasInFlight,
}
