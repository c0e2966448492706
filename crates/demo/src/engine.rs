//! The engine: starts the worker, schedules or submits, records what arrives, kills and starts again.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use punctual_adapters_system::SystemClock;
use punctual_domain::{DueTimeReached, Timestamp};
use punctual_ports::ClockPort;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use crate::Failure;
use crate::client::Client;
use crate::ledger::{Ledger, Outcome};
use crate::plan::{Plan, Script};
use crate::progress::{Progress, Snapshot};
use crate::report::Kill;
use crate::screen::Screen;
use crate::target;
use crate::timers::Scheduler;
use crate::worker::{State, Worker};

/// How often timeouts are checked when nothing happens.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum number of events that wait to be handled.
const EVENTS: usize = 4_096;
/// Number of clients that submit calls at a time.
const CLIENTS: u32 = 8;
/// Maximum time without progress once everything is due; then the rest is lost.
const TIMERS_IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// The same for calls: an attempt may take that long by itself.
const CALLS_IDLE_TIMEOUT: Duration = Duration::from_secs(45);
/// Maximum time that the database takes to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// What happens during a run. All of it goes through one queue, so that a request is recorded before
/// its outcome is.
#[derive(Debug)]
pub(crate) enum Event {
    /// The `run`-th worker fires timers or makes calls from now on, and may listen somewhere.
    Serving {
        run: usize,
        at: Timestamp,
        api: Option<SocketAddr>,
    },
    /// The `run`-th worker has ended, and all that it wrote has been read.
    Exited { run: usize },
    /// A timer fired, and its line was read at this instant.
    Fired(Box<DueTimeReached>, Timestamp),
    /// Timers were stored, or calls accepted.
    Acknowledged(Range<u32>),
    /// No response came to a submission, and it is sent again.
    Resubmitted,
    /// The target got the request of a call; `None`: another one. It responds when `recorded` is
    /// dropped, so a kill that this event leads to comes before the response.
    Requested {
        n: Option<u32>,
        at: Timestamp,
        recorded: oneshot::Sender<()>,
    },
    /// The service says how a call ended.
    Completed { n: u32, outcome: Outcome },
    /// A timer could not be stored, a call not be submitted or read, or a line is no firing.
    Failed(Failure),
}

/// A demo under way.
pub(crate) struct Engine {
    clock: SystemClock,
    database: PathBuf,
    plan: Plan,
    pub(crate) ledger: Ledger,
    progress: Progress,
    worker: Worker,
    sender: mpsc::Sender<Event>,
    events: mpsc::Receiver<Event>,
    /// Where the service listens, while it lives.
    api: watch::Sender<Option<SocketAddr>>,
    scheduler: Option<Scheduler>,
    /// The scheduler, or the target and the clients.
    tasks: JoinSet<()>,
    pub(crate) kills: Vec<Kill>,
    /// When the last one is due, and when there was progress last, but not before that. Both are of
    /// the monotonic clock.
    ends_at: Duration,
    progress_at: Duration,
}

impl Engine {
    /// An engine that runs nothing yet.
    pub(crate) fn new(clock: SystemClock, database: PathBuf, plan: Plan, screen: Screen) -> Self {
        let (sender, events) = mpsc::channel(EVENTS);
        let worker = Worker::new(clock.clone(), plan.script, database.clone(), sender.clone());
        Self {
            clock,
            database,
            ledger: Ledger::new(&plan),
            progress: Progress::new(&plan, screen),
            plan,
            worker,
            sender,
            events,
            api: watch::Sender::new(None),
            scheduler: None,
            tasks: JoinSet::new(),
            kills: Vec::new(),
            ends_at: Duration::ZERO,
            progress_at: Duration::ZERO,
        }
    }

    /// Runs to the end: all timers have fired and all calls have an outcome, or the rest is lost.
    pub(crate) async fn run(&mut self) -> Result<(), Failure> {
        let mut target = None;
        match self.plan.script {
            Script::Timers => {
                self.scheduler = Some(Scheduler::open(&self.database, &self.clock).await?);
            }
            Script::Calls => {
                let (listener, address) = target::listen().await?;
                target = Some(address);
                let serve = target::serve(listener, self.sender.clone(), self.clock.clone());
                self.tasks.spawn(serve);
            }
        }
        self.worker.start()?;
        while !self.is_serving() {
            self.step().await?;
        }
        // Only now: however long the start took, nothing is due before it is stored.
        self.plan.start = self.clock.now();
        self.ledger = Ledger::new(&self.plan);
        self.ends_at = self.clock.monotonic() + self.plan.length();
        self.progress_at = self.ends_at;
        if let Some(scheduler) = self.scheduler.clone() {
            let run = scheduler.run(self.plan.clone(), self.sender.clone());
            self.tasks.spawn(run);
        }
        for (first, target) in (0..CLIENTS).zip(target.into_iter().cycle()) {
            let client = Client {
                plan: self.plan.clone(),
                target,
                api: self.api.subscribe(),
                events: self.sender.clone(),
                clock: self.clock.clone(),
            };
            self.tasks.spawn(client.run(first, CLIENTS as usize));
        }
        while !self.is_over() {
            self.step().await?;
            self.draw_progress();
        }
        self.progress.clear();
        self.worker.stop();
        while self.worker.state != State::Stopped {
            self.step().await?;
        }
        Ok(())
    }

    fn is_serving(&self) -> bool {
        self.worker.state == State::Serving
    }

    /// Whether nothing is left to wait for.
    fn is_over(&self) -> bool {
        let timeout = match self.plan.script {
            Script::Timers => TIMERS_IDLE_TIMEOUT,
            Script::Calls => CALLS_IDLE_TIMEOUT,
        };
        let is_stalled = self.clock.monotonic() > self.progress_at + timeout;
        self.is_serving() && (self.ledger.is_complete() || is_stalled)
    }

    /// Handles the next event, or waits a short time if there is none.
    async fn step(&mut self) -> Result<(), Failure> {
        tokio::select! {
            biased;
            Some(event) = self.events.recv() => self.handle(event)?,
            () = self.clock.sleep_for(POLL_INTERVAL) => {}
        }
        self.worker.check_timeouts(self.plan.downtime())
    }

    fn handle(&mut self, event: Event) -> Result<(), Failure> {
        let before = self.ledger.progress();
        match event {
            Event::Serving { run, at, api } => {
                if self.worker.serves(run) {
                    self.api.send_replace(api);
                    self.report_serving(at);
                }
            }
            Event::Exited { run } => self.worker.exited(run, &self.so_far())?,
            Event::Fired(event, read_at) => self.ledger.fired(&event, read_at),
            Event::Acknowledged(range) => self.ledger.acknowledged(range),
            Event::Resubmitted => self.ledger.totals.resubmitted += 1,
            Event::Requested { n, at, recorded } => {
                self.ledger.requested(n, at);
                self.kill_if_due()?;
                drop(recorded);
            }
            Event::Completed { n, outcome } => self.ledger.completed(n, outcome),
            Event::Failed(failure) => return Err(failure),
        }
        if self.ledger.progress() == before {
            return Ok(());
        }
        self.progress_at = self.progress_at.max(self.clock.monotonic());
        match self.plan.script {
            Script::Timers => self.kill_if_due(),
            // Only while a request waits for its response.
            Script::Calls => Ok(()),
        }
    }

    fn report_serving(&mut self, at: Timestamp) {
        let killed_at = self.worker.killed_at;
        let line = if let Some(kill) = self.kills.last_mut() {
            kill.downtime = at.since(killed_at);
            kill.due_meanwhile = self.plan.due_between(killed_at, at);
            kill.text(self.plan.script)
        } else {
            format!("worker process {} serves", self.worker.id())
        };
        self.progress.print_above(&line);
    }

    /// Kills the worker if as many firings or requests have arrived as it was to live for.
    fn kill_if_due(&mut self) -> Result<(), Failure> {
        let arrived = self.ledger.totals.arrived;
        let is_due = |after: &u32| *after as usize <= arrived;
        // A worker that has fired the last timer has nothing left to lose.
        let is_last = self.plan.script == Script::Timers && arrived >= self.plan.count as usize;
        if !self.is_serving() || is_last || !self.plan.kills.front().is_some_and(is_due) {
            return Ok(());
        }
        self.plan.kills.pop_front();
        self.api.send_replace(None);
        let process = self.worker.kill()?;
        self.kills.push(Kill {
            process,
            arrived_before: arrived,
            ..Kill::default()
        });
        Ok(())
    }

    fn draw_progress(&mut self) {
        let now = self.clock.monotonic();
        let snapshot = Snapshot {
            count: self.plan.count as usize,
            totals: self.ledger.totals,
            kills: self.kills.len(),
            until_first: self.plan.due_at(0).since(self.clock.now()),
            is_down: !self.is_serving(),
            is_overdue: now > self.ends_at + POLL_INTERVAL,
        };
        self.progress.draw(&snapshot, now);
    }

    /// What has happened so far.
    pub(crate) fn so_far(&self) -> String {
        let (done, count) = (self.ledger.totals.done, self.plan.count);
        match self.plan.script {
            Script::Timers => format!("{done} of {count} timers had fired"),
            Script::Calls => format!("{done} of {count} calls had been made"),
        }
    }

    /// Prints the end of the worker's log, which may say why something went wrong.
    pub(crate) fn print_log(&self) {
        for line in &self.worker.log_tail {
            crate::print(&format!("worker: {line}"));
        }
    }

    /// Ends the processes that still run, so that the database is not in use.
    pub(crate) async fn close(&mut self) {
        self.progress.clear();
        // Senders that wait for room wait no longer.
        self.events.close();
        self.worker.close();
        self.tasks.shutdown().await;
        if let Some(scheduler) = self.scheduler.take() {
            tokio::select! {
                () = scheduler.store.close() => {}
                () = self.clock.sleep_for(CLOSE_TIMEOUT) => {}
            }
        }
    }
}
