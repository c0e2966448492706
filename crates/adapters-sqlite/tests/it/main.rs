//! Tests of the SQLite adapter: the contracts of its ports, and what concerns files alone.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod backup;
mod beside_others;
mod call_query_plans;
mod call_secrets;
mod call_store;
mod call_writes;
mod calls;
mod claim_races;
mod foreign_rows;
mod idle;
mod inspecting;
mod migrations;
mod moved_file;
mod opening;
mod query_plans;
mod refused_files;
mod schedule_in;
mod schema;
mod scratch;
mod small_disk;
mod store;
mod timer_store;
mod trouble;
