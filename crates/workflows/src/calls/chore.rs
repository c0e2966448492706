//! Work that is done again and again: when a bell rings, and at the latest after some time.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::Timestamp;
use punctual_ports::ClockPort;

use super::Bell;
use crate::alarm::{Alarm, SharedAlarm};
use crate::driven::SteppedWorker;
use crate::fire_due_timers::WorkerStopped;

/// Something to do in steps.
#[async_trait]
pub trait Chore: Send {
    /// Does some of it, and tells how long to rest if nobody rings before.
    ///
    /// # Errors
    /// If going on makes no sense.
    async fn step(&mut self) -> Result<Duration, WorkerStopped>;
}

/// Does a chore for as long as it is needed.
pub struct ChoreWorker<C> {
    chore: C,
    clock: Arc<dyn ClockPort>,
    bell: Bell,
    alarm: SharedAlarm,
}

impl<C: Chore> ChoreWorker<C> {
    pub(crate) fn new(chore: C, clock: &Arc<dyn ClockPort>, bell: &Bell) -> Self {
        Self {
            chore,
            clock: Arc::clone(clock),
            bell: bell.clone(),
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
        let (clock, bell) = (Arc::clone(&self.clock), self.bell.clone());
        loop {
            let alarm = tokio::select! {
                biased;
                () = &mut shutdown => return Ok(()),
                alarm = self.step() => alarm?,
            };
            tokio::select! {
                biased;
                () = &mut shutdown => return Ok(()),
                () = bell.rung() => {}
                () = alarm.wait(clock.as_ref()) => {}
            }
        }
    }

    async fn step(&mut self) -> Result<Alarm, WorkerStopped> {
        self.bell.answer();
        let rest = self.chore.step().await?;
        let mut alarm = Alarm::default();
        alarm.at_monotonic(self.clock.monotonic().saturating_add(rest));
        self.alarm.set(alarm);
        Ok(alarm)
    }
}

#[async_trait]
impl<C: Chore> SteppedWorker for ChoreWorker<C> {
    async fn step_when_driven(&mut self) -> Result<(), WorkerStopped> {
        self.step().await.map(drop)
    }

    fn wants_to_wake(&self) -> Arc<dyn Fn() -> Option<Timestamp> + Send + Sync> {
        let (alarm, clock, bell) = (
            self.alarm.clone(),
            Arc::clone(&self.clock),
            self.bell.clone(),
        );
        Arc::new(move || match alarm.get() {
            Some(alarm) if !bell.is_rung() => alarm.on_the_wall(clock.as_ref()),
            _ => Some(clock.now()),
        })
    }
}
