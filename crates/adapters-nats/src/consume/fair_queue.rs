//! Fair queue of fetched messages, by tenant: a tenant whose handler calls are slow or hang leaves room for
//! the others.
//!
//! A tenant may have a third of the remaining capacity: of the calls of the handler, and of the slots to
//! wait. So a single tenant gets a quarter of all, the next a quarter of the rest, and so on; no tenant
//! gets everything, and a dozen that hang leave room for the next.
//!
//! No I/O, no clock. Times are monotonic.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// Maximum number of concurrent calls of the handler: 64 of a single tenant.
pub(super) const CALLS: usize = 256;

/// Maximum number of waiting messages: 256 of one tenant. A message of more than [`UNIT`]
/// bytes counts as several, so that all of them have at most 16 MiB and one message of each tenant.
const WAITING: usize = 1_024;

const UNIT: usize = 16 << 10;

/// A tenant that needs longer than this for its waiting messages, or completes none within it, is slow: its
/// further messages return to the broker, to make way for those behind them.
const SLOW: Duration = Duration::from_millis(100);

/// Minimum and maximum redelivery delay of a deferred message.
const MIN_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_mins(1);

/// Redelivery delay for a tenant without messages here, if others have left no room.
const NO_ROOM_DELAY: Duration = Duration::from_secs(1);

/// Whether a tenant that holds `held` slots may take another one, while `taken` of `all` are in use.
const fn may_take(held: usize, taken: usize, all: usize) -> bool {
    held < all.saturating_sub(taken).div_ceil(3)
}

fn at_least_one(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX).max(1)
}

/// Whether a message may wait here.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Room {
    Now,
    /// Its tenant makes progress: wait for room.
    Soon,
    /// Its tenant is slow: the broker redelivers it after this delay.
    Later(Duration),
}

/// Waiting messages and calls in flight, by tenant.
pub(super) struct FairQueue<T> {
    tenants: HashMap<String, Tenant<T>>,
    /// Tenants with waiting messages, in the order of their turns.
    turns: VecDeque<String>,
    waiting: usize,
    calls: usize,
    /// When the last call of any tenant ended.
    done_at: Duration,
}

struct Tenant<T> {
    waiting: VecDeque<(usize, T)>,
    held: usize,
    calls: usize,
    /// When its last call ended, or its first message started to wait.
    done_at: Duration,
    /// Average time between the ends of its calls while messages wait.
    pace: Duration,
    /// When the last deferred message is redelivered.
    redelivered_at: Duration,
    /// Number of deferred messages.
    deferred: u32,
}

impl<T> Tenant<T> {
    fn new(now: Duration) -> Self {
        Self {
            waiting: VecDeque::new(),
            held: 0,
            calls: 0,
            done_at: now,
            pace: Duration::ZERO,
            redelivered_at: Duration::ZERO,
            deferred: 0,
        }
    }

    fn length(&self) -> u32 {
        u32::try_from(self.waiting.len()).unwrap_or(u32::MAX)
    }

    /// Records the end of a call. Without waiting messages that does not measure the pace.
    fn done(&mut self, now: Duration) {
        if self.waiting.is_empty() {
            (self.pace, self.redelivered_at) = (Duration::ZERO, Duration::ZERO);
        } else {
            // Averaged over the concurrent calls: those that started together end together.
            let weight = at_least_one(self.calls).max(8);
            let took = now.saturating_sub(self.done_at);
            self.pace = (self.pace * (weight - 1) + took) / weight;
        }
        self.calls -= 1;
        self.done_at = now;
    }

    /// Redelivery delay of one more message: one after the other, at the pace of the tenant. Those beyond the
    /// maximum are spread over its last two thirds. All at once they would delay other tenants: the broker
    /// delivers redeliveries before new messages.
    fn defer(&mut self, now: Duration) -> Duration {
        // Its calls are concurrent: none may have ended yet, and then all end at once.
        let pace = now.saturating_sub(self.done_at) / at_least_one(self.calls);
        let pace = self.pace.max(pace);
        let half = pace.saturating_mul(self.length() / 2);
        let at = (self.redelivered_at + pace).max(now + half);
        self.redelivered_at = at.min(now + MAX_DELAY);
        self.deferred = self.deferred.wrapping_add(1);
        if at < now + MAX_DELAY {
            return at.saturating_sub(now).max(MIN_DELAY);
        }
        // Steps of the golden ratio leave no gaps, however many there are.
        let fraction = f64::from(self.deferred.wrapping_mul(0x9E37_79B9)) / f64::from(u32::MAX);
        MAX_DELAY.mul_f64((1.0 + 2.0 * fraction) / 3.0)
    }
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self {
            tenants: HashMap::new(),
            turns: VecDeque::new(),
            waiting: 0,
            calls: 0,
            done_at: Duration::ZERO,
        }
    }
}

impl<T> FairQueue<T> {
    /// Whether one more message of a tenant may wait here.
    pub(super) fn room(&mut self, tenant: &str, now: Duration) -> Room {
        let taken = self.waiting;
        let Some(tenant) = self.tenants.get_mut(tenant) else {
            let is_stuck = now.saturating_sub(self.done_at) > SLOW;
            return match may_take(0, taken, WAITING) {
                true => Room::Now,
                false if is_stuck => Room::Later(NO_ROOM_DELAY),
                false => Room::Soon,
            };
        };
        if may_take(tenant.held, taken, WAITING) {
            return Room::Now;
        }
        let needs = tenant.pace.saturating_mul(tenant.length());
        if needs > SLOW || now.saturating_sub(tenant.done_at) > SLOW {
            Room::Later(tenant.defer(now))
        } else {
            Room::Soon
        }
    }

    /// Enqueues a message.
    pub(super) fn push(&mut self, name: &str, bytes: usize, message: T, now: Duration) {
        let units = 1 + bytes / UNIT;
        if self.tenants.is_empty() {
            self.done_at = now;
        }
        if !self.tenants.contains_key(name) {
            self.tenants.insert(name.to_owned(), Tenant::new(now));
        }
        let Some(tenant) = self.tenants.get_mut(name) else {
            return;
        };
        if tenant.waiting.is_empty() {
            self.turns.push_back(name.to_owned());
            tenant.done_at = now;
        }
        tenant.waiting.push_back((units, message));
        tenant.held += units;
        self.waiting += units;
    }

    /// The message whose turn it is, with its tenant, for a call that starts now.
    pub(super) fn next(&mut self) -> Option<(String, T)> {
        for _ in 0..self.turns.len() {
            let name = self.turns.pop_front()?;
            let tenant = self.tenants.get_mut(&name)?;
            if !may_take(tenant.calls, self.calls, CALLS) {
                self.turns.push_back(name);
                continue;
            }
            let (units, message) = tenant.waiting.pop_front()?;
            tenant.held -= units;
            self.waiting -= units;
            tenant.calls += 1;
            self.calls += 1;
            if !tenant.waiting.is_empty() {
                self.turns.push_back(name.clone());
            }
            return Some((name, message));
        }
        None
    }

    /// Records the end of a call for a tenant.
    pub(super) fn done(&mut self, name: &str, now: Duration) {
        let Some(tenant) = self.tenants.get_mut(name) else {
            return;
        };
        tenant.done(now);
        self.calls -= 1;
        self.done_at = now;
        if tenant.calls == 0 && tenant.waiting.is_empty() {
            self.tenants.remove(name);
        }
    }

    /// The waiting messages.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &T> {
        let all = self.tenants.values().flat_map(|tenant| &tenant.waiting);
        all.map(|(_, message)| message)
    }

    /// Removes and returns the waiting messages.
    pub(super) fn take_all(&mut self) -> Vec<T> {
        self.turns.clear();
        self.waiting = 0;
        let mut all = Vec::new();
        for tenant in self.tenants.values_mut() {
            tenant.held = 0;
            all.extend(tenant.waiting.drain(..).map(|(_, message)| message));
        }
        self.tenants.retain(|_, tenant| tenant.calls > 0);
        all
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn fill(queue: &mut FairQueue<u64>, tenant: &str, now: Duration) -> usize {
        let mut count = 0;
        while queue.room(tenant, now) == Room::Now {
            queue.push(tenant, 100, 0, now);
            count += 1;
        }
        count
    }

    /// Starts every call that may start.
    fn begin(queue: &mut FairQueue<u64>) -> Vec<String> {
        std::iter::from_fn(|| queue.next().map(|(tenant, _)| tenant)).collect()
    }

    #[test]
    fn a_single_tenant_has_a_quarter_of_the_calls_and_of_the_slots() {
        let mut queue = FairQueue::default();
        assert_eq!(fill(&mut queue, "a", ms(0)), WAITING / 4);
        assert_eq!(begin(&mut queue).len(), CALLS / 4);
    }

    #[test]
    fn a_dozen_tenants_that_hang_leave_calls_and_slots_for_the_next() {
        let mut queue = FairQueue::default();
        for number in 0..12 {
            fill(&mut queue, &format!("hangs-{number}"), ms(0));
            begin(&mut queue);
        }
        assert_eq!(queue.room("next", ms(1)), Room::Now);
        queue.push("next", 100, 7, ms(1));
        assert_eq!(queue.next(), Some(("next".to_owned(), 7)));
        queue.done("next", ms(2));
        assert_eq!(queue.room("next", ms(2)), Room::Now);
    }

    #[test]
    fn tenants_take_turns() {
        let mut queue = FairQueue::default();
        for tenant in ["a", "a", "a", "b", "c"] {
            queue.push(tenant, 0, 0, ms(0));
        }
        assert_eq!(begin(&mut queue), ["a", "b", "c", "a", "a"]);
    }

    #[test]
    fn a_tenant_that_makes_progress_is_waited_for_and_one_that_hangs_is_deferred() {
        let mut queue = FairQueue::default();
        fill(&mut queue, "a", ms(0));
        let calls = begin(&mut queue).len() as u64;
        for call in 0..calls {
            queue.done("a", Duration::from_micros(call * 100));
        }
        fill(&mut queue, "a", ms(7));
        assert_eq!(queue.room("a", ms(8)), Room::Soon);
        assert!(matches!(queue.room("a", ms(1_000)), Room::Later(_)));
    }

    #[test]
    fn deferred_messages_are_redelivered_at_the_pace_of_the_tenant_within_a_minute() {
        let mut queue = FairQueue::default();
        fill(&mut queue, "slow", ms(0));
        let mut now = ms(0);
        for _ in 0..200 {
            begin(&mut queue);
            now += ms(10);
            queue.done("slow", now);
            fill(&mut queue, "slow", now);
        }
        let mut waits = Vec::new();
        for _ in 0..20_000 {
            match queue.room("slow", now) {
                Room::Later(wait) => waits.push(wait),
                room => panic!("{room:?}"),
            }
        }
        assert!(waits[0] > ms(500) && waits[0] < ms(2_000), "{:?}", waits[0]);
        let gap = waits[101].saturating_sub(waits[100]);
        assert!(gap > ms(8) && gap < ms(12), "{gap:?}");
        let (late, later) = (MAX_DELAY / 3, MAX_DELAY);
        let last = &waits[10_000..];
        assert!(last.iter().all(|wait| (late..=later).contains(wait)));
        let spread = |until: u32| {
            last.iter()
                .filter(|wait| **wait < ms(1_000) * until)
                .count()
        };
        assert!((2_400..2_600).contains(&spread(30)), "{}", spread(30));
        assert!((7_400..7_600).contains(&spread(50)), "{}", spread(50));
    }

    /// Handles events of one tenant that are due at once, with a handler that takes `takes`; returns how
    /// long after they were due the last was handled.
    fn handle_all(
        queue: &mut FairQueue<u64>,
        count: usize,
        takes: Duration,
        due: Duration,
    ) -> Duration {
        let mut at_the_broker: BinaryHeap<_> = vec![Reverse(due); count].into();
        let (mut running, mut left, mut now) = (VecDeque::new(), count, due);
        while left > 0 {
            assert!(now < due + MAX_DELAY * 2, "{left} are left");
            // Arriving messages are examined between two calls that end together, too.
            loop {
                while at_the_broker.peek().is_some_and(|at| at.0 <= now) {
                    let room = queue.room("a", now);
                    if room == Room::Soon {
                        break;
                    }
                    at_the_broker.pop();
                    if let Room::Later(wait) = room {
                        at_the_broker.push(Reverse(now + wait));
                    } else {
                        queue.push("a", 100, 0, now);
                    }
                    running.extend(begin(queue).iter().map(|_| now + takes));
                }
                if running.front().is_none_or(|ends| *ends > now) {
                    break;
                }
                running.pop_front();
                queue.done("a", now);
                left -= 1;
                running.extend(begin(queue).iter().map(|_| now + takes));
            }
            now += ms(1);
        }
        now.saturating_sub(due)
    }

    #[test]
    fn a_burst_of_a_tenant_that_makes_progress_takes_about_the_time_of_its_handler() {
        for (count, best) in [(400, ms(1_050)), (5_000, ms(11_850))] {
            let took = handle_all(&mut FairQueue::default(), count, ms(150), ms(0));
            assert!(took >= best && took < best * 3 / 2, "{count}: {took:?}");
        }
    }

    #[test]
    fn neither_an_idle_minute_nor_single_messages_measure_the_pace_of_a_tenant() {
        let mut queue = FairQueue::default();
        queue.push("a", 100, 0, ms(0));
        assert_eq!(begin(&mut queue).len(), 1, "which hangs");
        for second in 1..60 {
            handle_all(&mut queue, 1, ms(150), ms(1_000) * second);
        }
        let took = handle_all(&mut queue, 400, ms(150), ms(120_000));
        assert!(took < ms(1_600), "{took:?}");
    }

    #[test]
    fn a_tenant_whose_calls_all_hang_is_deferred_for_longer_and_longer() {
        let mut queue = FairQueue::default();
        fill(&mut queue, "hangs", ms(0));
        begin(&mut queue);
        fill(&mut queue, "hangs", ms(0));
        let mut wait = |now| match queue.room("hangs", now) {
            Room::Later(wait) => wait,
            room => panic!("{room:?}"),
        };
        assert!((ms(100)..ms(300)).contains(&wait(ms(101))));
        assert!((ms(1_900)..ms(2_200)).contains(&wait(ms(1_000))));
        assert!(wait(ms(60_000)) >= MAX_DELAY / 3);
    }

    #[test]
    fn large_messages_count_as_several() {
        let mut queue = FairQueue::default();
        let mut count = 0;
        while queue.room("a", ms(0)) == Room::Now {
            queue.push("a", 1 << 20, 0, ms(0));
            count += 1;
        }
        assert_eq!(count, 4, "of 65 units each");
    }

    #[test]
    fn waiting_messages_can_be_removed() {
        let mut queue = FairQueue::default();
        queue.push("a", 0, 1, ms(0));
        queue.push("b", 0, 2, ms(0));
        queue.push("b", 0, 3, ms(0));
        assert_eq!(queue.next(), Some(("a".to_owned(), 1)));
        assert_eq!(queue.waiting().count(), 2);
        assert_eq!(queue.take_all(), [2, 3]);
        assert_eq!(queue.next(), None);
        queue.done("a", ms(1));
        assert!(queue.tenants.is_empty());
    }
}
