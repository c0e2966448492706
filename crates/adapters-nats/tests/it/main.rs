//! The bus on a real broker.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod conformance;
mod consuming;
mod fixture;
mod letting_in;
mod outages;
mod poison;
mod publishing;
mod streams;
