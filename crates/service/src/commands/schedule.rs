//! Scheduling one timer, or handing over to the batch.

use std::time::Duration;

use punctual_adapters_system::UuidIds;
use punctual_domain::{ServiceCallId, TenantId, TimerKey, Timestamp};
use punctual_ports::{ClockPort, IdPort, SaveOutcome};
use punctual_workflows::TimerRequest;

use super::output::Answers;
use super::{Session, batch, clock, described, only};
use crate::cli::{Output, ScheduleArgs};
use crate::failure::Failure;
use crate::settings::Environment;

/// Schedules what the flags or a batch say.
pub(crate) async fn run(args: ScheduleArgs, environment: &Environment<'_>) -> Result<(), Failure> {
    // The arguments are checked before the database is opened, which may create it.
    let clock = clock()?;
    let (database, replaces) = (args.answer.database.clone(), args.replace);
    if let Some(source) = &args.batch {
        let source = batch::Source::open(source)?;
        let session = Session::open_or_create(clock, &database, environment).await?;
        let done = batch::schedule_all(&session, source, replaces).await;
        session.close().await;
        return done;
    }
    let (output, name) = (args.answer.output, args.timer.name.clone());
    let request = request(args, clock.now())?;
    let session = Session::open_or_create(clock, &database, environment).await?;
    let done = schedule_one(&session, request, name.as_deref(), replaces, output).await;
    if done.is_ok() {
        session.say_if_unserved();
    }
    session.close().await;
    done
}

async fn schedule_one(
    session: &Session,
    request: TimerRequest,
    name: Option<&str>,
    replaces: bool,
    output: Output,
) -> Result<(), Failure> {
    // Nothing is stored if that cannot be reported.
    let mut answers = Answers::open_for_changes()?;
    let key = request.key.clone();
    let timer = described(&key, name);
    let timers = session.timers();
    let saved = if replaces {
        timers.replace(vec![request]).await
    } else {
        timers.schedule(vec![request]).await
    };
    if let Some(refusal) = refusal(only(saved?)?, &timer) {
        return Err(Failure::failed(refusal));
    }
    match session.stores.persistence.find(key).await? {
        Some(timer) => answers.timer(output, &timer),
        None => Err(Failure::failed(format!(
            "{timer} was scheduled, and has been removed since"
        ))),
    }
}

/// The request of the flags, which the command line has checked for completeness.
fn request(args: ScheduleArgs, now: Timestamp) -> Result<TimerRequest, Failure> {
    let Some(tenant) = args.tenant else {
        return Err(Failure::usage("whose timer: give --tenant"));
    };
    Ok(TimerRequest {
        key: key_or_new(tenant, args.timer.id, args.timer.name.as_deref()),
        due_at: due_at(args.timer.due, args.timer.after, now)?,
        correlation_id: args.timer.correlation,
        data: args.timer.data,
    })
}

/// When a timer is due, by `--due` or `--in`.
pub(super) fn due_at(
    due: Option<Timestamp>,
    after: Option<Duration>,
    now: Timestamp,
) -> Result<Timestamp, Failure> {
    match (due, after) {
        (Some(due), _) => Ok(due),
        (None, Some(after)) => now
            .checked_add(after)
            .ok_or_else(|| Failure::usage("--in is too long: no timer is due after the year 9998")),
        (None, None) => Err(Failure::usage("when is it due: give --due or --in")),
    }
}

/// The key that `--id` or `--name` gives, or a new one.
pub(super) fn key_or_new(
    tenant: TenantId,
    id: Option<ServiceCallId>,
    name: Option<&str>,
) -> TimerKey {
    match (id, name) {
        (Some(id), _) => TimerKey::new(tenant, id),
        (None, Some(name)) => TimerKey::named(tenant, name),
        (None, None) => TimerKey::new(tenant, ServiceCallId::from_uuid(UuidIds.next_id())),
    }
}

/// Why an outcome is no success; `None` if it is one.
pub(super) fn refusal(outcome: SaveOutcome, timer: &str) -> Option<String> {
    match outcome {
        SaveOutcome::Created | SaveOutcome::Rescheduled | SaveOutcome::Unchanged => None,
        SaveOutcome::AlreadyReached => Some(format!(
            "{timer} has fired already: give --replace to let it fire again"
        )),
        other => Some(format!(
            "{timer} was not scheduled: the store answered {other:?}"
        )),
    }
}
