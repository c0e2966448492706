//! The examples of `docs/messages.md` are what authors in other languages copy: each is read here
//! as the service would read it.

use std::collections::BTreeSet;
use std::time::Duration;

use punctual_domain::messages::SubmitServiceCall;
use punctual_domain::service_call::call::{GRACE, Start};
use punctual_domain::service_call::{
    CallDetails, CallName, CallStep, ErrorKind, Headers, IdempotencyKey, Outcome, RequestBody,
    ServiceCall, Snippet, Tag, Tags, TargetUrl,
};
use punctual_domain::{
    EnvelopeError, Message, MessageEnvelope, TenantId, TimerData, TimerKey, Timestamp,
};
use serde_json::Value;

const DOCUMENT: &str = include_str!("../../../../docs/messages.md");

/// A block of JSON: what stands behind ```` ```json ````, its text, and the line that follows it.
struct Example {
    kind: String,
    text: String,
    next_line: String,
}

fn examples() -> Vec<Example> {
    let mut found = Vec::new();
    let mut lines = DOCUMENT.lines();
    while let Some(line) = lines.next() {
        if let Some(kind) = line.strip_prefix("```json") {
            let text: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            let next_line = lines.clone().find(|line| !line.is_empty());
            found.push(Example {
                kind: kind.trim().to_owned(),
                text: text.join("\n"),
                next_line: next_line.unwrap_or_default().to_owned(),
            });
        }
    }
    found
}

fn of_kind(kind: &str) -> Vec<Example> {
    let found: Vec<_> = examples()
        .into_iter()
        .filter(|it| it.kind == kind)
        .collect();
    assert!(!found.is_empty(), "the document has no example of {kind:?}");
    found
}

fn read(example: &Example) -> Result<MessageEnvelope, EnvelopeError> {
    MessageEnvelope::from_json(example.text.as_bytes())
}

fn accepted() -> Vec<MessageEnvelope> {
    let examples = of_kind("");
    examples.iter().map(|it| read(it).unwrap()).collect()
}

#[test]
fn every_example_is_of_a_kind_that_is_checked() {
    for example in examples() {
        let known = ["", "minimal", "refused"];
        assert!(known.contains(&example.kind.as_str()), "{}", example.kind);
    }
}

#[test]
fn an_example_is_what_would_be_written() {
    for example in of_kind("") {
        let written = read(&example).unwrap().to_json().unwrap();
        let (written, example): (Value, Value) = (
            serde_json::from_slice(&written).unwrap(),
            serde_json::from_str(&example.text).unwrap(),
        );
        assert_eq!(written, example);
    }
}

#[test]
fn there_is_an_example_of_each_message() {
    let examples: BTreeSet<&str> = accepted().iter().map(|it| it.message.type_name()).collect();
    assert_eq!(examples, Message::TYPES.iter().copied().collect());
}

#[test]
fn there_is_a_refused_example_of_each_command() {
    let refused = of_kind("refused");
    for envelope in accepted() {
        let name = envelope.message.type_name();
        let line = format!("\"type\": \"{name}\"");
        let is_of_commands = envelope.message.topic().is_of_commands();
        let is_example = refused.iter().any(|it| it.text.contains(&line));
        assert!(!is_of_commands || is_example, "{name}");
    }
}

#[test]
fn the_smallest_example_is_understood_and_could_not_be_smaller() {
    for example in of_kind("minimal") {
        read(&example).unwrap();
        let whole: Value = serde_json::from_str(&example.text).unwrap();
        for place in ["", "/payload"] {
            let fields: Vec<String> = whole
                .pointer(place)
                .unwrap()
                .as_object()
                .unwrap()
                .keys()
                .cloned()
                .collect();
            for field in fields {
                let mut smaller = whole.clone();
                let object = smaller.pointer_mut(place).unwrap().as_object_mut().unwrap();
                object.remove(&field);
                let text = smaller.to_string();
                assert!(
                    MessageEnvelope::from_json(text.as_bytes()).is_err(),
                    "{field}"
                );
            }
        }
    }
}

#[test]
fn subject_and_header_of_an_example_are_those_of_its_message() {
    for envelope in accepted() {
        let message = &envelope.message;
        let (topic, tenant) = (message.topic(), message.tenant_id());
        let block = format!(
            "Subject: {topic}.{tenant}\nNats-Msg-Id: {}\n",
            envelope.deduplication_id()
        );
        assert!(DOCUMENT.contains(&block), "{block}");
    }
}

#[test]
fn the_event_is_the_one_that_the_command_yields() {
    let mut events = 0;
    for event in accepted() {
        let Message::DueTimeReached(published) = event.message.clone() else {
            continue;
        };
        events += 1;
        let command = of_call("ScheduleTimer", &event);
        let Message::ScheduleTimer(requested) = command.message else {
            unreachable!("it was found by its type");
        };
        assert_eq!(
            (published.due_at, &published.data),
            (requested.due_at, &requested.data)
        );
        assert_eq!(published.firing_id.key, requested.key());
        assert_eq!(
            published.firing_id.registration.registered_at,
            command.timestamp
        );
        assert_eq!(published.firing_id.registration.due_at, requested.due_at);
        assert!(published.reached_at >= published.due_at);
        assert_eq!(
            event.metadata.correlation_id,
            command.metadata.correlation_id
        );
        assert_eq!(event.metadata.causation_id, None);
    }
    assert_eq!(events, 2, "one of a timer, one of a call");
}

/// The example of a type that is about the same call as another.
fn of_call(type_name: &str, other: &MessageEnvelope) -> MessageEnvelope {
    let call = other.message.service_call_id();
    let found = accepted()
        .into_iter()
        .find(|it| it.message.type_name() == type_name && it.message.service_call_id() == call);
    found.unwrap_or_else(|| panic!("there is no {type_name} of {call}"))
}

/// Checks that the examples are the messages of a transition, in order and with their cause.
fn assert_published(step: &CallStep, examples: &[&MessageEnvelope]) {
    assert_eq!(step.outgoing.len(), examples.len());
    for (published, example) in step.outgoing.iter().zip(examples) {
        assert_eq!(published.message, example.message);
        assert_eq!(Some(published.caused_by), example.metadata.causation_id);
        assert!(published.id.is_none_or(|id| id == example.id));
        assert_eq!(
            Some(step.call.details().correlation_id),
            example.metadata.correlation_id
        );
    }
}

fn submitted() -> (MessageEnvelope, SubmitServiceCall) {
    for envelope in accepted() {
        if let Message::SubmitServiceCall(command) = envelope.message.clone() {
            return (envelope, command);
        }
    }
    panic!("there is no SubmitServiceCall");
}

fn scheduled() -> CallStep {
    let (submit, command) = submitted();
    CallDetails {
        key: TimerKey::new(command.tenant_id, command.service_call_id),
        correlation_id: submit.metadata.correlation_id.unwrap(),
        command_id: submit.id,
        name: command.name,
        tags: command.tags,
        submitted_at: of_call("ServiceCallSubmitted", &submit).timestamp,
        due_at: command.due_at,
        request: command.request_spec,
    }
    .schedule()
}

#[test]
fn the_documented_events_of_a_call_are_those_of_its_transitions() {
    let (submit, _) = submitted();
    let of = |name: &str| of_call(name, &submit);
    let step = scheduled();
    assert_published(
        &step,
        &[
            &of("ServiceCallSubmitted"),
            &of("ScheduleTimer"),
            &of("ServiceCallScheduled"),
        ],
    );
    let (ServiceCall::Scheduled(call), Message::DueTimeReached(event)) =
        (step.call, of("DueTimeReached").message)
    else {
        panic!("a call that was accepted is scheduled, and its timer fires");
    };
    let (running, start) = (of("ServiceCallRunning"), of("StartExecution"));
    let step = call
        .start(Start {
            reached_at: event.reached_at,
            now: running.timestamp,
            execution_id: start.id,
            caused_by: of("DueTimeReached").id,
            timeout: Duration::from_secs(30),
        })
        .unwrap();
    assert_published(&step, &[&running, &start]);
    let ServiceCall::Running(call) = step.call else {
        panic!("a call that was started runs");
    };
    for (result, end) in [
        ("ExecutionSucceeded", "ServiceCallSucceeded"),
        ("ExecutionFailed", "ServiceCallFailed"),
    ] {
        let result = of(result);
        let (execution_id, outcome, at) = match result.message.clone() {
            Message::ExecutionSucceeded(event) => (
                event.execution_id,
                Outcome::Succeeded(event.response_meta),
                event.finished_at,
            ),
            Message::ExecutionFailed(event) => (
                event.execution_id,
                Outcome::Failed(event.error_meta),
                event.finished_at,
            ),
            other => panic!("{other:?} is no result"),
        };
        assert_eq!(execution_id, start.id);
        assert_published(&call.clone().finish(outcome, at, result.id), &[&of(end)]);
    }
}

#[test]
fn the_events_of_an_attempt_are_caused_by_its_command() {
    let (submit, _) = submitted();
    let start = of_call("StartExecution", &submit);
    for name in Message::TYPES
        .iter()
        .filter(|name| name.starts_with("Execution"))
    {
        let event = of_call(name, &submit);
        assert_eq!(event.metadata.causation_id, Some(start.id), "{name}");
        let json: Value = serde_json::to_value(&event.message).unwrap();
        assert_eq!(json["executionId"], start.id.to_string(), "{name}");
    }
}

#[test]
fn the_event_of_a_deletion_is_caused_by_its_command() {
    let (submit, _) = submitted();
    let (delete, deleted) = (
        of_call("DeleteServiceCall", &submit),
        of_call("ServiceCallDeleted", &submit),
    );
    let step = scheduled();
    let ServiceCall::Scheduled(call) = &step.call else {
        panic!("a call that was accepted is scheduled");
    };
    let published = call.deletion(deleted.timestamp, delete.id);
    let call = step.call.clone();
    let outgoing = vec![published];
    assert_published(&CallStep { call, outgoing }, &[&deleted]);
}

#[test]
fn no_event_of_the_document_has_the_secrets_of_its_call() {
    let secrets = ["9f86d081884c", "2c26b46b68ff"];
    let mut carriers = BTreeSet::new();
    for envelope in accepted() {
        let json = String::from_utf8(envelope.to_json().unwrap()).unwrap();
        if secrets.iter().any(|secret| json.contains(secret)) {
            carriers.insert(envelope.message.type_name());
        }
    }
    let commands = ["StartExecution", "SubmitServiceCall"];
    assert_eq!(carriers.into_iter().collect::<Vec<_>>(), commands);
}

#[test]
fn a_field_twice_is_refused_except_in_a_submission() {
    let (submit, _) = submitted();
    let deletion = of_call("DeleteServiceCall", &submit);
    for (envelope, is_noticed) in [(submit, false), (deletion, true)] {
        let json = String::from_utf8(envelope.to_json().unwrap()).unwrap();
        let twice = json.replace("\"payload\":{", "\"payload\":{\"tenantId\":\"tenant-a\",");
        assert_ne!(twice, json);
        let read = MessageEnvelope::from_json(twice.as_bytes());
        assert_eq!(read.is_err(), is_noticed, "{read:?}");
    }
}

#[test]
fn every_kind_of_failure_is_explained() {
    for kind in ErrorKind::ALL {
        assert!(DOCUMENT.contains(&format!("\n| `{kind}` | ")), "{kind}");
    }
}

#[test]
fn what_the_document_calls_refused_is_refused_for_the_reason_that_it_gives() {
    for example in of_kind("refused") {
        let stated = example.next_line.strip_prefix("Reason: `");
        let stated = stated.and_then(|it| it.strip_suffix('`')).unwrap();
        let reason = read(&example).unwrap_err().to_string();
        assert!(reason.contains(stated), "{reason} is not {stated}");
    }
}

#[test]
fn the_limits_are_those_of_the_code() {
    let limits = [
        format!("0 to {}", Timestamp::MAX.as_millis()),
        format!("1 to {} of the characters", TenantId::MAX_LEN),
        format!("at most {} KiB of text", TimerData::MAX_LEN / 1024),
        format!("text, 1 to {} characters", CallName::LONGEST),
        format!("1 to {} printable ASCII", IdempotencyKey::LONGEST),
        format!("{} texts of 1 to {} characters", Tags::MOST, Tag::LONGEST),
        format!("at most {} characters of printable", TargetUrl::LONGEST),
        format!(
            "at most {} and {} KiB; each name once",
            Headers::MOST,
            Headers::LONGEST / 1024
        ),
        format!("a text of at most {} KiB", RequestBody::LONGEST / 1024),
        format!("cut after {} KiB", Snippet::LONGEST / 1024),
        format!("at most {} KiB in UTF-8", Snippet::LONGEST / 1024),
        format!("no result of the attempt {} s after", GRACE.as_secs()),
    ];
    for limit in limits {
        assert!(DOCUMENT.contains(&limit), "{limit}");
    }
}
