//! Backoff: the growing delay after consecutive failures.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// Exponential backoff: delays that double with each failure, up to a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// Delay after the first failure.
    pub first: Duration,
    /// Maximum delay.
    pub limit: Duration,
}

impl Backoff {
    /// A backoff from the delay after the first failure up to the maximum delay.
    pub const fn new(first: Duration, limit: Duration) -> Self {
        Self { first, limit }
    }

    /// Delay after failure number `failures`, counted from one, with a jitter of up to a quarter.
    ///
    /// Without jitter, operations that failed together would be retried together. It is derived from the
    /// operation and not random, so that a history which failed a test fails it again.
    pub fn after(self, failures: u32, what: &impl Hash) -> Duration {
        let doublings = failures.saturating_sub(1).min(30);
        let wait = self.first.saturating_mul(1 << doublings).min(self.limit);
        wait.mul_f64(1.0 - jitter(&(what, failures)) / 4.0)
    }
}

/// A number from zero up to one that is always the same for the same value.
fn jitter(what: &impl Hash) -> f64 {
    // The default hasher has fixed keys, so the same value gives the same number in every run.
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    f64::from(u16::try_from(hasher.finish() >> 48).unwrap_or(0)) / 65_536.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BACKOFF: Backoff = Backoff {
        first: Duration::from_secs(1),
        limit: Duration::from_hours(1),
    };

    proptest! {
        #[test]
        fn a_wait_doubles_up_to_the_limit_and_is_spread_by_a_quarter(
            failures in 1..u32::MAX, what in any::<u64>(),
        ) {
            let whole = Duration::from_secs(1 << (failures - 1).min(20)).min(BACKOFF.limit);
            let wait = BACKOFF.after(failures, &what);
            prop_assert!(wait <= whole && wait >= whole * 3 / 4, "{wait:?} of {whole:?}");
            prop_assert_eq!(wait, BACKOFF.after(failures, &what));
        }
    }

    #[test]
    fn different_things_wait_for_different_times() {
        let waits: std::collections::BTreeSet<_> =
            (0..100).map(|n| BACKOFF.after(10, &n)).collect();
        assert!(waits.len() > 90);
    }
}
