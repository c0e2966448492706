//! Why each message was sent, and the story of a request as people see it.

use std::collections::BTreeMap;
use std::time::Duration;

use punctual_domain::{CorrelationId, EnvelopeId, Message, MessageEnvelope};
use punctual_ports::SubmitOutcome;
use uuid::Uuid;

use super::http::Behaviour;
use super::world::{CallWorld, call};
use crate::world::{key, ms, secs};

fn correlation() -> CorrelationId {
    CorrelationId::from_uuid(Uuid::from_u128(77))
}

async fn submit(world: &CallWorld, name: &str, due_in: Duration) {
    let asked = call(name, world.in_(due_in));
    let submitted = world
        .process
        .submit
        .submit(asked, Some(correlation()))
        .await;
    assert!(matches!(submitted.unwrap(), SubmitOutcome::Accepted(_)));
}

/// The types of the messages that led to one, itself first; and what the first of them names as its
/// cause, if it does.
fn walk_back(world: &CallWorld, from: &str) -> (Vec<&'static str>, Option<EnvelopeId>) {
    let passed = world.outside.wire.passed();
    let by_id: BTreeMap<EnvelopeId, MessageEnvelope> = passed
        .into_iter()
        .map(|it| (it.envelope.id, it.envelope))
        .collect();
    let of_type = world.outside.wire.of_type(from);
    let mut at = of_type[0].envelope.clone();
    let mut path = vec![at.message.type_name()];
    loop {
        let cause = at.metadata.causation_id;
        match cause.and_then(|cause| by_id.get(&cause)) {
            Some(earlier) => at = earlier.clone(),
            None => return (path, cause),
        }
        path.push(at.message.type_name());
    }
}

#[tokio::test]
async fn every_message_names_its_cause_back_to_the_timer_or_the_command() {
    let world = CallWorld::new().await;
    submit(&world, "a", secs(2)).await;
    world.advance(secs(3)).await;
    let (path, beyond) = walk_back(&world, "ServiceCallSucceeded");
    assert_eq!(
        path,
        [
            "ServiceCallSucceeded",
            "ExecutionSucceeded",
            "StartExecution",
            "DueTimeReached"
        ]
    );
    assert_eq!(beyond, None, "time has no cause");
    let (path, command) = walk_back(&world, "ServiceCallSubmitted");
    assert_eq!(path, ["ServiceCallSubmitted"]);
    assert!(command.is_some());
    for type_name in ["ScheduleTimer", "ServiceCallScheduled"] {
        assert_eq!(walk_back(&world, type_name), (vec![type_name], command));
    }
    for (type_name, cause) in [
        ("ServiceCallRunning", "DueTimeReached"),
        ("ExecutionStarted", "StartExecution"),
    ] {
        assert_eq!(walk_back(&world, type_name).0[..2], [type_name, cause]);
    }
    for passed in world.outside.wire.passed() {
        let metadata = passed.envelope.metadata;
        assert_eq!(metadata.correlation_id, Some(correlation()));
        let is_of_time = matches!(passed.envelope.message, Message::DueTimeReached(_));
        assert_eq!(metadata.causation_id.is_none(), is_of_time);
    }
}

#[tokio::test]
async fn what_the_sweeps_send_has_causes_too() {
    let world = CallWorld::new().await;
    world.outside.wire.loses(&["DueTimeReached"]);
    submit(&world, "a", secs(2)).await;
    world.advance(Duration::from_mins(2)).await;
    let (path, command) = walk_back(&world, "ServiceCallSucceeded");
    assert_eq!(
        path,
        [
            "ServiceCallSucceeded",
            "ExecutionSucceeded",
            "StartExecution"
        ]
    );
    assert_eq!(command, walk_back(&world, "ServiceCallSubmitted").1);

    let world = CallWorld::new().await;
    world.outside.wire.loses(&["ExecutionSucceeded"]);
    submit(&world, "a", secs(2)).await;
    world.advance(Duration::from_mins(3)).await;
    let (path, beyond) = walk_back(&world, "ServiceCallFailed");
    assert_eq!(
        path,
        ["ServiceCallFailed", "StartExecution", "DueTimeReached"]
    );
    assert_eq!(beyond, None);
}

#[tokio::test]
async fn the_trace_is_in_order_also_within_one_millisecond() {
    for latency in [ms(0), ms(250)] {
        let world = CallWorld::new().await;
        world.outside.http.does(Behaviour::Answer(200, latency));
        submit(&world, "a", secs(2)).await;
        world.advance(secs(3)).await;
        let trace = world
            .process
            .read
            .trace(correlation(), None, 10)
            .await
            .unwrap();
        let steps: Vec<&str> = trace.steps.iter().map(|step| step.what).collect();
        assert_eq!(
            steps,
            [
                "ServiceCallSubmitted",
                "ScheduleTimer",
                "ServiceCallScheduled",
                "DueTimeReached",
                "ServiceCallRunning",
                "StartExecution",
                "ExecutionStarted",
                "ExecutionSucceeded",
                "ServiceCallSucceeded",
            ]
        );
        assert_eq!((trace.calls.len(), trace.timers.len()), (1, 1));
        assert!(trace.steps.is_sorted_by_key(|step| step.at));
        for step in trace.steps {
            assert_eq!(step.key, key("a"));
            assert_eq!(step.published_at.is_none(), step.message_id.is_none());
        }
    }
}

#[tokio::test]
async fn a_call_due_at_once_is_traced_in_order_from_its_command_and_without_a_timer() {
    let world = CallWorld::new().await;
    submit(&world, "a", Duration::ZERO).await;
    world.settle().await;
    let (path, command) = walk_back(&world, "ServiceCallSucceeded");
    assert_eq!(path.last(), Some(&"StartExecution"));
    assert_eq!(command, walk_back(&world, "ServiceCallSubmitted").1);
    let trace = world
        .process
        .read
        .trace(correlation(), None, 10)
        .await
        .unwrap();
    let steps: Vec<&str> = trace.steps.iter().map(|step| step.what).collect();
    assert_eq!(
        steps,
        [
            "ServiceCallSubmitted",
            "ServiceCallScheduled",
            "ServiceCallRunning",
            "StartExecution",
            "ExecutionStarted",
            "ExecutionSucceeded",
            "ServiceCallSucceeded",
        ]
    );
    assert_eq!(trace.timers, []);
}

#[tokio::test]
async fn a_trace_and_a_call_s_view_show_no_secret() {
    let world = CallWorld::new().await;
    world.outside.http.does(Behaviour::Answer(200, secs(5)));
    submit(&world, "a", secs(1)).await;
    world.advance(secs(10)).await;
    let view = world.process.read.find(key("a")).await.unwrap().unwrap();
    assert!(!format!("{view:?}").contains("canary"));
    assert_eq!(view.attempts.len(), 1);
    assert!(view.timer.is_some());
    let trace = world
        .process
        .read
        .trace(correlation(), None, 10)
        .await
        .unwrap();
    assert!(!format!("{trace:?}").contains("canary"));
}

#[tokio::test]
async fn a_trace_has_all_about_each_call_on_one_page_and_every_call_on_some() {
    let world = CallWorld::new().await;
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    for name in names {
        submit(&world, name, secs(1)).await;
    }
    world.advance(secs(5)).await;
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = world.process.read.trace(correlation(), after, 3);
        let page = page.await.unwrap();
        let keys: Vec<_> = page
            .calls
            .iter()
            .map(|it| it.details().key.clone())
            .collect();
        let timers: Vec<_> = page
            .timers
            .iter()
            .map(|it| it.timer().key.clone())
            .collect();
        assert_eq!(keys, timers);
        assert_eq!(page.steps.len(), 9 * keys.len());
        assert!(page.steps.is_sorted_by_key(|step| step.at));
        seen.extend(keys);
        after = page.next;
        if after.is_none() {
            break;
        }
        assert_eq!(seen.len() % 3, 0);
    }
    let mut all = names.map(key).to_vec();
    all.sort();
    assert_eq!(seen, all);
}
