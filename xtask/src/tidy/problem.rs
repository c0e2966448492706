//! A finding of a check: a location that an editor can jump to, and what to do there.

use std::fmt;

/// One breach of one rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) path: String,
    /// Counted from 1, as editors do.
    pub(crate) line: usize,
    /// A sentence that says what to do instead.
    pub(crate) advice: String,
}

impl Problem {
    pub(crate) fn new(path: impl Into<String>, line: usize, advice: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            line,
            advice: advice.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.advice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_formatted_as_a_location_and_a_sentence() {
        let problem = Problem::new("crates/a/src/lib.rs", 7, "do this instead.");
        assert_eq!(
            problem.to_string(),
            "crates/a/src/lib.rs:7: do this instead."
        );
    }
}
