//! One line of a batch: what it may say, and which field is wrong if it is.

use std::collections::BTreeMap;
use std::fmt::Display;

use punctual_domain::{CorrelationId, ServiceCallId, TenantId, TimerData, TimerKey, Timestamp};
use serde_json::error::Category;
use serde_json::value::RawValue;

use crate::display::cut;
use crate::parse;

const FIELDS: &str = "tenantId, serviceCallId or name, dueAt, correlationId and data are known";

/// What a line asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BatchLine {
    pub(super) tenant_id: TenantId,
    /// `None`: an id is to be drawn.
    pub(super) service_call_id: Option<ServiceCallId>,
    pub(super) due_at: Timestamp,
    pub(super) correlation_id: Option<CorrelationId>,
    pub(super) data: Option<TimerData>,
}

impl BatchLine {
    /// Reads a line, or says which field is wrong and what would be right.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
        let mut fields: BTreeMap<String, Box<RawValue>> =
            serde_json::from_str(text).map_err(|error| no_object(&error))?;
        fields.retain(|_, value| value.get() != "null");
        let tenant_id = read(&mut fields, "tenantId", str::parse::<TenantId>)?
            .ok_or("tenantId is missing: whose timer is it?")?;
        let id = read(&mut fields, "serviceCallId", str::parse)?;
        let name = read(&mut fields, "name", parse::name)?;
        let service_call_id = match (id, name) {
            (Some(_), Some(_)) => {
                return Err("serviceCallId and name are both given: give one of them".to_owned());
            }
            (Some(id), None) => Some(id),
            (None, Some(name)) => Some(TimerKey::named(tenant_id.clone(), &name).service_call_id),
            (None, None) => None,
        };
        let due_at = read(&mut fields, "dueAt", str::parse)?
            .ok_or("dueAt is missing: write it like 2026-12-24T18:00:00Z")?;
        let correlation_id = read(&mut fields, "correlationId", str::parse)?;
        let data = fields
            .remove("data")
            .map(|raw| TimerData::from_json(raw.get()));
        let data = data.transpose().map_err(|error| error.to_string())?;
        match fields.keys().next() {
            None => Ok(Self {
                tenant_id,
                service_call_id,
                due_at,
                correlation_id,
                data,
            }),
            Some(unknown) => Err(format!("there is no field \"{}\": {FIELDS}", cut(unknown))),
        }
    }
}

/// Takes a field that is text out of the line.
fn read<T, E: Display>(
    fields: &mut BTreeMap<String, Box<RawValue>>,
    field: &str,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<Option<T>, String> {
    let Some(raw) = fields.remove(field) else {
        return Ok(None);
    };
    let text: String = serde_json::from_str(raw.get())
        .map_err(|_| format!("{field} is not text: write it in double quotes"))?;
    let value = parse(&text).map_err(|error| format!("{field}: {error}"))?;
    Ok(Some(value))
}

/// What keeps a line from being an object, without the words that only the parser's grammar explains.
fn no_object(error: &serde_json::Error) -> String {
    const LIKE: &str =
        r#"write it like {"tenantId":"demo","name":"tea","dueAt":"2026-12-24T18:00:00Z"}"#;
    match error.classify() {
        Category::Eof => {
            format!(
                "it is not a JSON object (it ends too early: a quote or brace is missing): {LIKE}"
            )
        }
        Category::Data => format!("it is JSON, but not a JSON object: {LIKE}"),
        // Every line is line 1 to the parser; the column alone is of use.
        Category::Syntax | Category::Io => format!(
            "it is not a JSON object (see column {}): {LIKE}",
            error.column()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complete_line_is_read() {
        let line = BatchLine::parse(
            br#"{"tenantId":"a","name":"x","dueAt":"2026-12-24T18:00:00+01:00","correlationId":"0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8e","data":{"n": 1.50}}"#,
        )
        .unwrap();
        let key = TimerKey::named(line.tenant_id.clone(), "x");
        assert_eq!(line.service_call_id, Some(key.service_call_id));
        assert_eq!(line.due_at.to_string(), "2026-12-24T17:00:00.000Z");
        assert_eq!(line.data.unwrap().as_json(), r#"{"n": 1.50}"#);
    }

    #[test]
    fn what_is_absent_or_null_is_left_out() {
        let line = br#"{"tenantId":"a","dueAt":"2026-12-24T18:00:00Z","data":null,"name":null}"#;
        let line = BatchLine::parse(line).unwrap();
        assert_eq!((line.service_call_id, line.data), (None, None));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let due = r#""dueAt":"2026-12-24T18:00:00Z""#;
        for (line, named) in [
            ("hello".to_owned(), "JSON object"),
            ("[1]".to_owned(), "it is JSON, but not a JSON object"),
            ("{\"tenantId\":".to_owned(), "it ends too early"),
            ("{'tenantId':1}".to_owned(), "see column 2"),
            ("{}".to_owned(), "tenantId is missing"),
            (r#"{"tenantId":"a"}"#.to_owned(), "dueAt is missing"),
            (
                r#"{"tenantId":"a","dueAt":"tomorrow"}"#.to_owned(),
                "dueAt: \"tomorrow\"",
            ),
            (
                r#"{"tenantId":"a","dueAt":17}"#.to_owned(),
                "dueAt is not text",
            ),
            (
                format!(r#"{{"tenantId":"a b",{due}}}"#),
                "tenantId: tenant id has ' '",
            ),
            (
                format!(r#"{{"tenantId":"a","serviceCallId":"7",{due}}}"#),
                "serviceCallId: ",
            ),
            (
                format!(r#"{{"tenantId":"a","correlationId":"7",{due}}}"#),
                "correlationId: ",
            ),
            (format!(r#"{{"tenantId":"a","name":"",{due}}}"#), "name: "),
            (
                format!(
                    r#"{{"tenantId":"a","name":"x","serviceCallId":"0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8e",{due}}}"#
                ),
                "both given",
            ),
            (
                format!(r#"{{"tenantId":"a","due_at":1,{due}}}"#),
                "\"due_at\"",
            ),
            (
                format!(
                    r#"{{"tenantId":"a",{due},"data":"{}"}}"#,
                    "x".repeat(17_000)
                ),
                "data has",
            ),
        ] {
            let sentence = BatchLine::parse(line.as_bytes()).unwrap_err();
            assert!(sentence.contains(named), "{line}: {sentence}");
        }
        assert!(BatchLine::parse(b"\xff").unwrap_err().contains("UTF-8"));
    }
}
