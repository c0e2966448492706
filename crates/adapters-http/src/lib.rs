//! Outbound HTTP: one request on one connection, to an address that calls may reach.
//!
//! - [`HyperHttpClient`] makes the attempts;
//! - [`AllowedNets`] says which addresses may be reached;
//! - [`Roots`] says whose certificates are believed;
//! - [`Resolve`] turns names into addresses, and [`SystemResolver`] asks the operating system.
//!
//! # What makes an attempt an attempt
//! Each has a connection of its own, made here to the very address that was checked, and polled by the
//! same future that waits for the answer. So nothing can be sent twice over a connection that died,
//! no redirect and no second look-up can lead elsewhere, and who drops the future ends everything.

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
