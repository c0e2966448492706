//! A real disk under the tables that fills up: a few MiB in memory, mounted for one test alone, where that
//! is allowed. The log of the server is elsewhere: where that cannot be written, the server ends.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::future::Future;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use punctual_adapters_postgres::PostgresTimerStore;
use punctual_domain::TimerData;
use punctual_ports::{
    Backend, PortError, PortErrorKind, SaveOutcome, SaveTimer, TimerPersistencePort,
};
use punctual_test_servers::PostgresServer;

use crate::scratch::{key, now, open, settings, timer};

/// Where a test finds its disk, once it runs where that is mounted.
const DISK: &str = "PUNCTUAL_SMALL_DISK";

/// Runs a test on a disk of its own: once more, in a process that has mounted one.
fn on_small_disk<F: Future<Output = ()>>(
    name: &str,
    mebibytes: u32,
    test: impl FnOnce(PathBuf) -> F,
) {
    if let Some(disk) = std::env::var_os(DISK) {
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(2).enable_all().build().unwrap();
        return runtime.block_on(test(disk.into()));
    }
    let folder = tempfile::tempdir().unwrap();
    let mount = |then: &str| {
        // The server runs under an account of its own.
        let line = format!(
            "chmod 755 \"$1\" && mkdir -p \"$1/disk\" && \
             mount -t tmpfs -o size={mebibytes}m,uid=$(id -u postgres),mode=700 small \"$1/disk\" && {then}"
        );
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
        .env(DISK, folder.path().join("disk"))
        .status();
    assert!(again.unwrap().success(), "on its disk it has failed");
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

    fn remove(&self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}

/// A timer with a few kilobytes of data that cannot be compressed.
fn large(number: usize) -> SaveTimer {
    let mut timer = timer(number);
    let mut data = String::new();
    for part in 0..200 {
        let digits = (number + 1) * 7_919 * (part + 13) * 104_729;
        write!(data, "{digits:x}").unwrap();
    }
    timer.data = Some(TimerData::of(&data).unwrap());
    timer
}

async fn save(store: &PostgresTimerStore, number: usize) -> Result<SaveOutcome, PortError> {
    let mut saved = store.save(vec![large(number)], now()).await?;
    saved.remove(0)
}

#[test]
fn a_disk_that_fills_up_again_and_again_refuses_and_loses_nothing() {
    let name = "small_disk::a_disk_that_fills_up_again_and_again_refuses_and_loses_nothing";
    on_small_disk(name, 32, |disk| async move {
        let Some(server) = PostgresServer::start() else {
            return;
        };
        server.execute(&format!(
            "CREATE TABLESPACE small LOCATION '{}'",
            disk.display()
        ));
        server.execute("CREATE DATABASE timers TEMPLATE template0 TABLESPACE small");
        let url = server.url().replace("/postgres", "/timers");
        let store = open(&settings(&url)).await.unwrap();
        let filler = Filler::on(&disk);
        let mut number = 0;
        for _ in 0..5 {
            filler.fill();
            // What is left in the pages of the tables is used up first.
            let error = loop {
                match save(&store, number).await {
                    Ok(saved) => assert_eq!(saved, SaveOutcome::Created),
                    Err(error) => break error,
                }
                number += 1;
            };
            assert_eq!(error.kind(), PortErrorKind::StorageFull, "{error}");
            assert!(error.is_retryable(), "{error}");
            assert!(Backend::write_health(&store).problem.is_some());
            assert!(store.find(key(number)).await.unwrap().is_none());
            filler.remove();
            for _ in 0..20 {
                assert_eq!(save(&store, number).await.unwrap(), SaveOutcome::Created);
                number += 1;
            }
            assert!(Backend::write_health(&store).problem.is_none());
        }
        for number in 0..number {
            let found = store.find(key(number)).await.unwrap().unwrap();
            assert_eq!(found.timer().data, large(number).data, "{number}");
        }
    });
}
