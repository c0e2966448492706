//! Work that is done again and again: when a bell rings, and at the latest after some time.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::Timestamp;
use punctual_ports::ClockPort;

use super::Notifier;
use crate::alarm::{Alarm, SharedAlarm};
use crate::driven::SteppedWorker;
use crate::fire_due_timers::WorkerStopped;

/// Something to do in steps.
#[async_trait]
pub trait BackgroundTask: Send {
    /// Does some of it, and tells how long to rest if nobody rings before.
    ///
    /// # Errors
    /// If going on makes no sense.
    async fn step(&mut self) -> Result<Duration, WorkerStopped>;
}

/// Does a chore for as long as it is needed.
pub struct BackgroundWorker<C> {
    task: C,
    clock: Arc<dyn ClockPort>,
    notifier: Notifier,
    alarm: SharedAlarm,
}

impl<C: BackgroundTask> BackgroundWorker<C> {
    pub(crate) fn new(task: C, clock: &Arc<dyn ClockPort>, notifier: &Notifier) -> Self {
        Self {
            task,
            clock: Arc::clone(clock),
            notifier: notifier.clone(),
            alarm: SharedAlarm::default(),
        }
    }

    /// Runs until `shutdown` is ready, or the store is broken. A step under way is broken off,
    /// which is safe wherever it waits: what it has committed stays, the rest is done again.
    ///
    /// # Errors
    /// With the cause, if the store cannot be relied on any more.
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

    async fn step(&mut self) -> Result<Alarm, WorkerStopped> {
        self.notifier.clear();
        let rest = self.task.step().await?;
        let mut alarm = Alarm::default();
        alarm.at_monotonic(self.clock.monotonic().saturating_add(rest));
        self.alarm.set(alarm);
        Ok(alarm)
    }
}

#[async_trait]
impl<C: BackgroundTask> SteppedWorker for BackgroundWorker<C> {
    async fn step_when_driven(&mut self) -> Result<(), WorkerStopped> {
        self.step().await.map(drop)
    }

    fn next_wake_fn(&self) -> Arc<dyn Fn() -> Option<Timestamp> + Send + Sync> {
        let (alarm, clock, notifier) = (
            self.alarm.clone(),
            Arc::clone(&self.clock),
            self.notifier.clone(),
        );
        Arc::new(move || match alarm.get() {
            Some(alarm) if !notifier.is_notified() => alarm.as_wall_time(clock.as_ref()),
            _ => Some(clock.now()),
        })
    }
}
