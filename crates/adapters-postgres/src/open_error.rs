//! Why a store could not be opened: one sentence each, for the operator.

use punctual_migrations::{Drift, SchemaSet};
use thiserror::Error;
use tokio_postgres::error::SqlState;

use crate::ConnectError;
use crate::driver::words;

/// Why a store could not be opened. None of its tables and rows was changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no connection, or the server is not one that timers can be entrusted to.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The schema has the other set of tables.
    #[error(
        "the schema {schema} of the database {server} holds the {found} tables, but the {} tables are needed: name another schema with DATABASE_SCHEMA",
        wanted.name()
    )]
    WrongSet {
        /// The address.
        server: String,
        /// The schema.
        schema: String,
        /// What it holds.
        found: String,
        /// What was requested.
        wanted: SchemaSet,
    },
    /// The tables were written by a newer program.
    #[error(
        "the schema {schema} of the database {server} has migration {found}, which this program does not know: use a newer program"
    )]
    Newer {
        /// The address.
        server: String,
        /// The schema.
        schema: String,
        /// The newest migration.
        found: String,
    },
    /// The history of the schema is not the one that this program would have written.
    #[error(
        "the history of the schema {schema} of the database {server} is not one that this program can continue ({detail}): use the program that wrote it, or restore a backup"
    )]
    Drift {
        /// The address.
        server: String,
        /// The schema.
        schema: String,
        /// What differs.
        detail: String,
    },
    /// An object in the schema that is not ours has a name that we need.
    #[error(
        "the schema {schema} of the database {server} has something that is not ours ({detail}): rename it, or name another schema with DATABASE_SCHEMA"
    )]
    Foreign {
        /// The address.
        server: String,
        /// The schema.
        schema: String,
        /// What the server says.
        detail: String,
    },
    /// There are no tables yet, and a client does not create them.
    #[error(
        "the schema {schema} of the database {server} has no tables of ours: start the program that fires its timers first"
    )]
    Missing {
        /// The address.
        server: String,
        /// The schema.
        schema: String,
    },
    /// Something else went wrong.
    #[error("cannot prepare the schema {schema} of the database {server}: {reason}")]
    Other {
        /// The address.
        server: String,
        /// The schema.
        schema: String,
        /// What.
        reason: String,
        /// Whether it may succeed later.
        is_retryable: bool,
    },
}

impl OpenError {
    /// Whether the same may succeed later without any change by an operator.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Connect(error) => error.is_retryable(),
            Self::Other { is_retryable, .. } => *is_retryable,
            _ => false,
        }
    }
}

/// A schema, for messages.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) server: String,
    pub(crate) schema: String,
}

impl Place {
    /// The error of a statement of a migration.
    pub(crate) fn failed(&self, error: &tokio_postgres::Error) -> OpenError {
        let (server, schema) = (self.server.clone(), self.schema.clone());
        let is = |code: SqlState| error.code() == Some(&code);
        if is(SqlState::DUPLICATE_TABLE)
            || is(SqlState::DUPLICATE_OBJECT)
            || is(SqlState::DUPLICATE_FUNCTION)
            || is(SqlState::WRONG_OBJECT_TYPE)
        {
            let detail = words(error);
            return OpenError::Foreign {
                server,
                schema,
                detail,
            };
        }
        let is_final = error.code().is_some_and(|it| it.code().starts_with("42"));
        OpenError::Other {
            server,
            schema,
            reason: words(error),
            is_retryable: !is_final,
        }
    }

    /// A migration history that cannot be continued.
    pub(crate) fn drift(&self, wanted: SchemaSet, drift: Drift) -> OpenError {
        let (server, schema) = (self.server.clone(), self.schema.clone());
        match drift {
            Drift::OtherSet { found } => OpenError::WrongSet {
                server,
                schema,
                found,
                wanted,
            },
            Drift::Newer { name } => OpenError::Newer {
                server,
                schema,
                found: name,
            },
            other => OpenError::Drift {
                server,
                schema,
                detail: other.to_string(),
            },
        }
    }
}
