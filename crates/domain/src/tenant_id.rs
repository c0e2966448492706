//! Tenant ids: the partition key of all data, and a token of subjects and file names.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;

use crate::text_forms::json_as_text;

/// The tenant that a timer belongs to: 1 to 128 of `A-Z a-z 0-9 _ -`.
///
/// The alphabet needs no escaping wherever a tenant id appears: in SQL text order, broker subjects, URL
/// paths and log lines. Cloning is cheap.
///
/// ```
/// use punctual_domain::TenantId;
/// assert_eq!(TenantId::new("tenant-a")?.as_str(), "tenant-a");
/// assert!(TenantId::new("tenant.a").is_err());
/// # Ok::<(), punctual_domain::TenantIdError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(Arc<str>);

/// Error for a text that is not a tenant id.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TenantIdError {
    /// The text was empty.
    #[error("tenant id is empty: give 1 to 128 of the characters A-Z a-z 0-9 _ -")]
    Empty,
    /// The text was longer than [`TenantId::MAX_LEN`] bytes.
    #[error("tenant id has {length} bytes: at most 128 are allowed")]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// A character is outside the alphabet.
    #[error("tenant id has {character:?} as character {}: only A-Z a-z 0-9 _ - are allowed", position + 1)]
    BadCharacter {
        /// The first such character.
        character: char,
        /// Its position, counted in characters from zero.
        position: usize,
    },
}

impl TenantId {
    /// Maximum length in bytes.
    pub const MAX_LEN: usize = 128;

    /// Parses a tenant id.
    pub fn new(text: &str) -> Result<Self, TenantIdError> {
        if text.is_empty() {
            return Err(TenantIdError::Empty);
        }
        if text.len() > Self::MAX_LEN {
            return Err(TenantIdError::TooLong { length: text.len() });
        }
        match text.chars().enumerate().find(|(_, c)| !is_allowed(*c)) {
            Some((position, character)) => Err(TenantIdError::BadCharacter {
                character,
                position,
            }),
            None => Ok(Self(Arc::from(text))),
        }
    }

    /// The tenant id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_allowed(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

impl Default for TenantId {
    /// The tenant of single-tenant use: `default`.
    fn default() -> Self {
        Self(Arc::from("default"))
    }
}

impl FromStr for TenantId {
    type Err = TenantIdError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(text)
    }
}

impl fmt::Display for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TenantId({})", self.0)
    }
}

json_as_text!(TenantId);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_length_limits_are_exact() {
        assert_eq!(TenantId::new(""), Err(TenantIdError::Empty));
        assert!(TenantId::new("a").is_ok());
        assert!(TenantId::new(&"a".repeat(128)).is_ok());
        assert_eq!(
            TenantId::new(&"a".repeat(129)),
            Err(TenantIdError::TooLong { length: 129 })
        );
    }

    #[test]
    fn what_could_mean_something_elsewhere_is_refused_and_named() {
        for bad in [
            "a.b", "a>b", "a*", "a b", "a\r\nb", "a'b", "a\"b", "a/b", "a:b", "ä", "a\0", "日本",
        ] {
            let error = TenantId::new(bad).unwrap_err();
            assert!(matches!(error, TenantIdError::BadCharacter { .. }), "{bad}");
        }
        assert_eq!(
            TenantId::new("ab.c").unwrap_err().to_string(),
            "tenant id has '.' as character 3: only A-Z a-z 0-9 _ - are allowed"
        );
    }

    #[test]
    fn the_default_tenant_is_a_valid_tenant() {
        assert_eq!(TenantId::new("default"), Ok(TenantId::default()));
    }

    proptest! {
        #[test]
        fn every_text_of_the_alphabet_survives_json(text in "[A-Za-z0-9_-]{1,128}") {
            let tenant = TenantId::new(&text).unwrap();
            let json = serde_json::to_string(&tenant).unwrap();
            prop_assert_eq!(serde_json::from_str::<TenantId>(&json).unwrap(), tenant);
        }

        #[test]
        fn no_text_makes_it_panic_and_what_passes_is_unchanged(text in any::<String>()) {
            if let Ok(tenant) = TenantId::new(&text) {
                prop_assert_eq!(tenant.as_str(), text);
            }
        }
    }
}
