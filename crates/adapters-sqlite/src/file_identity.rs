//! Check that the open files are still those at their paths.
//!
//! A database that was renamed, removed or replaced keeps working for the process that has it open, but
//! its writes are lost with a restart. So no write is acknowledged and no timer claimed before device and
//! inode at each path were compared with those of the open file. The log and its index are checked too:
//! without its log a database lacks the last commits, and with another index other programs would
//! overwrite them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use punctual_ports::{PortError, PortErrorKind};

use crate::inspect::beside;

/// Suffixes of the log and its index.
const BESIDE: [&str; 2] = ["-wal", "-shm"];

/// Identity of the files of an open database. Clones share it.
#[derive(Clone)]
pub(crate) struct FileIdentity(Arc<Files>);

struct Files {
    expected: Vec<(PathBuf, Inode)>,
    /// The first file that was found moved. Moving it back does not help: writes may have been lost
    /// meanwhile.
    moved: OnceLock<PathBuf>,
}

/// Identity of a file, whatever its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Inode {
    device: u64,
    number: u64,
}

impl FileIdentity {
    /// Identity of an open database: `found` is the file at the configured path, `path` the same path
    /// without links, beside which the log is.
    pub(crate) fn new(found: Option<(PathBuf, Inode)>, path: &Path) -> Self {
        let beside = BESIDE.iter().filter_map(|end| found_at(&beside(path, end)));
        Self(Arc::new(Files {
            expected: found.into_iter().chain(beside).collect(),
            moved: OnceLock::new(),
        }))
    }

    /// Fails permanently once one of the files is no longer at its path.
    pub(crate) fn check(&self, operation: &'static str) -> Result<(), PortError> {
        let Files { expected, moved } = &*self.0;
        if moved.get().is_none() {
            let mut changed = None;
            for (path, expected) in expected {
                let is_another = match inode(path) {
                    Ok(found) => found != *expected,
                    Err(error) if is_absent(&error) => true,
                    // It may still be there: only this operation fails.
                    Err(error) => {
                        let reason = format!("cannot read {}: {error}", path.display());
                        return Err(PortError::new(
                            PortErrorKind::Unavailable,
                            operation,
                            reason,
                        ));
                    }
                };
                if is_another {
                    changed = Some(path);
                    break;
                }
            }
            let Some(path) = changed else {
                return Ok(());
            };
            // Another thread may have set it.
            let _ = moved.set(path.clone());
        }
        let path = moved.get().map_or(Path::new(""), PathBuf::as_path);
        let reason = format!(
            "{} was renamed, removed or replaced while it was open: put it back, or restore a \
             backup, and start again",
            path.display()
        );
        Err(PortError::new(PortErrorKind::Broken, operation, reason))
    }
}

/// The identity of the file at a path, if there is one.
pub(crate) fn found_at(path: &Path) -> Option<(PathBuf, Inode)> {
    let inode = inode(path).ok()?;
    Some((path.to_path_buf(), inode))
}

fn is_absent(error: &io::Error) -> bool {
    let kind = error.kind();
    kind == io::ErrorKind::NotFound || kind == io::ErrorKind::NotADirectory
}

#[cfg(unix)]
fn inode(path: &Path) -> io::Result<Inode> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(path)?;
    Ok(Inode {
        device: metadata.dev(),
        number: metadata.ino(),
    })
}

/// On other systems, an open file can be neither renamed nor removed.
#[cfg(not(unix))]
fn inode(_path: &Path) -> io::Result<Inode> {
    Err(io::ErrorKind::Unsupported.into())
}
