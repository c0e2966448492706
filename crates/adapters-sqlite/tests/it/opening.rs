//! Opening and closing a file: its setup and its roles.

use punctual_adapters_sqlite::{
    OpenError, Role, SchemaSet, SqliteSettings, SqliteTimerStore, Synchronous,
};
use punctual_domain::Timestamp;
use punctual_ports::{PortErrorKind, TimerPersistencePort, TimerQueuePort};
use std::path::Path;
use std::time::Duration;

use crate::store::{OnFile, at, folder, put_call, save_some, timer, with_end};

fn refusal(file: &OnFile) -> OpenError {
    match SqliteTimerStore::open(&file.settings, Timestamp::MIN) {
        Ok(_) => panic!("it was opened"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn the_timer_role_is_exclusive_and_clients_open_beside_it() {
    let file = OnFile::new(SchemaSet::TimersOnly);
    let second = refusal(&file);
    assert!(matches!(second, OpenError::RoleTaken { .. }), "{second}");
    let mut beside = file.settings.clone();
    beside.role = Role::Client;
    let client = SqliteTimerStore::open(&beside, Timestamp::MIN).unwrap();
    save_some(&client, 0..3).await;
    assert!(file.store.find(timer(2).key).await.unwrap().is_some());
    let claimed = client
        .claim_due(at(9_000), 10, Duration::from_secs(1))
        .await;
    assert_eq!(claimed.unwrap_err().kind(), PortErrorKind::Rejected);
}

#[tokio::test]
async fn closing_releases_the_role_and_leaves_no_log() {
    let file = OnFile::new(SchemaSet::TimersOnly);
    save_some(&file.store, 0..500).await;
    file.store.close().await;
    let late = file.store.save(vec![timer(1)], at(0)).await.unwrap_err();
    assert_eq!(late.kind(), PortErrorKind::Stopped);
    let claimed = file
        .store
        .claim_due(at(0), 10, Duration::from_secs(1))
        .await;
    assert_eq!(claimed.unwrap_err().kind(), PortErrorKind::Stopped);
    let log = std::fs::metadata(with_end(file.path(), "-wal"));
    assert_eq!(log.map_or(0, |log| log.len()), 0);
    let again = SqliteTimerStore::open(&file.settings, Timestamp::MIN).unwrap();
    assert!(again.find(timer(499).key).await.unwrap().is_some());
}

#[tokio::test]
async fn queued_commands_are_finished_before_closing() {
    let file = OnFile::new(SchemaSet::TimersOnly);
    let saves: Vec<_> = (0..50)
        .map(|number| {
            let store = file.store.clone();
            tokio::spawn(async move { store.save(vec![timer(number)], at(0)).await })
        })
        .collect();
    tokio::task::yield_now().await;
    file.store.close().await;
    let mut acknowledged = Vec::new();
    for (number, save) in saves.into_iter().enumerate() {
        if save.await.unwrap().is_ok() {
            acknowledged.push(number);
        }
    }
    let again = SqliteTimerStore::open(&file.settings, Timestamp::MIN).unwrap();
    assert!(!acknowledged.is_empty());
    for number in acknowledged {
        assert!(again.find(timer(number).key).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn the_folder_is_created_and_a_special_name_is_an_ordinary_file() {
    let folder = folder();
    for name in [
        "a/b/c/timer.db",
        ":memory:",
        "file:x?mode=memory",
        "with space's.db",
    ] {
        let mut settings = SqliteSettings::timers(folder.path().join(name));
        settings.synchronous = Synchronous::Normal;
        let store = SqliteTimerStore::open(&settings, Timestamp::MIN).unwrap();
        save_some(&store, 0..1).await;
        assert!(settings.path.is_file(), "{name}");
    }
}

#[tokio::test]
async fn a_file_in_place_of_the_folder_is_refused_by_name() {
    let folder = folder();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let settings = SqliteSettings::timers(file.join("timer.db"));
    let error = SqliteTimerStore::open(&settings, Timestamp::MIN)
        .err()
        .unwrap();
    assert!(matches!(error, OpenError::Folder { .. }), "{error}");
}

#[tokio::test]
async fn a_service_call_takes_its_timer_with_it() {
    let file = OnFile::new(SchemaSet::Shared);
    let outsider = file.outsider();
    for number in 0..2 {
        put_call(&outsider, &timer(number).key);
    }
    save_some(&file.store, 0..2).await;
    outsider
        .execute(
            "DELETE FROM service_calls WHERE service_call_id = ?1",
            [timer(0).key.service_call_id.to_string()],
        )
        .unwrap();
    assert_eq!(file.store.find(timer(0).key).await.unwrap(), None);
    assert!(file.store.find(timer(1).key).await.unwrap().is_some());
}

#[tokio::test]
async fn the_role_is_the_same_through_every_link() {
    let folder = folder();
    let real = folder.path().join("real");
    std::fs::create_dir(&real).unwrap();
    let settings = |path: &str| {
        let path = folder.path().join(path);
        SqliteSettings::timers(path)
    };
    // The first link leads to a file that does not exist yet.
    std::os::unix::fs::symlink("real/timer.db", folder.path().join("link.db")).unwrap();
    std::os::unix::fs::symlink(&real, folder.path().join("folder")).unwrap();
    let _first = SqliteTimerStore::open(&settings("link.db"), Timestamp::MIN).unwrap();
    for other in ["real/timer.db", "folder/timer.db", "real/../link.db"] {
        let second = SqliteTimerStore::open(&settings(other), Timestamp::MIN);
        let refused = second.err().unwrap();
        assert!(
            matches!(refused, OpenError::RoleTaken { .. }),
            "{other}: {refused}"
        );
    }
}

/// Creates an empty file in log mode and closes it.
fn empty_in_log_mode(path: &Path) {
    let connection = rusqlite::Connection::open(path).unwrap();
    let mode: String = connection
        .pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))
        .unwrap();
    assert_eq!(mode, "wal");
}

#[test]
fn an_empty_file_in_log_mode_that_is_not_ours_is_new() {
    let folder = folder();
    let path = folder.path().join("timer.db");
    let settings = SqliteSettings::timers(&path);
    empty_in_log_mode(&path);
    assert!(!with_end(&path, "-wal").exists());
    drop(SqliteTimerStore::open(&settings, Timestamp::MIN).unwrap());

    // The same while its creator has it open, with a commit in the log, but no table.
    let path = folder.path().join("another.db");
    let settings = SqliteSettings::timers(&path);
    empty_in_log_mode(&path);
    let maker = rusqlite::Connection::open(&path).unwrap();
    maker.pragma_update(None, "user_version", 7).unwrap();
    drop(SqliteTimerStore::open(&settings, Timestamp::MIN).unwrap());
}

#[test]
fn a_copy_without_its_log_is_refused() {
    for made_before in [false, true] {
        let folder = folder();
        let path = folder.path().join("timer.db");
        if made_before {
            empty_in_log_mode(&path);
        }
        let store = SqliteTimerStore::open(&SqliteSettings::timers(&path), Timestamp::MIN);
        let copy = folder.path().join("copy.db");
        std::fs::copy(&path, &copy).unwrap();
        drop(store.unwrap());
        let refused = SqliteTimerStore::open(&SqliteSettings::timers(&copy), Timestamp::MIN);
        let refused = refused.err().map(|error| error.to_string());
        let words = "was copied while it was in use";
        assert!(
            refused.as_ref().is_some_and(|it| it.contains(words)),
            "{refused:?}"
        );
    }
}
