//! What an instance remembers between two polls of the queue.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use punctual_domain::Timestamp;

/// How long after a sweep its result may be relied on. Beyond that, nobody sweeps.
const SWEEP_HOLDS: Duration = Duration::from_secs(15);
/// How far behind a poll others may still commit timers that became due before it.
const LATE_COMMITS: Duration = Duration::from_secs(1);
/// Interval at which the leases of other instances are checked.
const LEASE_CHECK_INTERVAL: Duration = Duration::from_millis(900);

/// How long after its due time a timer is searched for that is in a transaction of a caller's. A sweep finds
/// what is committed later.
const AWAIT_COMMIT: Duration = Duration::from_secs(3);
/// Maximum number of such timers. A sweep finds the others.
const MAX_AWAITED: usize = 1_024;
/// Maximum number of epochs that are remembered. Claims of earlier ones are long over.
const MAX_EPOCHS: usize = 16;

/// The memory of a worker's polls. Losing any of it costs time and no timer.
#[derive(Debug)]
pub(crate) struct Polling {
    /// Nothing that is free is ready before this instant. It spares the polls what vacuum has not removed
    /// yet, and counts only as long as somebody sweeps.
    low: Timestamp,
    swept_at: Option<Duration>,
    /// Whether the last claim was full, so that the next one is shared between tenants from the start.
    pub(super) is_full: bool,
    /// The tenant that was served last.
    pub(super) last_served: String,
    /// As far as is known, nothing is due before this instant.
    quiet_until: Timestamp,
    /// When the leases of others were checked, and when the first of them ends, by the store's clock.
    leases: Option<(Duration, Option<Timestamp>)>,
    /// Claims whose answer was lost.
    pub(super) lost: Vec<i64>,
    next_token: u32,
    /// The epochs of the store in which this instance has claimed, by the number of the first claim in each.
    epochs: BTreeMap<u32, i64>,
    /// The longest lease that was given or renewed.
    pub(super) lease: Option<Duration>,
    /// When this instance polled last.
    polled_at: Option<Duration>,
    /// The earliest that was expected since that poll began: its snapshot may be older.
    expected: Timestamp,
    /// Timers in transactions of callers: how long to search for them, and when they are due.
    awaited: BTreeSet<(Timestamp, Timestamp)>,
}

impl Default for Polling {
    fn default() -> Self {
        Self {
            low: Timestamp::MIN,
            swept_at: None,
            is_full: false,
            last_served: String::new(),
            quiet_until: Timestamp::MIN,
            leases: None,
            lost: Vec::new(),
            next_token: 0,
            epochs: BTreeMap::new(),
            lease: None,
            polled_at: None,
            expected: Timestamp::MAX,
            awaited: BTreeSet::new(),
        }
    }
}

impl Polling {
    /// The instant from which a poll has to search.
    pub(super) fn low(&self, monotonic: Duration) -> Timestamp {
        let holds = |at: Duration| monotonic.saturating_sub(at) < SWEEP_HOLDS;
        if self.swept_at.is_some_and(holds) {
            let awaited = self.awaited.iter().map(|(_, due_at)| *due_at);
            awaited.fold(self.low, Timestamp::min)
        } else {
            Timestamp::MIN
        }
    }

    /// A number that no other claim of this instance has.
    pub(super) const fn next_token(&mut self) -> u32 {
        self.next_token = self.next_token.wrapping_add(1);
        self.next_token
    }

    /// A claim was made in an epoch of the store, which ends with a crash.
    pub(super) fn claimed_in(&mut self, epoch: i64, number: u32) {
        if self.epoch_of(number) != Some(epoch) {
            self.epochs.insert(number, epoch);
        }
        if self.epochs.len() > MAX_EPOCHS {
            self.epochs.pop_first();
        }
    }

    /// The epoch in which a claim of this instance was made.
    pub(super) fn epoch_of(&self, number: u32) -> Option<i64> {
        let mut until = self.epochs.range(..=number);
        until.next_back().map(|(_, epoch)| *epoch)
    }

    pub(super) fn begin(&mut self, now: Timestamp, monotonic: Duration, lease: Duration) {
        self.awaited.retain(|(until, _)| *until >= now);
        self.polled_at = Some(monotonic);
        self.expected = Timestamp::MAX;
        self.lease = self.lease.max(Some(lease));
    }

    /// Whether a worker polls through this store.
    pub(super) fn is_polled(&self, monotonic: Duration) -> bool {
        let recent = Duration::from_secs(3);
        self.polled_at
            .is_some_and(|at| monotonic.saturating_sub(at) < recent)
    }

    /// How long ago this instance polled.
    pub(super) fn since_poll(&self, monotonic: Duration) -> Duration {
        self.polled_at
            .map_or(Duration::MAX, |at| monotonic.saturating_sub(at))
    }

    /// Something may be ready at an instant, or later, that no poll has seen yet.
    pub(crate) fn expect(&mut self, ready_at: Timestamp) {
        self.expected = self.expected.min(ready_at);
        self.low = self.low.min(ready_at);
        self.quiet_until = self.quiet_until.min(ready_at);
    }

    /// A timer is in a transaction of a caller's, who commits it later or not at all.
    pub(crate) fn await_commit(&mut self, due_at: Timestamp, now: Timestamp) {
        let until = due_at.max(now).saturating_add(AWAIT_COMMIT);
        self.awaited.insert((until, due_at));
        if self.awaited.len() > MAX_AWAITED {
            self.awaited.pop_last();
        }
    }

    /// Whether nothing is known to be due, so that a check is enough.
    pub(super) fn is_quiet(&self, now: Timestamp) -> bool {
        now < self.quiet_until
    }

    /// A poll up to an instant has left nothing, and the next timer comes later.
    pub(super) fn found_nothing_more(&mut self, until: Timestamp, next: Option<Timestamp>) {
        self.is_full = false;
        self.raise_low(until);
        self.quiet_until = next.unwrap_or(Timestamp::MAX).min(self.expected);
    }

    /// A poll has left something, but nothing that was ready before an instant.
    pub(super) fn found_more(&mut self, searched_until: Option<Timestamp>) {
        self.is_full = true;
        self.quiet_until = Timestamp::MIN;
        if let Some(searched_until) = searched_until {
            self.raise_low(searched_until);
        }
    }

    /// Nothing was ready before an instant when the poll began.
    fn raise_low(&mut self, instant: Timestamp) {
        let searched = self.low.max(instant.saturating_sub(LATE_COMMITS));
        self.low = searched.min(self.expected);
    }

    /// Whether a lease of another instance has ended since they were checked: what it held may have been
    /// ready long ago.
    pub(super) fn has_lease_ended(&self, clock: Timestamp) -> bool {
        let first = self.leases.and_then(|(_, first)| first);
        first.is_some_and(|first| first <= clock)
    }

    /// Whether the leases of others should be checked again.
    pub(super) fn should_check_leases(&self, monotonic: Duration) -> bool {
        self.leases
            .is_none_or(|(at, _)| monotonic.saturating_sub(at) >= LEASE_CHECK_INTERVAL)
    }

    /// Notes when the first lease of others ends, after a search at an instant of the store's clock. Returns
    /// whether one has ended since the check before: that search may have begun after what it held.
    pub(super) fn checked_leases(
        &mut self,
        at: Duration,
        first: Option<Timestamp>,
        clock: Timestamp,
    ) -> bool {
        let has_ended = self.has_lease_ended(clock) && self.first_lease_end() != first;
        self.leases = Some((at, first));
        if has_ended {
            self.expect(Timestamp::MIN);
        }
        has_ended
    }

    /// When the first lease of others ends, as far as is known.
    pub(super) fn first_lease_end(&self) -> Option<Timestamp> {
        self.leases.and_then(|(_, first)| first)
    }

    /// A search from the beginning has found what is free first.
    pub(super) fn swept(&mut self, monotonic: Duration, oldest: Option<Timestamp>) {
        self.swept_at = Some(monotonic);
        if let Some(oldest) = oldest {
            self.expect(oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis).unwrap()
    }

    #[test]
    fn polls_begin_where_the_last_one_ended_as_long_as_somebody_sweeps() {
        let mut polling = Polling::default();
        polling.found_nothing_more(at(50_000), Some(at(90_000)));
        assert_eq!(polling.low(SECOND), Timestamp::MIN, "nobody has swept");
        polling.swept(SECOND, None);
        assert_eq!(polling.low(SECOND), at(49_000));
        assert_eq!(polling.low(15 * SECOND), at(49_000));
        assert_eq!(polling.low(16 * SECOND), Timestamp::MIN);
    }

    #[test]
    fn what_a_sweep_a_save_or_a_notification_names_is_searched_for() {
        let mut polling = Polling::default();
        polling.swept(SECOND, None);
        polling.found_nothing_more(at(50_000), Some(at(90_000)));
        assert!(polling.is_quiet(at(89_999)) && !polling.is_quiet(at(90_000)));
        polling.expect(at(60_000));
        assert_eq!(polling.low(SECOND), at(49_000), "it is in the future");
        assert!(!polling.is_quiet(at(60_000)));
        polling.swept(SECOND, Some(at(7_000)));
        assert_eq!(polling.low(SECOND), at(7_000));
        assert!(!polling.is_quiet(at(50_000)));
    }

    /// A poll that began before a save has committed does not see it.
    #[test]
    fn what_is_expected_during_a_poll_is_not_passed_over_by_it() {
        let mut polling = Polling::default();
        polling.swept(SECOND, None);
        polling.begin(at(50_000), SECOND, SECOND);
        polling.expect(at(3_000));
        polling.found_nothing_more(at(50_000), Some(at(90_000)));
        assert_eq!(polling.low(SECOND), at(3_000));
        assert!(!polling.is_quiet(at(50_000)));
        polling.begin(at(50_000), SECOND, SECOND);
        polling.found_more(Some(at(50_000)));
        assert_eq!(polling.low(SECOND), at(49_000));
    }

    /// Whatever was ready before that was claimed with it, or is locked by others.
    #[test]
    fn a_full_claim_moves_the_beginning_to_where_it_ended() {
        let mut polling = Polling::default();
        polling.swept(SECOND, None);
        polling.found_more(Some(at(20_000)));
        assert_eq!(polling.low(SECOND), at(19_000));
        polling.found_more(None);
        assert_eq!(polling.low(SECOND), at(19_000));
        assert!(polling.is_full && !polling.is_quiet(at(0)));
    }

    #[test]
    fn claims_are_of_the_epoch_in_which_they_were_made() {
        let mut polling = Polling::default();
        for (number, epoch) in [(2, 70), (3, 70), (5, 80), (6, 80)] {
            polling.claimed_in(epoch, number);
        }
        let epochs = [1, 2, 4, 5, 9].map(|number| polling.epoch_of(number));
        assert_eq!(epochs, [None, Some(70), Some(70), Some(80), Some(80)]);
        assert_eq!(polling.epochs.len(), 2);
    }

    #[test]
    fn leases_are_checked_once_in_a_while_and_known_to_end() {
        let mut polling = Polling::default();
        assert!(polling.should_check_leases(Duration::ZERO));
        assert!(!polling.checked_leases(SECOND, Some(at(30_000)), at(20_000)));
        assert!(!polling.should_check_leases(Duration::from_millis(1_899)));
        assert!(polling.should_check_leases(Duration::from_millis(1_900)));
        assert!(!polling.has_lease_ended(at(29_999)) && polling.has_lease_ended(at(30_000)));
        assert_eq!(polling.first_lease_end(), Some(at(30_000)));
    }

    /// A poll that was early by its own clock may find, by the store's, that a lease is gone.
    #[test]
    fn a_lease_that_ended_during_a_poll_is_searched_for_by_the_next() {
        let mut polling = Polling::default();
        polling.swept(SECOND, None);
        assert!(!polling.checked_leases(SECOND, Some(at(30_000)), at(22_000)));
        polling.found_nothing_more(at(29_999), Some(at(90_000)));
        assert!(!polling.has_lease_ended(at(29_999)));
        assert!(polling.checked_leases(SECOND, None, at(30_000)));
        assert_eq!(polling.low(SECOND), Timestamp::MIN);
        assert!(!polling.is_quiet(at(30_000)));
        assert!(!polling.checked_leases(SECOND, None, at(31_000)));
    }

    #[test]
    fn a_timer_in_an_open_transaction_is_searched_for_until_a_sweep_would_find_it() {
        let (mut polling, monotonic) = (Polling::default(), SECOND);
        let poll = |polling: &mut Polling, now| {
            polling.begin(now, monotonic, 8 * SECOND);
            let low = polling.low(monotonic);
            polling.found_nothing_more(now, None);
            low
        };
        polling.swept(monotonic, None);
        poll(&mut polling, at(100_000));
        assert_eq!(poll(&mut polling, at(100_000)), at(99_000));
        polling.await_commit(at(110_000), at(100_000));
        polling.await_commit(at(50_000), at(100_000));
        assert_eq!(poll(&mut polling, at(103_000)), at(50_000));
        assert_eq!(poll(&mut polling, at(104_000)), at(102_000));
        poll(&mut polling, at(112_000));
        assert_eq!(poll(&mut polling, at(113_000)), at(110_000));
        assert_eq!(poll(&mut polling, at(114_000)), at(112_000));
    }
}
