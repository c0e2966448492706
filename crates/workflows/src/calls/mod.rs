//! The life of a service call: submitted, scheduled, started, executed, told of, forgotten.
//!
//! - [`SubmitCalls`] takes and deletes calls, for callers and for commands from a bus;
//! - [`ReactToEvents`] starts a call when its due time is reached, and ends it with its result;
//! - [`CallSweeper`] helps a call on when a message about it was lost;
//! - [`AcceptExecutions`] and [`ExecuteCalls`] make the one attempt of a call;
//! - [`DispatchOutbox`] publishes what was committed; nothing else here publishes, but that
//!   [`AcceptExecutions`] repeats what was told of an attempt to whoever has not heard it;
//! - [`DeleteCallTimers`] removes the timer of a call that is gone;
//! - [`ForwardStandaloneTimers`] tells of timers that belong to no call;
//! - [`ReadCalls`] shows calls, and the trace of a request;
//! - [`CallRetention`] removes what is older than anybody wants to know.
//!
//! Handlers commit a change together with what is to be told of it, and return. Each is correct for
//! any message, any number of times, in any order.

mod accept;
mod attempt;
mod background;
mod concurrency_limiter;
mod delete_timers;
mod dispatch;
mod envelopes;
mod execute;
mod notifier;
mod outcome;
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
pub use background::{BackgroundTask, BackgroundWorker};
pub use delete_timers::DeleteCallTimers;
pub use dispatch::DispatchOutbox;
pub use execute::ExecuteCalls;
pub use notifier::Notifier;
pub use ports::CallPorts;
pub use react::ReactToEvents;
pub use read::{CallView, ReadCalls};
pub use retention::CallRetention;
pub use settings::CallSettings;
pub use standalone_timers::{ForwardStandaloneTimers, RejectStandaloneTimers};
pub use submit::{DeleteCallOutcome, SubmitCalls};
pub use sweep::CallSweeper;
pub use trace::{Trace, TraceStep};
