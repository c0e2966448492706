//! How a call ended: what the target answered, or why there is no good answer.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The response of a target: its status, and of its headers and body what may be kept.
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
    /// The beginning of the body, redacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_snippet: Option<String>,
    /// Whether the body was longer than that; it was received to its end all the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// How long the attempt took, in milliseconds.
    pub latency_ms: u64,
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ErrorMeta {
    /// What kind of failure it was.
    pub kind: ErrorKind,
    /// What happened, in words, redacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What the target answered, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Box<ResponseMeta>>,
    /// How long the attempt took, in milliseconds; zero if there was none.
    #[serde(default)]
    pub latency_ms: u64,
}

impl ErrorMeta {
    /// A failure without an answer.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: Some(message.into()),
            details: None,
            latency_ms: 0,
        }
    }
}

/// The kinds of failure, by name in `errorMeta.kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The target answered with another status than 2xx.
    HttpStatus,
    /// There was no whole answer in time.
    Timeout,
    /// The attempt had begun when the process ended: whether the target got it is not known.
    Interrupted,
    /// The target's address is not one that calls may reach.
    TargetNotAllowed,
    /// The host's name has no address.
    NameNotResolved,
    /// No connection could be made.
    ConnectFailed,
    /// No secure connection could be made.
    TlsFailed,
    /// The connection ended before the whole answer had come.
    ConnectionLost,
    /// What came back is not HTTP.
    BadResponse,
    /// The request cannot be made as it is.
    InvalidRequest,
    /// It was there before calls could be made.
    Migrated,
}

impl ErrorKind {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::HttpStatus,
        Self::Timeout,
        Self::Interrupted,
        Self::TargetNotAllowed,
        Self::NameNotResolved,
        Self::ConnectFailed,
        Self::TlsFailed,
        Self::ConnectionLost,
        Self::BadResponse,
        Self::InvalidRequest,
        Self::Migrated,
    ];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HttpStatus => "HttpStatus",
            Self::Timeout => "Timeout",
            Self::Interrupted => "Interrupted",
            Self::TargetNotAllowed => "TargetNotAllowed",
            Self::NameNotResolved => "NameNotResolved",
            Self::ConnectFailed => "ConnectFailed",
            Self::TlsFailed => "TlsFailed",
            Self::ConnectionLost => "ConnectionLost",
            Self::BadResponse => "BadResponse",
            Self::InvalidRequest => "InvalidRequest",
            Self::Migrated => "Migrated",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The one outcome of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The target answered with 2xx.
    Succeeded(ResponseMeta),
    /// Anything else.
    Failed(ErrorMeta),
}

/// Headers as a JSON object; of names that came twice, the values are put together.
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
