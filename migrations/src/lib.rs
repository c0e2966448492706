//! The schemas of Punctual's databases and the order in which they grow. Pure: no driver, no I/O.
//!
//! A set of tables ([`SchemaSet`]) is a list of [`Migration`]s in each [`Dialect`], and each of them a
//! file of SQL that is embedded here. A database keeps a history of those it has been through. [`plan`] compares the two and
//! answers what is still to be applied, or why this program must not touch it.
//! `docs/decisions/0015-migrations.md` has the rules.

mod dialect;
mod migration;
mod plan;
mod postgres;
mod schema_set;
mod sqlite;

pub use dialect::Dialect;
pub use migration::Migration;
pub use plan::{Applied, Drift, plan};
pub use schema_set::SchemaSet;

/// The table in which a SQLite file keeps its history.
pub const SQLITE_HISTORY: &str = include_str!("../history/sqlite.sql");

/// The table in which a schema of PostgreSQL keeps its history; does nothing where it exists.
pub const POSTGRES_HISTORY: &str = include_str!("../history/postgres.sql");
