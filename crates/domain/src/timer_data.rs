//! JSON that a caller attaches to a timer and gets back when the timer fires.

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use thiserror::Error;

/// Opaque JSON of at most 16 KiB.
///
/// It is stored and delivered as the given text. It may contain secrets: `Debug` prints its length only,
/// and Punctual never logs it.
///
/// ```
/// use punctual_domain::TimerData;
/// let data = TimerData::of(&vec![1, 2, 3])?;
/// assert_eq!(data.as_json(), "[1,2,3]");
/// assert_eq!(data.read::<Vec<u8>>()?, [1, 2, 3]);
/// # Ok::<(), punctual_domain::TimerDataError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TimerData(Arc<str>);

/// Error for a value that cannot be timer data, or cannot be read back as the requested type.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TimerDataError {
    /// Its JSON text is longer than [`TimerData::MAX_LEN`].
    #[error(
        "data has {length} bytes of JSON: at most 16384 are allowed, keep the rest elsewhere and refer to it"
    )]
    TooLong {
        /// The length of the text in bytes.
        length: usize,
    },
    /// The text is not JSON, or the value cannot be written as JSON.
    ///
    /// The reason gives a position at most, never a part of the data.
    #[error("data is not JSON ({reason})")]
    NotJson {
        /// What is wrong and where.
        reason: String,
    },
    /// There is no data to read.
    #[error("the timer has no data: it was scheduled without any")]
    Missing,
    /// The data is JSON, but not of the requested type.
    #[error("data is JSON of another shape than expected ({reason})")]
    OtherShape {
        /// The position, never the content.
        reason: String,
    },
}

impl TimerData {
    /// Maximum length in bytes of JSON text.
    pub const MAX_LEN: usize = 16 * 1024;

    /// Parses JSON text.
    pub fn from_json(text: &str) -> Result<Self, TimerDataError> {
        Self::check_length(text)?;
        let raw: &RawValue = serde_json::from_str(text).map_err(|e| not_json(&e))?;
        Ok(Self(Arc::from(raw.get())))
    }

    /// Writes a value as JSON.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, TimerDataError> {
        let text = serde_json::to_string(value).map_err(|e| TimerDataError::NotJson {
            reason: e.to_string(),
        })?;
        Self::check_length(&text)?;
        Ok(Self(Arc::from(text)))
    }

    /// Reads the JSON as a value.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, TimerDataError> {
        serde_json::from_str(&self.0).map_err(|e| TimerDataError::OtherShape {
            // The full message would quote the data.
            reason: format!("line {} column {}", e.line(), e.column()),
        })
    }

    /// The JSON text as it was given.
    pub fn as_json(&self) -> &str {
        &self.0
    }

    fn check_length(text: &str) -> Result<(), TimerDataError> {
        match text.len() {
            length if length > Self::MAX_LEN => Err(TimerDataError::TooLong { length }),
            _ => Ok(()),
        }
    }
}

/// The position at which the text stops being JSON, without the parser's expectations.
fn not_json(error: &serde_json::Error) -> TimerDataError {
    let reason = if error.is_eof() {
        "it ends too early: a quote, bracket or brace is missing".to_owned()
    } else {
        format!("see line {} column {}", error.line(), error.column())
    };
    TimerDataError::NotJson { reason }
}

impl fmt::Debug for TimerData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TimerData({} bytes)", self.0.len())
    }
}

impl Serialize for TimerData {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for TimerData {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::check_length(raw.get()).map_err(serde::de::Error::custom)?;
        Ok(Self(Arc::from(raw.get())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_length_limit_is_exact() {
        let text = |n: usize| format!("\"{}\"", "x".repeat(n - 2));
        assert!(TimerData::from_json(&text(16_384)).is_ok());
        assert_eq!(
            TimerData::from_json(&text(16_385)),
            Err(TimerDataError::TooLong { length: 16_385 })
        );
        let on_the_wire: Result<TimerData, _> = serde_json::from_str(&text(16_385));
        assert!(
            on_the_wire
                .unwrap_err()
                .to_string()
                .contains("at most 16384")
        );
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for bad in ["", "{", "nope", "{\"a\":1}x", "\u{1}", "[1,]"] {
            let error = TimerData::from_json(bad).unwrap_err();
            assert!(matches!(error, TimerDataError::NotJson { .. }), "{bad}");
        }
    }

    #[test]
    fn neither_debug_nor_an_error_shows_the_content() {
        let data = TimerData::from_json("{\"password\":\"hunter2\"}").unwrap();
        assert_eq!(format!("{data:?}"), "TimerData(22 bytes)");
        let error = TimerData::from_json("{\"password\":\"hunter2\"").unwrap_err();
        assert!(!error.to_string().contains("hunter2"));
        let error = data.read::<Vec<u8>>().unwrap_err();
        assert!(!error.to_string().contains("password"));
        let error = TimerData::of("hunter2").unwrap().read::<u8>().unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }

    #[test]
    fn deep_nesting_neither_panics_nor_overflows_the_stack() {
        let deep = format!("{}{}", "[".repeat(8_000), "]".repeat(8_000));
        if let Ok(data) = TimerData::from_json(&deep) {
            assert!(data.read::<serde_json::Value>().is_err());
            assert!(serde_json::to_string(&data).is_ok());
        }
    }

    proptest! {
        #[test]
        fn the_text_survives_as_it_was_given(numbers in prop::collection::vec(any::<i64>(), 0..50)) {
            let spaced = serde_json::to_string_pretty(&numbers).unwrap();
            let data = TimerData::from_json(&spaced).unwrap();
            let json = serde_json::to_string(&data).unwrap();
            prop_assert_eq!(&json, &spaced);
            prop_assert_eq!(serde_json::from_str::<TimerData>(&json).unwrap(), data);
        }
    }
}
