//! The settings of a timer worker, and their limits.

use std::time::Duration;

use thiserror::Error;

/// Settings of a timer worker. The defaults suit one process with an in-process bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerSettings {
    /// Interval of polls when nothing is known to be due.
    pub polling_interval: Duration,
    /// Maximum number of timers in one claim.
    pub batch_size: usize,
    /// Duration of a lease. It is renewed well before it expires.
    pub lease: Duration,
    /// Maximum number of publishes in flight.
    pub publishes_in_flight: usize,
    /// Maximum number of publishes of one tenant in flight. At least an eighth of all is left to the
    /// others. A publish that waits for a hanging handler cannot be revoked, so a tenant gets fewer
    /// when few are free.
    pub publishes_per_tenant: usize,
    /// Maximum number of events in one publish. One where `publish` waits for handlers, so that a slow
    /// handler delays no other; more where a broker acknowledges many at once.
    pub publish_batch: usize,
    /// Maximum number of timers that are claimed and not settled, including published ones that are
    /// not marked. At this limit nothing is claimed.
    pub max_in_flight: usize,
    /// How long a shutdown waits for what is in flight.
    pub drain_limit: Duration,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        Self {
            polling_interval: Duration::from_secs(5),
            batch_size: 100,
            lease: Duration::from_secs(30),
            publishes_in_flight: 1_000,
            publishes_per_tenant: 64,
            publish_batch: 1,
            max_in_flight: 2_000,
            drain_limit: Duration::from_secs(25),
        }
    }
}

/// A setting outside its limits.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field} is {given}: {wanted}")]
pub struct SettingsError {
    /// The setting.
    pub field: &'static str,
    /// Its value.
    pub given: String,
    /// What would be right.
    pub wanted: &'static str,
}

impl WorkerSettings {
    /// Settings for a bus that acknowledges many events at once over a network: large batches, several
    /// of them in flight, since each waits for a round trip.
    pub fn for_a_broker() -> Self {
        let (publish_batch, publishes_in_flight) = (256, 8);
        Self {
            publish_batch,
            publishes_in_flight,
            max_in_flight: publish_batch * publishes_in_flight,
            ..Self::default()
        }
    }

    /// The same for a store that several instances fire: what one that has crashed had claimed waits for the
    /// end of its lease.
    pub const fn for_several_instances(self) -> Self {
        let lease = Duration::from_secs(8);
        Self { lease, ..self }
    }

    /// Settings for service calls in the same process: their handler waits only for the store, which
    /// commits many as cheaply as a few.
    pub fn for_calls() -> Self {
        Self {
            publish_batch: 100,
            publishes_in_flight: 8,
            max_in_flight: 1_000,
            ..Self::default()
        }
    }

    /// Checks that every setting is within its limits.
    ///
    /// # Errors
    /// With the first field that is not, and what would be right.
    pub fn check(&self) -> Result<(), SettingsError> {
        let (ms, day) = (Duration::from_millis, Duration::from_hours(24));
        let polling_interval = &self.polling_interval;
        let valid = "give 10 ms to a day";
        check("polling_interval", polling_interval, ms(10)..=day, valid)?;
        let valid = "give a second to a day";
        check("lease", &self.lease, ms(1_000)..=day, valid)?;
        for (field, value) in [
            ("batch_size", &self.batch_size),
            ("publishes_in_flight", &self.publishes_in_flight),
            ("publishes_per_tenant", &self.publishes_per_tenant),
            ("publish_batch", &self.publish_batch),
        ] {
            check(field, value, 1..=10_000, "give 1 to 10000")?;
        }
        check(
            "max_in_flight",
            &self.max_in_flight,
            self.batch_size..=1_000_000,
            "give at least batch_size and at most a million",
        )?;
        let valid = "give at most a day";
        check("drain_limit", &self.drain_limit, ms(0)..=day, valid)
    }

    /// Minimum number of timers worth a claim: claims of single timers would be many, and not shared
    /// fairly.
    pub(super) const fn min_claim(&self) -> usize {
        if self.batch_size < 8 {
            1
        } else {
            self.batch_size / 8
        }
    }

    /// The part of `max_in_flight` that a backlog leaves to timers that become due meanwhile: during a
    /// slow commit nothing is settled, and fresh timers would have to wait for it.
    pub(super) const fn reserve(&self) -> usize {
        self.max_in_flight / 4
    }

    /// Interval of renewals: well before the lease expires, even if one fails.
    pub(super) fn renewal_interval(&self) -> Duration {
        self.lease / 3
    }
}

/// Checks one field.
pub(crate) fn check<T: PartialOrd + std::fmt::Debug>(
    field: &'static str,
    given: &T,
    range: std::ops::RangeInclusive<T>,
    wanted: &'static str,
) -> Result<(), SettingsError> {
    if range.contains(given) {
        return Ok(());
    }
    Err(SettingsError {
        field,
        given: format!("{given:?}"),
        wanted,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_within_their_limits() {
        assert_eq!(WorkerSettings::default().check(), Ok(()));
        assert_eq!(WorkerSettings::for_a_broker().check(), Ok(()));
        assert_eq!(WorkerSettings::for_calls().check(), Ok(()));
        let shared = WorkerSettings::default().for_several_instances();
        assert_eq!(shared.check(), Ok(()));
        // Two renewals may fail before a lease ends, and a take-over waits for no longer than that.
        assert!(shared.renewal_interval() * 3 <= shared.lease);
        assert_eq!(shared.lease, Duration::from_secs(8));
    }

    #[test]
    fn an_invalid_setting_is_named_with_its_limits() {
        let with = |change: fn(&mut WorkerSettings)| {
            let mut settings = WorkerSettings::default();
            change(&mut settings);
            settings.check().unwrap_err()
        };
        let errors = [
            with(|it| it.polling_interval = Duration::ZERO),
            with(|it| it.batch_size = 0),
            with(|it| it.lease = Duration::ZERO),
            with(|it| it.publishes_in_flight = 0),
            with(|it| it.publishes_per_tenant = 0),
            with(|it| it.publish_batch = 0),
            with(|it| it.max_in_flight = 99),
            with(|it| it.drain_limit = Duration::MAX),
        ];
        let fields = errors.each_ref().map(|error| error.field);
        assert_eq!(
            fields,
            [
                "polling_interval",
                "batch_size",
                "lease",
                "publishes_in_flight",
                "publishes_per_tenant",
                "publish_batch",
                "max_in_flight",
                "drain_limit"
            ]
        );
        assert_eq!(
            errors[6].to_string(),
            "max_in_flight is 99: give at least batch_size and at most a million"
        );
    }
}
