//! Launching operations, each when it may be, and setting the alarm for when it may not yet.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use punctual_domain::{EnvelopeId, ScheduledTimer, Timestamp};
use punctual_ports::{BatchResult, ClaimBatch, ClaimOutcome, ClaimRef, PortError, RetryLater};

use super::failures::Retry;
use super::in_flight::{Lease, Stage};
use super::publishing::{self, Firing, Verdict, tenants};
use super::settlements::{Settled, settle};
use super::{LONGEST_PAUSE, TimerWorker};
use crate::alarm::Alarm;
use crate::wake_signal::MOST_ADOPTED;

/// An operation has completed.
pub(super) enum Event {
    Claimed {
        batch: Result<ClaimBatch, PortError>,
        now: Timestamp,
        /// When the claims end, by the monotonic clock.
        lease_until: Duration,
        took: Duration,
    },
    Published {
        batch: Vec<Firing>,
        verdicts: Vec<Verdict>,
        /// Whether it was to find out if the bus is back.
        is_probe: bool,
    },
    Settled(Settled),
    /// What somebody else had begun and left is finished.
    Adopted,
    Renewed {
        claims: Vec<ClaimRef>,
        lease: Lease,
        answer: BatchResult<ClaimOutcome>,
    },
}

/// How many timers are claimed to find out whether a bus that failed is back.
const PROBE: usize = 8;
/// How often the reserve is drawn on, and for how little at least: of four, the store gives one to
/// what is fresh.
const RESERVE_EVERY: Duration = Duration::from_millis(20);
const LEAST_OF_RESERVE: usize = 4;

/// How much to claim.
struct Wish {
    limit: usize,
    /// Whether that is of what a backlog leaves free for others.
    is_of_reserve: bool,
}

impl TimerWorker {
    /// Launches all that may be launched now, and returns when there may be more.
    pub(super) fn launch(&mut self) -> Alarm {
        let mut alarm = Alarm::default();
        for work in self.ports.wake.take_adopted(MOST_ADOPTED - self.adopted) {
            self.adopted += 1;
            self.start(work.map(|()| Event::Adopted).boxed());
        }
        self.launch_renewal(&mut alarm);
        // Before settling, since what turns out not to be ours, not to be due or not to have a place
        // goes back.
        self.launch_publishes();
        self.let_go_on();
        self.note_who_waits(&mut alarm);
        self.launch_settlement(&mut alarm);
        self.launch_claim(&mut alarm);
        self.alarm.set(alarm);
        alarm
    }

    fn start(&mut self, operation: BoxFuture<'static, Event>) {
        self.operations.push(operation);
    }

    fn launch_settlement(&mut self, alarm: &mut Alarm) {
        if self.under_way.settlement || self.unsettled.is_empty() {
            return;
        }
        if let Some(until) = self.settle_pause.until(self.ports.clock.monotonic()) {
            alarm.at_monotonic(until);
            return;
        }
        self.under_way.settlement = true;
        let mut batch = self.unsettled.take();
        batch.refresh_claims(&self.in_flight);
        let (persistence, queue) = (self.ports.persistence.clone(), self.ports.queue.clone());
        self.start(
            settle(persistence, queue, batch)
                .map(Event::Settled)
                .boxed(),
        );
    }

    /// Renews what is in hand, well before its lease ends: a slow handler keeps its timer.
    fn launch_renewal(&mut self, alarm: &mut Alarm) {
        let Some(next_renewal) = self.next_renewal else {
            return;
        };
        if self.under_way.renewal {
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
        self.under_way.renewal = true;
        let claims = self.in_flight.references();
        let (queue, duration) = (self.ports.queue.clone(), self.settings.lease);
        let lease = Lease {
            wall: now.saturating_add(duration),
            monotonic: monotonic.saturating_add(duration),
        };
        let renewing = async move {
            let answer = queue.renew(claims.clone(), now, duration).await;
            Event::Renewed {
                claims,
                lease,
                answer,
            }
        };
        self.start(renewing.boxed());
    }

    fn launch_publishes(&mut self) {
        while !self.is_draining && self.places.left() > 0 {
            let batch = self.next_batch();
            if batch.is_empty() {
                return;
            }
            self.places.take(&tenants(&batch));
            let is_probe = self.bus_pause.is_probing();
            self.probes += usize::from(is_probe);
            let publishing = publishing::publish(self.ports.bus.clone(), batch);
            let publishing = publishing.map(move |(batch, verdicts)| Event::Published {
                batch,
                verdicts,
                is_probe,
            });
            self.start(publishing.boxed());
        }
    }

    /// Some timers to publish together, each of a tenant that may have one more place.
    fn next_batch(&mut self) -> Vec<Firing> {
        let mut batch: Vec<Firing> = Vec::new();
        while batch.len() < self.settings.publish_batch {
            let (places, now) = (&self.places, self.ports.clock.monotonic());
            let next = self.ready.next(now, |tenant| places.are_left_for(tenant));
            let Some(timer) = next else {
                break;
            };
            batch.extend(self.begin_firing(timer));
        }
        batch
    }

    /// Makes an event of a claimed timer, if it is still ours and really due.
    fn begin_firing(&mut self, timer: ScheduledTimer) -> Option<Firing> {
        let firing_id = timer.firing_id();
        // It may have been lost while it waited, and even be under way again under a newer claim.
        let held = self
            .in_flight
            .get(&firing_id)
            .filter(|held| held.is_ready())?;
        let has_ended = held.lease_has_ended(self.ports.clock.as_ref());
        let claim = self.in_flight.reference(&firing_id)?;
        if has_ended {
            // Somebody else may have it by now, and if not, nobody should have to wait for us.
            self.in_flight.set_stage(&firing_id, Stage::Settling);
            self.unsettled.releases.push(claim);
            return None;
        }
        match timer.reach(self.ports.clock.now()) {
            Ok(reached) => {
                self.in_flight.begins(&firing_id, self.ports.begun.begin());
                let id = EnvelopeId::from_uuid(self.ports.ids.next_id());
                Some(Firing::new(reached, id))
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

    /// How much may be claimed now; `None` if there is no room.
    ///
    /// While a backlog is worked off, the last places are kept for what becomes due meanwhile, and
    /// given out in ever smaller portions, so that some are left however long nothing is settled.
    fn wish(&self) -> Option<Wish> {
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
        if free >= self.settings.room_for_a_claim() {
            return Some(Wish {
                limit: free.min(self.settings.batch_size),
                is_of_reserve: false,
            });
        }
        // Of a few places, each counts.
        let least = LEAST_OF_RESERVE.min(self.settings.room_for_a_claim());
        (reserve > 0 && room >= least).then(|| Wish {
            limit: (room / 16)
                .max(LEAST_OF_RESERVE)
                .min(room)
                .min(self.settings.batch_size),
            is_of_reserve: true,
        })
    }

    fn launch_claim(&mut self, alarm: &mut Alarm) {
        if self.is_draining || self.under_way.claim {
            return;
        }
        let Some(wish) = self.wish() else {
            return;
        };
        let (now, monotonic) = (self.ports.clock.now(), self.ports.clock.monotonic());
        // Whoever is not saturated could not begin anything either: only the poll looks.
        let is_full = self.saturation.is_there() && self.places.left() == 0;
        if is_full && monotonic < self.next_poll {
            alarm.at_monotonic(self.next_poll);
            return;
        }
        if self.bus_pause.is_probing() && self.probes > 0 && monotonic < self.next_probe {
            // One probe at a time: the next waits for what this one brings, but not for a handler
            // that hangs.
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
            || (self.backlog.is_wanted && !wish.is_of_reserve);
        if monotonic < self.next_poll && !is_due {
            alarm.at_monotonic(self.next_poll);
            alarm.heeds_news = true;
            if let Some(earliest) = earliest {
                alarm.at_wall(earliest);
            }
            return;
        }
        if wish.is_of_reserve && monotonic < self.backlog.next_of_reserve {
            alarm.at_monotonic(self.backlog.next_of_reserve);
            return;
        }
        self.under_way.claim = true;
        // A claim of the reserve is for others: whether it finds some of the backlog says nothing.
        self.backlog.is_wanted &= wish.is_of_reserve;
        self.next_poll = monotonic.saturating_add(self.settings.polling_interval);
        self.backlog.next_of_reserve = monotonic.saturating_add(RESERVE_EVERY);
        self.ports.wake.begin_poll();
        let mut limit = if is_full { 1 } else { wish.limit };
        if self.bus_pause.is_probing() {
            limit = limit.min(PROBE);
            self.next_probe = monotonic.saturating_add(LONGEST_PAUSE);
        }
        let passed_over = self.saturation.tenants();
        let (clock, queue) = (self.ports.clock.clone(), self.ports.queue.clone());
        // A lease counts from before the call: one that is slow must not bring claims that have
        // ended on arrival, for ever.
        let lease = self.settings.lease.saturating_add(self.last_poll_took * 2);
        let claiming = async move {
            let batch = queue.claim_due_except(now, limit, lease, passed_over).await;
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
