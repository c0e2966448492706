//! The SQLite adapter, held to the contracts of its ports, and to what only a file can go through.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod migrations;
mod refused_files;
mod schema;
mod scratch;
mod store;
mod timer_store;
