//! The request that a call makes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use super::redaction::redacted_url;
use super::{Headers, Redaction, TargetUrl};
use crate::excerpt;
use crate::text_forms::named_variants;

named_variants! {
    /// HTTP method.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "UPPERCASE")]
    pub enum Method {
        /// `GET`
        Get = "GET",
        /// `POST`
        Post = "POST",
        /// `PUT`
        Put = "PUT",
        /// `PATCH`
        Patch = "PATCH",
        /// `DELETE`
        Delete = "DELETE",
    }
}

/// Error for a text that is no method.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("method is none of GET, POST, PUT, PATCH and DELETE: \"{given}\"")]
pub struct MethodError {
    given: String,
}

impl FromStr for Method {
    type Err = MethodError;
    fn from_str(text: &str) -> Result<Self, MethodError> {
        let found = Self::ALL.into_iter().find(|method| method.as_str() == text);
        found.ok_or_else(|| MethodError {
            given: excerpt(text),
        })
    }
}

/// Body of a request. `Debug` prints its length, not its content.
#[derive(Clone, PartialEq, Eq)]
pub struct RequestBody(String);

/// Error for a body that is too long.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("body has {given} bytes: give at most {longest}", longest = RequestBody::LONGEST)]
pub struct BodyTooLong {
    given: usize,
}

impl RequestBody {
    /// Maximum number of bytes.
    pub const LONGEST: usize = 256 * 1_024;

    /// Makes a text a body.
    ///
    /// # Errors
    /// If it is too long.
    pub fn new(text: impl Into<String>) -> Result<Self, BodyTooLong> {
        let text = text.into();
        match text.len() {
            given if given > Self::LONGEST => Err(BodyTooLong { given }),
            _ => Ok(Self(text)),
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RequestBody({} bytes)", self.0.len())
    }
}

impl Serialize for RequestBody {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for RequestBody {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// The HTTP request of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestSpec {
    /// The method.
    pub method: Method,
    /// The target.
    pub url: TargetUrl,
    /// The headers, besides those that are always sent.
    #[serde(default, skip_serializing_if = "Headers::is_empty")]
    pub headers: Headers,
    /// The body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<RequestBody>,
}

impl RequestSpec {
    /// The same request for display, publishing and storage: secret headers and parameters redacted, and
    /// only the start of the body.
    ///
    /// It is still a valid request, but not one to be sent.
    #[must_use]
    pub fn redacted(&self) -> Self {
        let redaction = Redaction::of(self);
        let body = self.body.as_ref().map(|body| {
            let snippet = redaction.snippet(body.as_str().as_bytes());
            RequestBody(snippet.into_string())
        });
        Self {
            method: self.method,
            url: redacted_url_of(&self.url),
            headers: self.headers.redacted(),
            body,
        }
    }
}

/// The redacted URL, which is a valid URL, too. If redaction makes it too long, the query is dropped.
fn redacted_url_of(url: &TargetUrl) -> TargetUrl {
    let without_query = || url.as_str().split('?').next().unwrap_or_default().parse();
    redacted_url(url)
        .parse()
        .or_else(|_| without_query())
        .unwrap_or_else(|_| url.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redacted_request_has_no_secret_and_little_body() {
        let json = r#"{"method":"POST","url":"https://a/?token=canary","headers":{"X-Token":"canary"},"body":"{\"echo\":\"canary\"}"}"#;
        let request: RequestSpec = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&request).unwrap(), json);
        let shown = serde_json::to_string(&request.redacted()).unwrap();
        assert!(!shown.contains("canary"), "{shown}");
        assert!(!format!("{request:?}").contains("canary"));
        let once = request.redacted();
        assert_eq!(once.redacted(), once);
    }

    #[test]
    fn a_long_query_of_secrets_stays_a_url() {
        let url = format!("http://a/?{}", "key=a&".repeat(330));
        let request = RequestSpec {
            method: Method::Get,
            url: url.parse().unwrap(),
            headers: Headers::default(),
            body: None,
        };
        let shown = request.redacted().url;
        assert!(!shown.as_str().contains("key=a"), "{shown}");
    }

    #[test]
    fn a_redacted_request_at_its_limits_is_a_valid_request() {
        let mut headers: Vec<(String, String)> = (0..63)
            .map(|n| (format!("X-Token-{n:02}"), "abcdef"[..n % 7].to_owned()))
            .collect();
        let taken: usize = headers.iter().map(|(n, v)| n.len() + v.len()).sum();
        let rest = Headers::LONGEST - taken - "X-Big".len();
        headers.push(("X-Big".to_owned(), "b".repeat(rest)));
        let request = RequestSpec {
            method: Method::Post,
            url: format!("http://a/?{}", "key=a&".repeat(339))
                .parse()
                .unwrap(),
            headers: Headers::new(headers).unwrap(),
            body: Some(RequestBody::new("abcd".repeat(64 * 1_024)).unwrap()),
        };
        let shown = request.redacted();
        let json = serde_json::to_string(&shown).unwrap();
        assert_eq!(serde_json::from_str::<RequestSpec>(&json).unwrap(), shown);
        assert_eq!(shown.redacted(), shown);
    }

    #[test]
    fn a_body_has_a_limit() {
        let most = RequestBody::LONGEST;
        for (length, is_right) in [(0, true), (most - 1, true), (most, true), (most + 1, false)] {
            assert_eq!(RequestBody::new("b".repeat(length)).is_ok(), is_right);
        }
    }

    #[test]
    fn methods_are_five_and_in_capitals() {
        for method in Method::ALL {
            assert_eq!(method.as_str().parse(), Ok(method));
        }
        for bad in ["get", "HEAD", "OPTIONS", "CONNECT", "TRACE", ""] {
            assert!(bad.parse::<Method>().is_err(), "{bad}");
        }
    }
}
