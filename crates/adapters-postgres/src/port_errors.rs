//! Failures of the server and of the driver, as errors of a port.

use punctual_ports::{PortError, PortErrorKind};
use tokio_postgres::error::SqlState;

/// Why an operation failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The server refused it, or the connection broke.
    Driver(tokio_postgres::Error),
    /// No connection could be established.
    NotConnected(String),
    /// There was no answer in time.
    TimedOut,
    /// A row has something that we did not write.
    Unreadable(String),
    /// The commit is on the disk of this server only, although the server is set to wait for others.
    NotReplicated,
    /// Another transaction is known to hold a timer of it, and it was not tried.
    Locked,
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Driver(error)
    }
}

impl Failure {
    /// Whether the connection must not be used again.
    pub(crate) fn ends_the_connection(&self) -> bool {
        match self {
            Self::Driver(error) => match error.code() {
                // A server that became a standby: another host may take its place.
                Some(code) => {
                    *code == SqlState::READ_ONLY_SQL_TRANSACTION
                        || code.code().starts_with("57P")
                        || code.code().starts_with("08")
                }
                // Not an answer of the server: a conversion of ours leaves the connection as it was, but
                // that is not worth telling apart.
                None => true,
            },
            Self::TimedOut | Self::NotConnected(_) => true,
            Self::Unreadable(_) | Self::NotReplicated | Self::Locked => false,
        }
    }

    /// Whether another transaction was in the way, so that the same one may succeed at once: a call that was
    /// being deleted is seen to be gone then.
    pub(crate) fn is_conflict(&self) -> bool {
        let Self::Driver(error) = self else {
            return false;
        };
        let conflicts = [
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::FOREIGN_KEY_VIOLATION,
        ];
        error.code().is_some_and(|code| conflicts.contains(code))
    }

    /// Whether a lock was not free in time.
    pub(crate) fn is_lock_timeout(&self) -> bool {
        matches!(self, Self::Driver(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE))
    }

    /// The failure of an operation, as its caller gets it.
    pub(crate) fn during(self, operation: &'static str) -> PortError {
        match self {
            Self::Driver(error) => {
                let kind = error.code().map_or(PortErrorKind::Unavailable, kind_of);
                let reason = match error.as_db_error() {
                    Some(refusal) => refusal.message().to_owned(),
                    None => error.to_string(),
                };
                PortError::new(kind, operation, reason).with_source(error)
            }
            Self::NotConnected(reason) => {
                PortError::new(PortErrorKind::Unavailable, operation, reason)
            }
            Self::Locked => locked(operation),
            Self::TimedOut => PortError::new(
                PortErrorKind::Unavailable,
                operation,
                "the database did not answer in time",
            ),
            Self::Unreadable(what) => PortError::new(
                PortErrorKind::Rejected,
                operation,
                format!("a row is unreadable: {what}"),
            ),
            Self::NotReplicated => PortError::new(
                PortErrorKind::Unavailable,
                operation,
                "the server did not wait for its standbys: whether they have the commit is unknown",
            ),
        }
    }
}

/// What the code of a refusal means to the caller.
fn kind_of(code: &SqlState) -> PortErrorKind {
    if *code == SqlState::DISK_FULL {
        return PortErrorKind::StorageFull;
    }
    if *code == SqlState::IO_ERROR || code.code().starts_with("XX") {
        return PortErrorKind::Broken;
    }
    match &code.code()[..2.min(code.code().len())] {
        // Deadlock, serialization failure, lock timeout.
        "40" | "55" => PortErrorKind::Busy,
        // A value that cannot be stored, or breaks a constraint.
        "22" | "23" => PortErrorKind::Rejected,
        // A missing table, column or privilege: nothing that we do mends it.
        "42" | "3F" => PortErrorKind::Broken,
        _ => PortErrorKind::Unavailable,
    }
}

/// The error of a timer that a transaction of somebody else's has locked.
pub(crate) fn locked(operation: &'static str) -> PortError {
    let reason = "another transaction holds the timer";
    PortError::new(PortErrorKind::Busy, operation, reason)
}

/// The error of a store that was closed.
pub(crate) fn stopped(operation: &'static str) -> PortError {
    PortError::new(PortErrorKind::Stopped, operation, "the store is closed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_of_refusal_has_its_kind() {
        use PortErrorKind::{Broken, Busy, Rejected, StorageFull, Unavailable};
        for (code, kind) in [
            ("53100", StorageFull),
            ("53300", Unavailable),
            ("57P01", Unavailable),
            ("57014", Unavailable),
            ("40P01", Busy),
            ("55P03", Busy),
            ("23505", Rejected),
            ("22021", Rejected),
            ("42P01", Broken),
            ("42501", Broken),
            ("58030", Broken),
            ("XX001", Broken),
            ("25006", Unavailable),
        ] {
            assert_eq!(kind_of(&SqlState::from_code(code)), kind, "{code}");
        }
    }
}
