//! The in-memory adapters, held to the contracts of their ports.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod call_store;
mod fake_clock;
mod faults;
mod ids;
mod publish_only_bus;
mod timer_store;
