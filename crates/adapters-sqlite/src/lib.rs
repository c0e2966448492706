//! Timers and service calls on one SQLite file: group commit, a read-only pool, role locks, migrations.
//!
//! - [`SqliteTimerStore`] implements the ports of a timer store;
//! - [`SqliteCallStore`] implements those of service calls, on the same file and the same thread;
//! - [`schedule_in`] stores a timer within a transaction of the caller's own;
//! - [`migrate`] and [`migration_status`] apply or list the migrations of a file;
//! - [`backup`] backs up a file that is in use;
//! - [`inspect`] and [`served_by`] read a file without changing or creating any.
//!
//! # Speed
//! `rusqlite` builds SQLite so that all connections of a process share one page cache behind one
//! lock. Firing and scheduling at the same time is faster without; this workspace's
//! `.cargo/config.toml` sets, and yours should set:
//!
//! ```toml
//! [env]
//! LIBSQLITE3_FLAGS = "-USQLITE_ENABLE_MEMORY_MANAGEMENT -DSQLITE_DEFAULT_MEMSTATUS=0"
//! ```

mod backend;
mod backup;
mod bus_positions;
#[doc(hidden)]
pub mod call_sql;
mod call_store;
mod claims;
mod connection;
mod dead_letters;
#[doc(hidden)]
pub mod execution_sql;
mod file_identity;
mod inspect;
mod migrate;
mod open_error;
mod port_errors;
mod role_lock;
mod schedule_in;
mod settings;
#[doc(hidden)]
pub mod sql;
mod timer_store;
mod torn_copy;
mod writer;

pub use backup::{BackedUp, BackupError, backup};
pub use call_store::SqliteCallStore;
pub use inspect::{Inspection, Wholeness, inspect, served_by};
pub use migrate::{MigrationState, Report, Status, migrate, migration_status};
pub use open_error::OpenError;
pub use punctual_migrations::SchemaSet;
/// The driver whose `Transaction` [`schedule_in`] takes. Two versions of it cannot be linked together.
pub use rusqlite;
pub use schedule_in::schedule_in;
pub use settings::{OnStatement, Role, SqliteSettings, Synchronous};
pub use timer_store::SqliteTimerStore;
