//! The show itself: starts the service, submits, watches the target, kills and starts again.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use punctual_adapters_system::SystemClock;
use punctual_domain::Timestamp;
use punctual_ports::ClockPort;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::books::Books;
use super::client::Client;
use super::event::Event;
use super::report::Kill;
use super::target::Target;
use crate::demo::event::Event as OfWorker;
use crate::demo::plan::Plan;
use crate::demo::process::Process;
use crate::demo::progress::{Progress, Stage};
use crate::demo::worker::{self, Said};
use crate::failure::Failure;

/// How often we look, when nothing happens.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How many events may wait for us.
const EVENTS: usize = 4_096;
/// How many submit at a time.
const CLIENTS: u32 = 8;
/// When everything is due and nothing has happened for so long, the rest has no outcome. An attempt
/// may take that long by itself.
const PATIENCE: Duration = Duration::from_secs(45);

/// A demo under way.
pub(super) struct Show {
    clock: SystemClock,
    plan: Plan,
    books: Books,
    progress: Progress,
    process: Process,
    of_worker: mpsc::Receiver<OfWorker>,
    sender: mpsc::Sender<Event>,
    events: mpsc::Receiver<Event>,
    /// Where the service listens, while it lives.
    api: watch::Sender<Option<SocketAddr>>,
    /// The target and the clients.
    tasks: JoinSet<()>,
    /// After how many requests to kill, the next one first.
    kills_to_come: VecDeque<u32>,
    kills: Vec<Kill>,
    /// When the last one is due, and when something happened last, but not before that. Both are of
    /// the monotonic clock.
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
        let (tell, of_worker) = mpsc::channel(EVENTS);
        let (sender, events) = mpsc::channel(EVENTS);
        let process = Process::new(clock.clone(), worker::calls_command, database, tell);
        Self {
            clock,
            plan,
            books: Books::default(),
            progress,
            process,
            of_worker,
            sender,
            events,
            api: watch::Sender::new(None),
            tasks: JoinSet::new(),
            kills_to_come: kills.into(),
            kills: Vec::new(),
            ends_at: Duration::ZERO,
            quiet_since: Duration::ZERO,
        }
    }

    /// Runs to the end: all calls have an outcome, or the rest will never have one.
    pub(super) async fn run(&mut self) -> Result<(), Failure> {
        let target = Target::listen().await.map_err(|error| {
            Failure::refused(format!(
                "the target of the calls cannot listen on this machine: {error}"
            ))
        })?;
        let address = target.address();
        let serve = target.serve(self.sender.clone(), self.clock.clone());
        self.tasks.spawn(serve);
        self.process.start()?;
        while !self.process.is_serving() {
            self.step().await?;
        }
        // Only now: however long the start took, each is submitted before it is due.
        self.plan = self.plan.clone().starting_at(self.clock.now());
        self.books = Books::new(&self.plan);
        self.ends_at = self.clock.monotonic() + self.plan.length();
        self.quiet_since = self.ends_at;
        self.start_clients(address);
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

    fn start_clients(&mut self, target: SocketAddr) {
        for first in 0..CLIENTS {
            let client = Client {
                plan: self.plan.clone(),
                target,
                api: self.api.subscribe(),
                events: self.sender.clone(),
                clock: self.clock.clone(),
            };
            self.tasks.spawn(client.run(first, CLIENTS as usize));
        }
    }

    fn is_complete(&self) -> bool {
        self.process.is_serving() && self.books.is_complete()
    }

    fn is_hopeless(&self) -> bool {
        let is_quiet = self.clock.monotonic() > self.quiet_since + PATIENCE;
        self.process.is_serving() && is_quiet
    }

    /// Lives through whatever happens next, or a short time if nothing does.
    async fn step(&mut self) -> Result<(), Failure> {
        tokio::select! {
            biased;
            Some(OfWorker::Worker { run, said }) = self.of_worker.recv() => self.hear(run, said)?,
            Some(event) = self.events.recv() => self.take(event)?,
            () = self.clock.sleep_for(LOOK_EVERY) => {}
        }
        self.process.watch_the_time(self.plan.pause())
    }

    fn take(&mut self, event: Event) -> Result<(), Failure> {
        self.quiet_since = self.quiet_since.max(self.clock.monotonic());
        match event {
            Event::Accepted { n } => self.books.accepted(n),
            Event::SentAgain => self.books.sent_again(),
            Event::Refused(what) => {
                return Err(Failure::failed(format!(
                    "the service does not do as it should: {what}"
                )));
            }
            Event::Requested { n, at, seen } => {
                self.books.requested(n, at);
                self.kill_if_it_is_time()?;
                // The target may have gone already.
                let _ = seen.send(());
            }
            Event::Ended { n, ending } => self.books.ended(n, ending),
        }
        Ok(())
    }

    fn hear(&mut self, run: usize, said: Said) -> Result<(), Failure> {
        match said {
            Said::Serves { at, api } => {
                if self.process.serves(run) {
                    self.api.send_replace(api);
                    self.tell_that_it_serves(at);
                }
                Ok(())
            }
            Said::Ended => {
                let (done, calls) = (self.books.done_so_far(), self.plan.timers());
                let so_far = || format!("{done} of {calls} calls had been made");
                self.process.ended(run, so_far)
            }
            Said::Fired { event, .. } => Err(wrote(&format!("a firing of {}", event.key()))),
            Said::Nonsense(what) => Err(wrote(&what)),
        }
    }

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

    /// Kills the service if as many requests have come as it was to live for: the last one is not
    /// answered yet.
    fn kill_if_it_is_time(&mut self) -> Result<(), Failure> {
        let requests = self.books.requests_so_far();
        let is_time = |after: &u32| *after as usize <= requests;
        if !self.process.is_serving() || !self.kills_to_come.front().is_some_and(is_time) {
            return Ok(());
        }
        self.kills_to_come.pop_front();
        self.api.send_replace(None);
        let process = self.process.kill()?;
        self.kills.push(Kill {
            process,
            requests_before: requests,
            downtime: Duration::ZERO,
            due_meanwhile: 0,
        });
        Ok(())
    }

    fn show_progress(&mut self) {
        let now = self.clock.monotonic();
        let stage = Stage {
            timers: self.plan.timers(),
            stored: self.books.accepted_so_far(),
            fired: self.books.done_so_far(),
            worst: self.books.worst_so_far(),
            kills: self.kills.len(),
            until_first: self.plan.first_due().since(self.clock.now()),
            is_dead: !self.process.is_serving(),
            is_overdue: now > self.ends_at + LOOK_EVERY,
        };
        self.progress.show(&stage, now);
    }

    pub(super) const fn books(&self) -> &Books {
        &self.books
    }

    pub(super) fn kills(&self) -> &[Kill] {
        &self.kills
    }

    /// The end of the service's log.
    pub(super) fn last_words(&self) -> &[String] {
        self.process.last_words()
    }

    /// Ends whatever still runs, so that nobody uses the database any more.
    pub(super) async fn close(&mut self) {
        self.progress.end();
        // Whoever waits for us to take an event waits no longer.
        self.events.close();
        self.of_worker.close();
        self.process.close();
        self.tasks.shutdown().await;
    }
}

fn wrote(what: &str) -> Failure {
    Failure::failed(format!(
        "the service wrote a line to its standard output, where nothing belongs: {what}"
    ))
}
