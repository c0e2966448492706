//! What a run leaves of the connection it is given, and how it fails on one that cannot write.

use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::scenarios::{Scenario, contents, folder, now};
use super::{OpenError, migrate_connection};

fn setting(connection: &Connection, name: &str) -> i64 {
    connection
        .pragma_query_value(None, name, |row| row.get(0))
        .unwrap()
}

/// Runs over a connection that is to fail, and checks that the file and the settings are as before.
fn fails(scenario: Scenario, spoil: impl FnOnce(&std::path::Path) -> Connection) -> OpenError {
    let folder = folder();
    let path = folder.path().join("a.db");
    scenario.begin(&path);
    let before = contents(&path);
    let mut connection = spoil(&path);
    let error = migrate_connection(&mut connection, &path, scenario.set(), now()).unwrap_err();
    assert_eq!(setting(&connection, "foreign_keys"), 1);
    assert_eq!(setting(&connection, "legacy_alter_table"), 0);
    assert!(connection.is_autocommit());
    drop(connection);
    assert_eq!(contents(&path), before);
    error
}

#[test]
fn a_run_leaves_foreign_keys_on_and_the_write_ahead_log_in_use() {
    for scenario in Scenario::ALL {
        let folder = folder();
        let path = folder.path().join("a.db");
        scenario.begin(&path);
        let mut connection = Connection::open(&path).unwrap();
        connection
            .pragma_update(None, "foreign_keys", false)
            .unwrap();
        migrate_connection(&mut connection, &path, scenario.set(), now()).unwrap();
        assert_eq!(setting(&connection, "foreign_keys"), 1);
        assert_eq!(setting(&connection, "legacy_alter_table"), 0);
        let mode: String = connection
            .pragma_query_value(None, "journal_mode", |row| row.get(0))
            .unwrap();
        assert_eq!(mode, "wal");
    }
}

#[test]
fn a_read_only_connection_is_told_that_the_file_cannot_be_written() {
    let error = fails(Scenario::Stubs, |path| {
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap()
    });
    assert!(matches!(error, OpenError::ReadOnly { .. }), "{error}");
}

#[test]
fn a_run_that_finds_no_room_changes_nothing_and_says_so() {
    let error = fails(Scenario::Stubs, |path| {
        let connection = Connection::open(path).unwrap();
        let pages = setting(&connection, "page_count");
        let mut limit = 0;
        connection
            .pragma(None, "max_page_count", pages + 1, |row| {
                limit = row.get(0)?;
                Ok(())
            })
            .unwrap();
        assert_eq!(limit, pages + 1);
        connection
    });
    assert!(matches!(error, OpenError::Full { .. }), "{error}");
}

#[test]
fn a_lock_that_outlasts_the_busy_timeout_is_named() {
    let mut locker = None;
    let error = fails(Scenario::Stubs, |path| {
        let other = Connection::open(path).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        locker = Some(other);
        let connection = Connection::open(path).unwrap();
        connection.busy_timeout(Duration::ZERO).unwrap();
        connection
    });
    assert!(matches!(error, OpenError::Busy { .. }), "{error}");
}

#[test]
fn a_run_with_nothing_to_do_waits_for_no_writer() {
    let folder = folder();
    let path = folder.path().join("a.db");
    let set = Scenario::Stubs.set();
    super::migrate(&path, set, now()).unwrap();
    let locker = Connection::open(&path).unwrap();
    locker.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut connection = Connection::open(&path).unwrap();
    connection.busy_timeout(Duration::ZERO).unwrap();
    let report = migrate_connection(&mut connection, &path, set, now()).unwrap();
    assert_eq!(report.applied_now, 0);
}

#[test]
fn a_reader_that_keeps_a_file_from_its_write_ahead_log_is_waited_for_and_then_named() {
    let folder = folder();
    let path = folder.path().join("a.db");
    let reader = Connection::open(&path).unwrap();
    reader.execute_batch("CREATE TABLE theirs (a)").unwrap();
    reader.execute_batch("BEGIN; SELECT * FROM theirs").unwrap();
    let before = contents(&path);
    let mut connection = Connection::open(&path).unwrap();
    connection.busy_timeout(Duration::from_millis(1)).unwrap();
    let set = Scenario::Stubs.set();
    let error = migrate_connection(&mut connection, &path, set, now()).unwrap_err();
    assert!(matches!(error, OpenError::Busy { .. }), "{error}");
    assert_eq!(contents(&path), before);
    reader.execute_batch("COMMIT").unwrap();
    migrate_connection(&mut connection, &path, set, now()).unwrap();
}
