//! How late timers were: percentiles, and how many fall between which bounds.

use std::time::Duration;

use serde::Serialize;

/// Where one bar of the histogram ends and the next one begins, in milliseconds. Each is about
/// twice the one before, since a timer may be late by a millisecond or, after a kill, by a second.
const BOUNDS: [u64; 13] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000,
];

/// How late each of many timers was.
#[derive(Debug, Default)]
pub(super) struct Lateness(Vec<Duration>);

/// The figures that tell how it was for most, for almost all, and for the unluckiest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Percentiles {
    pub(super) p50: u64,
    pub(super) p99: u64,
    pub(super) max: u64,
}

/// How many timers were late by at least `from_ms` and less than `to_ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Bucket {
    pub(super) from_ms: u64,
    /// `None`: however late.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) to_ms: Option<u64>,
    pub(super) timers: usize,
}

impl Lateness {
    pub(super) fn add(&mut self, lateness: Duration) {
        self.0.push(lateness);
    }

    /// In milliseconds; `None` if there was no timer.
    pub(super) fn percentiles(&self) -> Option<Percentiles> {
        let mut sorted: Vec<u64> = self.0.iter().map(|late| millis(*late)).collect();
        sorted.sort_unstable();
        // The smallest figure that so many percent do not exceed.
        let rank = |percent: usize| {
            let rank = (sorted.len() * percent).div_ceil(100).max(1);
            sorted.get(rank - 1).copied()
        };
        Some(Percentiles {
            p50: rank(50)?,
            p99: rank(99)?,
            max: rank(100)?,
        })
    }

    /// Every bucket, also the empty ones.
    pub(super) fn histogram(&self) -> Vec<Bucket> {
        let from = [0].into_iter().chain(BOUNDS);
        let to = BOUNDS.into_iter().map(Some).chain([None]);
        let mut buckets: Vec<Bucket> = from
            .zip(to)
            .map(|(from_ms, to_ms)| Bucket {
                from_ms,
                to_ms,
                timers: 0,
            })
            .collect();
        for late in &self.0 {
            let n = BOUNDS.partition_point(|bound| *bound <= millis(*late));
            buckets[n].timers += 1;
        }
        buckets
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn late(millis: impl IntoIterator<Item = u64>) -> Lateness {
        Lateness(millis.into_iter().map(Duration::from_millis).collect())
    }

    #[test]
    fn percentiles_are_figures_that_really_occurred() {
        let all = |p50, p99, max| Some(Percentiles { p50, p99, max });
        assert_eq!(late([]).percentiles(), None);
        assert_eq!(late([7]).percentiles(), all(7, 7, 7));
        assert_eq!(late([9, 1]).percentiles(), all(1, 9, 9));
        assert_eq!(late((1..=100).rev()).percentiles(), all(50, 99, 100));
        assert_eq!(late(1..=1_000).percentiles(), all(500, 990, 1_000));
    }

    #[test]
    fn a_bound_belongs_to_the_bucket_that_begins_there() {
        let buckets = late([0, 0, 1, 2, 4, 5, 999, 1_000, 10_000, 70_000]).histogram();
        let filled: Vec<(u64, Option<u64>, usize)> = buckets
            .iter()
            .filter(|bucket| bucket.timers > 0)
            .map(|bucket| (bucket.from_ms, bucket.to_ms, bucket.timers))
            .collect();
        assert_eq!(
            filled,
            [
                (0, Some(1), 2),
                (1, Some(2), 1),
                (2, Some(5), 2),
                (5, Some(10), 1),
                (500, Some(1_000), 1),
                (1_000, Some(2_000), 1),
                (10_000, None, 2),
            ]
        );
    }

    #[test]
    fn the_buckets_leave_no_gap_and_count_everything() {
        let buckets = late(0..20_000).histogram();
        for pair in buckets.windows(2) {
            assert_eq!(pair[0].to_ms, Some(pair[1].from_ms));
        }
        let counted: usize = buckets.iter().map(|bucket| bucket.timers).sum();
        assert_eq!(counted, 20_000);
    }
}
