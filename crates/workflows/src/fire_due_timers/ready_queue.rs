//! Claimed timers that wait for a publish slot, round-robin by tenant.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use punctual_domain::{FiringId, ScheduledTimer, TenantId};

/// A round-robin queue of tenants, with each tenant's timers in first-in, first-out order.
#[derive(Default)]
pub(super) struct ReadyQueue {
    by_tenant: HashMap<TenantId, TenantQueue>,
    /// The tenants with waiting timers, the next one first.
    turns: VecDeque<TenantId>,
}

/// The waiting timers of a tenant, and since when each waits, by the monotonic clock.
#[derive(Default)]
struct TenantQueue {
    waiting: VecDeque<(Duration, ScheduledTimer)>,
    /// When one of them was last dequeued.
    last_turn: Duration,
}

/// How long a tenant waits, by the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wait {
    /// Since when its next timer waits.
    pub(super) since: Duration,
    /// Since when none was dequeued.
    pub(super) stuck_since: Duration,
}

impl ReadyQueue {
    pub(super) fn push(&mut self, timer: ScheduledTimer, since: Duration) {
        let tenant = timer.key.tenant_id.clone();
        let queue = self.by_tenant.entry(tenant.clone()).or_default();
        if queue.waiting.is_empty() {
            self.turns.push_back(tenant);
        }
        queue.waiting.push_back((since, timer));
    }

    /// Whether a tenant has waiting timers.
    pub(super) fn has(&self, tenant: &TenantId) -> bool {
        self.by_tenant.contains_key(tenant)
    }

    /// The tenants with waiting timers, and how long they wait.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (&TenantId, Wait)> {
        self.by_tenant.iter().filter_map(|(tenant, queue)| {
            let (since, _) = *queue.waiting.front()?;
            let stuck_since = since.max(queue.last_turn);
            Some((tenant, Wait { since, stuck_since }))
        })
    }

    /// Dequeues the next timer of the next tenant that may acquire a slot.
    pub(super) fn next(
        &mut self,
        now: Duration,
        may: impl Fn(&TenantId) -> bool,
    ) -> Option<ScheduledTimer> {
        let turn = self.turns.iter().position(may)?;
        let tenant = self.turns.remove(turn)?;
        let queue = self.by_tenant.get_mut(&tenant)?;
        queue.last_turn = now;
        let ready = queue.waiting.pop_front();
        if queue.waiting.is_empty() {
            self.by_tenant.remove(&tenant);
        } else {
            self.turns.push_back(tenant);
        }
        ready.map(|(_, timer)| timer)
    }

    /// Removes one timer.
    pub(super) fn remove(&mut self, firing_id: &FiringId) {
        let tenant = &firing_id.key.tenant_id;
        if let Some(queue) = self.by_tenant.get_mut(tenant) {
            queue
                .waiting
                .retain(|(_, timer)| timer.firing_id() != *firing_id);
            self.remove_if_empty(tenant);
        }
    }

    /// Removes the waiting timers of a tenant after its first `kept`.
    pub(super) fn take_beyond(&mut self, tenant: &TenantId, kept: usize) -> Vec<ScheduledTimer> {
        let Some(queue) = self.by_tenant.get_mut(tenant) else {
            return Vec::new();
        };
        let waiting = &mut queue.waiting;
        let taken = waiting.split_off(waiting.len().min(kept));
        self.remove_if_empty(tenant);
        taken.into_iter().map(|(_, timer)| timer).collect()
    }

    fn remove_if_empty(&mut self, tenant: &TenantId) {
        let queue = self.by_tenant.get(tenant);
        if queue.is_some_and(|queue| queue.waiting.is_empty()) {
            self.turns.retain(|other| other != tenant);
            self.by_tenant.remove(tenant);
        }
    }

    /// Removes all timers.
    pub(super) fn take_all(&mut self) -> Vec<ScheduledTimer> {
        self.turns.clear();
        self.by_tenant
            .drain()
            .flat_map(|(_, queue)| queue.waiting)
            .map(|(_, timer)| timer)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_domain::{CorrelationId, Registration, TimerKey, Timestamp};

    fn ready(tenant: &str, due_at: i64) -> ScheduledTimer {
        let due_at = Timestamp::from_millis(due_at).unwrap();
        ScheduledTimer {
            key: TimerKey::named(TenantId::new(tenant).unwrap(), &due_at.to_string()),
            correlation_id: CorrelationId::from_uuid(uuid::Uuid::nil()),
            registration: Registration {
                registered_at: Timestamp::MIN,
                due_at,
            },
            data: None,
        }
    }

    fn order(queue: &mut ReadyQueue, may: impl Fn(&TenantId) -> bool + Copy) -> Vec<String> {
        std::iter::from_fn(|| queue.next(Duration::ZERO, may))
            .map(|t| format!("{}{}", t.key.tenant_id, t.registration.due_at.as_millis()))
            .collect()
    }

    fn filled() -> ReadyQueue {
        let mut queue = ReadyQueue::default();
        for (tenant, due_at) in [("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 5), ("b", 6)] {
            queue.push(ready(tenant, due_at), Duration::ZERO);
        }
        queue
    }

    #[test]
    fn tenants_take_turns_and_keep_their_own_order() {
        let mut queue = filled();
        assert_eq!(
            order(&mut queue, |_| true),
            ["a1", "b4", "c5", "a2", "b6", "a3"]
        );
        assert!(queue.turns.is_empty() && queue.by_tenant.is_empty());
    }

    #[test]
    fn a_tenant_without_a_slot_is_skipped_and_keeps_its_turn() {
        let mut queue = filled();
        assert_eq!(order(&mut queue, |t| t.as_str() != "a"), ["b4", "c5", "b6"]);
        assert_eq!(order(&mut queue, |_| true), ["a1", "a2", "a3"]);
    }

    #[test]
    fn a_removed_timer_is_not_dequeued() {
        let mut queue = filled();
        queue.remove(&ready("a", 2).firing_id());
        queue.remove(&ready("c", 5).firing_id());
        queue.remove(&ready("d", 9).firing_id());
        assert_eq!(order(&mut queue, |_| true), ["a1", "b4", "a3", "b6"]);
    }

    #[test]
    fn a_tenant_is_stuck_since_its_last_turn() {
        let (early, late) = (Duration::from_secs(1), Duration::from_secs(2));
        let mut queue = ReadyQueue::default();
        for due_at in 1..=3 {
            queue.push(ready("a", due_at), early);
        }
        let wait = |queue: &ReadyQueue| queue.waiting().map(|(_, wait)| wait).next();
        let expected = |stuck_since| Wait {
            since: early,
            stuck_since,
        };
        assert_eq!(wait(&queue), Some(expected(early)));
        queue.next(late, |_| true);
        assert_eq!(wait(&queue), Some(expected(late)));
    }

    #[test]
    fn the_timers_after_the_first_few_of_a_tenant_can_be_removed() {
        let mut queue = filled();
        let taken = queue.take_beyond(&TenantId::new("a").unwrap(), 1);
        let dues: Vec<_> = taken.iter().map(|t| t.registration.due_at).collect();
        assert_eq!(dues.len(), 2);
        assert!(dues.is_sorted());
        assert_eq!(queue.take_beyond(&TenantId::new("c").unwrap(), 0).len(), 1);
        assert!(!queue.has(&TenantId::new("c").unwrap()));
        assert_eq!(order(&mut queue, |_| true), ["a1", "b4", "b6"]);
    }

    #[test]
    fn removing_all_leaves_nothing() {
        let mut queue = filled();
        assert_eq!(queue.take_all().len(), 6);
        assert!(queue.next(Duration::ZERO, |_| true).is_none());
        queue.push(ready("a", 1), Duration::ZERO);
        assert!(queue.next(Duration::ZERO, |_| true).is_some());
    }
}
