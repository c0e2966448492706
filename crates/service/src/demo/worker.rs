//! The worker: `timer-service serve` as a process of its own, which can be killed.
//!
//! Two threads read what it writes. One notes for each firing when it arrived, before anything
//! else is done with it; the other keeps the end of the log, for the case that something goes
//! wrong.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;

use punctual_adapters_system::SystemClock;
use punctual_domain::{DueTimeReached, Message, MessageEnvelope, Timestamp};
use punctual_ports::ClockPort;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::sync::mpsc;

use super::event::Event;

/// How many lines of its log are kept.
const LOG_LINES: usize = 20;

/// What its log says once it fires timers or makes calls.
const SERVES: [&str; 2] = ["serving timers", "serving service calls"];

/// What a worker did.
#[derive(Debug)]
pub(super) enum Said {
    /// It fires timers or makes calls from now on, and may listen somewhere.
    Serves {
        at: Timestamp,
        api: Option<SocketAddr>,
    },
    /// A timer fired, and we read it at this instant.
    Fired {
        event: Box<DueTimeReached>,
        read_at: Timestamp,
    },
    /// It wrote a line that is no firing.
    Nonsense(String),
    /// It has ended, and all that it wrote has been read.
    Ended,
}

/// A worker process. It is killed when it is dropped.
pub(super) struct Worker {
    child: Child,
    log: Option<JoinHandle<VecDeque<String>>>,
}

/// How a worker ended.
#[derive(Debug)]
pub(super) struct Obituary {
    pub(super) status: ExitStatus,
    /// The end of its log.
    pub(super) log: Vec<String>,
}

/// How to start a worker that fires the timers of a database.
pub(super) fn command(database: &Path) -> io::Result<Command> {
    serving(&["--modules", "timer", "--db"], database)
}

/// How to start a worker that makes the service calls of a database, to this machine too.
pub(super) fn calls_command(database: &Path) -> io::Result<Command> {
    let flags = "--listen 127.0.0.1:0 --allow-nets 127.0.0.0/8 --calls-db";
    let flags: Vec<&str> = flags.split(' ').collect();
    serving(&flags, database)
}

/// Nothing in the environment and no settings file changes what it does, so that the demo shows
/// the same to everybody.
fn serving(flags: &[&str], database: &Path) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg("serve")
        .args(["--log-format", "json", "--log-level", "info"])
        .args(flags)
        .arg(database)
        .env_clear();
    if let Some(folder) = database.parent() {
        command.current_dir(folder);
    }
    Ok(command)
}

impl Worker {
    /// Starts a worker, the `run`-th, whose doings become events.
    pub(super) fn start(
        mut command: Command,
        run: usize,
        events: &mpsc::Sender<Event>,
        clock: &SystemClock,
    ) -> io::Result<Self> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C on the terminal is for us, and we end it.
            .process_group(0)
            .spawn()?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let mut worker = Self { child, log: None };
        let tell = Tell {
            run,
            events: events.clone(),
            clock: clock.clone(),
        };
        if let Some(stderr) = stderr {
            let tell = tell.clone();
            let reading = thread("demo-log", move || read_log(stderr, &tell))?;
            worker.log = Some(reading);
        }
        if let Some(stdout) = stdout {
            thread("demo-firings", move || read_firings(stdout, &tell))?;
        }
        Ok(worker)
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills it, as `kill -9` does. What it has written is still read.
    pub(super) fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Asks it to stop in good order.
    pub(super) fn ask_to_stop(&self) {
        // If it is gone, it has stopped.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
    }

    /// Waits for one that has ended, or is about to since it has closed its standard output.
    pub(super) fn bury(mut self) -> io::Result<Obituary> {
        let status = self.child.wait()?;
        let log = self.log.take().and_then(|reading| reading.join().ok());
        Ok(Obituary {
            status,
            log: log.unwrap_or_default().into(),
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.kill();
    }
}

impl Obituary {
    /// What it said of its end, if it said anything.
    pub(super) fn reason(&self) -> Option<&str> {
        let mut lines = self.log.iter().rev();
        lines.find_map(|line| line.strip_prefix("error: "))
    }
}

fn thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let builder = std::thread::Builder::new().name(name.to_owned());
    builder.spawn(work)
}

/// How the threads tell what they read.
#[derive(Clone)]
struct Tell {
    run: usize,
    events: mpsc::Sender<Event>,
    clock: SystemClock,
}

impl Tell {
    /// Returns whether anybody wants to know.
    fn tell(&self, said: Said) -> bool {
        let event = Event::Worker {
            run: self.run,
            said,
        };
        self.events.blocking_send(event).is_ok()
    }
}

fn read_firings(stdout: impl Read, tell: &Tell) {
    each_line(stdout, |line| {
        let read_at = tell.clock.now();
        tell.tell(match MessageEnvelope::from_json(line) {
            Ok(MessageEnvelope {
                message: Message::DueTimeReached(event),
                ..
            }) => Said::Fired {
                event: Box::new(event),
                read_at,
            },
            Ok(other) => Said::Nonsense(format!("a {}", other.message.type_name())),
            Err(error) => Said::Nonsense(error.to_string()),
        })
    });
    tell.tell(Said::Ended);
}

fn read_log(stderr: impl Read, tell: &Tell) -> VecDeque<String> {
    let mut kept = VecDeque::with_capacity(LOG_LINES);
    each_line(stderr, |line| {
        let line = String::from_utf8_lossy(line).into_owned();
        if SERVES.iter().any(|words| line.contains(words)) {
            let (at, api) = (tell.clock.now(), api(&line));
            tell.tell(Said::Serves { at, api });
        }
        if kept.len() == LOG_LINES {
            kept.pop_front();
        }
        kept.push_back(line);
        true
    });
    kept
}

/// Where it listens, by a line of its log.
fn api(line: &str) -> Option<SocketAddr> {
    let line: Value = serde_json::from_str(line).ok()?;
    line["api"].as_str()?.strip_prefix("http://")?.parse().ok()
}

/// Hands over each line without its end, until there are no more or nobody wants them. One that
/// has no end was cut off by a kill: it does not count, and comes again.
fn each_line(source: impl Read, mut take: impl FnMut(&[u8]) -> bool) {
    let mut source = BufReader::new(source);
    let mut line = Vec::new();
    while source.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
        if let Some(whole) = line.strip_suffix(b"\n")
            && !take(whole)
        {
            return;
        }
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> (Worker, mpsc::Receiver<Event>) {
        let (sender, events) = mpsc::channel(100);
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        let clock = SystemClock::start().unwrap();
        (Worker::start(command, 7, &sender, &clock).unwrap(), events)
    }

    /// What it did until it ended.
    fn doings(events: &mut mpsc::Receiver<Event>) -> Vec<Said> {
        let mut doings = Vec::new();
        while let Some(event) = events.blocking_recv() {
            let Event::Worker { run: 7, said } = event else {
                panic!("{event:?}");
            };
            doings.push(said);
        }
        doings
    }

    #[test]
    fn a_worker_that_ends_by_itself_is_buried_with_its_reason() {
        let (worker, mut events) = shell("echo begun >&2; echo 'error: no disk' >&2; exit 3");
        let doings = doings(&mut events);
        assert!(matches!(doings[..], [Said::Ended]), "{doings:?}");
        let obituary = worker.bury().unwrap();
        assert_eq!(obituary.status.code(), Some(3));
        assert_eq!(obituary.reason(), Some("no disk"));
        assert_eq!(obituary.log, ["begun", "error: no disk"]);
    }

    #[test]
    fn what_is_no_firing_is_told_and_what_was_cut_off_does_not_count() {
        let (worker, mut events) = shell("echo nonsense; printf '{\"id\"'");
        let doings = doings(&mut events);
        assert!(
            matches!(doings[..], [Said::Nonsense(_), Said::Ended]),
            "{doings:?}"
        );
        assert_eq!(worker.bury().unwrap().reason(), None);
    }

    #[test]
    fn it_serves_when_its_log_says_so_and_only_the_end_of_the_log_is_kept() {
        let (worker, mut events) =
            shell("for n in $(seq 50); do echo $n >&2; done; echo 'serving timers' >&2");
        let doings = doings(&mut events);
        let serves = |said: &Said| matches!(said, Said::Serves { api: None, .. });
        assert_eq!(doings.iter().filter(|said| serves(said)).count(), 1);
        let log = worker.bury().unwrap().log;
        assert_eq!(log.len(), LOG_LINES);
        assert_eq!(log.last().map(String::as_str), Some("serving timers"));
    }

    #[test]
    fn the_line_that_says_that_calls_are_served_says_where() {
        let (worker, mut events) = shell(
            r#"echo '{"message":"serving service calls: now","api":"http://127.0.0.1:81"}' >&2"#,
        );
        let doings = doings(&mut events);
        let listens =
            |said: &Said| matches!(said, Said::Serves { api: Some(api), .. } if api.port() == 81);
        assert_eq!(doings.iter().filter(|said| listens(said)).count(), 1);
        worker.bury().unwrap();
    }

    #[test]
    fn a_worker_is_killed_at_once() {
        let (mut worker, mut events) = shell("exec sleep 1000");
        worker.kill().unwrap();
        assert!(matches!(doings(&mut events)[..], [Said::Ended]));
    }
}
