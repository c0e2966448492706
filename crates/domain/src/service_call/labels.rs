//! Labels of calls: names, tags and idempotency keys.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use super::redaction::{REDACTED, Redaction};

/// Error for an invalid label.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LabelError {
    /// It is empty or too long.
    #[error("{what} has {given} characters: give 1 to {longest}")]
    Length {
        /// The kind of label.
        what: &'static str,
        /// How many characters it has.
        given: usize,
        /// How many it may have.
        longest: usize,
    },
    /// It has a control character.
    #[error("{what} has a control character: give text that can be printed")]
    Control {
        /// The kind of label.
        what: &'static str,
    },
    /// It has a character that does not survive an HTTP header.
    #[error("{what} has a character beyond printable ASCII: give letters, digits and punctuation")]
    NotAscii {
        /// The kind of label.
        what: &'static str,
    },
    /// There are too many of them.
    #[error("{given} tags are too many: give at most {most}")]
    TooMany {
        /// How many there are.
        given: usize,
        /// How many there may be.
        most: usize,
    },
}

fn checked(what: &'static str, text: &str, longest: usize) -> Result<(), LabelError> {
    let given = text.chars().count();
    if given == 0 || given > longest {
        return Err(LabelError::Length {
            what,
            given,
            longest,
        });
    }
    if text.chars().any(char::is_control) {
        return Err(LabelError::Control { what });
    }
    Ok(())
}

macro_rules! label {
    ($(#[$doc:meta])* $name:ident, $what:literal, $longest:literal, $extra:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// Maximum number of characters.
            pub const LONGEST: usize = $longest;

            /// Checks the text.
            ///
            /// # Errors
            /// If it is empty, too long, or has invalid characters.
            pub fn new(text: impl Into<String>) -> Result<Self, LabelError> {
                let text = text.into();
                checked($what, &text, Self::LONGEST)?;
                let extra: fn(&str) -> Result<(), LabelError> = $extra;
                extra(&text)?;
                Ok(Self(text))
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
            }
        }
    };
}

label! {
    /// Display name of a call.
    CallName, "name", 200, |_| Ok(())
}
impl CallName {
    /// The same name without the secrets of the call's request, such as those of its URL.
    #[must_use]
    pub fn redacted(&self, redaction: &Redaction) -> Self {
        let shown: String = redaction.redact(self.as_str()).chars().take(200).collect();
        Self::new(shown).unwrap_or_else(|_| Self(REDACTED.to_owned()))
    }
}

label! {
    /// Tag to search calls by.
    Tag, "tag", 64, |_| Ok(())
}
label! {
    /// Identifies repetitions of a submission within its tenant.
    IdempotencyKey, "idempotency key", 200, |text| {
        if text.is_ascii() { Ok(()) } else { Err(LabelError::NotAscii { what: "idempotency key" }) }
    }
}

/// The tags of a call: distinct and sorted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Tags(BTreeSet<Tag>);

impl Tags {
    /// Maximum number of tags.
    pub const MOST: usize = 50;

    /// Collects tags; repeated ones count once.
    ///
    /// # Errors
    /// If there are too many.
    pub fn new(tags: impl IntoIterator<Item = Tag>) -> Result<Self, LabelError> {
        let tags: BTreeSet<Tag> = tags.into_iter().collect();
        if tags.len() > Self::MOST {
            return Err(LabelError::TooMany {
                given: tags.len(),
                most: Self::MOST,
            });
        }
        Ok(Self(tags))
    }

    /// The tags.
    pub fn iter(&self) -> impl Iterator<Item = &Tag> {
        self.0.iter()
    }

    /// Whether there are no tags.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a tag is among them.
    pub fn contains(&self, tag: &Tag) -> bool {
        self.0.contains(tag)
    }
}

impl<'de> Deserialize<'de> for Tags {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(Vec::<Tag>::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_holds_just_below_at_and_just_above() {
        for (length, is_right) in [
            (0, false),
            (1, true),
            (199, true),
            (200, true),
            (201, false),
        ] {
            assert_eq!(
                CallName::new("ä".repeat(length)).is_ok(),
                is_right,
                "{length}"
            );
            assert_eq!(
                IdempotencyKey::new("k".repeat(length)).is_ok(),
                is_right,
                "{length}"
            );
        }
        for (length, is_right) in [(0, false), (1, true), (63, true), (64, true), (65, false)] {
            assert_eq!(Tag::new("t".repeat(length)).is_ok(), is_right, "{length}");
        }
        let tags = |number: usize| Tags::new((0..number).map(|n| Tag::new(n.to_string()).unwrap()));
        for (number, is_right) in [(0, true), (49, true), (50, true), (51, false)] {
            assert_eq!(tags(number).is_ok(), is_right, "{number}");
        }
    }

    #[test]
    fn what_cannot_be_printed_is_refused() {
        for bad in ["a\nb", "\0", "\u{7f}", "a\r"] {
            assert!(
                CallName::new(bad).is_err() && Tag::new(bad).is_err(),
                "{bad:?}"
            );
        }
        assert!(IdempotencyKey::new("schlüssel").is_err());
        assert!(CallName::new("Schlüssel ✓").is_ok());
    }

    #[test]
    fn repeated_tags_count_once() {
        let twice = Tags::new(["b", "a", "b"].map(|t| Tag::new(t).unwrap())).unwrap();
        assert_eq!(serde_json::to_string(&twice).unwrap(), r#"["a","b"]"#);
        assert!(twice.contains(&Tag::new("a").unwrap()));
    }
}
