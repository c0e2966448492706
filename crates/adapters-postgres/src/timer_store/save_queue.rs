//! Schedules that wait for a commit: all that wait share one, on two connections in turn.

use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard, PoisonError, Weak};

use punctual_ports::{BatchResult, PortError, PortErrorKind, SaveOutcome, SaveTimer};
use tokio::sync::{Mutex, mpsc, oneshot};

use super::saving;
use super::{Inner, PostgresTimerStore};
use crate::port_errors::stopped;
use crate::values::Instant;

pub(super) const OPERATION: &str = "schedule timers";
/// Maximum number of calls that wait.
const MAX_WAITING: usize = 4_096;
/// Maximum number of schedules in a transaction.
const MAX_ROWS: usize = 1_000;
/// Maximum number of bytes of their data.
const MAX_BYTES: usize = 4 << 20;

/// A call that waits.
pub(super) struct Job {
    pub(super) timers: Vec<SaveTimer>,
    /// What takes the place of the server's clock.
    pub(super) clock: Option<Instant>,
    pub(super) answer: oneshot::Sender<BatchResult<SaveOutcome>>,
}

impl Job {
    fn bytes(&self) -> usize {
        let data = |timer: &SaveTimer| timer.data.as_ref().map_or(0, |data| data.as_json().len());
        self.timers.iter().map(data).sum()
    }
}

/// The entrance of the queue, until it is closed.
pub(super) struct SaveQueue {
    sender: std::sync::Mutex<Option<mpsc::Sender<Job>>>,
}

/// The exit, which both connections share.
pub(super) struct Waiting {
    receiver: mpsc::Receiver<Job>,
    /// Calls that did not fit into the transaction before.
    rest: VecDeque<Job>,
}

pub(super) type SharedWaiting = Arc<Mutex<Waiting>>;

impl SaveQueue {
    pub(super) fn new() -> (Self, SharedWaiting) {
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        let waiting = Waiting {
            receiver,
            rest: VecDeque::new(),
        };
        let sender = std::sync::Mutex::new(Some(sender));
        (Self { sender }, Arc::new(Mutex::new(waiting)))
    }

    /// Waits for the commit of a call's schedules.
    pub(super) async fn save(
        &self,
        timers: Vec<SaveTimer>,
        clock: Option<Instant>,
    ) -> BatchResult<SaveOutcome> {
        let (answer, answered) = oneshot::channel();
        let job = Job {
            timers,
            clock,
            answer,
        };
        let sender = self.sender().clone().ok_or_else(|| stopped(OPERATION))?;
        sender.try_send(job).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => PortError::new(
                PortErrorKind::Overloaded,
                OPERATION,
                format!("{MAX_WAITING} calls are waiting for the database already: try again"),
            ),
            mpsc::error::TrySendError::Closed(_) => stopped(OPERATION),
        })?;
        drop(sender);
        answered.await.unwrap_or_else(|_| Err(stopped(OPERATION)))
    }

    /// Refuses what comes from now on. What waits is still done.
    pub(super) fn close(&self) {
        *self.sender() = None;
    }

    fn sender(&self) -> MutexGuard<'_, Option<mpsc::Sender<Job>>> {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// The calls of the next transaction; none once the queue is closed and empty.
    async fn next(&mut self) -> Vec<Job> {
        let first = match self.rest.pop_front() {
            Some(job) => job,
            None => match self.receiver.recv().await {
                Some(job) => job,
                None => return Vec::new(),
            },
        };
        // Those that the last commit has answered schedule again: they take part if they run first.
        tokio::task::yield_now().await;
        let (mut rows, mut bytes) = (first.timers.len(), first.bytes());
        let mut jobs = vec![first];
        while rows < MAX_ROWS && bytes < MAX_BYTES {
            let Some(job) = self
                .rest
                .pop_front()
                .or_else(|| self.receiver.try_recv().ok())
            else {
                break;
            };
            let fits = rows + job.timers.len() <= MAX_ROWS && bytes + job.bytes() <= MAX_BYTES;
            if !fits || job.clock != jobs[0].clock {
                self.rest.push_front(job);
                break;
            }
            rows += job.timers.len();
            bytes += job.bytes();
            jobs.push(job);
        }
        jobs
    }

    fn is_empty(&self) -> bool {
        self.rest.is_empty() && self.receiver.is_empty()
    }
}

/// Whether a queue that was closed has no calls left.
pub(super) async fn is_drained(waiting: &SharedWaiting) -> bool {
    waiting.lock().await.is_empty()
}

/// Commits what waits, on one connection, until the queue is closed and empty.
pub(super) async fn commit_all(store: Weak<Inner>, lane: usize, waiting: SharedWaiting) {
    loop {
        let jobs = waiting.lock().await.next().await;
        let Some(clock) = jobs.first().map(|job| job.clock) else {
            return;
        };
        let Some(inner) = store.upgrade() else {
            return;
        };
        let store = PostgresTimerStore { inner };
        let (mut timers, mut answers) = (Vec::new(), Vec::with_capacity(jobs.len()));
        for job in jobs {
            answers.push((job.timers.len(), job.answer));
            timers.extend(job.timers);
        }
        let mut outcomes = saving::save(&store, lane, timers, clock).await.into_iter();
        for (count, answer) in answers {
            // A caller that no longer waits finds out by reading.
            let _ = answer.send(Ok(outcomes.by_ref().take(count).collect()));
        }
    }
}
