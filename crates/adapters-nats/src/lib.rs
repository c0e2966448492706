//! The event bus on NATS JetStream.
//!
//! - [`NatsSettings`] says where the broker is and who we are;

mod connect;
mod error;
mod settings;

pub use async_nats;
pub use connect::connect;
pub use error::NatsError;
pub use settings::{NatsAuth, NatsSettings, NatsTls, Prefix};
