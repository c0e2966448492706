//! Servers for tests: one that all share, or a private one to kill, stop, replace and restart.
//!
//! ```no_run
//! use punctual_test_servers::{NatsServer, shared_nats_url, unique_prefix};
//!
//! // Shared by all tests of a run: started by `cargo xtask test`. The prefix keeps tests apart.
//! let Some(url) = shared_nats_url() else { return };
//! let prefix = unique_prefix();
//!
//! // Private: it may be treated badly.
//! let Some(mut server) = NatsServer::start() else { return };
//! server.kill();
//! server.restart(); // the same port, the same store
//! ```
//!
//! On PostgreSQL, a [`SharedSchema`] or a [`SharedDatabase`] keeps tests apart on the shared server, and a
//! [`PostgresServer`] is private. A [`PgBouncer`] or a [`Proxy`] stands in front of either.
//!
//! Where a server is missing, a line says that the test was skipped; on the CI machine, where the
//! variable `CI` is set, that is a failure. Nothing here asks a clock or sleeps: a server is waited
//! for through what it writes to its log.

#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "only tests use this crate: to panic is how they fail"
)]

mod children;
mod log;
mod nats;
mod pgbouncer;
mod ports;
mod postgres;
mod postgres_programs;
mod process;
mod proxy;
mod shared;
mod shared_postgres;
mod store;
mod url;

pub use nats::NatsServer;
pub use pgbouncer::PgBouncer;
pub use postgres::{PostgresServer, ServerTls};
pub use postgres_programs::psql;
pub use proxy::Proxy;
pub use shared::{promtool, shared_nats_url, shared_python, unique_prefix};
pub use shared_postgres::{SharedDatabase, SharedSchema, shared_postgres_url};
