//! Which tenants have more due than they may have under way, so that nothing more of theirs is claimed.
//!
//! What a tenant has claimed and cannot begin is of no use to it, and takes room from the others. If
//! nothing of it moves on for a moment, or too slowly, most of it goes back, and the store is asked for
//! others' timers only, until the tenant may begin something again. A tenant whose handlers are quick
//! never comes here.

use std::collections::BTreeSet;
use std::time::Duration;

use punctual_domain::TenantId;

use super::TimerWorker;
use super::in_flight::Stage;
use crate::alarm::Alarm;
use crate::metric_names;

/// A tenant counts as saturated if nothing of what it has claimed is begun for so long...
const PATIENCE: Duration = Duration::from_millis(50);
/// ... or the next one waits for so long although others before it were.
const PATIENCE_WHILE_MOVING: Duration = Duration::from_millis(500);
/// The same for both where one publish takes many events: such a bus waits for no tenant's handlers,
/// and may be far away.
const PATIENCE_WITH_BATCHES: Duration = Duration::from_secs(2);
/// A saturated tenant keeps this part of what it has under way ready, to go on with at once...
const KEPT_OF_UNDER_WAY: usize = 4;
/// ... and no more than this part of all that may be in hand.
const KEPT_OF_ALL: usize = 64;

/// The tenants that may not begin anything, and have waited for it.
#[derive(Debug, Default)]
pub(super) struct Saturation {
    tenants: BTreeSet<TenantId>,
    /// When somebody will have waited long enough, by the monotonic clock.
    next_check: Option<Duration>,
    /// Whether a place has become free since it was last seen who may go on.
    has_room: bool,
}

impl Saturation {
    /// Whose timers the store need not give.
    pub(super) fn tenants(&self) -> BTreeSet<TenantId> {
        self.tenants.clone()
    }

    pub(super) fn is_there(&self) -> bool {
        !self.tenants.is_empty()
    }

    pub(super) fn contains(&self, tenant: &TenantId) -> bool {
        self.tenants.contains(tenant)
    }

    /// Something waits for a place, and will have waited long enough then.
    pub(super) fn waits_until(&mut self, check: Duration) {
        self.next_check = Some(self.next_check.map_or(check, |next| next.min(check)));
    }

    /// A place has become free.
    pub(super) const fn made_room(&mut self) {
        self.has_room = true;
    }
}

impl TimerWorker {
    /// How long nothing of a tenant may be begun, and how long one may wait.
    const fn patience(&self) -> (Duration, Duration) {
        if self.settings.publish_batch > 1 {
            (PATIENCE_WITH_BATCHES, PATIENCE_WITH_BATCHES)
        } else {
            (PATIENCE, PATIENCE_WHILE_MOVING)
        }
    }

    /// Something waits for a place from now on.
    pub(super) fn waits_since(&mut self, monotonic: Duration) {
        let (patience, _) = self.patience();
        self.saturation
            .waits_until(monotonic.saturating_add(patience));
    }

    /// Lets go on who may begin something again: there is more of theirs in the store.
    pub(super) fn let_go_on(&mut self) {
        if !std::mem::take(&mut self.saturation.has_room) || !self.saturation.is_there() {
            return;
        }
        let (places, ready) = (&self.places, &self.ready);
        let before = self.saturation.tenants.len();
        self.saturation
            .tenants
            .retain(|tenant| ready.has(tenant) || !places.are_left_for(tenant));
        if self.saturation.tenants.len() < before {
            self.ports.wake.due_at(self.ports.clock.now());
        }
    }

    /// Finds out who has waited too long.
    pub(super) fn note_who_waits(&mut self, alarm: &mut Alarm) {
        let Some(check) = self.saturation.next_check else {
            return;
        };
        let monotonic = self.ports.clock.monotonic();
        if monotonic < check {
            alarm.at_monotonic(check);
            return;
        }
        let (patience, patience_while_moving) = self.patience();
        let mut next_check: Option<Duration> = None;
        let mut too_long = Vec::new();
        for (tenant, wait) in self.ready.waiting() {
            if self.saturation.contains(tenant) || self.places.are_left_for(tenant) {
                continue;
            }
            let by_stuck = wait.stuck_since.saturating_add(patience);
            let until = by_stuck.min(wait.since.saturating_add(patience_while_moving));
            if until <= monotonic {
                too_long.push(tenant.clone());
            } else {
                next_check = Some(next_check.map_or(until, |next| next.min(until)));
            }
        }
        self.saturation.next_check = next_check;
        if let Some(next) = next_check {
            alarm.at_monotonic(next);
        }
        if too_long.is_empty() {
            return;
        }
        for tenant in too_long {
            self.give_back_what_waits(&tenant);
            self.saturation.tenants.insert(tenant);
        }
        // What it took may have kept others out.
        self.ports.wake.due_at(self.ports.clock.now());
    }

    fn give_back_what_waits(&mut self, tenant: &TenantId) {
        let under_way = self.places.held_by(tenant) * self.settings.publish_batch;
        let kept = (under_way / KEPT_OF_UNDER_WAY).min(self.settings.max_in_flight / KEPT_OF_ALL);
        for timer in self.ready.take_beyond(tenant, kept) {
            let firing_id = timer.firing_id();
            if let Some(claim) = self.in_flight.reference(&firing_id) {
                self.in_flight.set_stage(&firing_id, Stage::Settling);
                metrics::counter!(metric_names::RELEASED).increment(1);
                self.unsettled.held_back.push(claim);
            }
        }
    }
}
