//! A store and a bus that Punctual does not know, as an example of how to write yours.
//!
//! [`LogStore`] keeps timers in an append-only log, [`FileBus`] appends events to a file. Both are small
//! because they hold everything in memory or nothing at all, and both keep the two promises that matter:
//! what was answered with `Ok` survives a kill, and nothing fires early. `tests/conformance.rs` holds them
//! to their contracts.

mod file_bus;
mod log;
mod log_store;
mod state;

pub use file_bus::FileBus;
pub use log_store::LogStore;
