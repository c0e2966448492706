//! The workflows, driven by a fake clock over in-memory adapters.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(feature = "calls")]
mod calls;
mod edges;
mod fairness;
mod firing;
mod ledger;
mod losing_bus;
mod misbehaving_ports;
mod port_failures;
mod republishing;
mod rescheduling;
mod retention;
mod running;
mod scheduling;
mod shutdown;
mod simulation;
mod slow_handlers;
mod telemetry;
mod waking;
mod world;
mod year;
