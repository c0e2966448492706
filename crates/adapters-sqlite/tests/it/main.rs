//! Everything that the SQLite adapter promises, on real files.
#![expect(clippy::unwrap_used, reason = "tests: to panic is how they fail")]

mod store;
mod timer_store;
