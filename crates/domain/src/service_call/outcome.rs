//! The outcome of a call: the response of the target, or why there is no successful one.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

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
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub truncated: bool,
    /// Duration of the attempt, in milliseconds; zero if it is not known.
    #[serde(default, deserialize_with = "or_default")]
    pub latency_ms: u64,
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ErrorMeta {
    /// The kind of the failure.
    pub kind: FailureKind,
    /// Description of the failure, redacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The response of the target, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Box<ResponseMeta>>,
    /// Duration of the attempt, in milliseconds; zero if there was none.
    #[serde(default, deserialize_with = "or_default")]
    pub latency_ms: u64,
}

impl ErrorMeta {
    /// A failure without a response.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            message: Some(message.into()),
            details: None,
            latency_ms: 0,
        }
    }
}

named_variants! {
    /// Kind of a failure that this version knows.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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

/// Kind of a failure, as in `errorMeta.kind`. A kind of another version is kept as its text: the outcome of
/// a call must not be lost because a newer instance made the attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FailureKind {
    /// A kind that this version knows.
    Known(ErrorKind),
    /// Any other text, made printable and shortened to [`FailureKind::LONGEST`] characters.
    Other(String),
}

impl FailureKind {
    /// Maximum number of characters kept of an unknown kind.
    pub const LONGEST: usize = 64;

    /// The kind, if this version knows it.
    pub const fn known(&self) -> Option<ErrorKind> {
        match self {
            Self::Known(kind) => Some(*kind),
            Self::Other(_) => None,
        }
    }

    /// The kind as text.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(kind) => kind.as_str(),
            Self::Other(text) => text,
        }
    }

    fn read(text: &str) -> Self {
        let known = ErrorKind::ALL
            .into_iter()
            .find(|kind| kind.as_str() == text);
        known.map_or_else(
            || {
                let printable = text.chars().map(|it| match it {
                    it if it.is_control() => char::REPLACEMENT_CHARACTER,
                    it => it,
                });
                Self::Other(printable.take(Self::LONGEST).collect())
            },
            Self::Known,
        )
    }
}

impl From<ErrorKind> for FailureKind {
    fn from(kind: ErrorKind) -> Self {
        Self::Known(kind)
    }
}

impl PartialEq<ErrorKind> for FailureKind {
    fn eq(&self, kind: &ErrorKind) -> bool {
        self.known() == Some(*kind)
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for FailureKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for FailureKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::read(&String::deserialize(deserializer)?))
    }
}

/// Reads `null` as if the field were absent.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
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
        let map = Option::<BTreeMap<String, String>>::deserialize(deserializer)?;
        Ok(map.unwrap_or_default().into_iter().collect())
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
            let (kind, json) = (FailureKind::from(kind), format!("\"{kind}\""));
            assert_eq!(serde_json::to_string(&kind).unwrap(), json);
            assert_eq!(serde_json::from_str::<FailureKind>(&json).unwrap(), kind);
            assert!(kind.known().is_some());
        }
    }

    #[test]
    fn a_kind_of_another_version_is_kept_as_its_text() {
        let json = r#"{"kind":"QuotaExceeded","message":"no","latencyMs":3}"#;
        let error: ErrorMeta = serde_json::from_str(json).unwrap();
        assert_eq!(error.kind, FailureKind::Other("QuotaExceeded".to_owned()));
        assert_eq!(error.kind.known(), None);
        assert_eq!(serde_json::to_string(&error).unwrap(), json);
        let long = format!("\"{}\\n\"", "x".repeat(1_000));
        let long: FailureKind = serde_json::from_str(&long).unwrap();
        assert_eq!(long.as_str().len(), FailureKind::LONGEST);
        let odd: FailureKind = serde_json::from_str("\"a\\u001b\\nb\"").unwrap();
        assert_eq!(odd.as_str(), "a\u{fffd}\u{fffd}b");
        for wrong in ["7", "null", "{}"] {
            assert!(serde_json::from_str::<FailureKind>(wrong).is_err());
        }
    }

    #[test]
    fn what_is_optional_may_be_absent_or_null() {
        let smallest: ResponseMeta = serde_json::from_str(r#"{"status":200}"#).unwrap();
        let nulls =
            r#"{"status":200,"headers":null,"bodySnippet":null,"truncated":null,"latencyMs":null}"#;
        assert_eq!(
            serde_json::from_str::<ResponseMeta>(nulls).unwrap(),
            smallest
        );
        assert_eq!(smallest.latency_ms, 0);
        let smallest: ErrorMeta = serde_json::from_str(r#"{"kind":"Timeout"}"#).unwrap();
        let nulls = r#"{"kind":"Timeout","message":null,"details":null,"latencyMs":null}"#;
        assert_eq!(serde_json::from_str::<ErrorMeta>(nulls).unwrap(), smallest);
    }
}
