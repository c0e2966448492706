//! Messages of the version before, recorded byte for byte: they may be in a broker or an outbox while
//! instances are replaced, and instances of that version read what this one writes.
//!
//! `previous_version.tsv` has subject, deduplication id and message of each type, once with the least and
//! once with every field. `previous_version_required.tsv` has the fields without which that version refuses
//! a message. When messages change, these files stay as they are until the next release.

use punctual_domain::{Message, MessageEnvelope};
use serde_json::{Value, json};

const RECORDED: &str = include_str!("previous_version.tsv");
const REQUIRED: &str = include_str!("previous_version_required.tsv");

/// Deduplication id and message of each line.
fn recorded() -> impl Iterator<Item = (&'static str, &'static str)> {
    RECORDED.lines().map(|line| {
        let mut fields = line.split('\t').skip(1);
        (fields.next().unwrap(), fields.next().unwrap())
    })
}

fn read(json: &str) -> MessageEnvelope {
    MessageEnvelope::from_json(json.as_bytes()).unwrap()
}

/// Checks that the previous version would find all that it needs.
fn has_what_was_required(envelope: &MessageEnvelope) {
    let json: Value = serde_json::from_slice(&envelope.to_json().unwrap()).unwrap();
    for line in REQUIRED.lines() {
        let (type_name, pointer) = line.split_once('\t').unwrap();
        // What is required of an object that is optional itself, such as the details of a failure.
        let (parent, _) = pointer.rsplit_once('/').unwrap();
        if type_name == envelope.message.type_name() && json.pointer(parent).is_some() {
            let found = json.pointer(pointer);
            assert!(
                found.is_some_and(|it| !it.is_null()),
                "{type_name}: {pointer}"
            );
        }
    }
}

#[test]
fn each_message_is_understood_and_would_be_written_byte_for_byte_the_same() {
    let mut types: Vec<&str> = Vec::new();
    for (deduplication_id, json) in recorded() {
        let envelope = read(json);
        types.push(envelope.message.type_name());
        assert_eq!(envelope.deduplication_id(), deduplication_id);
        let written = String::from_utf8(envelope.to_json().unwrap()).unwrap();
        assert_eq!(written, json);
        has_what_was_required(&envelope);
    }
    assert_eq!(types, [Message::TYPES, Message::TYPES].concat());
}

#[test]
fn what_is_understood_now_is_passed_on_so_that_the_previous_version_understands_it() {
    let left_out = [
        ("SubmitServiceCall", "/payload/serviceCallId"),
        ("DueTimeReached", "/payload/reachedAt"),
        ("DueTimeReached", "/payload/dueAt"),
        ("DueTimeReached", "/payload/firingId"),
        ("ServiceCallSucceeded", "/payload/responseMeta/latencyMs"),
        ("ServiceCallFailed", "/payload/errorMeta/latencyMs"),
        ("ServiceCallFailed", "/payload/errorMeta/details/latencyMs"),
        ("ExecutionSucceeded", "/payload/responseMeta/latencyMs"),
        ("ExecutionFailed", "/payload/errorMeta/latencyMs"),
    ];
    for (type_name, pointer) in left_out {
        let mut tried = 0;
        for (_, json) in recorded() {
            let mut json: Value = serde_json::from_str(json).unwrap();
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            if json["type"] != type_name || json.pointer(parent).is_none() {
                continue;
            }
            tried += 1;
            for aggregate_id in [json["aggregateId"].clone(), Value::Null] {
                json["aggregateId"] = aggregate_id;
                let object = json.pointer_mut(parent).unwrap();
                object.as_object_mut().unwrap().remove(field);
                has_what_was_required(&read(&json.to_string()));
                json.pointer_mut(parent).unwrap()[field] = json!(null);
                has_what_was_required(&read(&json.to_string()));
            }
        }
        assert!(tried > 0, "{type_name} {pointer}");
    }
}

#[test]
fn what_was_required_is_what_would_be_missed() {
    let is_known = |line: &str| {
        let (type_name, _) = line.split_once('\t').unwrap();
        Message::TYPES.contains(&type_name)
    };
    assert!(REQUIRED.lines().count() > 100 && REQUIRED.lines().all(is_known));
}
