//! Starting other programs: with a clean environment, a time limit and bounded output.

use std::env;
use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Interval between two polls of a running child.
const POLL: Duration = Duration::from_millis(10);

/// Installed servers live here, and an ordinary user's `PATH` often leaves it out.
const ADMIN_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Where a child that ran under a limit ended up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Succeeded,
    Failed,
    TimedOut,
}

/// A cargo to be started in `root`.
///
/// `cargo xtask` sets variables about the package `xtask`. Handed on, they make build scripts that
/// watch them run again, and so every `cargo xtask` would undo the work of the last plain `cargo`.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name);
        }
    }
    command
}

/// The command as one would type it.
pub(crate) fn command_line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let words = program
        .file_name()
        .into_iter()
        .chain(command.get_args())
        .map(OsStr::to_string_lossy);
    words.collect::<Vec<_>>().join(" ")
}

/// Runs a command that speaks to the user itself.
pub(crate) fn succeeds(command: &mut Command) -> Result<bool> {
    let status = command
        .status()
        .with_context(|| format!("failed to start `{}`", command_line(command)))?;
    Ok(status.success())
}

/// Runs a command with its output in files, and ends it when it takes longer than `limit`.
pub(crate) fn run_limited(
    command: &mut Command,
    stdout: &Path,
    stderr: &Path,
    limit: Duration,
) -> Result<Ending> {
    let open = |path: &Path| {
        File::create(path).with_context(|| format!("failed to write {}", path.display()))
    };
    let out = open(stdout)?;
    let err = if stdout == stderr {
        out.try_clone()?
    } else {
        open(stderr)?
    };
    let mut child = command
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .spawn()
        .with_context(|| format!("failed to start `{}`", command_line(command)))?;
    if let Some(status) = wait_at_most(&mut child, limit)? {
        return Ok(if status.success() {
            Ending::Succeeded
        } else {
            Ending::Failed
        });
    }
    child.kill().context("failed to end a child")?;
    child.wait()?;
    Ok(Ending::TimedOut)
}

/// Waits for a child to end; `None` when it is still running after `limit`.
pub(crate) fn wait_at_most(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let give_up = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().context("failed to wait for a child")? {
            return Ok(Some(status));
        }
        if Instant::now() >= give_up {
            return Ok(None);
        }
        std::thread::sleep(POLL);
    }
}

/// Asks `ready` again and again until it says yes; `false` when `limit` has passed.
pub(crate) fn wait_until(limit: Duration, mut ready: impl FnMut() -> Result<bool>) -> Result<bool> {
    let give_up = Instant::now() + limit;
    while !ready()? {
        if Instant::now() >= give_up {
            return Ok(false);
        }
        std::thread::sleep(POLL);
    }
    Ok(true)
}

/// The last lines of a log, indented: enough to see what went wrong.
pub(crate) fn tail(log: &Path, lines: usize) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    let last = &all[all.len().saturating_sub(lines)..];
    last.iter().flat_map(|line| ["    ", line, "\n"]).collect()
}

/// Finds a program as a shell would, and then where servers are installed.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(ADMIN_FOLDERS.iter().map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn success_failure_and_a_hang_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let run = |script| {
            run_limited(&mut shell(script), &log, &log, Duration::from_millis(200)).unwrap()
        };

        assert_eq!(run("exit 0"), Ending::Succeeded);
        assert_eq!(run("exit 3"), Ending::Failed);
        assert_eq!(run("exec sleep 30"), Ending::TimedOut);
    }

    #[test]
    fn the_tail_of_a_log_is_its_last_lines() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let script = "for i in 1 2 3 4; do echo $i; done";
        run_limited(&mut shell(script), &log, &log, Duration::from_secs(5)).unwrap();

        assert_eq!(tail(&log, 2), "    3\n    4\n");
        assert_eq!(tail(&folder.path().join("absent"), 2), "");
    }

    #[test]
    fn a_command_is_shown_as_one_would_type_it() {
        let mut command = Command::new("/usr/bin/cargo");
        command.args(["test", "-p", "x"]);
        assert_eq!(command_line(&command), "cargo test -p x");
    }

    #[test]
    fn programs_are_found_by_name() {
        assert!(find_program("sh").is_some());
        assert!(find_program("no-such-program-anywhere").is_none());
    }
}
