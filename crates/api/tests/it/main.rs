//! The API as its clients see it, over adapters in memory.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
mod calls;
mod contract;
mod edges;
mod hostile;
mod limits;
mod problems;
mod schemathesis;
mod serving;
mod timers;
mod world;
