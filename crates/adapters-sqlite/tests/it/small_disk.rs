//! A real disk that fills up: a few MiB in memory, mounted for one test alone, where that is allowed.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::future::Future;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use punctual_adapters_sqlite::{SqliteSettings, SqliteTimerStore, Synchronous};
use punctual_domain::{TimerData, TimerKey, Timestamp};
use punctual_ports::{
    Claim, FiredTimer, PortError, PortErrorKind, SaveTimer, TimerPersistencePort, TimerQueuePort,
};

use crate::store::{at, folder, timer, with_end};

/// Where a test finds its disk, once it runs where that is mounted.
const DISK: &str = "PUNCTUAL_SMALL_DISK";
const KIB: u64 = 1024;

/// Runs a test on a disk of its own: once more, in a process that has mounted one.
fn on_small_disk<F: Future<Output = ()>>(
    name: &str,
    mebibytes: u32,
    test: impl FnOnce(PathBuf) -> F,
) {
    if let Some(disk) = std::env::var_os(DISK) {
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(2).build().unwrap();
        return runtime.block_on(test(disk.into()));
    }
    let folder = folder();
    let mount = |then: &str| {
        let line = format!("mount -t tmpfs -o size={mebibytes}m small \"$1\" && {then}");
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &line, "sh"]);
        command.arg(folder.path());
        command
    };
    if !mount("true")
        .output()
        .is_ok_and(|tried| tried.status.success())
    {
        println!("skipped: {name}: a disk can be mounted by root alone");
        return;
    }
    let again = mount("shift && exec \"$@\"")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(DISK, folder.path())
        .status();
    assert!(again.unwrap().success(), "on its disk it has failed");
}

fn open(disk: &Path, max_file_bytes: Option<u64>) -> SqliteTimerStore {
    let mut settings = SqliteSettings::timers(disk.join("timer.db"));
    settings.max_file_bytes = max_file_bytes;
    settings.synchronous = Synchronous::Normal;
    SqliteTimerStore::open(&settings, Timestamp::MIN).unwrap()
}

/// A file that takes room from others.
struct Filler(PathBuf);

impl Filler {
    fn on(disk: &Path) -> Self {
        Self(disk.join("filler"))
    }

    /// Takes all that is left.
    fn fill(&self) {
        let mut options = OpenOptions::new();
        let mut file: File = options.create(true).append(true).open(&self.0).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
    }

    /// Gives some of it back.
    fn give_back(&self, bytes: u64) {
        let file = OpenOptions::new().write(true).open(&self.0).unwrap();
        let length = file.metadata().unwrap().len();
        file.set_len(length / 4096 * 4096 - bytes).unwrap();
    }

    fn remove(&self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}

async fn save(store: &SqliteTimerStore, timer: SaveTimer) -> Result<(), PortError> {
    let mut saved = store.save(vec![timer], at(0)).await?;
    saved.remove(0).map(drop)
}

#[test]
fn without_room_for_the_index_of_the_log_it_is_full_and_not_broken() {
    let name = "small_disk::without_room_for_the_index_of_the_log_it_is_full_and_not_broken";
    on_small_disk(name, 48, |disk| async move {
        let store = open(&disk, None);
        let log = with_end(&disk.join("timer.db"), "-wal");
        // The first part of the index has room for about this number of pages of the log.
        let pages = || std::fs::metadata(&log).unwrap().len() / (4096 + 24);
        let mut number = 0;
        while pages() < 4050 {
            save(&store, timer(number)).await.unwrap();
            number += 1;
        }
        let filler = Filler::on(&disk);
        let mut has_seen_it = false;
        'fuller: for _ in 0..20 {
            for room in (1..=12).map(|pages| pages * 4 * KIB) {
                filler.fill();
                filler.give_back(room);
                match save(&store, timer(number)).await {
                    Ok(()) => {
                        number += 1;
                        continue 'fuller;
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), PortErrorKind::StorageFull, "{error}");
                        has_seen_it |= error.to_string().contains("index of the database's log");
                    }
                }
            }
        }
        assert!(has_seen_it, "the log has {} pages", pages());
        filler.remove();
        save(&store, timer(number)).await.unwrap();
        store.close().await;
        drop(store);
        let store = open(&disk, None);
        for number in 0..=number {
            let found = store.find(timer(number).key).await.unwrap();
            assert!(found.is_some(), "{number} was acknowledged");
        }
    });
}

#[test]
fn the_log_does_not_fill_a_disk_on_which_there_is_room_for_what_is_stored() {
    let name = "small_disk::the_log_does_not_fill_a_disk_on_which_there_is_room_for_what_is_stored";
    on_small_disk(name, 16, |disk| async move {
        let store = open(&disk, None);
        for round in 0..4_000 {
            let saved = save(&store, timer(round % 100)).await;
            saved.unwrap_or_else(|error| panic!("{error}, in round {round}"));
        }
    });
}

fn large(number: usize) -> SaveTimer {
    let mut timer = timer(number);
    timer.data = Some(TimerData::of(&"x".repeat(2_000)).unwrap());
    timer
}

/// What two who save and one who fires have seen.
#[derive(Default)]
struct Load {
    is_over: AtomicBool,
    acknowledged: AtomicUsize,
    refused: AtomicUsize,
    fired: AtomicUsize,
}

impl Load {
    fn refused(&self, error: &PortError) {
        if !error.is_retryable() {
            self.is_over.store(true, Ordering::SeqCst);
            panic!("it broke: {error}");
        }
        if error.to_string().contains("there is no room left") {
            self.refused.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Waits until a counter has grown by a number.
    async fn grows(&self, counter: &AtomicUsize, by: usize) {
        let wanted = counter.load(Ordering::SeqCst) + by;
        while counter.load(Ordering::SeqCst) < wanted {
            assert!(!self.is_over.load(Ordering::SeqCst));
            tokio::task::yield_now().await;
        }
    }
}

/// Saves one after the other, each until it is acknowledged, and returns how many were.
async fn keep_saving(store: SqliteTimerStore, load: Arc<Load>, first: usize) -> usize {
    let mut number = first;
    while !load.is_over.load(Ordering::SeqCst) {
        match save(&store, large(number)).await {
            Ok(()) => {
                load.acknowledged.fetch_add(1, Ordering::SeqCst);
                number += 2;
            }
            Err(error) => load.refused(&error),
        }
    }
    number
}

/// Fires what is due and removes it, so that there is room for more. Returns what has fired.
async fn keep_firing(store: SqliteTimerStore, load: Arc<Load>) -> HashSet<TimerKey> {
    let due = at(1_000_000_000_000);
    let mut fired = HashSet::new();
    while !load.is_over.load(Ordering::SeqCst) {
        match fire(&store, due).await {
            Ok(keys) => {
                load.fired.fetch_add(keys.len(), Ordering::SeqCst);
                fired.extend(keys);
            }
            Err(error) => load.refused(&error),
        }
        tokio::task::yield_now().await;
    }
    fired
}

async fn fire(store: &SqliteTimerStore, due: Timestamp) -> Result<Vec<TimerKey>, PortError> {
    // What has fired before.
    store.purge(due.next(), 1_000).await?;
    let batch = store.claim_due(due, 200, Duration::from_hours(1)).await?;
    let firings = batch.claims.iter().map(|claim| claim.timer.firing_id());
    let marks: Vec<FiredTimer> = firings
        .map(|firing_id| FiredTimer {
            firing_id,
            reached_at: due,
        })
        .collect();
    if let Err(error) = store.mark_fired(marks.clone()).await {
        let references = batch.claims.iter().map(Claim::reference).collect();
        store.release(references).await?;
        return Err(error);
    }
    Ok(marks.into_iter().map(|mark| mark.firing_id.key).collect())
}

#[test]
fn a_disk_that_fills_up_twenty_times_breaks_nothing_and_loses_nothing() {
    let name = "small_disk::a_disk_that_fills_up_twenty_times_breaks_nothing_and_loses_nothing";
    on_small_disk(name, 8, |disk| async move {
        // So that the log is checkpointed before it fills the disk.
        let limit = Some(4 * 1024 * KIB);
        let store = open(&disk, limit);
        let load = Arc::new(Load::default());
        let saving = [0, 1].map(|first| {
            let (store, load) = (store.clone(), Arc::clone(&load));
            tokio::spawn(keep_saving(store, load, first))
        });
        let firing = tokio::spawn(keep_firing(store.clone(), Arc::clone(&load)));
        let filler = Filler::on(&disk);
        for _ in 0..20 {
            filler.fill();
            load.grows(&load.refused, 20).await;
            filler.remove();
            load.grows(&load.acknowledged, 50).await;
            load.grows(&load.fired, 10).await;
        }
        load.is_over.store(true, Ordering::SeqCst);
        let fired = firing.await.unwrap();
        let mut ends = Vec::new();
        for saving in saving {
            ends.push(saving.await.unwrap());
        }
        store.close().await;
        drop(store);
        let store = open(&disk, limit);
        for (first, end) in ends.into_iter().enumerate() {
            for number in (first..end).step_by(2) {
                let key = timer(number).key;
                let is_there = store.find(key.clone()).await.unwrap().is_some();
                assert!(
                    is_there || fired.contains(&key),
                    "{number} was acknowledged"
                );
            }
        }
    });
}
