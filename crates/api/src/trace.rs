//! The life of one request, for whoever may see all tenants.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Response, StatusCode};
use punctual_domain::{CorrelationId, TimerEntry};
use punctual_workflows::calls::{Trace, TraceStep};

use crate::ask::{Ask, json};
use crate::problem::Problem;
use crate::router::Api;
use crate::views::Traced;

/// So many timers of one request are shown.
const MOST: usize = 100;

pub(crate) async fn show(api: Arc<Api>, mut ask: Ask) -> Result<Response<Body>, Problem> {
    let correlation_id = ask.path::<CorrelationId>("correlationId");
    let correlation_id = ask.checked(correlation_id)?;
    let trace = match (&api.parts.calls, &api.parts.timers) {
        (Some(calls), _) => calls.read.trace(correlation_id).await?,
        (None, Some(timers)) => {
            let timers = timers.timers.find_by_correlation(correlation_id, MOST);
            of_timers(correlation_id, timers.await?)
        }
        (None, None) => return Err(Problem::not_found()),
    };
    if trace.calls.is_empty() && trace.timers.is_empty() {
        return Err(Problem::not_found());
    }
    json(StatusCode::OK, &Traced::from(trace))
}

/// Timers on their own have no messages: what is known of them is in their rows.
fn of_timers(correlation_id: CorrelationId, timers: Vec<TimerEntry>) -> Trace {
    let mut steps = Vec::new();
    for timer in &timers {
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
    Trace {
        correlation_id,
        calls: Vec::new(),
        timers,
        steps,
    }
}
