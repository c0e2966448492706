//! The bus on a real broker.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod conformance;
mod consuming;
mod fairness;
mod fixture;
mod in_flight;
mod letting_in;
mod migrating;
mod outages;
mod poison;
mod publishing;
mod streams;
