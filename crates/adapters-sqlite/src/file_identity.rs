//! Whether the files at their paths are still those that are open.
//!
//! A database that was renamed, removed or replaced goes on working for whoever has it open, but
//! nobody finds what is written to it after a restart. So nothing is acknowledged and nothing is
//! handed out before device and inode of each path were compared with those of the open file. The
//! log and its index count as well: without its log a database lacks what was committed last, and
//! beside another index other programs would write over it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use punctual_ports::{PortError, PortErrorKind};

/// The files that belong to a database besides itself.
const BESIDE: [&str; 2] = ["-wal", "-shm"];

/// The files of an open database, as they were when it was opened. Clones share what they know.
#[derive(Clone)]
pub(crate) struct FileIdentity(Arc<Files>);

struct Files {
    expected: Vec<(PathBuf, Inode)>,
    /// The first that was found to be another. Whether it comes back does not matter: what was
    /// written meanwhile may be anywhere.
    moved: OnceLock<PathBuf>,
}

/// What tells a file from another of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Inode {
    device: u64,
    number: u64,
}

impl FileIdentity {
    /// Of a database that is open: `found` is what was at the path that the next start will open
    /// when this one did, `path` the same without links, beside which its log is.
    pub(crate) fn new(found: Option<(PathBuf, Inode)>, path: &Path) -> Self {
        let beside = BESIDE.iter().filter_map(|end| {
            let mut name = path.as_os_str().to_owned();
            name.push(end);
            found_at(Path::new(&name))
        });
        Self(Arc::new(Files {
            expected: found.into_iter().chain(beside).collect(),
            moved: OnceLock::new(),
        }))
    }

    /// Fails, from then on for good, once one of the files is no longer at its path.
    pub(crate) fn check(&self, operation: &'static str) -> Result<(), PortError> {
        let Files { expected, moved } = &*self.0;
        if moved.get().is_none() {
            let mut changed = None;
            for (path, expected) in expected {
                let is_another = match inode(path) {
                    Ok(found) => found != *expected,
                    Err(error) if is_absent(&error) => true,
                    // It may well be there: nothing is answered now, and the next may see it again.
                    Err(error) => {
                        let reason = format!("cannot look at {}: {error}", path.display());
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
            // Whoever came first has said the same.
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

/// A file that is there, with what tells it from others.
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

/// Elsewhere, a file that is open can be neither renamed nor removed.
#[cfg(not(unix))]
fn inode(_path: &Path) -> io::Result<Inode> {
    Err(io::ErrorKind::Unsupported.into())
}
