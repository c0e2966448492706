//! The show itself: starts the worker, schedules, watches the firings, kills and starts again.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use punctual_adapters_system::SystemClock;
use punctual_domain::Timestamp;
use punctual_ports::ClockPort;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::event::Event;
use super::feeder::Feeder;
use super::ledger::Ledger;
use super::plan::Plan;
use super::progress::{Progress, Stage};
use super::report::Kill;
use super::worker::{self, Said, Worker};
use crate::failure::Failure;

/// How often we look, when nothing happens.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How many events may wait for us.
const EVENTS: usize = 4_096;
/// How long a worker may take until it serves.
const START_LIMIT: Duration = Duration::from_secs(20);
/// When everything is due and nothing new has fired for so long, the rest is lost.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a worker may take to stop, and the database to close.
const END_LIMIT: Duration = Duration::from_secs(5);

/// What the worker is doing. Instants are of the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Starting {
        since: Duration,
    },
    Serving,
    /// We killed it.
    Dead {
        since: Duration,
    },
    /// We asked it to stop in good order.
    Stopping {
        since: Duration,
    },
    Over,
}

/// A demo under way.
pub(super) struct Show {
    clock: SystemClock,
    database: PathBuf,
    plan: Plan,
    ledger: Ledger,
    progress: Progress,
    sender: mpsc::Sender<Event>,
    events: mpsc::Receiver<Event>,
    feeder: Option<Feeder>,
    feeding: Option<JoinHandle<()>>,
    worker: Option<Worker>,
    /// Which worker it is that we have: the first, the second.
    run: usize,
    life: Life,
    stored: usize,
    /// After how many firings to kill, the next one first.
    kills_to_come: VecDeque<u32>,
    kills: Vec<Kill>,
    killed_at: Timestamp,
    /// When the last one is due, and when one fired last, but not before that. Both are of the
    /// monotonic clock.
    ends_at: Duration,
    quiet_since: Duration,
    last_words: Vec<String>,
}

impl Show {
    /// Gets ready; nothing runs yet.
    pub(super) fn new(
        clock: SystemClock,
        database: PathBuf,
        plan: Plan,
        kills: Vec<u32>,
        progress: Progress,
    ) -> Self {
        let (sender, events) = mpsc::channel(EVENTS);
        Self {
            clock,
            database,
            plan,
            ledger: Ledger::default(),
            progress,
            sender,
            events,
            feeder: None,
            feeding: None,
            worker: None,
            run: 0,
            life: Life::Over,
            stored: 0,
            kills_to_come: kills.into(),
            kills: Vec::new(),
            killed_at: Timestamp::MIN,
            ends_at: Duration::ZERO,
            quiet_since: Duration::ZERO,
            last_words: Vec::new(),
        }
    }

    /// Runs to the end: all timers have fired, or the rest is lost.
    pub(super) async fn run(&mut self) -> Result<(), Failure> {
        let feeder = Feeder::open(&self.database, &self.clock).await?;
        self.feeder = Some(feeder.clone());
        self.start_worker()?;
        while self.life != Life::Serving {
            self.step().await?;
        }
        // Only now: however long the start took, the first timer is not due before it is stored.
        self.plan = self.plan.clone().starting_at(self.clock.now());
        self.ends_at = self.clock.monotonic() + self.plan.length();
        self.quiet_since = self.ends_at;
        let feed = feeder.feed(self.plan.clone(), self.sender.clone());
        self.feeding = Some(tokio::spawn(feed));
        while !self.is_complete() && !self.is_hopeless() {
            self.step().await?;
            self.show_progress();
        }
        self.progress.end();
        if let Some(worker) = &self.worker {
            worker.ask_to_stop();
        }
        let since = self.clock.monotonic();
        self.life = Life::Stopping { since };
        while self.life != Life::Over {
            self.step().await?;
        }
        Ok(())
    }

    /// Whoever goes on firing after it was asked to stop has nothing new to tell.
    fn is_complete(&self) -> bool {
        let timers = self.plan.timers() as usize;
        self.life == Life::Serving && self.stored == timers && self.ledger.fired_so_far() == timers
    }

    fn is_hopeless(&self) -> bool {
        let is_quiet = self.clock.monotonic() > self.quiet_since + PATIENCE;
        self.life == Life::Serving && is_quiet
    }

    /// Lives through whatever happens next, or a short time if nothing does.
    async fn step(&mut self) -> Result<(), Failure> {
        let next = tokio::select! {
            biased;
            next = self.events.recv() => next,
            () = self.clock.sleep_for(LOOK_EVERY) => None,
        };
        if let Some(event) = next {
            self.take(event)?;
        }
        self.watch_the_time()
    }

    fn take(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::Asked(timers) => {
                for (key, due_at) in timers {
                    self.ledger.asked(key, due_at);
                }
            }
            Event::Acknowledged(keys) => {
                self.stored += keys.len();
                for key in &keys {
                    self.ledger.acknowledged(key);
                }
                self.kill_if_it_is_time()?;
            }
            Event::NotStored(error) => return Err(error.into()),
            Event::Worker { run, said } => return self.hear(run, said),
        }
        Ok(())
    }

    fn hear(&mut self, run: usize, said: Said) -> Result<(), Failure> {
        let is_ours = run == self.run;
        match said {
            Said::Serves { at } if is_ours => self.serves(at),
            Said::Fired { event, read_at } => {
                let before = self.ledger.fired_so_far();
                self.ledger.fired(&event, read_at);
                if self.ledger.fired_so_far() > before {
                    self.quiet_since = self.quiet_since.max(self.clock.monotonic());
                    self.kill_if_it_is_time()?;
                }
            }
            Said::Nonsense(what) => {
                return Err(Failure::failed(format!(
                    "the worker wrote a line that is no firing: {what}"
                )));
            }
            Said::Ended if is_ours => return self.ended(),
            // The end of a worker that we killed, and have replaced since.
            Said::Serves { .. } | Said::Ended => {}
        }
        Ok(())
    }

    fn start_worker(&mut self) -> Result<(), Failure> {
        self.run += 1;
        let started = worker::command(&self.database)
            .and_then(|command| Worker::start(command, self.run, &self.sender, &self.clock));
        let worker = started.map_err(|error| {
            Failure::refused(format!("the worker process cannot be started: {error}"))
        })?;
        self.worker = Some(worker);
        let since = self.clock.monotonic();
        self.life = Life::Starting { since };
        Ok(())
    }

    /// The worker fires from now on.
    fn serves(&mut self, at: Timestamp) {
        if !matches!(self.life, Life::Starting { .. }) {
            return;
        }
        self.life = Life::Serving;
        let id = self.worker.as_ref().map_or(0, Worker::id);
        let due_meanwhile = self.plan.due_between(self.killed_at, at);
        if let Some(kill) = self.kills.last_mut() {
            kill.downtime = at.since(self.killed_at);
            kill.due_meanwhile = due_meanwhile;
            self.progress.say(&kill.to_string());
        } else {
            self.progress.say(&format!("worker process {id} serves"));
        }
    }

    /// Kills the worker if as many have fired as it was to live for.
    fn kill_if_it_is_time(&mut self) -> Result<(), Failure> {
        let fired = self.ledger.fired_so_far();
        let is_time = |after: &u32| *after as usize <= fired;
        let is_last = fired >= self.plan.timers() as usize;
        if self.life != Life::Serving || is_last || !self.kills_to_come.front().is_some_and(is_time)
        {
            return Ok(());
        }
        self.kills_to_come.pop_front();
        let Some(worker) = &mut self.worker else {
            return Ok(());
        };
        self.killed_at = self.clock.now();
        worker.kill().map_err(|error| cannot_kill(&error))?;
        self.kills.push(Kill {
            process: worker.id(),
            fired_before: fired,
            downtime: Duration::ZERO,
            due_meanwhile: 0,
        });
        let since = self.clock.monotonic();
        self.life = Life::Dead { since };
        Ok(())
    }

    /// Starts the worker again when it has been dead for long enough, and sees to it that nothing
    /// takes for ever.
    fn watch_the_time(&mut self) -> Result<(), Failure> {
        let now = self.clock.monotonic();
        match self.life {
            Life::Dead { since } if now >= since + self.plan.pause() => self.start_worker(),
            Life::Starting { since } if now >= since + START_LIMIT => {
                Err(Failure::refused(format!(
                    "the worker process did not begin to serve within {} seconds",
                    START_LIMIT.as_secs()
                )))
            }
            Life::Stopping { since } if now >= since + END_LIMIT => {
                // Its end is told in a moment.
                let worker = self.worker.as_mut();
                worker
                    .map_or(Ok(()), Worker::kill)
                    .map_err(|error| cannot_kill(&error))
            }
            _ => Ok(()),
        }
    }

    /// Our worker has ended.
    fn ended(&mut self) -> Result<(), Failure> {
        if matches!(self.life, Life::Dead { .. }) {
            return Ok(());
        }
        let Some(worker) = self.worker.take() else {
            return Ok(());
        };
        let id = worker.id();
        let obituary = worker.bury().map_err(|error| {
            Failure::failed(format!("the end of process {id} is unknown: {error}"))
        })?;
        let status = obituary.status;
        let reason = obituary.reason().map(|reason| format!(": {reason}"));
        let reason = reason.unwrap_or_default();
        self.last_words = obituary.log;
        match self.life {
            Life::Stopping { .. } => {
                self.life = Life::Over;
                Ok(())
            }
            Life::Starting { .. } if self.run == 1 => Err(Failure::refused(format!(
                "the worker process {id} ended before it served ({status}){reason}"
            ))),
            _ => Err(Failure::failed(format!(
                "the worker process {id} ended by itself ({status}) after {} of {} timers had fired{reason}",
                self.ledger.fired_so_far(),
                self.plan.timers(),
            ))),
        }
    }

    fn show_progress(&mut self) {
        let now = self.clock.monotonic();
        let stage = Stage {
            timers: self.plan.timers(),
            stored: self.stored,
            fired: self.ledger.fired_so_far(),
            worst: self.ledger.worst_so_far(),
            kills: self.kills.len(),
            until_first: self.plan.first_due().since(self.clock.now()),
            is_dead: self.life != Life::Serving,
            is_overdue: now > self.ends_at + LOOK_EVERY,
        };
        self.progress.show(&stage, now);
    }

    pub(super) const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(super) fn kills(&self) -> &[Kill] {
        &self.kills
    }

    /// The end of the worker's log.
    pub(super) fn last_words(&self) -> &[String] {
        &self.last_words
    }

    /// Ends whatever still runs, so that nobody uses the database any more.
    pub(super) async fn close(&mut self) {
        self.progress.end();
        // Whoever waits for us to take an event waits no longer.
        self.events.close();
        if let Some(mut worker) = self.worker.take()
            && worker.kill().is_ok()
            && let Ok(obituary) = worker.bury()
        {
            self.last_words = obituary.log;
        }
        if let Some(feeding) = self.feeding.take() {
            feeding.abort();
            let _ = feeding.await;
        }
        if let Some(feeder) = self.feeder.take() {
            tokio::select! {
                () = feeder.close() => {}
                () = self.clock.sleep_for(END_LIMIT) => {}
            }
        }
    }
}

fn cannot_kill(error: &io::Error) -> Failure {
    Failure::failed(format!("the worker process cannot be killed: {error}"))
}
