//! Outbound HTTP: one request on one connection, to an allowed address.
//!
//! - [`HyperHttpClient`] makes the attempts;
//! - [`AllowedNets`] has the allowed addresses;
//! - [`Roots`] has the trusted root certificates;
//! - [`Resolve`] resolves names to addresses, and [`SystemResolver`] uses the operating system.
//!
//! # One attempt
//! Each attempt has its own connection, made to the address that was checked, and polled by the future that
//! waits for the response. So nothing can be sent twice over a dead connection, no redirect and no second
//! lookup can lead elsewhere, and dropping the future ends everything.

mod allowed_nets;
mod client;
mod connect;
mod exchange;
mod failure;
mod lookup;
mod net;
mod permits;
mod request;
mod tls;
mod wire;

pub use allowed_nets::{AllowedNets, NetsError};
pub use client::HyperHttpClient;
pub use lookup::{Resolve, SystemResolver};
pub use tls::{Roots, RootsError};
