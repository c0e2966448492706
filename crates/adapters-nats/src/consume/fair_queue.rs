//! Messages that were fetched and wait for the handler, by tenant: whoever's handlers are slow, or
//! hang, leaves room for the others.
//!
//! A tenant may have a third of what is left: of the calls of the handler, and of the places to
//! wait. So one alone gets a quarter of all, the next a quarter of the rest, and so on; nobody gets
//! everything, and a dozen who hang leave room for the next.
//!
//! Nothing of this waits or reads a clock. Times are monotonic.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// Maximum number of calls of the handler at once: 64 of one tenant, if it is alone.
pub(super) const CALLS: usize = 256;

/// Maximum number of messages that wait here: 256 of one tenant. A message of more than [`UNIT`]
/// bytes counts as several, so that all of them have at most 16 MiB and one message of each tenant.
const WAITING: usize = 1_024;

const UNIT: usize = 16 << 10;

/// Who needs longer than this for what waits here, or gets nothing done for so long, has no more
/// wait here: it goes back to the broker, and the messages behind it are looked at.
const SLOW: Duration = Duration::from_millis(100);

/// How soon, and how late, a message that went back to the broker comes again.
const SHORTEST_RETURN: Duration = Duration::from_millis(100);
const LONGEST_RETURN: Duration = Duration::from_mins(1);

/// The same for a tenant that has nothing here, and for which others have left no place.
const WITHOUT_A_PLACE: Duration = Duration::from_secs(1);

/// Whether one more may have a place, who has so many, while so many of all are taken.
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
    /// Its tenant gets on: it is worth waiting for.
    Soon,
    /// Its tenant is slow: the broker keeps it meanwhile.
    Later(Duration),
}

/// What waits, and who has how many calls.
pub(super) struct FairQueue<T> {
    tenants: HashMap<String, Tenant<T>>,
    /// Those with something that waits, by whose turn it is.
    turns: VecDeque<String>,
    waiting: usize,
    calls: usize,
    /// When a call ended, of whomever.
    done_at: Duration,
}

struct Tenant<T> {
    waiting: VecDeque<(usize, T)>,
    held: usize,
    calls: usize,
    /// When its last call ended, or when something of it began to wait.
    done_at: Duration,
    /// How much time there is between the ends of its calls while something of it waits.
    pace: Duration,
    /// When the last message that was put off comes again.
    returns_at: Duration,
    /// How many were put off.
    put_off: u32,
}

impl<T> Tenant<T> {
    fn new(now: Duration) -> Self {
        Self {
            waiting: VecDeque::new(),
            held: 0,
            calls: 0,
            done_at: now,
            pace: Duration::ZERO,
            returns_at: Duration::ZERO,
            put_off: 0,
        }
    }

    fn length(&self) -> u32 {
        u32::try_from(self.waiting.len()).unwrap_or(u32::MAX)
    }

    /// A call has ended. As long as nothing waits that tells nothing of how fast it gets on.
    fn done(&mut self, now: Duration) {
        if self.waiting.is_empty() {
            (self.pace, self.returns_at) = (Duration::ZERO, Duration::ZERO);
        } else {
            // Over as many as run at once: those that began together end together.
            let weight = at_least_one(self.calls).max(8);
            let took = now.saturating_sub(self.done_at);
            self.pace = (self.pace * (weight - 1) + took) / weight;
        }
        self.calls -= 1;
        self.done_at = now;
    }

    /// When one more is to come again: one after the other, as fast as they are handled. Those for
    /// which that would be too late are spread over the last two thirds of the longest time. All at
    /// once they would hold up others: the broker delivers what comes again before what is new.
    fn put_off(&mut self, now: Duration) -> Duration {
        // Its calls run beside each other: none may have ended yet, and then all of them end at once.
        let pace = now.saturating_sub(self.done_at) / at_least_one(self.calls);
        let pace = self.pace.max(pace);
        let half = pace.saturating_mul(self.length() / 2);
        let at = (self.returns_at + pace).max(now + half);
        self.returns_at = at.min(now + LONGEST_RETURN);
        self.put_off = self.put_off.wrapping_add(1);
        if at < now + LONGEST_RETURN {
            return at.saturating_sub(now).max(SHORTEST_RETURN);
        }
        // Steps of the golden ratio leave no gaps, however many there are.
        let fraction = f64::from(self.put_off.wrapping_mul(0x9E37_79B9)) / f64::from(u32::MAX);
        LONGEST_RETURN.mul_f64((1.0 + 2.0 * fraction) / 3.0)
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
                false if is_stuck => Room::Later(WITHOUT_A_PLACE),
                false => Room::Soon,
            };
        };
        if may_take(tenant.held, taken, WAITING) {
            return Room::Now;
        }
        let needs = tenant.pace.saturating_mul(tenant.length());
        if needs > SLOW || now.saturating_sub(tenant.done_at) > SLOW {
            Room::Later(tenant.put_off(now))
        } else {
            Room::Soon
        }
    }

    /// Lets a message wait for its turn.
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

    /// The message whose turn it is, with its tenant, for a call that begins now.
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

    /// A call for a tenant has ended.
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

    /// Everything that waits.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &T> {
        let all = self.tenants.values().flat_map(|tenant| &tenant.waiting);
        all.map(|(_, message)| message)
    }

    /// Takes out everything that waits.
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

    /// Lets every call begin that may.
    fn begin(queue: &mut FairQueue<u64>) -> Vec<String> {
        std::iter::from_fn(|| queue.next().map(|(tenant, _)| tenant)).collect()
    }

    #[test]
    fn one_tenant_alone_has_a_quarter_of_the_calls_and_of_the_places() {
        let mut queue = FairQueue::default();
        assert_eq!(fill(&mut queue, "a", ms(0)), WAITING / 4);
        assert_eq!(begin(&mut queue).len(), CALLS / 4);
    }

    #[test]
    fn a_dozen_tenants_that_hang_leave_calls_and_places_for_the_next() {
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
    fn who_gets_on_is_waited_for_and_who_hangs_is_put_off() {
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
    fn what_is_put_off_comes_again_as_fast_as_it_is_handled_and_after_a_minute_at_the_latest() {
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
        let (late, later) = (LONGEST_RETURN / 3, LONGEST_RETURN);
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

    /// Handles events of one tenant that are due at once, with a handler that takes so long; answers
    /// how long after they were due the last was handled.
    fn handle_all(
        queue: &mut FairQueue<u64>,
        count: usize,
        takes: Duration,
        due: Duration,
    ) -> Duration {
        let mut at_the_broker: BinaryHeap<_> = vec![Reverse(due); count].into();
        let (mut running, mut left, mut now) = (VecDeque::new(), count, due);
        while left > 0 {
            assert!(now < due + LONGEST_RETURN * 2, "{left} are left");
            // What comes meanwhile is looked at between two calls that end together, too.
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
    fn a_burst_of_a_tenant_that_gets_on_is_handled_in_about_the_time_its_handler_needs() {
        for (count, best) in [(400, ms(1_050)), (5_000, ms(11_850))] {
            let took = handle_all(&mut FairQueue::default(), count, ms(150), ms(0));
            assert!(took >= best && took < best * 3 / 2, "{count}: {took:?}");
        }
    }

    #[test]
    fn neither_an_idle_minute_nor_what_came_one_by_one_tells_how_fast_a_tenant_gets_on() {
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
    fn who_hangs_with_all_calls_is_put_off_for_longer_and_longer() {
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
        assert!(wait(ms(60_000)) >= LONGEST_RETURN / 3);
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
    fn what_waits_can_be_taken_out() {
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
