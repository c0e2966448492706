//! The process that stops the servers and removes their folder, however this program ends.
//!
//! It is a shell that reads process ids from a pipe until the pipe closes. The pipe closes when
//! [`Janitor::dismiss`] is called, and just as well when this program is interrupted, killed or
//! crashes, which a destructor would not survive. One way to stop means that it is tested every day.

use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, Result};

/// `$1` is the folder. SIGINT is what PostgreSQL calls a fast shutdown, and it suits nats-server.
/// The janitor itself must outlive the Ctrl-C that ends its master.
const SCRIPT: &str = r#"
trap '' INT TERM HUP
pids=
while read -r pid; do pids="$pids $pid"; done
for pid in $pids; do kill -s INT "$pid"; done
tries=0
while [ "$tries" -lt 100 ]; do
    alive=
    for pid in $pids; do kill -s 0 "$pid" && alive=1; done
    [ -z "$alive" ] && break
    tries=$((tries + 1))
    sleep 0.1
done
[ -n "$alive" ] && for pid in $pids; do kill -s KILL "$pid"; done
rm -rf -- "$1"
"#;

/// The shell, and the folder that it cleans up.
#[derive(Debug)]
pub(crate) struct Janitor {
    folder: PathBuf,
    shell: Child,
    orders: Option<ChildStdin>,
}

impl Janitor {
    /// Makes a folder and starts the shell.
    pub(crate) fn hire() -> Result<Self> {
        let folder = new_folder()?;
        let mut shell = Command::new("sh")
            .args(["-c", SCRIPT, "janitor"])
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("failed to start a shell")?;
        Ok(Self {
            folder,
            orders: shell.stdin.take(),
            shell,
        })
    }

    /// Where servers put their files.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// From now on the process is stopped with the rest.
    pub(crate) fn watch(&mut self, pid: u32) -> Result<()> {
        let orders = self.orders.as_mut().context("the janitor was dismissed")?;
        writeln!(orders, "{pid}").context("failed to reach the janitor")
    }

    /// Lets it begin; children should be waited for next.
    pub(crate) fn dismiss(&mut self) {
        self.orders = None;
    }

    /// Waits until the work is done. The script is bounded, so this is too.
    pub(crate) fn wait(&mut self) {
        if let Err(error) = self.shell.wait() {
            eprintln!("warning: failed to wait for the janitor: {error}");
        }
    }
}

/// A new folder with a short path that other users may enter: PostgreSQL does not run as root.
fn new_folder() -> Result<PathBuf> {
    let mut number = 0;
    loop {
        let name = format!("punctual-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        match fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("failed to create {}", folder.display()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::process;

    #[test]
    fn when_the_pipe_closes_processes_end_and_the_folder_goes() {
        let mut janitor = Janitor::hire().unwrap();
        fs::write(janitor.folder().join("file"), "").unwrap();
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        janitor.watch(child.id()).unwrap();

        janitor.dismiss();
        let ended = process::wait_at_most(&mut child, Duration::from_secs(5)).unwrap();
        janitor.wait();
        assert!(ended.is_some());
        assert!(!janitor.folder().exists());
    }

    #[test]
    fn two_janitors_of_one_process_have_a_folder_each() {
        let (mut one, mut two) = (Janitor::hire().unwrap(), Janitor::hire().unwrap());
        assert_ne!(one.folder(), two.folder());
        for janitor in [&mut one, &mut two] {
            janitor.dismiss();
            janitor.wait();
        }
    }
}
