//! Opening of connections: one that writes, and a pool that only reads.

use std::path::{Path, PathBuf};
use std::time::Duration;

use r2d2::{CustomizeConnection, Pool};
use r2d2_sqlite::SqliteConnectionManager;
use rusqlite::trace::TraceEventCodes;
use rusqlite::{Connection, OpenFlags};

use crate::open_error::open_error;
use crate::{OnStatement, OpenError, SqliteSettings, Synchronous};

/// The first SQLite without the race between a writer and a checkpoint that can lose commits.
const FIRST_SAFE_VERSION: i32 = 3_051_003;
/// Maximum number of prepared statements on each connection; we have about eighty.
const STATEMENTS: usize = 128;
/// Number of pooled readers, besides the connection that polls. Reads are short and few at a time.
pub(crate) const READERS: u8 = 3;
const READER_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) type Readers = Pool<SqliteConnectionManager>;

/// Refuses to run on an SQLite that can lose committed writes.
pub(crate) fn check_version(version: i32) -> Result<(), OpenError> {
    if version >= FIRST_SAFE_VERSION {
        return Ok(());
    }
    let (major, minor, patch) = (
        version / 1_000_000,
        version / 1_000 % 1_000,
        version % 1_000,
    );
    Err(OpenError::OldSqlite {
        version: format!("{major}.{minor}.{patch}"),
    })
}

/// The absolute path, so that a name such as `:memory:` is an ordinary file.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf, OpenError> {
    std::path::absolute(path).map_err(|error| OpenError::other(path, error))
}

/// Resolves links: a role lock is named after the file, and must be the same for every link to it. The
/// folder must exist, the file need not.
pub(crate) fn behind_links(path: &Path) -> Result<PathBuf, OpenError> {
    if let Ok(found) = path.canonicalize() {
        return Ok(found);
    }
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(path.to_path_buf());
    };
    let folder = folder.canonicalize();
    let folder = folder.map_err(|error| OpenError::other(path, error))?;
    Ok(match path.read_link() {
        // A link to a file that does not exist yet; SQLite creates it there.
        Ok(target) => folder.join(target),
        Err(_) => folder.join(name),
    })
}

/// Opens a file for writing, and creates it if it is missing.
pub(crate) fn open_writable(path: &Path, busy_timeout: Duration) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection =
        Connection::open_with_flags(path, flags).map_err(|error| open_error(path, error))?;
    let prepare = || {
        connection.busy_timeout(busy_timeout)?;
        connection.is_readonly("main")
    };
    match prepare() {
        Ok(false) => Ok(connection),
        // SQLite opens a file without write permission for reading.
        Ok(true) => Err(OpenError::ReadOnly {
            path: path.to_path_buf(),
        }),
        Err(error) => Err(open_error(path, error)),
    }
}

/// Configures the writing connection, after the migrations.
pub(crate) fn prepare_writer(
    connection: &Connection,
    settings: &SqliteSettings,
) -> rusqlite::Result<()> {
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    trace_statements(connection, settings.on_statement);
    let synchronous = match settings.synchronous {
        Synchronous::Full => "FULL",
        Synchronous::Normal => "NORMAL",
    };
    connection.pragma_update(None, "synchronous", synchronous)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // Negative: in KiB. More costs memory and gains little (docs/performance.md).
    connection.pragma_update(None, "cache_size", -16_384)?;
    // Fewer checkpoints rewrite fewer pages twice.
    connection.pragma_update(None, "wal_autocheckpoint", 10_000)?;
    // A log that has grown once is truncated again.
    connection.pragma_update(None, "journal_size_limit", 64 * 1024 * 1024)
}

/// Opens a file for reading alone.
pub(crate) fn open_reader(settings: &SqliteSettings) -> rusqlite::Result<Connection> {
    let mut connection = Connection::open_with_flags(&settings.path, read_only())?;
    prepare_reader(&mut connection, settings)?;
    // It reads the index of ready timers again and again.
    connection.pragma_update(None, "cache_size", -8_192)?;
    Ok(connection)
}

fn read_only() -> OpenFlags {
    OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX
}

fn prepare_reader(connection: &mut Connection, settings: &SqliteSettings) -> rusqlite::Result<()> {
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    trace_statements(connection, settings.on_statement);
    connection.busy_timeout(settings.busy_timeout)?;
    connection.pragma_update(None, "query_only", true)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "cache_size", -2_048)
}

fn trace_statements(connection: &Connection, to: Option<OnStatement>) {
    if let Some(OnStatement(to)) = to {
        connection.trace_v2(TraceEventCodes::SQLITE_TRACE_STMT, Some(to));
    }
}

#[derive(Debug)]
struct AsReader {
    settings: SqliteSettings,
}

impl CustomizeConnection<Connection, rusqlite::Error> for AsReader {
    fn on_acquire(&self, connection: &mut Connection) -> rusqlite::Result<()> {
        prepare_reader(connection, &self.settings)
    }
}

/// A pool of read-only connections. They are kept, with their prepared statements.
pub(crate) fn open_readers(settings: &SqliteSettings) -> Result<Readers, OpenError> {
    let manager = SqliteConnectionManager::file(&settings.path).with_flags(read_only());
    Pool::builder()
        .max_size(READERS.into())
        .min_idle(Some(0))
        .max_lifetime(None)
        .idle_timeout(None)
        .test_on_check_out(false)
        .connection_timeout(READER_TIMEOUT)
        .connection_customizer(Box::new(AsReader {
            settings: settings.clone(),
        }))
        .build(manager)
        .map_err(|error| OpenError::other(&settings.path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_sqlite_that_can_lose_writes_is_refused() {
        let sentence = check_version(3_051_002).unwrap_err().to_string();
        assert!(sentence.contains("3.51.2"), "{sentence}");
        check_version(FIRST_SAFE_VERSION).unwrap();
    }

    #[test]
    fn the_bundled_sqlite_is_safe() {
        check_version(rusqlite::version_number()).unwrap();
    }
}
