//! JSON Schemas of the values that are serialised as one text, number or list; structs derive theirs.
//!
//! A schema for input has the limits of the parser, one for output the form of the serialisation.

use std::borrow::Cow;

use schemars::generate::Contract;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::service_call::{
    CallName, CallStatus, ErrorKind, FailureKind, Headers, IdempotencyKey, Method, RequestBody,
    Tag, Tags, TargetUrl,
};
use crate::{CorrelationId, EnvelopeId, ServiceCallId, TenantId, TimerData, TimerState, Timestamp};

/// Text without control characters.
const PRINTABLE: &str = r"^[^\u0000-\u001f\u007f-\u009f]*$";
/// The names of headers.
const HEADER_NAME: &str = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$";
/// The values of headers: printable ASCII and tabs, without blanks at either end.
const HEADER_VALUE: &str = r"^([!-~]([\t -~]*[!-~])?)?$";
/// Absolute http or https URLs in ASCII, without a user and a fragment.
const URL: &str = r"^https?://[^\u0000-\u0020\u007f-\uffff\x22#<>@\\^`{|}]+$";

macro_rules! schemas {
    ($($type:ident, $inline:literal, $schema:expr;)*) => {$(
        impl JsonSchema for $type {
            fn inline_schema() -> bool {
                $inline
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                let schema: fn(&Contract) -> Schema = $schema;
                schema(generator.contract())
            }
        }
    )*};
}

schemas! {
    ServiceCallId, true, |_| uuid();
    CorrelationId, true, |_| uuid();
    EnvelopeId, true, |_| uuid();
    TenantId, true, |_| text(TenantId::MAX_LEN, "^[A-Za-z0-9_-]+$");
    CallName, true, |_| text(CallName::LONGEST, PRINTABLE);
    Tag, true, |_| text(Tag::LONGEST, PRINTABLE);
    IdempotencyKey, true, |_| text(IdempotencyKey::LONGEST, "^[ -~]*$");
    Method, false, |_| names(&Method::ALL.map(Method::as_str));
    CallStatus, false, |_| names(&CallStatus::ALL.map(CallStatus::as_str));
    FailureKind, false, |_| json_schema!({
        "type": "string",
        "maxLength": FailureKind::LONGEST,
        "examples": ErrorKind::ALL.map(ErrorKind::as_str),
        "description": "One of the examples, or the kind of another version.",
    });
    TimerState, false, |_| json_schema!({
        "type": "string",
        "enum": [TimerState::Scheduled, TimerState::Reached],
    });
    Tags, true, |_| json_schema!({
        "type": "array",
        "items": text(Tag::LONGEST, PRINTABLE),
        "maxItems": Tags::MOST,
    });
    TimerData, true, |_| json_schema!({
        "description": format!("Any JSON, at most {} bytes; null is none.", TimerData::MAX_LEN),
    });
    Timestamp, true, |contract| if contract.is_serialize() {
        json_schema!({
            "type": "string",
            "format": "date-time",
            "pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$",
        })
    } else {
        json_schema!({
            "type": "string",
            "format": "date-time",
            "description": "RFC 3339, from 1970 to 9998; rounded up to a millisecond.",
        })
    };
    TargetUrl, true, |contract| if contract.is_serialize() {
        json_schema!({ "type": "string", "maxLength": TargetUrl::LONGEST })
    } else {
        json_schema!({
            "type": "string",
            "format": "uri",
            "minLength": 1,
            "maxLength": TargetUrl::LONGEST,
            "pattern": URL,
            "description": "Absolute, http or https, without a user and a fragment, in ASCII.",
        })
    };
    Headers, true, |contract| if contract.is_serialize() {
        json_schema!({ "type": "object", "additionalProperties": { "type": "string" } })
    } else {
        json_schema!({
            "type": "object",
            "maxProperties": Headers::MOST,
            "propertyNames": { "pattern": HEADER_NAME },
            "additionalProperties": { "type": "string", "pattern": HEADER_VALUE },
            "description": format!(
                "At most {} bytes in names and values together. Those that belong to the connection, and \
                 those that are set for every call (Host, Content-Length, Idempotency-Key, \
                 X-Correlation-Id, traceparent, …), are refused.",
                Headers::LONGEST
            ),
        })
    };
    RequestBody, true, |_| json_schema!({
        "type": "string",
        "maxLength": RequestBody::LONGEST,
        "description": format!("At most {} bytes.", RequestBody::LONGEST),
    });
}

fn uuid() -> Schema {
    json_schema!({ "type": "string", "format": "uuid" })
}

fn text(longest: usize, pattern: &str) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": longest, "pattern": pattern })
}

fn names(all: &[&str]) -> Schema {
    json_schema!({ "type": "string", "enum": all })
}
