//! Why there is no connection: one sentence each, for the operator.

use thiserror::Error;

/// Why a database could not be connected to, or is not one that timers can be kept in.
///
/// No variant contains a password. `server` is an address such as `postgres://user@host:5432/database`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address as a whole cannot be understood.
    #[error("the database address is wrong: {advice}")]
    Address {
        /// What is allowed.
        advice: String,
    },
    /// A part of the address, or a file that it names, is invalid.
    #[error("{field} is wrong: {advice}")]
    Setting {
        /// The part.
        field: &'static str,
        /// What is allowed.
        advice: String,
    },
    /// The address has a parameter that does not exist.
    #[error("the database address has an unknown parameter {name}: did you mean {nearest}?")]
    UnknownParameter {
        /// The parameter.
        name: String,
        /// The known one that is most like it.
        nearest: &'static str,
    },
    /// Nobody answers at the address. A retry may help.
    #[error("the database {server} does not answer: {reason}")]
    Unreachable {
        /// The address.
        server: String,
        /// The cause.
        reason: String,
    },
    /// The server answers, but takes no connection now. A retry may help.
    #[error("the database {server} takes no connections at the moment: {reason}")]
    NotReady {
        /// The address.
        server: String,
        /// The server's words, and what would help.
        reason: String,
    },
    /// The connection cannot be secured as the address requires.
    #[error("the database {server} cannot be reached securely: {reason}")]
    Tls {
        /// The address.
        server: String,
        /// The cause, and what to change.
        reason: String,
    },
    /// The server does not let this user in.
    #[error("the database {server} does not let us in: {reason}")]
    Denied {
        /// The address.
        server: String,
        /// The server's words, and what to check.
        reason: String,
    },
    /// The server has no such database.
    #[error(
        "there is no database {database} at {server}: create it with CREATE DATABASE, encoding UTF8, or name another"
    )]
    MissingDatabase {
        /// The address.
        server: String,
        /// The name of the database.
        database: String,
    },
    /// It is no PostgreSQL, or an old one.
    #[error("the database {server} is {found}: give the address of a PostgreSQL 15 or newer")]
    WrongServer {
        /// The address.
        server: String,
        /// What it is.
        found: String,
    },
    /// The server takes no writes.
    #[error("the database {server} is read-only: {reason}")]
    ReadOnly {
        /// The address.
        server: String,
        /// Why, and what to change.
        reason: String,
        /// Whether it is a standby, which may become the primary by itself.
        is_standby: bool,
    },
    /// The user may not do what is needed.
    #[error("the user {user} of the database {server} {what}")]
    MissingPrivilege {
        /// The address.
        server: String,
        /// The user.
        user: String,
        /// What is not allowed, and what to grant.
        what: String,
    },
    /// A setting of the server or of the database would lose timers, or there is no schema for them.
    #[error("the database {server} {what}")]
    Unsuitable {
        /// The address.
        server: String,
        /// What is wrong, and what to change.
        what: String,
    },
}

/// What a [`ConnectError`] is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectErrorKind {
    /// The address, or a file that it names.
    Settings,
    /// Network, host, port, or a server that takes no connections now.
    Unreachable,
    /// TLS and certificates.
    Tls,
    /// User, password, database, or `pg_hba.conf`.
    Authentication,
    /// Not PostgreSQL, or too old.
    WrongServer,
    /// A standby, or a database for reading only.
    ReadOnly,
    /// A missing grant.
    Privilege,
    /// A setting of the server, or a missing schema.
    Server,
}

impl ConnectError {
    pub(crate) fn setting(field: &'static str, advice: impl Into<String>) -> Self {
        let advice = advice.into();
        Self::Setting { field, advice }
    }

    /// What the error is about.
    pub const fn kind(&self) -> ConnectErrorKind {
        match self {
            Self::Address { .. } | Self::Setting { .. } | Self::UnknownParameter { .. } => {
                ConnectErrorKind::Settings
            }
            Self::Unreachable { .. } | Self::NotReady { .. } => ConnectErrorKind::Unreachable,
            Self::Tls { .. } => ConnectErrorKind::Tls,
            Self::Denied { .. } | Self::MissingDatabase { .. } => ConnectErrorKind::Authentication,
            Self::WrongServer { .. } => ConnectErrorKind::WrongServer,
            Self::ReadOnly { .. } => ConnectErrorKind::ReadOnly,
            Self::MissingPrivilege { .. } => ConnectErrorKind::Privilege,
            Self::Unsuitable { .. } => ConnectErrorKind::Server,
        }
    }

    /// Whether the same call may succeed later without a change of any configuration: the server comes
    /// back, or a standby becomes the primary.
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::NotReady { .. } => true,
            Self::ReadOnly { is_standby, .. } => *is_standby,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_passes_by_itself_is_retryable() {
        let server = || "postgres://me@a:5432/d".to_owned();
        let reason = String::new;
        let read_only = |is_standby| ConnectError::ReadOnly {
            server: server(),
            reason: reason(),
            is_standby,
        };
        for (error, kind, is_retryable) in [
            (
                ConnectError::setting("port", "give 1 to 65535"),
                ConnectErrorKind::Settings,
                false,
            ),
            (
                ConnectError::Unreachable {
                    server: server(),
                    reason: reason(),
                },
                ConnectErrorKind::Unreachable,
                true,
            ),
            (
                ConnectError::NotReady {
                    server: server(),
                    reason: reason(),
                },
                ConnectErrorKind::Unreachable,
                true,
            ),
            (
                ConnectError::Denied {
                    server: server(),
                    reason: reason(),
                },
                ConnectErrorKind::Authentication,
                false,
            ),
            (read_only(true), ConnectErrorKind::ReadOnly, true),
            (read_only(false), ConnectErrorKind::ReadOnly, false),
        ] {
            assert_eq!(error.kind(), kind, "{error}");
            assert_eq!(error.is_retryable(), is_retryable, "{error}");
        }
    }
}
