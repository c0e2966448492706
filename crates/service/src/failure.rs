//! Why a command did not do what was asked: one sentence, and the exit code that goes with it.

use std::fmt;

use punctual_adapters_postgres as postgres;
use punctual_adapters_sqlite::OpenError;
use punctual_ports::PortError;

use crate::display::one_line;

/// A failure, by what the caller can do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It failed, or nothing was found.
    Failed(String),
    /// The command line was wrong.
    Usage(String),
    /// Nothing was started: a setting or the database is wrong.
    Refused(String),
}

impl Failure {
    pub(crate) fn failed(sentence: impl fmt::Display) -> Self {
        Self::Failed(sentence.to_string())
    }

    pub(crate) fn usage(sentence: impl fmt::Display) -> Self {
        Self::Usage(sentence.to_string())
    }

    pub(crate) fn refused(sentence: impl fmt::Display) -> Self {
        Self::Refused(sentence.to_string())
    }

    pub(crate) const fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::Usage(_) => 2,
            Self::Refused(_) => 3,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Failed(sentence) | Self::Usage(sentence) | Self::Refused(sentence)) = self;
        f.write_str(&one_line(sentence))
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Missing { .. } => Self::failed(format!(
                "{error}: name another with --db or TIMER_DB_PATH, or make it with `timer-service migrate`"
            )),
            _ => Self::refused(error),
        }
    }
}

impl From<postgres::OpenError> for Failure {
    fn from(error: postgres::OpenError) -> Self {
        match error {
            postgres::OpenError::Missing { .. } => Self::failed(format!(
                "{error}, or make them with `timer-service migrate`"
            )),
            _ => Self::refused(error),
        }
    }
}

impl From<PortError> for Failure {
    fn from(error: PortError) -> Self {
        Self::failed(error)
    }
}
