//! Making the one attempt of each call, many at once and fairly.
//!
//! An attempt is marked as begun, durably, before anything is sent, and its result is written
//! together with the event that tells it. Whatever ends the process in between leaves an attempt
//! that began and has no result: nobody can know whether the target got it, so it is `Interrupted`
//! and never made again. So is one whose beginning was stored although the store said that it failed.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use punctual_domain::service_call::{ErrorKind, ErrorMeta, Outcome};
use punctual_domain::{Backoff, Timestamp};
use punctual_ports::{
    BeginExecution, Execution, ExecutionKey, ExecutionOutcome, FinishExecution, HttpClientPort,
    PortError,
};
use tokio::sync::watch;

use super::attempt::{Attempt, Ended, finish_of, started};
use super::concurrency_limiter::{ConcurrencyLimiter, Permit};
use super::{CallPorts, CallSettings};
use crate::alarm::{Alarm, SharedAlarm};
use crate::driven::SteppedWorker;
use crate::fire_due_timers::{SettingsError, WorkerStopped};
use crate::metric_names;

/// So many attempts that nobody makes any more are ended at once.
const LEFT_BEHIND: usize = 200;
/// So often it is looked for them: a store may carry out late what it said had failed.
const LOOK_BACK: Duration = Duration::from_mins(1);
/// So long the results of what was interrupted may take to be recorded.
const LAST_WORDS: Duration = Duration::from_secs(5);

const AFTER_FAILURE: Backoff = Backoff {
    first: Duration::from_millis(100),
    limit: Duration::from_secs(5),
};

/// Attempts under way.
type RunningAttempts = FuturesUnordered<BoxFuture<'static, Ended>>;

/// Makes the attempts that were written down.
pub struct ExecuteCalls {
    ports: CallPorts,
    http: Arc<dyn HttpClientPort>,
    settings: CallSettings,
    limiter: ConcurrencyLimiter,
    /// The attempts that are being made here.
    under_way: BTreeSet<ExecutionKey>,
    /// When to look for attempts that nobody makes, on the monotonic clock; `None` for at once.
    recheck_at: Option<Duration>,
    /// Whether what an earlier process left behind was ended.
    has_recovered: bool,
    failures: u32,
    /// Tells every attempt to end.
    interrupt: watch::Sender<bool>,
    alarm: SharedAlarm,
}

impl ExecuteCalls {
    /// On these adapters. There may be one at a time for a store: it ends whatever began before it.
    ///
    /// # Errors
    /// If a setting makes no sense.
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
            under_way: BTreeSet::new(),
            recheck_at: None,
            has_recovered: false,
            failures: 0,
            interrupt: watch::Sender::new(false),
            alarm: SharedAlarm::default(),
        })
    }

    /// Runs until `shutdown` is ready, then begins nothing more, lets what is under way finish for a
    /// while, and ends the rest as interrupted. Tells how many those were.
    ///
    /// # Errors
    /// With the cause, if the store cannot be relied on any more.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) -> Result<usize, WorkerStopped> {
        let mut shutdown = pin!(shutdown);
        let mut under_way = RunningAttempts::new();
        let (clock, notifier) = (Arc::clone(&self.ports.clock), self.ports.to_execute.clone());
        loop {
            let alarm = self.fill(&mut under_way).await?;
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                Some(ended) = under_way.next(), if !under_way.is_empty() => self.ended(&ended)?,
                () = notifier.notified() => {}
                () = alarm.wait(clock.as_ref()) => {}
            }
        }
        self.drain(under_way).await
    }

    async fn drain(&mut self, mut under_way: RunningAttempts) -> Result<usize, WorkerStopped> {
        let clock = Arc::clone(&self.ports.clock);
        let mut time_is_up = clock.sleep_for(self.settings.drain);
        let mut interrupted = None;
        loop {
            tokio::select! {
                biased;
                ended = under_way.next() => match ended {
                    Some(ended) => self.ended(&ended)?,
                    None => return Ok(interrupted.unwrap_or_default()),
                },
                () = &mut time_is_up => match interrupted {
                    None => {
                        let left = under_way.len();
                        tracing::warn!(attempts = left, "attempts are still under way and are interrupted");
                        interrupted = Some(left);
                        self.interrupt.send_replace(true);
                        time_is_up = clock.sleep_for(LAST_WORDS);
                    }
                    Some(interrupted) => {
                        let left = under_way.len();
                        tracing::warn!(attempts = left, "results cannot be recorded: the next start will call them interrupted");
                        return Ok(interrupted);
                    }
                },
            }
        }
    }

    /// Begins what may begin, while what is under way goes on, and tells when to look again.
    async fn fill(&mut self, under_way: &mut RunningAttempts) -> Result<Alarm, WorkerStopped> {
        self.ports.to_execute.clear();
        let mut ended = Vec::new();
        let filled = {
            // Not to be dropped in the middle: what has begun must be attempted.
            let mut beginning = pin!(self.begin_some());
            loop {
                tokio::select! {
                    biased;
                    filled = &mut beginning => break filled,
                    Some(one) = under_way.next(), if !under_way.is_empty() => ended.push(one),
                }
            }
        };
        for one in &ended {
            self.ended(one)?;
        }
        let (begun, failure) = filled;
        // There may be more; and a permit that became free meanwhile may be somebody's.
        let look_again = !begun.is_empty() || !ended.is_empty();
        under_way.extend(begun);
        let running = u32::try_from(self.under_way.len()).unwrap_or(u32::MAX);
        metrics::gauge!(metric_names::EXECUTIONS_RUNNING).set(f64::from(running));
        let wait = match failure {
            None => {
                self.failures = 0;
                if look_again {
                    Duration::ZERO
                } else {
                    self.settings.polling_interval
                }
            }
            Some(cause) if cause.kind().is_critical() => return Err(WorkerStopped { cause }),
            Some(error) => {
                self.failures = self.failures.saturating_add(1);
                let wait = AFTER_FAILURE.after(self.failures, &"execute calls");
                tracing::warn!(%error, ?wait, "attempts cannot begin now");
                wait
            }
        };
        let mut alarm = Alarm::default();
        alarm.at_monotonic(self.ports.clock.monotonic().saturating_add(wait));
        self.alarm.set(alarm);
        Ok(alarm)
    }

    fn ended(&mut self, ended: &Ended) -> Result<(), WorkerStopped> {
        self.limiter.release(&ended.permit);
        self.under_way.remove(&ended.key);
        match &ended.recorded {
            Ok(()) => Ok(()),
            Err(cause) => Err(WorkerStopped {
                cause: cause.clone(),
            }),
        }
    }

    /// Begins attempts for which there is a permit, once: they are to be sent before anybody looks
    /// for more. What has begun is given back also if something fails after it.
    async fn begin_some(&mut self) -> (Vec<BoxFuture<'static, Ended>>, Option<PortError>) {
        let mut begun = Vec::new();
        if let Err(error) = self.look_back().await {
            return (begun, Some(error));
        }
        let Some(query) = self.limiter.query(&self.settings) else {
            return (begun, None);
        };
        let failure = match self.ports.executions.waiting(query).await {
            Ok(waiting) if waiting.is_empty() => None,
            Ok(waiting) => self.begin(waiting, &mut begun).await.err(),
            Err(error) => Some(error),
        };
        (begun, failure)
    }

    async fn begin(
        &mut self,
        waiting: Vec<Execution>,
        begun: &mut Vec<BoxFuture<'static, Ended>>,
    ) -> Result<(), PortError> {
        let mut chosen = Vec::new();
        for execution in waiting {
            if let Some(permit) = self.limiter.try_acquire(&execution, &self.settings) {
                chosen.push((execution, permit));
            }
        }
        let (ids, now) = (self.ports.ids.as_ref(), self.ports.clock.now());
        let beginnings = chosen
            .iter()
            .map(|(execution, _)| BeginExecution {
                key: execution.key.clone(),
                started_at: now,
                outbox: vec![started(execution, now, ids)],
            })
            .collect();
        let outcomes = self.ports.executions.begin(beginnings).await;
        self.ports.to_publish.notify();
        let outcomes = match outcomes {
            Ok(outcomes) => outcomes,
            Err(error) => {
                for (_, permit) in &chosen {
                    self.limiter.release(permit);
                }
                self.recheck_at = None;
                return Err(error);
            }
        };
        let mut failure = None;
        for ((execution, permit), outcome) in chosen.into_iter().zip(outcomes) {
            match outcome {
                Ok(ExecutionOutcome::Applied) => begun.push(self.attempt(execution, permit)),
                Ok(_) => self.limiter.release(&permit),
                Err(error) => {
                    self.limiter.release(&permit);
                    self.recheck_at = None;
                    failure = Some(error);
                }
            }
        }
        failure.map_or(Ok(()), Err)
    }

    fn attempt(&mut self, execution: Execution, permit: Permit) -> BoxFuture<'static, Ended> {
        let attempt = Attempt {
            ports: self.ports.clone(),
            http: Arc::clone(&self.http),
            interrupted: self.interrupt.subscribe(),
            execution,
        };
        let key = attempt.execution.key.clone();
        self.under_way.insert(key.clone());
        Box::pin(async move {
            let recorded = attempt.make().await;
            Ended {
                permit,
                key,
                recorded,
            }
        })
    }

    /// Looks for attempts that nobody makes, if it is time to.
    async fn look_back(&mut self) -> Result<(), PortError> {
        let now = self.ports.clock.monotonic();
        if self.recheck_at.is_some_and(|at| now < at) {
            return Ok(());
        }
        self.end_abandoned().await?;
        self.has_recovered = true;
        self.recheck_at = Some(now.saturating_add(LOOK_BACK));
        Ok(())
    }

    /// Ends what an earlier process began and did not finish, and what began here without our
    /// knowing.
    async fn end_abandoned(&self) -> Result<(), PortError> {
        let reason = if self.has_recovered {
            "the beginning of the attempt could not be confirmed, and the request was not sent"
        } else {
            "the process ended during the attempt: whether the target got the request is not known"
        };
        let executions = &self.ports.executions;
        loop {
            let limit = LEFT_BEHIND + self.under_way.len();
            let mut open = executions.open(Timestamp::MAX, limit).await?;
            open.retain(|open| !self.under_way.contains(&open.key));
            if open.is_empty() {
                return Ok(());
            }
            tracing::warn!(
                attempts = open.len(),
                reason,
                "attempts have begun and nobody makes them: they count as interrupted"
            );
            let (ids, now) = (self.ports.ids.as_ref(), self.ports.clock.now());
            let finished: Vec<FinishExecution> = open
                .iter()
                .map(|open| {
                    let outcome = Outcome::Failed(ErrorMeta::new(ErrorKind::Interrupted, reason));
                    finish_of(&open.key, open.correlation_id, outcome, now, ids)
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
        let mut under_way = RunningAttempts::new();
        let (clock, notifier) = (Arc::clone(&self.ports.clock), self.ports.to_execute.clone());
        loop {
            let alarm = self.fill(&mut under_way).await?;
            if under_way.is_empty() && !notifier.is_notified() {
                return Ok(());
            }
            tokio::select! {
                biased;
                Some(ended) = under_way.next(), if !under_way.is_empty() => self.ended(&ended)?,
                () = notifier.notified() => {}
                () = alarm.poll_only(clock.as_ref()) => {}
            }
        }
    }

    fn next_wake_fn(&self) -> Arc<dyn Fn() -> Option<Timestamp> + Send + Sync> {
        let (alarm, clock) = (self.alarm.clone(), Arc::clone(&self.ports.clock));
        let notifier = self.ports.to_execute.clone();
        Arc::new(move || match alarm.get() {
            Some(alarm) if !notifier.is_notified() => alarm.as_wall_time(clock.as_ref()),
            _ => Some(clock.now()),
        })
    }
}
