//! The event bus on NATS JetStream: commands in, events out, through a real broker.
//!
//! - [`NatsSettings`] says where the broker is and who we are to it;
//! - [`NatsEventBus`] is the bus: it publishes with an acknowledgement for every message, and hands
//!   messages over so that each is acknowledged only after it was stored;
//! - [`examine`] tells what is wrong with a broker's streams without changing them.
//!
//! # What the broker may do to us
//! It may be away at the start, go away, come back, flap, lose its streams, and come back without
//! the last messages that it had acknowledged. None of that loses a timer: nothing is marked without
//! an acknowledgement, nothing is published over a connection before the streams behind it were
//! looked at, and what the broker has lost is published again ([`DataLoss`](punctual_ports::DataLoss)).

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

/// The largest message that is sent or taken.
pub const MAX_MESSAGE_BYTES: usize = 1 << 20;
