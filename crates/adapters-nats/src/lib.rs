//! The event bus on NATS JetStream: commands in, events out, through a real broker.
//!
//! - [`NatsSettings`] has the address of the broker and the credentials;
//! - [`NatsEventBus`] is the bus: it waits for the acknowledgement of every message that it publishes, and
//!   acknowledges a delivered message only after it was handled;
//! - [`examine`] reports what is wrong with the streams of a broker without changing them.
//!
//! # Failures of the broker
//! The broker may be unavailable at the start or later, flap, lose its streams, and come back without the
//! last messages that it acknowledged. None of that loses a timer: nothing is marked without an
//! acknowledgement, nothing is published over a connection before its streams were checked, and messages
//! that the broker lost are published again ([`DataLoss`](punctual_ports::DataLoss)).

mod bus;
mod connect;
mod consume;
mod error;
mod link;
pub mod metric_names;
mod names;
mod progress;
mod publish;
mod settings;
mod streams;
mod tracker;

pub use async_nats;
pub use bus::{NatsEventBus, NatsParts};
pub use connect::connect;
pub use error::NatsError;
pub use settings::{NatsAuth, NatsSettings, NatsTls, Prefix};
pub use streams::examine;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, ignoring poison: guarded state is never left half-changed by a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Maximum size of a message, published or delivered.
pub const MAX_MESSAGE_BYTES: usize = 1 << 20;
