//! The one error of the library: what failed, and what to do about it.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use punctual_domain::{IdError, TenantIdError, TimerDataError, TimerKey, TimestampError};
use punctual_ports::{PortError, PortErrorKind};
use punctual_workflows::{SettingsError, WorkerStopped};

/// What kind of failure it was, which decides what you can do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The builder lacks something, got something twice, or a setting makes no sense.
    Config,
    /// The database cannot be used: it is damaged, newer than this program, another program's, or
    /// not writable.
    Unusable,
    /// The broker does not let us in, cannot be reached securely, or would lose messages.
    Broker,
    /// Another process, or another engine in this one, fires the timers of this file.
    InUse,
    /// Another program held the write lock for longer than we wait.
    Busy,
    /// Something did not answer in time, or got too much at once.
    Unavailable,
    /// There is no room for new timers. Those that are stored go on firing.
    Full,
    /// What was given can never be accepted.
    Rejected,
    /// The timer has fired already, and nothing was stored: what is scheduled under its key would never
    /// fire. [`replace`](crate::Punctual::replace) lets it fire again.
    AlreadyReached,
    /// The engine was shut down, or has stopped by itself.
    Stopped,
    /// The store failed in a way after which going on would be to pretend.
    Broken,
}

impl ErrorKind {
    /// Whether the same call may succeed later.
    pub const fn is_retryable(self) -> bool {
        matches!(
            self,
            Self::InUse | Self::Busy | Self::Unavailable | Self::Full
        )
    }

    /// What to do about it.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Config => {
                "correct the call of the builder or of the engine: trying again does not help"
            }
            Self::Unusable => {
                "mend or replace the database, or name another: trying again does not help"
            }
            Self::Broker => "correct the broker or our settings for it: trying again does not help",
            Self::InUse => {
                "stop the other one, name another file, or open this one with `sqlite_client`"
            }
            Self::Busy => {
                "call again; if it persists, find the program that keeps a transaction open"
            }
            Self::Unavailable => {
                "call again after a moment: scheduling the same timer twice does no harm"
            }
            Self::Full => "free some disk space or raise the limit, then call again",
            Self::Rejected => "correct what was given: trying again does not help",
            Self::AlreadyReached => {
                "call `replace` to let it fire again, or schedule under another key: trying again does not help"
            }
            Self::Stopped => {
                "build and start a new engine: what was acknowledged is stored and will fire"
            }
            Self::Broken => {
                "check the disk and the file, then start again: what was acknowledged before is stored"
            }
        }
    }
}

/// A call that failed: one sentence, its [kind](ErrorKind), and [what to do](Error::advice).
///
/// When a call that schedules fails with an error that [may be retried](Error::is_retryable), the
/// timer may have been stored all the same. Call again: scheduling the same key twice is the same as
/// once. If it was stored and has fired since, the answer is
/// [`AlreadyReached`](ErrorKind::AlreadyReached).
///
/// ```
/// # async fn example(punctual: punctual::Punctual, timer: punctual::Timer) {
/// match punctual.schedule(timer).await {
///     Ok(outcome) => println!("{outcome:?}: it is stored and will fire"),
///     Err(error) if error.is_retryable() => println!("{error}; {}", error.advice()),
///     Err(error) => panic!("{error}; {}", error.advice()),
/// }
/// # }
/// ```
#[derive(Clone)]
pub struct Error {
    kind: ErrorKind,
    message: Arc<str>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl AsRef<str>) -> Self {
        Self {
            kind,
            message: Arc::from(message.as_ref()),
            source: None,
        }
    }

    pub(crate) fn caused(kind: ErrorKind, source: impl StdError + Send + Sync + 'static) -> Self {
        Self {
            kind,
            message: Arc::from(source.to_string()),
            source: Some(Arc::new(source)),
        }
    }

    /// What a call answers after the engine has stopped, with the reason for that.
    pub(crate) fn stopped(reason: &str) -> Self {
        Self::new(
            ErrorKind::Stopped,
            format!("the engine has stopped: {reason}"),
        )
    }

    /// What a call answers that wants to schedule a timer that has fired.
    pub(crate) fn already_reached(key: &TimerKey) -> Self {
        let message = format!(
            "the timer {key} has fired already, and nothing was stored: `replace` lets it fire again"
        );
        Self::new(ErrorKind::AlreadyReached, message)
    }

    /// What kind of failure it was.
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether the same call may succeed later.
    pub const fn is_retryable(&self) -> bool {
        self.kind.is_retryable()
    }

    /// What to do about it, in one sentence.
    pub const fn advice(&self) -> &'static str {
        self.kind.advice()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// What a `main` that returns it shows: the sentence, and what to do about it.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?}: {})", self.message, self.kind, self.advice())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        // Its text is ours already: what it says beyond that is its own source.
        self.source.as_deref().and_then(StdError::source)
    }
}

impl From<PortError> for Error {
    fn from(error: PortError) -> Self {
        let kind = match error.kind() {
            PortErrorKind::Busy => ErrorKind::Busy,
            PortErrorKind::StorageFull => ErrorKind::Full,
            PortErrorKind::Rejected => ErrorKind::Rejected,
            PortErrorKind::Broken => ErrorKind::Broken,
            PortErrorKind::Stopped => ErrorKind::Stopped,
            _ => ErrorKind::Unavailable,
        };
        Self::caused(kind, error)
    }
}

impl From<WorkerStopped> for Error {
    fn from(stopped: WorkerStopped) -> Self {
        stopped.cause.into()
    }
}

impl From<SettingsError> for Error {
    fn from(error: SettingsError) -> Self {
        Self::caused(ErrorKind::Config, error)
    }
}

/// Input that a value of ours cannot be made of.
macro_rules! rejected {
    ($($error:ty),*) => {$(
        impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::caused(ErrorKind::Rejected, error)
            }
        }
    )*};
}
rejected!(IdError, TenantIdError, TimerDataError, TimestampError);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_a_port_has_one_of_ours() {
        for (of_port, ours) in [
            (PortErrorKind::Unavailable, ErrorKind::Unavailable),
            (PortErrorKind::Overloaded, ErrorKind::Unavailable),
            (PortErrorKind::Busy, ErrorKind::Busy),
            (PortErrorKind::StorageFull, ErrorKind::Full),
            (PortErrorKind::Rejected, ErrorKind::Rejected),
            (PortErrorKind::Broken, ErrorKind::Broken),
            (PortErrorKind::Stopped, ErrorKind::Stopped),
        ] {
            let error = Error::from(PortError::new(of_port, "save timers", "because"));
            assert_eq!(error.kind(), ours);
            assert_eq!(error.is_retryable(), of_port.is_retryable());
            assert_eq!(error.to_string(), "failed to save timers: because");
        }
    }

    #[test]
    fn a_main_that_returns_it_shows_a_sentence_and_what_to_do() {
        let error = Error::new(ErrorKind::Full, "no room");
        let shown = "no room (Full: free some disk space or raise the limit, then call again)";
        assert_eq!(format!("{error:?}"), shown);
    }

    #[test]
    fn the_text_is_not_repeated_by_its_source() {
        let deep = std::io::Error::other("no route");
        let port = PortError::new(PortErrorKind::Unavailable, "save timers", "gone");
        let error = Error::from(port.with_source(deep));
        assert_eq!(error.source().unwrap().to_string(), "no route");
        let shallow = Error::from(TenantIdError::Empty);
        assert!(shallow.source().is_none());
        assert_eq!(shallow.kind(), ErrorKind::Rejected);
    }
}
