//! Applying the results of completed operations.

use std::time::Duration;

use punctual_domain::{ScheduledTimer, Timestamp};
use punctual_ports::{
    BatchResult, Claim, ClaimBatch, ClaimOutcome, ClaimRef, FiredTimer, PortError, PortErrorKind,
    RetryLater,
};

use super::failures::{DeadLettered, Failure, Retry};
use super::in_flight::{LeaseExpiry, Stage};
use super::operations::Event;
use super::pause::Pause;
use super::publishing::{Firing, PublishResult, tenants};
use super::settlements::Settled;
use super::{TimerWorker, WorkerStopped};
use crate::metric_names;
use crate::retries::TIMER_BACKOFF;

/// Maximum duration of a poll that lengthens the next lease.
const LONGEST_ALLOWANCE: Duration = Duration::from_mins(10);

impl TimerWorker {
    pub(super) fn on_event(&mut self, event: Event) -> Result<(), WorkerStopped> {
        match event {
            Event::Claimed {
                batch,
                now,
                lease_until,
                took,
            } => {
                self.outstanding.claim = false;
                self.last_poll_took = took.min(LONGEST_ALLOWANCE);
                metrics::histogram!(metric_names::POLLING_DURATION).record(took.as_secs_f64());
                self.on_polled(batch, now, lease_until)
            }
            Event::Published {
                batch,
                outcomes,
                is_probe,
            } => {
                self.probes -= usize::from(is_probe);
                self.publishes.release(&tenants(&batch));
                self.saturation.slot_freed();
                for (firing, outcome) in batch.iter().zip(outcomes) {
                    self.on_firing_outcome(firing, outcome);
                }
                Ok(())
            }
            Event::Settled(settled) => {
                self.outstanding.settlement = false;
                self.on_settled(settled)
            }
            Event::Detached => {
                self.detached -= 1;
                Ok(())
            }
            Event::Renewed {
                claims,
                expiry,
                answer,
            } => {
                self.outstanding.renewal = false;
                self.on_renewed(&claims, expiry, answer)
            }
        }
    }

    fn on_polled(
        &mut self,
        batch: Result<ClaimBatch, PortError>,
        now: Timestamp,
        lease_until: Duration,
    ) -> Result<(), WorkerStopped> {
        let batch = match batch {
            Ok(batch) => batch,
            // Not a passing failure: a store that may not claim never will.
            Err(error) if error.kind() == PortErrorKind::Rejected => {
                return Err(WorkerStopped { cause: error });
            }
            Err(error) => {
                // The poll read nothing, so the next one is due as this one was.
                self.ports.wake.end_poll(Some(now));
                return self.store_failed(error);
            }
        };
        self.store_pause.succeeded();
        self.ports.last_poll.record(now);
        metrics::gauge!(metric_names::LAST_POLL).set(now.since(Timestamp::MIN).as_secs_f64());
        let found_some = self.on_claims(batch.claims, lease_until);
        // A poll without a new claim although more is due, because the store is inconsistent, is
        // repeated after a change or the polling interval, and not at once: that would be a busy loop.
        self.backlog.is_there = batch.more_due;
        self.backlog.is_wanted = batch.more_due && (found_some || self.backlog.is_wanted);
        self.ports.wake.end_poll(batch.next_due_at);
        if self.is_draining {
            self.release_ready();
        }
        Ok(())
    }

    /// Queues new claims; false if there was none.
    fn on_claims(&mut self, claims: Vec<Claim>, lease_until: Duration) -> bool {
        let mut found_some = false;
        let monotonic = self.ports.clock.monotonic();
        for claim in claims {
            if self.in_flight.insert(&claim, lease_until) {
                found_some = true;
                self.ready.push(claim.timer, monotonic);
            }
        }
        if found_some {
            self.schedule_saturation_check(monotonic);
        }
        if self.next_renewal.is_none() && !self.in_flight.is_empty() {
            let interval = self.settings.renewal_interval();
            self.next_renewal = Some(monotonic.saturating_add(interval));
        }
        found_some
    }

    fn on_firing_outcome(&mut self, firing: &Firing, outcome: PublishResult) {
        let firing_id = firing.firing_id();
        let Some(claim) = self.in_flight.claim_of(&firing_id) else {
            return;
        };
        let _in_span = firing.span().entered();
        self.in_flight.set_stage(&firing_id, Stage::Settling);
        let now = self.ports.clock.now();
        match outcome {
            PublishResult::Acknowledged => {
                self.bus_pause.succeeded();
                let reached_at = firing.reached.reached_at();
                let lateness = reached_at.since(firing_id.registration.due_at);
                metrics::histogram!(metric_names::LATENESS).record(lateness.as_secs_f64());
                tracing::debug!(?lateness, "a timer has fired");
                self.unsettled.marks.push(FiredTimer {
                    firing_id,
                    reached_at,
                });
            }
            PublishResult::Poison(reason) => {
                self.bus_pause.succeeded();
                self.unsettled.dead.push(DeadLettered {
                    request: firing.dead_letter_claim(claim, &reason, now),
                    span: firing.span(),
                });
            }
            PublishResult::Failed(error) => {
                self.bus_pause.succeeded();
                self.retry_later(firing, claim, &error, now);
            }
            PublishResult::BusFailed(error) => {
                if self.bus_pause.failed(self.ports.clock.monotonic()) {
                    tracing::warn!(%error, "events cannot be published now");
                }
                metrics::counter!(metric_names::RELEASED).increment(1);
                self.unsettled.releases.push(claim);
                self.release_ready();
            }
        }
    }

    fn retry_later(&mut self, firing: &Firing, claim: ClaimRef, error: &PortError, now: Timestamp) {
        let attempts = self
            .in_flight
            .get(&claim.firing_id)
            .map_or(0, |lease| lease.attempts);
        let attempt = attempts.saturating_add(1);
        let wait = TIMER_BACKOFF.after(attempt, &claim.firing_id);
        self.unsettled.retries.push(Retry {
            request: RetryLater::new(claim, now.saturating_add(wait), &error.to_string()),
            failure: Some(Failure {
                attempt,
                is_permanent: !error.is_retryable(),
                span: firing.span(),
            }),
        });
    }

    /// Releases the claims that wait for a publish slot.
    pub(super) fn release_ready(&mut self) {
        let timers = self.ready.take_all();
        let claims = self.release(&timers);
        self.unsettled.releases.extend(claims);
    }

    /// The claims of these timers, to be released.
    pub(super) fn release(&mut self, timers: &[ScheduledTimer]) -> Vec<ClaimRef> {
        let ids = timers.iter().map(ScheduledTimer::firing_id);
        let claims: Vec<ClaimRef> = ids.filter_map(|id| self.in_flight.claim_of(&id)).collect();
        for claim in &claims {
            self.in_flight.set_stage(&claim.firing_id, Stage::Settling);
        }
        metrics::counter!(metric_names::RELEASED).increment(claims.len() as u64);
        claims
    }

    fn on_settled(&mut self, settled: Settled) -> Result<(), WorkerStopped> {
        metrics::counter!(metric_names::SCHEDULES_PROCESSED).increment(settled.processed);
        for done in &settled.done {
            // Claimed again during the settlement, which concerned the old claim.
            if let Some(newer) = self.in_flight.settled(done) {
                self.unsettled.releases.push(newer);
            }
        }
        for (retry, outcome) in settled.retries {
            retry.report(outcome);
            self.ports.wake.due_at(retry.request.retry_at);
        }
        for (dead, outcome) in settled.dead {
            dead.report(outcome);
        }
        // The claims of a saturated tenant are polled for when it has a free slot again. If it has one
        // already, that poll was too early to find them.
        let mut saturated = settled.saturated.iter();
        let has_slot = saturated.any(|tenant| !self.saturation.contains(tenant));
        if settled.released || has_slot {
            self.ports.wake.due_at(self.ports.clock.now());
        }
        self.unsettled.put_back(settled.failed);
        let monotonic = self.ports.clock.monotonic();
        if let Some(error) = settled.error {
            return failed(&mut self.settle_pause, error, monotonic);
        }
        self.settle_pause.succeeded();
        Ok(())
    }

    fn on_renewed(
        &mut self,
        claims: &[ClaimRef],
        expiry: LeaseExpiry,
        answer: BatchResult<ClaimOutcome>,
    ) -> Result<(), WorkerStopped> {
        let answers = match answer {
            Ok(answers) => answers,
            Err(error) => {
                let soon = self.settings.renewal_interval() / 10;
                self.next_renewal = Some(self.ports.clock.monotonic().saturating_add(soon));
                return self.store_failed(error);
            }
        };
        for (claim, answer) in claims.iter().zip(answers) {
            match answer {
                Ok(ClaimOutcome::Applied) => self.in_flight.renewed(claim, expiry),
                Ok(_) if self.in_flight.lost(claim) => self.ready.remove(&claim.firing_id),
                Ok(_) => {}
                Err(error) if error.kind().is_critical() => return self.store_failed(error),
                Err(error) => tracing::warn!(%error, "a claim could not be renewed"),
            }
        }
        Ok(())
    }

    fn store_failed(&mut self, error: PortError) -> Result<(), WorkerStopped> {
        failed(&mut self.store_pause, error, self.ports.clock.monotonic())
    }
}

/// A critical error stops the worker; any other pauses the use of the store.
fn failed(pause: &mut Pause, error: PortError, monotonic: Duration) -> Result<(), WorkerStopped> {
    if error.kind().is_critical() {
        tracing::error!(%error, "the timer worker stops");
        return Err(WorkerStopped { cause: error });
    }
    if pause.failed(monotonic) {
        tracing::warn!(%error, "the timer store fails for now");
    }
    Ok(())
}
