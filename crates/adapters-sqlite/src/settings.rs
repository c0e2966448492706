//! How a database file is opened.

use std::path::PathBuf;
use std::time::Duration;

use punctual_migrations::SchemaSet;
use rusqlite::trace::TraceEvent;

/// What an acknowledged write survives (docs/decisions/0014).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Synchronous {
    /// A power failure too: every commit reaches the disk before it is acknowledged.
    #[default]
    Full,
    /// Any crash of the process; a power failure may take the last commits.
    Normal,
}

/// The role of a program for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Fires the timers, and conducts the service calls if the file has some. Exclusive: a second program
    /// is refused.
    Timer,
    /// Conducts the service calls, or makes their attempts, while timers are fired from another file. Exclusive. A worker that
    /// fires timers on it stops at once.
    Calls,
    /// Schedules, cancels and reads beside the program that fires, and never fires itself: a worker on it
    /// stops at once.
    Client,
}

/// A function that is called for each statement that starts.
#[derive(Debug, Clone, Copy)]
pub struct OnStatement(pub fn(TraceEvent<'_>));

impl PartialEq for OnStatement {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::fn_addr_eq(self.0, other.0)
    }
}

impl Eq for OnStatement {}

/// How a database file is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqliteSettings {
    /// The file; it and its folder are created if they are missing.
    pub path: PathBuf,
    /// Which tables it has: timers alone, unless timers belong to service calls in the same file, or it is for
    /// attempts.
    pub set: SchemaSet,
    /// What it is opened for.
    pub role: Role,
    /// What an acknowledged write survives.
    pub synchronous: Synchronous,
    /// How long a write waits for another program's lock before it answers `Busy`.
    pub busy_timeout: Duration,
    /// Maximum number of bytes of the file, with its log and with what accepted calls will still write.
    /// Beyond that, new timers and calls are refused; writes that finish accepted ones never are.
    pub max_file_bytes: Option<u64>,
    /// Whether the limit also refuses timers that come as commands. Not where all commands come from
    /// calls that were accepted in another file: their timers must be stored.
    pub limits_commands: bool,
    /// Maximum number of bytes of the log. Beyond that, because a reader prevents its checkpoint, new
    /// timers are refused.
    pub max_log_bytes: u64,
    /// Called on every connection for each statement that starts, to count or log them. Must not block.
    pub on_statement: Option<OnStatement>,
}

impl SqliteSettings {
    /// Timers on a file of their own, fired by this process, safe through power failures.
    pub fn timers(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            set: SchemaSet::TimersOnly,
            role: Role::Timer,
            synchronous: Synchronous::Full,
            busy_timeout: Duration::from_secs(5),
            max_file_bytes: None,
            limits_commands: true,
            max_log_bytes: 1 << 30,
            on_statement: None,
        }
    }

    /// Service calls and their timers on one file, conducted and fired by this process, safe through
    /// power failures.
    pub fn service_calls(path: impl Into<PathBuf>) -> Self {
        Self {
            set: SchemaSet::Shared,
            ..Self::timers(path)
        }
    }

    /// Service calls on a file, conducted by this process, whose timers are elsewhere.
    pub fn calls_alone(path: impl Into<PathBuf>) -> Self {
        Self {
            role: Role::Calls,
            ..Self::service_calls(path)
        }
    }

    /// The attempts of calls that are elsewhere, on a file of their own, made by this process.
    pub fn execution(path: impl Into<PathBuf>) -> Self {
        Self {
            set: SchemaSet::ExecutionOnly,
            role: Role::Calls,
            ..Self::timers(path)
        }
    }

    /// The same file, for scheduling, cancelling and reading beside the process that fires it.
    pub fn client(path: impl Into<PathBuf>) -> Self {
        Self {
            role: Role::Client,
            ..Self::timers(path)
        }
    }
}
