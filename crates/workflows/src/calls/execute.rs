//! Executing the one attempt of each call, many concurrently and fairly.
//!
//! The start of an attempt is durable before anything is sent, and its outcome is committed together
//! with its event. A crash in between leaves a started attempt without an outcome: whether the target
//! got the request is unknown, so it is `Interrupted` and never repeated. So is one whose start was
//! stored although the store reported a failure. What another instance has started is left alone until
//! its lease has expired.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use punctual_domain::service_call::{ErrorKind, ErrorMeta, Outcome};
use punctual_ports::{
    ClaimedExecution, Execution, ExecutionKey, FinishExecution, HttpClientPort, PortError,
    WaitingQuery,
};
use tokio::sync::watch;

use super::attempt::{Attempt, Ended, finish_of, started_envelope};
use super::concurrency_limiter::{ConcurrencyLimiter, Permit};
use super::{CallPorts, CallSettings};
use crate::alarm::{Alarm, SharedAlarm};
use crate::driven::{NextWake, SteppedWorker};
use crate::fire_due_timers::in_flight::LeaseExpiry;
use crate::fire_due_timers::{SettingsError, WorkerStopped};
use crate::metric_names;
use crate::retries::{PORT_BACKOFF, Retries};

/// Maximum number of abandoned attempts ended at once.
const ABANDONED_BATCH: usize = 200;
/// How long recording the outcomes of interrupted attempts may take.
const RECORD_LIMIT: Duration = Duration::from_secs(5);

const ABANDONED: &str =
    "the process ended during the attempt: whether the target got the request is not known";
const UNCONFIRMED: &str =
    "the beginning of the attempt could not be confirmed, and the request was not sent";

/// The attempts in flight.
type RunningAttempts = FuturesUnordered<BoxFuture<'static, Ended>>;

/// Executes accepted attempts.
pub struct ExecuteCalls {
    ports: CallPorts,
    http: Arc<dyn HttpClientPort>,
    settings: CallSettings,
    limiter: ConcurrencyLimiter,
    /// The keys of the attempts in flight.
    in_flight: BTreeSet<ExecutionKey>,
    /// Attempts that were to start when the store reported a failure. Nothing was sent.
    unconfirmed: BTreeSet<ExecutionKey>,
    /// When to check for abandoned attempts, on the monotonic clock; `None` for at once.
    recheck_at: Option<Duration>,
    retries: Retries,
    /// Interrupts every attempt.
    interrupt: watch::Sender<bool>,
    alarm: SharedAlarm,
}

impl ExecuteCalls {
    /// On these adapters. At most one may run on an instance of a store: it ends every attempt that the
    /// instance has started before.
    ///
    /// # Errors
    /// If a setting is outside its limits.
    pub fn new(
        ports: &CallPorts,
        http: Arc<dyn HttpClientPort>,
        settings: CallSettings,
    ) -> Result<Self, SettingsError> {
        settings.check()?;
        Ok(Self {
            ports: ports.clone(),
            http,
            settings,
            limiter: ConcurrencyLimiter::default(),
            in_flight: BTreeSet::new(),
            unconfirmed: BTreeSet::new(),
            recheck_at: None,
            retries: Retries::new(PORT_BACKOFF, "attempts could not be started"),
            interrupt: watch::Sender::new(false),
            alarm: SharedAlarm::default(),
        })
    }

    /// Runs until `shutdown` is ready, then starts nothing more, drains what is in flight, and ends the
    /// rest as interrupted. Returns the number of those.
    ///
    /// # Errors
    /// With the cause, after a critical error of the store.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) -> Result<usize, WorkerStopped> {
        let mut shutdown = pin!(shutdown);
        let mut running = RunningAttempts::new();
        let (clock, notifier) = (Arc::clone(&self.ports.clock), self.ports.to_execute.clone());
        loop {
            let alarm = self.fill(&mut running).await?;
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                Some(ended) = running.next(), if !running.is_empty() => self.ended(&ended)?,
                () = notifier.notified() => {}
                () = alarm.wait(clock.as_ref()) => {}
            }
        }
        self.drain(running).await
    }

    async fn drain(&mut self, mut running: RunningAttempts) -> Result<usize, WorkerStopped> {
        let clock = Arc::clone(&self.ports.clock);
        let mut time_is_up = clock.sleep_for(self.settings.drain);
        let mut interrupted = None;
        loop {
            tokio::select! {
                biased;
                ended = running.next() => match ended {
                    Some(ended) => self.ended(&ended)?,
                    None => return Ok(interrupted.unwrap_or_default()),
                },
                () = &mut time_is_up => match interrupted {
                    None => {
                        let left = running.len();
                        tracing::warn!(attempts = left, "attempts are still in flight and are interrupted");
                        interrupted = Some(left);
                        self.interrupt.send_replace(true);
                        time_is_up = clock.sleep_for(RECORD_LIMIT);
                    }
                    Some(interrupted) => {
                        let left = running.len();
                        tracing::warn!(attempts = left, "results cannot be recorded: the next start will call them interrupted");
                        return Ok(interrupted);
                    }
                },
            }
        }
    }

    /// Starts what may start, while polling what is in flight, and returns when to do it again.
    async fn fill(&mut self, running: &mut RunningAttempts) -> Result<Alarm, WorkerStopped> {
        self.ports.to_execute.clear();
        let mut ended = Vec::new();
        let filled = {
            // Not to be dropped in the middle: a started attempt must be executed.
            let mut starting = pin!(self.start_some());
            loop {
                tokio::select! {
                    biased;
                    filled = &mut starting => break filled,
                    Some(one) = running.next(), if !running.is_empty() => ended.push(one),
                }
            }
        };
        for one in &ended {
            self.ended(one)?;
        }
        let (started, failure) = filled;
        // There may be more; and a slot that became free meanwhile may be another tenant's.
        let again = !started.is_empty() || !ended.is_empty();
        running.extend(started);
        let count = u32::try_from(self.in_flight.len()).unwrap_or(u32::MAX);
        metrics::gauge!(metric_names::EXECUTIONS_RUNNING).set(f64::from(count));
        let wait = if let Some(error) = failure {
            self.retries.failed(error)?
        } else {
            self.retries.succeeded();
            if again {
                Duration::ZERO
            } else {
                self.settings.polling_interval
            }
        };
        Ok(self.alarm.set_after(wait, self.ports.clock.as_ref()))
    }

    fn ended(&mut self, ended: &Ended) -> Result<(), WorkerStopped> {
        self.limiter.release(&ended.permit);
        self.in_flight.remove(&ended.key);
        ended.recorded.clone()
    }

    /// Starts attempts for which there is a slot, once: they are sent before the next read. Started ones
    /// are returned also after an error.
    async fn start_some(&mut self) -> (Vec<BoxFuture<'static, Ended>>, Option<PortError>) {
        let mut started = Vec::new();
        if let Err(error) = self.recheck().await {
            return (started, Some(error));
        }
        let Some(query) = self.limiter.query(&self.settings) else {
            return (started, None);
        };
        let failure = self.start(query, &mut started).await.err();
        (started, failure)
    }

    async fn start(
        &mut self,
        query: WaitingQuery,
        started: &mut Vec<BoxFuture<'static, Ended>>,
    ) -> Result<(), PortError> {
        let (clock, lease) = (self.ports.clock.as_ref(), self.settings.lease);
        let now = clock.now();
        // Of the time before the claim, so that the store's lease ends no earlier.
        let expiry = LeaseExpiry {
            wall: now.saturating_add(lease),
            monotonic: clock.monotonic().saturating_add(lease),
        };
        let mut permits = BTreeMap::new();
        let (limiter, settings) = (&mut self.limiter, &self.settings);
        let ids = self.ports.ids.as_ref();
        let mut choose = |execution: &Execution| {
            let permit = limiter.try_acquire(execution, settings)?;
            permits.insert(execution.key.clone(), permit);
            Some(vec![started_envelope(execution, now, ids)])
        };
        let executions = &self.ports.executions;
        let claimed = executions.claim(query, now, lease, &mut choose).await;
        if !permits.is_empty() {
            self.ports.to_publish.notify();
        }
        let mut failure = None;
        for claimed in claimed.unwrap_or_else(|error| vec![Err(error)]) {
            match claimed {
                Ok(claimed) => {
                    if let Some(permit) = permits.remove(&claimed.execution.key) {
                        started.push(self.attempt(claimed, expiry, permit));
                    }
                }
                Err(error) => failure = Some(error),
            }
        }
        for permit in permits.values() {
            self.limiter.release(permit);
        }
        let Some(error) = failure else {
            return Ok(());
        };
        self.unconfirmed.extend(permits.into_keys());
        self.recheck_at = None;
        Err(error)
    }

    fn attempt(
        &mut self,
        claimed: ClaimedExecution,
        expiry: LeaseExpiry,
        permit: Permit,
    ) -> BoxFuture<'static, Ended> {
        let attempt = Attempt {
            ports: self.ports.clone(),
            http: Arc::clone(&self.http),
            interrupted: self.interrupt.subscribe(),
            claim: claimed.reference(),
            execution: claimed.execution,
            lease: self.settings.lease,
            expiry,
        };
        let key = attempt.execution.key.clone();
        self.in_flight.insert(key.clone());
        Box::pin(async move {
            let recorded = attempt.execute().await;
            Ended {
                permit,
                key,
                recorded,
            }
        })
    }

    /// Ends abandoned attempts, if the next check is due.
    async fn recheck(&mut self) -> Result<(), PortError> {
        let now = self.ports.clock.monotonic();
        if self.recheck_at.is_some_and(|at| now < at) {
            return Ok(());
        }
        self.end_abandoned().await?;
        self.unconfirmed.clear();
        // Another instance may end, and a store may commit late what it reported as failed.
        self.recheck_at = Some(now.saturating_add(self.settings.lease));
        Ok(())
    }

    /// Ends attempts whose owner did not finish them, and those whose start this process could not
    /// confirm.
    async fn end_abandoned(&self) -> Result<(), PortError> {
        let executions = &self.ports.executions;
        loop {
            let (now, lease, held) = (
                self.ports.clock.now(),
                self.settings.lease,
                self.in_flight.clone(),
            );
            let abandoned = executions.take_over(held, now, lease, ABANDONED_BATCH);
            let abandoned = abandoned.await?;
            if abandoned.is_empty() {
                return Ok(());
            }
            tracing::warn!(
                attempts = abandoned.len(),
                "started attempts were abandoned: they count as interrupted"
            );
            let (ids, now) = (self.ports.ids.as_ref(), self.ports.clock.now());
            let finished: Vec<FinishExecution> = abandoned
                .into_iter()
                .map(|it| {
                    let reason = if self.unconfirmed.contains(&it.claim.key) {
                        UNCONFIRMED
                    } else {
                        ABANDONED
                    };
                    let outcome = Outcome::Failed(ErrorMeta::new(ErrorKind::Interrupted, reason));
                    finish_of(it.claim, it.correlation_id, outcome, now, ids)
                })
                .collect();
            let outcomes = executions.finish(finished).await;
            self.ports.to_publish.notify();
            for outcome in outcomes? {
                outcome?;
            }
        }
    }
}

#[async_trait]
impl SteppedWorker for ExecuteCalls {
    async fn step_when_driven(&mut self) -> Result<(), WorkerStopped> {
        let mut running = RunningAttempts::new();
        let (clock, notifier) = (Arc::clone(&self.ports.clock), self.ports.to_execute.clone());
        loop {
            let alarm = self.fill(&mut running).await?;
            if running.is_empty() && !notifier.is_notified() {
                return Ok(());
            }
            tokio::select! {
                biased;
                Some(ended) = running.next(), if !running.is_empty() => self.ended(&ended)?,
                () = notifier.notified() => {}
                () = alarm.poll_only(clock.as_ref()) => {}
            }
        }
    }

    fn next_wake_fn(&self) -> NextWake {
        let ports = &self.ports;
        self.alarm.next_wake_fn(&ports.clock, &ports.to_execute)
    }
}
