//! Inspection of a file reports its contents and changes nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use punctual_adapters_sqlite::{
    OpenError, SchemaSet, SqliteCallStore, SqliteSettings, Wholeness, inspect, migrate, served_by,
};
use punctual_migrations::Dialect;

use crate::scratch::{Scratch, now};
use crate::store::{OnFile, save_some, with_end};

const NO_LIMIT: u64 = u64::MAX;

/// Every file of a folder, with what is in it; but for the index of a log, which is memory that
/// processes share.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(folder).unwrap().map(|file| {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let is_index = name.ends_with("-shm");
        (
            name,
            if is_index {
                vec![]
            } else {
                fs::read(&path).unwrap()
            },
        )
    });
    files.collect()
}

#[test]
fn inspecting_a_closed_file_creates_no_other() {
    for set in [SchemaSet::TimersOnly, SchemaSet::Shared] {
        let scratch = Scratch::migrated(set);
        let before = contents(scratch.folder());
        let seen = inspect(&scratch.path(), set, NO_LIMIT).unwrap().unwrap();
        assert_eq!(seen.status.pending(), 0);
        assert!(seen.has_write_ahead_log);
        assert_eq!(seen.wholeness, Wholeness::Whole);
        assert_eq!(seen.file_bytes, before["a.db"].len() as u64);
        assert!(contents(scratch.folder()) == before);
        assert_eq!(before.len(), 1, "there is nothing but the file");
    }
}

#[test]
fn a_name_with_characters_of_a_uri_is_escaped() {
    let scratch = Scratch::new();
    let path = scratch.folder().join("a?mode=rwc#%41 ä.db");
    migrate(&path, SchemaSet::TimersOnly, now()).unwrap();
    let seen = inspect(&path, SchemaSet::TimersOnly, NO_LIMIT).unwrap();
    assert_eq!(seen.unwrap().status.pending(), 0);
    assert_eq!(contents(scratch.folder()).len(), 1);
}

#[tokio::test]
async fn a_file_that_is_served_is_inspected_with_its_holder() {
    let file = OnFile::new(SchemaSet::TimersOnly);
    save_some(&file.store, 0..100).await;
    let folder = file.path().parent().unwrap();
    let before = contents(folder);
    let seen = inspect(file.path(), SchemaSet::TimersOnly, NO_LIMIT);
    assert_eq!(seen.unwrap().unwrap().wholeness, Wholeness::Whole);
    let holder = served_by(file.path()).unwrap();
    assert_eq!(holder, Some(format!("process {}", std::process::id())));
    assert!(contents(folder) == before);
    file.store.close().await;
    assert_eq!(served_by(file.path()).unwrap(), None);
}

#[tokio::test]
async fn a_file_of_calls_is_served_also_if_their_timers_are_in_another() {
    let scratch = Scratch::migrated(SchemaSet::Shared);
    let settings = SqliteSettings::calls_alone(scratch.path());
    let calls = SqliteCallStore::open(&settings, now()).unwrap();
    let holder = served_by(&scratch.path()).unwrap();
    assert_eq!(holder, Some(format!("process {}", std::process::id())));
    calls.close().await;
    assert_eq!(served_by(&scratch.path()).unwrap(), None);
}

#[tokio::test]
async fn a_link_shows_what_the_file_and_its_log_hold() {
    let file = OnFile::new(SchemaSet::TimersOnly);
    let folder = Scratch::new();
    std::os::unix::fs::symlink(file.path(), folder.path()).unwrap();
    // As yet, the tables are in the log alone.
    let seen = inspect(&folder.path(), SchemaSet::TimersOnly, NO_LIMIT);
    assert_eq!(seen.unwrap().unwrap().status.pending(), 0);
    assert!(served_by(&folder.path()).unwrap().is_some());
    assert_eq!(contents(folder.folder()).len(), 1);
}

#[tokio::test]
async fn a_log_without_its_index_is_left_alone() {
    let file = OnFile::new(SchemaSet::TimersOnly);
    save_some(&file.store, 0..100).await;
    let copy = Scratch::new();
    for end in ["", "-wal"] {
        fs::copy(with_end(file.path(), end), with_end(&copy.path(), end)).unwrap();
    }
    let before = contents(copy.folder());
    assert_eq!(before.len(), 2);
    let seen = inspect(&copy.path(), SchemaSet::TimersOnly, NO_LIMIT);
    assert_eq!(seen.unwrap(), None);
    assert!(contents(copy.folder()) == before);
}

#[test]
fn pending_migrations_are_reported_and_stay_pending() {
    let scratch = Scratch::new();
    fs::write(scratch.path(), "").unwrap();
    let seen = inspect(&scratch.path(), SchemaSet::TimersOnly, NO_LIMIT);
    let seen = seen.unwrap().unwrap();
    assert_eq!(
        seen.status.pending(),
        SchemaSet::TimersOnly.migrations(Dialect::Sqlite).len()
    );
    assert!(!seen.has_write_ahead_log);
    assert_eq!(fs::read(scratch.path()).unwrap(), b"");
}

#[test]
fn damage_is_found_unless_the_file_is_too_large_to_check() {
    let scratch = Scratch::migrated(SchemaSet::TimersOnly);
    let connection = scratch.open();
    let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'timer_schedules'";
    let root: u16 = connection.query_row(root, [], |row| row.get(0)).unwrap();
    connection.close().unwrap();
    let root = usize::from(root);
    let mut bytes = fs::read(scratch.path()).unwrap();
    bytes[(root - 1) * 4_096..root * 4_096].fill(0xee);
    fs::write(scratch.path(), &bytes).unwrap();
    let wholeness = |limit| {
        let seen = inspect(&scratch.path(), SchemaSet::TimersOnly, limit);
        seen.unwrap().unwrap().wholeness
    };
    assert!(matches!(wholeness(NO_LIMIT), Wholeness::Damaged(_)));
    assert_eq!(wholeness(4_096), Wholeness::NotChecked);
    assert!(fs::read(scratch.path()).unwrap() == bytes);
}

#[test]
fn what_cannot_be_used_is_refused_as_it_is_when_it_is_opened() {
    let scratch = Scratch::new();
    let path = scratch.path();
    let refusal = |set| inspect(&path, set, NO_LIMIT).unwrap_err();
    assert!(matches!(
        refusal(SchemaSet::TimersOnly),
        OpenError::Missing { .. }
    ));
    assert_eq!(contents(scratch.folder()).len(), 0);
    migrate(&path, SchemaSet::Shared, now()).unwrap();
    assert!(matches!(
        refusal(SchemaSet::TimersOnly),
        OpenError::WrongSet { .. }
    ));
    fs::write(&path, "my diary\n".repeat(1_000)).unwrap();
    assert!(matches!(
        refusal(SchemaSet::TimersOnly),
        OpenError::Corrupt { .. }
    ));
    assert_eq!(contents(scratch.folder()).len(), 1);
    let nowhere = scratch.folder().join("no/such/folder/t.db");
    assert_eq!(served_by(&nowhere).unwrap(), None);
}
