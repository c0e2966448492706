//! Lateness of timers and calls: percentiles, and a histogram.

use std::time::Duration;

use serde::Serialize;

use crate::screen::{Screen, amount, late};

/// Where one bar of the histogram ends and the next one begins, in milliseconds. Each is about
/// twice the one before, since a timer may be late by a millisecond or, after a kill, by a second.
const BOUNDS: [u64; 13] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000,
];

/// How late each of many was.
#[derive(Debug, Default)]
pub(crate) struct Lateness(Vec<Duration>);

/// The lateness, in milliseconds, of most, of almost all, and of the unluckiest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Percentiles {
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) max: u64,
}

/// From how many milliseconds on, below how many (`None`: however late), and how many were so late.
pub(crate) type Bucket = (u64, Option<u64>, usize);

impl Lateness {
    pub(crate) fn add(&mut self, lateness: Duration) {
        self.0.push(lateness);
    }

    /// `None` if there was nothing to measure.
    pub(crate) fn percentiles(&self) -> Option<Percentiles> {
        let mut sorted: Vec<u64> = self.0.iter().map(|late| millis(*late)).collect();
        sorted.sort_unstable();
        // The smallest value that this percentage does not exceed.
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
    pub(crate) fn buckets(&self) -> Vec<Bucket> {
        let from = [0].into_iter().chain(BOUNDS);
        let to = BOUNDS.into_iter().map(Some).chain([None]);
        let mut buckets: Vec<_> = from.zip(to).map(|(from, to)| (from, to, 0)).collect();
        for late in &self.0 {
            let n = BOUNDS.partition_point(|bound| *bound <= millis(*late));
            buckets[n].2 += 1;
        }
        buckets
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Percentiles {
    /// One line.
    pub(crate) fn text(self) -> String {
        let [p50, p99, max] =
            [self.p50, self.p99, self.max].map(|millis| late(Duration::from_millis(millis)));
        format!("  lateness     p50 {p50}   p99 {p99}   max {max}\n")
    }
}

/// One bar for each bucket, from the first to the last that is not empty.
pub(crate) fn histogram(buckets: &[Bucket], screen: &Screen) -> String {
    let filled = |bucket: &Bucket| bucket.2 > 0;
    let (Some(first), Some(last)) = (
        buckets.iter().position(filled),
        buckets.iter().rposition(filled),
    ) else {
        return "  nothing arrived\n".to_owned();
    };
    let rows = buckets[first..=last].iter();
    let rows: Vec<_> = rows
        .map(|(from, to, count)| (range(*from, *to, screen.is_unicode), *count))
        .collect();
    let labels = rows.iter().map(|(label, _)| label.chars().count());
    let labels = labels.max().unwrap_or(0);
    let total: usize = rows.iter().map(|(_, count)| count).sum();
    let most = rows.iter().map(|(_, count)| *count).max().unwrap_or(1);
    let counts = amount(most).len();
    // Two in front, two between the columns, and " 100.0 %" in the end.
    let room = screen.width.saturating_sub(2 + labels + 2 + 2 + counts + 9);
    let row = |(label, count): (String, usize)| {
        let bar = bar(count, most, room, screen.is_unicode);
        let permille = (count * 1_000 + total / 2) / total;
        let (percent, tenth, count) = (permille / 10, permille % 10, amount(count));
        format!("  {label:>labels$}  {bar:room$}  {count:>counts$}  {percent:>3}.{tenth} %\n")
    };
    rows.into_iter().map(row).collect()
}

/// A bar that is as long as `part` is of `most`; of anything at all, something is seen.
fn bar(part: usize, most: usize, room: usize, is_unicode: bool) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    if part == 0 {
        return String::new();
    }
    if !is_unicode {
        return "#".repeat((part * room / most).max(1));
    }
    let eighths = (part * room * 8 / most).max(1);
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

/// From when to when.
fn range(from_ms: u64, to_ms: Option<u64>, is_unicode: bool) -> String {
    let dash = if is_unicode { "–" } else { "-" };
    let unit = |millis: u64| match millis {
        0..1_000 => (millis, "ms"),
        _ => (millis / 1_000, "s"),
    };
    let (from, from_unit) = unit(from_ms);
    match to_ms.map(unit) {
        None => format!(">{from} {from_unit}"),
        Some((to, unit)) if from == 0 => format!("<{to} {unit}"),
        Some((to, unit)) if unit == from_unit => format!("{from}{dash}{to} {unit}"),
        Some((to, unit)) => format!("{from} {from_unit}{dash}{to} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::tests::plain;

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
        let buckets = late([0, 0, 1, 2, 4, 5, 999, 1_000, 10_000, 70_000]).buckets();
        let filled: Vec<_> = buckets.into_iter().filter(|bucket| bucket.2 > 0).collect();
        let millis = [
            (0, Some(1), 2),
            (1, Some(2), 1),
            (2, Some(5), 2),
            (5, Some(10), 1),
        ];
        assert_eq!(filled[..4], millis);
        let seconds = [
            (500, Some(1_000), 1),
            (1_000, Some(2_000), 1),
            (10_000, None, 2),
        ];
        assert_eq!(filled[4..], seconds);
    }

    #[test]
    fn the_buckets_leave_no_gap_and_count_everything() {
        let buckets = late(0..20_000).buckets();
        for pair in buckets.windows(2) {
            assert_eq!(pair[0].1, Some(pair[1].0));
        }
        let counted: usize = buckets.iter().map(|bucket| bucket.2).sum();
        assert_eq!(counted, 20_000);
    }

    #[test]
    fn a_histogram_begins_and_ends_where_something_is() {
        let millis = [1; 900].into_iter().chain([700; 99]).chain([12_000]);
        let text = histogram(&late(millis).buckets(), &plain(50));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 13, "{text}");
        for (n, line) in [
            (0, "      1-2 ms  ######################  900   90.0 %"),
            (1, "      2-5 ms                            0    0.0 %"),
            (8, "  500 ms-1 s  ##                       99    9.9 %"),
            (12, "       >10 s  #                         1    0.1 %"),
        ] {
            assert_eq!(lines[n], line);
        }
        assert_eq!(histogram(&[], &plain(50)), "  nothing arrived\n");
    }

    #[test]
    fn a_bar_is_as_long_as_its_part_and_never_invisible() {
        assert_eq!(bar(0, 100, 10, true), "");
        assert_eq!(bar(1, 100_000, 10, true), "▏");
        assert_eq!(bar(50, 100, 10, true), "█████");
        assert_eq!(bar(55, 100, 10, true), "█████▌");
        assert_eq!(bar(100, 100, 10, true), "██████████");
        assert_eq!(bar(1, 100_000, 10, false), "#");
    }
}
