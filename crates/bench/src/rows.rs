//! The timers that are measured with: many tenants, random due times, ids in the order of time.

use std::time::Duration;

use punctual_adapters_system::UuidIds;
use punctual_domain::{ServiceCallId, TenantId, TimerKey, Timestamp};
use punctual_ports::IdPort;
use punctual_workflows::TimerRequest;
use uuid::Uuid;

use crate::Outcome;

/// Nothing that is not due becomes due while the benchmark runs.
const SOONEST: Duration = Duration::from_hours(2);
const LATEST: Duration = Duration::from_hours(30 * 24);
/// What is overdue became due within this time.
const BACKLOG: Duration = Duration::from_hours(1);

/// Small, fast and the same in every run (SplitMix64).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`. Its bias is far below anything that is measured here.
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    fn duration_up_to(&mut self, longest: Duration) -> Duration {
        let millis = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.below(millis))
    }
}

/// A number of tenants, named by UUIDs: the longest names that are common.
pub(crate) fn tenants(count: usize) -> Outcome<Vec<TenantId>> {
    let mut random = Random::new(42);
    let names = (0..count).map(|_| Uuid::from_u64_pair(random.next(), random.next()).to_string());
    Ok(names
        .map(|name| TenantId::new(&name))
        .collect::<Result<_, _>>()?)
}

/// Makes timers of random tenants.
pub(crate) struct Rows {
    tenants: Vec<TenantId>,
    random: Random,
    now: Timestamp,
}

impl Rows {
    pub(crate) fn new(tenants: Vec<TenantId>, seed: u64, now: Timestamp) -> Self {
        Self {
            tenants,
            random: Random::new(seed),
            now,
        }
    }

    /// A timer that stays pending.
    pub(crate) fn pending(&mut self) -> TimerRequest {
        let ahead = SOONEST + self.random.duration_up_to(LATEST);
        let due_at = self.now.saturating_add(ahead);
        TimerRequest::at(self.key(), due_at)
    }

    /// A timer that is due already.
    pub(crate) fn overdue(&mut self) -> TimerRequest {
        let ago = self.random.duration_up_to(BACKLOG);
        let due_at = self.now.saturating_sub(ago);
        TimerRequest::at(self.key(), due_at)
    }

    /// A timer that is due in a moment: at random between these two from now on.
    pub(crate) fn soon(&mut self, now: Timestamp, between: (Duration, Duration)) -> TimerRequest {
        let random = self
            .random
            .duration_up_to(between.1.saturating_sub(between.0));
        TimerRequest::at(self.key(), now.saturating_add(between.0 + random))
    }

    pub(crate) fn many_pending(&mut self, count: usize) -> Vec<TimerRequest> {
        (0..count).map(|_| self.pending()).collect()
    }

    fn key(&mut self) -> TimerKey {
        let place = self.random.below(self.tenants.len() as u64);
        let place = usize::try_from(place).unwrap_or(0);
        let id = ServiceCallId::from_uuid(UuidIds.next_id());
        TimerKey::new(self.tenants[place].clone(), id)
    }
}
