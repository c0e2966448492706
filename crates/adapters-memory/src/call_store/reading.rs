//! Finding calls and paging through them.

use punctual_domain::service_call::ServiceCall;
use punctual_domain::{CorrelationId, ServiceCallId, TenantId, TimerKey, Timestamp};
use punctual_ports::{CallPage, CallPageQuery, PageCursor, PortError, StoredCall, StuckCalls};

use super::calls::Calls;
use crate::{FIRST, LAST};

impl Calls {
    pub(super) fn page(&self, query: &CallPageQuery) -> Result<CallPage, PortError> {
        let after = query.after.as_ref().map(read_cursor).transpose()?;
        let tenant = || query.tenant_id.clone();
        let first = (tenant(), Timestamp::MIN, FIRST);
        let last = (tenant(), Timestamp::MAX, LAST);
        let mut calls: Vec<ServiceCall> = self
            .by_due
            .range(first..=last)
            .rev()
            .filter(|(_, due_at, id)| after.is_none_or(|cursor| (*due_at, *id) < cursor))
            .filter_map(|(_, _, id)| self.rows.get(&TimerKey::new(tenant(), *id)))
            .map(|stored| &stored.call)
            .filter(|call| is_wanted(query, call))
            .take(query.limit.saturating_add(1))
            .cloned()
            .collect();
        let more = calls.len() > query.limit;
        calls.truncate(query.limit);
        let next = calls.last().filter(|_| more).map(|last| {
            let details = last.details();
            PageCursor::after_due(details.due_at, details.key.service_call_id)
        });
        Ok(CallPage { calls, next })
    }

    pub(super) fn find_by_correlation(
        &self,
        correlation_id: CorrelationId,
        after: Option<&TimerKey>,
        limit: usize,
    ) -> Vec<ServiceCall> {
        let first = TimerKey::new(least_tenant(), FIRST);
        self.by_correlation
            .range((correlation_id, first)..)
            .take_while(|(id, _)| *id == correlation_id)
            .filter(|(_, key)| after.is_none_or(|after| key > after))
            .filter_map(|(_, key)| self.rows.get(key))
            .take(limit)
            .map(|stored| stored.call.clone())
            .collect()
    }

    pub(super) fn find_stuck(&self, as_of: Timestamp, limit: usize) -> StuckCalls {
        let due = self.to_check.iter().take_while(|(at, _)| *at <= as_of);
        let calls: Vec<StoredCall> = due
            .filter_map(|(_, key)| self.find(key))
            .take(limit)
            .collect();
        let later = (as_of.next(), TimerKey::new(least_tenant(), FIRST));
        let mut next = self.to_check.range(later..);
        StuckCalls {
            as_of,
            calls,
            next: next.next().map(|(at, _)| *at).filter(|at| *at > as_of),
        }
    }
}

/// No tenant id sorts before the shortest one of the least allowed character.
fn least_tenant() -> TenantId {
    TenantId::new("-").unwrap_or_default()
}

fn is_wanted(query: &CallPageQuery, call: &ServiceCall) -> bool {
    let details = call.details();
    query.status.is_none_or(|status| call.status() == status)
        && query.tags.iter().all(|tag| details.tags.contains(tag))
        && query.from.is_none_or(|from| details.due_at >= from)
        && query.to.is_none_or(|to| details.due_at < to)
}

pub(super) fn read_cursor(cursor: &PageCursor) -> Result<(Timestamp, ServiceCallId), PortError> {
    let position = cursor.due();
    position.ok_or_else(|| PageCursor::rejection("list service calls"))
}
