//! Starting operations that may start now, and setting the alarm for those that may not yet.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use punctual_domain::{EnvelopeId, ScheduledTimer, Timestamp};
use punctual_ports::{BatchResult, ClaimBatch, ClaimOutcome, ClaimRef, PortError, RetryLater};

use super::TimerWorker;
use super::failures::Retry;
use super::in_flight::{LeaseExpiry, Stage};
use super::publishing::{self, Firing, PublishResult, tenants};
use super::settlements::{Settled, settle};
use crate::alarm::Alarm;
use crate::retries::PORT_BACKOFF;
use crate::wake_signal::MAX_DETACHED;

/// A completed operation.
pub(super) enum Event {
    Claimed {
        batch: Result<ClaimBatch, PortError>,
        now: Timestamp,
        /// When the leases expire, by the monotonic clock.
        lease_until: Duration,
        took: Duration,
    },
    Published {
        batch: Vec<Firing>,
        outcomes: Vec<PublishResult>,
        /// Whether it probed if the bus is available again.
        is_probe: bool,
    },
    Settled(Settled),
    /// A save that its caller had dropped has completed.
    Detached,
    Renewed {
        claims: Vec<ClaimRef>,
        expiry: LeaseExpiry,
        answer: BatchResult<ClaimOutcome>,
    },
}

/// Maximum number of timers claimed to probe a bus that failed.
const PROBE: usize = 8;
/// Interval and minimum size of claims from the reserve: of four timers, the store gives one that has
/// just become due.
const RESERVE_EVERY: Duration = Duration::from_millis(20);
const MIN_FROM_RESERVE: usize = 4;

/// How many timers to claim.
struct ClaimSize {
    limit: usize,
    /// Whether they come out of what a backlog leaves free for other timers.
    from_reserve: bool,
}

impl TimerWorker {
    /// Starts all operations that may start now, and returns when more may.
    pub(super) fn launch(&mut self) -> Alarm {
        let mut alarm = Alarm::default();
        for work in self.ports.wake.take_detached(MAX_DETACHED - self.detached) {
            self.detached += 1;
            self.start(work.map(|()| Event::Detached).boxed());
        }
        self.launch_renewal(&mut alarm);
        // Before the settlement, which releases what turns out to be expired, not due or without a slot.
        self.launch_publishes();
        self.resume_tenants();
        self.detect_saturation(&mut alarm);
        self.launch_settlement(&mut alarm);
        self.launch_claim(&mut alarm);
        self.alarm.set(alarm);
        alarm
    }

    fn start(&mut self, operation: BoxFuture<'static, Event>) {
        self.operations.push(operation);
    }

    fn launch_settlement(&mut self, alarm: &mut Alarm) {
        if self.outstanding.settlement || self.unsettled.is_empty() {
            return;
        }
        if let Some(until) = self.settle_pause.until(self.ports.clock.monotonic()) {
            alarm.at_monotonic(until);
            return;
        }
        self.outstanding.settlement = true;
        let mut batch = self.unsettled.take();
        batch.refresh_claims(&self.in_flight);
        let (persistence, queue) = (self.ports.persistence.clone(), self.ports.queue.clone());
        self.start(
            settle(persistence, queue, batch)
                .map(Event::Settled)
                .boxed(),
        );
    }

    /// Renews all leases well before they expire: a slow handler keeps its timer.
    fn launch_renewal(&mut self, alarm: &mut Alarm) {
        let Some(next_renewal) = self.next_renewal else {
            return;
        };
        if self.outstanding.renewal {
            return;
        }
        let (now, monotonic) = (self.ports.clock.now(), self.ports.clock.monotonic());
        if monotonic < next_renewal {
            alarm.at_monotonic(next_renewal);
            return;
        }
        if self.in_flight.is_empty() {
            self.next_renewal = None;
            return;
        }
        self.next_renewal = Some(monotonic.saturating_add(self.settings.renewal_interval()));
        self.outstanding.renewal = true;
        let claims = self.in_flight.claims();
        let (queue, duration) = (self.ports.queue.clone(), self.settings.lease);
        let expiry = LeaseExpiry {
            wall: now.saturating_add(duration),
            monotonic: monotonic.saturating_add(duration),
        };
        let renewing = async move {
            let answer = queue.renew(claims.clone(), now, duration).await;
            Event::Renewed {
                claims,
                expiry,
                answer,
            }
        };
        self.start(renewing.boxed());
    }

    fn launch_publishes(&mut self) {
        while !self.is_draining && self.publishes.available() > 0 {
            let batch = self.next_batch();
            if batch.is_empty() {
                return;
            }
            self.publishes.acquire(&tenants(&batch));
            let is_probe = self.bus_pause.is_probing();
            self.probes += usize::from(is_probe);
            let publishing = publishing::publish(self.ports.bus.clone(), batch);
            let publishing = publishing.map(move |(batch, outcomes)| Event::Published {
                batch,
                outcomes,
                is_probe,
            });
            self.start(publishing.boxed());
        }
    }

    /// The next timers to publish together, each of a tenant that may acquire one more slot.
    fn next_batch(&mut self) -> Vec<Firing> {
        let mut batch: Vec<Firing> = Vec::new();
        while batch.len() < self.settings.publish_batch {
            let (publishes, now) = (&self.publishes, self.ports.clock.monotonic());
            let next = self
                .ready
                .next(now, |tenant| publishes.has_slot_for(tenant));
            let Some(timer) = next else {
                break;
            };
            batch.extend(self.start_firing(timer));
        }
        batch
    }

    /// Makes the event of a claimed timer, if its lease has not expired and it is due.
    fn start_firing(&mut self, timer: ScheduledTimer) -> Option<Firing> {
        let firing_id = timer.firing_id();
        // Its claim may have been lost while it waited, and it may be in flight under a newer one.
        let lease = self.in_flight.get(&firing_id);
        let lease = lease.filter(|lease| lease.is_ready())?;
        let has_expired = lease.has_expired(self.ports.clock.as_ref());
        let claim = self.in_flight.claim_of(&firing_id)?;
        if has_expired {
            // Another worker may have it by now; if none has, none should have to wait for this one.
            self.in_flight.set_stage(&firing_id, Stage::Settling);
            self.unsettled.releases.push(claim);
            return None;
        }
        let now = self.ports.clock.now();
        match timer.reach(now) {
            Ok(reached) => {
                self.in_flight
                    .publishing(&firing_id, self.ports.in_flight_epoch.enter());
                let id = EnvelopeId::from_uuid(self.ports.ids.next_id());
                Some(Firing::new(reached, id, now))
            }
            Err(early) => {
                tracing::warn!(%early, "a claimed timer is not due: was the clock set back?");
                let retry_at = early.timer.registration.due_at;
                self.in_flight.set_stage(&firing_id, Stage::Settling);
                let request = RetryLater::new(claim, retry_at, &early.to_string());
                self.unsettled.retries.push(Retry {
                    request,
                    failure: None,
                });
                None
            }
        }
    }

    /// How many timers may be claimed now; `None` if too many are in flight.
    ///
    /// During a backlog, a reserve is kept for timers that become due meanwhile, and claimed in ever
    /// smaller portions, so that some is left however long nothing is settled.
    fn claim_size(&self) -> Option<ClaimSize> {
        let room = self
            .settings
            .max_in_flight
            .saturating_sub(self.in_flight.len());
        let reserve = if self.backlog.is_there {
            self.settings.reserve()
        } else {
            0
        };
        let free = room.saturating_sub(reserve);
        if free >= self.settings.min_claim() {
            return Some(ClaimSize {
                limit: free.min(self.settings.batch_size),
                from_reserve: false,
            });
        }
        // Where few timers may be in flight, each counts.
        let least = MIN_FROM_RESERVE.min(self.settings.min_claim());
        (reserve > 0 && room >= least).then(|| ClaimSize {
            limit: (room / 16)
                .max(MIN_FROM_RESERVE)
                .min(room)
                .min(self.settings.batch_size),
            from_reserve: true,
        })
    }

    fn launch_claim(&mut self, alarm: &mut Alarm) {
        if self.is_draining || self.outstanding.claim {
            return;
        }
        let Some(size) = self.claim_size() else {
            return;
        };
        let (now, monotonic) = (self.ports.clock.now(), self.ports.clock.monotonic());
        // A tenant that is not saturated finds no slot either: only the polling interval causes a claim.
        let is_full = self.saturation.is_there() && self.publishes.available() == 0;
        if is_full && monotonic < self.next_poll {
            alarm.at_monotonic(self.next_poll);
            return;
        }
        if self.bus_pause.is_probing() && self.probes > 0 && monotonic < self.next_probe {
            // One probe at a time: the next waits for the outcome of this one, but not for a hanging
            // handler.
            alarm.at_monotonic(self.next_probe);
            return;
        }
        let paused = [&self.bus_pause, &self.store_pause].map(|pause| pause.until(monotonic));
        if let Some(until) = paused.into_iter().flatten().max() {
            alarm.at_monotonic(until);
            return;
        }
        let earliest = self.ports.wake.earliest();
        let is_due = earliest.is_some_and(|earliest| earliest <= now)
            || (self.backlog.is_wanted && !size.from_reserve);
        if monotonic < self.next_poll && !is_due {
            alarm.at_monotonic(self.next_poll);
            alarm.wakes_on_earlier_due = true;
            if let Some(earliest) = earliest {
                alarm.at_wall(earliest);
            }
            return;
        }
        if size.from_reserve && monotonic < self.backlog.next_from_reserve {
            alarm.at_monotonic(self.backlog.next_from_reserve);
            return;
        }
        self.outstanding.claim = true;
        // A claim from the reserve is for fresh timers: what it finds says nothing about the backlog.
        self.backlog.is_wanted &= size.from_reserve;
        self.next_poll = monotonic.saturating_add(self.settings.polling_interval);
        self.backlog.next_from_reserve = monotonic.saturating_add(RESERVE_EVERY);
        self.ports.wake.begin_poll();
        self.ports.last_poll.begin(monotonic);
        let mut limit = if is_full { 1 } else { size.limit };
        if self.bus_pause.is_probing() {
            limit = limit.min(PROBE);
            self.next_probe = monotonic.saturating_add(PORT_BACKOFF.limit);
        }
        let saturated = self.saturation.tenants();
        let (clock, queue) = (self.ports.clock.clone(), self.ports.queue.clone());
        // A lease counts from before the call: a slow claim must not return only expired leases.
        let lease = self.settings.lease.saturating_add(self.last_poll_took * 2);
        let claiming = async move {
            let batch = queue.claim_due_except(now, limit, lease, saturated).await;
            Event::Claimed {
                batch,
                now,
                lease_until: monotonic.saturating_add(lease),
                took: clock.monotonic().saturating_sub(monotonic),
            }
        };
        self.start(claiming.boxed());
    }
}
