//! Saturated tenants: those with more due timers than publish slots, of which nothing more is claimed.
//!
//! Claims without a slot are of no use to their tenant, and count against `max_in_flight`. If none of
//! them is published for a moment, or too slowly, most are released, and only other tenants' timers
//! are claimed until the tenant has a free slot again. A tenant with quick handlers is never saturated.

use std::collections::BTreeSet;
use std::time::Duration;

use punctual_domain::TenantId;

use super::TimerWorker;
use crate::alarm::Alarm;

/// A tenant is saturated if none of its claims was published for this long...
const STUCK_LIMIT: Duration = Duration::from_millis(50);
/// ... or its next claim has waited for this long.
const WAIT_LIMIT: Duration = Duration::from_millis(500);
/// Both limits where one publish takes many events: such a bus waits for no tenant's handlers, and may
/// have a long round trip.
const BATCH_LIMIT: Duration = Duration::from_secs(2);
/// A saturated tenant keeps claims for this fraction of what it has in flight...
const KEPT_OF_PUBLISHING: usize = 4;
/// ... and at most this fraction of `max_in_flight`.
const KEPT_OF_ALL: usize = 64;

/// The saturated tenants.
#[derive(Debug, Default)]
pub(super) struct Saturation {
    tenants: BTreeSet<TenantId>,
    /// When the next tenant may be saturated, by the monotonic clock.
    next_check: Option<Duration>,
    /// Whether a slot became free since the tenants were last checked.
    has_free_slot: bool,
}

impl Saturation {
    /// The tenants whose timers are not claimed.
    pub(super) fn tenants(&self) -> BTreeSet<TenantId> {
        self.tenants.clone()
    }

    pub(super) fn is_there(&self) -> bool {
        !self.tenants.is_empty()
    }

    pub(super) fn contains(&self, tenant: &TenantId) -> bool {
        self.tenants.contains(tenant)
    }

    /// Checks again no later than this.
    pub(super) fn check_at(&mut self, check: Duration) {
        self.next_check = Some(self.next_check.map_or(check, |next| next.min(check)));
    }

    /// A slot became free.
    pub(super) const fn slot_freed(&mut self) {
        self.has_free_slot = true;
    }
}

impl TimerWorker {
    /// How long a tenant may publish nothing, and how long a claim may wait.
    const fn saturation_limits(&self) -> (Duration, Duration) {
        if self.settings.publish_batch > 1 {
            (BATCH_LIMIT, BATCH_LIMIT)
        } else {
            (STUCK_LIMIT, WAIT_LIMIT)
        }
    }

    /// A claim waits for a slot from now on.
    pub(super) fn schedule_saturation_check(&mut self, monotonic: Duration) {
        let (stuck_limit, _) = self.saturation_limits();
        self.saturation
            .check_at(monotonic.saturating_add(stuck_limit));
    }

    /// Resumes tenants that have a free slot again: the store has more of their timers.
    pub(super) fn resume_tenants(&mut self) {
        if !std::mem::take(&mut self.saturation.has_free_slot) || !self.saturation.is_there() {
            return;
        }
        let (publishes, ready) = (&self.publishes, &self.ready);
        let before = self.saturation.tenants.len();
        self.saturation
            .tenants
            .retain(|tenant| ready.has(tenant) || !publishes.has_slot_for(tenant));
        if self.saturation.tenants.len() < before {
            self.ports.wake.due_at(self.ports.clock.now());
        }
    }

    /// Finds tenants that have waited too long for a slot.
    pub(super) fn detect_saturation(&mut self, alarm: &mut Alarm) {
        let Some(check) = self.saturation.next_check else {
            return;
        };
        let monotonic = self.ports.clock.monotonic();
        if monotonic < check {
            alarm.at_monotonic(check);
            return;
        }
        let (stuck_limit, wait_limit) = self.saturation_limits();
        let mut next_check: Option<Duration> = None;
        let mut saturated = Vec::new();
        for (tenant, wait) in self.ready.waiting() {
            if self.saturation.contains(tenant) || self.publishes.has_slot_for(tenant) {
                continue;
            }
            let by_stuck = wait.stuck_since.saturating_add(stuck_limit);
            let until = by_stuck.min(wait.since.saturating_add(wait_limit));
            if until <= monotonic {
                saturated.push(tenant.clone());
            } else {
                next_check = Some(next_check.map_or(until, |next| next.min(until)));
            }
        }
        self.saturation.next_check = next_check;
        if let Some(next) = next_check {
            alarm.at_monotonic(next);
        }
        if saturated.is_empty() {
            return;
        }
        for tenant in saturated {
            self.release_waiting(&tenant);
            self.saturation.tenants.insert(tenant);
        }
        // Their claims may have kept others from being claimed.
        self.ports.wake.due_at(self.ports.clock.now());
    }

    fn release_waiting(&mut self, tenant: &TenantId) {
        let publishing = self.publishes.slots_of(tenant) * self.settings.publish_batch;
        let kept = (publishing / KEPT_OF_PUBLISHING).min(self.settings.max_in_flight / KEPT_OF_ALL);
        let timers = self.ready.take_beyond(tenant, kept);
        let claims = self.release(&timers);
        self.unsettled.saturated.extend(claims);
    }
}
