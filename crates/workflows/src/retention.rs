//! Purging old timers, in small batches that do not delay firing.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use punctual_ports::{ClockPort, PortError, TimerPersistencePort};

use crate::fire_due_timers::{SettingsError, check};
use crate::retries::{PURGE_BACKOFF, Retries};
use crate::{BackgroundTask, BackgroundWorker, Notifier, TimerPorts, metric_names};

/// Settings of timer retention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionSettings {
    /// How long reached timers and tombstones are kept.
    pub keep: Duration,
    /// Maximum number of rows in one batch.
    pub batch_size: usize,
    /// Pause between the first two batches. While there is more to purge, each pause is half as long as
    /// the one before, down to 10 ms, but at least as long as the batch took: purging takes at most
    /// half of the store's time.
    pub between_batches: Duration,
    /// Idle interval when nothing is left to purge.
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
    /// Checks that every setting is within its limits.
    ///
    /// # Errors
    /// With the first field that is not, and what would be right.
    pub fn check(&self) -> Result<(), SettingsError> {
        let (ms, hour) = (Duration::from_millis(1), Duration::from_hours(1));
        let valid = "give an hour to a century";
        check("keep", &self.keep, hour..=hour * 24 * 36_500, valid)?;
        let valid = "give 1 to 10000";
        check("batch_size", &self.batch_size, 1..=10_000, valid)?;
        let valid = "give 1 ms to an hour";
        check("between_batches", &self.between_batches, ms..=hour, valid)?;
        let valid = "give a second to a day";
        check("every", &self.every, ms * 1_000..=hour * 24, valid)
    }
}

/// Minimum pause between two batches, unless `between_batches` is shorter.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);

/// Purges reached timers and tombstones that are older than the retention time.
pub struct Retention {
    clock: Arc<dyn ClockPort>,
    persistence: Arc<dyn TimerPersistencePort>,
    settings: RetentionSettings,
    /// Pause after the next full batch.
    pause: Duration,
}

impl Retention {
    /// On these adapters.
    ///
    /// # Errors
    /// If a setting is outside its limits.
    pub fn worker(
        ports: &TimerPorts,
        settings: RetentionSettings,
    ) -> Result<BackgroundWorker<Self>, SettingsError> {
        settings.check()?;
        let task = Self {
            clock: Arc::clone(&ports.clock),
            persistence: Arc::clone(&ports.persistence),
            settings,
            pause: settings.between_batches,
        };
        let retries = Retries::new(PURGE_BACKOFF, "old timers could not be purged");
        let (clock, notifier) = (&ports.clock, Notifier::default());
        Ok(BackgroundWorker::new(task, clock, &notifier, retries))
    }

    /// How long to wait after a batch, which took this long and was full or not.
    fn wait_after(&mut self, is_full: bool, took: Duration) -> Duration {
        if !is_full {
            self.pause = self.settings.between_batches;
            return self.settings.every;
        }
        let wait = self.pause.max(took);
        let shortest = SHORTEST_PAUSE.min(self.settings.between_batches);
        self.pause = (self.pause / 2).max(shortest);
        wait
    }
}

#[async_trait]
impl BackgroundTask for Retention {
    async fn step(&mut self) -> Result<Duration, PortError> {
        let before = self.clock.now().saturating_sub(self.settings.keep);
        let limit = self.settings.batch_size;
        let started = self.clock.monotonic();
        let purged = self.persistence.purge(before, limit).await?;
        metrics::counter!(metric_names::PURGED).increment(purged as u64);
        let took = self.clock.monotonic().saturating_sub(started);
        Ok(self.wait_after(purged >= limit, took))
    }
}
