//! The life of the worker: it is started, killed, started again, and in the end asked to stop.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use punctual_adapters_system::SystemClock;
use punctual_domain::Timestamp;
use punctual_ports::ClockPort;
use tokio::sync::mpsc;

use super::event::Event;
use super::worker::Worker;
use crate::failure::Failure;

/// How long a worker may take until it serves.
const START_LIMIT: Duration = Duration::from_secs(20);
/// How long a worker may take to stop.
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

/// The worker, whichever process it is at the moment.
pub(super) struct Process {
    clock: SystemClock,
    /// How it is started on the database.
    command: fn(&Path) -> io::Result<Command>,
    database: PathBuf,
    events: mpsc::Sender<Event>,
    worker: Option<Worker>,
    /// Which worker it is that we have: the first, the second.
    run: usize,
    life: Life,
    killed_at: Timestamp,
    last_words: Vec<String>,
}

impl Process {
    /// Gets ready; nothing runs yet.
    pub(super) const fn new(
        clock: SystemClock,
        command: fn(&Path) -> io::Result<Command>,
        database: PathBuf,
        events: mpsc::Sender<Event>,
    ) -> Self {
        Self {
            clock,
            command,
            database,
            events,
            worker: None,
            run: 0,
            life: Life::Over,
            killed_at: Timestamp::MIN,
            last_words: Vec::new(),
        }
    }

    pub(super) fn start(&mut self) -> Result<(), Failure> {
        self.run += 1;
        let started = (self.command)(&self.database)
            .and_then(|command| Worker::start(command, self.run, &self.events, &self.clock));
        let worker = started.map_err(|error| {
            Failure::refused(format!("the worker process cannot be started: {error}"))
        })?;
        self.worker = Some(worker);
        let since = self.clock.monotonic();
        self.life = Life::Starting { since };
        Ok(())
    }

    pub(super) fn is_serving(&self) -> bool {
        self.life == Life::Serving
    }

    pub(super) fn is_over(&self) -> bool {
        self.life == Life::Over
    }

    pub(super) fn id(&self) -> u32 {
        self.worker.as_ref().map_or(0, Worker::id)
    }

    /// When it was killed last.
    pub(super) const fn killed_at(&self) -> Timestamp {
        self.killed_at
    }

    /// The `run`-th worker serves from now on. Returns whether that is ours, and news.
    pub(super) fn serves(&mut self, run: usize) -> bool {
        let is_news = run == self.run && matches!(self.life, Life::Starting { .. });
        if is_news {
            self.life = Life::Serving;
        }
        is_news
    }

    /// Kills it, and returns which process that was.
    pub(super) fn kill(&mut self) -> Result<u32, Failure> {
        let id = self.id();
        self.killed_at = self.clock.now();
        self.kill_it()?;
        let since = self.clock.monotonic();
        self.life = Life::Dead { since };
        Ok(id)
    }

    fn kill_it(&mut self) -> Result<(), Failure> {
        let killed = self.worker.as_mut().map_or(Ok(()), Worker::kill);
        killed.map_err(|error| {
            Failure::failed(format!("the worker process cannot be killed: {error}"))
        })
    }

    pub(super) fn ask_to_stop(&mut self) {
        if let Some(worker) = &self.worker {
            worker.ask_to_stop();
        }
        let since = self.clock.monotonic();
        self.life = Life::Stopping { since };
    }

    /// Starts the worker again when it has been dead for `pause`, and sees to it that nothing
    /// takes for ever.
    pub(super) fn watch_the_time(&mut self, pause: Duration) -> Result<(), Failure> {
        let now = self.clock.monotonic();
        match self.life {
            Life::Dead { since } if now >= since + pause => self.start(),
            Life::Starting { since } if now >= since + START_LIMIT => {
                Err(Failure::refused(format!(
                    "the worker process did not begin to serve within {} seconds",
                    START_LIMIT.as_secs()
                )))
            }
            // Its end is told in a moment.
            Life::Stopping { since } if now >= since + END_LIMIT => self.kill_it(),
            _ => Ok(()),
        }
    }

    /// The `run`-th worker has ended. If that is ours and we did not end it, it fails; `so_far`
    /// tells what had happened by then.
    pub(super) fn ended(
        &mut self,
        run: usize,
        so_far: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        // One that we killed, and may have replaced since.
        if run != self.run || matches!(self.life, Life::Dead { .. }) {
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
                "the worker process {id} ended by itself ({status}) after {}{reason}",
                so_far()
            ))),
        }
    }

    /// The end of the worker's log.
    pub(super) fn last_words(&self) -> &[String] {
        &self.last_words
    }

    /// Ends it if it still runs.
    pub(super) fn close(&mut self) {
        if let Some(mut worker) = self.worker.take()
            && worker.kill().is_ok()
            && let Ok(obituary) = worker.bury()
        {
            self.last_words = obituary.log;
        }
    }
}
