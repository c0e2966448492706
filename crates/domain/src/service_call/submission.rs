//! Submissions of calls, validated so that all errors are reported at once.

use serde_json::{Map, Value};

use super::field_errors::step;
use super::headers;
use super::{
    CallName, FieldErrors, Headers, IdempotencyKey, Method, RequestBody, RequestSpec, Tag, Tags,
    TargetUrl,
};
use crate::{ServiceCallId, TenantId, Timestamp, excerpt};

/// A submitted call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    /// The tenant.
    pub tenant_id: TenantId,
    /// The id, if the sender chooses it.
    pub service_call_id: Option<ServiceCallId>,
    /// Display name.
    pub name: CallName,
    /// When the request is to be made; a past instant means now.
    pub due_at: Timestamp,
    /// The request.
    pub request: RequestSpec,
    /// Tags to search by.
    pub tags: Tags,
    /// Identifies repetitions of this submission.
    pub idempotency_key: Option<IdempotencyKey>,
}

/// How to treat an unknown field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownFields {
    /// Report it: the sender gets the response at once and can correct it.
    Refused,
    /// Ignore it: the sender has a newer version.
    Ignored,
}

const FIELDS: &[&str] = &[
    "name",
    "dueAt",
    "requestSpec",
    "tags",
    "serviceCallId",
    "idempotencyKey",
];
const REQUEST_FIELDS: &[&str] = &["method", "url", "headers", "body"];

impl Submission {
    /// Parses a submission from a JSON object.
    ///
    /// # Errors
    /// With all errors, each with a pointer to its field.
    pub fn read(
        tenant_id: TenantId,
        json: &Value,
        unknown: UnknownFields,
    ) -> Result<Self, FieldErrors> {
        let mut errors = FieldErrors::default();
        let Some(fields) = json.as_object() else {
            errors.add("", "it is not a JSON object");
            return Err(errors);
        };
        let mut reader = Reader {
            errors: &mut errors,
            unknown,
        };
        reader.refuse_unknown("", fields, FIELDS);
        let name = reader.required("/name", fields.get("name"), CallName::new);
        let due_at = reader.required("/dueAt", fields.get("dueAt"), |text: &str| {
            text.parse::<Timestamp>()
        });
        let request = reader.request(fields.get("requestSpec"));
        let tags = reader.tags(fields.get("tags"));
        let service_call_id = reader.optional(
            "/serviceCallId",
            fields.get("serviceCallId"),
            |text: &str| text.parse::<ServiceCallId>(),
        );
        let key = fields.get("idempotencyKey");
        let idempotency_key = reader.optional("/idempotencyKey", key, IdempotencyKey::new);
        match (name, due_at, request, tags) {
            (Some(name), Some(due_at), Some(request), Some(tags)) if errors.is_empty() => {
                Ok(Self {
                    tenant_id,
                    service_call_id,
                    name,
                    due_at,
                    request,
                    tags,
                    idempotency_key,
                })
            }
            _ => Err(errors),
        }
    }

    /// Whether the sender chose the id. One that is drawn from the key says no more than the key does.
    pub fn has_chosen_id(&self) -> bool {
        self.service_call_id.is_some_and(|id| {
            let key = self.idempotency_key.as_ref();
            key.is_none_or(|key| id != ServiceCallId::drawn_from_key(&self.tenant_id, key))
        })
    }

    /// Canonical text of the submission without the fields that identify repetitions: equal submissions
    /// have equal texts. It contains secrets and is only to be hashed.
    pub fn canonical(&self) -> String {
        let mut headers: Vec<(String, &str)> = self
            .request
            .headers
            .iter()
            .map(|(name, value)| (name.to_ascii_lowercase(), value))
            .collect();
        headers.sort_unstable();
        // A list, so that the order is fixed and fields cannot be confused.
        serde_json::json!([
            self.name,
            self.due_at,
            self.request.method,
            self.request.url,
            headers,
            self.request.body,
            self.tags,
        ])
        .to_string()
    }
}

struct Reader<'a> {
    errors: &'a mut FieldErrors,
    unknown: UnknownFields,
}

impl Reader<'_> {
    fn refuse_unknown(&mut self, place: &str, fields: &Map<String, Value>, known: &[&str]) {
        if self.unknown == UnknownFields::Ignored {
            return;
        }
        for name in fields.keys().filter(|name| !known.contains(&name.as_str())) {
            let pointer = format!("{place}/{}", step(&excerpt(name)));
            let known = known.join(", ");
            self.errors
                .add(pointer, format!("is unknown: {known} are known"));
        }
    }

    fn required<'v, T, E: std::fmt::Display>(
        &mut self,
        pointer: &str,
        value: Option<&'v Value>,
        read: impl FnOnce(&'v str) -> Result<T, E>,
    ) -> Option<T> {
        match value {
            None | Some(Value::Null) => {
                self.errors.add(pointer, "is missing");
                None
            }
            some => self.optional(pointer, some, read),
        }
    }

    fn optional<'v, T, E: std::fmt::Display>(
        &mut self,
        pointer: &str,
        value: Option<&'v Value>,
        read: impl FnOnce(&'v str) -> Result<T, E>,
    ) -> Option<T> {
        match value {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => self.errors.check(pointer, read(text)),
            Some(other) => {
                let detail = format!("is {}, and has to be a text", kind(other));
                self.errors.add(pointer, detail);
                None
            }
        }
    }

    fn request(&mut self, value: Option<&Value>) -> Option<RequestSpec> {
        let fields = match value {
            None | Some(Value::Null) => {
                self.errors.add("/requestSpec", "is missing");
                return None;
            }
            Some(Value::Object(fields)) => fields,
            Some(other) => {
                let detail = format!("is {}, and has to be an object", kind(other));
                self.errors.add("/requestSpec", detail);
                return None;
            }
        };
        self.refuse_unknown("/requestSpec", fields, REQUEST_FIELDS);
        let method = fields.get("method");
        let method = self.required("/requestSpec/method", method, |text: &str| {
            text.parse::<Method>()
        });
        let url = self.required("/requestSpec/url", fields.get("url"), |text: &str| {
            text.parse::<TargetUrl>()
        });
        let headers = self.headers(fields.get("headers"));
        let body = self.optional("/requestSpec/body", fields.get("body"), RequestBody::new);
        Some(RequestSpec {
            method: method?,
            url: url?,
            headers: headers?,
            body,
        })
    }

    fn headers(&mut self, value: Option<&Value>) -> Option<Headers> {
        const PLACE: &str = "/requestSpec/headers";
        let fields = match value {
            None | Some(Value::Null) => return Some(Headers::default()),
            Some(Value::Object(fields)) => fields,
            Some(other) => {
                let detail = format!("are {}, and have to be an object", kind(other));
                self.errors.add(PLACE, detail);
                return None;
            }
        };
        let mut pairs = Vec::new();
        let mut all_right = true;
        for (name, value) in fields {
            let pointer = format!("{PLACE}/{}", step(&excerpt(name)));
            let value = self.required(&pointer, Some(value), |text: &str| {
                headers::check(name, text).map(|()| text.to_owned())
            });
            match value {
                Some(value) => pairs.push((name.clone(), value)),
                None => all_right = false,
            }
        }
        let together = self.errors.check(PLACE, Headers::new(pairs))?;
        all_right.then_some(together)
    }

    fn tags(&mut self, value: Option<&Value>) -> Option<Tags> {
        let values = match value {
            None | Some(Value::Null) => return Some(Tags::default()),
            Some(Value::Array(values)) => values,
            Some(other) => {
                let detail = format!("are {}, and have to be a list", kind(other));
                self.errors.add("/tags", detail);
                return None;
            }
        };
        let mut tags = Vec::new();
        for (number, value) in values.iter().enumerate() {
            tags.push(self.required(&format!("/tags/{number}"), Some(value), Tag::new));
        }
        let tags: Option<Vec<Tag>> = tags.into_iter().collect();
        self.errors.check("/tags", Tags::new(tags?))
    }
}

const fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(json: &Value) -> Result<Submission, FieldErrors> {
        Submission::read(TenantId::default(), json, UnknownFields::Refused)
    }

    fn good() -> Value {
        json!({
            "name": "remind", "dueAt": "2026-12-24T18:00:00Z",
            "requestSpec": {"method": "POST", "url": "https://example.com/a", "headers": {"A": "b"}, "body": "{}"},
            "tags": ["x", "y"], "serviceCallId": "0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8e", "idempotencyKey": "k",
        })
    }

    #[test]
    fn a_good_one_is_read() {
        let submission = read(&good()).unwrap();
        assert_eq!(submission.name.as_str(), "remind");
        assert_eq!(submission.request.headers.get("a"), Some("b"));
        assert_eq!(submission.tags.iter().count(), 2);
        let smallest = json!({"name": "n", "dueAt": "2026-12-24T18:00:00Z",
            "requestSpec": {"method": "GET", "url": "http://a"}, "tags": null});
        assert!(read(&smallest).unwrap().tags.is_empty());
    }

    #[test]
    fn all_errors_are_reported_at_once_with_their_pointers() {
        let errors = read(&json!({
            "name": "", "dueAt": 7, "requestSpec": {"method": "get", "url": "nowhere", "verb": 1,
                "headers": {"Host": "h", "a/b": "v", "N": 1}, "body": []},
            "tags": ["", 3, "ok"], "serviceCallId": "x", "idempotencyKey": "", "extra": true,
        }))
        .unwrap_err();
        let mut pointers: Vec<&str> = errors.iter().map(|e| e.pointer.as_str()).collect();
        pointers.sort_unstable();
        assert_eq!(
            pointers,
            [
                "/dueAt",
                "/extra",
                "/idempotencyKey",
                "/name",
                "/requestSpec/body",
                "/requestSpec/headers/Host",
                "/requestSpec/headers/N",
                "/requestSpec/headers/a~1b",
                "/requestSpec/method",
                "/requestSpec/url",
                "/requestSpec/verb",
                "/serviceCallId",
                "/tags/0",
                "/tags/1",
            ]
        );
        let nothing = read(&json!({})).unwrap_err();
        assert_eq!(
            nothing.to_string(),
            "/name: is missing; /dueAt: is missing; /requestSpec: is missing"
        );
        for other in [json!([]), json!(null), json!("x"), json!(1)] {
            assert_eq!(
                read(&other).unwrap_err().to_string(),
                "it is not a JSON object"
            );
        }
    }

    #[test]
    fn unknown_fields_of_a_newer_sender_may_be_ignored() {
        let mut newer = good();
        newer["priority"] = json!(1);
        newer["requestSpec"]["retries"] = json!(1);
        assert_eq!(read(&newer).unwrap_err().iter().count(), 2);
        let ignored = Submission::read(TenantId::default(), &newer, UnknownFields::Ignored);
        assert_eq!(ignored.unwrap(), read(&good()).unwrap());
    }

    #[test]
    fn an_id_is_chosen_unless_it_is_drawn_from_the_key() {
        let chosen = read(&good()).unwrap();
        assert!(chosen.has_chosen_id());
        let drawn = |it: &Submission| {
            let key = it.idempotency_key.as_ref().unwrap();
            Some(ServiceCallId::drawn_from_key(&it.tenant_id, key))
        };
        let mut other = chosen.clone();
        other.service_call_id = drawn(&chosen);
        assert!(!other.has_chosen_id());
        other.idempotency_key = Some(IdempotencyKey::new("another").unwrap());
        assert!(other.has_chosen_id());
        other.idempotency_key = None;
        assert!(other.has_chosen_id());
        other.service_call_id = None;
        assert!(!other.has_chosen_id());
    }

    #[test]
    fn two_are_the_same_whatever_the_order_and_spelling_of_their_fields() {
        let one = read(&good()).unwrap().canonical();
        let mut other = good();
        other["tags"] = json!(["y", "x", "x"]);
        other["dueAt"] = json!("2026-12-24T19:00:00+01:00");
        other["requestSpec"]["headers"] = json!({"a": "b"});
        other["idempotencyKey"] = json!("another");
        other.as_object_mut().unwrap().remove("serviceCallId");
        assert_eq!(read(&other).unwrap().canonical(), one);
        for (field, value) in [
            ("name", json!("r")),
            ("dueAt", json!("2026-12-24T18:00:00.001Z")),
            ("tags", json!(["x"])),
        ] {
            let mut other = good();
            other[field] = value;
            assert_ne!(read(&other).unwrap().canonical(), one, "{field}");
        }
        for (field, value) in [
            ("method", json!("PUT")),
            ("url", json!("https://example.com/b")),
            ("body", json!("{ }")),
            ("headers", json!({"a": "c"})),
        ] {
            let mut other = good();
            other["requestSpec"][field] = value;
            assert_ne!(read(&other).unwrap().canonical(), one, "{field}");
        }
    }
}
