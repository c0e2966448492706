//! Settling of claims.

use punctual_domain::Timestamp;
use punctual_ports::{ClaimOutcome, ClaimRef, DeadLetterClaim, RetryLater};

use super::state::{Lease, Row, State};

impl State {
    pub(super) fn retry_later(&mut self, retry: &RetryLater) -> ClaimOutcome {
        let outcome = self.with_claimed(&retry.claim, |row| {
            row.failures.attempts = row.failures.attempts.saturating_add(1);
            row.failures.last_error = Some(retry.reason.clone());
            row.retry_at = Some(retry.retry_at);
            row.lease = None;
        });
        self.moved_or(outcome, &retry.claim)
    }

    pub(super) fn release(&mut self, claim: &ClaimRef) -> ClaimOutcome {
        self.with_claimed(claim, |row| row.lease = None)
    }

    pub(super) fn renew(&mut self, claim: &ClaimRef, until: Timestamp) -> ClaimOutcome {
        self.record_again(claim);
        self.with_claimed(claim, |row| {
            row.lease = row.lease.map(|lease| Lease { until, ..lease });
        })
    }

    /// Records a claim again that was lost in a crash, and nobody has made since.
    fn record_again(&mut self, claim: &ClaimRef) {
        let is_lost = self.rows.get(&claim.firing_id.key).is_some_and(|row| {
            row.timer.registration == claim.firing_id.registration
                && row.lost.is_some_and(|lost| lost.token == claim.token)
        });
        if is_lost && let Some(mut row) = self.take(&claim.firing_id.key) {
            row.lease = row.lost.take();
            self.put(row);
        }
    }

    pub(super) fn dead_letter(&mut self, dead: DeadLetterClaim) -> ClaimOutcome {
        let outcome = self.with_claimed(&dead.claim, |row| {
            row.failures.last_error = Some(dead.dead_letter.reason.clone());
            row.reach(dead.reached_at);
        });
        if outcome == ClaimOutcome::Applied {
            self.dead_letters.record(dead.dead_letter);
        }
        self.moved_or(outcome, &dead.claim)
    }

    /// Why a claim is lost, if it is.
    fn moved_or(&self, outcome: ClaimOutcome, claim: &ClaimRef) -> ClaimOutcome {
        match outcome {
            ClaimOutcome::Applied => outcome,
            _ => ClaimOutcome::of_lost(claim, self.existing(&claim.firing_id.key)),
        }
    }

    /// Changes a row if the claim is current.
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
