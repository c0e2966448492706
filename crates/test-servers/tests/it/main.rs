//! The servers and the network between, as tests of other crates use them.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod nats;
mod pgbouncer;
mod postgres;
mod postgres_tls;
mod proxy;
mod proxy_bytes;
mod raw_client;
mod session;
mod shared_postgres;
