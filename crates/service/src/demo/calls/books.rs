//! The books of the calls: what was accepted, what the target saw of it, and how each call ended.

use std::collections::BTreeMap;
use std::time::Duration;

use punctual_domain::Timestamp;
use punctual_domain::service_call::{CallStatus, ErrorKind};
use serde::Serialize;

use super::target;
use crate::demo::lateness::Lateness;
use crate::demo::plan::Plan;
use crate::failure::Failure;

/// How the service says that a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ending {
    Succeeded,
    /// With the kind of the failure.
    Failed(String),
}

/// One call.
#[derive(Debug)]
struct Call {
    due_at: Timestamp,
    is_accepted: bool,
    /// How often the target was asked.
    requests: usize,
    ending: Option<Ending>,
}

/// Everything that was submitted and everything that came of it.
#[derive(Debug, Default)]
pub(super) struct Books {
    calls: Vec<Call>,
    accepted: usize,
    ended: usize,
    /// Submissions that were sent once more, since no answer had come.
    sent_again: usize,
    requests: usize,
    twice: usize,
    early: usize,
    unasked: usize,
    /// Calls that have come to the target, or have ended without.
    done: usize,
    /// From the due time until the target was asked, for the first request of each.
    lateness: Lateness,
    worst: Duration,
    first_wrong: Option<String>,
}

/// What the books say in the end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Balance {
    pub(super) calls: usize,
    pub(super) accepted: usize,
    pub(super) sent_again: usize,
    pub(super) succeeded: usize,
    /// By the kind of failure.
    pub(super) failed: BTreeMap<String, usize>,
    /// What the target saw.
    pub(super) requests: usize,
    pub(super) twice: usize,
    pub(super) early: usize,
    pub(super) without_outcome: usize,
    /// Outcomes that are not what the target answered.
    pub(super) untrue: usize,
    /// Requests that nobody had asked for.
    pub(super) unasked: usize,
}

impl Balance {
    const fn is_good(&self) -> bool {
        self.accepted == self.calls
            && self.twice == 0
            && self.early == 0
            && self.without_outcome == 0
            && self.untrue == 0
            && self.unasked == 0
    }
}

impl Call {
    /// Whether the outcome is what the target answered, as far as it tells of an answer.
    fn is_true(&self, n: usize) -> bool {
        let answered = (self.requests > 0).then(|| target::answer(n));
        match &self.ending {
            Some(Ending::Succeeded) => answered == Some(target::GOOD),
            Some(Ending::Failed(kind)) if kind == ErrorKind::HttpStatus.as_str() => {
                answered == Some(target::BAD)
            }
            _ => true,
        }
    }
}

impl Books {
    /// For the calls of a plan, none of which is submitted yet.
    pub(super) fn new(plan: &Plan) -> Self {
        let call = |n| Call {
            due_at: plan.due_at(n),
            is_accepted: false,
            requests: 0,
            ending: None,
        };
        Self {
            calls: (0..plan.timers()).map(call).collect(),
            ..Self::default()
        }
    }

    /// The service has promised the call. From now on it must have an outcome.
    pub(super) fn accepted(&mut self, n: usize) {
        if let Some(call) = self.calls.get_mut(n)
            && !std::mem::replace(&mut call.is_accepted, true)
        {
            self.accepted += 1;
        }
    }

    pub(super) const fn sent_again(&mut self) {
        self.sent_again += 1;
    }

    /// The target was asked for the call; `None`: for something else.
    pub(super) fn requested(&mut self, n: Option<usize>, at: Timestamp) {
        self.requests += 1;
        let Some((n, call)) = n.and_then(|n| Some((n, self.calls.get_mut(n)?))) else {
            self.unasked += 1;
            return self.wrong("the target got a request that nobody had asked for".to_owned());
        };
        call.requests += 1;
        let (requests, due_at, has_ended) = (call.requests, call.due_at, call.ending.is_some());
        if requests == 1 {
            let late = at.since(due_at);
            self.lateness.add(late);
            self.worst = self.worst.max(late);
            self.done += usize::from(!has_ended);
        }
        if requests == 2 {
            self.twice += 1;
            self.wrong(format!("call {n} was made twice"));
        }
        if at < due_at {
            self.early += 1;
            self.wrong(format!(
                "call {n} was made at {at}, before it was due at {due_at}"
            ));
        }
    }

    /// The service says how the call ended.
    pub(super) fn ended(&mut self, n: usize, ending: Ending) {
        if let Some(call) = self.calls.get_mut(n)
            && call.ending.replace(ending).is_none()
        {
            self.ended += 1;
            self.done += usize::from(call.requests == 0);
        }
    }

    fn wrong(&mut self, what: String) {
        self.first_wrong.get_or_insert(what);
    }

    pub(super) const fn accepted_so_far(&self) -> usize {
        self.accepted
    }

    /// How many requests the target has seen so far.
    pub(super) const fn requests_so_far(&self) -> usize {
        self.requests
    }

    pub(super) const fn done_so_far(&self) -> usize {
        self.done
    }

    pub(super) const fn worst_so_far(&self) -> Duration {
        self.worst
    }

    pub(super) const fn lateness(&self) -> &Lateness {
        &self.lateness
    }

    /// Whether every call has its outcome.
    pub(super) const fn is_complete(&self) -> bool {
        self.ended == self.calls.len()
    }

    /// Adds up.
    pub(super) fn balance(&self) -> Balance {
        let mut balance = Balance {
            calls: self.calls.len(),
            accepted: self.accepted,
            sent_again: self.sent_again,
            requests: self.requests,
            twice: self.twice,
            early: self.early,
            unasked: self.unasked,
            ..Balance::default()
        };
        for (n, call) in self.calls.iter().enumerate() {
            match &call.ending {
                Some(Ending::Succeeded) => balance.succeeded += 1,
                Some(Ending::Failed(kind)) => {
                    *balance.failed.entry(kind.clone()).or_default() += 1;
                }
                None => balance.without_outcome += usize::from(call.is_accepted),
            }
            balance.untrue += usize::from(!call.is_true(n));
        }
        balance
    }

    /// Whether everything came as promised.
    ///
    /// # Errors
    /// With what is wrong, in one sentence.
    pub(super) fn verdict(&self) -> Result<(), Failure> {
        let balance = self.balance();
        if balance.is_good() {
            return Ok(());
        }
        let counts = [
            (balance.calls - balance.accepted, "never accepted"),
            (balance.twice, "made twice"),
            (balance.early, "early"),
            (balance.without_outcome, "without an outcome"),
            (balance.untrue, "with another outcome than the target gave"),
            (balance.unasked, "that nobody had asked for"),
        ];
        let counts: Vec<String> = counts
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        let example = self.first_wrong.clone().or_else(|| self.example());
        Err(Failure::failed(format!(
            "this must not happen ({} calls: {}): {}",
            balance.calls,
            counts.join(", "),
            example.unwrap_or_default()
        )))
    }

    /// A call that did not end as it should.
    fn example(&self) -> Option<String> {
        let mut calls = self.calls.iter().enumerate();
        calls.find_map(|(n, call)| match &call.ending {
            None if !call.is_accepted => Some(format!("call {n} was never accepted")),
            None => Some(format!("call {n}, due at {}, has no outcome", call.due_at)),
            Some(ending) if !call.is_true(n) => {
                let requests = call.requests;
                Some(format!(
                    "call {n} has ended as {ending:?} after {requests} requests"
                ))
            }
            Some(_) => None,
        })
    }
}

/// How a call ended, by its status and the kind of its failure; `None` while it has not.
pub(super) fn ending(status: &str, kind: Option<&str>) -> Option<Ending> {
    match status.parse() {
        Ok(CallStatus::Succeeded) => Some(Ending::Succeeded),
        Ok(CallStatus::Failed) => Some(Ending::Failed(kind.unwrap_or("unknown").to_owned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Books {
        /// Adds a call that was under way at a kill.
        pub(in super::super) fn interrupt_one(&mut self) {
            self.calls.push(Call {
                due_at: at(10),
                is_accepted: true,
                requests: 1,
                ending: Some(failed(ErrorKind::Interrupted)),
            });
        }
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis).unwrap()
    }

    /// Ten calls, the last of which the target does not like: all due at 10.
    fn submitted() -> Books {
        let call = |_| Call {
            due_at: at(10),
            is_accepted: false,
            requests: 0,
            ending: None,
        };
        Books {
            calls: (0..10).map(call).collect(),
            ..Books::default()
        }
    }

    /// The same, accepted and made.
    fn made() -> Books {
        let mut books = submitted();
        for n in 0..10 {
            books.accepted(n);
            books.requested(Some(n), at(12));
        }
        books
    }

    fn failed(kind: ErrorKind) -> Ending {
        Ending::Failed(kind.as_str().to_owned())
    }

    fn done() -> Books {
        let mut books = made();
        for n in 0..9 {
            books.ended(n, Ending::Succeeded);
        }
        books.ended(9, failed(ErrorKind::HttpStatus));
        books
    }

    fn assert_complains(books: &Books, words: &[&str]) {
        let complaint = books.verdict().unwrap_err().to_string();
        for word in words {
            assert!(complaint.contains(word), "{word:?} is not in {complaint:?}");
        }
    }

    #[test]
    fn calls_that_were_made_once_and_have_their_outcome_are_fine() {
        let books = done();
        assert_eq!(books.verdict(), Ok(()));
        assert!(books.is_complete());
        let balance = books.balance();
        assert_eq!((balance.accepted, balance.requests), (10, 10));
        assert_eq!((balance.succeeded, balance.failed["HttpStatus"]), (9, 1));
        assert_eq!(books.lateness().percentiles().unwrap().max, 2);
        assert_eq!(books.done_so_far(), 10);
    }

    #[test]
    fn a_call_without_an_outcome_is_wrong_and_one_that_was_not_accepted_too() {
        let mut books = made();
        assert!(!books.is_complete());
        assert_complains(&books, &["10 without an outcome", "call 0"]);
        books = submitted();
        assert_eq!(books.balance().without_outcome, 0);
        assert_complains(&books, &["10 never accepted", "call 0"]);
    }

    #[test]
    fn a_second_request_is_wrong_and_its_lateness_does_not_count() {
        let mut books = done();
        books.requested(Some(4), at(500));
        books.requested(Some(4), at(500));
        assert_eq!(books.balance().twice, 1, "it is one call");
        assert_eq!(books.worst_so_far(), Duration::from_millis(2));
        assert_complains(&books, &["1 made twice", "call 4"]);
    }

    #[test]
    fn a_request_before_the_due_time_is_early_and_one_of_nobody_is_told() {
        let mut books = done();
        books.calls[0].requests = 0;
        books.requested(Some(0), at(9));
        assert_complains(&books, &["1 early", "call 0", "before it was due"]);
        for n in [None, Some(10)] {
            let mut books = done();
            books.requested(n, at(20));
            assert_complains(&books, &["1 that nobody had asked for"]);
        }
    }

    #[test]
    fn an_outcome_has_to_be_what_the_target_answered() {
        let untrue = |n: usize, requests, ending| {
            let mut books = done();
            books.calls[n].requests = requests;
            books.ended(n, ending);
            books.balance().untrue
        };
        assert_eq!(untrue(0, 0, Ending::Succeeded), 1);
        assert_eq!(untrue(9, 1, Ending::Succeeded), 1);
        assert_eq!(untrue(0, 1, failed(ErrorKind::HttpStatus)), 1);
        assert_eq!(untrue(9, 0, failed(ErrorKind::HttpStatus)), 1);
        for requests in [0, 1] {
            let interrupted = failed(ErrorKind::Interrupted);
            assert_eq!(untrue(0, requests, interrupted), 0, "nobody can know");
        }
    }

    #[test]
    fn a_call_has_ended_when_its_status_says_so() {
        assert_eq!(ending("Scheduled", None), None);
        assert_eq!(ending("Running", None), None);
        assert_eq!(ending("Succeeded", None), Some(Ending::Succeeded));
        let kind = Some("Interrupted");
        assert_eq!(ending("Failed", kind), Some(failed(ErrorKind::Interrupted)));
    }
}
