//! A call from its submission to its end, when everything works but the target, perhaps.

use std::sync::atomic::Ordering;
use std::time::Duration;

use punctual_adapters_memory::faults::Fault;
use punctual_domain::messages::{DeleteServiceCall, SubmitServiceCall};
use punctual_domain::service_call::{CallName, CallStatus, ErrorKind, Outcome, ServiceCall};
use punctual_domain::{EnvelopeId, Message, MessageEnvelope, MessageMetadata, TimerKey};
use punctual_ports::{EventBusPort, PublishOutcome, SubmitOutcome, TimerPersistencePort};
use punctual_workflows::calls::DeleteCallOutcome;
use uuid::Uuid;

use super::http::Behaviour;
use super::world::{CallWorld, call, call_to};
use crate::world::{key, key_of, ms, secs};

const TIMEOUT: Duration = Duration::from_secs(30);

async fn delete(world: &CallWorld, key: &TimerKey) -> DeleteCallOutcome {
    let deleted = world.process.submit.delete(key.clone(), None).await;
    deleted.unwrap()
}

#[tokio::test]
async fn a_call_is_made_once_at_its_due_time_and_not_a_millisecond_before_or_after() {
    let world = CallWorld::with_rare_polls().await;
    let due_at = world.in_(secs(10));
    world.submit(call("a", due_at)).await;
    world.advance_to(due_at.saturating_sub(ms(1))).await;
    assert_eq!(world.status(&key("a")).await, Some(CallStatus::Scheduled));
    assert!(world.outside.http.requests().is_empty(), "never early");
    world.advance(ms(1)).await;
    let requests = world.outside.http.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].at, due_at, "and nobody waited for a poll");
    assert_eq!(requests[0].attempt.key, key("a"));
    let sent = &requests[0].attempt.request;
    assert_eq!(sent.headers.get("authorization"), Some("canary"));
    let Some(ServiceCall::Finished(finished)) = world.find(&key("a")).await else {
        panic!("the call has finished");
    };
    assert_eq!(finished.started_at(), Some(due_at));
    assert_eq!(finished.finished_at(), due_at);
    let Outcome::Succeeded(response) = finished.outcome() else {
        panic!("the call has succeeded");
    };
    assert_eq!((response.status, response.latency_ms), (200, 0));
    assert_eq!(response.body_snippet.as_deref(), Some("hello"));
    world.advance(Duration::from_hours(24)).await;
    assert_eq!(world.outside.http.requests().len(), 1, "and never again");
}

#[tokio::test]
async fn a_call_that_is_named_by_its_url_is_named_without_its_secrets() {
    let world = CallWorld::new().await;
    let url = "https://target.example/hook?code=url-canary&page=2";
    let mut asked = call("a", world.now());
    asked.request.url = url.parse().unwrap();
    asked.name = CallName::new(format!("POST {url}")).unwrap();
    world.submit(asked.clone()).await;
    let repeated = world.try_submit(asked).await;
    assert!(
        matches!(repeated, SubmitOutcome::Repeated(_)),
        "{repeated:?}"
    );
    world.settle().await;
    let call = world.find(&key("a")).await.unwrap();
    let name = call.details().name.as_str();
    assert_eq!(
        name,
        "POST https://target.example/hook?code=[redacted]&page=2"
    );
    for passed in world.outside.wire.of_type("ServiceCallSubmitted") {
        let Message::ServiceCallSubmitted(event) = passed.envelope.message else {
            panic!("it is told as what it is");
        };
        assert_eq!(event.name.as_str(), name);
    }
    let sent = &world.outside.http.requests()[0].attempt.request;
    assert_eq!(sent.url.as_str(), url, "the target gets it whole");
}

#[tokio::test]
async fn a_call_whose_due_time_has_passed_is_made_at_once() {
    let world = CallWorld::with_rare_polls().await;
    let due_at = world.now().saturating_sub(Duration::from_hours(1));
    world.submit(call("a", due_at)).await;
    let now = world.now();
    world.settle().await;
    assert_eq!(world.now(), now);
    assert_eq!(world.status(&key("a")).await, Some(CallStatus::Succeeded));
    assert_eq!(world.outside.http.requests()[0].at, now);
}

#[tokio::test]
async fn a_call_that_is_due_when_it_is_submitted_starts_in_that_write_and_has_no_timer() {
    let world = CallWorld::with_rare_polls().await;
    for (name, overdue) in [("due", ms(0)), ("late", ms(1))] {
        let due_at = world.now().saturating_sub(overdue);
        let changes = world.count_calls("change");
        let first = world.submit(call(name, due_at)).await;
        assert_eq!(world.status(&key(name)).await, Some(CallStatus::Running));
        // It is one call, and it is too late to delete it.
        let again = world.try_submit(call(name, due_at)).await;
        assert_eq!(again, SubmitOutcome::Repeated(first));
        let running = DeleteCallOutcome::TooLate(CallStatus::Running);
        assert_eq!(delete(&world, &key(name)).await, running);
        assert_eq!(changes.load(Ordering::SeqCst), 0);
        world.settle().await;
        assert_eq!(world.status(&key(name)).await, Some(CallStatus::Succeeded));
        let view = world.process.read.find(key(name)).await.unwrap().unwrap();
        assert_eq!((view.timer, view.attempts.len()), (None, 1));
        world.advance(Duration::from_hours(1)).await;
        assert_eq!(world.outside.http.count(&key(name)), 1, "and never again");
    }
    world.submit(call("later", world.in_(ms(1)))).await;
    let waits = Some(CallStatus::Scheduled);
    assert_eq!(world.status(&key("later")).await, waits);
    world.settle().await;
    assert_eq!(world.status(&key("later")).await, waits, "never early");
    for (type_name, count) in [
        ("ServiceCallScheduled", 3),
        ("ServiceCallRunning", 2),
        ("ScheduleTimer", 1),
        ("DueTimeReached", 0),
    ] {
        assert_eq!(world.outside.wire.count(type_name), count, "{type_name}");
    }
}

#[tokio::test]
async fn a_call_that_was_started_when_it_was_submitted_ends_although_its_command_is_lost() {
    let world = CallWorld::with_rare_polls().await;
    world.outside.wire.loses(&["StartExecution"]);
    world.submit(call("a", world.now())).await;
    // The clock is set back: nothing is early, and the sweep comes later by that much.
    let clock = &world.outside.clock;
    clock.set_wall(world.now().saturating_sub(secs(30)));
    world.advance(secs(1)).await;
    assert_eq!(world.status(&key("a")).await, Some(CallStatus::Running));
    world.outside.wire.is_good();
    world.advance(secs(90)).await;
    assert_eq!(world.status(&key("a")).await, Some(CallStatus::Succeeded));
    assert_eq!(world.outside.http.requests().len(), 1);
}

#[tokio::test]
async fn any_other_answer_than_2xx_is_a_failure_that_shows_the_answer() {
    let world = CallWorld::new().await;
    for (status, succeeds) in [
        (100, false),
        (199, false),
        (200, true),
        (299, true),
        (300, false),
        (302, false),
        (404, false),
        (500, false),
    ] {
        let name = status.to_string();
        world.outside.http.does(Behaviour::Answer(status, ms(7)));
        world.submit(call(&name, world.now())).await;
        world.advance(secs(1)).await;
        let Some(ServiceCall::Finished(finished)) = world.find(&key(&name)).await else {
            panic!("{status} ends a call");
        };
        match finished.outcome() {
            Outcome::Succeeded(response) => {
                assert!(succeeds, "{status}");
                assert_eq!((response.status, response.latency_ms), (status, 7));
            }
            Outcome::Failed(error) => {
                assert!(!succeeds, "{status}");
                assert_eq!(error.kind, ErrorKind::HttpStatus);
                assert_eq!(error.details.as_ref().unwrap().status, status);
                assert_eq!(error.latency_ms, 7);
            }
        }
    }
}

#[tokio::test]
async fn an_answer_counts_until_the_time_is_up_and_not_a_millisecond_after() {
    let world = CallWorld::new().await;
    for (name, after, failure) in [
        ("before", TIMEOUT.saturating_sub(ms(1)), None),
        ("at", TIMEOUT, None),
        ("after", TIMEOUT + ms(1), Some(ErrorKind::Timeout)),
    ] {
        world.outside.http.does(Behaviour::Answer(200, after));
        world.submit(call(name, world.now())).await;
        let ends_at = world.in_(TIMEOUT);
        world.advance(secs(40)).await;
        let failed = world.failure(&key(name)).await;
        assert_eq!(failed, failure.map(|kind| (kind, ends_at)), "{name}");
    }
}

#[tokio::test]
async fn a_target_that_never_answers_fails_by_timeout_when_the_time_is_up() {
    let world = CallWorld::new().await;
    world.outside.http.does(Behaviour::Hang);
    world.submit(call("a", world.now())).await;
    let ends_at = world.in_(TIMEOUT);
    world.advance_to(ends_at.saturating_sub(ms(1))).await;
    assert_eq!(world.status(&key("a")).await, Some(CallStatus::Running));
    world.advance(ms(1)).await;
    let failure = world.failure(&key("a")).await;
    assert_eq!(failure, Some((ErrorKind::Timeout, ends_at)));
}

#[tokio::test]
async fn what_goes_wrong_on_the_way_is_what_the_call_has_failed_by() {
    let world = CallWorld::new().await;
    for (name, behaviour, kind) in [
        (
            "refused",
            Behaviour::Fail(ErrorKind::ConnectFailed),
            ErrorKind::ConnectFailed,
        ),
        (
            "forbidden",
            Behaviour::Fail(ErrorKind::TargetNotAllowed),
            ErrorKind::TargetNotAllowed,
        ),
        ("broken", Behaviour::Panic, ErrorKind::Interrupted),
    ] {
        world.outside.http.does(behaviour);
        world.submit(call(name, world.now())).await;
        world.settle().await;
        let failure = world.failure(&key(name)).await;
        assert_eq!(failure, Some((kind, world.now())), "{name}");
        assert_eq!(world.outside.http.count(&key(name)), 1);
    }
}

#[tokio::test]
async fn a_deleted_call_is_never_made_and_its_timer_is_deleted() {
    let world = CallWorld::new().await;
    world.submit(call("a", world.in_(secs(10)))).await;
    world.submit(call("b", world.in_(secs(10)))).await;
    world.advance(secs(9)).await;
    assert_eq!(delete(&world, &key("a")).await, DeleteCallOutcome::Deleted);
    assert_eq!(world.status(&key("a")).await, None);
    let timer = TimerPersistencePort::find(&world.outside.timers, key("a")).await;
    assert_eq!(timer.unwrap(), None);
    assert_eq!(delete(&world, &key("a")).await, DeleteCallOutcome::NotFound);
    world.advance(Duration::from_hours(1)).await;
    assert_eq!(world.outside.http.count(&key("a")), 0);
    assert_eq!(world.outside.http.count(&key("b")), 1, "others are made");
    assert_eq!(world.outside.wire.count("ServiceCallDeleted"), 1);
}

#[tokio::test]
async fn a_call_deleted_before_its_timer_was_scheduled_stays_deleted() {
    let world = CallWorld::new().await;
    world.submit(call("a", world.in_(ms(1)))).await;
    // Nothing was published yet: the command for the timer comes after the deletion.
    assert_eq!(delete(&world, &key("a")).await, DeleteCallOutcome::Deleted);
    world.advance(Duration::from_hours(1)).await;
    assert_eq!(world.outside.http.requests().len(), 0);
    let timer = TimerPersistencePort::find(&world.outside.timers, key("a")).await;
    assert_eq!(timer.unwrap(), None);
}

#[tokio::test]
async fn a_call_that_has_started_cannot_be_deleted() {
    let world = CallWorld::new().await;
    world.outside.http.does(Behaviour::Answer(200, secs(5)));
    world.submit(call("a", world.now())).await;
    world.advance(secs(1)).await;
    let running = DeleteCallOutcome::TooLate(CallStatus::Running);
    assert_eq!(delete(&world, &key("a")).await, running);
    world.advance(secs(5)).await;
    let finished = DeleteCallOutcome::TooLate(CallStatus::Succeeded);
    assert_eq!(delete(&world, &key("a")).await, finished);
    assert_eq!(world.outside.wire.count("ServiceCallDeleted"), 0);
}

#[tokio::test]
async fn a_tenant_cannot_delete_the_call_of_another() {
    let world = CallWorld::new().await;
    let due_at = world.in_(secs(1));
    world.submit(call("a", due_at)).await;
    let id = key("a").service_call_id;
    let theirs = TimerKey::new(key_of("tenant-b", "a").tenant_id, id);
    assert_eq!(delete(&world, &theirs).await, DeleteCallOutcome::NotFound);
    // The same id in another tenant is another call.
    let mut other = call_to("tenant-b", "target.example", "b", due_at);
    other.service_call_id = Some(id);
    world.submit(other).await;
    assert_eq!(delete(&world, &theirs).await, DeleteCallOutcome::Deleted);
    world.advance(secs(2)).await;
    assert_eq!(world.outside.http.count(&key("a")), 1);
    assert_eq!(world.outside.http.count(&theirs), 0);
}

#[tokio::test]
async fn a_deletion_that_races_with_the_due_time_means_what_it_says() {
    // Whichever operation of the store is slow, and whichever side reads first.
    for operation in ["find_calls", "delete_calls", "change", "accept", "begin"] {
        for nth in 1..=3 {
            for fault in [Fault::DelayBefore(secs(2)), Fault::DelayAfter(secs(2))] {
                let world = CallWorld::new().await;
                world.submit(call("a", world.in_(secs(1)))).await;
                world.settle().await;
                world.process.faults.at_call_of(operation, nth, fault);
                let clock = world.outside.clock.clone();
                let (submit, name) = (&world.process.submit, key("a"));
                let deletion = async {
                    punctual_ports::ClockPort::sleep_for(&clock, ms(500 + 250 * nth)).await;
                    submit.delete(name.clone(), None).await.unwrap()
                };
                let (outcome, ()) = tokio::join!(deletion, world.advance(Duration::from_mins(5)));
                let made = world.outside.http.count(&key("a"));
                let expected = match outcome {
                    DeleteCallOutcome::Deleted => 0,
                    _ => 1,
                };
                assert_eq!(made, expected, "{operation} {nth} {fault:?}: {outcome:?}");
                let gone = world.status(&key("a")).await.is_none();
                assert_eq!(gone, outcome == DeleteCallOutcome::Deleted);
            }
        }
    }
}

fn command(world: &CallWorld, n: u128, message: impl Into<Message>) -> MessageEnvelope {
    MessageEnvelope {
        id: EnvelopeId::from_uuid(Uuid::from_u128(n)),
        timestamp: world.now(),
        metadata: MessageMetadata::default(),
        message: message.into(),
    }
}

fn submission_of(name: &str, world: &CallWorld) -> SubmitServiceCall {
    let asked = call(name, world.in_(secs(5)));
    SubmitServiceCall {
        tenant_id: asked.tenant_id,
        service_call_id: asked.service_call_id.unwrap(),
        name: asked.name,
        due_at: asked.due_at,
        request_spec: asked.request,
        tags: asked.tags,
        idempotency_key: None,
    }
}

#[tokio::test]
async fn commands_from_the_bus_submit_and_delete_in_order() {
    let world = CallWorld::new().await;
    let (a, b) = (submission_of("a", &world), submission_of("b", &world));
    let deletion = DeleteServiceCall {
        tenant_id: key("b").tenant_id,
        service_call_id: key("b").service_call_id,
    };
    let batch = vec![
        command(&world, 1, a),
        command(&world, 2, b),
        command(&world, 3, deletion),
    ];
    // Each again and again: they change nothing any more.
    for _ in 0..3 {
        let answers = world.outside.wire.publish(batch.clone()).await.unwrap();
        for answer in answers {
            assert_eq!(answer.unwrap(), PublishOutcome::Accepted);
        }
    }
    world.advance(secs(10)).await;
    assert_eq!(world.status(&key("a")).await, Some(CallStatus::Succeeded));
    assert_eq!(world.status(&key("b")).await, None);
    assert_eq!(world.outside.http.requests().len(), 1);
    let submitted = world.outside.wire.of_type("ServiceCallSubmitted");
    let cause = submitted[0].envelope.metadata.causation_id;
    assert_eq!(cause, Some(EnvelopeId::from_uuid(Uuid::from_u128(1))));
    let deleted = world.outside.wire.of_type("ServiceCallDeleted");
    assert_eq!((submitted.len(), deleted.len()), (2, 1));
    let cause = deleted[0].envelope.metadata.causation_id;
    assert_eq!(cause, Some(EnvelopeId::from_uuid(Uuid::from_u128(3))));
}

#[tokio::test]
async fn a_command_from_the_bus_that_is_due_starts_at_once_and_once() {
    let world = CallWorld::new().await;
    let due = SubmitServiceCall {
        due_at: world.now(),
        ..submission_of("a", &world)
    };
    for n in [1, 1, 2] {
        let batch = vec![command(&world, n, due.clone())];
        let answers = world.outside.wire.publish(batch).await.unwrap();
        assert_eq!(answers[0].as_ref().unwrap(), &PublishOutcome::Accepted);
        assert_ne!(world.status(&key("a")).await, Some(CallStatus::Scheduled));
        world.advance(secs(1)).await;
    }
    assert_eq!(world.outside.http.requests().len(), 1);
    for type_name in ["ServiceCallRunning", "StartExecution"] {
        let told = world.outside.wire.of_type(type_name);
        let cause = Some(EnvelopeId::from_uuid(Uuid::from_u128(1)));
        assert_eq!(told[0].envelope.metadata.causation_id, cause);
        assert_eq!(told.len(), 1);
    }
    assert_eq!(world.outside.wire.count("ScheduleTimer"), 0);
}

#[tokio::test]
async fn a_command_that_can_never_be_carried_out_is_refused_and_the_others_are_not() {
    let world = CallWorld::new().await;
    let first = submission_of("a", &world);
    let mut conflict = first.clone();
    conflict.due_at = world.in_(secs(6));
    let deletion = DeleteServiceCall {
        tenant_id: key("nobody").tenant_id,
        service_call_id: key("nobody").service_call_id,
    };
    let batch = vec![
        command(&world, 1, first),
        command(&world, 2, conflict),
        command(&world, 3, deletion),
        command(&world, 4, submission_of("b", &world)),
    ];
    let answers = world.outside.wire.publish(batch).await.unwrap();
    let answers: Vec<PublishOutcome> = answers.into_iter().map(Result::unwrap).collect();
    let PublishOutcome::Refused { reason } = &answers[1] else {
        panic!("a conflict is poison, not {:?}", answers[1]);
    };
    assert!(reason.contains("same Id"), "{reason}");
    for n in [0, 2, 3] {
        assert_eq!(answers[n], PublishOutcome::Accepted, "{n}");
    }
    world.advance(secs(10)).await;
    assert_eq!(world.outside.http.requests().len(), 2);
}
