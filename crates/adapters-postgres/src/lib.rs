//! The timer store on PostgreSQL: many instances, one schedule.

mod backend;
mod bus_positions;
mod call_store;
mod connect;
mod connect_error;
mod connection_probe;
mod connection_string;
mod dead_letters;
mod direct_session;
mod driver;
mod explain;
mod health;
mod inspect;
mod instances;
mod lane;
pub mod metric_names;
mod migrate;
mod migration_report;
mod open_error;
mod password_file;
mod port_errors;
mod schedule_in;
mod server_facts;
mod settings;
#[macro_use]
mod sql;
#[macro_use]
mod call_sql;
mod execution_sql;
mod timer_store;
mod tls;
mod url;
mod values;

#[doc(hidden)]
pub use call_sql::CallStatements;
pub use call_store::PostgresCallStore;
pub use connect_error::{ConnectError, ConnectErrorKind};
#[doc(hidden)]
pub use connection_probe::ConnectionProbe;
#[doc(hidden)]
pub use execution_sql::ExecutionStatements;
pub use inspect::{Inspection, Standby, examine};
#[doc(hidden)]
pub use lane::{BEGIN_DURABLE, BEGIN_QUICK, BEGIN_READ};
pub use migration_report::{MigrationReport, MigrationState, migrate, migration_status};
pub use open_error::OpenError;
pub use punctual_migrations::SchemaSet;
#[doc(hidden)]
pub use settings::TestClock;
pub use settings::{CommitNotify, InstanceLabel, PostgresSettings, Role, StoreClock};
#[doc(hidden)]
pub use sql::Statements;
pub use timer_store::PostgresTimerStore;
/// The driver whose `Transaction` a caller passes. Two versions of it cannot be mixed.
pub use tokio_postgres;
pub use url::PostgresUrl;
