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

/// What a program does with the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It fires the timers, and conducts the service calls if the file has some: only one may at a
    /// time, and a second is refused.
    Timer,
    /// It conducts the service calls, while timers are fired from a file of their own: only one may at
    /// a time. A worker that would fire timers on it stops at once.
    Calls,
    /// It schedules, cancels and reads beside the one that fires, and never fires itself: a worker
    /// on it stops at once.
    Client,
}

/// A function that is called for each statement that begins.
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
    /// Which tables it has: timers alone, unless timers belong to service calls in the same file.
    pub set: SchemaSet,
    /// What it is opened for.
    pub role: Role,
    /// What an acknowledged write survives.
    pub synchronous: Synchronous,
    /// How long a write waits for another program's lock before it answers `Busy`.
    pub busy_timeout: Duration,
    /// How large the file may become, with its log and with what accepted calls will still write.
    /// From there on new timers and calls are refused until there is room again; what was accepted
    /// goes on to its end, and is never refused for the limit.
    pub max_file_bytes: Option<u64>,
    /// Whether the limit also refuses timers that come as commands. Not where commands come from
    /// calls alone that were accepted in another file: those have to find their place.
    pub limits_commands: bool,
    /// When the log beside the file is longer than this many bytes, because some reader keeps it
    /// from being folded in, new timers are refused until it is shorter.
    pub max_log_bytes: u64,
    /// Called on every connection for each statement that begins, so that they can be counted or
    /// shown. It must not block.
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

    /// The same file, for scheduling, cancelling and reading beside the process that fires it.
    pub fn client(path: impl Into<PathBuf>) -> Self {
        Self {
            role: Role::Client,
            ..Self::timers(path)
        }
    }
}
