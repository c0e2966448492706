//! The schemas of Punctual's databases and the order in which they grow. Pure: no driver, no I/O.
//!
//! A set of tables ([`SchemaSet`]) is a list of [`Migration`]s, each a file of SQL that is embedded
//! here. A database keeps a history of those it has been through. [`plan`] compares the two and
//! answers what is still to be applied, or why this program must not touch the file.
//! `docs/decisions/0015-migrations.md` has the rules.

mod migration;
mod plan;
mod schema_set;

pub use migration::Migration;
pub use plan::{Applied, Drift, plan};
pub use schema_set::SchemaSet;

/// The table in which a SQLite file keeps its history.
pub const SQLITE_HISTORY: &str = include_str!("../history/sqlite.sql");
