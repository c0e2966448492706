//! The private server of a run, and the databases on it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use punctual_adapters_postgres::tokio_postgres::{Client, NoTls};
use punctual_adapters_postgres::{PostgresSettings, PostgresTimerStore, PostgresUrl, Role};
use punctual_adapters_system::{SystemClock, UuidIds};
use punctual_ports::IdPort;
use punctual_test_servers::PostgresServer;

use super::building::{self, Layout};
use crate::databases::Recipe;
use crate::ours::Ours;
use crate::{Outcome, grouped, machine};

/// Beside what makes it durable: sizes as in production, and no checkpoint in the middle of a short
/// measurement.
const SETTINGS: [(&str, &str); 7] = [
    ("shared_buffers", "512MB"),
    ("max_wal_size", "4GB"),
    // What is in the log is read after it was written.
    ("wal_keep_size", "4GB"),
    ("checkpoint_timeout", "15min"),
    ("max_connections", "200"),
    ("shared_preload_libraries", "pg_stat_statements"),
    // On for the database whose statements are counted alone: it has a cost.
    ("pg_stat_statements.track", "none"),
];

/// The server, with what was built on it so far.
pub(crate) struct Server {
    postgres: PostgresServer,
    built: HashMap<(Recipe, Layout), String>,
    copies: usize,
}

impl Server {
    /// `None` if PostgreSQL is not installed.
    pub(crate) fn start() -> Option<Self> {
        let server = Self {
            postgres: PostgresServer::start_with(&SETTINGS)?,
            built: HashMap::new(),
            copies: 0,
        };
        // All databases are made from this one.
        server.execute("\\connect template1\nCREATE EXTENSION pg_walinspect");
        Some(server)
    }

    /// Runs statements as the superuser, outside any database of a measurement.
    fn execute(&self, statements: &str) -> String {
        self.postgres.execute(statements)
    }

    /// The address of a database.
    fn url(&self, name: &str) -> String {
        let url = self.postgres.url();
        let server = url.rsplit_once('/').map_or(url.as_str(), |(it, _)| it);
        format!("{server}/{name}")
    }

    /// The database of a recipe, to be copied. Nobody is connected to it.
    async fn original(
        &mut self,
        recipe: Recipe,
        layout: Layout,
        clock: &SystemClock,
    ) -> Outcome<String> {
        if let Some(name) = self.built.get(&(recipe, layout)) {
            return Ok(name.clone());
        }
        let started = Instant::now();
        let name = format!("original_{}", self.built.len());
        self.execute(&format!("CREATE DATABASE {name}"));
        building::build(&self.url(&name), recipe, layout, clock).await?;
        // Of the schedules and not of what belongs to the database itself.
        let empty = "SELECT pg_database_size('template1')";
        let size = self.execute(&format!("SELECT pg_database_size('{name}') - ({empty})"));
        eprintln!(
            "  built {} timers of {} tenants ({layout:?}): {} MB in {:.1} s",
            grouped(recipe.rows),
            grouped(recipe.tenants),
            size.parse::<u64>()? / 1_000_000,
            started.elapsed().as_secs_f64()
        );
        self.built.insert((recipe, layout), name.clone());
        Ok(name)
    }

    /// A copy of a recipe's database, to be changed and thrown away.
    pub(crate) async fn copy(
        &mut self,
        recipe: Recipe,
        layout: Layout,
        clock: &SystemClock,
    ) -> Outcome<Database> {
        let original = self.original(recipe, layout, clock).await?;
        self.copies += 1;
        let name = format!("copy_{}", self.copies);
        self.execute(&format!(
            "CREATE DATABASE {name} TEMPLATE {original} STRATEGY = file_copy"
        ));
        Ok(Database {
            url: self.url(&name),
            name,
            server: self.postgres.pids().first().copied().unwrap_or_default(),
            clock: clock.clone(),
        })
    }

    /// Removes a copy.
    pub(crate) fn remove(&self, database: &Database) {
        self.execute(&format!("DROP DATABASE {} WITH (FORCE)", database.name));
    }
}

/// A database of the server.
pub(crate) struct Database {
    pub(crate) url: String,
    pub(crate) name: String,
    /// The first process of the server.
    server: u32,
    clock: SystemClock,
}

impl Database {
    /// The same at another address, as of a pooler.
    pub(crate) fn at(&self, url: String) -> Self {
        Self {
            url,
            name: self.name.clone(),
            server: self.server,
            clock: self.clock.clone(),
        }
    }

    /// The store on it: each opening is an instance.
    pub(crate) async fn open(&self, role: Role) -> Outcome<PostgresTimerStore> {
        open(&self.url, role, &self.clock).await
    }

    /// The store with the use cases and the worker on it, as an instance that fires has them.
    pub(crate) async fn ours(&self) -> Outcome<Ours<PostgresTimerStore>> {
        let store = self.open(Role::Timer).await?;
        Ok(Ours::on(store, &self.clock))
    }

    /// A plain connection.
    pub(crate) async fn connect(&self) -> Outcome<Client> {
        connect(&self.url).await
    }

    /// A number that a statement returns, through a connection of its own.
    pub(crate) async fn number(&self, sql: &str) -> Outcome<i64> {
        let client = self.connect().await?;
        Ok(client.query_one(sql, &[]).await?.try_get(0)?)
    }

    /// What the server has used so far.
    pub(crate) async fn used(&self) -> Outcome<Used> {
        let client = self.connect().await?;
        let sql = "SELECT pg_current_wal_insert_lsn()::text";
        Ok(Used {
            position: client.query_one(sql, &[]).await?.try_get(0)?,
            processor: self.processor_time(),
        })
    }

    /// Processor time of the server and of this program.
    fn processor_time(&self) -> Duration {
        // This program started the server, which has not ended: it is in no sum of ours.
        let ours = machine::processor_time_with_ended_children();
        machine::processor_time_with_children(self.server) + ours
    }

    /// What was used since then, by whomever.
    pub(crate) async fn used_since(&self, before: &Used) -> Outcome<Cost> {
        let processor = self.processor_time().saturating_sub(before.processor);
        let position = before.position.as_str();
        let client = self.connect().await?;
        // A durable commit: after it, all that was logged before can be read.
        client.batch_execute("SELECT txid_current()").await?;
        let sql = "SELECT sum(record_size)::bigint, sum(fpi_size)::bigint
            FROM pg_get_wal_stats_till_end_of_wal($1::text::pg_lsn)";
        let row = client.query_one(sql, &[&position]).await?;
        let (records, full_pages): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        Ok(Cost {
            records: records.unsigned_abs(),
            full_pages: full_pages.unsigned_abs(),
            processor,
        })
    }
}

/// What a server had used at a moment.
#[derive(Debug, Clone)]
pub(crate) struct Used {
    /// How far its log was written.
    position: String,
    processor: Duration,
}

/// What something took: bytes of the log, and processor time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    /// Processor time of the server and of this program.
    pub(crate) processor: Duration,
    /// Bytes of the changes themselves.
    pub(crate) records: u64,
    /// Bytes of copies of pages: of each, before its first change after a checkpoint.
    pub(crate) full_pages: u64,
}

/// Opens the store at an address.
pub(crate) async fn open(
    url: &str,
    role: Role,
    clock: &SystemClock,
) -> Outcome<PostgresTimerStore> {
    let mut settings = PostgresSettings::timers(PostgresUrl::new(url)?);
    settings.role = role;
    let clock = Arc::new(clock.clone());
    Ok(PostgresTimerStore::open(&settings, clock, UuidIds.next_id()).await?)
}

/// A plain connection, whose bytes a task of its own moves.
pub(super) async fn connect(url: &str) -> Outcome<Client> {
    let config: punctual_adapters_postgres::tokio_postgres::Config = url.parse()?;
    let (client, connection) = config.connect(NoTls).await?;
    drop(tokio::spawn(connection));
    Ok(client)
}
