//! Removing what is older than anybody wants to know, in small bites that do not disturb firing.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use punctual_ports::{ClockPort, TimerPersistencePort};

use crate::alarm::{Alarm, SharedAlarm};
use crate::driven::SteppedWorker;
use crate::fire_due_timers::{SettingsError, WorkerStopped, check};
use crate::{TimerPorts, metric_names};
use punctual_domain::Backoff;

/// How long things are kept and how gently they are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionSettings {
    /// How long reached timers and memories of deletions are kept.
    pub keep: Duration,
    /// How many rows one bite removes.
    pub batch_size: usize,
    /// How long to wait between two bites at first. While there is more to remove, each wait is half
    /// as long as the one before, down to 10 ms, but at least as long as the bite took: at most half
    /// of the store's time goes into removing.
    pub between_batches: Duration,
    /// How long to wait when nothing old is left.
    pub every: Duration,
}

impl Default for RetentionSettings {
    fn default() -> Self {
        Self {
            keep: Duration::from_hours(30 * 24),
            batch_size: 500,
            between_batches: Duration::from_millis(250),
            every: Duration::from_mins(10),
        }
    }
}

impl RetentionSettings {
    /// Checks that the settings make sense.
    ///
    /// # Errors
    /// With the first field that does not, and what would be right.
    pub fn check(&self) -> Result<(), SettingsError> {
        let hour = Duration::from_hours(1);
        let (ms, century) = (Duration::from_millis(1), hour * 24 * 36_500);
        check(
            "keep",
            &self.keep,
            hour..=century,
            "give an hour to a century",
        )?;
        check(
            "batch_size",
            &self.batch_size,
            1..=10_000,
            "give 1 to 10000",
        )?;
        check(
            "between_batches",
            &self.between_batches,
            ms..=hour,
            "give 1 ms to an hour",
        )?;
        check(
            "every",
            &self.every,
            ms * 1_000..=hour * 24,
            "give a second to a day",
        )
    }
}

/// The shortest rest between two bites, unless `between_batches` is shorter.
const SHORTEST_REST: Duration = Duration::from_millis(10);

const AFTER_FAILURE: Backoff = Backoff {
    first: Duration::from_secs(1),
    limit: Duration::from_mins(10),
};

/// Removes reached timers and remembered deletions that are older than the retention time.
pub struct Retention {
    clock: Arc<dyn ClockPort>,
    persistence: Arc<dyn TimerPersistencePort>,
    settings: RetentionSettings,
    /// How long to wait after the next bite if there is more.
    rest: Duration,
    failures: u32,
    alarm: SharedAlarm,
}

impl Retention {
    /// Retention on a store.
    ///
    /// # Errors
    /// If a setting makes no sense.
    pub fn new(ports: &TimerPorts, settings: RetentionSettings) -> Result<Self, SettingsError> {
        settings.check()?;
        Ok(Self {
            clock: Arc::clone(&ports.clock),
            persistence: Arc::clone(&ports.persistence),
            settings,
            rest: settings.between_batches,
            failures: 0,
            alarm: SharedAlarm::default(),
        })
    }

    /// Removes one bite, and returns how long to wait before the next.
    async fn batch(&mut self) -> Result<Duration, WorkerStopped> {
        let before = self.clock.now().saturating_sub(self.settings.keep);
        let limit = self.settings.batch_size;
        let begun = self.clock.monotonic();
        match self.persistence.purge(before, limit).await {
            Ok(purged) => {
                self.failures = 0;
                metrics::counter!(metric_names::PURGED).increment(purged as u64);
                let took = self.clock.monotonic().saturating_sub(begun);
                Ok(self.wait_after(purged >= limit, took))
            }
            Err(cause) if cause.kind().is_critical() => Err(WorkerStopped { cause }),
            Err(error) => {
                self.failures += 1;
                let wait = AFTER_FAILURE.after(self.failures, &"retention");
                tracing::warn!(%error, ?wait, "old timers could not be removed");
                Ok(wait)
            }
        }
    }

    /// How long to wait after a bite, which took this long and perhaps left something.
    fn wait_after(&mut self, is_more: bool, took: Duration) -> Duration {
        if !is_more {
            self.rest = self.settings.between_batches;
            return self.settings.every;
        }
        let wait = self.rest.max(took);
        let shortest = SHORTEST_REST.min(self.settings.between_batches);
        self.rest = (self.rest / 2).max(shortest);
        wait
    }

    /// Runs until `shutdown` is ready, or the store is broken.
    ///
    /// # Errors
    /// With the cause, if the store cannot be relied on any more.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) -> Result<(), WorkerStopped> {
        tokio::pin!(shutdown);
        let clock = Arc::clone(&self.clock);
        loop {
            let alarm = tokio::select! {
                biased;
                () = &mut shutdown => return Ok(()),
                alarm = self.step() => alarm?,
            };
            tokio::select! {
                biased;
                () = &mut shutdown => return Ok(()),
                () = alarm.wait(clock.as_ref()) => {}
            }
        }
    }

    async fn step(&mut self) -> Result<Alarm, WorkerStopped> {
        let wait = self.batch().await?;
        let mut alarm = Alarm::default();
        alarm.at_monotonic(self.clock.monotonic().saturating_add(wait));
        self.alarm.set(alarm);
        Ok(alarm)
    }
}

#[async_trait]
impl SteppedWorker for Retention {
    async fn step_when_driven(&mut self) -> Result<(), WorkerStopped> {
        self.step().await.map(drop)
    }

    fn next_wake_fn(&self) -> Arc<dyn Fn() -> Option<punctual_domain::Timestamp> + Send + Sync> {
        let (alarm, clock) = (self.alarm.clone(), Arc::clone(&self.clock));
        Arc::new(move || match alarm.get() {
            None => Some(clock.now()),
            Some(alarm) => alarm.as_wall_time(clock.as_ref()),
        })
    }
}
