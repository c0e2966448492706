//! The books: what was promised, what came of it, and when.
//!
//! They are kept by the process that the firings are for, and not by the one that fires.

use std::collections::HashMap;
use std::time::Duration;

use punctual_domain::{DueTimeReached, ServiceCallId, TenantId, TimerKey, Timestamp};
use serde::Serialize;

use super::lateness::Lateness;
use crate::failure::Failure;

/// One timer.
#[derive(Debug)]
struct Promise {
    tenant_id: TenantId,
    due_at: Timestamp,
    is_acknowledged: bool,
    /// Of the first firing: what its firing id says besides key and due time.
    registered_at: Option<Timestamp>,
}

/// Everything that was asked for and everything that fired.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    timers: HashMap<ServiceCallId, Promise>,
    /// Timers that fired at least once.
    fired: usize,
    /// Firings that had come before, under the same id.
    again: usize,
    early: usize,
    /// Firings of a timer under another id than its first.
    other_id: usize,
    /// Firings that nobody asked for.
    unasked: usize,
    /// From the due time until the firing was read here, for the first firing of each.
    until_read: Lateness,
    /// From the due time until the worker noticed it, by its own account.
    until_noticed: Lateness,
    worst: Duration,
    first_wrong: Option<String>,
}

/// What the books say in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Balance {
    /// What the store has promised.
    pub(super) scheduled: usize,
    pub(super) fired: usize,
    #[serde(rename = "firedAgain")]
    pub(super) again: usize,
    pub(super) early: usize,
    pub(super) lost: usize,
    pub(super) other_id: usize,
    pub(super) unasked: usize,
}

impl Balance {
    pub(super) const fn is_good(&self) -> bool {
        self.early == 0 && self.lost == 0 && self.other_id == 0 && self.unasked == 0
    }
}

impl Ledger {
    /// A timer is about to be stored. From now on it may fire.
    pub(super) fn asked(&mut self, key: TimerKey, due_at: Timestamp) {
        let promise = Promise {
            tenant_id: key.tenant_id,
            due_at,
            is_acknowledged: false,
            registered_at: None,
        };
        self.timers.insert(key.service_call_id, promise);
    }

    /// The store has promised it. From now on it must fire.
    pub(super) fn acknowledged(&mut self, key: &TimerKey) {
        if let Some(promise) = self.timers.get_mut(&key.service_call_id) {
            promise.is_acknowledged = true;
        }
    }

    /// A firing was read.
    pub(super) fn fired(&mut self, event: &DueTimeReached, read_at: Timestamp) {
        let key = event.key();
        let promise = self.timers.get_mut(&key.service_call_id);
        let asked = |it: &&mut Promise| it.tenant_id == key.tenant_id && it.due_at == event.due_at;
        let Some(promise) = promise.filter(asked) else {
            self.unasked += 1;
            return self.wrong(event, "fired, but nobody had asked for that");
        };
        let due_at = promise.due_at;
        let id = &event.firing_id;
        let names_it = id.key == key && id.registration.due_at == due_at;
        let before = promise.registered_at;
        let registered_at = *promise
            .registered_at
            .get_or_insert(id.registration.registered_at);
        if before.is_none() {
            let late = read_at.since(due_at);
            self.fired += 1;
            self.until_read.add(late);
            self.until_noticed.add(event.reached_at.since(due_at));
            self.worst = self.worst.max(late);
        }
        if !names_it || registered_at != id.registration.registered_at {
            self.other_id += 1;
            self.wrong(event, "fired under the id of another firing");
        } else if before.is_some() {
            self.again += 1;
        }
        // Both by its own account and by our clock.
        if event.reached_at < due_at || read_at < due_at {
            self.early += 1;
            self.wrong(event, "fired before it was due");
        }
    }

    fn wrong(&mut self, event: &DueTimeReached, what: &str) {
        self.first_wrong
            .get_or_insert_with(|| format!("the timer {} {what}", event.key()));
    }

    /// How many timers have fired so far.
    pub(super) const fn fired_so_far(&self) -> usize {
        self.fired
    }

    /// How late the latest one was so far.
    pub(super) const fn worst_so_far(&self) -> Duration {
        self.worst
    }

    pub(super) const fn until_read(&self) -> &Lateness {
        &self.until_read
    }

    pub(super) const fn until_noticed(&self) -> &Lateness {
        &self.until_noticed
    }

    /// Adds up.
    pub(super) fn balance(&self) -> Balance {
        let promised = self.timers.values().filter(|it| it.is_acknowledged);
        Balance {
            scheduled: promised.clone().count(),
            fired: self.fired,
            again: self.again,
            early: self.early,
            lost: promised.filter(|it| it.registered_at.is_none()).count(),
            other_id: self.other_id,
            unasked: self.unasked,
        }
    }

    /// Whether everything came as promised.
    ///
    /// # Errors
    /// With what is wrong, in one sentence.
    pub(super) fn verdict(&self) -> Result<(), Failure> {
        self.complaint()
            .map_or(Ok(()), |complaint| Err(Failure::failed(complaint)))
    }

    fn complaint(&self) -> Option<String> {
        let balance = self.balance();
        if balance.is_good() {
            return None;
        }
        let counts = [
            (balance.lost, "lost"),
            (balance.early, "early"),
            (balance.other_id, "under the id of another firing"),
            (balance.unasked, "that nobody had asked for"),
        ];
        let counts: Vec<String> = counts
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        let lost = || {
            let lost = |it: &&Promise| it.is_acknowledged && it.registered_at.is_none();
            let lost = self.timers.iter().find(|(_, promise)| lost(promise));
            lost.map(|(id, promise)| {
                let (tenant, due_at) = (&promise.tenant_id, promise.due_at);
                format!("the timer {tenant}:{id}, due at {due_at}, never fired")
            })
        };
        let example = self.first_wrong.clone().or_else(lost).unwrap_or_default();
        Some(format!(
            "this must not happen ({} timers: {}): {example}",
            balance.scheduled,
            counts.join(", "),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_domain::{FiringId, Registration};

    fn key(name: &str) -> TimerKey {
        TimerKey::named(TenantId::new("a").unwrap(), name)
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis).unwrap()
    }

    /// A firing of the timer that is due at 10 and was registered at 1, by the worker's account at
    /// `reached_at`.
    fn firing(reached_at: i64) -> DueTimeReached {
        DueTimeReached {
            tenant_id: key("x").tenant_id,
            service_call_id: key("x").service_call_id,
            reached_at: at(reached_at),
            due_at: at(10),
            firing_id: FiringId {
                key: key("x"),
                registration: Registration {
                    registered_at: at(1),
                    due_at: at(10),
                },
            },
            data: None,
        }
    }

    fn with_one() -> Ledger {
        let mut ledger = Ledger::default();
        ledger.asked(key("x"), at(10));
        ledger.acknowledged(&key("x"));
        ledger
    }

    fn assert_complains(ledger: &Ledger, words: &[&str]) {
        let failure = ledger.verdict().unwrap_err();
        assert_eq!(failure.exit_code(), 1);
        let complaint = failure.to_string();
        for word in words {
            assert!(complaint.contains(word), "{word:?} is not in {complaint:?}");
        }
    }

    #[test]
    fn a_firing_at_its_due_time_and_one_after_it_are_fine() {
        for (reached_at, read_at) in [(10, 10), (10, 17), (12, 12)] {
            let mut ledger = with_one();
            ledger.fired(&firing(reached_at), at(read_at));
            assert_eq!(ledger.verdict(), Ok(()));
            let balance = ledger.balance();
            assert_eq!((balance.scheduled, balance.fired), (1, 1));
        }
    }

    #[test]
    fn a_timer_that_was_promised_and_did_not_fire_is_lost() {
        let mut ledger = with_one();
        assert_eq!(ledger.balance().lost, 1);
        assert_complains(&ledger, &["1 lost", "never fired"]);
        ledger.fired(&firing(10), at(11));
        assert_eq!(ledger.verdict(), Ok(()));
    }

    #[test]
    fn a_timer_that_was_never_promised_may_fire_or_not() {
        let mut ledger = Ledger::default();
        ledger.asked(key("x"), at(10));
        assert_eq!(ledger.verdict(), Ok(()));
        assert_eq!(ledger.balance().scheduled, 0);
        ledger.fired(&firing(10), at(10));
        assert_eq!(ledger.verdict(), Ok(()));
    }

    #[test]
    fn a_firing_is_early_by_its_own_account_or_by_our_clock() {
        for (reached_at, read_at) in [(9, 12), (10, 9)] {
            let mut ledger = with_one();
            ledger.fired(&firing(reached_at), at(read_at));
            assert_eq!(ledger.balance().early, 1);
            assert_complains(&ledger, &["1 early", "before it was due"]);
        }
    }

    #[test]
    fn a_repetition_counts_as_such_and_its_lateness_does_not() {
        let mut ledger = with_one();
        ledger.fired(&firing(10), at(12));
        ledger.fired(&firing(500), at(510));
        assert_eq!(ledger.verdict(), Ok(()));
        let balance = ledger.balance();
        assert_eq!((balance.fired, balance.again), (1, 1));
        assert_eq!(ledger.worst_so_far(), Duration::from_millis(2));
        assert_eq!(ledger.until_read().percentiles().unwrap().max, 2);
        assert_eq!(ledger.until_noticed().percentiles().unwrap().max, 0);
    }

    #[test]
    fn a_repetition_under_another_id_is_wrong() {
        let mut ledger = with_one();
        ledger.fired(&firing(10), at(12));
        let mut other = firing(10);
        other.firing_id.registration.registered_at = at(2);
        ledger.fired(&other, at(12));
        let balance = ledger.balance();
        assert_eq!((balance.again, balance.other_id), (0, 1));
        assert_complains(&ledger, &["1 under the id of another"]);
    }

    #[test]
    fn an_id_that_names_another_timer_or_due_time_is_wrong() {
        let mut other_key = firing(10);
        other_key.firing_id.key = key("y");
        let mut other_due = firing(10);
        other_due.firing_id.registration.due_at = at(11);
        for event in [other_key, other_due] {
            let mut ledger = with_one();
            ledger.fired(&event, at(12));
            assert_eq!(ledger.balance().other_id, 1);
        }
    }

    #[test]
    fn a_firing_that_nobody_asked_for_is_wrong() {
        let mut other_tenant = firing(10);
        other_tenant.tenant_id = TenantId::new("b").unwrap();
        let mut other_due = firing(10);
        other_due.due_at = at(9);
        let mut other_timer = firing(10);
        other_timer.service_call_id = key("y").service_call_id;
        for event in [other_tenant, other_due, other_timer] {
            let mut ledger = with_one();
            ledger.fired(&event, at(12));
            assert_eq!(ledger.balance().unasked, 1);
            assert_eq!(ledger.balance().fired, 0);
            assert_complains(&ledger, &["nobody had asked for"]);
        }
    }
}
