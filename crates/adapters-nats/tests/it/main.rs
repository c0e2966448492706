//! The bus on a real broker.

mod conformance;
mod consuming;
mod fixture;
mod outages;
mod poison;
mod publishing;
mod streams;
