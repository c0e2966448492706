//! A message is lost, somewhere between the modules: the call comes to its end all the same, and at
//! the time that the rules say.

use std::time::Duration;

use punctual_domain::service_call::{CallStatus, ErrorKind, Outcome};
use punctual_domain::{Message, Timestamp};
use punctual_ports::ExecutionState;
use punctual_workflows::calls::CallSettings;

use super::http::Behaviour;
use super::wire::Fate;
use super::world::{CallWorld, call};
use crate::world::{key, ms, secs};

/// So rarely that what happens is not owed to a poll.
async fn world_that_loses(types: &'static [&'static str]) -> CallWorld {
    let world = CallWorld::with(CallSettings {
        polling_interval: Duration::from_hours(6),
        ..CallSettings::default()
    })
    .await;
    world.outside.wire.loses(types);
    world
}

/// Checks a change of state on the millisecond.
async fn changes_at(world: &CallWorld, at: Timestamp, before: CallStatus, after: CallStatus) {
    world.advance_to(at.saturating_sub(ms(1))).await;
    assert_eq!(world.status(&key("a")).await, Some(before));
    world.advance(ms(1)).await;
    assert_eq!(world.status(&key("a")).await, Some(after));
}

#[tokio::test]
async fn without_its_timer_a_call_starts_a_minute_after_its_due_time() {
    for types in [&["ScheduleTimer"], &["DueTimeReached"]] {
        let world = world_that_loses(types).await;
        let due_at = world.in_(secs(10));
        world.submit(call("a", due_at)).await;
        let started = due_at.saturating_add(secs(60));
        changes_at(
            &world,
            started,
            CallStatus::Scheduled,
            CallStatus::Succeeded,
        )
        .await;
        assert_eq!(world.outside.http.requests()[0].at, started);
        world.advance(Duration::from_hours(24)).await;
        assert_eq!(world.outside.http.requests().len(), 1);
    }
}

#[tokio::test]
async fn a_due_time_that_arrives_after_the_sweep_starts_nothing_again() {
    let world = CallWorld::new().await;
    world
        .outside
        .wire
        .decides(|envelope| match envelope.message {
            Message::DueTimeReached(_) => Fate::Delayed,
            _ => Fate::Delivered(1),
        });
    world.submit(call("a", world.in_(ms(1)))).await;
    world.advance(secs(61)).await;
    assert_eq!(world.status(&key("a")).await, Some(CallStatus::Succeeded));
    let late = world.outside.wire.take_delayed();
    assert_eq!(late.len(), 1);
    world.outside.wire.deliver(late).await.unwrap();
    world.advance(Duration::from_hours(1)).await;
    assert_eq!(world.outside.http.requests().len(), 1);
    assert_eq!(world.outside.wire.count("ServiceCallRunning"), 1);
}

#[tokio::test]
async fn a_lost_command_goes_out_again_under_the_same_id_after_one_two_four_minutes() {
    let world = world_that_loses(&["StartExecution"]).await;
    let started = world.now();
    world.submit(call("a", started)).await;
    world.advance(Duration::from_mins(7)).await;
    let sent = world.outside.wire.of_type("StartExecution");
    let after: Vec<u64> = sent
        .iter()
        .map(|it| it.at.since(started).as_secs())
        .collect();
    assert_eq!(after, [0, 60, 180, 420]);
    assert!(sent.iter().all(|it| it.envelope.id == sent[0].envelope.id));
    world.outside.wire.is_good();
    let next = started.saturating_add(secs(900));
    changes_at(&world, next, CallStatus::Running, CallStatus::Succeeded).await;
    assert_eq!(world.outside.http.requests().len(), 1);
}

#[tokio::test]
async fn a_lost_beginning_does_no_harm() {
    let world = world_that_loses(&["ExecutionStarted"]).await;
    world.outside.http.does(Behaviour::Answer(200, secs(29)));
    let started = world.now();
    world.submit(call("a", started)).await;
    let ends_at = started.saturating_add(secs(29));
    changes_at(&world, ends_at, CallStatus::Running, CallStatus::Succeeded).await;
    world.advance(Duration::from_hours(3)).await;
    assert_eq!(world.outside.http.requests().len(), 1);
}

#[tokio::test]
async fn a_call_whose_result_is_lost_has_it_when_its_time_and_the_grace_are_over() {
    for (status, ended) in [(200, CallStatus::Succeeded), (500, CallStatus::Failed)] {
        let world = world_that_loses(&["ExecutionSucceeded", "ExecutionFailed"]).await;
        world.outside.http.does(Behaviour::Answer(status, secs(1)));
        let began = world.in_(secs(2));
        world.submit(call("a", began)).await;
        world.advance_to(began.saturating_add(secs(2))).await;
        world.outside.wire.is_good();
        let asked = began.saturating_add(secs(60));
        changes_at(&world, asked, CallStatus::Running, ended).await;
        world.advance(Duration::from_hours(3)).await;
        assert_eq!(world.outside.http.requests().len(), 1);
    }
}

#[tokio::test]
async fn a_call_whose_result_is_lost_twice_fails_by_timeout_after_another_grace() {
    for types in [&["ExecutionSucceeded"], &["ExecutionFailed"]] {
        let world = world_that_loses(types).await;
        let status = if types == &["ExecutionFailed"] {
            500
        } else {
            200
        };
        world.outside.http.does(Behaviour::Answer(status, secs(1)));
        let began = world.in_(secs(2));
        world.submit(call("a", began)).await;
        let ends_at = began.saturating_add(secs(90));
        changes_at(&world, ends_at, CallStatus::Running, CallStatus::Failed).await;
        let failure = world.failure(&key("a")).await;
        assert_eq!(failure, Some((ErrorKind::Timeout, ends_at)));
        world.advance(Duration::from_hours(3)).await;
        assert_eq!(world.outside.http.requests().len(), 1);
    }
}

#[tokio::test]
async fn when_start_and_result_are_both_lost_a_redispatch_brings_the_result() {
    for status in [200, 500] {
        let world =
            world_that_loses(&["ExecutionStarted", "ExecutionSucceeded", "ExecutionFailed"]).await;
        world.outside.http.does(Behaviour::Answer(status, secs(1)));
        let started = world.now();
        world.submit(call("a", started)).await;
        world.advance(secs(59)).await;
        world.outside.wire.is_good();
        let asked_again = started.saturating_add(secs(60));
        let ended = match status {
            200 => CallStatus::Succeeded,
            _ => CallStatus::Failed,
        };
        changes_at(&world, asked_again, CallStatus::Running, ended).await;
        let finished = match world.find(&key("a")).await {
            Some(punctual_domain::service_call::ServiceCall::Finished(call)) => call.finished_at(),
            other => panic!("the call has finished, and is not {other:?}"),
        };
        assert_eq!(
            finished,
            started.saturating_add(secs(1)),
            "when it really was"
        );
        assert_eq!(
            world.outside.http.requests().len(),
            1,
            "nothing is sent again"
        );
    }
}

#[tokio::test]
async fn a_redispatch_during_the_attempt_publishes_its_start_again() {
    let world = CallWorld::with(CallSettings {
        timeout: Duration::from_mins(10),
        ..CallSettings::default()
    })
    .await;
    world.outside.wire.loses(&["ExecutionStarted"]);
    world.outside.http.does(Behaviour::Hang);
    let started = world.now();
    world.submit(call("a", started)).await;
    world.advance(secs(59)).await;
    // From here on the beginning is known, and the result is lost.
    world.outside.wire.loses(&["ExecutionFailed"]);
    let ends_at = started.saturating_add(secs(660));
    changes_at(&world, ends_at, CallStatus::Running, CallStatus::Failed).await;
    assert_eq!(world.outside.wire.count("StartExecution"), 3);
}

/// As SIGSTOP does: the time passes, and nobody here has seen any of it. The answer comes meanwhile, and
/// is read when the process goes on.
#[tokio::test]
async fn a_process_that_was_suspended_past_the_deadline_gives_up_no_call_that_succeeds() {
    for (suspended, times) in [(secs(75), 1), (Duration::from_hours(9), 1), (secs(75), 3)] {
        let world = CallWorld::new().await;
        world.outside.http.does(Behaviour::Answer(200, secs(25)));
        for n in 0..20 {
            let name = n.to_string();
            world.submit(call(&name, world.now())).await;
        }
        world.advance(secs(2)).await;
        for _ in 0..times {
            // The sweep wakes first, and no result is there yet.
            world.outside.clock.set_wall(world.in_(suspended));
            world.advance(secs(7)).await;
        }
        world.advance(Duration::from_mins(5)).await;
        for n in 0..20 {
            let key = key(&n.to_string());
            let attempts = world.attempts(&key).await;
            let ExecutionState::Finished { outcome, .. } = &attempts[0].state else {
                panic!("it is over: {attempts:?}");
            };
            assert!(matches!(outcome, Outcome::Succeeded(_)), "{outcome:?}");
            let status = world.status(&key).await;
            assert_eq!(status, Some(CallStatus::Succeeded), "as its log says");
        }
        assert_eq!(world.outside.http.requests().len(), 20);
    }
}

/// An attempt's time is measured by the monotonic clock, which has not seen the suspension.
#[tokio::test]
async fn an_attempt_that_goes_on_after_a_suspension_is_not_given_up() {
    let world = CallWorld::with(CallSettings {
        timeout: Duration::from_mins(10),
        ..CallSettings::default()
    })
    .await;
    let long = Duration::from_mins(9);
    world.outside.http.does(Behaviour::Answer(200, long));
    world.submit(call("a", world.now())).await;
    world.advance(secs(2)).await;
    world
        .outside
        .clock
        .set_wall(world.in_(Duration::from_hours(1)));
    world.advance(long).await;
    assert_eq!(world.status(&key("a")).await, Some(CallStatus::Succeeded));
    assert_eq!(world.outside.http.requests().len(), 1);
}

#[tokio::test]
async fn a_lost_result_still_ends_its_call_after_a_suspension_and_a_clock_set_back() {
    let world = CallWorld::new().await;
    world.outside.wire.loses(&["ExecutionSucceeded"]);
    world.submit(call("a", world.now())).await;
    world.advance(secs(2)).await;
    let day = Duration::from_hours(24);
    let before = world.now();
    world.outside.clock.set_wall(world.in_(day));
    world.advance(secs(7)).await;
    world.outside.clock.set_wall(before);
    world.advance(day).await;
    world.advance(Duration::from_mins(5)).await;
    assert_eq!(world.status(&key("a")).await, Some(CallStatus::Failed));
}

#[tokio::test]
async fn a_process_that_was_down_asks_once_more_before_it_gives_up() {
    let mut world = CallWorld::new().await;
    world.outside.wire.loses(&["ExecutionSucceeded"]);
    world.submit(call("a", world.now())).await;
    // The result was asked for in vain.
    world.advance(secs(61)).await;
    assert_eq!(world.status(&key("a")).await, Some(CallStatus::Running));
    world.outside.wire.is_good();
    world
        .outside
        .clock
        .set_wall(world.in_(Duration::from_hours(1)));
    world.restart().await;
    world.advance(secs(1)).await;
    assert_eq!(world.status(&key("a")).await, Some(CallStatus::Succeeded));
    assert_eq!(world.outside.http.requests().len(), 1);
}

#[tokio::test]
async fn a_result_that_comes_too_late_changes_nothing() {
    let world = CallWorld::new().await;
    world
        .outside
        .wire
        .decides(|envelope| match envelope.message {
            Message::ExecutionSucceeded(_) => Fate::Delayed,
            _ => Fate::Delivered(1),
        });
    world.submit(call("a", world.now())).await;
    world.advance(Duration::from_mins(2)).await;
    let before = world.find(&key("a")).await;
    assert_eq!(world.status(&key("a")).await, Some(CallStatus::Failed));
    let late = world.outside.wire.take_delayed();
    world.outside.wire.deliver(late).await.unwrap();
    world.advance(Duration::from_hours(1)).await;
    assert_eq!(world.find(&key("a")).await, before);
    assert_eq!(world.outside.wire.count("ServiceCallSucceeded"), 0);
    let attempts = world.attempts(&key("a")).await;
    assert!(
        matches!(attempts[0].state, ExecutionState::Finished { .. }),
        "the log knows the truth: {attempts:?}"
    );
}

#[tokio::test]
async fn the_result_of_an_attempt_that_was_not_dispatched_changes_nothing() {
    let world = CallWorld::new().await;
    world.outside.http.does(Behaviour::Hang);
    world.submit(call("a", world.now())).await;
    world.submit(call("b", world.in_(secs(5)))).await;
    world.advance(secs(1)).await;
    let before = world.find(&key("a")).await;
    let execution_id = punctual_domain::EnvelopeId::from_uuid(uuid::Uuid::from_u128(9));
    let mut batch = Vec::new();
    for name in ["a", "b", "nobody"] {
        let (tenant_id, service_call_id) = (key(name).tenant_id, key(name).service_call_id);
        let finished_at = world.now();
        let response_meta = punctual_domain::service_call::ResponseMeta {
            status: 200,
            headers: Vec::new(),
            body_snippet: None,
            truncated: false,
            latency_ms: 0,
        };
        let messages: [Message; 2] = [
            punctual_domain::messages::ExecutionStarted {
                tenant_id: tenant_id.clone(),
                service_call_id,
                execution_id,
                started_at: finished_at,
            }
            .into(),
            punctual_domain::messages::ExecutionSucceeded {
                tenant_id,
                service_call_id,
                execution_id,
                finished_at,
                response_meta,
            }
            .into(),
        ];
        let mut wrapped = world.outside.wire.passed()[0].envelope.clone();
        for message in messages {
            wrapped.message = message;
            batch.push(wrapped.clone());
        }
    }
    let answers = world.outside.wire.deliver(batch).await.unwrap();
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(world.find(&key("a")).await, before);
    assert_eq!(world.status(&key("b")).await, Some(CallStatus::Scheduled));
}

#[tokio::test]
async fn many_stuck_calls_are_all_rescued() {
    let world = world_that_loses(&["ScheduleTimer"]).await;
    let due_at = world.in_(secs(10));
    for n in 0..1_001 {
        world.submit(call(&n.to_string(), due_at)).await;
    }
    world.advance(secs(70)).await;
    world.advance(Duration::from_mins(1)).await;
    assert_eq!(world.outside.wire.count("ServiceCallSucceeded"), 1_001);
    assert_eq!(world.outside.http.requests().len(), 1_001);
}

#[tokio::test]
async fn a_sweep_that_fails_is_retried_and_rescues_once() {
    use punctual_adapters_memory::faults::Fault;
    use punctual_ports::PortErrorKind::Unavailable;
    for (operation, fault) in [
        ("find_stuck", Fault::FailBefore(Unavailable)),
        ("change", Fault::FailBefore(Unavailable)),
        ("change", Fault::FailAfter(Unavailable)),
    ] {
        let world = CallWorld::new().await;
        world.outside.wire.loses(&["DueTimeReached"]);
        world.submit(call("a", world.in_(ms(1)))).await;
        world.advance(secs(59)).await;
        world.process.faults.decide({
            let mut left = 3;
            move |call| {
                let hit = call.operation == operation && left > 0;
                left -= u32::from(hit);
                hit.then_some(fault)
            }
        });
        world.advance(secs(60)).await;
        assert_eq!(
            world.status(&key("a")).await,
            Some(CallStatus::Succeeded),
            "{operation} {fault:?}"
        );
        assert_eq!(world.outside.http.requests().len(), 1);
        assert_eq!(world.outside.wire.count("ServiceCallRunning"), 1);
    }
}
