//! The life of a service call: submitted, scheduled, running, finished, purged.
//!
//! - [`SubmitCalls`] accepts and deletes calls, for callers and for commands from a bus;
//! - [`ReactToEvents`] starts a call when its due time is reached, and finishes it with its outcome;
//! - [`CallSweeper`] rescues a call when a message about it was lost;
//! - [`AcceptExecutions`] and [`ExecuteCalls`] execute the one attempt of a call;
//! - [`DispatchOutbox`] publishes committed messages; nothing else here publishes, except that
//!   [`AcceptExecutions`] publishes the last event of a redispatched attempt again;
//! - [`DeleteCallTimers`] deletes the timer of a deleted call, and [`DeleteCallAttempts`] its attempt, each in a
//!   database of its own;
//! - [`ForwardStandaloneTimers`] forwards the events of timers that belong to no call;
//! - [`ReadCalls`] reads calls, and the trace of a request;
//! - [`CallRetention`] purges old rows.
//!
//! A handler commits a change together with the messages that describe it, and returns. Each is
//! correct for any message, any number of times, in any order.

mod accept;
mod attempt;
mod concurrency_limiter;
mod delete_attempts;
mod delete_timers;
mod dispatch;
mod envelopes;
mod execute;
mod ports;
mod react;
mod read;
mod retention;
mod settings;
mod standalone_timers;
mod submit;
mod sweep;
mod trace;

pub use accept::AcceptExecutions;
pub use delete_attempts::DeleteCallAttempts;
pub use delete_timers::DeleteCallTimers;
pub use dispatch::DispatchOutbox;
pub use execute::ExecuteCalls;
pub use ports::CallPorts;
pub use react::ReactToEvents;
pub use read::{CallView, ReadCalls};
pub use retention::CallRetention;
pub use settings::CallSettings;
pub use standalone_timers::{ForwardStandaloneTimers, RejectStandaloneTimers};
pub use submit::{DeleteCallOutcome, SubmitCalls};
pub use sweep::CallSweeper;
pub use trace::{Trace, TraceStep};
