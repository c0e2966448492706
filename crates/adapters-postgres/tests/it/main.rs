//! The store on a real PostgreSQL.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod call_secrets;
mod call_store;
mod certificates;
mod claim_races;
mod connecting;
mod examining;
mod heartbeats;
mod idle;
mod instances;
mod listening;
mod migrations;
mod query_plans;
mod schedule_in;
mod schema;
mod scratch;
mod small_disk;
mod starting_together;
mod store;
mod suspended;
mod sweeping;
mod timer_store;
mod tls_modes;
mod trouble;
mod unasked;
mod warnings;
mod watching;
