//! Opening and closing a file.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use punctual_domain::Timestamp;
use punctual_ports::{ClockPort, PortError};
use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::SqliteTimerStore;
use super::claiming::Claimer;
use crate::call_store::Recipient;
use crate::claims::SharedClaims;
use crate::connection::{
    READERS, absolute, behind_links, check_version, open_reader, open_readers, open_writable,
    prepare_writer,
};
use crate::file_identity::{FileIdentity, found_at};
use crate::migrate::{check_connection, create_folder, migrate_connection};
use crate::open_error::open_error;
use crate::role_lock::{self, RoleLock};
use crate::torn_copy::{may_be_torn, refuse_a_log_alone, refuse_what_is_torn};
use crate::writer::{Limit, SharedHealth, Unfinished, Writer, WriterState};
use crate::{OpenError, Role, SchemaSet, SqliteCallStore, SqliteSettings};

/// Upper bound of the time between another process's poll and its event.
const POLL_TO_EVENT: Duration = Duration::from_secs(5);
/// Interval of the check whether the file of an idle store is still there.
const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

impl SqliteTimerStore {
    /// Opens a file, creates it if it is missing, and migrates its tables. `now` is recorded with the
    /// migrations.
    ///
    /// Blocks for milliseconds, or longer for a file with a long log after a crash, or that another
    /// program is writing to.
    ///
    /// # Errors
    /// If the file cannot be used. Nothing was written to it then.
    pub fn open(settings: &SqliteSettings, now: Timestamp) -> Result<Self, OpenError> {
        check_version(rusqlite::version_number())?;
        let mut settings = settings.clone();
        settings.path = absolute(&settings.path)?;
        create_folder(&settings.path)?;
        let requested = settings.path.clone();
        settings.path = behind_links(&settings.path)?;
        refuse_a_log_alone(&settings.path)?;
        let may_be_torn = may_be_torn(&settings.path);
        let mut connection = open_writable(&settings.path, settings.busy_timeout)?;
        let found = found_at(&requested);
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

    /// The service calls on the same file, or attempts without them, written by the same thread.
    ///
    /// # Errors
    /// If the file holds timers alone.
    pub fn calls(&self) -> Result<SqliteCallStore, OpenError> {
        if self.set.has_attempts() {
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
        let recipient = Recipient::default();
        let writer = Writer::start(WriterState {
            connection,
            claims: claims.clone(),
            recipient: recipient.clone(),
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
            reads: Arc::new(Semaphore::new(READERS.into())),
            browsing: Arc::new(Semaphore::new(usize::from(READERS) - 1)),
            claimer: Arc::new(Mutex::new(claimer)),
            claims,
            recipient,
            identity,
            health,
            role: settings.role,
            set: settings.set,
            limits_commands: settings.limits_commands,
            path: settings.path.clone(),
            // A deletion may wait for the write lock after it has read the clock.
            foreign_lease: settings.busy_timeout.saturating_add(POLL_TO_EVENT),
        })
    }

    /// The file, as it was found behind any links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Fails permanently once the file was renamed, removed or replaced. Writes and claims check this
    /// by themselves.
    ///
    /// # Errors
    /// [`Broken`](punctual_ports::PortErrorKind::Broken) then.
    pub fn check_file(&self) -> Result<(), PortError> {
        self.identity.check("rely on the database")
    }

    /// Waits until the file is renamed, removed or replaced, which is noticed within a second, and
    /// returns the error of all later operations. A file that cannot be checked at the moment may still
    /// be there.
    pub async fn file_moved(&self, clock: &dyn ClockPort) -> PortError {
        loop {
            if let Err(moved) = self.check_file()
                && !moved.is_retryable()
            {
                return moved;
            }
            clock.sleep_for(FILE_CHECK_INTERVAL).await;
        }
    }

    /// Finishes the queued commands, checkpoints the log and releases the role. Writes on any clone then
    /// fail with `Stopped`.
    ///
    /// Stop the worker first: another process may claim its timers from now on.
    ///
    /// Dropping the last clone does the same in the background.
    pub async fn close(&self) {
        self.writer.close().await;
    }

    /// Starts [`close`](Self::close) in the background. Needs no runtime.
    pub fn close_soon(&self) {
        self.writer.close_soon();
    }
}

/// Takes all exclusive roles of the process, or none.
fn take_roles(settings: &SqliteSettings) -> Result<Vec<RoleLock>, OpenError> {
    let calls = [role_lock::ORCHESTRATION, role_lock::EXECUTION];
    let attempts = [role_lock::EXECUTION];
    let (timer, calls) = match (settings.role, settings.set) {
        (Role::Timer, SchemaSet::Shared) => (Some(role_lock::TIMER), &calls[..]),
        (Role::Timer, SchemaSet::TimersOnly) => (Some(role_lock::TIMER), &[][..]),
        (Role::Timer | Role::Calls, SchemaSet::ExecutionOnly) => (None, &attempts[..]),
        (Role::Calls, _) => (None, &calls[..]),
        (Role::Client, _) => (None, &[][..]),
    };
    let wanted = timer.iter().chain(calls);
    wanted
        .map(|role| RoleLock::take(&settings.path, role))
        .collect()
}
