//! The plan of a run: which timers or calls there are, when each is due, and when the worker is killed.
//!
//! Everything follows from the flags and one instant, so that a run is known in advance and nothing
//! has to be drawn.

use std::collections::VecDeque;
use std::time::Duration;

use punctual_domain::{TenantId, TimerKey, Timestamp};

use crate::Failure;
use crate::args::DemoArgs;

/// The lead of a timer or call before its due time. Timers that another process stores are noticed
/// within a second, and a killed worker is away for less than that: what is due sooner would be late
/// for a reason that the demo is not about.
const LEAD: Duration = Duration::from_millis(1_500);
/// How many timers a slow disk stores in a second. They are stored in the order in which they are
/// due, so this matters only if they are due faster than that.
const STORED_PER_SECOND: u64 = 10_000;
/// How many calls a slow disk accepts in a second.
const ACCEPTED_PER_SECOND: u64 = 200;

const MIN_KILLS: u32 = 3;
const MAX_KILLS: u32 = 100;
const SECONDS_PER_KILL: u32 = 2;
/// Maximum time that the worker stays dead: long enough for some to come due meanwhile.
const MAX_DOWNTIME: Duration = Duration::from_millis(250);

/// What a run consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Script {
    /// Timers, which the worker fires to its standard output.
    Timers,
    /// Service calls, which are submitted over HTTP and made to this process.
    Calls,
}

impl Script {
    /// The name of one of them.
    pub(crate) const fn unit(self) -> &'static str {
        match self {
            Self::Timers => "timer",
            Self::Calls => "call",
        }
    }

    pub(crate) const fn database(self) -> &'static str {
        match self {
            Self::Timers => "timer.db",
            Self::Calls => "calls.db",
        }
    }
}

/// The timers or calls of a run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) script: Script,
    /// Number of timers or calls.
    pub(crate) count: u32,
    tenants: Vec<TenantId>,
    span: Duration,
    /// When the first one is stored or submitted.
    pub(crate) start: Timestamp,
    /// From the start until the first one is due.
    lead: Duration,
    /// After how many firings or requests to kill the worker, each time. Counted in them and not in
    /// seconds, so that each kill comes right after one, mostly before the worker has recorded it.
    pub(crate) kills: VecDeque<u32>,
}

impl Plan {
    pub(crate) fn new(args: &DemoArgs, start: Timestamp) -> Result<Self, Failure> {
        let tenants = (1..=args.tenants).map(|n| TenantId::new(&format!("demo-{n}")));
        let tenants = tenants.collect::<Result<_, _>>();
        let tenants = tenants.map_err(|error| Failure::Failed(error.to_string()))?;
        let span = Duration::from_secs(u64::from(args.seconds));
        let per_second = match args.script() {
            Script::Timers => STORED_PER_SECOND,
            Script::Calls => ACCEPTED_PER_SECOND,
        };
        let storing = Duration::from_millis(u64::from(args.count()) * 1_000 / per_second);
        Ok(Self {
            script: args.script(),
            count: args.count(),
            tenants,
            span,
            start,
            lead: LEAD + storing.saturating_sub(span),
            kills: if args.kill {
                kills(args)
            } else {
                VecDeque::new()
            },
        })
    }

    /// How long after the start the last one is due, at the latest.
    pub(crate) fn length(&self) -> Duration {
        self.lead + self.span
    }

    /// The tenant of the `n`-th. Tenants take turns.
    pub(crate) fn tenant(&self, n: u32) -> &TenantId {
        &self.tenants[n as usize % self.tenants.len()]
    }

    pub(crate) fn key(&self, n: u32) -> TimerKey {
        TimerKey::named(self.tenant(n).clone(), &format!("timer-{n}"))
    }

    /// When a call is submitted: each as long before its due time as the others.
    pub(crate) fn submit_at(&self, n: u32) -> Timestamp {
        self.start.saturating_add(self.span * n / self.count)
    }

    /// When it is due: one after the other, in equal steps.
    pub(crate) fn due_at(&self, n: u32) -> Timestamp {
        self.submit_at(n).saturating_add(self.lead)
    }

    /// How many come due after `from`, up to and including `to`.
    pub(crate) fn due_between(&self, from: Timestamp, to: Timestamp) -> usize {
        let due = (0..self.count).map(|n| self.due_at(n));
        due.filter(|due_at| from < *due_at && *due_at <= to).count()
    }

    /// How long the worker stays dead after a kill.
    pub(crate) fn downtime(&self) -> Duration {
        (self.span / 40).min(MAX_DOWNTIME)
    }
}

/// In equal steps, and at most once for each.
fn kills(args: &DemoArgs) -> VecDeque<u32> {
    let kills = (args.seconds / SECONDS_PER_KILL).saturating_sub(1);
    let kills = kills.clamp(MIN_KILLS, MAX_KILLS);
    let after = |k: u32| u64::from(args.count()) * u64::from(k) / u64::from(kills + 1);
    let mut after: Vec<u32> = (1..=kills)
        .filter_map(|k| after(k).try_into().ok())
        .collect();
    after.dedup();
    after.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::tests::args;

    fn plan(line: &str) -> Plan {
        Plan::new(&args(line), Timestamp::MIN).unwrap()
    }

    #[test]
    fn timers_are_due_in_equal_steps_and_take_turns_of_tenants() {
        let plan = plan("--timers 1000 --seconds 10 --tenants 10");
        let step = Duration::from_millis(10);
        assert_eq!(plan.due_at(7).since(plan.due_at(6)), step);
        assert_eq!(plan.due_at(999).since(plan.due_at(0)) + step, plan.span);
        assert_eq!(plan.key(3).tenant_id.as_str(), "demo-4");
        assert_eq!(plan.key(3).tenant_id, plan.key(13).tenant_id);
        assert_ne!(plan.key(3), plan.key(13));
    }

    #[test]
    fn the_first_one_waits_for_what_cannot_be_stored_in_time() {
        let lead = |line| plan(line).due_at(0).since(Timestamp::MIN);
        assert_eq!(lead("--timers 1000 --seconds 10"), LEAD);
        assert_eq!(lead("--timers 1000000 --seconds 3600"), LEAD);
        let many = lead("--timers 1000000 --seconds 10");
        assert_eq!(many, LEAD + Duration::from_secs(90));
    }

    #[test]
    fn calls_are_submitted_before_they_are_due_and_earlier_if_there_are_many() {
        let plan_of_few = plan("--calls 200 --seconds 10");
        let lead = |plan: &Plan, n| plan.due_at(n).since(plan.submit_at(n));
        assert_eq!(plan_of_few.count, 200);
        for n in [0, 1, 199] {
            assert_eq!(lead(&plan_of_few, n), LEAD);
        }
        let many = plan("--calls 2000 --seconds 1");
        assert_eq!(lead(&many, 7), LEAD + Duration::from_secs(9));
    }

    #[test]
    fn those_due_in_a_while_are_counted() {
        let plan = plan("--timers 1000 --seconds 10");
        let first = plan.due_at(0);
        let at = |millis| first.saturating_add(Duration::from_millis(millis));
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
        let kills = |line: &str| plan(&format!("{line} --kill")).kills;
        assert_eq!(kills("--seconds 10"), [200, 400, 600, 800]);
        assert_eq!(kills("--timers 200 --seconds 1"), [50, 100, 150]);
        assert_eq!(kills("--timers 1 --seconds 1"), [0], "before the only one");
        assert_eq!(kills("--timers 2"), [0, 1]);
        assert_eq!(kills("--timers 1000000 --seconds 3600").len(), 100);
        assert!(plan("--seconds 10").kills.is_empty());
        assert_eq!(plan("--seconds 10").downtime(), MAX_DOWNTIME);
        assert_eq!(plan("--seconds 1").downtime(), Duration::from_millis(25));
    }
}
