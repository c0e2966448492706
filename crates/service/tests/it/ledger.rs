//! What was promised and what came of it, written down by somebody outside.
//!
//! It knows every schedule that was requested, which of them were acknowledged and when, and reads
//! every firing. What it holds the service to:
//!
//! 1. the last acknowledged schedule of every timer that was not cancelled fires;
//! 2. nothing fires before its due time, neither by its own account nor by our clock;
//! 3. all firings of one schedule carry the same firing id, and no other's;
//! 4. a timer that has been reached stays so, and none is reached without its line;
//! 5. what was cancelled or moved away before it was due does not fire;
//! 6. what came from a run that was stopped in good order does not come again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use punctual_adapters_system::SystemClock;
use punctual_domain::{DueTimeReached, TimerEntry, TimerKey, TimerState, Timestamp};
use punctual_ports::ClockPort;

/// One schedule of one timer. Its due time tells it from the timer's others.
#[derive(Debug)]
struct Schedule {
    due_at: Timestamp,
    /// When we read that it was stored.
    acknowledged: Option<Timestamp>,
    firings: Vec<Firing>,
}

/// A line that we read.
#[derive(Debug)]
struct Firing {
    run: usize,
    reached_at: Timestamp,
    id: String,
}

#[derive(Debug, Default)]
struct Timer {
    schedules: Vec<Schedule>,
    cancelled: Option<Timestamp>,
}

impl Timer {
    /// What has to have fired by the end: the last acknowledged schedule, or one that was requested
    /// after it and may have been stored without our hearing of it.
    fn owed(&self) -> &[Schedule] {
        if self.cancelled.is_some() {
            return &[];
        }
        let last = self
            .schedules
            .iter()
            .rposition(|it| it.acknowledged.is_some());
        last.map_or(&[], |last| &self.schedules[last..])
    }

    fn is_owed_a_firing(&self) -> bool {
        let owed = self.owed();
        !owed.is_empty() && owed.iter().all(|it| it.firings.is_empty())
    }
}

/// The book.
pub(crate) struct Ledger {
    clock: SystemClock,
    timers: BTreeMap<TimerKey, Timer>,
    /// Timers that were seen reached, with the due time that they had.
    reached: BTreeMap<TimerKey, Timestamp>,
    /// Runs that were stopped in good order.
    orderly: BTreeSet<usize>,
    run: usize,
    pub(crate) acknowledged: usize,
    pub(crate) firings: usize,
    pub(crate) duplicates: usize,
    /// How long after they were due and known to be stored timers fired first.
    lateness: Vec<Duration>,
    violations: Vec<String>,
}

impl Ledger {
    pub(crate) fn new() -> Self {
        Self {
            clock: SystemClock::start().unwrap(),
            timers: BTreeMap::new(),
            reached: BTreeMap::new(),
            orderly: BTreeSet::new(),
            run: 0,
            acknowledged: 0,
            firings: 0,
            duplicates: 0,
            lateness: Vec::new(),
            violations: Vec::new(),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn asked(&mut self, key: &TimerKey, due_at: Timestamp) {
        let timer = self.timers.entry(key.clone()).or_default();
        assert!(
            timer.schedules.iter().all(|it| it.due_at != due_at),
            "the test gives each schedule of a timer its own due time"
        );
        timer.schedules.push(Schedule {
            due_at,
            acknowledged: None,
            firings: Vec::new(),
        });
    }

    pub(crate) fn acknowledged(&mut self, key: &TimerKey, due_at: Timestamp) {
        let now = self.clock.now();
        self.acknowledged += 1;
        let timer = self.timers.get_mut(key);
        let schedules = timer.into_iter().flat_map(|timer| &mut timer.schedules);
        match schedules.into_iter().find(|it| it.due_at == due_at) {
            Some(schedule) => schedule.acknowledged = Some(now),
            None => self.violate(key, "a schedule was acknowledged that was not requested"),
        }
    }

    pub(crate) fn cancelled(&mut self, key: &TimerKey) {
        let now = self.clock.now();
        self.timers.get_mut(key).unwrap().cancelled = Some(now);
    }

    /// A new run of the service begins.
    pub(crate) fn run_begins(&mut self) {
        self.run += 1;
    }

    /// The run ended as it was asked to, so none of its firings may come again.
    pub(crate) fn run_ended_in_good_order(&mut self) {
        self.orderly.insert(self.run);
    }

    pub(crate) fn fired(&mut self, event: &DueTimeReached) {
        self.fired_in(self.run, event);
    }

    /// The same where several runs go on at once.
    pub(crate) fn fired_in(&mut self, run: usize, event: &DueTimeReached) {
        let now = self.clock.now();
        self.firings += 1;
        let key = event.key();
        let Some(timer) = self.timers.get_mut(&key) else {
            return self.violate(&key, "it fired, but was not requested");
        };
        let Some(n) = timer
            .schedules
            .iter()
            .position(|it| it.due_at == event.due_at)
        else {
            return self.violate(&key, "it fired with a due time that was not requested");
        };
        let id = event.firing_id.to_string();
        let mut wrong = Vec::new();
        if event.reached_at < event.due_at || now < event.due_at {
            wrong.push("it fired early");
        }
        if event.firing_id.key != key || event.firing_id.registration.due_at != event.due_at {
            wrong.push("its firing id names something else");
        }
        // The worker polls the store at or after the due time, and that was after this.
        let moved = timer.schedules[n + 1..]
            .iter()
            .filter_map(|it| it.acknowledged);
        if moved.chain(timer.cancelled).any(|at| at < event.due_at) {
            wrong.push("it fired although it had been moved or cancelled before");
        }
        let stored_at = timer.schedules[n].acknowledged;
        let firings = &mut timer.schedules[n].firings;
        if firings.is_empty() {
            // By its own account: we may have read it late.
            let fired_at = now.min(event.reached_at);
            let since = stored_at.map_or(fired_at, |at| at.max(event.due_at));
            self.lateness.push(fired_at.since(since));
        } else {
            self.duplicates += 1;
        }
        if firings.iter().any(|it| it.id != id) {
            wrong.push("one schedule fired under two firing ids");
        }
        if firings.iter().any(|it| self.orderly.contains(&it.run)) {
            wrong.push("a run that was stopped in good order had fired it before");
        }
        firings.push(Firing {
            run,
            reached_at: event.reached_at,
            id,
        });
        for what in wrong {
            self.violate(&key, what);
        }
    }

    /// Checks a timer as the database has it, while no process serves it.
    pub(crate) fn stored(&mut self, entry: &TimerEntry) {
        let timer = entry.timer();
        let (key, due_at) = (&timer.key, timer.registration.due_at);
        let lines = self
            .timers
            .get(key)
            .into_iter()
            .flat_map(|it| &it.schedules);
        let mut lines = lines
            .filter(|it| it.due_at == due_at)
            .flat_map(|it| &it.firings);
        let what = match (entry.state(), entry.reached_at()) {
            (TimerState::Scheduled, _) if self.reached.contains_key(key) => {
                Some("it had been reached and is scheduled again")
            }
            (TimerState::Reached, Some(at)) if !lines.any(|it| it.reached_at == at) => {
                Some("it is reached, but no line says so")
            }
            (TimerState::Reached, _) => {
                let before = self.reached.insert(key.clone(), due_at);
                let differs = before.is_some_and(|before| before != due_at);
                differs.then_some("it had been reached with another due time")
            }
            (TimerState::Scheduled, _) => None,
        };
        if let Some(what) = what {
            self.violate(&key.clone(), what);
        }
    }

    /// How many timers are due, were acknowledged, and have not fired.
    pub(crate) fn overdue(&self) -> usize {
        let now = self.clock.now();
        let timers = self
            .timers
            .values()
            .filter(|timer| timer.is_owed_a_firing());
        timers
            .filter(|timer| timer.owed().iter().any(|it| it.due_at <= now))
            .count()
    }

    /// How late timers fired: the median, the 99th percentile and the worst.
    pub(crate) fn lateness(&self) -> String {
        let mut all = self.lateness.clone();
        all.sort_unstable();
        let at = |percent: usize| all.get(all.len().saturating_sub(1) * percent / 100);
        let [half, most, worst] = [50, 99, 100].map(|it| at(it).copied().unwrap_or_default());
        format!("p50 {half:?}, p99 {most:?}, max {worst:?}")
    }

    /// How many timers still have to fire.
    pub(crate) fn owed(&self) -> usize {
        let timers = self.timers.values();
        timers.filter(|timer| timer.is_owed_a_firing()).count()
    }

    pub(crate) fn violate(&mut self, key: &TimerKey, what: &str) {
        let history = self.timers.get(key).map(history).unwrap_or_default();
        self.violations.push(format!("{key}: {what}\n{history}"));
    }

    /// Everything that is wrong, with its history.
    fn complaints(&self) -> Vec<String> {
        let lost = self.timers.iter().filter(|it| it.1.is_owed_a_firing());
        let lost = lost.map(|(key, timer)| format!("{key}: it was lost\n{}", history(timer)));
        lost.chain(self.violations.iter().cloned()).collect()
    }

    /// Fails with the history of whatever is wrong.
    pub(crate) fn assert_all_is_well(&self) {
        let complaints = self.complaints();
        // The first few tell the story.
        let shown: String = complaints.iter().take(20).map(String::as_str).collect();
        assert!(complaints.is_empty(), "{} wrong\n{shown}", complaints.len());
    }
}

fn history(timer: &Timer) -> String {
    let mut text = String::new();
    for schedule in &timer.schedules {
        let _ = writeln!(
            text,
            "    due {}, acknowledged {:?}",
            schedule.due_at, schedule.acknowledged
        );
        for firing in &schedule.firings {
            let _ = writeln!(
                text,
                "        fired in run {} at {} as {}",
                firing.run, firing.reached_at, firing.id
            );
        }
    }
    if let Some(at) = timer.cancelled {
        let _ = writeln!(text, "    cancelled {at}");
    }
    text
}

/// A ledger that never complains would prove nothing.
mod complaints {
    use super::*;
    use punctual_domain::{FiringId, Registration, TenantId};
    use serde_json::json;

    fn key() -> TimerKey {
        TimerKey::named(TenantId::new("a").unwrap(), "x")
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis).unwrap()
    }

    fn far() -> Timestamp {
        "2096-12-24T18:00:00Z".parse().unwrap()
    }

    fn event(due_at: Timestamp, registered_at: i64, reached_at: Timestamp) -> DueTimeReached {
        let registration = Registration {
            registered_at: at(registered_at),
            due_at,
        };
        DueTimeReached {
            tenant_id: key().tenant_id,
            service_call_id: key().service_call_id,
            reached_at,
            due_at,
            firing_id: FiringId {
                key: key(),
                registration,
            },
            data: None,
        }
    }

    fn stored(due_at: Timestamp, reached_at: Option<Timestamp>) -> TimerEntry {
        let mut timer = json!({
            "tenantId": key().tenant_id,
            "serviceCallId": key().service_call_id,
            "correlationId": key().service_call_id,
            "dueAt": due_at,
            "registeredAt": at(1),
            "state": "Scheduled",
        });
        if let Some(reached_at) = reached_at {
            timer["state"] = json!("Reached");
            timer["reachedAt"] = json!(reached_at);
        }
        serde_json::from_value(timer).unwrap()
    }

    /// A ledger with one acknowledged schedule, due in the past.
    fn with_one(due_at: Timestamp) -> Ledger {
        let mut ledger = Ledger::new();
        ledger.asked(&key(), due_at);
        ledger.acknowledged(&key(), due_at);
        ledger
    }

    fn assert_says(ledger: &Ledger, words: &str) {
        let complaints = ledger.complaints();
        assert_eq!(complaints.len(), 1, "{complaints:?}");
        assert!(complaints[0].contains(words), "{complaints:?}");
    }

    #[test]
    fn all_is_well_when_what_was_promised_came() {
        let mut ledger = with_one(at(5));
        assert_eq!((ledger.owed(), ledger.overdue()), (1, 1));
        ledger.fired(&event(at(5), 1, at(5)));
        ledger.run_begins();
        ledger.fired(&event(at(5), 1, at(6)));
        ledger.stored(&stored(at(5), Some(at(6))));
        ledger.assert_all_is_well();
        assert_eq!((ledger.owed(), ledger.duplicates), (0, 1));
    }

    #[test]
    fn a_lost_timer_is_told_from_one_that_was_never_promised() {
        let mut ledger = with_one(at(5));
        assert_says(&ledger, "it was lost");
        ledger.cancelled(&key());
        ledger.assert_all_is_well();
        let mut ledger = Ledger::new();
        ledger.asked(&key(), at(5));
        ledger.assert_all_is_well();
    }

    #[test]
    fn a_moved_timer_owes_the_new_firing_or_one_that_may_have_been_stored_since() {
        let mut ledger = with_one(at(5));
        ledger.fired(&event(at(5), 1, at(5)));
        ledger.asked(&key(), at(7));
        ledger.assert_all_is_well();
        ledger.acknowledged(&key(), at(7));
        assert_says(&ledger, "it was lost");
        ledger.asked(&key(), at(9));
        ledger.fired(&event(at(9), 1, at(9)));
        ledger.assert_all_is_well();
    }

    #[test]
    fn an_early_firing_is_told_by_its_own_account_and_by_our_clock() {
        let mut ledger = with_one(at(5));
        ledger.fired(&event(at(5), 1, at(4)));
        assert_says(&ledger, "early");
        let mut ledger = with_one(far());
        ledger.fired(&event(far(), 1, far()));
        assert_says(&ledger, "early");
    }

    #[test]
    fn two_firing_ids_of_one_schedule_are_told() {
        let mut ledger = with_one(at(5));
        ledger.fired(&event(at(5), 1, at(5)));
        ledger.fired(&event(at(5), 2, at(5)));
        assert_says(&ledger, "two firing ids");
    }

    #[test]
    fn a_firing_that_nobody_asked_for_is_told() {
        let mut ledger = Ledger::new();
        ledger.fired(&event(at(5), 1, at(5)));
        assert_says(&ledger, "was not requested");
    }

    #[test]
    fn a_repetition_after_an_orderly_stop_is_told() {
        let mut ledger = with_one(at(5));
        ledger.fired(&event(at(5), 1, at(5)));
        ledger.run_ended_in_good_order();
        ledger.run_begins();
        ledger.fired(&event(at(5), 1, at(6)));
        assert_says(&ledger, "good order");
    }

    #[test]
    fn a_state_that_goes_back_and_a_mark_without_a_line_are_told() {
        let mut ledger = with_one(at(5));
        ledger.fired(&event(at(5), 1, at(5)));
        ledger.stored(&stored(at(5), Some(at(6))));
        assert_says(&ledger, "no line says so");
        let mut ledger = with_one(at(5));
        ledger.fired(&event(at(5), 1, at(5)));
        ledger.stored(&stored(at(5), Some(at(5))));
        ledger.stored(&stored(at(5), None));
        assert_says(&ledger, "scheduled again");
    }

    #[test]
    fn a_firing_after_a_cancellation_is_told_if_it_was_not_due_by_then() {
        let mut ledger = with_one(far());
        ledger.cancelled(&key());
        ledger.fired(&event(far(), 1, far()));
        let complaints = ledger.complaints().concat();
        assert!(complaints.contains("moved or cancelled"), "{complaints}");
        let mut ledger = with_one(at(5));
        ledger.cancelled(&key());
        ledger.fired(&event(at(5), 1, at(5)));
        ledger.assert_all_is_well();
    }
}
