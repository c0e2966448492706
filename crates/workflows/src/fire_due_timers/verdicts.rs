//! Taking in what completed operations brought.

use std::time::Duration;

use punctual_domain::Timestamp;
use punctual_ports::{
    BatchResult, Claim, ClaimBatch, ClaimOutcome, ClaimRef, FiredTimer, PortError, PortErrorKind,
    RetryLater,
};

use super::failures::{DeadLettered, Failure, Retry};
use super::in_flight::{Admission, Lease, Stage};
use super::operations::Event;
use super::pause::Pause;
use super::publishing::{Firing, Verdict, tenants};
use super::settlements::Settled;
use super::{TimerWorker, WorkerStopped};
use crate::metric_names;
use punctual_domain::Backoff;

/// How long a failing timer waits: from a second up to an hour.
const RETRY: Backoff = Backoff {
    first: Duration::from_secs(1),
    limit: Duration::from_hours(1),
};

/// However slow a look was, no more than this is added to a lease for it.
const LONGEST_ALLOWANCE: Duration = Duration::from_mins(10);

impl TimerWorker {
    pub(super) fn take_in(&mut self, event: Event) -> Result<(), WorkerStopped> {
        match event {
            Event::Claimed {
                batch,
                now,
                lease_until,
                took,
            } => {
                self.under_way.claim = false;
                self.last_poll_took = took.min(LONGEST_ALLOWANCE);
                metrics::histogram!(metric_names::POLLING_DURATION).record(took.as_secs_f64());
                self.take_in_poll(batch, now, lease_until)
            }
            Event::Published {
                batch,
                verdicts,
                is_probe,
            } => {
                self.probes -= usize::from(is_probe);
                self.places.give_back(&tenants(&batch));
                self.saturation.made_room();
                for (firing, verdict) in batch.iter().zip(verdicts) {
                    self.take_in_verdict(firing, verdict);
                }
                Ok(())
            }
            Event::Settled(settled) => {
                self.under_way.settlement = false;
                self.take_in_settled(settled)
            }
            Event::Adopted => {
                self.adopted -= 1;
                Ok(())
            }
            Event::Renewed {
                claims,
                lease,
                answer,
            } => {
                self.under_way.renewal = false;
                self.take_in_renewal(&claims, lease, answer)
            }
        }
    }

    fn take_in_poll(
        &mut self,
        batch: Result<ClaimBatch, PortError>,
        now: Timestamp,
        lease_until: Duration,
    ) -> Result<(), WorkerStopped> {
        let batch = match batch {
            Ok(batch) => batch,
            // Not this time's misfortune: a store that may not claim never will.
            Err(error) if error.kind() == PortErrorKind::Rejected => {
                return Err(WorkerStopped { cause: error });
            }
            Err(error) => {
                // The look saw nothing, so the next one is due as this one was.
                self.ports.wake.end_poll(Some(now));
                return self.store_failed(error);
            }
        };
        self.store_pause.succeeded();
        self.ports.last_poll.is_now(now);
        metrics::gauge!(metric_names::LAST_POLL).set(now.since(Timestamp::MIN).as_secs_f64());
        let found_some = self.take_in_claims(batch.claims, lease_until);
        // A look that brought nothing to do although more is due, because the store is confused, is
        // repeated when something changes or by the poll, and not at once: that would be a busy loop.
        self.backlog.is_there = batch.more_due;
        self.backlog.is_wanted = batch.more_due && (found_some || self.backlog.is_wanted);
        self.ports.wake.end_poll(batch.next_due_at);
        if self.is_draining {
            self.give_back_what_is_ready();
        }
        Ok(())
    }

    /// Takes claims in hand; false if there was nothing new to do among them.
    fn take_in_claims(&mut self, claims: Vec<Claim>, lease_until: Duration) -> bool {
        let mut found_some = false;
        let monotonic = self.ports.clock.monotonic();
        for claim in claims {
            match self.in_flight.take(&claim, lease_until) {
                Admission::WasInFlight => {}
                Admission::Ready => {
                    found_some = true;
                    self.ready.push(claim.timer, monotonic);
                }
            }
        }
        if found_some {
            self.waits_since(monotonic);
        }
        if self.next_renewal.is_none() && !self.in_flight.is_empty() {
            let interval = self.settings.renewal_interval();
            self.next_renewal = Some(monotonic.saturating_add(interval));
        }
        found_some
    }

    fn take_in_verdict(&mut self, firing: &Firing, verdict: Verdict) {
        let firing_id = firing.firing_id();
        let Some(claim) = self.in_flight.reference(&firing_id) else {
            return;
        };
        let _in_span = firing.span().entered();
        self.in_flight.set_stage(&firing_id, Stage::Settling);
        let now = self.ports.clock.now();
        match verdict {
            Verdict::Acknowledged => {
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
            Verdict::Poison(reason) => {
                self.bus_pause.succeeded();
                self.unsettled.dead.push(DeadLettered {
                    request: firing.dead(claim, &reason, now),
                    span: firing.span(),
                });
            }
            Verdict::Failed(error) => {
                self.bus_pause.succeeded();
                self.retry_later(firing, claim, &error, now);
            }
            Verdict::BusFailed(error) => {
                if self.bus_pause.failed(self.ports.clock.monotonic()) {
                    tracing::warn!(%error, "events cannot be published now");
                }
                metrics::counter!(metric_names::RELEASED).increment(1);
                self.unsettled.releases.push(claim);
                self.give_back_what_is_ready();
            }
        }
    }

    fn retry_later(&mut self, firing: &Firing, claim: ClaimRef, error: &PortError, now: Timestamp) {
        let attempts = self
            .in_flight
            .get(&claim.firing_id)
            .map_or(0, |held| held.attempts);
        let attempt = attempts.saturating_add(1);
        let wait = RETRY.after(attempt, &claim.firing_id);
        self.unsettled.retries.push(Retry {
            request: RetryLater::new(claim, now.saturating_add(wait), &error.to_string()),
            failure: Some(Failure {
                attempt,
                is_permanent: !error.is_retryable(),
                span: firing.span(),
            }),
        });
    }

    /// Gives back what was claimed and has not begun.
    pub(super) fn give_back_what_is_ready(&mut self) {
        for timer in self.ready.take_all() {
            let firing_id = timer.firing_id();
            if let Some(claim) = self.in_flight.reference(&firing_id) {
                self.in_flight.set_stage(&firing_id, Stage::Settling);
                metrics::counter!(metric_names::RELEASED).increment(1);
                self.unsettled.releases.push(claim);
            }
        }
    }

    fn take_in_settled(&mut self, settled: Settled) -> Result<(), WorkerStopped> {
        metrics::counter!(metric_names::SCHEDULES_PROCESSED).increment(settled.processed);
        for told in &settled.done {
            // Claimed again while it was being settled: what was said concerned the old claim.
            if let Some(newer) = self.in_flight.settled(told) {
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
        // What had to go back because its tenant might not begin it is looked for when the tenant may
        // again. If that has happened already, the look for it was too early to find it.
        let mut held_back = settled.held_back.iter();
        let may_begin = held_back.any(|tenant| !self.saturation.contains(tenant));
        if settled.released || may_begin {
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

    fn take_in_renewal(
        &mut self,
        claims: &[ClaimRef],
        lease: Lease,
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
                Ok(ClaimOutcome::Applied) => self.in_flight.renewed(claim, lease),
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

/// A broken store ends the worker; one that fails for now is left alone for a while.
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
