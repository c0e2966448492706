//! The one thread that writes, and the group commit.
//!
//! Whatever waits when the thread looks is put into one transaction, so that many callers share the
//! price of one commit. Nobody is answered before the COMMIT has returned without an error. A
//! command that fails by its own fault is undone by itself; anything else fails the whole group,
//! and everybody in it is told so.

mod job;

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use punctual_domain::Timestamp;
use punctual_ports::{BatchResult, PortError, PortErrorKind};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use crate::OpenError;
use crate::claims::SharedClaims;
use crate::port_errors::{is_full, port_error, stopped};
use crate::role_lock::RoleLock;

pub(crate) use job::{Batch, Job, Transaction};

/// So many commands wait at most; more senders wait for a place.
const QUEUE: usize = 4_096;
/// A group is closed when it has so many rows: what joins later is in the next.
const GROUP: usize = 1_024;

const USED_PAGES: &str = "\
    SELECT page_count - freelist_count FROM pragma_page_count, pragma_freelist_count";

type Errand = Box<dyn FnOnce(&Connection) + Send>;

enum Command {
    /// Something to write.
    Write(Box<dyn Job>),
    /// Something to do outside a transaction.
    Errand(Errand),
    /// The end; answered when the file is closed.
    Close(oneshot::Sender<()>),
}

/// The way to the thread that writes. Clones lead to the same.
#[derive(Clone)]
pub(crate) struct Writer {
    commands: mpsc::Sender<Command>,
    /// Whether the thread is to end although nobody could tell it so through a full queue.
    is_over: Arc<AtomicBool>,
}

/// What the thread owns.
pub(crate) struct Desk {
    pub(crate) connection: Connection,
    pub(crate) claims: SharedClaims,
    /// Held until the last write is done.
    pub(crate) roles: Vec<RoleLock>,
    pub(crate) path: PathBuf,
    pub(crate) max_log_bytes: u64,
    pub(crate) max_pages: Option<u64>,
}

impl Writer {
    /// Starts the thread.
    pub(crate) fn start(desk: Desk) -> Result<Self, OpenError> {
        let (commands, received) = mpsc::channel(QUEUE);
        let path = desk.path.clone();
        let log = log_path(&path);
        let is_over = Arc::new(AtomicBool::new(false));
        let thread = Thread {
            desk,
            log,
            broken: None,
            last_created: Cell::new(Timestamp::MIN),
            is_over: Arc::clone(&is_over),
        };
        thread::Builder::new()
            .name("punctual-writer".to_owned())
            .spawn(move || thread.run(received))
            .map_err(|source| OpenError::Other {
                path,
                source: Box::new(source),
            })?;
        Ok(Self { commands, is_over })
    }

    /// Writes a batch and waits for its commit.
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
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let (reply, answer) = oneshot::channel();
        let job = job::BatchJob::new(operation, items, batch, reply);
        let sent = self.commands.send(Command::Write(Box::new(job))).await;
        sent.map_err(|_| stopped(operation))?;
        answer.await.map_err(|_| stopped(operation))?
    }

    /// Does something on the writing connection, between two transactions.
    pub(crate) async fn errand<T: Send + 'static>(
        &self,
        operation: &'static str,
        errand: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, PortError> {
        let (reply, answer) = oneshot::channel();
        let errand = move |connection: &Connection| {
            // Whoever asked may be gone by now.
            let _ = reply.send(errand(connection));
        };
        let sent = self.commands.send(Command::Errand(Box::new(errand))).await;
        sent.map_err(|_| stopped(operation))?;
        let done = answer.await.map_err(|_| stopped(operation))?;
        done.map_err(|error| port_error(operation, error))
    }

    /// Whether the file was closed, and the role with it.
    pub(crate) fn is_closed(&self) -> bool {
        self.commands.is_closed()
    }

    /// Finishes what was asked before, and closes the file.
    pub(crate) async fn close(&self) {
        let (reply, closed) = oneshot::channel();
        if self.commands.send(Command::Close(reply)).await.is_ok() {
            // An error means that the thread has ended, and so has closed the file.
            let _ = closed.await;
        }
    }

    /// The same, but nobody waits for it, so that it needs no runtime.
    pub(crate) fn close_soon(&self) {
        // First: if the queue is full now, the thread has yet to take a command from it, and looks
        // at this after that one.
        self.is_over.store(true, Ordering::SeqCst);
        let (nobody, _) = oneshot::channel();
        let _ = self.commands.try_send(Command::Close(nobody));
    }
}

/// The log beside a database file.
pub(crate) fn log_path(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-wal");
    PathBuf::from(name)
}

struct Thread {
    desk: Desk,
    log: PathBuf,
    /// Why nothing can be written any more.
    broken: Option<PortError>,
    /// When the last message was put into the outbox.
    last_created: Cell<Timestamp>,
    is_over: Arc<AtomicBool>,
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
                Command::Errand(errand) => errand(&self.desk.connection),
                Command::Close(closed) => {
                    commands.close();
                    self.finish(&mut commands);
                    let _ = closed.send(());
                    return;
                }
            }
            if next.is_none() && self.is_over.load(Ordering::SeqCst) {
                break;
            }
        }
        commands.close();
        self.finish(&mut commands);
    }

    /// Does what was asked before the end, folds the log into the file and closes it.
    fn finish(mut self, commands: &mut mpsc::Receiver<Command>) {
        while let Ok(command) = commands.try_recv() {
            if let Command::Write(job) = command {
                self.write(vec![job]);
            }
        }
        // Only whoever fires: beside it, a command that ends has nothing to tidy up.
        if self.broken.is_none() && !self.desk.roles.is_empty() {
            let folded = fold_log_in(&self.desk.connection);
            if let Err(error) = folded {
                tracing::debug!(%error, "the log was left to be folded in at the next start");
            }
        }
        let Desk {
            connection, roles, ..
        } = self.desk;
        // Whoever takes the role next finds the file closed.
        drop(connection);
        drop(roles);
    }

    fn write(&mut self, mut group: Vec<Box<dyn Job>>) {
        if let Some(broken) = &self.broken {
            answer_all(group, broken);
            return;
        }
        if let Some(no_room) = self.no_room() {
            let (growing, rest) = group.into_iter().partition(|job| job.needs_room());
            answer_all(growing, &no_room);
            group = rest;
        }
        if group.is_empty() {
            return;
        }
        match self.transact(&mut group) {
            Ok(()) => group.into_iter().for_each(|job| job.answer(None)),
            // Perhaps some of them need no room, such as marks: each gets a chance of its own.
            Err(error) if is_full(&error) && group.len() > 1 => {
                for job in group {
                    self.write(vec![job]);
                }
            }
            Err(error) => self.fail(group, error),
        }
    }

    /// Tells a group that nothing of it was written, and whether anything ever will be again.
    fn fail(&mut self, group: Vec<Box<dyn Job>>, error: rusqlite::Error) {
        let error = port_error("write to the database", error);
        if error.kind().is_critical() {
            tracing::error!(%error, "the database cannot be relied on any more");
            self.broken = Some(error.clone());
        }
        answer_all(group, &error);
    }

    /// Applies a group in one transaction: all of it, or nothing.
    fn transact(&mut self, group: &mut [Box<dyn Job>]) -> rusqlite::Result<()> {
        let connection = &self.desk.connection;
        execute(connection, "BEGIN IMMEDIATE")?;
        let mut transaction = Transaction::new(connection, &self.desk.claims, &self.last_created);
        let applied = group
            .iter_mut()
            .try_for_each(|job| job.apply(&mut transaction))
            .and_then(|()| execute(connection, "COMMIT"));
        let ended = transaction.into_ended_claims();
        if applied.is_ok() {
            self.desk.claims.lock().committed(ended);
            return Ok(());
        }
        self.desk.claims.lock().rolled_back();
        // On some errors SQLite has rolled everything back by itself.
        if !connection.is_autocommit() {
            execute(connection, "ROLLBACK")?;
        }
        applied
    }

    /// Why nothing new may be stored, if so. What only changes rows may go on.
    fn no_room(&self) -> Option<PortError> {
        let reason = if self.file_is_full() {
            "the file has grown to its limit"
        } else if self.log_is_too_long() {
            "its log has grown to its limit because some program keeps a read transaction open: \
             end that transaction"
        } else {
            return None;
        };
        let operation = "write to the database";
        Some(PortError::new(
            PortErrorKind::StorageFull,
            operation,
            reason,
        ))
    }

    fn file_is_full(&self) -> bool {
        let Some(max_pages) = self.desk.max_pages else {
            return false;
        };
        let used = self
            .desk
            .connection
            .prepare_cached(USED_PAGES)
            .and_then(|mut used| used.query_row([], |row| row.get::<_, i64>(0)));
        used.is_ok_and(|used| used.unsigned_abs() >= max_pages)
    }

    /// Whether the log has outgrown its limit, and cannot be folded in because a reader, most likely
    /// of another program, still needs it as it was.
    fn log_is_too_long(&self) -> bool {
        let length = std::fs::metadata(&self.log).map_or(0, |log| log.len());
        if length <= self.desk.max_log_bytes {
            return false;
        }
        let folded = self
            .desk
            .connection
            .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
                Ok(row.get::<_, i64>(1)? == row.get::<_, i64>(2)?)
            });
        !folded.unwrap_or(false)
    }
}

/// Folds the whole log into the file, unless somebody is in the way: to wait for a reader would keep
/// the write lock meanwhile, and every other program out.
fn fold_log_in(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(Duration::ZERO)?;
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
}

/// Runs a statement without parameters.
pub(crate) fn execute(connection: &Connection, statement: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(statement)?.execute([]).map(drop)
}

/// Takes what waits, up to the size of a group or to something that is no write.
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
        Writer::start(Desk {
            connection: Connection::open_in_memory().unwrap(),
            claims: SharedClaims::default(),
            roles: Vec::new(),
            path: PathBuf::from("in memory"),
            max_log_bytes: u64::MAX,
            max_pages: None,
        })
        .unwrap()
    }

    /// Writes something that ends with this code of SQLite's, zero for well.
    async fn write(writer: &Writer, code: i32) -> Result<(), PortErrorKind> {
        let batch = Batch {
            apply: move |_: &mut Transaction<'_>, (): &()| match code {
                0 => Ok(()),
                _ => Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)),
            },
            needs_room: false,
        };
        let written = writer.write("try it", vec![()], batch).await;
        written.map(drop).map_err(|error| error.kind())
    }

    #[tokio::test]
    async fn after_a_failed_sync_nothing_is_written_any_more() {
        for code in [ffi::SQLITE_IOERR_FSYNC, ffi::SQLITE_CORRUPT] {
            let writer = writer();
            assert_eq!(write(&writer, 0).await, Ok(()));
            assert_eq!(write(&writer, code).await, Err(PortErrorKind::Broken));
            // SQLite itself would go on, as if what it could not write were there.
            assert_eq!(write(&writer, 0).await, Err(PortErrorKind::Broken));
        }
    }

    #[tokio::test]
    async fn after_a_full_disk_or_a_lock_the_next_one_has_its_chance() {
        let writer = writer();
        for (code, kind) in [
            (ffi::SQLITE_FULL, PortErrorKind::StorageFull),
            (ffi::SQLITE_BUSY, PortErrorKind::Busy),
        ] {
            assert_eq!(write(&writer, code).await, Err(kind));
            assert_eq!(write(&writer, 0).await, Ok(()));
        }
    }
    #[tokio::test]
    async fn a_full_queue_does_not_keep_the_file_open() {
        let writer = writer();
        let (go_on, wait) = std::sync::mpsc::channel::<()>();
        let holds_up = Box::new(move |_: &Connection| _ = wait.recv());
        writer
            .commands
            .try_send(Command::Errand(holds_up))
            .unwrap_or_else(|_| panic!("there is room for one"));
        while writer
            .commands
            .try_send(Command::Errand(Box::new(|_| {})))
            .is_ok()
        {}
        writer.close_soon();
        drop(go_on);
        writer.commands.closed().await;
    }
}
