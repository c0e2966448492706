//! A private PostgreSQL: fast and forgetful, since its data dies with the test run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::janitor::Janitor;
use super::{START_LIMIT, Server, free_port, install, spawn};
use crate::process;

/// Whom the server runs as when we are root, which it refuses to run as.
const ACCOUNT: &str = "postgres";

/// The superuser inside the database.
const USER: &str = "punctual";

const LOG: &str = "postgres.log";

/// A test run has nothing to lose in a crash, and each of these waits for a disk. `synchronous_commit` stays
/// on, as a store insists: without `fsync` it costs nothing.
const SETTINGS: [&str; 5] = [
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "fsync=off",
    "full_page_writes=off",
    // Room for several pools in parallel tests.
    "max_connections=200",
];

/// The folder that holds `initdb` and `postgres`; Debian keeps them out of the `PATH`.
pub(crate) fn find() -> Option<PathBuf> {
    let complete =
        |folder: &PathBuf| folder.join("initdb").is_file() && folder.join("postgres").is_file();
    let asked = Command::new("pg_config").arg("--bindir").output().ok();
    let answered = asked
        .map(|output| PathBuf::from(String::from_utf8_lossy(&output.stdout).trim().to_owned()));
    answered.filter(complete).or_else(|| {
        let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
        versions
            .filter_map(|version| Some(version.ok()?.path().join("bin")))
            .filter(complete)
            .max()
    })
}

/// Makes a cluster, starts the server and waits until it is ready.
pub(crate) fn start(programs: &Path, janitor: &mut Janitor) -> Result<Server> {
    let data = janitor.folder().join("pg");
    fs::create_dir(&data)?;
    if install::is_root() {
        let mut chown = Command::new("chown");
        ensure!(
            process::succeeds(chown.arg(ACCOUNT).arg(&data))?,
            "failed to give {} to the account `{ACCOUNT}`",
            data.display()
        );
    }
    create_cluster(programs, &data, janitor)?;

    let port = free_port()?;
    let mut command = unprivileged(&programs.join("postgres"));
    command
        .arg("-D")
        .arg(&data)
        .args(["-p", &port.to_string()])
        .current_dir(janitor.folder());
    for setting in SETTINGS {
        command.args(["-c", setting]);
    }
    let mut child = spawn(&mut command, LOG, janitor)?;
    let ready = process::wait_until(START_LIMIT, || {
        if let Some(status) = child.try_wait()? {
            bail!("postgres ended with {status}");
        }
        Ok(is_ready(&data))
    });
    match ready {
        Ok(true) => Ok(Server {
            variable: "PUNCTUAL_TEST_POSTGRES_URL",
            url: format!("postgres://{USER}@127.0.0.1:{port}/postgres"),
            child,
        }),
        Ok(false) => bail!("PostgreSQL was not ready in time:\n{}", said(janitor)),
        Err(error) => Err(error.context(format!("failed to start PostgreSQL:\n{}", said(janitor)))),
    }
}

fn create_cluster(programs: &Path, data: &Path, janitor: &Janitor) -> Result<()> {
    let output = unprivileged(&programs.join("initdb"))
        .arg("-D")
        .arg(data)
        // Trust on loopback, no fsync, and an encoding that does not depend on the machine.
        .args(["-A", "trust", "-N", "-U", USER, "-E", "UTF8", "--locale=C"])
        .current_dir(janitor.folder())
        .output()
        .context("failed to start initdb")?;
    ensure!(
        output.status.success(),
        "failed to create a PostgreSQL cluster: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

/// As root, under the server's account. `setpriv` becomes the program, so that our child is the
/// server itself; `runuser` would stay in between and swallow signals.
fn unprivileged(program: &Path) -> Command {
    if !install::is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command
        .args([
            "--reuid",
            ACCOUNT,
            "--regid",
            ACCOUNT,
            "--init-groups",
            "--",
        ])
        .arg(program);
    command
}

/// The server writes its state to line 8 of this file; `pg_ctl` waits for the same word.
fn is_ready(data: &Path) -> bool {
    fs::read_to_string(data.join("postmaster.pid")).is_ok_and(|text| {
        text.lines()
            .nth(7)
            .is_some_and(|line| line.trim() == "ready")
    })
}

fn said(janitor: &Janitor) -> String {
    process::tail(&janitor.folder().join(LOG), 10)
}
