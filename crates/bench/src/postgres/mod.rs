//! PostgreSQL for the lines that are measured on it: a private server that is as durable as one in
//! production, databases that are built once and copied for every measurement, and the bare loop.

mod bare;
mod building;
mod drain;
mod server;

pub(crate) use bare::BarePostgres;
pub(crate) use building::Layout;
pub(crate) use drain::{CHILD as DRAIN, draining_processes};
pub(crate) use server::{Database, Server, Used, open};
