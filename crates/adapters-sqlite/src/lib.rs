//! Timers on one SQLite file.

mod open_error;
mod settings;

pub use open_error::OpenError;
pub use punctual_migrations::SchemaSet;
pub use settings::{Role, SqliteSettings, Synchronous};
