//! A private PgBouncer in transaction mode: the pooler that keeps no session between transactions.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::ports::on_a_free_port;
use crate::postgres_programs as programs;
use crate::process::Process;
use crate::{shared, url};

const NAME: &str = "pgbouncer";

/// A pooler of one test's own, on loopback, in front of a PostgreSQL.
///
/// Each transaction of a client may be on another connection to the server, so what is of a session
/// is lost: `SET`, prepared statements, `LISTEN`, advisory locks of the session.
///
/// It is killed, and its folder removed, when it is dropped. It stays in the process group of the
/// test, so that a test runner that ends the test ends it too.
#[derive(Debug)]
pub struct PgBouncer {
    program: PathBuf,
    folder: TempDir,
    server_url: String,
    port: u16,
    running: Option<Process>,
}

impl PgBouncer {
    /// In transaction mode, in front of the server at this URL, with that server's databases under
    /// the same names. The URL's user is let in without a password, and so the server has to let it
    /// in without one. Returns when it listens. `None`, with a line that says so, if PgBouncer is not
    /// installed.
    ///
    /// # Panics
    /// If it does not start, or if it is not installed on the CI machine.
    pub fn start(server_url: &str) -> Option<Self> {
        Self::start_with(server_url, &[])
    }

    /// The same with more settings, such as `("default_pool_size", "1")`. They take the place of what
    /// is there already, and must leave the log on standard error.
    ///
    /// # Panics
    /// If it does not start, or if it is not installed on the CI machine.
    pub fn start_with(server_url: &str, settings: &[(&str, &str)]) -> Option<Self> {
        let otherwise = "pgbouncer is not installed: it is in Debian's package of that name";
        let program = shared::installed(NAME, otherwise)?;
        // It does not run as root, and has to enter the folder.
        let folder = tempfile::Builder::new()
            .permissions(Permissions::from_mode(0o755))
            .tempdir()
            .expect("a server needs a folder");
        let mut pooler = Self {
            program,
            folder,
            server_url: server_url.to_owned(),
            port: 0,
            running: None,
        };
        let (port, process) = on_a_free_port(NAME, |port| {
            pooler.write_configuration(port, settings);
            pooler.launch()
        });
        pooler.port = port;
        pooler.running = Some(process);
        Some(pooler)
    }

    /// The server's URL, through this pooler.
    pub fn url(&self) -> String {
        url::at_port(&self.server_url, self.port)
    }

    /// The port on loopback. It stays the same for as long as this value lives.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// SIGKILL: all connections, to clients and to the server, are closed. Returns when it has ended.
    /// Does nothing if it is not running.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.running.take() {
            process.end(Signal::KILL);
        }
    }

    /// Starts it again on the same port; kills it first if it is running. Returns when it listens.
    ///
    /// # Panics
    /// If it does not start.
    pub fn restart(&mut self) {
        self.kill();
        match self.launch() {
            Ok(process) => self.running = Some(process),
            Err(said) => panic!("failed to restart {NAME}:\n{said}"),
        }
    }

    fn write_configuration(&self, port: u16, settings: &[(&str, &str)]) {
        let (host, server_port) = url::endpoint(&self.server_url);
        let users = self.folder.path().join("users.txt");
        let mut text = format!(
            "[databases]\n* = host={host} port={server_port}\n[pgbouncer]\n\
             listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = trust\nauth_file = {}\npool_mode = transaction\nmax_client_conn = 200\n",
            users.display()
        );
        for (name, value) in settings {
            text.extend([name, " = ", value, "\n"]);
        }
        fs::write(self.configuration(), text).expect("a server needs its configuration");
        let user = url::user(&self.server_url).expect("the server's URL names a user");
        fs::write(users, format!("\"{user}\" \"\"\n")).expect("a server needs its users");
    }

    fn configuration(&self) -> PathBuf {
        self.folder.path().join("pgbouncer.ini")
    }

    fn launch(&self) -> Result<Process, String> {
        let mut command = programs::unprivileged(&self.program);
        command.arg(self.configuration()).current_dir("/");
        Process::launch(&mut command, NAME, "process up")
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        self.kill();
    }
}
