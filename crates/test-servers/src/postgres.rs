//! A private PostgreSQL that a test may treat badly.

use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use crate::children;
use crate::ports::on_a_free_port;
use crate::postgres_programs::{self as programs, psql};
use crate::process::Process;

/// The superuser of every server that is started here.
const USER: &str = "punctual";

const NAME: &str = "PostgreSQL";

/// Durable, as a crash is what these servers are for; and in a language that its log is read in.
const SETTINGS: [&str; 7] = [
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "fsync=on",
    "synchronous_commit=on",
    "full_page_writes=on",
    "shared_buffers=16MB",
    "lc_messages=C",
];

/// Settings beside those that every server has, and what takes the place of them.
type Settings = Vec<(String, String)>;

/// A server of one test's own: on loopback, with its files in a temporary folder.
///
/// It is killed, and its folder removed, when it is dropped. It stays in the process group of the
/// test, so that a test runner that ends the test ends it too.
///
/// A start takes about a second, most of it `initdb`; a test that treats its server well takes
/// a [`SharedDatabase`](crate::SharedDatabase) instead.
#[derive(Debug)]
pub struct PostgresServer {
    programs: PathBuf,
    folder: TempDir,
    settings: Settings,
    port: u16,
    running: Option<Process>,
}

/// Certificates for [`PostgresServer::start_with_tls`], each as PEM.
#[derive(Debug, Clone, Copy)]
pub struct ServerTls<'a> {
    /// What the server shows to clients.
    pub certificate: &'a str,
    /// The key of it.
    pub key: &'a str,
    /// Whose certificates it accepts from clients, if it asks for them (`clientcert` or `cert` in
    /// [`PostgresServer::set_hba`]).
    pub client_ca: Option<&'a str>,
}

impl PostgresServer {
    /// A durable server: what it has committed survives [`PostgresServer::kill`]. Everybody on
    /// loopback is let in as anybody. Returns when it is ready. `None`, with a line that says so, if
    /// PostgreSQL is not installed.
    ///
    /// # Panics
    /// If it does not start, or if it is not installed on the CI machine.
    pub fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// The same with more settings, such as `("max_connections", "5")`. They take the place of what
    /// is there already, and must leave the log on standard error.
    ///
    /// # Panics
    /// If it does not start, or if it is not installed on the CI machine.
    pub fn start_with(settings: &[(&str, &str)]) -> Option<Self> {
        let server = Self::create(settings)?;
        Some(server.started())
    }

    /// The same with TLS, for clients that ask for it. Those that do not are refused after
    /// [`PostgresServer::set_hba`] with nothing but `hostssl` lines.
    ///
    /// # Panics
    /// If it does not start, or if it is not installed on the CI machine.
    pub fn start_with_tls(tls: &ServerTls<'_>, settings: &[(&str, &str)]) -> Option<Self> {
        let mut server = Self::create(&[("ssl", "on")])?;
        server.put_file("server.crt", tls.certificate);
        server.put_file("server.key", tls.key);
        if let Some(ca) = tls.client_ca {
            server.put_file("client_ca.crt", ca);
            server.set("ssl_ca_file", "client_ca.crt");
        }
        for (name, value) in settings {
            server.set(name, value);
        }
        Some(server.started())
    }

    /// Where clients find it, as the superuser and without a password.
    pub fn url(&self) -> String {
        self.url_as(USER)
    }

    /// The same as another user; `name:password` if it needs one.
    pub fn url_as(&self, user: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/postgres", self.port)
    }

    /// The port on loopback. It stays the same for as long as this value lives.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where it keeps its files.
    pub fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Whether the server is there. One that is paused is.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Its processes: the first has started all others, of which each connection has one.
    ///
    /// # Panics
    /// If it is not running.
    pub fn pids(&self) -> Vec<u32> {
        let first = self.process().pid();
        let all = [vec![first], children::of(first)].concat();
        let number = |pid: Pid| pid.as_raw_pid().unsigned_abs();
        all.into_iter().map(number).collect()
    }

    /// Runs statements as the superuser, and returns the rows as [`psql`] does.
    ///
    /// # Panics
    /// If one fails, or if the superuser is not let in.
    pub fn execute(&self, statements: &str) -> String {
        match psql(&self.url(), statements) {
            Ok(rows) => rows,
            Err(said) => panic!("failed to run `{statements}`: {said}"),
        }
    }

    /// SIGQUIT, what `pg_ctl` calls an immediate shutdown: nothing is finished, nothing more is
    /// written, and the next start recovers as after a crash. Ends a paused one too. Returns when all
    /// its processes have ended. Does nothing if it is not running.
    pub fn kill(&mut self) {
        let Some(mut process) = self.running.take() else {
            return;
        };
        // All of them: of a paused one, each must find the signal before it goes on with its work.
        // The first comes first, or it would replace the others as after a crash of theirs.
        process.signal(Signal::QUIT);
        let others = children::of(process.pid());
        children::signal(&others, Signal::QUIT);
        process.signal(Signal::CONT);
        children::signal(&others, Signal::CONT);
        process.wait_for_end("SIGQUIT");
    }

    /// SIGINT, what `pg_ctl` calls a fast shutdown: connections are ended, transactions rolled back.
    /// Returns when all its processes have ended. Does nothing if it is not running.
    ///
    /// # Panics
    /// If it goes on all the same, as a paused one does.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.running.take() {
            process.end(Signal::INT);
        }
    }

    /// Starts it again on the same port and the same files; kills it first if it is running.
    /// Returns when it is ready.
    ///
    /// # Panics
    /// If it does not start.
    pub fn restart(&mut self) {
        self.kill();
        match self.launch(self.port) {
            Ok(process) => self.running = Some(process),
            Err(said) => panic!("failed to restart {NAME}:\n{said}"),
        }
    }

    /// SIGSTOP to all its processes: connections stay open, new ones are made, and nobody answers.
    /// Returns when all of them stand still.
    ///
    /// # Panics
    /// If it is not running.
    pub fn pause(&self) {
        let process = self.process();
        // The first comes first: it could start another one.
        process.pause();
        children::pause(&children::of(process.pid()));
    }

    /// SIGCONT: goes on after [`PostgresServer::pause`].
    ///
    /// # Panics
    /// If it is not running.
    pub fn resume(&self) {
        let process = self.process();
        children::signal(&children::of(process.pid()), Signal::CONT);
        process.signal(Signal::CONT);
    }

    /// Another setting, or another value of one, from the next start on.
    pub fn set(&mut self, name: &str, value: &str) {
        self.settings.push((name.to_owned(), value.to_owned()));
    }

    /// Writes a file into [`PostgresServer::data_dir`] that only the server may read, as it demands of
    /// keys. Returns where it is.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn put_file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.data_dir().join(name);
        write_private(&path, text)
            .unwrap_or_else(|error| panic!("failed to write {}: {error}", path.display()));
        programs::hand_over(&path);
        path
    }

    /// Replaces who is let in and how: the lines of `pg_hba.conf`, such as
    /// `hostssl all all 127.0.0.1/32 scram-sha-256`. They count for all connections that are made
    /// after this returns; those that are there stay.
    ///
    /// # Panics
    /// If the server does not understand them.
    pub fn set_hba(&mut self, lines: &str) {
        self.put_file("pg_hba.conf", &format!("{lines}\n"));
        let Some(process) = &mut self.running else {
            return;
        };
        // It says when it begins to read and not when it is done: what it says of the first time is
        // complete when the second one begins.
        for _ in 0..2 {
            process.signal(Signal::HUP);
            let said = process.log().wait_for("received SIGHUP");
            assert!(said.is_ok(), "{NAME} does not read its configuration");
        }
        let tail = process.log().tail();
        let since = tail.rfind("received SIGHUP").map_or(0, |second| {
            tail[..second].rfind("received SIGHUP").unwrap_or(0)
        });
        assert!(
            !tail[since..].contains("pg_hba.conf was not reloaded"),
            "{NAME} does not understand `{lines}`:\n{}",
            &tail[since..]
        );
    }

    /// The files of a server that is not started yet.
    fn create(settings: &[(&str, &str)]) -> Option<Self> {
        let programs = programs::find()?;
        // It does not run as root, and has to enter the folder.
        let folder = tempfile::Builder::new()
            .prefix("punctual-pg-")
            .permissions(Permissions::from_mode(0o755))
            .tempdir()
            .expect("a server needs a folder");
        let mut server = Self {
            programs,
            folder,
            settings: Settings::new(),
            port: 0,
            running: None,
        };
        for (name, value) in settings {
            server.set(name, value);
        }
        fs::create_dir(server.data_dir()).expect("a server needs a folder");
        programs::hand_over(&server.data_dir());
        server.create_cluster();
        Some(server)
    }

    fn create_cluster(&self) {
        let output = programs::unprivileged(&self.programs.join("initdb"))
            .arg("-D")
            .arg(self.data_dir())
            // Trust on loopback, no fsync of what is only made here, and an encoding that does not
            // depend on the machine.
            .args(["-A", "trust", "-N", "-U", USER, "-E", "UTF8", "--locale=C"])
            .current_dir(self.folder.path())
            .output()
            .expect("initdb can be started");
        assert!(
            output.status.success(),
            "failed to create a cluster of {NAME}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }

    fn started(mut self) -> Self {
        let (port, process) = on_a_free_port(NAME, |port| self.launch(port));
        self.port = port;
        self.running = Some(process);
        self
    }

    fn launch(&self, port: u16) -> Result<Process, String> {
        let mut command = programs::unprivileged(&self.programs.join("postgres"));
        command
            .arg("-D")
            .arg(self.data_dir())
            .args(["-p", &port.to_string()])
            .current_dir(self.folder.path());
        for setting in SETTINGS {
            command.args(["-c", setting]);
        }
        for (name, value) in &self.settings {
            command.args(["-c", &format!("{name}={value}")]);
        }
        Process::launch(&mut command, NAME, "ready to accept connections")
    }

    fn process(&self) -> &Process {
        self.running.as_ref().expect("the server is running")
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A new file in the place of an old one: nobody else may read it at any moment.
fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text.as_bytes())
}
