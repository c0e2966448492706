//! A file that is renamed, removed or replaced while it is open: no write is acknowledged and no timer
//! claimed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use punctual_adapters_memory::FakeClock;
use punctual_adapters_sqlite::{SchemaSet, SqliteSettings, SqliteTimerStore, Synchronous};
use punctual_domain::Timestamp;
use punctual_ports::{
    Backend, ClockPort, FiredTimer, PortErrorKind, TimerPersistencePort, TimerQueuePort,
};

use crate::store::{OnFile, at, folder, save_some, timer, with_end};

const LEASE: Duration = Duration::from_secs(30);

/// Named ways to move a file.
type Mishap = (&'static str, fn(&Path));

const MISHAPS: [Mishap; 6] = [
    ("renamed alone", |path| rename(path, &[""])),
    ("renamed with its log", |path| {
        rename(path, &["", "-wal", "-shm"]);
    }),
    ("removed", |path| std::fs::remove_file(path).unwrap()),
    ("replaced by a copy", |path| {
        let copy = with_end(path, ".copy");
        std::fs::copy(path, &copy).unwrap();
        std::fs::rename(copy, path).unwrap();
    }),
    ("without its log", |path| rename(path, &["-wal"])),
    ("without the index of its log", |path| {
        rename(path, &["-shm"]);
    }),
];

fn rename(path: &Path, ends: &[&str]) {
    for end in ends {
        let aside = with_end(path, &format!(".old{end}"));
        std::fs::rename(with_end(path, end), aside).unwrap();
    }
}

#[tokio::test]
async fn no_write_to_a_file_that_was_moved_is_acknowledged() {
    for (mishap, happen) in MISHAPS {
        let file = OnFile::new(SchemaSet::TimersOnly);
        save_some(&file.store, 0..5).await;
        let claimed = file.store.claim_due(at(0), 1, LEASE).await.unwrap();
        let mark = FiredTimer {
            firing_id: claimed.claims[0].timer.firing_id(),
            reached_at: at(0),
        };
        happen(file.path());
        let saved = file.store.save(vec![timer(7)], at(0)).await;
        let saved = saved.unwrap_err();
        assert_eq!(saved.kind(), PortErrorKind::Broken, "{mishap}: {saved}");
        assert!(saved.to_string().contains("timer.db"), "{saved}");
        assert!(
            saved.to_string().contains("renamed, removed or replaced"),
            "{saved}"
        );
        let marked = file.store.mark_fired(vec![mark]).await.unwrap_err();
        assert_eq!(marked.kind(), PortErrorKind::Broken, "{mishap}: {marked}");
        let deleted = file.store.delete(vec![timer(3).key], at(0)).await;
        assert!(deleted.is_err(), "{mishap}");
    }
}

#[tokio::test]
async fn no_timer_of_a_file_that_was_moved_is_claimed() {
    for (mishap, happen) in MISHAPS {
        let file = OnFile::new(SchemaSet::TimersOnly);
        save_some(&file.store, 0..5).await;
        happen(file.path());
        let claimed = file.store.claim_due(at(50_000), 5, LEASE).await;
        let claimed = claimed.unwrap_err();
        assert_eq!(claimed.kind(), PortErrorKind::Broken, "{mishap}: {claimed}");
        let saved = file.store.save(vec![timer(7)], at(0)).await;
        assert!(
            saved.is_err(),
            "{mishap}: whoever notices, it counts for all"
        );
    }
}

#[tokio::test]
async fn a_file_that_comes_back_is_not_trusted_again() {
    let file = OnFile::new(SchemaSet::TimersOnly);
    let aside = with_end(file.path(), ".old");
    std::fs::rename(file.path(), &aside).unwrap();
    file.store.save(vec![timer(1)], at(0)).await.unwrap_err();
    std::fs::rename(&aside, file.path()).unwrap();
    let after = file.store.save(vec![timer(1)], at(0)).await.unwrap_err();
    assert_eq!(after.kind(), PortErrorKind::Broken);
}

#[tokio::test]
async fn a_folder_that_is_renamed_breaks_the_store() {
    let outer = folder();
    let inner = outer.path().join("data");
    let mut settings = SqliteSettings::timers(inner.join("timer.db"));
    settings.synchronous = Synchronous::Normal;
    let store = SqliteTimerStore::open(&settings, Timestamp::MIN).unwrap();
    save_some(&store, 0..5).await;
    std::fs::rename(&inner, outer.path().join("old")).unwrap();
    let saved = store.save(vec![timer(7)], at(0)).await.unwrap_err();
    assert_eq!(saved.kind(), PortErrorKind::Broken, "{saved}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_link_that_leads_elsewhere_is_another_file() {
    let folder = folder();
    let link = folder.path().join("link.db");
    for name in ["first", "second"] {
        let settings = SqliteSettings::timers(folder.path().join(name));
        drop(SqliteTimerStore::open(&settings, Timestamp::MIN).unwrap());
    }
    std::os::unix::fs::symlink(folder.path().join("first"), &link).unwrap();
    let settings = SqliteSettings::client(&link);
    let store = SqliteTimerStore::open(&settings, Timestamp::MIN).unwrap();
    save_some(&store, 0..5).await;
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(folder.path().join("second"), &link).unwrap();
    let saved = store.save(vec![timer(7)], at(0)).await.unwrap_err();
    assert_eq!(saved.kind(), PortErrorKind::Broken, "{saved}");
}

#[tokio::test]
async fn an_idle_store_notices_within_a_second() {
    let file = OnFile::new(SchemaSet::TimersOnly);
    let clock = FakeClock::new(Timestamp::MIN);
    let (store, on) = (file.store.clone(), Arc::new(clock.clone()));
    let noticing = tokio::spawn(async move { store.file_moved(on.as_ref()).await });
    clock.advance(Duration::from_mins(1)).await;
    assert!(!noticing.is_finished());
    std::fs::remove_file(file.path()).unwrap();
    clock.advance(Duration::from_secs(1)).await;
    let moved = noticing.await.unwrap();
    assert_eq!(moved.kind(), PortErrorKind::Broken, "{moved}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_that_cannot_be_checked_for_a_moment_is_not_taken_for_moved() {
    let outer = folder();
    let (inner, aside) = (outer.path().join("data"), outer.path().join("aside"));
    let settings = SqliteSettings::timers(inner.join("timer.db"));
    let store = SqliteTimerStore::open(&settings, Timestamp::MIN).unwrap();
    let clock = FakeClock::new(Timestamp::MIN);
    let on: Arc<dyn ClockPort> = Arc::new(clock.clone());
    let watching = tokio::spawn(async move { store.watch(on, Arc::new(|| {})).await });
    clock.advance(Duration::from_mins(1)).await;
    // A link to itself: whether the file exists cannot be determined.
    std::fs::rename(&inner, &aside).unwrap();
    std::os::unix::fs::symlink(&inner, &inner).unwrap();
    clock.advance(Duration::from_secs(3)).await;
    assert!(!watching.is_finished());
    std::fs::remove_file(&inner).unwrap();
    clock.advance(Duration::from_secs(1)).await;
    let moved = watching.await.unwrap();
    assert_eq!(moved.kind(), PortErrorKind::Broken, "{moved}");
}
