//! In-memory stores, a fake clock, sequential ids and fault injection, shipped so that users test with them.
//!
//! The adapters here pass the same conformance suites as the real ones, so a test that runs on
//! them says something about production. Nothing here starts a thread, waits, or reads a real
//! clock.
//!
//! - [`FakeClock`] is moved by hand and drives workers while it moves;
//! - [`MemoryTimerStore`] keeps timers, dead letters and the positions of buses;
//! - [`MemoryCallStore`] keeps service calls, their outbox and their attempts;
//! - [`SequentialIds`] gives ids that are the same in every run;
//! - [`faults`] wraps any port and makes its n-th call fail, hang, or be the last.

mod call_store;
mod fake_clock;
pub mod faults;
mod sequential_ids;
mod timer_store;
mod waited_for;
mod waited_for_calls;

pub use call_store::MemoryCallStore;
pub use fake_clock::{AtWork, Driving, FakeClock};
pub use sequential_ids::SequentialIds;
pub use timer_store::MemoryTimerStore;
pub use waited_for::WaitedFor;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also after a panic elsewhere: what is guarded here is changed in steps that cannot panic
/// halfway.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
