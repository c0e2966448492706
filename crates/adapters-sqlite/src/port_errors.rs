//! Mapping of SQLite errors to those of a port: which can be retried, and which break the store.

use punctual_ports::{PortError, PortErrorKind};
use rusqlite::ErrorCode;

/// An error of SQLite as an error of a port.
pub(crate) fn port_error(operation: &'static str, error: rusqlite::Error) -> PortError {
    let kind = kind_of(&error);
    let reason = match kind {
        PortErrorKind::Busy => "another program holds the database's write lock".to_owned(),
        PortErrorKind::StorageFull if cannot_share_memory(&error) => {
            "there is no room left for the index of the database's log".to_owned()
        }
        PortErrorKind::StorageFull => "there is no room left for the database".to_owned(),
        _ => error.to_string(),
    };
    PortError::new(kind, operation, reason).with_source(error)
}

fn kind_of(error: &rusqlite::Error) -> PortErrorKind {
    let Some(code) = error.sqlite_error_code() else {
        // A stored value does not convert: another program wrote it.
        return PortErrorKind::Rejected;
    };
    if cannot_share_memory(error) {
        return PortErrorKind::StorageFull;
    }
    match code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => PortErrorKind::Busy,
        ErrorCode::DiskFull => PortErrorKind::StorageFull,
        ErrorCode::OutOfMemory => PortErrorKind::Overloaded,
        ErrorCode::OperationInterrupted | ErrorCode::OperationAborted => PortErrorKind::Unavailable,
        ErrorCode::ConstraintViolation | ErrorCode::TooBig | ErrorCode::TypeMismatch => {
            PortErrorKind::Rejected
        }
        // After any other error, stored data may be missing.
        _ => PortErrorKind::Broken,
    }
}

/// Whether the shared index of the log could not be created or grow, as on a full disk. It is derived from
/// the log, so that no data is in doubt and a retry may succeed.
fn cannot_share_memory(error: &rusqlite::Error) -> bool {
    use rusqlite::ffi::{SQLITE_IOERR_SHMMAP, SQLITE_IOERR_SHMOPEN, SQLITE_IOERR_SHMSIZE};
    let code = error.sqlite_error().map(|error| error.extended_code);
    code.is_some_and(|code| {
        [
            SQLITE_IOERR_SHMSIZE,
            SQLITE_IOERR_SHMOPEN,
            SQLITE_IOERR_SHMMAP,
        ]
        .contains(&code)
    })
}

/// Whether an error concerns a single item: SQLite has undone its statement only.
pub(crate) fn concerns_the_item(error: &rusqlite::Error) -> bool {
    kind_of(error) == PortErrorKind::Rejected
}

/// Whether there was no room.
pub(crate) fn is_full(error: &rusqlite::Error) -> bool {
    kind_of(error) == PortErrorKind::StorageFull
}

/// Whether a row was refused because its parent row is missing.
pub(crate) fn is_missing_parent(error: &rusqlite::Error) -> bool {
    error
        .sqlite_error()
        .is_some_and(|it| it.extended_code == rusqlite::ffi::SQLITE_CONSTRAINT_FOREIGNKEY)
}

/// The error of every operation after the store was closed.
pub(crate) fn stopped(operation: &'static str) -> PortError {
    PortError::new(PortErrorKind::Stopped, operation, "the database was closed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ffi;

    fn kind(code: i32) -> PortErrorKind {
        let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
        port_error("save timers", error).kind()
    }

    #[test]
    fn each_error_says_whether_trying_again_can_help() {
        for (code, expected) in [
            (ffi::SQLITE_BUSY, PortErrorKind::Busy),
            (ffi::SQLITE_BUSY_SNAPSHOT, PortErrorKind::Busy),
            (ffi::SQLITE_LOCKED, PortErrorKind::Busy),
            (ffi::SQLITE_FULL, PortErrorKind::StorageFull),
            (ffi::SQLITE_IOERR_SHMSIZE, PortErrorKind::StorageFull),
            (ffi::SQLITE_IOERR_SHMOPEN, PortErrorKind::StorageFull),
            (ffi::SQLITE_IOERR_SHMMAP, PortErrorKind::StorageFull),
            (ffi::SQLITE_NOMEM, PortErrorKind::Overloaded),
            (ffi::SQLITE_INTERRUPT, PortErrorKind::Unavailable),
            (ffi::SQLITE_CONSTRAINT_CHECK, PortErrorKind::Rejected),
        ] {
            assert_eq!(kind(code), expected, "{code}");
        }
    }

    #[test]
    fn a_store_that_may_have_lost_something_is_broken() {
        for code in [
            ffi::SQLITE_IOERR,
            ffi::SQLITE_IOERR_FSYNC,
            ffi::SQLITE_IOERR_SHORT_READ,
            ffi::SQLITE_CORRUPT,
            ffi::SQLITE_NOTADB,
            ffi::SQLITE_READONLY,
            ffi::SQLITE_READONLY_DBMOVED,
            ffi::SQLITE_CANTOPEN,
            ffi::SQLITE_PERM,
        ] {
            assert!(kind(code).is_critical(), "{code}");
        }
    }
}
