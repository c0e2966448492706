//! The result: figures and a histogram for people, one JSON object for programs.

use std::fmt::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::lateness::{Bucket, Percentiles};
use super::ledger::{Balance, Ledger};
use super::screen::{Screen, amount, late};

/// If half of the timers are late by so much, more come due than can be fired.
const OVERLOAD_MS: u64 = 1_000;

/// One time that the worker was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Kill {
    pub(super) process: u32,
    pub(super) fired_before: usize,
    /// From the kill until another one served.
    #[serde(rename = "downtimeMs", serialize_with = "as_millis")]
    pub(super) downtime: Duration,
    /// How many timers came due in that time.
    pub(super) due_meanwhile: u32,
}

impl fmt::Display for Kill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "killed {} after {} firings: down {}, {} came due",
            self.process,
            amount(self.fired_before),
            late(self.downtime),
            amount(self.due_meanwhile as usize),
        )
    }
}

fn as_millis<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u128(duration.as_millis())
}

/// What came out.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Summary {
    seconds: u32,
    tenants: u32,
    #[serde(flatten)]
    balance: Balance,
    /// From the due time until the firing was read.
    lateness_ms: Option<Percentiles>,
    /// From the due time until the worker noticed it, by its own account.
    noticed_ms: Option<Percentiles>,
    histogram: Vec<Bucket>,
    kills: Vec<Kill>,
    /// Where it is, if it was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) database: Option<PathBuf>,
}

impl Summary {
    pub(super) fn new(seconds: u32, tenants: u32, ledger: &Ledger, kills: &[Kill]) -> Self {
        Self {
            seconds,
            tenants,
            balance: ledger.balance(),
            lateness_ms: ledger.until_read().percentiles(),
            noticed_ms: ledger.until_noticed().percentiles(),
            histogram: ledger.until_read().histogram(),
            kills: kills.to_vec(),
            database: None,
        }
    }

    /// How many firings came more than once.
    pub(super) const fn fired_again(&self) -> usize {
        self.balance.again
    }

    /// Whether most were so late that it is not for a kill or a busy moment.
    pub(super) fn is_overloaded(&self) -> bool {
        let half = self.lateness_ms.map(|figures| figures.p50);
        half.is_some_and(|millis| millis >= OVERLOAD_MS)
    }

    /// For people.
    pub(super) fn text(&self, screen: &Screen) -> String {
        let mut text =
            String::from("\nHow late: from its due time until its line was read here\n\n");
        text.push_str(&histogram(&self.histogram, screen));
        text.push('\n');
        text.push_str(&self.percentiles());
        text.push('\n');
        text.push_str(&self.counts());
        text
    }

    fn percentiles(&self) -> String {
        let Some(Percentiles { p50, p99, max }) = self.lateness_ms else {
            return String::new();
        };
        let [p50, p99, max] = [p50, p99, max].map(|millis| late(Duration::from_millis(millis)));
        format!("  lateness     p50 {p50}   p99 {p99}   max {max}\n")
    }

    fn counts(&self) -> String {
        let Balance {
            scheduled,
            fired,
            again,
            early,
            lost,
            other_id,
            unasked,
        } = self.balance;
        let mut rows = vec![
            ("scheduled", scheduled, ""),
            ("fired", fired, ""),
            ("early", early, ""),
            ("lost", lost, ""),
        ];
        if again > 0 {
            let note = if self.kills.is_empty() {
                "under the same ids"
            } else {
                "after a kill, under the same ids"
            };
            rows.insert(2, ("fired again", again, note));
        }
        let longest = self.kills.iter().map(|kill| kill.downtime).max();
        let longest = longest.map(|down| format!("of the worker, down {} at most", late(down)));
        if let Some(note) = &longest {
            rows.push(("kills", self.kills.len(), note));
        }
        if other_id > 0 {
            rows.push((
                "other id",
                other_id,
                "fired again, but not under the same id",
            ));
        }
        if unasked > 0 {
            rows.push(("unasked", unasked, "fired, but nobody had asked for it"));
        }
        let shown = |count: usize| match count {
            0 => "none".to_owned(),
            _ => amount(count),
        };
        let width = rows.iter().map(|row| shown(row.1).len()).max();
        let width = width.unwrap_or(0);
        let mut text = String::new();
        for (label, count, note) in rows {
            let row = format!("  {label:11}  {:>width$}   {note}", shown(count));
            text.push_str(row.trim_end());
            text.push('\n');
        }
        text
    }
}

/// One bar for each bucket, from the first to the last that is not empty.
fn histogram(buckets: &[Bucket], screen: &Screen) -> String {
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

    fn screen(width: usize, is_unicode: bool) -> Screen {
        Screen {
            width,
            is_unicode,
            is_coloured: false,
        }
    }

    fn buckets(counts: &[(u64, Option<u64>, usize)]) -> Vec<Bucket> {
        let bucket = |&(from_ms, to_ms, timers)| Bucket {
            from_ms,
            to_ms,
            timers,
        };
        counts.iter().map(bucket).collect()
    }

    fn summary() -> Summary {
        Summary {
            seconds: 10,
            tenants: 10,
            balance: Balance {
                scheduled: 1_000,
                fired: 1_000,
                again: 7,
                early: 0,
                lost: 0,
                other_id: 0,
                unasked: 0,
            },
            lateness_ms: Some(Percentiles {
                p50: 1,
                p99: 12,
                max: 1_234,
            }),
            noticed_ms: None,
            histogram: buckets(&[
                (0, Some(1), 0),
                (1, Some(2), 900),
                (2, Some(5), 0),
                (500, Some(1_000), 99),
                (10_000, None, 1),
                (20_000, None, 0),
            ]),
            kills: Vec::new(),
            database: None,
        }
    }

    #[test]
    fn a_histogram_begins_and_ends_where_something_is() {
        let text = histogram(&summary().histogram, &screen(50, false));
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
        assert_eq!(histogram(&[], &screen(50, false)), "  nothing fired\n");
    }

    #[test]
    fn nothing_is_wider_than_the_screen_and_the_bars_use_it() {
        for width in [60, 80, 100] {
            for is_unicode in [true, false] {
                let text = summary().text(&screen(width, is_unicode));
                let widths = text.lines().map(|line| line.chars().count());
                let widest = widths.max().unwrap();
                assert!(widest <= width, "{widest} > {width}:\n{text}");
                assert!(widest >= width - 2, "{widest} < {width}:\n{text}");
                assert_eq!(text.is_ascii(), !is_unicode, "{text}");
            }
        }
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

    #[test]
    fn the_counts_name_what_went_wrong_only_if_it_did() {
        let mut summary = summary();
        let text = summary.counts();
        let again = "fired again      7   under the same ids\n";
        assert!(text.contains(again), "{text}");
        assert!(text.contains("lost          none\n"), "{text}");
        assert!(!text.contains("unasked") && !text.contains("other id"));
        summary.balance.unasked = 1;
        summary.balance.other_id = 2;
        let text = summary.counts();
        assert!(text.contains("unasked") && text.contains("other id"));
    }

    #[test]
    fn kills_are_shown_and_programs_get_every_figure_under_its_name() {
        let mut summary = summary();
        summary.kills.push(Kill {
            process: 5,
            fired_before: 200,
            downtime: Duration::from_millis(287),
            due_meanwhile: 29,
        });
        let json = serde_json::to_value(&summary).unwrap();
        let text = summary.counts();
        assert!(text.contains("7   after a kill"), "{text}");
        assert!(text.contains("1   of the worker, down 287 ms"), "{text}");
        assert_eq!(json["scheduled"], 1_000);
        assert_eq!(json["firedAgain"], 7);
        assert_eq!(json["latenessMs"]["max"], 1_234);
        assert_eq!(json["histogram"][1]["toMs"], 2);
        assert_eq!(json["kills"][0]["downtimeMs"], 287);
        assert_eq!(json["kills"][0]["firedBefore"], 200);
        assert!(json.get("database").is_none());
    }
}
