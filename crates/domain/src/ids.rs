//! Ids: UUIDs, one type for each kind so that they cannot be mixed up.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;
use uuid::Uuid;

use crate::Timestamp;
use crate::excerpt;
use crate::text_forms::json_as_text;

/// Error for a text that is not an id.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{what} is not a UUID: give 36 characters like 0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8e, not \"{given}\""
)]
pub struct IdError {
    what: &'static str,
    given: String,
}

/// Parses the hyphenated form only: other spellings of the same id would not compare equal in the
/// systems that pass these texts on.
fn parse_hyphenated(what: &'static str, text: &str) -> Result<Uuid, IdError> {
    let refused = || IdError {
        what,
        given: excerpt(text),
    };
    if text.len() != uuid::fmt::Hyphenated::LENGTH {
        return Err(refused());
    }
    Uuid::try_parse(text).map_err(|_| refused())
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        ///
        /// Any UUID version is accepted; new ones are version 7. The text form is hyphenated and
        /// lower case.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            /// The first in the order of ids, for ranges of a store.
            pub const MIN: Self = Self(Uuid::nil());
            /// The last in the order of ids.
            pub const MAX: Self = Self(Uuid::max());

            /// Wraps a UUID.
            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }

            /// The UUID.
            pub const fn as_uuid(&self) -> Uuid {
                self.0
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                parse_hyphenated($what, text).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self.0.as_hyphenated(), f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        json_as_text!($name);
    };
}

uuid_id! {
    /// Identifies the service call, or any other subject of a timer, within its tenant.
    ServiceCallId, "service call id"
}
uuid_id! {
    /// Identifies a request across everything it caused.
    CorrelationId, "correlation id"
}
uuid_id! {
    /// Identifies a message.
    EnvelopeId, "envelope id"
}

impl EnvelopeId {
    /// When the id was drawn, if it says so: one of version 7 begins with the time. Zero is none: whoever drew
    /// it had no clock, or counts.
    pub fn drawn_at(&self) -> Option<Timestamp> {
        let millis = i64::try_from(self.0.as_u128() >> 80).ok()?;
        if self.0.get_version_num() != 7 || millis == 0 {
            return None;
        }
        Timestamp::from_millis(millis).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_the_hyphenated_form_is_an_id() {
        let text = "0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8e";
        assert_eq!(text.parse::<ServiceCallId>().unwrap().to_string(), text);
        assert_eq!(
            text.to_uppercase().parse::<ServiceCallId>().unwrap(),
            text.parse().unwrap()
        );
        for bad in [
            "",
            "0190a6e07a3b7c119d2e3f4a5b6c7d8e",
            "{0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8e}",
            "urn:uuid:0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8e",
            "0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8g",
            "order-123",
        ] {
            assert!(bad.parse::<ServiceCallId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn an_id_of_version_7_says_when_it_was_drawn_and_no_other_does() {
        let drawn_at = |text: &str| text.parse::<EnvelopeId>().unwrap().drawn_at();
        let at = drawn_at("01a1e4a9-de2c-7d42-9b1a-6f0c2d3e4f03").unwrap();
        assert_eq!(at.as_millis(), 0x01a1_e4a9_de2c);
        for other in [
            "01a1e4a9-de2c-4d42-9b1a-6f0c2d3e4f03",
            "00000000-0000-0000-0000-000000000000",
            "ffffffff-ffff-ffff-ffff-ffffffffffff",
            "ffffffff-ffff-7fff-9fff-ffffffffffff",
            "00000000-0000-7000-8000-000000000007",
        ] {
            assert_eq!(drawn_at(other), None, "{other}");
        }
    }

    #[test]
    fn the_error_names_the_id_and_what_would_be_right() {
        let error = "order-123".parse::<CorrelationId>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "correlation id is not a UUID: give 36 characters like \
             0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8e, not \"order-123\""
        );
        let long = "x".repeat(10_000).parse::<CorrelationId>().unwrap_err();
        assert!(long.to_string().len() < 250);
    }

    proptest! {
        #[test]
        fn any_uuid_survives_text_and_json(bits in any::<u128>()) {
            let id = EnvelopeId::from_uuid(Uuid::from_u128(bits));
            prop_assert_eq!(id.to_string().parse::<EnvelopeId>().unwrap(), id);
            let json = serde_json::to_string(&id).unwrap();
            prop_assert_eq!(serde_json::from_str::<EnvelopeId>(&json).unwrap(), id);
        }
    }
}
