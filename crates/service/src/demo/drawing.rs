//! How a result is drawn for people: bars, percentiles and rows of figures.

use std::fmt::Write as _;
use std::time::Duration;

use super::lateness::{Bucket, Percentiles};
use super::screen::{Screen, amount, late};

/// A line with the percentiles, if there are any.
pub(super) fn percentiles(figures: Option<Percentiles>) -> String {
    let Some(Percentiles { p50, p99, max }) = figures else {
        return String::new();
    };
    let [p50, p99, max] = [p50, p99, max].map(|millis| late(Duration::from_millis(millis)));
    format!("  lateness     p50 {p50}   p99 {p99}   max {max}\n")
}

/// A line for each figure: what it counts, and a note.
pub(super) fn rows(rows: &[(&str, usize, &str)]) -> String {
    let shown = |count: usize| match count {
        0 => "none".to_owned(),
        _ => amount(count),
    };
    let width = rows.iter().map(|row| shown(row.1).len()).max();
    let width = width.unwrap_or(0);
    let mut text = String::new();
    for (label, count, note) in rows {
        let row = format!("  {label:11}  {:>width$}   {note}", shown(*count));
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

/// One bar for each bucket, from the first to the last that is not empty.
pub(super) fn histogram(buckets: &[Bucket], screen: &Screen) -> String {
    let filled = |bucket: &Bucket| bucket.timers > 0;
    let (Some(first), Some(last)) = (
        buckets.iter().position(filled),
        buckets.iter().rposition(filled),
    ) else {
        return "  nothing fired\n".to_owned();
    };
    let buckets = &buckets[first..=last];
    let label = |bucket: &Bucket| range(bucket, screen.is_unicode);
    let labels = buckets.iter().map(|bucket| label(bucket).chars().count());
    let labels = labels.max().unwrap_or(0);
    let total: usize = buckets.iter().map(|bucket| bucket.timers).sum();
    let most = buckets.iter().map(|bucket| bucket.timers).max();
    let most = most.unwrap_or(1).max(1);
    let counts = amount(most).len();
    // Two in front, two between the columns, and " 100.0 %" in the end.
    let room = screen.width.saturating_sub(2 + labels + 2 + 2 + counts + 9);
    let mut text = String::new();
    for bucket in buckets {
        let bar = bar(bucket.timers, most, room, screen.is_unicode);
        let permille = (bucket.timers * 1_000 + total / 2) / total;
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "  {:>labels$}  {bar:room$}  {:>counts$}  {:>3}.{} %",
            label(bucket),
            amount(bucket.timers),
            permille / 10,
            permille % 10,
        );
    }
    text
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
fn range(bucket: &Bucket, is_unicode: bool) -> String {
    let dash = if is_unicode { "–" } else { "-" };
    let unit = |millis: u64| match millis {
        0..1_000 => (millis, "ms"),
        _ => (millis / 1_000, "s"),
    };
    let (from, from_unit) = unit(bucket.from_ms);
    match bucket.to_ms.map(unit) {
        None => format!(">{from} {from_unit}"),
        Some((to, unit)) if from == 0 => format!("<{to} {unit}"),
        Some((to, unit)) if unit == from_unit => format!("{from}{dash}{to} {unit}"),
        Some((to, unit)) => format!("{from} {from_unit}{dash}{to} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen(width: usize) -> Screen {
        Screen {
            width,
            is_unicode: false,
            is_coloured: false,
        }
    }

    fn buckets() -> Vec<Bucket> {
        let counts = [
            (0, Some(1), 0),
            (1, Some(2), 900),
            (2, Some(5), 0),
            (500, Some(1_000), 99),
            (10_000, None, 1),
            (20_000, None, 0),
        ];
        let bucket = |(from_ms, to_ms, timers)| Bucket {
            from_ms,
            to_ms,
            timers,
        };
        counts.map(bucket).into()
    }

    #[test]
    fn a_histogram_begins_and_ends_where_something_is() {
        let text = histogram(&buckets(), &screen(50));
        assert_eq!(
            text,
            [
                "      1-2 ms  ######################  900   90.0 %\n",
                "      2-5 ms                            0    0.0 %\n",
                "  500 ms-1 s  ##                       99    9.9 %\n",
                "       >10 s  #                         1    0.1 %\n",
            ]
            .concat()
        );
        assert_eq!(histogram(&[], &screen(50)), "  nothing fired\n");
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
