//! The settings of service calls, and their limits.

use std::time::Duration;

use crate::fire_due_timers::{SettingsError, check};

/// Settings of service calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallSettings {
    /// Timeout of an attempt, from its start to the end of the response.
    pub timeout: Duration,
    /// Interval of polls without a notification.
    pub polling_interval: Duration,
    /// Maximum number of attempts in flight, of all tenants together. Half of them are for tenants that
    /// have few: one alone gets a quarter.
    pub attempts: usize,
    /// Maximum number of attempts of one tenant, however few others have.
    pub attempts_per_tenant: usize,
    /// Maximum number of attempts to one host and port, of all tenants together. One tenant alone gets a
    /// quarter.
    pub attempts_per_host: usize,
    /// How long an attempt, or a message to publish, belongs to the instance that claimed it. It renews the
    /// lease of an attempt; what a crashed one had claimed waits for the end of its lease, where several
    /// instances use one store.
    pub lease: Duration,
    /// How long a shutdown waits for attempts in flight.
    pub drain: Duration,
    /// How long finished calls, published messages and remembered submissions are kept.
    pub keep: Duration,
}

impl Default for CallSettings {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            polling_interval: Duration::from_secs(5),
            attempts: 512,
            attempts_per_tenant: 128,
            attempts_per_host: 256,
            lease: Duration::from_secs(30),
            drain: Duration::from_secs(25),
            keep: Duration::from_hours(30 * 24),
        }
    }
}

impl CallSettings {
    /// Checks that every setting is within its limits.
    ///
    /// # Errors
    /// With the first field that is not, and what would be right.
    pub fn check(&self) -> Result<(), SettingsError> {
        let (ms, hour) = (Duration::from_millis(1), Duration::from_hours(1));
        check("timeout", &self.timeout, ms..=hour, "give 1 ms to an hour")?;
        let (interval, valid) = (&self.polling_interval, "give 10 ms to a day");
        check("polling_interval", interval, ms * 10..=hour * 24, valid)?;
        for (field, value) in [
            ("attempts", &self.attempts),
            ("attempts_per_tenant", &self.attempts_per_tenant),
            ("attempts_per_host", &self.attempts_per_host),
        ] {
            check(field, value, 1..=10_000, "give 1 to 10000")?;
        }
        let (lease, valid) = (&self.lease, "give a second to an hour");
        check("lease", lease, ms * 1_000..=hour, valid)?;
        let valid = "give at most an hour";
        check("drain", &self.drain, Duration::ZERO..=hour, valid)?;
        let valid = "give an hour to a century";
        check("keep", &self.keep, hour..=hour * 24 * 36_500, valid)
    }
}
