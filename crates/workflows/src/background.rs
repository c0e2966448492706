//! Background tasks: work in steps, on a notification or after an idle interval.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::Timestamp;
use punctual_ports::{ClockPort, PortError};

use crate::alarm::{Alarm, SharedAlarm};
use crate::driven::{NextWake, SteppedWorker};
use crate::retries::Retries;
use crate::{Notifier, WorkerStopped};

/// A background task.
#[async_trait]
pub trait BackgroundTask: Send {
    /// Does one step, and returns the idle interval before the next, unless notified earlier.
    ///
    /// # Errors
    /// After a critical error the worker stops; after any other it backs off.
    async fn step(&mut self) -> Result<Duration, PortError>;

    /// Called with the time of the next step.
    fn next_step_at(&mut self, _at: Timestamp) {}
}

/// Runs a background task.
pub struct BackgroundWorker<C> {
    task: C,
    clock: Arc<dyn ClockPort>,
    notifier: Notifier,
    retries: Retries,
    alarm: SharedAlarm,
}

impl<C: BackgroundTask> BackgroundWorker<C> {
    pub(crate) fn new(
        task: C,
        clock: &Arc<dyn ClockPort>,
        notifier: &Notifier,
        retries: Retries,
    ) -> Self {
        Self {
            task,
            clock: Arc::clone(clock),
            notifier: notifier.clone(),
            retries,
            alarm: SharedAlarm::default(),
        }
    }

    /// Runs until `shutdown` is ready, or a critical error. The current step is cancelled, which is
    /// safe wherever it waits: what it has committed stays, the rest is repeated.
    ///
    /// # Errors
    /// With the cause, after a critical error of the store.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) -> Result<(), WorkerStopped> {
        tokio::pin!(shutdown);
        let (clock, notifier) = (Arc::clone(&self.clock), self.notifier.clone());
        loop {
            let alarm = tokio::select! {
                biased;
                () = &mut shutdown => return Ok(()),
                alarm = self.step() => alarm?,
            };
            tokio::select! {
                biased;
                () = &mut shutdown => return Ok(()),
                () = notifier.notified() => {}
                () = alarm.wait(clock.as_ref()) => {}
            }
        }
    }

    /// Runs until `shutdown` is ready, or a critical error. The current step is finished, and a last one is
    /// done: what the task had taken on is over, or left to others, when this returns.
    ///
    /// # Errors
    /// With the cause, after a critical error of the store.
    pub async fn run_and_finish(
        mut self,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), WorkerStopped> {
        tokio::pin!(shutdown);
        let (clock, notifier) = (Arc::clone(&self.clock), self.notifier.clone());
        loop {
            let alarm = self.step().await?;
            tokio::select! {
                biased;
                () = &mut shutdown => return self.step().await.map(drop),
                () = notifier.notified() => {}
                () = alarm.wait(clock.as_ref()) => {}
            }
        }
    }

    async fn step(&mut self) -> Result<Alarm, WorkerStopped> {
        self.notifier.clear();
        let wait = match self.task.step().await {
            Ok(idle) => {
                self.retries.succeeded();
                idle
            }
            Err(error) => self.retries.failed(error)?,
        };
        self.task
            .next_step_at(self.clock.now().saturating_add(wait));
        Ok(self.alarm.set_after(wait, self.clock.as_ref()))
    }
}

#[async_trait]
impl<C: BackgroundTask> SteppedWorker for BackgroundWorker<C> {
    async fn step_when_driven(&mut self) -> Result<(), WorkerStopped> {
        self.step().await.map(drop)
    }

    fn next_wake_fn(&self) -> NextWake {
        self.alarm.next_wake_fn(&self.clock, &self.notifier)
    }
}
