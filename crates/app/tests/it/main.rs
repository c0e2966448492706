//! The library as its users meet it: only what `punctual` itself gives.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on fails"
)]

mod apart;
mod building;
mod calls;
mod examples;
mod fixture;
mod handlers;
mod in_postgres_transaction;
mod in_transaction;
mod life_cycle;
mod losses;
mod nats;
mod own_store;
mod postgres;
mod scheduling;
mod starting;
