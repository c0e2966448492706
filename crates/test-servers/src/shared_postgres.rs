//! A place of one test's own on the PostgreSQL that all tests of a run share.
//!
//! [`SharedSchema`] is the cheap one: about 15 ms to make and to drop. [`SharedDatabase`] takes about
//! 60 ms, and is for what a schema does not keep apart: advisory locks, `LISTEN` and `NOTIFY`,
//! `pg_stat_activity` by database, settings of the database, and code that names `public`.

use crate::postgres_programs::psql;
use crate::{shared, url};

const URL: &str = "PUNCTUAL_TEST_POSTGRES_URL";

/// Where the PostgreSQL is that `cargo xtask test` has started for all tests of this run, as its
/// superuser. It forgets what it has committed if it crashes: it never waits for a disk.
///
/// `None`, with a line that says so, if there is none.
///
/// # Panics
/// If there is none on the CI machine, where every test has to run.
pub fn shared_postgres_url() -> Option<String> {
    shared::variable(URL)
}

/// A database of one test's own on the shared server. It is dropped with this value, and with it
/// the connections that still use it.
#[derive(Debug)]
pub struct SharedDatabase {
    server_url: String,
    name: String,
}

/// A schema of one test's own in the shared server's database. It is dropped with this value, and
/// everything in it.
#[derive(Debug)]
pub struct SharedSchema {
    server_url: String,
    name: String,
}

impl SharedDatabase {
    /// A new database. `None`, with a line that says so, if there is no shared server.
    ///
    /// # Panics
    /// If it cannot be created, or if there is no server on the CI machine.
    pub fn create() -> Option<Self> {
        let server_url = shared_postgres_url()?;
        let name = shared::unique_prefix();
        // Nobody can be connected to template0, which would be in the way. Copied through the log:
        // copied as files, each creation costs all other tests two checkpoints.
        run(
            &server_url,
            &format!("CREATE DATABASE {name} TEMPLATE template0 STRATEGY wal_log"),
        )
        .unwrap_or_else(|said| panic!("failed to create a database: {said}"));
        Some(Self { server_url, name })
    }

    /// Where clients find it, as the superuser.
    pub fn url(&self) -> String {
        url::with_database(&self.server_url, &self.name)
    }

    /// The name, which no other test has, not even one of an earlier run.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl SharedSchema {
    /// A new schema. `None`, with a line that says so, if there is no shared server.
    ///
    /// # Panics
    /// If it cannot be created, or if there is no server on the CI machine.
    pub fn create() -> Option<Self> {
        let server_url = shared_postgres_url()?;
        let name = shared::unique_prefix();
        run(&server_url, &format!("CREATE SCHEMA {name}"))
            .unwrap_or_else(|said| panic!("failed to create a schema: {said}"));
        Some(Self { server_url, name })
    }

    /// Where clients find the database that it is in, as the superuser. Nothing in it names the schema.
    pub fn url(&self) -> &str {
        &self.server_url
    }

    /// The name, which no other test has, not even one of an earlier run.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for SharedDatabase {
    fn drop(&mut self) {
        let statement = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        say(run(&self.server_url, &statement));
    }
}

impl Drop for SharedSchema {
    fn drop(&mut self) {
        // A transaction that a test has left open must not stop it from ending.
        let statement = format!(
            "SET lock_timeout = '5s'; DROP SCHEMA IF EXISTS {} CASCADE",
            self.name
        );
        say(run(&self.server_url, &statement));
    }
}

fn run(url: &str, statement: &str) -> Result<(), String> {
    // Otherwise each object that goes with a schema is a line.
    let quiet = format!("SET client_min_messages = warning; {statement};");
    psql(url, &quiet).map(drop)
}

/// What is left goes with the server, so that it could not be dropped is no failure.
fn say(outcome: Result<(), String>) {
    if let Err(said) = outcome {
        eprintln!("left on the shared PostgreSQL: {said}");
    }
}
