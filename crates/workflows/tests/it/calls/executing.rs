//! The one attempt of a call: never two, whatever fails, ends or is asked to stop.

use std::sync::Arc;
use std::time::Duration;

use punctual_adapters_memory::faults::{Fault, Faults};
use punctual_domain::service_call::{CallStatus, ErrorKind};
use punctual_ports::{ExecutionState, PortErrorKind};
use punctual_workflows::WorkerStopped;
use punctual_workflows::calls::{CallSettings, ExecuteCalls};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::http::Behaviour;
use super::world::{CallWorld, Process, call};
use crate::world::{key, ms, secs};

/// Lets the next call of a method go wrong.
fn at_next_call(world: &CallWorld, operation: &'static str, fault: Fault) {
    let mut is_over = false;
    world.process.faults.decide(move |call| {
        let is_it = call.operation == operation && !is_over;
        is_over |= is_it;
        is_it.then_some(fault)
    });
}

/// Lets time pass until the process ends by a fault.
async fn until_crash(world: &CallWorld) {
    let (faults, clock) = (world.process.faults.clone(), world.outside.clock.clone());
    tokio::select! {
        biased;
        () = faults.crashed() => {}
        () = clock.advance(Duration::from_mins(10)) => panic!("the process ends before that"),
    }
}

#[tokio::test]
async fn an_attempt_that_had_started_when_the_process_ended_is_interrupted_and_not_repeated() {
    for (operation, fault, requests, failure) in [
        // It was not marked: it is made, once, by the next process.
        ("claim_attempts", Fault::CrashBefore, 1, None),
        // It was marked, and nobody can know.
        (
            "claim_attempts",
            Fault::CrashAfter,
            0,
            Some(ErrorKind::Interrupted),
        ),
        (
            "finish",
            Fault::CrashBefore,
            1,
            Some(ErrorKind::Interrupted),
        ),
        // The result was recorded, and only the telling is left.
        ("finish", Fault::CrashAfter, 1, None),
        ("accept", Fault::CrashBefore, 1, None),
        ("accept", Fault::CrashAfter, 1, None),
    ] {
        let mut world = CallWorld::new().await;
        // The claims that find nothing are over.
        world.settle().await;
        at_next_call(&world, operation, fault);
        world.submit(call("a", world.in_(secs(2)))).await;
        until_crash(&world).await;
        world.restart().await;
        world.settle().await;
        let status = world.status(&key("a")).await;
        let failed = world.failure(&key("a")).await.map(|(kind, _)| kind);
        assert_eq!(failed, failure, "{operation} {fault:?}: {status:?}");
        world.advance(Duration::from_hours(3)).await;
        let made = world.outside.http.requests().len();
        assert_eq!(made, requests, "{operation} {fault:?}");
        let ended = world.outside.wire.count("ServiceCallSucceeded")
            + world.outside.wire.count("ServiceCallFailed");
        assert_eq!(ended, 1);
    }
}

#[tokio::test]
async fn an_attempt_under_way_when_the_process_ends_is_interrupted() {
    let mut world = CallWorld::new().await;
    world.outside.http.does(Behaviour::Hang);
    world.submit(call("a", world.now())).await;
    world.advance(secs(3)).await;
    assert_eq!(world.outside.http.requests().len(), 1);
    world.restart().await;
    world.settle().await;
    let failure = world.failure(&key("a")).await;
    assert_eq!(failure, Some((ErrorKind::Interrupted, world.now())));
    world.advance(Duration::from_hours(1)).await;
    assert_eq!(world.outside.http.requests().len(), 1);
}

#[tokio::test]
async fn what_was_left_behind_is_ended_before_anything_begins_however_often_that_fails() {
    let mut world = CallWorld::new().await;
    world.outside.http.does(Behaviour::Hang);
    for n in 0..250 {
        world.submit(call(&n.to_string(), world.now())).await;
    }
    world.advance(secs(3)).await;
    let before = world.outside.http.requests().len();
    assert_eq!(before, 64, "what one host gets");
    world.restart().await;
    world.outside.http.does(super::http::OK);
    let unavailable = PortErrorKind::Unavailable;
    for (operation, fault) in [
        ("take_over", Fault::FailBefore(unavailable)),
        ("finish", Fault::FailBefore(unavailable)),
        ("finish", Fault::FailAfter(unavailable)),
    ] {
        let n = if fault == Fault::FailAfter(unavailable) {
            2
        } else {
            1
        };
        world.process.faults.at_call_of(operation, n, fault);
    }
    world.advance(Duration::from_mins(1)).await;
    assert_eq!(world.process.faults.fired().len(), 3);
    assert_eq!(world.outside.wire.count("ServiceCallFailed"), 64);
    assert_eq!(world.outside.wire.count("ServiceCallSucceeded"), 186);
    assert_eq!(world.outside.http.requests().len(), 250);
}

#[tokio::test]
async fn a_result_is_recorded_however_often_that_fails_and_the_request_is_not_repeated() {
    for fault in [
        Fault::FailBefore(PortErrorKind::Unavailable),
        Fault::FailAfter(PortErrorKind::Unavailable),
    ] {
        let world = CallWorld::new().await;
        let (clock, until) = (world.outside.clock.clone(), world.in_(secs(20)));
        world.process.faults.decide(move |call| {
            let now = punctual_ports::ClockPort::now(&clock);
            (call.operation == "finish" && now < until).then_some(fault)
        });
        world.submit(call("a", world.now())).await;
        world.advance(secs(30)).await;
        assert_eq!(
            world.status(&key("a")).await,
            Some(CallStatus::Succeeded),
            "{fault:?}"
        );
        assert_eq!(world.outside.http.requests().len(), 1);
        assert_eq!(world.outside.wire.count("ExecutionSucceeded"), 1);
    }
}

#[tokio::test]
async fn a_beginning_that_fails_is_made_again_and_one_that_only_seemed_to_is_interrupted() {
    let unavailable = PortErrorKind::Unavailable;
    let world = CallWorld::new().await;
    world.settle().await;
    at_next_call(&world, "claim_attempts", Fault::FailBefore(unavailable));
    world.submit(call("a", world.now())).await;
    world.advance(secs(1)).await;
    assert_eq!(world.status(&key("a")).await, Some(CallStatus::Succeeded));
    let made = world.outside.http.requests().len();
    assert_eq!(made, 1, "nothing was sent before it had begun");

    let world = CallWorld::new().await;
    world.settle().await;
    at_next_call(&world, "claim_attempts", Fault::FailAfter(unavailable));
    world.submit(call("a", world.now())).await;
    world.submit(call("b", world.in_(secs(2)))).await;
    world.advance(secs(1)).await;
    let failed = world.failure(&key("a")).await.map(|(kind, _)| kind);
    assert_eq!(failed, Some(ErrorKind::Interrupted), "and not only later");
    let attempts = world.attempts(&key("a")).await;
    assert!(matches!(attempts[0].state, ExecutionState::Finished { .. }));
    world.advance(Duration::from_hours(1)).await;
    assert_eq!(world.outside.http.count(&key("a")), 0, "it was not sent");
    assert_eq!(world.status(&key("b")).await, Some(CallStatus::Succeeded));
}

#[tokio::test]
async fn what_is_under_way_is_not_taken_for_left_behind() {
    let world = CallWorld::new().await;
    world.outside.http.does(Behaviour::Answer(200, secs(20)));
    world.submit(call("a", world.now())).await;
    world.advance(secs(1)).await;
    let fault = Fault::FailAfter(PortErrorKind::Unavailable);
    at_next_call(&world, "claim_attempts", fault);
    world.submit(call("b", world.now())).await;
    world.advance(secs(5)).await;
    let failed = world.failure(&key("b")).await.map(|(kind, _)| kind);
    assert_eq!(failed, Some(ErrorKind::Interrupted));
    assert_eq!(world.status(&key("a")).await, Some(CallStatus::Running));
    world.advance(secs(20)).await;
    assert_eq!(world.status(&key("a")).await, Some(CallStatus::Succeeded));
}

#[tokio::test]
async fn an_attempt_under_way_holds_up_no_retry_of_another() {
    let world = CallWorld::new().await;
    world.outside.http.decides(|attempt| {
        if attempt.key == key("slow") {
            Behaviour::Hang
        } else {
            super::http::OK
        }
    });
    world.submit(call("slow", world.now())).await;
    world.advance(secs(1)).await;
    let mut left = 2;
    world.process.faults.decide(move |call| {
        let fails = call.operation == "claim_attempts" && left > 0;
        left -= u32::from(fails);
        fails.then_some(Fault::FailBefore(PortErrorKind::Unavailable))
    });
    world.submit(call("b", world.now())).await;
    world.advance(secs(2)).await;
    assert_eq!(world.process.faults.fired().len(), 2);
    assert_eq!(world.status(&key("b")).await, Some(CallStatus::Succeeded));
}

#[tokio::test]
async fn a_started_attempt_is_sent_although_the_store_is_slow_to_read_more() {
    let world = CallWorld::new().await;
    world.process.faults.decide(|call| {
        let is_slow = call.operation == "claim_attempts" && call.number_of_operation > 2;
        is_slow.then_some(Fault::DelayBefore(secs(40)))
    });
    let due_at = world.in_(secs(1));
    world.submit(call("a", due_at)).await;
    world.advance(Duration::from_mins(5)).await;
    let request = &world.outside.http.requests()[0];
    let attempts = world.attempts(&key("a")).await;
    assert_eq!(request.at, attempts[0].started_at);
    assert_eq!(world.status(&key("a")).await, Some(CallStatus::Succeeded));
}

/// Runs the executor as a process does: as a task that sleeps.
fn run(
    world: &mut CallWorld,
    settings: CallSettings,
) -> (
    oneshot::Sender<()>,
    JoinHandle<Result<usize, WorkerStopped>>,
) {
    world.process.without_executor();
    let http = world.outside.http.clone();
    let executor = ExecuteCalls::new(&world.process.ports, http, settings).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(executor.run(async move { _ = stopped.await }));
    (stop, task)
}

#[tokio::test]
async fn a_shutdown_lets_attempts_finish_begins_no_more_and_interrupts_the_rest() {
    let settings = CallSettings::default();
    let mut world = CallWorld::with(settings).await;
    let (stop, task) = run(&mut world, settings);
    world.outside.http.decides(|attempt| {
        if attempt.key == key("a") {
            Behaviour::Answer(200, secs(10))
        } else {
            Behaviour::Hang
        }
    });
    world.submit(call("a", world.now())).await;
    world.submit(call("b", world.in_(secs(4)))).await;
    world.advance(secs(5)).await;
    assert_eq!(world.outside.http.requests().len(), 2);
    stop.send(()).unwrap();
    world.submit(call("late", world.now())).await;
    world.advance(secs(25).saturating_sub(ms(1))).await;
    assert!(!task.is_finished());
    assert_eq!(world.status(&key("a")).await, Some(CallStatus::Succeeded));
    assert_eq!(world.status(&key("b")).await, Some(CallStatus::Running));
    world.advance(ms(1)).await;
    assert_eq!(task.await.unwrap().unwrap(), 1);
    world.settle().await;
    let failure = world.failure(&key("b")).await;
    assert_eq!(failure, Some((ErrorKind::Interrupted, world.now())));
    assert_eq!(world.outside.http.count(&key("late")), 0);
}

#[tokio::test]
async fn a_shutdown_ends_although_results_cannot_be_recorded() {
    let settings = CallSettings::default();
    let mut world = CallWorld::with(settings).await;
    let (stop, task) = run(&mut world, settings);
    world.process.faults.decide(|call| {
        let fault = Fault::FailBefore(PortErrorKind::Unavailable);
        (call.operation == "finish").then_some(fault)
    });
    world.submit(call("a", world.now())).await;
    world.advance(secs(5)).await;
    stop.send(()).unwrap();
    world.advance(secs(31)).await;
    assert!(task.is_finished(), "nobody waits for a store for ever");
    assert_eq!(task.await.unwrap().unwrap(), 1);
    world.restart().await;
    world.settle().await;
    let failed = world.failure(&key("a")).await.map(|(kind, _)| kind);
    assert_eq!(failed, Some(ErrorKind::Interrupted));
    assert_eq!(world.outside.http.requests().len(), 1);
}

#[tokio::test]
async fn an_attempt_whose_start_is_confirmed_after_its_lease_is_not_sent() {
    let world = CallWorld::new().await;
    world.settle().await;
    at_next_call(&world, "claim_attempts", Fault::DelayAfter(secs(30)));
    world.submit(call("a", world.now())).await;
    world.submit(call("b", world.in_(secs(40)))).await;
    world.advance(Duration::from_mins(5)).await;
    let failed = world.failure(&key("a")).await.map(|(kind, _)| kind);
    assert_eq!(failed, Some(ErrorKind::Interrupted));
    assert_eq!(world.outside.http.count(&key("a")), 0);
    assert_eq!(world.status(&key("b")).await, Some(CallStatus::Succeeded));
}

/// Another instance on the same store and bus.
async fn second_instance(world: &CallWorld, settings: CallSettings) -> Process {
    let outside = world.outside.another_instance();
    let faults = Faults::new(Arc::new(outside.clock.clone()));
    Process::start(&outside, settings, faults).await
}

#[tokio::test]
async fn a_request_that_outlasts_its_lease_is_interrupted_by_no_other_instance() {
    let settings = CallSettings {
        timeout: secs(300),
        ..CallSettings::default()
    };
    let world = CallWorld::with(settings).await;
    let _second = second_instance(&world, settings).await;
    world.outside.http.does(Behaviour::Answer(200, secs(200)));
    world.submit(call("a", world.now())).await;
    world.advance(secs(250)).await;
    assert_eq!(world.status(&key("a")).await, Some(CallStatus::Succeeded));
    assert_eq!(world.outside.http.requests().len(), 1);
}

#[tokio::test]
async fn what_a_crashed_instance_was_making_is_interrupted_by_another_when_its_lease_ends() {
    let settings = CallSettings::default();
    let mut world = CallWorld::with(settings).await;
    world.outside.http.does(Behaviour::Hang);
    world.submit(call("a", world.now())).await;
    world.settle().await;
    assert_eq!(world.outside.http.requests().len(), 1);
    world.process = second_instance(&world, settings).await;
    world.advance(secs(30).saturating_sub(ms(1))).await;
    assert_eq!(world.status(&key("a")).await, Some(CallStatus::Running));
    world
        .advance(settings.lease + settings.polling_interval)
        .await;
    let failed = world.failure(&key("a")).await.map(|(kind, _)| kind);
    assert_eq!(failed, Some(ErrorKind::Interrupted));
    world.advance(Duration::from_hours(1)).await;
    assert_eq!(world.outside.http.requests().len(), 1);
}
