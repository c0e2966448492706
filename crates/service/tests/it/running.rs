//! Starting the binary, and waiting for what it says: for its lines, never for time to pass.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use punctual_domain::{DueTimeReached, Message, MessageEnvelope, Timestamp};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// After this long without what it waits for, a test has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A folder of its own for each test, with a database in it.
pub(crate) struct Home(TempDir);

/// What a command said, and how it ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Home {
    pub(crate) fn new() -> Self {
        let in_memory = Path::new("/dev/shm");
        let folder = if in_memory.is_dir() {
            tempfile::tempdir_in(in_memory)
        } else {
            tempfile::tempdir()
        };
        Self(folder.unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn db(&self) -> PathBuf {
        self.path("timer.db")
    }

    /// The binary, with this home's database and nothing else in its environment.
    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_timer-service"));
        command
            .args(line.split_whitespace())
            .current_dir(self.0.path())
            .env_clear()
            .env("MODULES", "timer")
            .env("TIMER_DB_PATH", self.db());
        command
    }

    pub(crate) fn run(&self, line: &str) -> Ended {
        run(&mut self.command(line))
    }

    /// Runs a command that has to succeed, and reads its one line of JSON.
    pub(crate) fn json(&self, line: &str) -> Value {
        let ended = self.run(line);
        assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
        serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{line}: {ended:?}"))
    }

    /// Serves, and returns when it does.
    pub(crate) fn serve(&self) -> Running {
        let mut serving = Running::start(&mut self.command("serve"));
        serving.wait_until_ready();
        serving
    }
}

pub(crate) fn run(command: &mut Command) -> Ended {
    let output = command.stdin(Stdio::null()).output().unwrap();
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A process under way. It is killed when it is dropped.
pub(crate) struct Running {
    child: Child,
    stdout: Option<Lines>,
    stderr: Lines,
}

/// What a process writes, line by line as it comes.
struct Lines {
    lines: Receiver<String>,
    reader: Option<JoinHandle<()>>,
}

impl Lines {
    fn of(source: impl Read + Send + 'static) -> Self {
        let (sender, lines) = channel();
        Self::read(source, lines, move |line| sender.send(line).is_ok())
    }

    /// Reads only as far as somebody takes what was read: then the pipe fills up.
    fn unhurried(source: impl Read + Send + 'static) -> Self {
        let (sender, lines) = sync_channel(1);
        Self::read(source, lines, move |line| sender.send(line).is_ok())
    }

    fn read(
        source: impl Read + Send + 'static,
        lines: Receiver<String>,
        hand_over: impl Fn(String) -> bool + Send + 'static,
    ) -> Self {
        let reader = std::thread::spawn(move || {
            let mut source = BufReader::new(source);
            let mut line = Vec::new();
            while source.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
                // What has no end was cut off, and was never acknowledged.
                if line.ends_with(b"\n") {
                    let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                    if !hand_over(text) {
                        return;
                    }
                }
                line.clear();
            }
        });
        Self {
            lines,
            reader: Some(reader),
        }
    }

    fn next(&self) -> Option<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("no line came in {PATIENCE:?}"),
        }
    }
}

impl Running {
    /// Starts a process whose standard output is read as it comes.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut running = Self::start_unread(command.stdout(Stdio::piped()));
        running.stdout = running.child.stdout.take().map(Lines::of);
        running
    }

    /// Starts a process whose standard output is read only as lines are requested.
    pub(crate) fn start_unhurried(command: &mut Command) -> Self {
        let mut running = Self::start_unread(command.stdout(Stdio::piped()));
        running.stdout = running.child.stdout.take().map(Lines::unhurried);
        running
    }

    /// Starts a process whose standard output is not read, or is redirected.
    pub(crate) fn start_unread(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let stderr = Lines::of(child.stderr.take().unwrap());
        Self {
            child,
            stdout: None,
            stderr,
        }
    }

    /// Waits until it says that it serves.
    pub(crate) fn wait_until_ready(&mut self) {
        self.wait_until_it_says("serving timers");
    }

    /// Waits for a line of its log, and returns it.
    pub(crate) fn wait_until_it_says(&mut self, words: &str) -> String {
        let mut said = Vec::new();
        while let Some(line) = self.stderr.next() {
            if line.contains(words) {
                return line;
            }
            said.push(line);
        }
        panic!("it ended without saying {words:?}: {said:?}");
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn take_stdin(&mut self) -> ChildStdin {
        self.child.stdin.take().unwrap()
    }

    /// Its standard output, if it is not being read yet.
    pub(crate) fn take_stdout(&mut self) -> ChildStdout {
        self.child.stdout.take().unwrap()
    }

    /// The next line of its standard output; `None` when it has closed it.
    pub(crate) fn line(&self) -> Option<String> {
        self.stdout.as_ref().unwrap().next()
    }

    /// The next line if it comes in time; `Err` when it has ended.
    pub(crate) fn line_within(&self, limit: Duration) -> Result<Option<String>, ()> {
        match self.stdout.as_ref().unwrap().lines.recv_timeout(limit) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(()),
        }
    }

    /// Whether it has ended, as far as its standard output tells, which it writes nothing to.
    pub(crate) fn has_ended(&self) -> bool {
        self.line_within(Duration::ZERO).is_err()
    }

    pub(crate) fn firing(&self) -> DueTimeReached {
        firing(&self.line().expect("it goes on"))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).unwrap();
        kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
    }

    /// Kills it.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    /// What it writes until it ends, and how it ends.
    pub(crate) fn end(mut self) -> Ended {
        let mut stdout = String::new();
        if let Some(lines) = &self.stdout {
            while let Some(line) = lines.next() {
                stdout.push_str(&line);
                stdout.push('\n');
            }
        }
        let mut stderr = String::new();
        while let Some(line) = self.stderr.next() {
            stderr.push_str(&line);
            stderr.push('\n');
        }
        let status: ExitStatus = self.child.wait().unwrap();
        Ended {
            code: status.code(),
            stdout,
            stderr,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let stderr = std::mem::take(&mut self.stderr);
        for lines in self.stdout.take().into_iter().chain([stderr]) {
            drop(lines.lines);
            if let Some(reader) = lines.reader {
                let _ = reader.join();
            }
        }
    }
}

impl Default for Lines {
    fn default() -> Self {
        Self {
            lines: channel().1,
            reader: None,
        }
    }
}

/// The event that a line of the service's standard output is.
pub(crate) fn firing(line: &str) -> DueTimeReached {
    let envelope = MessageEnvelope::from_json(line.as_bytes())
        .unwrap_or_else(|error| panic!("{error} in {line}"));
    match envelope.message {
        Message::DueTimeReached(event) => event,
        other => panic!("{other:?} is no firing"),
    }
}

/// The firings among what a process wrote.
pub(crate) fn firings(stdout: &str) -> Vec<DueTimeReached> {
    stdout.lines().map(firing).collect()
}

pub(crate) fn instant(value: &Value) -> Timestamp {
    value.as_str().unwrap().parse().unwrap()
}
