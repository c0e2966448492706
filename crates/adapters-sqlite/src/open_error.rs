//! Why a database file could not be opened: one sentence each, for the person who started us.

use std::path::PathBuf;

use punctual_migrations::SchemaSet;
use thiserror::Error;

/// Why a database file could not be opened. Nothing was written to it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The linked SQLite can lose committed writes.
    #[error(
        "the linked SQLite {version} can lose committed writes: build with SQLite 3.51.3 or newer"
    )]
    OldSqlite {
        /// What is linked.
        version: String,
    },
    /// The folder could not be made.
    #[error("cannot create the folder {} for the database: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not there, and was not to be created.
    #[error("there is no database at {}", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The file or its folder cannot be written.
    #[error(
        "the database {} cannot be written: make the file and its folder writable for this user",
        path.display()
    )]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// The file is no database, or a damaged one.
    #[error(
        "the database {} is damaged or no SQLite database ({detail}): restore it from a backup, or name another file",
        path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What SQLite found.
        detail: String,
    },
    /// The file has the other set of tables.
    #[error(
        "the database {} holds the {found} tables, but the {} tables are needed: name another file",
        path.display(),
        wanted.name()
    )]
    WrongSet {
        /// The file.
        path: PathBuf,
        /// What it holds.
        found: String,
        /// What was asked for.
        wanted: SchemaSet,
    },
    /// The file was written by a newer program.
    #[error(
        "the database {} has migration {found}, which this program does not know: use a newer program",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The newest migration in the file.
        found: String,
    },
    /// The history of the file is not the one that this program would have written.
    #[error("the history of the database {} is not ours: {detail}", path.display())]
    Drift {
        /// The file.
        path: PathBuf,
        /// What differs.
        detail: String,
    },
    /// The file has tables of that name which no migration of ours made.
    #[error(
        "the database {} has a table {table} that is not ours: name another file",
        path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The table that is in the way.
        table: String,
    },
    /// Another process has the role.
    #[error(
        "the {role} role of {} is taken by {holder}: stop that process, or name another file",
        path.display()
    )]
    RoleTaken {
        /// The file.
        path: PathBuf,
        /// The role.
        role: &'static str,
        /// Who has it, as far as is known.
        holder: String,
    },
    /// Somebody holds the write lock for longer than we wait.
    #[error("the database {} is locked by another program: try again", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// There is no room.
    #[error("there is no room to open the database {}: free some disk space", path.display())]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// Something else went wrong.
    #[error("cannot open the database {}: {source}", path.display())]
    Other {
        /// The file.
        path: PathBuf,
        /// What.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
