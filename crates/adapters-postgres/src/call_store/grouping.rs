//! Writes that wait for a commit: those of concurrent callers share transactions.
//!
//! Each kind of write has a queue. What waits in it is committed in groups; while one group waits for the
//! disk, the next one is written on another connection. A write that cannot be stored fails alone: its
//! group is split until it is found.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, MutexGuard, PoisonError, Weak};

use futures_util::future::BoxFuture;
use punctual_domain::{TenantId, TimerKey};
use punctual_ports::{BatchResult, PortError, PortErrorKind};
use tokio::sync::{Mutex, mpsc, oneshot};

use super::Calls;
use crate::lane::{BEGIN_DURABLE, BEGIN_GROUPED, BEGIN_IMPATIENT, BEGIN_SPLIT, Session};
use crate::port_errors::{Failure, stopped};

/// Maximum number of callers that wait.
const MAX_WAITING: usize = 4_096;
/// Maximum number of writes in a transaction.
const MAX_ROWS: usize = 500;
/// Maximum number of bytes in it.
const MAX_BYTES: usize = 4 << 20;
/// Number of groups of a kind that are written at once.
const COMMITTERS: usize = 2;

/// What a write of its kind takes that no other may have before it is committed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Taken {
    Call(TimerKey),
    IdempotencyKey(TenantId, String),
}

/// A kind of write.
pub(super) trait Write: Clone + Send + Sync + Sized + 'static {
    type Outcome: Send + 'static;
    const OPERATION: &'static str;
    /// Whether the loss of a commit in a crash of the server would lose more than time.
    const IS_DURABLE: bool = true;

    /// The call that it is about.
    fn key(&self) -> &TimerKey;

    /// What else it takes.
    fn takes_too(&self) -> Option<Taken> {
        None
    }

    /// Its size, roughly.
    fn bytes(&self) -> usize;

    /// Writes a group in one transaction. No two are about the same call, and they are in the order of ids, in
    /// which all transactions lock calls. Returns the outcome of each, in their order.
    fn commit<'a>(
        calls: &'a Calls,
        session: &'a Session,
        begin: &'static str,
        group: &'a [Self],
    ) -> Committed<'a, Self>;
}

/// The outcome of a write.
pub(super) type Written<W> = Result<<W as Write>::Outcome, PortError>;

/// A transaction under way, which ends with the outcome of each write of its group.
pub(super) type Committed<'a, W> = BoxFuture<'a, Result<Vec<Written<W>>, Failure>>;

/// A write and its place in the batch.
type Placed<W> = (usize, W);

struct Job<W: Write> {
    writes: Vec<W>,
    answer: oneshot::Sender<BatchResult<W::Outcome>>,
}

/// The entrance of a queue, until it is closed.
pub(super) struct Queue<W: Write> {
    sender: std::sync::Mutex<Option<mpsc::Sender<Job<W>>>>,
    waiting: Arc<Mutex<Waiting<W>>>,
}

/// The exit, which all committers share.
struct Waiting<W: Write> {
    receiver: mpsc::Receiver<Job<W>>,
    /// Calls that did not fit into the transaction before.
    rest: VecDeque<Job<W>>,
}

impl<W: Write> Default for Queue<W> {
    fn default() -> Self {
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        let waiting = Waiting {
            receiver,
            rest: VecDeque::new(),
        };
        Self {
            sender: std::sync::Mutex::new(Some(sender)),
            waiting: Arc::new(Mutex::new(waiting)),
        }
    }
}

impl<W: Write> Queue<W> {
    /// Commits what waits, until the queue is closed or the store is dropped.
    pub(super) fn start(&self, calls: &Arc<Calls>) {
        for _ in 0..COMMITTERS {
            let committing = commit_all(Arc::downgrade(calls), Arc::clone(&self.waiting));
            drop(tokio::spawn(committing));
        }
    }

    /// Waits for the commit of writes.
    pub(super) async fn write(&self, writes: Vec<W>) -> BatchResult<W::Outcome> {
        if writes.is_empty() {
            return Ok(Vec::new());
        }
        let (answer, answered) = oneshot::channel();
        let job = Job { writes, answer };
        let sender = self.sender().clone();
        let sender = sender.ok_or_else(|| stopped(W::OPERATION))?;
        sender.try_send(job).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => PortError::new(
                PortErrorKind::Overloaded,
                W::OPERATION,
                format!("{MAX_WAITING} callers are waiting for the database already: try again"),
            ),
            mpsc::error::TrySendError::Closed(_) => stopped(W::OPERATION),
        })?;
        drop(sender);
        let answered = answered.await;
        answered.unwrap_or_else(|_| Err(stopped(W::OPERATION)))
    }

    /// Refuses what comes from now on. What waits is still done.
    pub(super) fn close(&self) {
        *self.sender() = None;
    }

    /// Waits until a queue that was closed has nothing left that is not being written.
    pub(super) async fn drained(&self) {
        while !self.waiting.lock().await.is_empty() {
            tokio::task::yield_now().await;
        }
    }

    fn sender(&self) -> MutexGuard<'_, Option<mpsc::Sender<Job<W>>>> {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<W: Write> Waiting<W> {
    /// The jobs of the next transaction; none once the queue is closed and empty.
    async fn next(&mut self) -> Vec<Job<W>> {
        let first = match self.rest.pop_front() {
            Some(job) => job,
            None => match self.receiver.recv().await {
                Some(job) => job,
                None => return Vec::new(),
            },
        };
        // Those that the last commit has answered write again: they take part if they run first.
        tokio::task::yield_now().await;
        let (mut rows, mut bytes) = (first.writes.len(), first.bytes());
        let mut jobs = vec![first];
        while rows < MAX_ROWS && bytes < MAX_BYTES {
            let Ok(job) = self.receiver.try_recv() else {
                break;
            };
            if rows + job.writes.len() > MAX_ROWS || bytes + job.bytes() > MAX_BYTES {
                self.rest.push_back(job);
                break;
            }
            rows += job.writes.len();
            bytes += job.bytes();
            jobs.push(job);
        }
        jobs
    }

    fn is_empty(&self) -> bool {
        self.rest.is_empty() && self.receiver.is_empty()
    }
}

impl<W: Write> Job<W> {
    fn bytes(&self) -> usize {
        self.writes.iter().map(W::bytes).sum()
    }
}

async fn commit_all<W: Write>(calls: Weak<Calls>, waiting: Arc<Mutex<Waiting<W>>>) {
    loop {
        let jobs = waiting.lock().await.next().await;
        let Some(calls) = calls.upgrade().filter(|_| !jobs.is_empty()) else {
            return;
        };
        let (mut writes, mut answers) = (Vec::new(), Vec::with_capacity(jobs.len()));
        for job in jobs {
            answers.push((job.writes.len(), job.answer));
            writes.extend(job.writes);
        }
        let mut outcomes = write_all(&calls, writes).await.into_iter();
        for (count, answer) in answers {
            // A caller that no longer waits finds out by reading.
            let _ = answer.send(Ok(outcomes.by_ref().take(count).collect()));
        }
    }
}

/// Writes all, as if each had come by itself, in their order.
pub(super) async fn write_all<W: Write>(calls: &Arc<Calls>, writes: Vec<W>) -> Vec<Written<W>> {
    let mut outcomes: Vec<Option<Written<W>>> = writes.iter().map(|_| None).collect();
    let mut open: Vec<Placed<W>> = writes.into_iter().enumerate().collect();
    let mut away: Option<PortError> = None;
    while !open.is_empty() {
        let (mut part, rest) = firsts(open);
        open = rest;
        part.sort_by(|(_, one), (_, other)| by_id(one.key()).cmp(&by_id(other.key())));
        let mut parts = vec![];
        while !part.is_empty() {
            let size = part_size(&part);
            let next = part.split_off(size);
            parts.push((part, false));
            part = next;
        }
        parts.reverse();
        while let Some((part, is_split)) = parts.pop() {
            let (places, group): (Vec<usize>, Vec<W>) = part.into_iter().unzip();
            let group = Arc::new(group);
            // If the database is away, the rest does not wait for it again.
            let written = match &away {
                Some(error) => Err(error.during(W::OPERATION)),
                None => write_group(calls, &group, is_split).await,
            };
            match written {
                Ok(written) => {
                    for (place, outcome) in places.into_iter().zip(written) {
                        outcomes[place] = Some(outcome);
                    }
                }
                Err(error) if group.len() > 1 && concerns_one(&error) => {
                    let mut first: Vec<_> = places.into_iter().zip(group.iter().cloned()).collect();
                    let second = first.split_off(first.len().div_ceil(2));
                    parts.extend([(second, true), (first, true)]);
                }
                Err(error) => {
                    if error.kind() == PortErrorKind::Unavailable {
                        away = Some(error.during(W::OPERATION));
                    }
                    for place in places {
                        outcomes[place] = Some(Err(error.during(W::OPERATION)));
                    }
                }
            }
        }
    }
    let missing = || Err(stopped(W::OPERATION));
    outcomes
        .into_iter()
        .map(|it| it.unwrap_or_else(missing))
        .collect()
}

/// How many of these one transaction takes.
fn part_size<W: Write>(part: &[Placed<W>]) -> usize {
    let mut bytes = 0;
    let fits = |(_, write): &&Placed<W>| {
        bytes += write.bytes();
        bytes <= MAX_BYTES
    };
    part.iter().take(MAX_ROWS).take_while(fits).count().max(1)
}

/// In the order in which they are locked.
const fn by_id(key: &TimerKey) -> (punctual_domain::ServiceCallId, &TenantId) {
    (key.service_call_id, &key.tenant_id)
}

/// Those that take nothing that one before them takes, and the others.
fn firsts<W: Write>(open: Vec<Placed<W>>) -> (Vec<Placed<W>>, Vec<Placed<W>>) {
    let mut taken = HashSet::new();
    open.into_iter().partition(|(_, write)| {
        let is_first = taken.insert(Taken::Call(write.key().clone()));
        let takes_too = write.takes_too();
        takes_too.is_none_or(|it| taken.insert(it)) && is_first
    })
}

fn concerns_one(error: &PortError) -> bool {
    matches!(error.kind(), PortErrorKind::Rejected | PortErrorKind::Busy)
}

async fn write_group<W: Write>(
    calls: &Arc<Calls>,
    group: &Arc<Vec<W>>,
    is_split: bool,
) -> Result<Vec<Written<W>>, PortError> {
    let begin = match (W::IS_DURABLE, is_split, group.len()) {
        (false, ..) => BEGIN_IMPATIENT,
        (true, false, 1) => BEGIN_DURABLE,
        (true, true, 2..) => BEGIN_SPLIT,
        (true, ..) => BEGIN_GROUPED,
    };
    let (writing, group) = (Arc::clone(calls), Arc::clone(group));
    let work = move |session: Arc<Session>| -> BoxFuture<'static, _> {
        let (calls, group) = (Arc::clone(&writing), Arc::clone(&group));
        Box::pin(async move { W::commit(&calls, &session, begin, &group).await })
    };
    calls.writer().run(W::OPERATION, work).await
}
