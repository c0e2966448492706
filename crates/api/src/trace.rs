//! Traces: the life of one request, for holders of a token of all tenants.

use std::sync::Arc;

use axum::http::StatusCode;
use punctual_domain::{CorrelationId, TimerEntry, TimerKey};
use punctual_ports::{PageCursor, PortError, TimerPersistencePort};
use punctual_workflows::calls::{Trace, TraceStep};

use crate::calls::{DEFAULT_LIMIT, read_limit};
use crate::problem::Problem;
use crate::request_context::{HandlerResult, RequestContext, json};
use crate::router::Api;
use crate::views::TraceView;

pub(crate) async fn show(api: Arc<Api>, mut context: RequestContext) -> HandlerResult {
    let correlation_id = context.path::<CorrelationId>("correlationId");
    let limit = context.query("limit", read_limit).unwrap_or(DEFAULT_LIMIT);
    let after = context.query("cursor", |text| {
        let key = PageCursor(text.to_owned()).key();
        key.ok_or("is none that an earlier page gave")
    });
    let correlation_id = context.checked(correlation_id)?;
    let is_first = after.is_none();
    let trace = match (&api.parts.calls, &api.parts.timers) {
        (Some(calls), _) => calls.read.trace(correlation_id, after, limit).await?,
        (None, Some(timers)) => {
            of_timers(timers.timers.as_ref(), correlation_id, after, limit).await?
        }
        (None, None) => return Err(Problem::not_found()),
    };
    // What was left of a request may be deleted before its next page is requested.
    if is_first && trace.calls.is_empty() && trace.timers.is_empty() {
        return Err(Problem::not_found());
    }
    json(StatusCode::OK, &TraceView::from(trace))
}

/// The trace of timers on their own, which have no messages: what is known of them is in their rows.
async fn of_timers(
    store: &dyn TimerPersistencePort,
    correlation_id: CorrelationId,
    after: Option<TimerKey>,
    limit: usize,
) -> Result<Trace, PortError> {
    let mut timers = store
        .find_by_correlation(correlation_id, after, limit + 1)
        .await?;
    let has_more = timers.len() > limit;
    timers.truncate(limit);
    let last = timers.last().map(|timer| timer.timer().key.clone());
    Ok(Trace {
        correlation_id,
        calls: Vec::new(),
        steps: steps(&timers),
        next: last.filter(|_| has_more),
        timers,
    })
}

fn steps(timers: &[TimerEntry]) -> Vec<TraceStep> {
    let mut steps = Vec::new();
    for timer in timers {
        let scheduled = timer.timer();
        let registered_at = scheduled.registration.registered_at;
        let happened = [
            (Some(registered_at), "ScheduleTimer"),
            (timer.reached_at(), "DueTimeReached"),
        ];
        for (at, what) in happened {
            steps.extend(at.map(|at| TraceStep {
                at,
                key: scheduled.key.clone(),
                what,
                message_id: None,
                causation_id: None,
                published_at: None,
            }));
        }
    }
    steps.sort_by_key(|step| step.at);
    steps
}
