//! A copy of the file while it is in use.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use punctual_ports::{PortError, PortErrorKind};
use rusqlite::backup::Backup;
use rusqlite::{Connection, ErrorCode};

use crate::SqliteTimerStore;

const OPERATION: &str = "back the database up";

impl SqliteTimerStore {
    /// Copies the file as it is at this moment, while timers go on being scheduled and fired. The
    /// copy is complete and on the disk when this returns, and appears under its name only then.
    ///
    /// # Errors
    /// If the file exists already, or cannot be written.
    pub async fn backup_to(&self, path: impl Into<PathBuf>) -> Result<(), PortError> {
        let path = path.into();
        if path.exists() {
            return Err(PortError::new(
                PortErrorKind::Rejected,
                OPERATION,
                format!("{} exists already: name a new file", path.display()),
            ));
        }
        let copied = self
            .read(OPERATION, move |connection| Ok(copy(connection, &path)))
            .await?;
        copied.map_err(|error| {
            PortError::new(PortErrorKind::Unavailable, OPERATION, error.to_string())
                .with_source(error)
        })
    }
}

fn copy(source: &Connection, path: &Path) -> io::Result<()> {
    let partial = reserve(path)?;
    let copied = copy_pages(source, &partial)
        .map_err(io::Error::other)
        .and_then(|()| File::open(&partial)?.sync_all())
        // Fails if somebody has made a file of that name meanwhile, where a rename would replace it.
        .and_then(|()| fs::hard_link(&partial, path))
        .and_then(|()| sync_folder(path));
    remove_if_there(&partial)?;
    copied
}

/// Makes a file of a name that nobody else uses, beside the one that is wanted.
fn reserve(path: &Path) -> io::Result<PathBuf> {
    for number in 0..100 {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}-{number}.partial", std::process::id()));
        match File::create_new(&name) {
            Ok(_) => return Ok(name.into()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::AlreadyExists,
        "a hundred unfinished backups are in the way: remove the files that end in .partial",
    ))
}

/// All pages in one step: one snapshot, which later commits neither change nor restart.
fn copy_pages(source: &Connection, target: &Path) -> rusqlite::Result<()> {
    let mut target = Connection::open(target)?;
    let backup = Backup::new(source, &mut target)?;
    match backup.step(-1)? {
        rusqlite::backup::StepResult::Done => Ok(()),
        _ => Err(rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error {
                code: ErrorCode::DatabaseBusy,
                extended_code: rusqlite::ffi::SQLITE_BUSY,
            },
            None,
        )),
    }
}

/// A file is there for good only when its name is on the disk too.
fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
