//! The system clock, UUID v7 ids and the in-process bus: the only callers of the operating system's clock.
//!
//! All other crates get time, sleeps and ids through ports, so that they can be tested on a fake clock.

mod in_process_bus;
mod system_clock;
mod uuid_ids;

pub use in_process_bus::{Handlers, InProcessBus};
pub use system_clock::SystemClock;
pub use uuid_ids::UuidIds;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, ignoring poison: guarded state is never left half-changed by a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
