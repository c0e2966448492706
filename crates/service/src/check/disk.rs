//! The folder of a database: whether it can be written, and its free space.

use std::fs;
use std::io;
use std::path::Path;

use rustix::fs::{Access, access, statvfs};

use crate::display::reason;

/// Minimum free space.
const LEAST_FREE: u64 = 16 << 20;

/// Checks whether a folder can be written.
pub(super) fn folder(folder: &Path) -> Result<String, String> {
    let shown = folder.display();
    match fs::metadata(folder) {
        Ok(it) if !it.is_dir() => Err(format!("{shown} is a file: name a folder")),
        Ok(_) => match may(folder, Access::WRITE_OK | Access::EXEC_OK) {
            Ok(()) => Ok(format!("{shown} can be written")),
            Err(error) => Err(format!(
                "{shown} cannot be written ({}): make it writable for this user",
                reason(&error)
            )),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => missing(folder),
        Err(error) => Err(format!("{shown} cannot be read: {}", reason(&error))),
    }
}

/// A folder that is not there can be made if the nearest one above it can be written.
fn missing(path: &Path) -> Result<String, String> {
    let shown = path.display();
    match path.ancestors().find(|above| above.exists()) {
        Some(above) if above != path => match folder(above) {
            Ok(_) => Ok(format!("{shown} is not there yet: it is made at the start")),
            Err(problem) => Err(format!("{shown} cannot be made: {problem}")),
        },
        _ => Err(format!("{shown} leads nowhere: name another folder")),
    }
}

/// Checks whether an existing file can be read and written.
pub(super) fn file(path: &Path) -> Result<(), String> {
    let shown = path.display();
    may(path, Access::READ_OK | Access::WRITE_OK).map_err(|error| {
        format!(
            "{shown} cannot be read and written ({}): allow this user to",
            reason(&error)
        )
    })
}

/// Checks the free space on the disk of a folder, or of its nearest existing ancestor. `None` if it is unknown.
pub(super) fn free_space(folder: &Path) -> Option<Result<String, String>> {
    let there = folder.ancestors().find(|above| above.exists())?;
    let disk = statvfs(there).ok()?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let sentence = format!("{} are free", size(free));
    Some(if free < LEAST_FREE {
        Err(format!("{sentence}: make room"))
    } else {
        Ok(sentence)
    })
}

/// A size for people.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0..=0x3ff => format!("{bytes} bytes"),
        0x400..=0xf_ffff => format!("{} KiB", bytes >> 10),
        0x10_0000..=0x3fff_ffff => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}

fn may(path: &Path, what: Access) -> io::Result<()> {
    Ok(access(path, what)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1_023, "1023 bytes"),
            (1_024, "1 KiB"),
            ((1 << 20) - 1, "1023 KiB"),
            (1 << 20, "1 MiB"),
            (5 << 30, "5 GiB"),
            (u64::MAX, "17179869183 GiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
