//! The system adapters, held to the contracts of their ports.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod in_process_bus;
mod system_clock;
mod uuid_ids;
