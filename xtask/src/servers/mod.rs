//! Private servers for the tests: on loopback, on free ports, in a folder of their own.
//!
//! Nothing is shared with a server that the machine already runs, and nothing is left behind: see
//! [`janitor`].

pub(crate) mod install;
mod janitor;
mod nats;
mod postgres;

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use janitor::Janitor;

use crate::process;

/// How long a server may take until it answers. A loaded machine needs several seconds.
const START_LIMIT: Duration = Duration::from_mins(1);

/// How long the end of a server is waited for; the janitor loses patience before this.
const STOP_LIMIT: Duration = Duration::from_secs(15);

/// What tests talk to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Nats,
    Postgres,
    /// Only found or installed: it stands in front of one server, so each test starts its own.
    PgBouncer,
}

/// The running servers. Dropping it stops them and removes their folder.
#[derive(Debug)]
pub(crate) struct Servers {
    janitor: Janitor,
    running: Vec<Server>,
    missing: Vec<String>,
}

/// One server that answers.
#[derive(Debug)]
struct Server {
    variable: &'static str,
    url: String,
    child: Child,
}

impl Servers {
    /// Starts those of these that are installed, after installing what is not where that is
    /// possible.
    pub(crate) fn start(kinds: &[Kind]) -> Result<Self> {
        let missing = install::install_missing(kinds);
        let mut servers = Self::none()?;
        servers.missing = missing;
        for kind in kinds {
            let janitor = &mut servers.janitor;
            let server = match kind {
                Kind::Nats => nats::find().map(|program| nats::start(&program, janitor)),
                Kind::Postgres => postgres::find().map(|it| postgres::start(&it, janitor)),
                Kind::PgBouncer => None,
            };
            servers.running.extend(server.transpose()?);
        }
        Ok(servers)
    }

    fn none() -> Result<Self> {
        Ok(Self {
            janitor: Janitor::hire()?,
            running: Vec::new(),
            missing: Vec::new(),
        })
    }

    /// The variables through which tests find the servers.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        self.running
            .iter()
            .map(|server| (server.variable, server.url.clone()))
            .collect()
    }

    /// What can not be tested for want of a server, and why.
    pub(crate) fn missing(&self) -> &[String] {
        &self.missing
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.janitor.dismiss();
        for server in &mut self.running {
            // Reaped here, since the janitor takes a child that was not waited for to be alive.
            if !matches!(
                process::wait_at_most(&mut server.child, STOP_LIMIT),
                Ok(Some(_))
            ) {
                eprintln!("warning: failed to stop process {}", server.child.id());
            }
        }
        self.janitor.wait();
    }
}

/// Starts a server's process under the janitor's eyes, its output in `log`.
fn spawn(command: &mut Command, log: &str, janitor: &mut Janitor) -> Result<Child> {
    use std::os::unix::process::CommandExt;

    let log = std::fs::File::create(janitor.folder().join(log))?;
    let child = command
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        // A group of its own: Ctrl-C ends the tests first and the servers after them.
        .process_group(0)
        .spawn()
        .with_context(|| format!("failed to start `{}`", process::command_line(command)))?;
    janitor.watch(child.id())?;
    Ok(child)
}

/// A port that was free a moment ago.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("failed to find a free port")?;
    Ok(listener.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// On the CI machine a missing server is a failure; elsewhere it is said and passed over.
    fn found<T>(server: Option<T>, name: &str) -> Option<T> {
        if server.is_none() {
            assert!(std::env::var_os("CI").is_none(), "{name} is not installed");
            eprintln!("skipped: {name} is not installed");
        }
        server
    }

    /// Stops the servers and sees that neither a process nor a folder is left.
    fn nothing_is_left_after(servers: Servers) {
        let pids: Vec<u32> = servers.running.iter().map(|it| it.child.id()).collect();
        let folder = servers.janitor.folder().to_path_buf();
        drop(servers);
        for pid in pids {
            assert!(!is_alive(pid), "{pid}");
        }
        assert!(!folder.exists());
    }

    fn is_alive(pid: u32) -> bool {
        Path::new("/proc").join(pid.to_string()).exists()
    }

    #[test]
    fn a_private_nats_server_answers_with_jetstream_and_leaves_nothing_behind() {
        let Some(program) = found(nats::find(), "nats-server") else {
            return;
        };
        let mut servers = Servers::none().unwrap();
        let server = nats::start(&program, &mut servers.janitor).unwrap();
        let address = server.url.trim_start_matches("nats://").to_owned();
        servers.running.push(server);

        let info = nats::info(&address).unwrap();
        assert_eq!(info["jetstream"], true, "{info}");
        assert_eq!(info["max_payload"], 8 * 1024 * 1024, "{info}");
        nothing_is_left_after(servers);
    }

    #[test]
    fn only_what_is_asked_for_is_started() {
        if found(nats::find(), "nats-server").is_none() {
            return;
        }
        let servers = Servers::start(&[Kind::Nats]).unwrap();
        let variables: Vec<_> = servers.environment().into_iter().map(|it| it.0).collect();
        assert_eq!(variables, ["PUNCTUAL_TEST_NATS_URL"]);
        nothing_is_left_after(servers);
    }

    #[test]
    fn a_pooler_is_found_and_not_started() {
        if found(process::find_program("pgbouncer"), "PgBouncer").is_none() {
            return;
        }
        let servers = Servers::start(&[Kind::PgBouncer]).unwrap();
        assert_eq!(servers.missing(), [""; 0]);
        assert_eq!(servers.environment(), []);
    }

    #[test]
    fn a_private_postgresql_answers_a_query_and_leaves_nothing_behind() {
        let Some(programs) = found(postgres::find(), "PostgreSQL") else {
            return;
        };
        let Some(psql) = found(process::find_program("psql"), "psql") else {
            return;
        };
        let mut servers = Servers::none().unwrap();
        let server = postgres::start(&programs, &mut servers.janitor).unwrap();
        let url = server.url.clone();
        servers.running.push(server);

        let answer = Command::new(psql)
            .args([&url, "-Atc", "SELECT 1"])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&answer.stdout), "1\n", "{answer:?}");
        nothing_is_left_after(servers);
    }
}
