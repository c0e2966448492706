//! The ledger: what was acknowledged, what arrived of it and when, and how it ended.
//!
//! It is kept by the process that receives the firings and the requests, and not by the one that
//! fires and calls.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::time::Duration;

use punctual_domain::service_call::{CallStatus, ErrorKind};
use punctual_domain::{DueTimeReached, TimerKey, Timestamp};

use crate::lateness::Lateness;
use crate::plan::{Plan, Script};
use crate::target;

/// How a call ended, as the service says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Succeeded,
    /// With the kind of the failure.
    Failed(String),
}

impl Outcome {
    /// By the status of a call and the kind of its failure; `None` while it has not ended.
    pub(crate) fn parse(status: &str, kind: Option<&str>) -> Option<Self> {
        match status.parse() {
            Ok(CallStatus::Succeeded) => Some(Self::Succeeded),
            Ok(CallStatus::Failed) => Some(Self::Failed(kind.unwrap_or("unknown").to_owned())),
            _ => None,
        }
    }
}

/// One timer or call.
#[derive(Debug, Clone, Default)]
struct Entry {
    is_acknowledged: bool,
    /// Number of firings or requests.
    arrivals: usize,
    /// Of a timer's first firing: what its firing id says besides key and due time.
    registered_at: Option<Timestamp>,
    /// Of a call.
    outcome: Option<Outcome>,
}

impl Entry {
    /// Whether the outcome is what the target responded, as far as it says anything of a response.
    fn is_true(&self, n: usize) -> bool {
        let response = (self.arrivals > 0).then(|| target::status(n));
        match &self.outcome {
            Some(Outcome::Succeeded) => response == Some(target::GOOD),
            Some(Outcome::Failed(kind)) if kind == ErrorKind::HttpStatus.as_str() => {
                response == Some(target::BAD)
            }
            _ => true,
        }
    }
}

/// One figure of the result: its name for programs, its label for people, and how many there are.
/// Without a name or a label it is not for these.
pub(crate) type Figure = (&'static str, &'static str, usize);

/// Totals that grow while it runs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Totals {
    pub(crate) acknowledged: usize,
    /// Timers or calls that arrived at least once.
    pub(crate) arrived: usize,
    /// Timers that fired, and calls that came to the target or ended without.
    pub(crate) done: usize,
    /// Timers that fired, and calls that ended.
    pub(crate) settled: usize,
    /// Firings and requests, whatever they are of.
    pub(crate) arrivals: usize,
    /// Submissions that were sent again, since no response had come.
    pub(crate) resubmitted: usize,
    pub(crate) early: usize,
    /// Firings of a timer under its first id.
    pub(crate) repeated: usize,
    /// Firings of a timer under another id than its first.
    pub(crate) other_id: usize,
    /// Firings and requests of no timer and no call.
    pub(crate) unexpected: usize,
    /// How late the latest one was.
    pub(crate) worst: Duration,
}

/// Every timer or call of a plan, and what became of it.
#[derive(Debug)]
pub(crate) struct Ledger {
    plan: Plan,
    entries: Vec<Entry>,
    /// Which timer has which key.
    keys: HashMap<TimerKey, u32>,
    pub(crate) totals: Totals,
    /// From the due time until the arrival, for the first one of each.
    pub(crate) lateness: Lateness,
    /// From the due time until the worker noticed it, by its own account.
    pub(crate) noticed: Lateness,
    first_problem: Option<String>,
}

impl Ledger {
    /// The ledger of a plan of which nothing is stored yet.
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            plan: plan.clone(),
            entries: vec![Entry::default(); plan.count as usize],
            keys: (0..plan.count).map(|n| (plan.key(n), n)).collect(),
            totals: Totals::default(),
            lateness: Lateness::default(),
            noticed: Lateness::default(),
            first_problem: None,
        }
    }

    /// Records what the store or the service has acknowledged. From now on it must not be lost.
    pub(crate) fn acknowledged(&mut self, range: Range<u32>) {
        for n in range {
            if let Some(entry) = self.entries.get_mut(n as usize)
                && !std::mem::replace(&mut entry.is_acknowledged, true)
            {
                self.totals.acknowledged += 1;
            }
        }
    }

    /// Records a firing.
    pub(crate) fn fired(&mut self, event: &DueTimeReached, read_at: Timestamp) {
        let key = event.key();
        let n = self.keys.get(&key).copied();
        let n = n.filter(|n| self.plan.due_at(*n) == event.due_at);
        let Some((n, is_first)) = self.arrived(n, read_at, event.reached_at) else {
            return self.problem(format!("the timer {key} was never scheduled"));
        };
        if is_first {
            self.totals.settled += 1;
            self.noticed.add(event.reached_at.since(event.due_at));
        }
        let id = &event.firing_id;
        let registered_at = id.registration.registered_at;
        let first = *self.entries[n].registered_at.get_or_insert(registered_at);
        if id.key != key || id.registration.due_at != event.due_at || first != registered_at {
            self.totals.other_id += 1;
            self.problem(format!("the timer {key} fired under another id"));
        } else if !is_first {
            self.totals.repeated += 1;
        }
    }

    /// Records a request to the target; `None`: for no call.
    pub(crate) fn requested(&mut self, n: Option<u32>, at: Timestamp) {
        match self.arrived(n, at, at) {
            None => self.problem("the target got a request of no call".to_owned()),
            Some((n, false)) => self.problem(format!("call {n} was made twice")),
            Some((_, true)) => {}
        }
    }

    /// Records an arrival, of which the worker says that it is of `claimed_at`. Returns its entry, and
    /// whether it is the first of that.
    fn arrived(
        &mut self,
        n: Option<u32>,
        at: Timestamp,
        claimed_at: Timestamp,
    ) -> Option<(usize, bool)> {
        let totals = &mut self.totals;
        totals.arrivals += 1;
        let known = n.and_then(|n| Some((n, self.entries.get_mut(n as usize)?)));
        let Some((n, entry)) = known else {
            totals.unexpected += 1;
            return None;
        };
        entry.arrivals += 1;
        let is_first = entry.arrivals == 1;
        let due_at = self.plan.due_at(n);
        if is_first {
            let late = at.since(due_at);
            totals.arrived += 1;
            totals.done += usize::from(entry.outcome.is_none());
            totals.worst = totals.worst.max(late);
            self.lateness.add(late);
        }
        // Both by the worker's account and by our clock.
        let at = at.min(claimed_at);
        if at < due_at {
            totals.early += 1;
            let name = self.name(n);
            self.problem(format!("{name} came at {at}, before it was due"));
        }
        Some((n as usize, is_first))
    }

    /// Records how a call ended.
    pub(crate) fn completed(&mut self, n: u32, outcome: Outcome) {
        if let Some(entry) = self.entries.get_mut(n as usize)
            && entry.outcome.replace(outcome).is_none()
        {
            self.totals.settled += 1;
            self.totals.done += usize::from(entry.arrivals == 0);
        }
    }

    fn problem(&mut self, what: String) {
        self.first_problem.get_or_insert(what);
    }

    fn name(&self, n: u32) -> String {
        match self.plan.script {
            Script::Timers => format!("the timer {}", self.plan.key(n)),
            Script::Calls => format!("call {n}"),
        }
    }

    /// A figure that grows whenever the run comes closer to its end.
    pub(crate) const fn progress(&self) -> usize {
        self.totals.acknowledged + self.totals.arrived + self.totals.settled
    }

    /// Whether everything is acknowledged, and has fired or ended.
    pub(crate) const fn is_complete(&self) -> bool {
        let all = self.entries.len();
        self.totals.acknowledged == all && self.totals.settled == all
    }

    fn count(&self, matches: impl Fn(usize, &Entry) -> bool) -> usize {
        let entries = self.entries.iter().enumerate();
        entries.filter(|(n, entry)| matches(*n, entry)).count()
    }

    /// Every figure, in the order in which it is printed.
    pub(crate) fn figures(&self) -> Vec<Figure> {
        let it = &self.totals;
        let lost = self.count(|_, entry| self.is_lost(entry));
        if self.plan.script == Script::Timers {
            return vec![
                ("scheduled", "scheduled", it.acknowledged),
                ("fired", "fired", it.arrived),
                ("firedAgain", "fired again", it.repeated),
                ("early", "early", it.early),
                ("lost", "lost", lost),
                ("otherId", "other id", it.other_id),
                ("unasked", "unasked", it.unexpected),
            ];
        }
        let succeeded = |_, entry: &Entry| entry.outcome == Some(Outcome::Succeeded);
        let calls = self.entries.len();
        vec![
            ("calls", "", calls),
            ("accepted", "accepted", it.acknowledged),
            ("", "rejected", calls - it.acknowledged),
            ("sentAgain", "sent again", it.resubmitted),
            ("requests", "requests", it.arrivals),
            ("succeeded", "succeeded", self.count(succeeded)),
            ("twice", "twice", self.count(|_, entry| entry.arrivals > 1)),
            ("early", "early", it.early),
            ("withoutOutcome", "no outcome", lost),
            ("untrue", "untrue", self.count(|n, entry| !entry.is_true(n))),
            ("unasked", "unasked", it.unexpected),
        ]
    }

    /// How many calls failed, by the kind of failure.
    pub(crate) fn failed(&self) -> BTreeMap<&str, usize> {
        let mut failed = BTreeMap::new();
        for entry in &self.entries {
            if let Some(Outcome::Failed(kind)) = &entry.outcome {
                *failed.entry(kind.as_str()).or_default() += 1;
            }
        }
        failed
    }

    /// Whether it was acknowledged and nothing came of it.
    fn is_lost(&self, entry: &Entry) -> bool {
        entry.is_acknowledged
            && match self.plan.script {
                Script::Timers => entry.arrivals == 0,
                Script::Calls => entry.outcome.is_none(),
            }
    }

    /// Fails with one sentence if anything is not as it has to be.
    pub(crate) fn verdict(&self) -> Result<(), String> {
        let figures = self.figures().into_iter();
        let problems = figures.filter(|(_, label, count)| *count > 0 && is_problem(label));
        let problems = problems.map(|(_, label, count)| format!("{count} {label}"));
        let problems: Vec<String> = problems.collect();
        if problems.is_empty() {
            return Ok(());
        }
        let (count, unit) = (self.entries.len(), self.plan.script.unit());
        let example = self.first_problem.clone().or_else(|| self.example());
        let (problems, example) = (problems.join(", "), example.unwrap_or_default());
        let what = format!("{count} {unit}s: {problems}");
        Err(format!("this must not happen ({what}): {example}"))
    }

    /// The first one that did not end as it should.
    fn example(&self) -> Option<String> {
        let mut entries = (0..self.plan.count).zip(&self.entries);
        entries.find_map(|(n, entry)| {
            let what = match &entry.outcome {
                _ if self.is_lost(entry) => {
                    format!("due at {}, came to nothing", self.plan.due_at(n))
                }
                None if !entry.is_acknowledged => "was never accepted".to_owned(),
                Some(outcome) if !entry.is_true(n as usize) => {
                    format!("ended as {outcome:?} after {} requests", entry.arrivals)
                }
                _ => return None,
            };
            Some(format!("{} {what}", self.name(n)))
        })
    }
}

/// Whether what the label counts must not happen.
fn is_problem(label: &str) -> bool {
    let timers = matches!(label, "early" | "lost" | "other id" | "unasked");
    timers || matches!(label, "rejected" | "twice" | "no outcome" | "untrue")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::args::tests::args;
    use punctual_domain::{FiringId, Registration, TenantId};

    pub(crate) fn ledger(line: &str) -> Ledger {
        Ledger::new(&Plan::new(&args(line), Timestamp::MIN).unwrap())
    }

    pub(crate) fn failed(kind: ErrorKind) -> Outcome {
        Outcome::Failed(kind.as_str().to_owned())
    }

    impl Ledger {
        /// `offset` milliseconds after the `n`-th is due, or before.
        fn due(&self, n: u32, offset: i64) -> Timestamp {
            Timestamp::from_millis(self.plan.due_at(n).as_millis() + offset).unwrap()
        }

        /// A firing of the `n`-th timer, so late by the worker's account.
        fn firing(&self, n: u32, noticed: i64) -> DueTimeReached {
            let key = self.plan.key(n);
            DueTimeReached {
                tenant_id: key.tenant_id.clone(),
                service_call_id: key.service_call_id,
                reached_at: self.due(n, noticed),
                due_at: self.plan.due_at(n),
                firing_id: FiringId {
                    key,
                    registration: Registration {
                        registered_at: Timestamp::MIN,
                        due_at: self.plan.due_at(n),
                    },
                },
                data: None,
            }
        }

        /// Fires the `n`-th timer, noticed and read these milliseconds after it was due.
        pub(crate) fn fire(&mut self, n: u32, noticed: i64, read: i64) {
            self.fired(&self.firing(n, noticed), self.due(n, read));
        }

        /// Counts everything that is unusual.
        pub(crate) fn spoil(&mut self) {
            self.totals.resubmitted = 4;
            self.totals.unexpected = 1;
            self.totals.other_id = 2;
            self.entries[0].outcome = Some(failed(ErrorKind::HttpStatus));
        }

        pub(crate) fn request(&mut self, n: u32, late: i64) {
            self.requested(Some(n), self.due(n, late));
        }

        fn totals<const N: usize>(&self, names: [&str; N]) -> [usize; N] {
            let figures = self.figures();
            names.map(|name| figures.iter().find(|figure| figure.0 == name).unwrap().2)
        }

        fn assert_wrong(&self, words: &[&str]) {
            let sentence = self.verdict().unwrap_err();
            for word in words {
                assert!(sentence.contains(word), "{word:?} is not in {sentence:?}");
            }
        }
    }

    /// One timer that was acknowledged and fired like this, each time noticed and read so late.
    fn timer(firings: &[(i64, i64)]) -> Ledger {
        let mut ledger = ledger("--timers 1");
        ledger.acknowledged(0..1);
        let fire = |(noticed, read): &(i64, i64)| ledger.fire(0, *noticed, *read);
        firings.iter().for_each(fire);
        ledger
    }

    /// The same, with one more firing that is not as it should be.
    fn timer_with(firings: &[(i64, i64)], change: fn(&mut DueTimeReached)) -> Ledger {
        let mut ledger = timer(firings);
        let mut event = ledger.firing(0, 0);
        change(&mut event);
        ledger.fired(&event, ledger.due(0, 2));
        ledger
    }

    #[test]
    fn a_firing_at_its_due_time_and_one_after_it_are_fine() {
        for firing in [(0, 0), (0, 7), (2, 2)] {
            let ledger = timer(&[firing]);
            assert_eq!(ledger.verdict(), Ok(()));
            assert_eq!(ledger.totals(["scheduled", "fired"]), [1, 1]);
            assert!(ledger.is_complete());
        }
    }

    #[test]
    fn a_timer_is_lost_if_it_was_acknowledged_and_did_not_fire_and_not_otherwise() {
        assert!(!timer(&[]).is_complete());
        timer(&[]).assert_wrong(&["1 lost", "came to nothing"]);
        let mut ledger = ledger("--timers 1");
        assert_eq!(ledger.verdict(), Ok(()));
        ledger.fire(0, 0, 0);
        assert_eq!(ledger.verdict(), Ok(()));
        assert_eq!(ledger.totals(["scheduled", "fired"]), [0, 1]);
        assert!(!ledger.is_complete());
    }

    #[test]
    fn a_firing_is_early_by_its_own_account_or_by_our_clock() {
        for firing in [(-1, 2), (0, -1)] {
            timer(&[firing]).assert_wrong(&["1 early", "before it was due"]);
        }
    }

    #[test]
    fn a_repetition_counts_as_such_and_its_lateness_does_not() {
        let ledger = timer(&[(0, 2), (490, 500)]);
        assert_eq!(ledger.verdict(), Ok(()));
        assert_eq!(ledger.totals(["fired", "firedAgain"]), [1, 1]);
        assert_eq!(ledger.totals.worst, Duration::from_millis(2));
        assert_eq!(ledger.lateness.percentiles().unwrap().max, 2);
        assert_eq!(ledger.noticed.percentiles().unwrap().max, 0);
    }

    #[test]
    fn a_repetition_under_another_id_is_wrong_and_so_is_an_id_of_another_timer_or_due_time() {
        let changes: [fn(&mut DueTimeReached); 3] = [
            |event| event.firing_id.registration.registered_at = Timestamp::MAX,
            |event| event.firing_id.key = TimerKey::named(event.tenant_id.clone(), "other"),
            |event| event.firing_id.registration.due_at = Timestamp::MAX,
        ];
        for (change, firings) in changes.into_iter().zip([&[(0, 2)][..], &[], &[]]) {
            let ledger = timer_with(firings, change);
            assert_eq!(ledger.totals(["firedAgain", "otherId"]), [0, 1]);
            ledger.assert_wrong(&["1 other id", "under another id"]);
        }
    }

    #[test]
    fn a_firing_of_no_timer_is_wrong() {
        let changes: [fn(&mut DueTimeReached); 3] = [
            |event| event.tenant_id = TenantId::new("b").unwrap(),
            |event| event.due_at = event.due_at.next(),
            |event| event.service_call_id = ledger("--timers 2").plan.key(1).service_call_id,
        ];
        for change in changes {
            let ledger = timer_with(&[], change);
            assert_eq!(ledger.totals(["unasked", "fired"]), [1, 0]);
            ledger.assert_wrong(&["1 unasked", "never scheduled"]);
        }
    }

    /// Ten calls that were accepted and made; the target does not like the last one.
    fn made() -> Ledger {
        let mut ledger = ledger("--calls 10");
        ledger.acknowledged(0..10);
        (0..10).for_each(|n| ledger.request(n, 2));
        ledger
    }

    /// The same, ended.
    fn ended() -> Ledger {
        let mut ledger = made();
        for n in 0..9 {
            ledger.completed(n, Outcome::Succeeded);
        }
        ledger.completed(9, failed(ErrorKind::HttpStatus));
        ledger
    }

    #[test]
    fn calls_that_were_made_once_and_have_their_outcome_are_fine() {
        let ledger = ended();
        assert_eq!(ledger.verdict(), Ok(()));
        assert!(ledger.is_complete());
        let counts = ledger.totals(["accepted", "requests", "succeeded"]);
        assert_eq!((counts, ledger.failed()["HttpStatus"]), ([10, 10, 9], 1));
        assert_eq!(ledger.lateness.percentiles().unwrap().max, 2);
        assert_eq!(ledger.totals.done, 10);
    }

    #[test]
    fn a_call_without_an_outcome_is_wrong_and_one_that_was_not_accepted_too() {
        assert!(!made().is_complete());
        made().assert_wrong(&["10 no outcome", "call 0"]);
        let submitted = ledger("--calls 10");
        assert_eq!(submitted.totals(["withoutOutcome"]), [0]);
        submitted.assert_wrong(&["10 rejected", "call 0 was never accepted"]);
    }

    #[test]
    fn a_second_request_is_wrong_and_its_lateness_does_not_count() {
        let mut ledger = ended();
        ledger.request(4, 490);
        ledger.request(4, 490);
        assert_eq!(ledger.totals.worst, Duration::from_millis(2));
        ledger.assert_wrong(&["1 twice", "call 4 was made twice"]);
    }

    #[test]
    fn a_request_before_the_due_time_is_early_and_one_of_no_call_is_wrong() {
        let mut early = ended();
        early.entries[0].arrivals = 0;
        early.request(0, -1);
        early.assert_wrong(&["1 early", "call 0", "before it was due"]);
        for n in [None, Some(10)] {
            let mut ledger = ended();
            ledger.requested(n, Timestamp::MAX);
            ledger.assert_wrong(&["1 unasked", "of no call"]);
        }
    }

    #[test]
    fn an_outcome_has_to_be_what_the_target_responded() {
        let (good, bad) = (Outcome::Succeeded, failed(ErrorKind::HttpStatus));
        let interrupted = failed(ErrorKind::Interrupted);
        for (n, requests, outcome, untrue) in [
            (0, 0, &good, 1),
            (9, 1, &good, 1),
            (0, 1, &bad, 1),
            (9, 0, &bad, 1),
            // Unknown.
            (0, 0, &interrupted, 0),
            (0, 1, &interrupted, 0),
        ] {
            let mut ledger = ended();
            ledger.entries[n as usize].arrivals = requests;
            ledger.completed(n, outcome.clone());
            assert_eq!(ledger.totals(["untrue"]), [untrue], "{n} {outcome:?}");
        }
    }

    #[test]
    fn a_call_has_ended_when_its_status_says_so() {
        for status in ["Scheduled", "Running"] {
            assert_eq!(Outcome::parse(status, None), None);
        }
        assert_eq!(Outcome::parse("Succeeded", None), Some(Outcome::Succeeded));
        let interrupted = Outcome::parse("Failed", Some("Interrupted"));
        assert_eq!(interrupted, Some(failed(ErrorKind::Interrupted)));
    }
}
