//! Opening and closing a file, and what goes on around its tables.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use punctual_domain::Timestamp;
use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::SqliteTimerStore;
use super::claiming::Claimer;
use crate::claims::SharedClaims;
use crate::connection::{
    absolute, behind_links, check_version, max_pages, open_reader, open_readers, open_writable,
    prepare_writer, reads_at_once,
};
use crate::migrate::{check_connection, create_folder, migrate_connection};
use crate::open_error::open_error;
use crate::role_lock::{self, RoleLock};
use crate::writer::{Desk, Writer};
use crate::{OpenError, Role, SchemaSet, SqliteCallStore, SqliteSettings};

/// Between another process's look at what is due and its event, a moment passes; this is more.
const MOMENT: Duration = Duration::from_secs(5);

impl SqliteTimerStore {
    /// Opens a file, creates it if it is missing, and brings its tables up to date. `now` is
    /// recorded with what was done.
    ///
    /// It blocks for as long as that takes: milliseconds, but for a file whose process was killed
    /// with much in its log, or that another program is writing to.
    ///
    /// # Errors
    /// If the file cannot be used. Nothing was written to it then.
    pub fn open(settings: &SqliteSettings, now: Timestamp) -> Result<Self, OpenError> {
        check_version(rusqlite::version_number())?;
        let mut settings = settings.clone();
        settings.path = absolute(&settings.path)?;
        create_folder(&settings.path)?;
        settings.path = behind_links(&settings.path)?;
        let mut connection = open_writable(&settings.path, settings.busy_timeout)?;
        // First, so that no lock file is left beside a file that is not ours.
        check_connection(&mut connection, &settings.path, settings.set)?;
        let roles = take_roles(&settings)?;
        migrate_connection(&mut connection, &settings.path, settings.set, now)?;
        Self::start(&settings, connection, roles)
    }

    /// The service calls on the same file, written by the same thread.
    ///
    /// # Errors
    /// If the file holds timers alone.
    pub fn calls(&self) -> Result<SqliteCallStore, OpenError> {
        if self.set == SchemaSet::Shared {
            return Ok(SqliteCallStore::on(self.clone()));
        }
        Err(OpenError::WrongSet {
            path: self.path.clone(),
            found: self.set.name().to_owned(),
            wanted: SchemaSet::Shared,
        })
    }

    fn start(
        settings: &SqliteSettings,
        connection: Connection,
        roles: Vec<RoleLock>,
    ) -> Result<Self, OpenError> {
        let failed = |error| open_error(&settings.path, error);
        prepare_writer(&connection, settings).map_err(failed)?;
        let max_pages = max_pages(&connection, settings).map_err(failed)?;
        let claims = SharedClaims::default();
        let claimer = Claimer::new(open_reader(settings).map_err(failed)?);
        let readers = open_readers(settings)?;
        let writer = Writer::start(Desk {
            connection,
            claims: claims.clone(),
            roles,
            path: settings.path.clone(),
            max_log_bytes: settings.max_log_bytes,
            max_pages,
        })?;
        Ok(Self {
            writer,
            readers,
            reads: Arc::new(Semaphore::new(reads_at_once())),
            browsing: Arc::new(Semaphore::new(reads_at_once() - 1)),
            claimer: Arc::new(Mutex::new(claimer)),
            claims,
            role: settings.role,
            set: settings.set,
            path: settings.path.clone(),
            // A deletion may wait so long for the write lock after it looked at the clock.
            others_hold: settings.busy_timeout.saturating_add(MOMENT),
        })
    }

    /// The file, as it was found behind any links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Finishes what was asked before, folds the log into the file and gives the role back. All
    /// clones then answer `Stopped` to whoever wants to write.
    ///
    /// Stop the worker first: what it has in hand, another process may claim from now on.
    ///
    /// Dropping the last clone does the same, but nobody waits for it.
    pub async fn close(&self) {
        self.writer.close().await;
    }

    /// Does the same without waiting for it, and without a runtime: for whoever drops something.
    pub fn close_soon(&self) {
        self.writer.close_soon();
    }
}

/// Takes what the process is to be alone with; all of it, or nothing.
fn take_roles(settings: &SqliteSettings) -> Result<Vec<RoleLock>, OpenError> {
    let calls = [role_lock::ORCHESTRATION, role_lock::EXECUTION];
    let (timer, calls) = match (settings.role, settings.set) {
        (Role::Timer, SchemaSet::Shared) => (Some(role_lock::TIMER), &calls[..]),
        (Role::Timer, SchemaSet::TimersOnly) => (Some(role_lock::TIMER), &[][..]),
        (Role::Calls, _) => (None, &calls[..]),
        (Role::Client, _) => (None, &[][..]),
    };
    let wanted = timer.iter().chain(calls);
    wanted
        .map(|role| RoleLock::take(&settings.path, role))
        .collect()
}
