//! Messages of every type, through JSON and back.

use proptest::prelude::*;
use punctual_domain::messages::{
    DeleteServiceCall, ExecutionFailed, ExecutionStarted, ExecutionSucceeded, Listeners,
    ServiceCallDeleted, ServiceCallFailed, ServiceCallRunning, ServiceCallScheduled,
    ServiceCallSubmitted, ServiceCallSucceeded, StartExecution, SubmitServiceCall,
};
use punctual_domain::service_call::{
    CallName, ErrorKind, ErrorMeta, FailureKind, Headers, IdempotencyKey, Method, RequestBody,
    RequestSpec, ResponseMeta, Tag, Tags,
};
use punctual_domain::{
    CorrelationId, EnvelopeId, Message, MessageEnvelope, MessageMetadata, Registration,
    ScheduleTimer, ScheduledTimer, ServiceCallId, TenantId, TimerData, TimerKey, Timestamp, Topic,
};
use serde_json::{Value, json};
use uuid::Uuid;

/// What messages are made of.
#[derive(Debug, Clone)]
struct Parts {
    tenant_id: TenantId,
    service_call_id: ServiceCallId,
    execution_id: EnvelopeId,
    at: Timestamp,
    due_at: Timestamp,
    name: CallName,
    tags: Tags,
    key: Option<IdempotencyKey>,
    request: RequestSpec,
    response: ResponseMeta,
    error: ErrorMeta,
    timeout_ms: u64,
}

fn instants() -> impl Strategy<Value = Timestamp> {
    (0..=Timestamp::MAX.as_millis()).prop_map(|ms| Timestamp::from_millis(ms).unwrap())
}

fn ids() -> impl Strategy<Value = Uuid> {
    any::<u128>().prop_map(Uuid::from_u128)
}

fn requests() -> impl Strategy<Value = RequestSpec> {
    let header = ("[A-Za-z]{1,8}-[a-z0-9]{1,8}", "[ -~]{0,20}");
    (
        prop::sample::select(Method::ALL.to_vec()),
        "https?://[a-z]{1,12}\\.example(:[1-9][0-9]{0,3})?/[a-z0-9/]{0,20}(\\?[a-z]{1,5}=[a-z0-9]{0,9})?",
        prop::option::of(header),
        prop::option::of("\\PC{0,40}"),
    )
        .prop_map(|(method, url, header, body)| {
            let header = header.map(|(name, value)| (name, value.trim().to_owned()));
            RequestSpec {
                method,
                url: url.parse().unwrap(),
                headers: Headers::new(header.into_iter().collect()).unwrap(),
                body: body.map(|text| RequestBody::new(text).unwrap()),
            }
        })
}

fn responses() -> impl Strategy<Value = ResponseMeta> {
    let headers = prop::option::of(("[a-z]{1,8}", "\\PC{0,20}"));
    let body = prop::option::of("\\PC{0,40}");
    (100..600_u16, headers, body, any::<bool>(), any::<u64>()).prop_map(
        |(status, headers, body, truncated, latency_ms)| ResponseMeta {
            status,
            headers: headers.into_iter().collect(),
            body_snippet: body,
            truncated,
            latency_ms,
        },
    )
}

fn errors() -> impl Strategy<Value = ErrorMeta> {
    (
        prop_oneof![
            prop::sample::select(ErrorKind::ALL.to_vec()).prop_map(FailureKind::from),
            "Of[A-Z][a-z]{0,40}".prop_map(FailureKind::Other),
        ],
        prop::option::of("\\PC{0,40}"),
        prop::option::of(responses()),
        any::<u64>(),
    )
        .prop_map(|(kind, message, details, latency_ms)| ErrorMeta {
            kind,
            message,
            details: details.map(Box::new),
            latency_ms,
        })
}

fn parts() -> impl Strategy<Value = Parts> {
    let who = ("[A-Za-z0-9_-]{1,16}", ids(), ids());
    let labels = (
        "[a-zA-Z0-9äß ]{0,20}[a-z]",
        prop::collection::vec("[a-z0-9]{1,12}", 0..4),
        prop::option::of("[a-z0-9-]{1,20}"),
    );
    (
        who,
        (instants(), instants()),
        labels,
        requests(),
        responses(),
        errors(),
        any::<u64>(),
    )
        .prop_map(
            |(who, times, labels, request, response, error, timeout_ms)| Parts {
                tenant_id: TenantId::new(&who.0).unwrap(),
                service_call_id: ServiceCallId::from_uuid(who.1),
                execution_id: EnvelopeId::from_uuid(who.2),
                at: times.0,
                due_at: times.1,
                name: CallName::new(labels.0.trim()).unwrap(),
                tags: Tags::new(labels.1.into_iter().map(|tag| Tag::new(tag).unwrap())).unwrap(),
                key: labels.2.map(|key| IdempotencyKey::new(key).unwrap()),
                request,
                response,
                error,
                timeout_ms,
            },
        )
}

/// One message of each type.
fn one_of_each(it: &Parts) -> Vec<Message> {
    macro_rules! message {
        ($name:ident { $($field:ident: $value:expr),* }) => {
            Message::from($name {
                tenant_id: it.tenant_id.clone(),
                service_call_id: it.service_call_id,
                $($field: $value,)*
            })
        };
    }
    let (request_spec, at) = (it.request.clone(), it.at);
    let timer = ScheduledTimer {
        key: TimerKey::new(it.tenant_id.clone(), it.service_call_id),
        correlation_id: CorrelationId::from_uuid(Uuid::nil()),
        registration: Registration {
            registered_at: at.min(it.due_at),
            due_at: it.due_at,
        },
        data: Some(TimerData::of(&it.timeout_ms).unwrap()),
    };
    vec![
        message!(SubmitServiceCall {
            name: it.name.clone(),
            due_at: it.due_at,
            request_spec: request_spec.clone(),
            tags: it.tags.clone(),
            idempotency_key: it.key.clone()
        }),
        message!(DeleteServiceCall {}),
        message!(ScheduleTimer {
            due_at: it.due_at,
            data: timer.data.clone()
        }),
        message!(StartExecution {
            request_spec: request_spec.clone(),
            timeout_ms: it.timeout_ms
        }),
        timer.reach(it.due_at).unwrap().event().into(),
        message!(ServiceCallSubmitted {
            name: it.name.clone(),
            request_spec: request_spec.redacted(),
            submitted_at: at,
            tags: it.tags.clone()
        }),
        message!(ServiceCallScheduled { due_at: it.due_at }),
        message!(ServiceCallRunning { started_at: at }),
        message!(ServiceCallSucceeded {
            finished_at: at,
            response_meta: it.response.clone()
        }),
        message!(ServiceCallFailed {
            finished_at: at,
            error_meta: it.error.clone()
        }),
        message!(ServiceCallDeleted { deleted_at: at }),
        message!(ExecutionStarted {
            execution_id: it.execution_id,
            started_at: at
        }),
        message!(ExecutionSucceeded {
            execution_id: it.execution_id,
            finished_at: at,
            response_meta: it.response.clone()
        }),
        message!(ExecutionFailed {
            execution_id: it.execution_id,
            finished_at: at,
            error_meta: it.error.clone()
        }),
    ]
}

fn envelopes() -> impl Strategy<Value = Vec<MessageEnvelope>> {
    let ids = (ids(), prop::option::of(ids()), prop::option::of(ids()));
    (parts(), ids, instants()).prop_map(|(parts, (id, correlation, causation), timestamp)| {
        let wrap = |message| MessageEnvelope {
            id: EnvelopeId::from_uuid(id),
            timestamp,
            metadata: MessageMetadata {
                correlation_id: correlation.map(CorrelationId::from_uuid),
                causation_id: causation.map(EnvelopeId::from_uuid),
            },
            message,
        };
        one_of_each(&parts).into_iter().map(wrap).collect()
    })
}

/// Adds a field that nobody knows to an object and to all objects in it that are not open maps.
fn with_unknown_fields(value: &mut Value) {
    let Value::Object(fields) = value else { return };
    for (name, inner) in fields.iter_mut() {
        if !["headers", "data"].contains(&name.as_str()) {
            with_unknown_fields(inner);
        }
    }
    fields.insert("ofANewerVersion".to_owned(), json!([{"x": null}]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_type_survives_json_and_unknown_fields(envelopes in envelopes()) {
        let types: Vec<&str> = envelopes.iter().map(|it| it.message.type_name()).collect();
        prop_assert_eq!(types, Message::TYPES, "each type is tried");
        for envelope in envelopes {
            let json = envelope.to_json().unwrap();
            prop_assert_eq!(&MessageEnvelope::from_json(&json).unwrap(), &envelope);
            let mut newer: Value = serde_json::from_slice(&json).unwrap();
            with_unknown_fields(&mut newer);
            let newer = serde_json::to_vec(&newer).unwrap();
            prop_assert_eq!(MessageEnvelope::from_json(&newer).unwrap(), envelope);
        }
    }

    #[test]
    fn a_message_is_recognised_by_its_envelope_and_a_firing_by_its_own_id(envelopes in envelopes()) {
        for envelope in envelopes {
            let expected = match &envelope.message {
                Message::DueTimeReached(event) => event.firing_id.to_string(),
                Message::StartExecution(_) => format!("{}:{}", envelope.id, envelope.timestamp.as_millis()),
                _ => envelope.id.to_string(),
            };
            prop_assert_eq!(envelope.deduplication_id(), expected);
            prop_assert_eq!(envelope.clone().redacted().deduplication_id(), envelope.deduplication_id());
        }
    }

    #[test]
    fn modules_receive_every_command_and_every_event_but_what_is_told_about_calls(parts in parts()) {
        for message in one_of_each(&parts) {
            let is_told = message.topic() == Topic::OrchestrationEvents
                && !matches!(message, Message::ServiceCallDeleted(_));
            prop_assert!(Listeners::Anyone.receive(&message));
            prop_assert_eq!(Listeners::Modules.receive(&message), !is_told);
        }
    }

    #[test]
    fn another_tenant_or_call_in_the_envelope_is_refused(envelopes in envelopes()) {
        for envelope in envelopes {
            let json: Value = serde_json::from_slice(&envelope.to_json().unwrap()).unwrap();
            for (field, other) in [("tenantId", json!("tenant-of-nobody-else")), ("aggregateId", json!(Uuid::nil()))] {
                let mut changed = json.clone();
                changed[field] = other;
                prop_assume!(changed != json);
                let changed = serde_json::to_vec(&changed).unwrap();
                prop_assert!(MessageEnvelope::from_json(&changed).is_err());
            }
        }
    }
}
