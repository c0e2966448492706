//! The headers of a request, checked so that they cannot change where it ends or who sends it.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use super::redaction::{REDACTED, secret_part};
use crate::excerpt;

/// Headers in the order in which they were given, each name once.
///
/// `Debug` omits the values: they may be secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

/// Error for headers that cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HeadersError {
    /// There are too many.
    #[error("{given} headers are too many: give at most {most}", most = Headers::MOST)]
    TooMany {
        /// How many there are.
        given: usize,
    },
    /// They are too long, all together.
    #[error("headers have {given} bytes: give at most {longest} in names and values", longest = Headers::LONGEST)]
    TooLong {
        /// How many bytes they have.
        given: usize,
    },
    /// A name is invalid.
    #[error("header name \"{name}\" is not one: give letters, digits and -")]
    Name {
        /// The name, shortened.
        name: String,
    },
    /// A value has a character that would end the header, or be lost on the way.
    #[error(
        "header {name} has a line break, a control character or one beyond ASCII: give printable ASCII"
    )]
    Value {
        /// Whose value.
        name: String,
    },
    /// A value begins or ends with a blank, which the other side would drop.
    #[error("header {name} begins or ends with a blank: leave it out")]
    Blank {
        /// Whose value.
        name: String,
    },
    /// The name is there twice.
    #[error("header {name} is given twice: put both values into one, with a comma")]
    Repeated {
        /// The name.
        name: String,
    },
    /// The header is reserved for the service or for the connection.
    #[error("header {name} is set by us: leave it out")]
    Reserved {
        /// The name.
        name: String,
    },
}

/// Headers of the connection, and headers that the service itself sends.
const RESERVED: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "idempotency-key",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-correlation-id",
];

impl Headers {
    /// Maximum number of headers.
    pub const MOST: usize = 64;
    /// Maximum number of bytes of all names and values together.
    pub const LONGEST: usize = 16 * 1_024;

    /// Checks them, each by itself and all together.
    ///
    /// # Errors
    /// With the first error.
    pub fn new(headers: Vec<(String, String)>) -> Result<Self, HeadersError> {
        if headers.len() > Self::MOST {
            return Err(HeadersError::TooMany {
                given: headers.len(),
            });
        }
        let given = headers.iter().map(|(n, v)| n.len() + v.len()).sum();
        if given > Self::LONGEST {
            return Err(HeadersError::TooLong { given });
        }
        for (number, (name, value)) in headers.iter().enumerate() {
            check(name, value)?;
            let mut before = headers[..number].iter();
            if before.any(|(other, _)| other.eq_ignore_ascii_case(name)) {
                return Err(HeadersError::Repeated { name: name.clone() });
            }
        }
        Ok(Self(headers))
    }

    /// Each name with its value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(n, v)| (n.as_str(), v.as_str()))
    }

    /// The value of a header, whatever the case of its name.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    }

    /// Whether there are no headers.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same headers with the secret values redacted.
    #[must_use]
    pub fn redacted(&self) -> Self {
        let shown = |(name, value): &(String, String)| {
            let shown = match secret_part(name, value) {
                Some(from) => {
                    // Not longer than the secret, so that the redacted headers are valid, too.
                    let mark = &REDACTED[..(value.len() - from).min(REDACTED.len())];
                    format!("{}{mark}", &value[..from])
                }
                None => value.clone(),
            };
            (name.clone(), shown)
        };
        Self(self.0.iter().map(shown).collect())
    }
}

/// Checks one header by itself.
pub(super) fn check(name: &str, value: &str) -> Result<(), HeadersError> {
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(HeadersError::Name {
            name: excerpt(name),
        });
    }
    let name = || excerpt(name);
    if RESERVED.contains(&name().to_ascii_lowercase().as_str()) {
        return Err(HeadersError::Reserved { name: name() });
    }
    if !value
        .bytes()
        .all(|b| b == b'\t' || (b' '..=b'~').contains(&b))
    {
        return Err(HeadersError::Value { name: name() });
    }
    if value.trim_matches([' ', '\t']) != value {
        return Err(HeadersError::Blank { name: name() });
    }
    Ok(())
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|(n, _)| n)).finish()
    }
}

impl Serialize for Headers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// Reads a JSON object without losing repeated names, which a map would.
        struct Pairs;

        impl<'de> Visitor<'de> for Pairs {
            type Value = Vec<(String, String)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of header names and values")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    // One more than allowed is enough for the error.
                    if pairs.len() <= Headers::MOST {
                        pairs.push(pair);
                    }
                }
                Ok(pairs)
            }
        }

        Self::new(deserializer.deserialize_map(Pairs)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, value: &str) -> Result<Headers, HeadersError> {
        Headers::new(vec![(name.to_owned(), value.to_owned())])
    }

    #[test]
    fn nothing_gets_in_that_would_end_a_header_or_speak_for_the_connection() {
        for value in [
            "a\r\nB: c",
            "a\n",
            "\r",
            "a\0b",
            "ä",
            "\u{7f}",
            " a",
            "a ",
            "a\t",
        ] {
            assert!(one("X-A", value).is_err(), "{value:?}");
        }
        for name in ["", "a b", "a:", "ä", "a\r\nb", "a(b)", "a\0"] {
            assert!(one(name, "v").is_err(), "{name:?}");
        }
        for name in RESERVED {
            let error = one(&name.to_uppercase(), "v").unwrap_err();
            assert!(error.to_string().ends_with("leave it out"), "{error}");
        }
        assert!(one("X-Mine", "a\tb ~!").is_ok());
        assert!(one("X-Empty", "").is_ok());
    }

    #[test]
    fn every_limit_holds_just_below_at_and_just_above() {
        let many =
            |n: usize| Headers::new((0..n).map(|i| (format!("h{i}"), String::new())).collect());
        for (number, is_right) in [(63, true), (64, true), (65, false)] {
            assert_eq!(many(number).is_ok(), is_right, "{number}");
        }
        for (length, is_right) in [(16_383, true), (16_384, true), (16_385, false)] {
            assert_eq!(
                one("x", &"v".repeat(length - 1)).is_ok(),
                is_right,
                "{length}"
            );
        }
    }

    #[test]
    fn a_name_given_twice_is_refused_also_in_json() {
        let json = r#"{"X-A":"1","x-a":"2"}"#;
        let error = serde_json::from_str::<Headers>(json).unwrap_err();
        assert!(error.to_string().contains("given twice"), "{error}");
    }

    #[test]
    fn secrets_are_neither_debugged_nor_redacted_by_half() {
        let json = r#"{"Authorization":"Bearer s3cret","Accept":"*/*"}"#;
        let headers: Headers = serde_json::from_str(json).unwrap();
        assert!(!format!("{headers:?}").contains("s3cret"));
        let shown = serde_json::to_string(&headers.redacted()).unwrap();
        assert_eq!(
            shown,
            format!(r#"{{"Authorization":"{REDACTED}","Accept":"*/*"}}"#)
        );
        assert_eq!(headers.get("authorization"), Some("Bearer s3cret"));
    }
}
