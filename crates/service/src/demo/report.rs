//! The result: figures and a histogram for people, one JSON object for programs.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::drawing;
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

pub(super) fn as_millis<S: Serializer>(
    duration: &Duration,
    serializer: S,
) -> Result<S::Ok, S::Error> {
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
        text.push_str(&drawing::histogram(&self.histogram, screen));
        text.push('\n');
        text.push_str(&drawing::percentiles(self.lateness_ms));
        text.push('\n');
        text.push_str(&self.counts());
        text
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
        drawing::rows(&rows)
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
