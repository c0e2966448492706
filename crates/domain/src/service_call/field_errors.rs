//! Validation errors, each with a pointer to its field.

use std::fmt;

use serde::Serialize;
use thiserror::Error;

/// An error in one field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct FieldError {
    /// A JSON pointer into the body, as `/requestSpec/url`, or `/path/…`, `/query/…` or `/header/…`.
    pub pointer: String,
    /// What is wrong, and what is allowed.
    pub detail: String,
}

/// All validation errors, in the order of the fields. Never empty as an error.
#[derive(Debug, Clone, Default, PartialEq, Eq, Error)]
pub struct FieldErrors(Vec<FieldError>);

impl FieldErrors {
    /// Maximum number of errors reported.
    const MAX: usize = 100;

    /// Adds an error.
    pub fn add(&mut self, pointer: impl Into<String>, detail: impl fmt::Display) {
        if self.0.len() < Self::MAX {
            self.0.push(FieldError {
                pointer: pointer.into(),
                detail: detail.to_string(),
            });
        }
    }

    /// Returns the value, or adds its error.
    pub fn check<T, E: fmt::Display>(&mut self, pointer: &str, value: Result<T, E>) -> Option<T> {
        match value {
            Ok(value) => Some(value),
            Err(error) => {
                self.add(pointer, error);
                None
            }
        }
    }

    /// Whether there is no error so far.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The errors.
    pub fn iter(&self) -> std::slice::Iter<'_, FieldError> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a FieldErrors {
    type Item = &'a FieldError;
    type IntoIter = std::slice::Iter<'a, FieldError>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl From<FieldErrors> for Vec<FieldError> {
    fn from(errors: FieldErrors) -> Self {
        errors.0
    }
}

impl fmt::Display for FieldErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, error) in self.0.iter().enumerate() {
            if number > 0 {
                f.write_str("; ")?;
            }
            match error.pointer.as_str() {
                "" => f.write_str(&error.detail)?,
                pointer => write!(f, "{pointer}: {}", error.detail)?,
            }
        }
        Ok(())
    }
}

/// Escapes a name as one step of a JSON pointer.
pub(super) fn step(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_read_as_one_line_and_their_number_is_limited() {
        let mut errors = FieldErrors::default();
        errors.add("", "it is empty");
        errors.add("/name", "it is too long");
        assert_eq!(errors.to_string(), "it is empty; /name: it is too long");
        for _ in 0..1_000 {
            errors.add("/tags", "no");
        }
        assert_eq!(errors.iter().count(), FieldErrors::MAX);
        assert_eq!(step("a/b~c"), "a~1b~0c");
    }
}
