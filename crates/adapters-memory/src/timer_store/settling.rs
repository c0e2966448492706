//! What a worker says of its claims.

use punctual_domain::Timestamp;
use punctual_ports::{Burial, ClaimOutcome, ClaimRef, RetryLater};

use super::state::{Lease, Row, State};

impl State {
    pub(super) fn retry_later(&mut self, retry: &RetryLater) -> ClaimOutcome {
        self.with_claimed(&retry.claim, |row| {
            row.attempts = row.attempts.saturating_add(1);
            row.retry_at = Some(retry.retry_at);
            row.lease = None;
        })
    }

    pub(super) fn release(&mut self, claim: &ClaimRef) -> ClaimOutcome {
        self.with_claimed(claim, |row| row.lease = None)
    }

    pub(super) fn renew(&mut self, claim: &ClaimRef, until: Timestamp) -> ClaimOutcome {
        let token = claim.token;
        self.with_claimed(claim, |row| row.lease = Some(Lease { token, until }))
    }

    pub(super) fn bury(&mut self, burial: Burial) -> ClaimOutcome {
        let outcome = self.with_claimed(&burial.claim, |row| row.reach(burial.reached_at));
        if outcome == ClaimOutcome::Applied {
            self.dead_letters.record(burial.letter);
        }
        outcome
    }

    /// Changes a row if the claim still holds it.
    fn with_claimed(&mut self, claim: &ClaimRef, change: impl FnOnce(&mut Row)) -> ClaimOutcome {
        let holds = self.rows.get(&claim.firing_id.key).is_some_and(|row| {
            row.timer.registration == claim.firing_id.registration
                && row.lease.is_some_and(|lease| lease.token == claim.token)
        });
        match holds.then(|| self.take(&claim.firing_id.key)).flatten() {
            Some(mut row) => {
                change(&mut row);
                self.put(row);
                ClaimOutcome::Applied
            }
            None => ClaimOutcome::Lost,
        }
    }
}
