//! The show itself: starts the worker, schedules, watches the firings, kills and starts again.

use std::collections::VecDeque;
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
use super::process::Process;
use super::progress::{Progress, Stage};
use super::report::Kill;
use super::worker::{self, Said};
use crate::failure::Failure;

/// How often we look, when nothing happens.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How many events may wait for us.
const EVENTS: usize = 4_096;
/// When everything is due and nothing new has fired for so long, the rest is lost.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the database may take to close.
const END_LIMIT: Duration = Duration::from_secs(5);

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
    process: Process,
    stored: usize,
    /// After how many firings to kill, the next one first.
    kills_to_come: VecDeque<u32>,
    kills: Vec<Kill>,
    /// When the last one is due, and when one fired last, but not before that. Both are of the
    /// monotonic clock.
    ends_at: Duration,
    quiet_since: Duration,
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
        let process = Process::new(
            clock.clone(),
            worker::command,
            database.clone(),
            sender.clone(),
        );
        Self {
            clock,
            process,
            database,
            plan,
            ledger: Ledger::default(),
            progress,
            sender,
            events,
            feeder: None,
            feeding: None,
            stored: 0,
            kills_to_come: kills.into(),
            kills: Vec::new(),
            ends_at: Duration::ZERO,
            quiet_since: Duration::ZERO,
        }
    }

    /// Runs to the end: all timers have fired, or the rest is lost.
    pub(super) async fn run(&mut self) -> Result<(), Failure> {
        let feeder = Feeder::open(&self.database, &self.clock).await?;
        self.feeder = Some(feeder.clone());
        self.process.start()?;
        while !self.process.is_serving() {
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
        self.process.ask_to_stop();
        while !self.process.is_over() {
            self.step().await?;
        }
        Ok(())
    }

    /// Whoever goes on firing after it was asked to stop has nothing new to tell.
    fn is_complete(&self) -> bool {
        let timers = self.plan.timers() as usize;
        self.process.is_serving() && self.stored == timers && self.ledger.fired_so_far() == timers
    }

    fn is_hopeless(&self) -> bool {
        let is_quiet = self.clock.monotonic() > self.quiet_since + PATIENCE;
        self.process.is_serving() && is_quiet
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
        self.process.watch_the_time(self.plan.pause())
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
        match said {
            Said::Serves { at, .. } => {
                if self.process.serves(run) {
                    self.tell_that_it_serves(at);
                }
            }
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
            Said::Ended => {
                let (fired, timers) = (self.ledger.fired_so_far(), self.plan.timers());
                let so_far = || format!("{fired} of {timers} timers had fired");
                return self.process.ended(run, so_far);
            }
        }
        Ok(())
    }

    /// The worker fires from now on.
    fn tell_that_it_serves(&mut self, at: Timestamp) {
        let killed_at = self.process.killed_at();
        let due_meanwhile = self.plan.due_between(killed_at, at);
        if let Some(kill) = self.kills.last_mut() {
            kill.downtime = at.since(killed_at);
            kill.due_meanwhile = due_meanwhile;
            self.progress.say(&kill.to_string());
        } else {
            let id = self.process.id();
            self.progress.say(&format!("worker process {id} serves"));
        }
    }

    /// Kills the worker if as many have fired as it was to live for.
    fn kill_if_it_is_time(&mut self) -> Result<(), Failure> {
        let fired = self.ledger.fired_so_far();
        let is_time = |after: &u32| *after as usize <= fired;
        let is_last = fired >= self.plan.timers() as usize;
        if !self.process.is_serving() || is_last || !self.kills_to_come.front().is_some_and(is_time)
        {
            return Ok(());
        }
        self.kills_to_come.pop_front();
        let process = self.process.kill()?;
        self.kills.push(Kill {
            process,
            fired_before: fired,
            downtime: Duration::ZERO,
            due_meanwhile: 0,
        });
        Ok(())
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
            is_dead: !self.process.is_serving(),
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
        self.process.last_words()
    }

    /// Ends whatever still runs, so that nobody uses the database any more.
    pub(super) async fn close(&mut self) {
        self.progress.end();
        // Whoever waits for us to take an event waits no longer.
        self.events.close();
        self.process.close();
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
