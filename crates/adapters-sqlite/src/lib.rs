//! Timers on one SQLite file.

mod migrate;
mod open_error;
mod settings;

pub use migrate::{MigrationState, Report, Status, migrate, migration_status};
pub use open_error::OpenError;
pub use punctual_migrations::SchemaSet;
pub use settings::{Role, SqliteSettings, Synchronous};
