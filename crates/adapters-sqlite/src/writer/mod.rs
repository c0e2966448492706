//! The writer: one thread, with group commit.
//!
//! The thread puts all waiting commands into one transaction, so that many callers share the cost of
//! one commit. No caller is answered before the COMMIT has succeeded. An item that violates a
//! constraint is undone by itself, for which the group is applied again with a savepoint for each unit if
//! need be; any other error fails all commands of the group.

mod appended;
mod health;
mod job;
mod room;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use punctual_ports::{BatchResult, PortError, PortErrorKind};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use crate::OpenError;
use crate::call_store::Recipient;
use crate::claims::SharedClaims;
use crate::file_identity::FileIdentity;
use crate::inspect::beside;
use crate::port_errors::{is_full, port_error, stopped};
use crate::role_lock::RoleLock;

use appended::{Appended, LastMessage};
pub(crate) use health::SharedHealth;
use job::Units;
pub(crate) use job::{Batch, Job, Transaction};
pub(crate) use room::{Limit, Unfinished};

/// Maximum number of queued commands; further senders wait.
const QUEUE: usize = 4_096;
/// Number of rows at which a group is complete.
const GROUP: usize = 1_024;
/// Maximum number of rows of a batch in one commit. A larger batch is split, so that commands of other
/// callers, such as marks, run in between: ten thousand rows take a tenth of a second and more.
const PART: usize = GROUP;

const OPERATION: &str = "write to the database";

enum Command {
    /// Work within a transaction.
    Write(Box<dyn Job>),
    /// Work between transactions.
    Maintenance(Box<dyn FnOnce(&Connection) + Send>),
    /// Closes the file, then answers.
    Close(oneshot::Sender<()>),
}

/// A handle to the writer's thread. Clones share it.
#[derive(Clone)]
pub(crate) struct Writer {
    commands: mpsc::Sender<Command>,
    /// Stops the thread even if the queue is too full for a command.
    is_stopping: Arc<AtomicBool>,
}

/// The state that the writer's thread owns.
pub(crate) struct WriterState {
    pub(crate) connection: Connection,
    pub(crate) claims: SharedClaims,
    pub(crate) recipient: Recipient,
    /// Held until after the last write.
    pub(crate) roles: Vec<RoleLock>,
    pub(crate) path: PathBuf,
    pub(crate) identity: FileIdentity,
    pub(crate) health: SharedHealth,
    pub(crate) max_log_bytes: u64,
    pub(crate) limit: Option<Limit>,
    /// Calls without an outcome, counted only where there is a limit.
    pub(crate) unfinished: Unfinished,
    pub(crate) busy_timeout: Duration,
}

impl Writer {
    /// Starts the thread.
    pub(crate) fn start(state: WriterState) -> Result<Self, OpenError> {
        let (commands, received) = mpsc::channel(QUEUE);
        let path = state.path.clone();
        let log = log_path(&path);
        let is_stopping = Arc::new(AtomicBool::new(false));
        let thread = Thread {
            state,
            log,
            broken: None,
            last_message: LastMessage::UNKNOWN,
            is_stopping: Arc::clone(&is_stopping),
        };
        thread::Builder::new()
            .name("punctual-writer".to_owned())
            .spawn(move || thread.run(received))
            .map_err(|error| OpenError::other(&path, error))?;
        Ok(Self {
            commands,
            is_stopping,
        })
    }

    /// Writes a batch and waits for its commit, or for several commits if it is large. If one of them
    /// fails, the items of earlier commits stay and keep their outcomes.
    pub(crate) async fn write<I, O, F>(
        &self,
        operation: &'static str,
        items: Vec<I>,
        batch: Batch<F>,
    ) -> BatchResult<O>
    where
        I: Send + 'static,
        O: Send + 'static,
        F: FnMut(&mut Transaction<'_>, &I) -> rusqlite::Result<O> + Send + 'static,
    {
        if items.len() <= PART {
            return self.write_part(operation, items, batch).await;
        }
        let (needs_room, apply) = (batch.needs_room, Arc::new(Mutex::new(batch.apply)));
        let mut answers = Vec::with_capacity(items.len());
        let mut left = items.into_iter();
        while left.len() > 0 {
            let part: Vec<I> = left.by_ref().take(PART).collect();
            let (length, apply) = (part.len(), Arc::clone(&apply));
            let apply = move |transaction: &mut Transaction<'_>, item: &I| {
                let mut apply = apply.lock().unwrap_or_else(PoisonError::into_inner);
                apply(transaction, item)
            };
            let batch = Batch { apply, needs_room };
            match self.write_part(operation, part, batch).await {
                Ok(of_part) => answers.extend(of_part),
                Err(error) if answers.is_empty() => return Err(error),
                Err(error) => {
                    let unwritten = length + left.len();
                    answers.extend(std::iter::repeat_n(error, unwritten).map(Err));
                    break;
                }
            }
        }
        Ok(answers)
    }

    /// Writes a batch in one commit.
    async fn write_part<I, O, F>(
        &self,
        operation: &'static str,
        items: Vec<I>,
        batch: Batch<F>,
    ) -> BatchResult<O>
    where
        I: Send + 'static,
        O: Send + 'static,
        F: FnMut(&mut Transaction<'_>, &I) -> rusqlite::Result<O> + Send + 'static,
    {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let (reply, answer) = oneshot::channel();
        let job = job::BatchJob::new(operation, items, batch, reply);
        let sent = self.commands.send(Command::Write(Box::new(job))).await;
        sent.map_err(|_| stopped(operation))?;
        answer.await.map_err(|_| stopped(operation))?
    }

    /// Runs `work` on the writing connection, between two transactions.
    pub(crate) async fn maintenance<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, PortError> {
        let (reply, answer) = oneshot::channel();
        let work = Box::new(move |connection: &Connection| {
            // The caller may have been cancelled.
            let _ = reply.send(work(connection));
        });
        let sent = self.commands.send(Command::Maintenance(work)).await;
        sent.map_err(|_| stopped(operation))?;
        let done = answer.await.map_err(|_| stopped(operation))?;
        done.map_err(|error| port_error(operation, error))
    }

    /// Whether the file was closed and the role released.
    pub(crate) fn is_closed(&self) -> bool {
        self.commands.is_closed()
    }

    /// Finishes the queued commands and closes the file.
    pub(crate) async fn close(&self) {
        let (reply, closed) = oneshot::channel();
        if self.commands.send(Command::Close(reply)).await.is_ok() {
            // An error means that the thread has ended, and so has closed the file.
            let _ = closed.await;
        }
    }

    /// Starts closing in the background. Needs no runtime.
    pub(crate) fn close_soon(&self) {
        // First: if the queue is full, the thread checks this flag after its next command.
        self.is_stopping.store(true, Ordering::SeqCst);
        let (reply, _) = oneshot::channel();
        let _ = self.commands.try_send(Command::Close(reply));
    }
}

/// The log beside a database file.
pub(crate) fn log_path(database: &Path) -> PathBuf {
    beside(database, "-wal")
}

struct Thread {
    state: WriterState,
    log: PathBuf,
    /// Why nothing can be written any more.
    broken: Option<PortError>,
    last_message: LastMessage,
    is_stopping: Arc<AtomicBool>,
}

/// Why a group was not committed.
struct Failed {
    error: rusqlite::Error,
    must_repeat: bool,
}

impl From<rusqlite::Error> for Failed {
    fn from(error: rusqlite::Error) -> Self {
        let must_repeat = false;
        Self { error, must_repeat }
    }
}

impl Thread {
    fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        let mut next = None;
        while let Some(command) = next.take().or_else(|| commands.blocking_recv()) {
            match command {
                Command::Write(first) => {
                    let (group, left_over) = gather(first, &mut commands);
                    self.write(group);
                    next = left_over;
                }
                Command::Maintenance(work) => work(&self.state.connection),
                Command::Close(closed) => {
                    commands.close();
                    self.finish(&mut commands);
                    let _ = closed.send(());
                    return;
                }
            }
            if next.is_none() && self.is_stopping.load(Ordering::SeqCst) {
                break;
            }
        }
        commands.close();
        self.finish(&mut commands);
    }

    /// Finishes the queued writes, checkpoints the log and closes the file.
    fn finish(mut self, commands: &mut mpsc::Receiver<Command>) {
        while let Ok(command) = commands.try_recv() {
            if let Command::Write(job) = command {
                self.write(vec![job]);
            }
        }
        // Only with a role: a client that ends leaves the log to the process that serves the file.
        let is_intact = self.broken.is_none() && self.state.identity.check(OPERATION).is_ok();
        if is_intact
            && !self.state.roles.is_empty()
            && let Err(error) = room::checkpoint(&self.state.connection, Duration::ZERO)
        {
            tracing::debug!(%error, "the log is left to be checkpointed at the next start");
        }
        let WriterState {
            connection, roles, ..
        } = self.state;
        // The file is closed before another process can take the role.
        drop(connection);
        drop(roles);
    }

    fn write(&mut self, mut group: Vec<Box<dyn Job>>) {
        if let Some(broken) = &self.broken {
            answer_all(group, broken);
            return;
        }
        if let Err(moved) = self.state.identity.check(OPERATION) {
            self.fail(group, &moved);
            return;
        }
        let (connection, timeout) = (&self.state.connection, self.state.busy_timeout);
        if let Err(error) = room::checkpoint_before_disk_is_full(connection, &self.log, timeout) {
            tracing::debug!(%error, "the log could not be checkpointed before the disk is full");
        }
        let is_new = group.iter().any(|job| job.needs_room());
        if is_new && let Some(no_room) = self.no_room() {
            let (growing, rest) = group.into_iter().partition(|job| job.needs_room());
            self.state.health.failed(&no_room);
            answer_all(growing, &no_room);
            group = rest;
        }
        if group.is_empty() {
            return;
        }
        match self.transact(&mut group) {
            // A commit to a file that is no longer at its path is not acknowledged.
            Ok(appended) => match self.state.identity.check(OPERATION) {
                Ok(()) => {
                    // Before the answers, so that whoever publishes then finds them.
                    appended.hand_over(&self.state.recipient.queues());
                    let needed_room = group.iter().any(|job| job.needs_room());
                    self.state.health.committed(needed_room);
                    for job in group {
                        job.answer(None);
                    }
                }
                Err(moved) => self.fail(group, &moved),
            },
            // Some of them, such as marks, may need no room: each is written by itself.
            Err(error) if is_full(&error) && group.len() > 1 => {
                for job in group {
                    self.write(vec![job]);
                }
            }
            Err(error) => self.fail(group, &port_error(OPERATION, error)),
        }
    }

    /// Fails a group, and all later writes if the error is critical.
    fn fail(&mut self, group: Vec<Box<dyn Job>>, error: &PortError) {
        if error.kind().is_critical() {
            tracing::error!(%error, "the database cannot be relied on any more");
            self.broken = Some(error.clone());
        }
        self.state.health.failed(error);
        // It may have been committed nevertheless.
        let queues = self.state.recipient.queues();
        queues.outbox.close();
        queues.waiting.close();
        answer_all(group, error);
    }

    /// Applies a group in one transaction.
    fn transact(&mut self, group: &mut [Box<dyn Job>]) -> rusqlite::Result<Appended> {
        if let Some(limit) = &mut self.state.limit {
            let is_new = group.iter().any(|job| job.needs_room());
            limit.enforce(&self.state.connection, is_new)?;
        }
        match self.apply(group, Units::Bare) {
            Err(failed) if failed.must_repeat => self.apply(group, Units::Protected),
            applied => applied,
        }
        .map_err(|failed| failed.error)
    }

    /// Applies a group and commits it, or rolls it back.
    fn apply(&mut self, group: &mut [Box<dyn Job>], units: Units) -> Result<Appended, Failed> {
        let connection = &self.state.connection;
        execute(connection, "BEGIN IMMEDIATE")?;
        let queues = self.state.recipient.queues();
        let appended = Appended::after(self.last_message, units, &queues);
        let (claims, unfinished) = (&self.state.claims, self.state.unfinished);
        let mut transaction = Transaction::new(connection, claims, appended, unfinished, units);
        let applied = group
            .iter_mut()
            .try_for_each(|job| job.apply(&mut transaction))
            .and_then(|()| execute(connection, "COMMIT"));
        let must_repeat = transaction.must_repeat();
        let (ended_leases, unfinished, appended) = transaction.into_parts();
        let Err(error) = applied else {
            self.state.unfinished = unfinished;
            self.last_message = appended.last;
            self.state.claims.lock().committed(ended_leases);
            return Ok(appended);
        };
        self.state.claims.lock().rolled_back();
        // On some errors SQLite has rolled back by itself.
        if !connection.is_autocommit() {
            execute(connection, "ROLLBACK")?;
        }
        Err(Failed { error, must_repeat })
    }

    /// Why nothing new may be stored, if so. Updates are not affected.
    fn no_room(&self) -> Option<PortError> {
        let reason = if self.file_is_full() {
            "the file has grown to its limit, with its log and the room for what was accepted"
        } else if self.log_is_too_long() {
            "its log has grown to its limit because some program keeps a read transaction open: \
             end that transaction"
        } else {
            return None;
        };
        Some(PortError::new(
            PortErrorKind::StorageFull,
            OPERATION,
            reason,
        ))
    }

    fn file_is_full(&self) -> bool {
        let state = &self.state;
        let reached = state.limit.as_ref().map(|limit| {
            let timeout = state.busy_timeout;
            limit.is_reached(&state.connection, &self.log, state.unfinished, timeout)
        });
        // If the check fails, the write itself reports the error.
        reached.is_some_and(|reached| reached.unwrap_or(false))
    }

    /// Whether the log exceeds its limit and cannot be checkpointed because a reader, most likely of
    /// another program, keeps its snapshot.
    fn log_is_too_long(&self) -> bool {
        let length = std::fs::metadata(&self.log).map_or(0, |log| log.len());
        if length <= self.state.max_log_bytes {
            return false;
        }
        let checkpointed =
            self.state
                .connection
                .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
                    Ok(row.get::<_, i64>(1)? == row.get::<_, i64>(2)?)
                });
        !checkpointed.unwrap_or(false)
    }
}

/// Runs a statement without parameters.
pub(crate) fn execute(connection: &Connection, statement: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(statement)?.execute([]).map(drop)
}

/// Collects waiting writes up to the size of a group, or up to another command.
fn gather(
    first: Box<dyn Job>,
    commands: &mut mpsc::Receiver<Command>,
) -> (Vec<Box<dyn Job>>, Option<Command>) {
    let mut rows = first.rows();
    let mut group = vec![first];
    while rows < GROUP {
        match commands.try_recv() {
            Ok(Command::Write(job)) => {
                rows += job.rows();
                group.push(job);
            }
            Ok(other) => return (group, Some(other)),
            Err(_) => break,
        }
    }
    (group, None)
}

fn answer_all(group: Vec<Box<dyn Job>>, error: &PortError) {
    for job in group {
        job.answer(Some(error));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ffi;

    fn writer() -> Writer {
        Writer::start(WriterState {
            connection: Connection::open_in_memory().unwrap(),
            claims: SharedClaims::default(),
            recipient: Recipient::default(),
            roles: Vec::new(),
            path: PathBuf::from("in memory"),
            health: SharedHealth::default(),
            identity: FileIdentity::new(None, Path::new("in memory")),
            max_log_bytes: u64::MAX,
            limit: None,
            unfinished: Unfinished::default(),
            busy_timeout: Duration::ZERO,
        })
        .unwrap()
    }

    /// Writes something that ends with this SQLite code, zero for success.
    async fn write(writer: &Writer, code: i32) -> Result<(), PortErrorKind> {
        let batch = Batch {
            apply: move |_: &mut Transaction<'_>, (): &()| match code {
                0 => Ok(()),
                _ => Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)),
            },
            needs_room: false,
        };
        let written = writer.write("write", vec![()], batch).await;
        written.map(drop).map_err(|error| error.kind())
    }

    #[tokio::test]
    async fn after_a_failed_sync_nothing_is_written_any_more() {
        for code in [ffi::SQLITE_IOERR_FSYNC, ffi::SQLITE_CORRUPT] {
            let writer = writer();
            assert_eq!(write(&writer, 0).await, Ok(()));
            assert_eq!(write(&writer, code).await, Err(PortErrorKind::Broken));
            // SQLite itself would continue as if the failed pages were written.
            assert_eq!(write(&writer, 0).await, Err(PortErrorKind::Broken));
        }
    }

    #[tokio::test]
    async fn after_a_full_disk_or_a_lock_the_next_write_is_tried() {
        let writer = writer();
        for (code, kind) in [
            (ffi::SQLITE_FULL, PortErrorKind::StorageFull),
            (ffi::SQLITE_BUSY, PortErrorKind::Busy),
        ] {
            assert_eq!(write(&writer, code).await, Err(kind));
            assert_eq!(write(&writer, 0).await, Ok(()));
        }
    }

    /// Records the order of writes.
    fn recording(
        notes: &Arc<Mutex<Vec<&'static str>>>,
        note: &'static str,
        fails_after: usize,
    ) -> Batch<impl FnMut(&mut Transaction<'_>, &usize) -> rusqlite::Result<()> + Send + 'static>
    {
        let notes = Arc::clone(notes);
        let apply = move |_: &mut Transaction<'_>, number: &usize| {
            if *number >= fails_after {
                let full = ffi::Error::new(ffi::SQLITE_FULL);
                return Err(rusqlite::Error::SqliteFailure(full, None));
            }
            notes.lock().unwrap().push(note);
            Ok(())
        };
        let needs_room = false;
        Batch { apply, needs_room }
    }

    #[tokio::test]
    async fn a_mark_does_not_wait_for_all_of_a_large_save() {
        let (writer, notes) = (writer(), Arc::default());
        let save = recording(&notes, "save", usize::MAX);
        let mark = recording(&notes, "mark", usize::MAX);
        let save = writer.write("save", (0..10_000).collect(), save);
        let mark = writer.write("mark", vec![0], mark);
        // The save is queued first, and the thread starts when both are queued.
        let (start, wait) = std::sync::mpsc::channel::<()>();
        let blocks = Box::new(move |_: &Connection| _ = wait.recv());
        let blocked = writer.commands.try_send(Command::Maintenance(blocks));
        assert!(blocked.is_ok());
        let start = async move { drop(start) };
        let (saved, marked, ()) = tokio::join!(biased; save, mark, start);
        assert_eq!((saved.unwrap().len(), marked.unwrap().len()), (10_000, 1));
        let notes = notes.lock().unwrap();
        assert_eq!(notes.iter().position(|it| *it == "mark"), Some(PART));
    }

    #[tokio::test]
    async fn a_large_save_that_fails_reports_the_outcomes_of_its_committed_parts() {
        let (writer, notes) = (writer(), Arc::default());
        for (fails_after, written) in [
            (0, None),
            (PART, Some(PART)),
            (2 * PART + 7, Some(2 * PART)),
        ] {
            let save = recording(&notes, "save", fails_after);
            let answers = writer.write("save", (0..10_000).collect(), save).await;
            let answers = answers.ok();
            let done = answers
                .as_ref()
                .map(|all| all.iter().filter(|it| it.is_ok()).count());
            assert_eq!(
                (done, answers.map_or(10_000, |all| all.len())),
                (written, 10_000)
            );
        }
    }

    #[tokio::test]
    async fn a_full_queue_does_not_keep_the_file_open() {
        let writer = writer();
        let (unblock, wait) = std::sync::mpsc::channel::<()>();
        let blocks = Box::new(move |_: &Connection| _ = wait.recv());
        writer
            .commands
            .try_send(Command::Maintenance(blocks))
            .unwrap_or_else(|_| panic!("there is room for one"));
        while writer
            .commands
            .try_send(Command::Maintenance(Box::new(|_| {})))
            .is_ok()
        {}
        writer.close_soon();
        drop(unblock);
        writer.commands.closed().await;
    }
}
