//! The in-memory adapters, held to the contracts of their ports.

mod fake_clock;
mod faults;
mod ids;
mod timer_store;
