//! The outcome of a call: the response of the target, or why there is no successful one.

use serde::{Deserialize, Serialize};

use crate::text_forms::named_variants;

/// The response of a target: its status, its redacted headers and the start of its body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ResponseMeta {
    /// The HTTP status.
    pub status: u16,
    /// The headers, redacted.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "header_map")]
    #[cfg_attr(
        feature = "schemars",
        schemars(with = "std::collections::BTreeMap<String, String>")
    )]
    pub headers: Vec<(String, String)>,
    /// The start of the body, redacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_snippet: Option<String>,
    /// Whether the body was longer than the snippet; it was received completely.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// Duration of the attempt, in milliseconds.
    pub latency_ms: u64,
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ErrorMeta {
    /// The kind of the failure.
    pub kind: ErrorKind,
    /// Description of the failure, redacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The response of the target, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Box<ResponseMeta>>,
    /// Duration of the attempt, in milliseconds; zero if there was none.
    #[serde(default)]
    pub latency_ms: u64,
}

impl ErrorMeta {
    /// A failure without a response.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: Some(message.into()),
            details: None,
            latency_ms: 0,
        }
    }
}

named_variants! {
    /// Kind of a failure, as in `errorMeta.kind`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[non_exhaustive]
    pub enum ErrorKind {
        /// The status of the response is not 2xx.
        HttpStatus = "HttpStatus",
        /// There was no complete response in time.
        Timeout = "Timeout",
        /// The process ended during the attempt: whether the target received the request is unknown.
        Interrupted = "Interrupted",
        /// The address of the target is not allowed.
        TargetNotAllowed = "TargetNotAllowed",
        /// The host name has no address.
        NameNotResolved = "NameNotResolved",
        /// No connection could be made.
        ConnectFailed = "ConnectFailed",
        /// The TLS handshake failed.
        TlsFailed = "TlsFailed",
        /// The connection ended before the response was complete.
        ConnectionLost = "ConnectionLost",
        /// The response is not HTTP.
        BadResponse = "BadResponse",
        /// The request cannot be sent as it is.
        InvalidRequest = "InvalidRequest",
        /// The call is older than the execution of calls.
        Migrated = "Migrated",
    }
}

/// Outcome of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The target responded with 2xx.
    Succeeded(ResponseMeta),
    /// Anything else.
    Failed(ErrorMeta),
}

/// Headers as a JSON object; the values of repeated names are joined.
mod header_map {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::collections::BTreeMap;

    pub(super) fn serialize<S: Serializer>(
        headers: &[(String, String)],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let mut joined: BTreeMap<String, String> = BTreeMap::new();
        for (name, value) in headers {
            joined
                .entry(name.to_ascii_lowercase())
                .and_modify(|all| {
                    all.push_str(", ");
                    all.push_str(value);
                })
                .or_insert_with(|| value.clone());
        }
        serializer.collect_map(joined)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<(String, String)>, D::Error> {
        let map = BTreeMap::<String, String>::deserialize(deserializer)?;
        Ok(map.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_is_the_one_of_the_contract() {
        let response = ResponseMeta {
            status: 200,
            headers: vec![("a".into(), "1".into()), ("A".into(), "2".into())],
            body_snippet: Some("ok".into()),
            truncated: false,
            latency_ms: 7,
        };
        let json = r#"{"status":200,"headers":{"a":"1, 2"},"bodySnippet":"ok","latencyMs":7}"#;
        assert_eq!(serde_json::to_string(&response).unwrap(), json);
        let truncated = ResponseMeta {
            truncated: true,
            ..response
        };
        let json = json.replace("ok\",", "ok\",\"truncated\":true,");
        assert_eq!(serde_json::to_string(&truncated).unwrap(), json);
        let error = ErrorMeta::new(ErrorKind::Timeout, "no answer");
        let json = r#"{"kind":"Timeout","message":"no answer","latencyMs":0}"#;
        assert_eq!(serde_json::to_string(&error).unwrap(), json);
        assert_eq!(serde_json::from_str::<ErrorMeta>(json).unwrap(), error);
    }

    #[test]
    fn a_kind_is_written_as_it_is_called() {
        for kind in ErrorKind::ALL {
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
        }
    }
}
