//! A private nats-server with JetStream that a test may treat badly.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::ports::on_a_free_port;
use crate::process::Process;
use crate::{shared, store};

/// How long the greeting of a server that has said it is ready may take.
const GREETING_LIMIT: Duration = Duration::from_secs(30);

/// A server of one test's own: on loopback, with its store in a temporary folder.
///
/// It is killed, and its folder removed, when it is dropped. It stays in the process group of the
/// test, so that a test runner that ends the test ends it too.
#[derive(Debug)]
pub struct NatsServer {
    program: PathBuf,
    folder: TempDir,
    port: u16,
    running: Option<Process>,
}

impl NatsServer {
    /// A server with JetStream on file storage that takes messages up to 8 MiB; returns when it
    /// greets. `None`, with a line that says so, if nats-server is not installed.
    ///
    /// # Panics
    /// If it does not start, or if it is not installed on the CI machine.
    pub fn start() -> Option<Self> {
        Self::start_with("")
    }

    /// The same with more lines for its configuration, such as users or certificates. What they say
    /// takes the place of what is there already. They must leave the log on standard error.
    ///
    /// # Panics
    /// If it does not start, or if it is not installed on the CI machine.
    pub fn start_with(extra_config: &str) -> Option<Self> {
        let program = shared::installed("nats-server", "nats-server is not installed")?;
        let mut server = Self {
            program,
            folder: tempfile::tempdir().expect("a server needs a folder"),
            port: 0,
            running: None,
        };
        let (port, process) = on_a_free_port("nats-server", |port| {
            server.port = port;
            server.write_configuration(extra_config);
            server.launch()
        });
        server.port = port;
        server.running = Some(process);
        Some(server)
    }

    /// Where clients find it, without user and password.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// The port on loopback. It stays the same for as long as this value lives.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where JetStream keeps its files.
    pub fn store_dir(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// Whether the process is there. One that is paused is.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// SIGKILL: what the server has not written to its files yet is left to the operating system.
    /// Returns when it has ended. Does nothing if it is not running.
    pub fn kill(&mut self) {
        self.end(Signal::KILL);
    }

    /// SIGTERM, an orderly stop. Returns when it has ended. Does nothing if it is not running.
    ///
    /// # Panics
    /// If it goes on all the same, as a paused one does.
    pub fn stop(&mut self) {
        self.end(Signal::TERM);
    }

    /// Starts it again on the same port and the same store; kills it first if it is running.
    /// Returns when it greets.
    ///
    /// # Panics
    /// If it does not start.
    pub fn restart(&mut self) {
        self.kill();
        match self.launch() {
            Ok(process) => self.running = Some(process),
            Err(said) => panic!("failed to restart nats-server:\n{said}"),
        }
    }

    /// SIGSTOP: connections stay open, and nobody answers. Returns when all its threads stand still.
    ///
    /// # Panics
    /// If it is not running.
    pub fn pause(&self) {
        self.process().pause();
    }

    /// SIGCONT: goes on after [`NatsServer::pause`].
    ///
    /// # Panics
    /// If it is not running.
    pub fn resume(&self) {
        self.process().signal(Signal::CONT);
    }

    /// Copies the store, for [`NatsServer::replace_store_from`]; what was at `to` is gone
    /// afterwards. Of a server that runs, the copy has what it has written so far.
    ///
    /// # Panics
    /// If it cannot be copied.
    pub fn copy_store_to(&self, to: &Path) {
        store::replace(&self.store_dir(), to);
    }

    /// Puts a copy in the place of the store, as if the broker had lost what came after it.
    ///
    /// # Panics
    /// If the server is running, or the copy cannot be read.
    pub fn replace_store_from(&self, from: &Path) {
        assert!(
            !self.is_running(),
            "stop the server before its store is replaced"
        );
        store::replace(from, &self.store_dir());
    }

    fn write_configuration(&self, extra: &str) {
        let text = format!(
            "host: \"127.0.0.1\"\nport: {}\nmax_payload: 8MB\njetstream {{ store_dir: \"{}\" }}\n{extra}\n",
            self.port,
            self.store_dir().display()
        );
        fs::write(self.configuration(), text).expect("a server needs its configuration");
    }

    fn configuration(&self) -> PathBuf {
        self.folder.path().join("nats.conf")
    }

    /// Starts the process and waits for its greeting; otherwise what it said.
    fn launch(&self) -> Result<Process, String> {
        let mut command = Command::new(&self.program);
        command.arg("-c").arg(self.configuration());
        let process = Process::launch(&mut command, "nats-server", "Server is ready")?;
        match greeting(self.port) {
            Ok(_) => Ok(process),
            Err(error) => Err(process.give_up(&format!("no greeting: {error}"))),
        }
    }

    fn end(&mut self, signal: Signal) {
        if let Some(mut process) = self.running.take() {
            process.end(signal);
        }
    }

    fn process(&self) -> &Process {
        self.running.as_ref().expect("the server is running")
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The line with which a server receives whoever connects.
fn greeting(port: u16) -> std::io::Result<String> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(GREETING_LIMIT))?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    if line.starts_with("INFO ") {
        return Ok(line);
    }
    Err(std::io::Error::other(format!("it said `{}`", line.trim())))
}
