//! Standard output, without the comforts that hide its failures.
//!
//! The standard library's own handle takes a standard output that cannot be written for a success,
//! and a firing that went nowhere would count as handled.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use rustix::event::{PollFd, PollFlags, poll};

/// What standard output leads to, as far as it matters to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A file: what was written there can be made durable.
    File,
    /// A pipe: what is not longer than a certain size arrives whole or not at all.
    Pipe,
    /// The device that swallows everything. It is also what we find if standard output was closed.
    Nowhere,
    /// A terminal or another device.
    Other,
}

/// Opens standard output for writing, unbuffered.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn open() -> io::Result<(File, Kind)> {
    let mut file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    // An empty write shows whether it was opened for writing at all.
    let _ = file.write(&[])?;
    let metadata = file.metadata()?;
    let swallows = || std::fs::metadata("/dev/null").is_ok_and(|it| it.rdev() == metadata.rdev());
    let kind = metadata.file_type();
    let kind = if kind.is_file() {
        Kind::File
    } else if kind.is_fifo() {
        Kind::Pipe
    } else if kind.is_char_device() && swallows() {
        Kind::Nowhere
    } else {
        Kind::Other
    };
    Ok((file, kind))
}

/// Writes, and waits while the buffer is full: the parent process may have made standard output
/// non-blocking.
pub(crate) struct Blocking<'a>(pub(crate) &'a File);

impl Write for Blocking<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut writable = [PollFd::new(self.0, PollFlags::OUT)];
                    poll(&mut writable, None)?;
                }
                done => return done,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether a file that is appended to ends in the middle of a line, because its last writer was
/// killed. `true` if it cannot be read.
pub(crate) fn is_cut(file: &File) -> bool {
    match file.metadata() {
        Ok(metadata) if metadata.len() > 0 => last_byte().is_none_or(|byte| byte != b'\n'),
        _ => false,
    }
}

fn last_byte() -> Option<u8> {
    let mut reread = File::open("/dev/fd/1").ok()?;
    reread.seek(SeekFrom::End(-1)).ok()?;
    let mut last = [0];
    reread.read_exact(&mut last).ok()?;
    Some(last[0])
}
