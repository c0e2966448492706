//! Opening and closing a file, and what goes on around its tables.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use punctual_domain::Timestamp;
use punctual_ports::{ClockPort, PortError};
use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::SqliteTimerStore;
use super::claiming::Claimer;
use crate::claims::SharedClaims;
use crate::connection::{
    absolute, behind_links, check_version, open_reader, open_readers, open_writable,
    prepare_writer, reads_at_once,
};
use crate::file_identity::{FileIdentity, found_at};
use crate::migrate::{check_connection, create_folder, migrate_connection};
use crate::open_error::open_error;
use crate::role_lock::{self, RoleLock};
use crate::torn_copy::{may_be_torn, refuse_a_log_alone, refuse_what_is_torn};
use crate::writer::{Limit, SharedHealth, Unfinished, Writer, WriterState};
use crate::{OpenError, Role, SchemaSet, SqliteCallStore, SqliteSettings};

/// Between another process's look at what is due and its event, a moment passes; this is more.
const MOMENT: Duration = Duration::from_secs(5);
/// How often an idle store looks whether its file is still there.
const CHECK_FILE_EVERY: Duration = Duration::from_secs(1);

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
        let asked_for = settings.path.clone();
        settings.path = behind_links(&settings.path)?;
        refuse_a_log_alone(&settings.path)?;
        let may_be_torn = may_be_torn(&settings.path);
        let mut connection = open_writable(&settings.path, settings.busy_timeout)?;
        let found = found_at(&asked_for);
        if may_be_torn {
            refuse_what_is_torn(&mut connection, &settings.path)?;
        }
        // First, so that no lock file is left beside a file that is not ours.
        check_connection(&mut connection, &settings.path, settings.set)?;
        let roles = take_roles(&settings)?;
        migrate_connection(&mut connection, &settings.path, settings.set, now)?;
        let identity = FileIdentity::new(found, &settings.path);
        Self::start(&settings, connection, roles, identity)
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
        identity: FileIdentity,
    ) -> Result<Self, OpenError> {
        let failed = |error| open_error(&settings.path, error);
        prepare_writer(&connection, settings).map_err(failed)?;
        let limit = settings.max_file_bytes;
        let limit = limit.map(|bytes| Limit::new(&connection, bytes));
        let limit = limit.transpose().map_err(failed)?;
        let has_calls = limit.is_some() && settings.set == SchemaSet::Shared;
        let unfinished = has_calls.then(|| Unfinished::stored(&connection));
        let unfinished = unfinished.transpose().map_err(failed)?;
        let claims = SharedClaims::default();
        let claimer = Claimer::new(open_reader(settings).map_err(failed)?);
        let readers = open_readers(settings)?;
        let health = SharedHealth::default();
        let writer = Writer::start(WriterState {
            connection,
            claims: claims.clone(),
            roles,
            path: settings.path.clone(),
            identity: identity.clone(),
            health: health.clone(),
            max_log_bytes: settings.max_log_bytes,
            limit,
            unfinished: unfinished.unwrap_or_default(),
            busy_timeout: settings.busy_timeout,
        })?;
        Ok(Self {
            writer,
            readers,
            reads: Arc::new(Semaphore::new(reads_at_once())),
            browsing: Arc::new(Semaphore::new(reads_at_once() - 1)),
            claimer: Arc::new(Mutex::new(claimer)),
            claims,
            identity,
            health,
            role: settings.role,
            set: settings.set,
            limits_commands: settings.limits_commands,
            path: settings.path.clone(),
            // A deletion may wait so long for the write lock after it looked at the clock.
            others_hold: settings.busy_timeout.saturating_add(MOMENT),
        })
    }

    /// The file, as it was found behind any links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Fails, from then on for good, if the file was renamed, removed or replaced since it was
    /// opened. Whoever writes or claims is told so without asking.
    ///
    /// # Errors
    /// With [`Broken`](punctual_ports::PortErrorKind::Broken) then.
    pub fn check_file(&self) -> Result<(), PortError> {
        self.identity.check("rely on the database")
    }

    /// Waits until the file is renamed, removed or replaced, which is noticed within a second also
    /// while nobody writes, and gives the error that everybody gets from then on. A file that cannot be
    /// checked at this moment may still be there.
    pub async fn file_moved(&self, clock: &dyn ClockPort) -> PortError {
        loop {
            match self.check_file() {
                Err(moved) if !moved.is_retryable() => return moved,
                _ => {}
            }
            clock.sleep_for(CHECK_FILE_EVERY).await;
        }
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
