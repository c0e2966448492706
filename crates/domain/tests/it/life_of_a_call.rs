//! Every transition of a call: its next state, its messages and their causes.

use std::time::Duration;

use punctual_domain::service_call::call::{
    CallDetails, CallStatus, CallStep, Check, GRACE, OVERDUE, Outgoing, RunningCall, ScheduledCall,
    ServiceCall, Start, UNHEARD,
};
use punctual_domain::service_call::{
    ErrorKind, ErrorMeta, FinishedCall, Outcome, ResponseMeta, Submission, UnknownFields,
};
use punctual_domain::{
    CorrelationId, EnvelopeId, Message, ServiceCallId, TenantId, TimerKey, Timestamp,
};
use serde_json::json;
use uuid::Uuid;

const MS: Duration = Duration::from_millis(1);
const TIMEOUT: Duration = Duration::from_secs(10);

fn envelope_id(n: u128) -> EnvelopeId {
    EnvelopeId::from_uuid(Uuid::from_u128(n))
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1_000).unwrap()
}

const COMMAND: u128 = 1;
const DUE: u128 = 2;
const EXECUTION: u128 = 3;
const RESULT: u128 = 4;

/// Submitted at 100 s, due at 200 s, with a secret in its request.
fn details() -> CallDetails {
    let json = json!({
        "name": "remind", "dueAt": "1970-01-01T00:03:20Z", "tags": ["x"],
        "requestSpec": {"method": "POST", "url": "https://example.com/a?token=canary",
            "headers": {"Authorization": "canary"}, "body": "canary"},
    });
    let read = Submission::read(TenantId::default(), &json, UnknownFields::Refused).unwrap();
    CallDetails {
        key: TimerKey::new(
            TenantId::default(),
            ServiceCallId::from_uuid(Uuid::from_u128(7)),
        ),
        correlation_id: CorrelationId::from_uuid(Uuid::from_u128(8)),
        command_id: envelope_id(COMMAND),
        name: read.name,
        tags: read.tags,
        submitted_at: at(100),
        due_at: read.due_at,
        request: read.request,
    }
}

fn scheduled() -> ScheduledCall {
    ScheduledCall { details: details() }
}

fn start(reached_at: Timestamp) -> Start {
    Start {
        reached_at,
        now: at(201),
        execution_id: envelope_id(EXECUTION),
        caused_by: envelope_id(DUE),
        timeout: TIMEOUT,
    }
}

fn running() -> RunningCall {
    match scheduled().start(start(at(200))).unwrap().call {
        ServiceCall::Running(running) => running,
        other => panic!("a started call is not {other:?}"),
    }
}

fn succeeded() -> Outcome {
    Outcome::Succeeded(ResponseMeta {
        status: 200,
        headers: Vec::new(),
        body_snippet: None,
        truncated: false,
        latency_ms: 5,
    })
}

fn failed() -> Outcome {
    Outcome::Failed(ErrorMeta::new(ErrorKind::HttpStatus, "the target said no"))
}

fn published(step: &CallStep) -> Vec<(&'static str, EnvelopeId, Option<EnvelopeId>)> {
    let shown = |out: &Outgoing| (out.message.type_name(), out.caused_by, out.id);
    step.outgoing.iter().map(shown).collect()
}

fn finished(step: CallStep) -> FinishedCall {
    match step.call {
        ServiceCall::Finished(finished) => finished,
        other => panic!("a finished call is not {other:?}"),
    }
}

/// Every message names the call and its tenant.
fn all_name_the_call(step: &CallStep) {
    for out in &step.outgoing {
        let message = &out.message;
        let key = TimerKey::new(message.tenant_id().clone(), message.service_call_id());
        assert_eq!(key, step.call.details().key);
    }
}

#[test]
fn a_submitted_call_is_scheduled_and_its_timer_is_caused_by_the_command() {
    let step = details().schedule();
    assert_eq!(step.call, ServiceCall::Scheduled(scheduled()));
    assert_eq!(step.call.status(), CallStatus::Scheduled);
    let command = envelope_id(COMMAND);
    assert_eq!(
        published(&step),
        [
            ("ServiceCallSubmitted", command, None),
            ("ScheduleTimer", command, None),
            ("ServiceCallScheduled", command, None),
        ]
    );
    all_name_the_call(&step);
    let Message::ServiceCallSubmitted(submitted) = &step.outgoing[0].message else {
        panic!("the submission is published first");
    };
    assert_eq!(
        (submitted.submitted_at, &submitted.name),
        (at(100), &details().name)
    );
    let shown = serde_json::to_string(&submitted.request_spec).unwrap();
    assert!(!shown.contains("canary"), "{shown}");
    let Message::ScheduleTimer(timer) = &step.outgoing[1].message else {
        panic!("then the timer is requested");
    };
    assert_eq!((timer.due_at, &timer.data), (at(200), &None));
}

#[test]
fn a_call_that_is_due_when_it_is_submitted_starts_at_once_without_a_timer() {
    let (command, execution) = (envelope_id(COMMAND), envelope_id(EXECUTION));
    let accepted = |submitted_at| {
        let details = CallDetails {
            submitted_at,
            ..details()
        };
        details.accept(execution, TIMEOUT)
    };
    let waiting = accepted(at(200).saturating_sub(MS));
    assert_eq!(waiting.call.status(), CallStatus::Scheduled, "never early");
    assert_eq!(published(&waiting)[1].0, "ScheduleTimer");
    for submitted_at in [at(200), at(200).saturating_add(MS), at(10_000)] {
        let step = accepted(submitted_at);
        assert_eq!(
            published(&step),
            [
                ("ServiceCallSubmitted", command, None),
                ("ServiceCallScheduled", command, None),
                ("ServiceCallRunning", command, None),
                ("StartExecution", command, Some(execution)),
            ]
        );
        all_name_the_call(&step);
        let limit = submitted_at.saturating_add(UNHEARD);
        assert_eq!(step.call.next_check_at(), Some(limit));
        let ServiceCall::Running(call) = step.call else {
            panic!("it is running");
        };
        assert_eq!(call.details.submitted_at, submitted_at);
        let (started_at, cause) = (call.started_at, call.caused_by);
        assert_eq!((started_at, cause), (submitted_at, command));
        assert_eq!((call.timeout, call.dispatch_count), (TIMEOUT, 1));
        assert_eq!(call.attempt_started_at, None);
    }
}

#[test]
fn a_call_starts_at_its_due_time_and_not_a_millisecond_before() {
    let early = at(200).saturating_sub(MS);
    let refused = scheduled().start(start(early)).unwrap_err();
    assert_eq!((refused.due_at, refused.reached_at), (at(200), early));
    for reached_at in [at(200), at(200).saturating_add(MS), at(10_000)] {
        assert!(scheduled().start(start(reached_at)).is_ok());
    }
    // By what the event says and never by the clock here, which may go before or after.
    let slow_clock = Start {
        now: at(1),
        ..start(at(200))
    };
    assert!(scheduled().start(slow_clock).is_ok());
    let fast_clock = Start {
        now: at(9_999),
        ..start(early)
    };
    assert!(scheduled().start(fast_clock).is_err());
}

#[test]
fn a_started_call_is_published_and_its_attempt_is_dispatched_under_its_own_id() {
    let step = scheduled().start(start(at(200))).unwrap();
    assert_eq!(step.call.status(), CallStatus::Running);
    let (due, execution) = (envelope_id(DUE), envelope_id(EXECUTION));
    assert_eq!(
        published(&step),
        [
            ("ServiceCallRunning", due, None),
            ("StartExecution", due, Some(execution)),
        ]
    );
    all_name_the_call(&step);
    let Message::StartExecution(command) = &step.outgoing[1].message else {
        panic!("then the attempt is requested");
    };
    assert_eq!(
        command.request_spec,
        details().request,
        "with all that it needs"
    );
    assert_eq!(command.timeout(), TIMEOUT);
    let running = running();
    assert_eq!((running.started_at, running.dispatch_count), (at(201), 1));
    assert_eq!(running.attempt_started_at, None);
}

#[test]
fn a_deletion_is_published_with_its_command_as_the_cause() {
    let out = scheduled().deletion(at(150), envelope_id(9));
    assert_eq!((out.id, out.caused_by), (None, envelope_id(9)));
    let Message::ServiceCallDeleted(event) = out.message else {
        panic!("a deletion is published as a deletion");
    };
    assert_eq!((event.key(), event.deleted_at), (details().key, at(150)));
}

#[test]
fn an_overdue_call_is_started_after_a_minute_and_not_before() {
    let call = || ServiceCall::Scheduled(scheduled());
    let limit = at(200).saturating_add(OVERDUE);
    assert_eq!(OVERDUE, Duration::from_mins(1));
    assert_eq!(call().next_check_at(), Some(limit));
    assert_eq!(
        call().check(limit.saturating_sub(MS)),
        Check::Wait(Some(limit))
    );
    for now in [limit, limit.saturating_add(MS)] {
        assert_eq!(call().check(now), Check::Start(scheduled()));
    }
}

#[test]
fn an_unreported_attempt_is_dispatched_again_under_the_same_id() {
    let call = || ServiceCall::Running(running());
    let limit = at(201).saturating_add(UNHEARD);
    assert_eq!(UNHEARD, Duration::from_mins(1));
    assert_eq!(call().next_check_at(), Some(limit));
    assert_eq!(
        call().check(limit.saturating_sub(MS)),
        Check::Wait(Some(limit))
    );
    for now in [limit, limit.saturating_add(MS)] {
        assert_eq!(call().check(now), Check::Redispatch(running()));
    }
    let step = running().redispatch(limit);
    let (due, execution) = (envelope_id(DUE), envelope_id(EXECUTION));
    assert_eq!(published(&step), [("StartExecution", due, Some(execution))]);
    let first = scheduled()
        .start(start(at(200)))
        .unwrap()
        .outgoing
        .remove(1);
    assert_eq!(step.outgoing[0], first, "the very same command");
    assert_eq!(step.call.status(), CallStatus::Running);
}

#[test]
fn asking_again_becomes_rarer_up_to_once_an_hour() {
    let mut call = running();
    let mut waits = Vec::new();
    for _ in 0..70 {
        let dispatched_at = call.dispatched_at;
        let next_check_at = ServiceCall::Running(call.clone()).next_check_at().unwrap();
        waits.push(next_check_at.since(dispatched_at).as_secs());
        call = match call.redispatch(next_check_at).call {
            ServiceCall::Running(running) => running,
            other => panic!("asking does not make it {other:?}"),
        };
    }
    assert_eq!(
        waits[..8],
        [60, 120, 240, 480, 960, 1_920, 3_600, 3_600],
        "{waits:?}"
    );
    assert!(waits[8..].iter().all(|wait| *wait == 3_600));
    call.dispatch_count = u32::MAX;
    assert!(
        matches!(call.redispatch(at(1)).call, ServiceCall::Running(it) if it.dispatch_count == u32::MAX)
    );
}

#[test]
fn a_call_whose_command_cannot_be_delivered_has_failed_unless_it_was() {
    let id = running().execution_id;
    let step = running().undeliverable(id, "too long", at(300)).unwrap();
    assert_eq!(step.call.status(), CallStatus::Failed);
    assert_eq!(step.outgoing[0].caused_by, id);
    let ServiceCall::Finished(call) = step.call else {
        panic!("it is not over");
    };
    let Outcome::Failed(error) = call.outcome() else {
        panic!("it has not failed");
    };
    assert_eq!(error.kind, ErrorKind::InvalidRequest);
    assert!(error.message.as_ref().unwrap().ends_with("too long"));
    assert!(
        running()
            .undeliverable(envelope_id(99), "no", at(300))
            .is_err()
    );
    let began = running().attempt_started(at(250));
    assert!(began.undeliverable(id, "no", at(300)).is_err());
}

#[test]
fn the_deadline_begins_with_the_attempt_and_hearing_of_it_twice_moves_nothing() {
    let began = running().attempt_started(at(500));
    assert_eq!(began.clone().attempt_started(at(600)), began);
    assert_eq!(GRACE, Duration::from_secs(30));
    let limit = at(500).saturating_add(TIMEOUT + GRACE);
    let call = || ServiceCall::Running(began.clone());
    assert_eq!(call().next_check_at(), Some(limit));
    assert_eq!(
        call().check(limit.saturating_sub(MS)),
        Check::Wait(Some(limit))
    );
    for now in [limit, limit.saturating_add(MS)] {
        assert_eq!(call().check(now), Check::Redispatch(began.clone()));
    }
}

#[test]
fn a_call_fails_only_after_its_command_was_dispatched_once_more() {
    let began = running().attempt_started(at(500));
    let deadline = at(500).saturating_add(TIMEOUT + GRACE);
    // However late it is by then.
    for dispatched_at in [deadline, deadline.saturating_add(Duration::from_hours(5))] {
        let step = began.clone().redispatch(dispatched_at);
        let execution = envelope_id(EXECUTION);
        let due = envelope_id(DUE);
        assert_eq!(published(&step), [("StartExecution", due, Some(execution))]);
        let ServiceCall::Running(requested) = step.call else {
            panic!("asking ends nothing");
        };
        let call = || ServiceCall::Running(requested.clone());
        let limit = dispatched_at.saturating_add(GRACE);
        assert_eq!(call().next_check_at(), Some(limit));
        assert_eq!(
            call().check(limit.saturating_sub(MS)),
            Check::Wait(Some(limit))
        );
        assert_eq!(call().check(limit), Check::GiveUp(requested.clone()));
    }
}

#[test]
fn a_call_without_a_result_in_time_has_failed_by_timeout_because_of_its_attempt() {
    let step = running().attempt_started(at(500)).give_up(at(540));
    let execution = envelope_id(EXECUTION);
    assert_eq!(published(&step), [("ServiceCallFailed", execution, None)]);
    all_name_the_call(&step);
    assert_eq!(step.call.status(), CallStatus::Failed);
    let finished = finished(step);
    assert_eq!(finished.finished_at(), at(540));
    let Outcome::Failed(error) = finished.outcome() else {
        panic!("it has failed");
    };
    assert_eq!(error.kind, ErrorKind::Timeout);
    assert!(
        error.message.as_ref().unwrap().contains("40 s"),
        "{error:?}"
    );
}

#[test]
fn a_result_ends_a_call_because_of_the_message_that_brought_it() {
    for (outcome, status, message) in [
        (succeeded(), CallStatus::Succeeded, "ServiceCallSucceeded"),
        (failed(), CallStatus::Failed, "ServiceCallFailed"),
    ] {
        let result = envelope_id(RESULT);
        // Also if the beginning of the attempt was never heard of.
        for running in [running(), running().attempt_started(at(202))] {
            let step = running.finish(outcome.clone(), at(205), result);
            assert_eq!(published(&step), [(message, result, None)]);
            all_name_the_call(&step);
            assert_eq!(step.call.status(), status);
            let finished = finished(step);
            assert_eq!(finished.outcome(), &outcome);
            assert_eq!(finished.started_at(), Some(at(201)));
            assert_eq!(finished.finished_at(), at(205));
        }
    }
}

#[test]
fn a_finished_call_is_left_alone_for_ever_and_keeps_no_secret() {
    for outcome in [succeeded(), failed()] {
        let step = running().finish(outcome, at(205), envelope_id(RESULT));
        assert_eq!(step.call.next_check_at(), None);
        assert_eq!(step.call.clone().check(Timestamp::MAX), Check::Wait(None));
        let kept = serde_json::to_string(&step.call.details().request).unwrap();
        assert!(!kept.contains("canary"), "{kept}");
        let sent = format!("{:?}", step.outgoing);
        assert!(!sent.contains("canary"), "{sent}");
    }
}

#[test]
fn instants_at_the_end_of_time_do_not_overflow() {
    let mut call = running();
    call.dispatched_at = Timestamp::MAX;
    assert_eq!(
        ServiceCall::Running(call.clone()).next_check_at(),
        Some(Timestamp::MAX)
    );
    call.timeout = Duration::MAX;
    let began = call.attempt_started(Timestamp::MAX);
    assert_eq!(
        ServiceCall::Running(began).next_check_at(),
        Some(Timestamp::MAX)
    );
}

#[test]
fn a_status_is_read_as_it_is_written() {
    for status in CallStatus::ALL {
        assert_eq!(status.to_string().parse(), Ok(status));
        let json = serde_json::to_string(&status).unwrap();
        assert_eq!(json, format!("\"{status}\""));
    }
    let error = "running".parse::<CallStatus>().unwrap_err();
    assert!(error.to_string().contains("Scheduled, Running"), "{error}");
}
