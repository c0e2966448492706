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
//! - [`faults`] makes the n-th call of any port fail, hang, or be the last;
//! - [`Intercepted`] is any port with an [`Interceptor`] around its calls: [`Faulty`](faults::Faulty)
//!   with faults, [`Awaited`] with a clock that stands still meanwhile.

mod backend;
mod call_store;
mod fake_clock;
pub mod faults;
mod intercepted;
mod sequential_ids;
mod timer_store;

pub use call_store::MemoryCallStore;
pub use fake_clock::{AtWork, Awaited, Driving, FakeClock};
pub use intercepted::{Intercepted, Interceptor};
pub use sequential_ids::SequentialIds;
pub use timer_store::MemoryTimerStore;

use std::sync::{Mutex, MutexGuard, PoisonError};

use punctual_domain::ServiceCallId;
use punctual_ports::{BatchResult, PortError};
use uuid::Uuid;

/// The bounds of ids, for ranges over all calls of a tenant or an instant.
const FIRST: ServiceCallId = ServiceCallId::from_uuid(Uuid::nil());
const LAST: ServiceCallId = ServiceCallId::from_uuid(Uuid::max());

/// Locks, ignoring poison: guarded state is never left half-changed by a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Applies the items of a batch in order, under one lock.
#[expect(
    clippy::unnecessary_wraps,
    reason = "the answer is the one of the ports' methods"
)]
fn each<S, I, O>(
    state: &Mutex<S>,
    batch: Vec<I>,
    mut apply: impl FnMut(&mut S, I) -> Result<O, PortError>,
) -> BatchResult<O> {
    let mut state = lock(state);
    let answers = batch.into_iter().map(|item| apply(&mut state, item));
    Ok(answers.collect())
}
