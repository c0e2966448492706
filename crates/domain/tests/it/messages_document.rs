//! The examples of `docs/messages.md` are what authors in other languages copy: each is read here
//! as the service would read it.

use punctual_domain::{EnvelopeError, Message, MessageEnvelope, TenantId, TimerData, Timestamp};
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
        let (written, shown): (Value, Value) = (
            serde_json::from_slice(&written).unwrap(),
            serde_json::from_str(&example.text).unwrap(),
        );
        assert_eq!(written, shown);
    }
}

#[test]
fn there_is_an_example_of_each_message() {
    let mut names: Vec<_> = accepted().iter().map(|it| it.message.type_name()).collect();
    names.sort_unstable();
    assert_eq!(names, ["DueTimeReached", "ScheduleTimer"]);
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
        let (topic, tenant, call) = (
            message.topic(),
            message.tenant_id(),
            message.service_call_id(),
        );
        let block = format!(
            "Subject: {topic}.{tenant}.{call}\nNats-Msg-Id: {}\n",
            envelope.deduplication_id()
        );
        assert!(DOCUMENT.contains(&block), "{block}");
    }
}

#[test]
fn the_event_is_the_one_that_the_command_yields() {
    let (mut command, mut event) = (None, None);
    for envelope in accepted() {
        match envelope.message.clone() {
            Message::ScheduleTimer(payload) => command = Some((envelope, payload)),
            Message::DueTimeReached(payload) => event = Some((envelope, payload)),
            other => panic!("{other:?} is not documented"),
        }
    }
    let ((command, asked), (event, told)) = (command.unwrap(), event.unwrap());
    assert_eq!(told.key(), asked.key());
    assert_eq!((told.due_at, &told.data), (asked.due_at, &asked.data));
    assert_eq!(told.firing_id.key, asked.key());
    assert_eq!(told.firing_id.registration.registered_at, command.timestamp);
    assert_eq!(told.firing_id.registration.due_at, asked.due_at);
    assert!(told.reached_at >= told.due_at);
    assert_eq!(
        event.metadata.correlation_id,
        command.metadata.correlation_id
    );
    assert_eq!(event.metadata.causation_id, None);
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
    ];
    for limit in limits {
        assert!(DOCUMENT.contains(&limit), "{limit}");
    }
}
