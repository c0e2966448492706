//! Claimed timers that wait for a place, tenant by tenant in turn.

use std::collections::{HashMap, VecDeque};

use punctual_domain::{FiringId, ScheduledTimer, TenantId};

/// Gives each tenant a turn, and a tenant's timers in the order in which they came.
#[derive(Default)]
pub(super) struct ReadyQueue {
    by_tenant: HashMap<TenantId, VecDeque<ScheduledTimer>>,
    /// The tenants that have something waiting, the next one first.
    turns: VecDeque<TenantId>,
}

impl ReadyQueue {
    pub(super) fn push(&mut self, timer: ScheduledTimer) {
        let tenant = timer.key.tenant_id.clone();
        let waiting = self.by_tenant.entry(tenant.clone()).or_default();
        if waiting.is_empty() {
            self.turns.push_back(tenant);
        }
        waiting.push_back(timer);
    }

    /// The next timer of the next tenant that may have a place.
    pub(super) fn next(&mut self, may: impl Fn(&TenantId) -> bool) -> Option<ScheduledTimer> {
        let turn = self.turns.iter().position(may)?;
        let tenant = self.turns.remove(turn)?;
        let waiting = self.by_tenant.get_mut(&tenant)?;
        let ready = waiting.pop_front();
        if waiting.is_empty() {
            self.by_tenant.remove(&tenant);
        } else {
            self.turns.push_back(tenant);
        }
        ready
    }

    /// Takes one out that will not have its turn.
    pub(super) fn remove(&mut self, firing_id: &FiringId) {
        let tenant = &firing_id.key.tenant_id;
        let Some(waiting) = self.by_tenant.get_mut(tenant) else {
            return;
        };
        waiting.retain(|timer| timer.firing_id() != *firing_id);
        if waiting.is_empty() {
            self.turns.retain(|other| other != tenant);
            self.by_tenant.remove(tenant);
        }
    }

    /// Takes all out.
    pub(super) fn take_all(&mut self) -> Vec<ScheduledTimer> {
        self.turns.clear();
        self.by_tenant
            .drain()
            .flat_map(|(_, waiting)| waiting)
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
        std::iter::from_fn(|| queue.next(may))
            .map(|t| format!("{}{}", t.key.tenant_id, t.registration.due_at.as_millis()))
            .collect()
    }

    fn filled() -> ReadyQueue {
        let mut queue = ReadyQueue::default();
        for (tenant, due_at) in [("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 5), ("b", 6)] {
            queue.push(ready(tenant, due_at));
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
    fn a_tenant_that_may_not_is_passed_over_and_keeps_its_turn() {
        let mut queue = filled();
        assert_eq!(order(&mut queue, |t| t.as_str() != "a"), ["b4", "c5", "b6"]);
        assert_eq!(order(&mut queue, |_| true), ["a1", "a2", "a3"]);
    }

    #[test]
    fn what_is_removed_has_no_turn() {
        let mut queue = filled();
        queue.remove(&ready("a", 2).firing_id());
        queue.remove(&ready("c", 5).firing_id());
        queue.remove(&ready("d", 9).firing_id());
        assert_eq!(order(&mut queue, |_| true), ["a1", "b4", "a3", "b6"]);
    }

    #[test]
    fn taking_all_leaves_nothing() {
        let mut queue = filled();
        assert_eq!(queue.take_all().len(), 6);
        assert!(queue.next(|_| true).is_none());
        queue.push(ready("a", 1));
        assert!(queue.next(|_| true).is_some());
    }
}
