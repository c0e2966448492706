//! Finding timers and paging through them.

use std::ops::Bound;

use punctual_domain::{
    CorrelationId, ReachedTimer, ScheduledTimer, ServiceCallId, TenantId, TimerEntry, TimerKey,
    Timestamp,
};
use punctual_ports::{
    Backlog, FiredCursor, FiredPage, PageCursor, PortError, TimerPage, TimerPageQuery,
};

use super::state::{Row, State};
use crate::{FIRST, LAST};

impl State {
    pub(super) fn find(&self, key: &TimerKey) -> Option<TimerEntry> {
        self.rows.get(key).map(Row::entry)
    }

    pub(super) fn find_due(
        &self,
        tenant_id: &TenantId,
        now: Timestamp,
        limit: usize,
    ) -> Vec<ScheduledTimer> {
        let first = (tenant_id.clone(), Timestamp::MIN, FIRST);
        let last = (tenant_id.clone(), now, LAST);
        self.by_due
            .range(first..=last)
            .filter_map(|(tenant, _, call)| self.rows.get(&TimerKey::new(tenant.clone(), *call)))
            .filter(|row| row.reached_at.is_none())
            .take(limit)
            .map(|row| row.timer.clone())
            .collect()
    }

    pub(super) fn find_by_correlation(
        &self,
        correlation_id: CorrelationId,
        after: Option<&TimerKey>,
        limit: usize,
    ) -> Vec<TimerEntry> {
        let correlated = self.by_correlation.get(&correlation_id);
        correlated
            .into_iter()
            .flatten()
            .filter(|key| after.is_none_or(|after| *key > after))
            .take(limit)
            .filter_map(|key| self.find(key))
            .collect()
    }

    pub(super) fn page(&self, query: &TimerPageQuery) -> Result<TimerPage, PortError> {
        let after = query.after.as_ref().map(read_cursor).transpose()?;
        let tenant = || query.tenant_id.clone();
        let first = (tenant(), Timestamp::MIN, FIRST);
        let last = (tenant(), Timestamp::MAX, LAST);
        let mut timers: Vec<TimerEntry> = self
            .by_due
            .range(first..=last)
            .filter(|(_, due_at, call)| after.is_none_or(|cursor| (*due_at, *call) > cursor))
            .filter_map(|(_, _, call)| self.find(&TimerKey::new(tenant(), *call)))
            .filter(|entry| query.state.is_none_or(|state| entry.state() == state))
            .take(query.limit.saturating_add(1))
            .collect();
        let more = timers.len() > query.limit;
        timers.truncate(query.limit);
        let next = timers.last().filter(|_| more).map(|last| {
            let timer = last.timer();
            PageCursor::after_due(timer.registration.due_at, timer.key.service_call_id)
        });
        Ok(TimerPage { timers, next })
    }

    pub(super) fn backlog(&self, now: Timestamp, limit: usize) -> Backlog {
        let scheduled = || self.rows.values().filter(|row| row.reached_at.is_none());
        let overdue = scheduled().filter(|row| row.ready_at() <= now);
        Backlog {
            pending: scheduled().take(limit).count(),
            overdue: overdue.take(limit).count(),
        }
    }

    pub(super) fn fired_since(
        &self,
        since: Timestamp,
        after: Option<FiredCursor>,
        limit: usize,
    ) -> FiredPage {
        let after = after.filter(|cursor| cursor.reached_at >= since);
        let after = after.map(|cursor| Bound::Excluded((cursor.reached_at, cursor.key)));
        // There is no least key to begin with, so the first page has to find its beginning.
        let first = || self.reached.iter().find(|(at, _)| *at >= since);
        let from = after.or_else(|| first().cloned().map(Bound::Included));
        let fired = from.map(|from| self.reached.range((from, Bound::Unbounded)));
        let mut timers: Vec<ReachedTimer> = fired
            .into_iter()
            .flatten()
            .filter_map(|(_, key)| self.rows.get(key)?.reached())
            .take(limit.saturating_add(1))
            .collect();
        let more = timers.len() > limit;
        timers.truncate(limit);
        let next = timers.last().filter(|_| more).map(FiredCursor::of);
        FiredPage { timers, next }
    }
}

fn read_cursor(cursor: &PageCursor) -> Result<(Timestamp, ServiceCallId), PortError> {
    let position = cursor.due();
    position.ok_or_else(|| PageCursor::rejection("list timers"))
}
