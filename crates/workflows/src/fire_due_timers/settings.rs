//! How a worker works, and which settings make no sense.

use std::time::Duration;

use thiserror::Error;

/// How a worker works. The defaults suit one process with an in-process bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerSettings {
    /// How often to look at the store although nothing is known to be due.
    pub polling_interval: Duration,
    /// How many timers to claim at once.
    pub batch_size: usize,
    /// How long a claim lasts unless it is renewed, which happens well before.
    pub lease: Duration,
    /// How many publishes are under way at once.
    pub publishes_in_flight: usize,
    /// How many of them may be one tenant's. Where this is close to all of them, an eighth is left to
    /// the others. A publish that waits for a handler that hangs cannot be taken back, so a tenant
    /// gets fewer when most are taken.
    pub publishes_per_tenant: usize,
    /// How many events one publish takes. One, where `publish` waits for handlers, so that a slow
    /// handler holds up no other; more, where a broker answers for many at once.
    pub publish_batch: usize,
    /// How many timers may be claimed and not yet settled, published-but-unmarked ones included.
    /// When so many are, nothing more is claimed.
    pub max_in_flight: usize,
    /// How long to finish what is in flight on shutdown.
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

/// A setting that makes no sense.
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
    /// What suits a bus that answers for many events at once, over a network: large batches, and
    /// several of them under way, since each waits for a round trip.
    pub fn for_a_broker() -> Self {
        let (publish_batch, publishes_in_flight) = (256, 8);
        Self {
            publish_batch,
            publishes_in_flight,
            max_in_flight: publish_batch * publishes_in_flight,
            ..Self::default()
        }
    }

    /// What suits service calls in the same process: their handler never waits for anybody but the
    /// store, which takes many at the price of a few.
    pub fn for_calls() -> Self {
        Self {
            publish_batch: 100,
            publishes_in_flight: 8,
            max_in_flight: 1_000,
            ..Self::default()
        }
    }

    /// Checks that the settings make sense together.
    ///
    /// # Errors
    /// With the first field that does not, and what would be right.
    pub fn check(&self) -> Result<(), SettingsError> {
        let ms = Duration::from_millis;
        let day = Duration::from_hours(24);
        check(
            "polling_interval",
            &self.polling_interval,
            ms(10)..=day,
            "give 10 ms to a day",
        )?;
        check(
            "batch_size",
            &self.batch_size,
            1..=10_000,
            "give 1 to 10000",
        )?;
        check(
            "lease",
            &self.lease,
            ms(1_000)..=day,
            "give a second to a day",
        )?;
        check(
            "publishes_in_flight",
            &self.publishes_in_flight,
            1..=10_000,
            "give 1 to 10000",
        )?;
        check(
            "publishes_per_tenant",
            &self.publishes_per_tenant,
            1..=10_000,
            "give 1 to 10000",
        )?;
        check(
            "publish_batch",
            &self.publish_batch,
            1..=10_000,
            "give 1 to 10000",
        )?;
        check(
            "max_in_flight",
            &self.max_in_flight,
            self.batch_size..=1_000_000,
            "give at least batch_size and at most a million",
        )?;
        check(
            "drain_limit",
            &self.drain_limit,
            ms(0)..=day,
            "give at most a day",
        )
    }

    /// How much room there has to be before it is worth claiming: claims of one timer would be
    /// many, and not fairly shared.
    pub(super) const fn room_for_a_claim(&self) -> usize {
        if self.batch_size < 8 {
            1
        } else {
            self.batch_size / 8
        }
    }

    /// How many places in hand a backlog leaves free for what becomes due meanwhile: while a commit
    /// takes long, nothing that was claimed is settled, and what is fresh would have to wait for it.
    pub(super) const fn reserve(&self) -> usize {
        self.max_in_flight / 4
    }

    /// How often claims are renewed: well before their lease ends, even if one try fails.
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
    fn the_defaults_make_sense() {
        assert_eq!(WorkerSettings::default().check(), Ok(()));
        assert_eq!(WorkerSettings::for_a_broker().check(), Ok(()));
        assert_eq!(WorkerSettings::for_calls().check(), Ok(()));
    }

    #[test]
    fn what_makes_no_sense_is_named_with_what_would() {
        let default = WorkerSettings::default();
        let bad = [
            WorkerSettings {
                polling_interval: Duration::ZERO,
                ..default
            },
            WorkerSettings {
                batch_size: 0,
                ..default
            },
            WorkerSettings {
                lease: Duration::ZERO,
                ..default
            },
            WorkerSettings {
                publishes_in_flight: 0,
                ..default
            },
            WorkerSettings {
                publishes_per_tenant: 0,
                ..default
            },
            WorkerSettings {
                publish_batch: 0,
                ..default
            },
            WorkerSettings {
                max_in_flight: 99,
                ..default
            },
            WorkerSettings {
                drain_limit: Duration::MAX,
                ..default
            },
        ];
        let fields: Vec<_> = bad.iter().map(|s| s.check().unwrap_err().field).collect();
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
        let error = bad[6].check().unwrap_err();
        assert_eq!(
            error.to_string(),
            "max_in_flight is 99: give at least batch_size and at most a million"
        );
    }
}
