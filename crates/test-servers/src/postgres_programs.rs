//! PostgreSQL's programs: where they are, under which account they run, and one question to a server.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::shared;

/// Whom the servers run as when we are root, which they refuse to run as.
const ACCOUNT: &str = "postgres";

/// The folder that holds `initdb`, `postgres` and `psql`; Debian keeps it out of the `PATH`.
/// `None`, with a line that says so, if PostgreSQL is not installed.
///
/// # Panics
/// If it is not installed on the CI machine.
pub(crate) fn find() -> Option<PathBuf> {
    shared::found(folder(), "PostgreSQL is not installed")
}

fn folder() -> Option<PathBuf> {
    let complete = |folder: &PathBuf| {
        let programs = ["initdb", "postgres", "psql"];
        programs.iter().all(|name| folder.join(name).is_file())
    };
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

/// Runs statements with `psql`, one after the other until one fails, and returns the rows: one a
/// line, columns between `|`. `Err` is what `psql` wrote about the failure, or about the server
/// that it could not reach.
///
/// For what a test has to arrange beside its driver, such as roles, and for tests without one.
///
/// # Panics
/// If `psql` is not installed.
pub fn psql(url: &str, statements: &str) -> Result<String, String> {
    // Beside the server if there is one: what Debian has in the `PATH` starts a Perl first.
    let program = folder().map_or_else(|| PathBuf::from("psql"), |it| it.join("psql"));
    let mut child = Command::new(program)
        .args(["-X", "-q", "-w", "-At", "-v", "ON_ERROR_STOP=1", "-d", url])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("psql is installed where the server is");
    let mut input = child.stdin.take().unwrap();
    // It does not read what comes after a failure, nor anything if it does not reach the server.
    let _ = input.write_all(statements.as_bytes());
    drop(input);
    let output = child.wait_with_output().expect("psql can be waited for");
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned());
    }
    Err(String::from_utf8_lossy(&output.stderr)
        .trim_end()
        .to_owned())
}

/// A program that refuses to run as root: as root, under the servers' account. `setpriv` becomes the
/// program, so that our child is the server itself; `runuser` would stay in between and swallow
/// signals.
pub(crate) fn unprivileged(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    let account = [
        "--reuid",
        ACCOUNT,
        "--regid",
        ACCOUNT,
        "--init-groups",
        "--",
    ];
    command.args(account).arg(program);
    command
}

/// Gives a file or a folder to whom the servers run as.
pub(crate) fn hand_over(path: &Path) {
    if !is_root() {
        return;
    }
    let owner = format!("{ACCOUNT}:{ACCOUNT}");
    let done = Command::new("chown").arg(&owner).arg(path).status();
    assert!(
        done.is_ok_and(|status| status.success()),
        "failed to give {} to {owner}",
        path.display()
    );
}

/// Whether this process runs as root, asked without a library: it owns its own `/proc` entry.
fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|entry| entry.uid() == 0)
}
