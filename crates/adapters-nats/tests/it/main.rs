//! The bus on a real broker.

mod conformance;
mod fixture;
