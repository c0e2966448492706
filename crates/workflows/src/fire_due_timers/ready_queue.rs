//! Claimed timers that wait for a place, tenant by tenant in turn.

use std::collections::{HashMap, VecDeque};

use punctual_domain::{ScheduledTimer, TenantId, Timestamp};

/// A claimed timer that waits to be published.
#[derive(Debug, Clone)]
pub(super) struct ReadyTimer {
    pub(super) timer: ScheduledTimer,
    /// The time by which it was claimed, and so due.
    pub(super) claimed_at: Timestamp,
}

/// Gives each tenant a turn, and a tenant's timers in the order in which they came.
#[derive(Default)]
pub(super) struct ReadyQueue {
    by_tenant: HashMap<TenantId, VecDeque<ReadyTimer>>,
    /// The tenants that have something waiting, the next one first.
    turns: VecDeque<TenantId>,
}

impl ReadyQueue {
    pub(super) fn push(&mut self, ready: ReadyTimer) {
        let tenant = ready.timer.key.tenant_id.clone();
        let waiting = self.by_tenant.entry(tenant.clone()).or_default();
        if waiting.is_empty() {
            self.turns.push_back(tenant);
        }
        waiting.push_back(ready);
    }

    /// The next timer of the next tenant that may have a place.
    pub(super) fn next(&mut self, may: impl Fn(&TenantId) -> bool) -> Option<ReadyTimer> {
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

    /// Takes all out.
    pub(super) fn take_all(&mut self) -> Vec<ReadyTimer> {
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
    use punctual_domain::{CorrelationId, Registration, TimerKey};

    fn ready(tenant: &str, due_at: i64) -> ReadyTimer {
        let due_at = Timestamp::from_millis(due_at).unwrap();
        ReadyTimer {
            timer: ScheduledTimer {
                key: TimerKey::named(TenantId::new(tenant).unwrap(), &due_at.to_string()),
                correlation_id: CorrelationId::from_uuid(uuid::Uuid::nil()),
                registration: Registration {
                    registered_at: Timestamp::MIN,
                    due_at,
                },
                data: None,
            },
            claimed_at: due_at,
        }
    }

    fn order(queue: &mut ReadyQueue, may: impl Fn(&TenantId) -> bool + Copy) -> Vec<String> {
        std::iter::from_fn(|| queue.next(may))
            .map(|r| format!("{}{}", r.timer.key.tenant_id, r.claimed_at.as_millis()))
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
    fn taking_all_leaves_nothing() {
        let mut queue = filled();
        assert_eq!(queue.take_all().len(), 6);
        assert!(queue.next(|_| true).is_none());
        queue.push(ready("a", 1));
        assert!(queue.next(|_| true).is_some());
    }
}
