//! The worker: `timer-service serve` as a process of its own, which is started, killed, started again,
//! and stopped in the end.
//!
//! Two threads read what it writes. One stamps each firing when it arrives, before anything else is
//! done with it; the other keeps the end of the log, for the case that something goes wrong.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use punctual_adapters_system::SystemClock;
use punctual_domain::{Message, MessageEnvelope, Timestamp};
use punctual_ports::ClockPort;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::Failure;
use crate::engine::Event;
use crate::plan::Script;

/// Maximum time until a worker serves.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum time until a worker has stopped.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of lines of its log that are kept.
const LOG_LINES: usize = 20;
/// What its log says once it fires timers or makes calls.
const SERVING: [&str; 2] = ["serving timers", "serving service calls"];

/// The state of the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Starting,
    Serving,
    Killed,
    Stopping,
    Stopped,
}

/// The worker, whichever process it is at the moment. That is killed when it is dropped.
pub(crate) struct Worker {
    clock: SystemClock,
    script: Script,
    database: PathBuf,
    events: mpsc::Sender<Event>,
    child: Option<Child>,
    log: Option<JoinHandle<VecDeque<String>>>,
    /// Number of processes so far.
    run: usize,
    pub(crate) state: State,
    /// Since when, on the monotonic clock.
    since: Duration,
    /// When it was killed last.
    pub(crate) killed_at: Timestamp,
    /// The end of the log of the process that ended last.
    pub(crate) log_tail: Vec<String>,
}

impl Worker {
    /// A worker that is not started yet, and reports to `events`.
    pub(crate) const fn new(
        clock: SystemClock,
        script: Script,
        database: PathBuf,
        events: mpsc::Sender<Event>,
    ) -> Self {
        Self {
            clock,
            script,
            database,
            events,
            child: None,
            log: None,
            run: 0,
            state: State::Stopped,
            since: Duration::ZERO,
            killed_at: Timestamp::MIN,
            log_tail: Vec::new(),
        }
    }

    pub(crate) fn start(&mut self) -> Result<(), Failure> {
        let command = command(self.script, &self.database);
        let started = command.and_then(|command| self.spawn(command));
        started.map_err(|error| {
            Failure::Refused(format!("the worker process cannot be started: {error}"))
        })
    }

    fn spawn(&mut self, mut command: Command) -> io::Result<()> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C on the terminal is for us, and we end it.
            .process_group(0)
            .spawn()?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        self.child = Some(child);
        self.run += 1;
        self.enter(State::Starting);
        let (run, events, clock) = (self.run, self.events.clone(), self.clock.clone());
        if let Some(stderr) = stderr {
            let (events, clock) = (events.clone(), clock.clone());
            let read = move || read_log(stderr, run, &events, &clock);
            self.log = Some(thread::Builder::new().spawn(read)?);
        }
        if let Some(stdout) = stdout {
            let script = self.script;
            let read = move || read_firings(stdout, script, run, &events, &clock);
            thread::Builder::new().spawn(read)?;
        }
        Ok(())
    }

    fn enter(&mut self, state: State) {
        (self.state, self.since) = (state, self.clock.monotonic());
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Records that the `run`-th process serves. Returns whether that is the current one, and news.
    pub(crate) fn serves(&mut self, run: usize) -> bool {
        let is_news = run == self.run && self.state == State::Starting;
        if is_news {
            self.state = State::Serving;
        }
        is_news
    }

    /// Kills it, as `kill -9` does, and returns its process id. What it has written is still read.
    pub(crate) fn kill(&mut self) -> Result<u32, Failure> {
        let id = self.id();
        self.killed_at = self.clock.now();
        self.kill_child()?;
        self.enter(State::Killed);
        Ok(id)
    }

    fn kill_child(&mut self) -> Result<(), Failure> {
        let Some(child) = &mut self.child else {
            return Ok(());
        };
        let killed = child.kill().and_then(|()| child.wait());
        killed.map(drop).map_err(|error| {
            Failure::Failed(format!("the worker process cannot be killed: {error}"))
        })
    }

    /// Asks it to stop in good order.
    pub(crate) fn stop(&mut self) {
        if let Some(child) = &self.child {
            // If it has ended already, it has stopped.
            let _ = kill_process(Pid::from_child(child), Signal::TERM);
        }
        self.enter(State::Stopping);
    }

    /// Starts it again once it has been dead for `downtime`, and bounds how long it starts and stops.
    pub(crate) fn check_timeouts(&mut self, downtime: Duration) -> Result<(), Failure> {
        let elapsed = self.clock.monotonic().saturating_sub(self.since);
        match self.state {
            State::Killed if elapsed >= downtime => self.start(),
            State::Starting if elapsed >= START_TIMEOUT => Err(Failure::Refused(format!(
                "the worker process did not begin to serve within {} seconds",
                START_TIMEOUT.as_secs()
            ))),
            // Its end is reported in a moment.
            State::Stopping if elapsed >= STOP_TIMEOUT => self.kill_child(),
            _ => Ok(()),
        }
    }

    /// Records that the `run`-th process has ended. Fails if that is the current one and nobody
    /// ended it; `so_far` says what had happened by then.
    pub(crate) fn exited(&mut self, run: usize, so_far: &str) -> Result<(), Failure> {
        // One that was killed, and may have been replaced since.
        if run != self.run || self.state == State::Killed || self.child.is_none() {
            return Ok(());
        }
        let id = self.id();
        let status = self.reap().map_err(|error| {
            Failure::Failed(format!("the end of process {id} is unknown: {error}"))
        })?;
        let reason = self.reason();
        match self.state {
            State::Stopping => {
                self.state = State::Stopped;
                Ok(())
            }
            State::Starting if run == 1 => Err(Failure::Refused(format!(
                "the worker process {id} ended before it served ({status}){reason}"
            ))),
            _ => Err(Failure::Failed(format!(
                "the worker process {id} ended by itself ({status}) after {so_far}{reason}"
            ))),
        }
    }

    /// Waits for one that has ended, or is about to since it has closed its standard output.
    fn reap(&mut self) -> io::Result<ExitStatus> {
        let child = self.child.take();
        let status = child.map_or_else(|| Ok(ExitStatus::default()), |mut child| child.wait());
        let log = self.log.take().and_then(|reading| reading.join().ok());
        self.log_tail = log.unwrap_or_default().into();
        status
    }

    /// What it said of its end, after a colon, if it said anything.
    fn reason(&self) -> String {
        let mut lines = self.log_tail.iter().rev();
        let reason = lines.find_map(|line| line.strip_prefix("error: "));
        reason.map_or_else(String::new, |reason| format!(": {reason}"))
    }

    /// Ends it if it still runs.
    pub(crate) fn close(&mut self) {
        if self.child.is_some() && self.kill_child().is_ok() {
            let _ = self.reap();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.kill_child();
    }
}

/// How to start a worker on a database. Nothing in the environment and no settings file changes what
/// it does, so that the demo is the same for everybody.
fn command(script: Script, database: &Path) -> io::Result<Command> {
    let flags = match script {
        Script::Timers => "--modules timer --db",
        Script::Calls => "--listen 127.0.0.1:0 --allow-nets 127.0.0.0/8 --calls-db",
    };
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args("serve --log-format json --log-level info".split(' '))
        .args(flags.split(' '))
        .arg(database)
        .env_clear();
    if let Some(folder) = database.parent() {
        command.current_dir(folder);
    }
    Ok(command)
}

fn read_firings(
    stdout: impl Read,
    script: Script,
    run: usize,
    events: &mpsc::Sender<Event>,
    clock: &SystemClock,
) {
    each_line(stdout, |line| {
        let read_at = clock.now();
        let message = MessageEnvelope::from_json(line).map(|envelope| envelope.message);
        let what = match message {
            Ok(Message::DueTimeReached(event)) if script == Script::Timers => {
                let event = Event::Fired(Box::new(event), read_at);
                return events.blocking_send(event).is_ok();
            }
            Ok(other) => format!("a {}", other.type_name()),
            Err(error) => error.to_string(),
        };
        let what = format!("the worker wrote an unexpected line to its standard output: {what}");
        let event = Event::Failed(Failure::Failed(what));
        events.blocking_send(event).is_ok()
    });
    // If the receiver is closed, the demo is over.
    let _ = events.blocking_send(Event::Exited { run });
}

fn read_log(
    stderr: impl Read,
    run: usize,
    events: &mpsc::Sender<Event>,
    clock: &SystemClock,
) -> VecDeque<String> {
    let mut kept = VecDeque::with_capacity(LOG_LINES);
    each_line(stderr, |line| {
        let line = String::from_utf8_lossy(line).into_owned();
        if SERVING.iter().any(|words| line.contains(words)) {
            let (at, api) = (clock.now(), api(&line));
            let _ = events.blocking_send(Event::Serving { run, at, api });
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

/// Hands over each line without its end, until there are no more or `accept` wants no more. One that
/// has no end was cut off by a kill: it does not count, and comes again.
fn each_line(source: impl Read, mut accept: impl FnMut(&[u8]) -> bool) {
    let mut source = BufReader::new(source);
    let mut line = Vec::new();
    while source.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
        if let Some(whole) = line.strip_suffix(b"\n")
            && !accept(whole)
        {
            return;
        }
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a shell script as the worker, to its end, and returns what it reported.
    fn run(script: &str) -> (Worker, Vec<Event>) {
        let (mut worker, mut receiver) = start(script);
        (worker.events, _) = mpsc::channel(1);
        let mut events = Vec::new();
        while let Some(event) = receiver.blocking_recv() {
            events.push(event);
        }
        (worker, events)
    }

    fn start(script: &str) -> (Worker, mpsc::Receiver<Event>) {
        let (sender, events) = mpsc::channel(100);
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        let clock = SystemClock::start().unwrap();
        let mut worker = Worker::new(clock, Script::Timers, PathBuf::new(), sender);
        worker.spawn(command).unwrap();
        (worker, events)
    }

    /// Which run serves, and on which port.
    fn served(events: &[Event]) -> Vec<(usize, Option<u16>)> {
        let served = events.iter().filter_map(|event| match event {
            Event::Serving { run, api, .. } => Some((*run, api.map(|api| api.port()))),
            _ => None,
        });
        served.collect()
    }

    #[test]
    fn a_worker_that_ends_by_itself_is_a_failure_with_its_reason() {
        let (mut worker, events) = run("echo begun >&2; echo 'error: no disk' >&2; exit 3");
        assert!(
            matches!(events[..], [Event::Exited { run: 1 }]),
            "{events:?}"
        );
        worker.serves(1);
        let Err(Failure::Failed(sentence)) = worker.exited(1, "much") else {
            panic!("it ended by itself");
        };
        assert!(
            sentence.ends_with("(exit status: 3) after much: no disk"),
            "{sentence}"
        );
        assert_eq!(worker.log_tail, ["begun", "error: no disk"]);
    }

    #[test]
    fn a_worker_that_never_served_is_refused_and_one_that_was_to_stop_is_not() {
        let (mut worker, _) = run("exit 3");
        let refused = worker.exited(1, "nothing");
        assert!(matches!(refused, Err(Failure::Refused(_))), "{refused:?}");
        let (mut worker, _) = run("exit 0");
        worker.stop();
        assert_eq!(worker.exited(1, "all"), Ok(()));
        assert_eq!(worker.state, State::Stopped);
    }

    #[test]
    fn what_is_no_firing_is_reported_and_what_was_cut_off_does_not_count() {
        let (mut worker, events) = run("echo nonsense; printf '{\"id\"'");
        let is_reported = matches!(events[..], [Event::Failed(_), Event::Exited { run: 1 }]);
        assert!(is_reported, "{events:?}");
        worker.reap().unwrap();
        assert_eq!(worker.reason(), "");
    }

    #[test]
    fn it_serves_when_its_log_says_so_and_only_the_end_of_the_log_is_kept() {
        let (mut worker, events) =
            run("for n in $(seq 50); do echo $n >&2; done; echo 'serving timers' >&2");
        assert_eq!(served(&events), [(1, None)]);
        worker.reap().unwrap();
        assert_eq!(worker.log_tail.len(), LOG_LINES);
        assert_eq!(worker.log_tail.last().unwrap(), "serving timers");
    }

    #[test]
    fn the_line_that_says_that_calls_are_served_says_where() {
        let (_, events) = run(
            r#"echo '{"message":"serving service calls: now","api":"http://127.0.0.1:81"}' >&2"#,
        );
        assert_eq!(served(&events), [(1, Some(81))]);
    }

    #[test]
    fn a_worker_is_killed_at_once_and_its_end_is_no_failure() {
        let (mut worker, mut events) = start("exec sleep 1000");
        worker.kill().unwrap();
        let ended = events.blocking_recv();
        assert!(matches!(ended, Some(Event::Exited { run: 1 })), "{ended:?}");
        assert_eq!(worker.exited(1, "some"), Ok(()));
    }
}
