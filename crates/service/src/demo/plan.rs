//! Which timers or calls there will be, when each is due, and when the worker is killed.
//!
//! Everything follows from the flags and one instant, so that a run can be told in advance and
//! nothing has to be drawn.

use std::time::Duration;

use punctual_domain::{TenantId, TimerKey, Timestamp};

use super::args::DemoArgs;
use crate::failure::Failure;

/// What another process stores is noticed within a second; what is due sooner would be late for a
/// reason that the demo is not about.
const NOTICED_WITHIN: Duration = Duration::from_millis(1_500);

/// How many timers a slow disk stores in a second. They are stored in the order in which they are
/// due, so this matters only if they are due faster than that.
const STORED_PER_SECOND: u64 = 10_000;

/// How long before its due time a call is submitted: longer than the service is away after a kill,
/// since what comes too late for its due time would be late for a reason that the demo is not about.
const SUBMITTED_BEFORE: Duration = Duration::from_millis(1_500);

/// How many calls a slow disk accepts in a second.
const ACCEPTED_PER_SECOND: u64 = 200;

const FEWEST_KILLS: u32 = 3;
const MOST_KILLS: u32 = 100;
const SECONDS_PER_KILL: u32 = 2;

/// How long the worker stays dead at most: long enough for some timers to come due meanwhile.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// The timers or calls of a run.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    timers: u32,
    tenants: Vec<TenantId>,
    span: Duration,
    start: Timestamp,
    /// From the start until the first one is due.
    lead: Duration,
}

impl Plan {
    /// What to do from `now` on.
    pub(super) fn new(args: &DemoArgs, now: Timestamp) -> Result<Self, Failure> {
        let tenants = (1..=args.tenants).map(|n| TenantId::new(&format!("demo-{n}")));
        let tenants = tenants.collect::<Result<_, _>>();
        let tenants = tenants.map_err(|error| Failure::failed(error.to_string()))?;
        let span = Duration::from_secs(u64::from(args.seconds));
        let (least, per_second) = match args.calls {
            None => (NOTICED_WITHIN, STORED_PER_SECOND),
            Some(_) => (SUBMITTED_BEFORE, ACCEPTED_PER_SECOND),
        };
        let storing = Duration::from_millis(u64::from(args.number()) * 1_000 / per_second);
        Ok(Self {
            timers: args.number(),
            tenants,
            span,
            start: now,
            lead: least + storing.saturating_sub(span),
        })
    }

    /// The same, from another instant on.
    pub(super) fn starting_at(self, start: Timestamp) -> Self {
        Self { start, ..self }
    }

    pub(super) const fn timers(&self) -> u32 {
        self.timers
    }

    pub(super) fn first_due(&self) -> Timestamp {
        self.start.saturating_add(self.lead)
    }

    /// How long after the start the last one is due, at the latest.
    pub(super) fn length(&self) -> Duration {
        self.lead + self.span
    }

    /// Whose it is. Tenants take turns.
    pub(super) fn tenant(&self, n: u32) -> &TenantId {
        &self.tenants[n as usize % self.tenants.len()]
    }

    /// The timer's key.
    pub(super) fn key(&self, n: u32) -> TimerKey {
        TimerKey::named(self.tenant(n).clone(), &name(n))
    }

    /// When a call is submitted: each as long before its due time as the others.
    pub(super) fn asked_at(&self, n: u32) -> Timestamp {
        self.start.saturating_add(self.span * n / self.timers)
    }

    /// When it is due: one after the other, in equal steps.
    pub(super) fn due_at(&self, n: u32) -> Timestamp {
        self.asked_at(n).saturating_add(self.lead)
    }

    /// How many come due after `from`, up to and including `to`.
    pub(super) fn due_between(&self, from: Timestamp, to: Timestamp) -> u32 {
        self.due_until(to) - self.due_until(from).min(self.due_until(to))
    }

    fn due_until(&self, instant: Timestamp) -> u32 {
        let (mut due, mut not_due) = (0, self.timers);
        while due < not_due {
            let middle = due + (not_due - due) / 2;
            if self.due_at(middle) <= instant {
                due = middle + 1;
            } else {
                not_due = middle;
            }
        }
        due
    }

    /// After how many firings to kill the worker, each time. Counted in firings and not in seconds,
    /// so that each kill comes right after one, mostly before the worker has marked it.
    pub(super) fn kills(&self) -> Vec<u32> {
        let seconds = u32::try_from(self.span.as_secs()).unwrap_or(u32::MAX);
        let count = (seconds / SECONDS_PER_KILL).saturating_sub(1);
        let count = count.clamp(FEWEST_KILLS, MOST_KILLS);
        let after = |k: u32| u64::from(self.timers) * u64::from(k) / u64::from(count + 1);
        let mut kills: Vec<u32> = (1..=count)
            .filter_map(|k| u32::try_from(after(k)).ok())
            .collect();
        kills.dedup();
        kills
    }

    /// How long the worker stays dead after a kill.
    pub(super) fn pause(&self) -> Duration {
        (self.span / 40).min(LONGEST_PAUSE)
    }
}

/// By what name a timer can be found again.
pub(super) fn name(n: u32) -> String {
    format!("timer-{n}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Output;

    fn plan(timers: u32, seconds: u32, tenants: u32) -> Plan {
        let args = DemoArgs {
            timers,
            calls: None,
            seconds,
            tenants,
            kill: true,
            keep: false,
            output: Output::Json,
        };
        Plan::new(&args, Timestamp::MIN).unwrap()
    }

    #[test]
    fn timers_are_due_in_equal_steps_and_take_turns_of_tenants() {
        let plan = plan(1_000, 10, 10);
        let step = Duration::from_millis(10);
        assert_eq!(plan.due_at(0), plan.first_due());
        assert_eq!(plan.due_at(7).since(plan.due_at(6)), step);
        assert_eq!(plan.due_at(999).since(plan.first_due()) + step, plan.span);
        assert_eq!(plan.key(3).tenant_id.as_str(), "demo-4");
        assert_eq!(plan.key(3).tenant_id, plan.key(13).tenant_id);
        assert_ne!(plan.key(3), plan.key(13));
    }

    #[test]
    fn the_first_one_waits_for_what_cannot_be_stored_in_time() {
        let lead = |plan: Plan| plan.first_due().since(Timestamp::MIN);
        assert_eq!(lead(plan(1_000, 10, 1)), NOTICED_WITHIN);
        assert_eq!(lead(plan(1_000_000, 3_600, 1)), NOTICED_WITHIN);
        assert_eq!(
            lead(plan(1_000_000, 10, 1)),
            NOTICED_WITHIN + Duration::from_secs(90)
        );
    }

    #[test]
    fn calls_are_submitted_before_they_are_due_and_earlier_if_there_are_many() {
        let calls = |calls, seconds| {
            let args = DemoArgs {
                timers: 1,
                calls: Some(calls),
                seconds,
                tenants: 1,
                kill: false,
                keep: false,
                output: Output::Json,
            };
            Plan::new(&args, Timestamp::MIN).unwrap()
        };
        let plan = calls(200, 10);
        assert_eq!(plan.timers(), 200);
        for n in [0, 1, 199] {
            assert_eq!(plan.due_at(n).since(plan.asked_at(n)), SUBMITTED_BEFORE);
        }
        let many = calls(2_000, 1);
        let lead = many.due_at(7).since(many.asked_at(7));
        assert_eq!(lead, SUBMITTED_BEFORE + Duration::from_secs(9));
    }

    #[test]
    fn those_due_in_a_while_are_counted() {
        let plan = plan(1_000, 10, 1);
        let at = |millis| {
            plan.first_due()
                .saturating_add(Duration::from_millis(millis))
        };
        assert_eq!(plan.due_between(at(0), at(100)), 10);
        assert_eq!(plan.due_between(at(9), at(11)), 1);
        assert_eq!(plan.due_between(Timestamp::MIN, at(0)), 1);
        assert_eq!(plan.due_between(at(20_000), at(30_000)), 0);
        assert_eq!(
            plan.due_between(at(100), at(0)),
            0,
            "the clock was set back"
        );
        assert_eq!(plan.due_between(Timestamp::MIN, Timestamp::MAX), 1_000);
    }

    #[test]
    fn kills_come_in_the_middle_of_firing_and_at_most_once_a_firing() {
        assert_eq!(plan(1_000, 10, 1).kills(), [200, 400, 600, 800]);
        assert_eq!(plan(200, 1, 1).kills(), [50, 100, 150]);
        assert_eq!(plan(1, 1, 1).kills(), [0], "before the only one");
        assert_eq!(plan(2, 10, 1).kills(), [0, 1]);
        assert_eq!(plan(1_000_000, 3_600, 1).kills().len(), 100);
        assert_eq!(plan(1_000, 10, 1).pause(), LONGEST_PAUSE);
        assert_eq!(plan(1_000, 1, 1).pause(), Duration::from_millis(25));
    }
}
