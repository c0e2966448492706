//! Removing a timer that has not fired.

use punctual_domain::{ServiceCallId, TenantId, TimerEntry};
use punctual_ports::DeleteOutcome;
use serde::Serialize;

use super::output::Answers;
use super::{Session, described, key, only};
use crate::cli::CancelArgs;
use crate::failure::Failure;
use crate::settings::Environment;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Cancelled<'a> {
    tenant_id: &'a TenantId,
    service_call_id: ServiceCallId,
    outcome: &'static str,
}

impl Cancelled<'_> {
    fn table(&self) -> String {
        let tenant = self.tenant_id.as_str();
        let width = tenant.len().max("TENANT".len());
        let id = self.service_call_id;
        format!(
            "{:width$}  {:36}  OUTCOME\n{tenant:width$}  {id}  {}\n",
            "TENANT", "SERVICE CALL ID", self.outcome
        )
    }
}

/// Removes a timer; one that fires or has fired is left alone, and that is a failure.
pub(crate) async fn run(args: CancelArgs, environment: &Environment<'_>) -> Result<(), Failure> {
    let (key, name) = key(args.key)?;
    // Nothing is cancelled if that cannot be reported.
    let mut answers = Answers::open_for_changes()?;
    let session = Session::open_timers(&args.answer.database, environment).await?;
    let timer = described(&key, name.as_deref());
    let has_fired = format!("{timer} has fired already and cannot be cancelled");
    if session.is_of_calls() {
        let found = session.stores.persistence.find(key.clone()).await;
        session.close().await;
        return Err(Failure::failed(match found? {
            None => format!("there is no {timer}"),
            Some(TimerEntry::Reached { .. }) => has_fired,
            Some(TimerEntry::Scheduled { .. }) => format!(
                "{timer} belongs to a service call: delete the call, with DELETE /api/tenants/{}/service-calls/{}",
                key.tenant_id, key.service_call_id
            ),
        }));
    }
    let done = session.timers().cancel(vec![key.clone()]).await;
    session.close().await;
    match only(done?)? {
        DeleteOutcome::Deleted => {
            let cancelled = Cancelled {
                tenant_id: &key.tenant_id,
                service_call_id: key.service_call_id,
                outcome: "deleted",
            };
            answers.show(args.answer.output, &cancelled, || cancelled.table())
        }
        DeleteOutcome::NotFound => Err(Failure::failed(format!("there is no {timer}"))),
        DeleteOutcome::Firing => Err(Failure::failed(format!(
            "{timer} is firing, or due so soon that it may be: it cannot be cancelled any more"
        ))),
        DeleteOutcome::AlreadyReached => Err(Failure::failed(has_fired)),
        other => Err(Failure::failed(format!(
            "{timer} was not cancelled: the store answered {other:?}"
        ))),
    }
}
