//! A private nats-server with JetStream that a test may treat badly.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tempfile::TempDir;

use crate::log::{Log, Silence};
use crate::{shared, store};

/// Below the range from which systems take the ports of outgoing connections: a client that tries
/// to reconnect while the server is away would otherwise take its port one day, by connecting to
/// itself.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// How often another port is tried, if somebody else was faster.
const TRIES: usize = 10;

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

#[derive(Debug)]
struct Process {
    child: Child,
    log: Log,
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
        for _ in 0..TRIES {
            server.port = free_port();
            server.write_configuration(extra_config);
            match server.launch() {
                Ok(()) => return Some(server),
                Err(said) if said.contains("address already in use") => {}
                Err(said) => panic!("failed to start nats-server:\n{said}"),
            }
        }
        panic!("failed to find a free port for nats-server in {TRIES} tries");
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
        if let Err(said) = self.launch() {
            panic!("failed to restart nats-server:\n{said}");
        }
    }

    /// SIGSTOP: connections stay open, and nobody answers. Returns when all its threads stand still.
    ///
    /// # Panics
    /// If it is not running.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        let process = self.running.as_ref().expect("the server is running");
        waitpid(Some(Pid::from_child(&process.child)), WaitOptions::UNTRACED)
            .expect("the server can be waited for");
    }

    /// SIGCONT: goes on after [`NatsServer::pause`].
    ///
    /// # Panics
    /// If it is not running.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
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
    fn launch(&mut self) -> Result<(), String> {
        let mut child = Command::new(&self.program)
            .arg("-c")
            .arg(self.configuration())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let log = Log::of(child.stderr.take().unwrap());
        let mut process = Process { child, log };
        let answer = match process.log.wait_for("Server is ready") {
            Ok(()) => greeting(self.port).map_err(|error| format!("no greeting: {error}")),
            Err(Silence::Ended) => Err("it has ended".to_owned()),
            Err(Silence::Hangs) => Err("it says nothing more".to_owned()),
        };
        if let Err(why) = answer {
            process.end(Signal::KILL);
            return Err(format!("{}\n{why}", process.log.tail()));
        }
        self.running = Some(process);
        Ok(())
    }

    fn end(&mut self, signal: Signal) {
        if let Some(mut process) = self.running.take() {
            process.end(signal);
        }
    }

    fn signal(&self, signal: Signal) {
        let process = self.running.as_ref().expect("the server is running");
        process.signal(signal);
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Process {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the server can be signalled");
    }

    /// Sends the signal and waits for the end, which shows in the log: that wait is bounded.
    fn end(&mut self, signal: Signal) {
        self.signal(signal);
        let has_ended = self.log.wait_for_end();
        if !has_ended {
            self.signal(Signal::KILL);
        }
        self.child.wait().expect("the server can be waited for");
        // Not during a panic: a second one would hide the first.
        assert!(
            has_ended || std::thread::panicking(),
            "nats-server did not end on {signal:?}:\n{}",
            self.log.tail()
        );
    }
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let span = u64::from(PORTS.end - PORTS.start);
    loop {
        let offset = u16::try_from(shared::random() % span).unwrap();
        let port = PORTS.start + offset;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
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
