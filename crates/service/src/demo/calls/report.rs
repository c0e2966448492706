//! The result of the calls: figures and a histogram for people, one JSON object for programs.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use punctual_domain::service_call::ErrorKind;
use serde::Serialize;

use super::books::{Balance, Books};
use crate::demo::drawing;
use crate::demo::lateness::{Bucket, Percentiles};
use crate::demo::report::as_millis;
use crate::demo::screen::{Screen, amount, late};

/// One time that the service was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Kill {
    pub(super) process: u32,
    pub(super) requests_before: usize,
    /// From the kill until another one served.
    #[serde(rename = "downtimeMs", serialize_with = "as_millis")]
    pub(super) downtime: Duration,
    /// How many calls came due in that time.
    pub(super) due_meanwhile: u32,
}

impl fmt::Display for Kill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "killed {} after {} requests: down {}, {} came due",
            self.process,
            amount(self.requests_before),
            late(self.downtime),
            amount(self.due_meanwhile as usize),
        )
    }
}

/// A bar of the histogram, by the names that suit calls.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Bar {
    from_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    to_ms: Option<u64>,
    calls: usize,
}

/// What came out.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Summary {
    seconds: u32,
    tenants: u32,
    #[serde(flatten)]
    balance: Balance,
    /// From the due time until the target had the request.
    lateness_ms: Option<Percentiles>,
    histogram: Vec<Bar>,
    #[serde(skip)]
    buckets: Vec<Bucket>,
    kills: Vec<Kill>,
    /// Where it is, if it was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) database: Option<PathBuf>,
}

impl Summary {
    pub(super) fn new(seconds: u32, tenants: u32, books: &Books, kills: &[Kill]) -> Self {
        let buckets = books.lateness().histogram();
        let bar = |bucket: &Bucket| Bar {
            from_ms: bucket.from_ms,
            to_ms: bucket.to_ms,
            calls: bucket.timers,
        };
        Self {
            seconds,
            tenants,
            balance: books.balance(),
            lateness_ms: books.lateness().percentiles(),
            histogram: buckets.iter().map(bar).collect(),
            buckets,
            kills: kills.to_vec(),
            database: None,
        }
    }

    /// How many calls have failed in that way.
    pub(super) fn failed(&self, kind: ErrorKind) -> usize {
        let count = self.balance.failed.get(kind.as_str());
        count.copied().unwrap_or(0)
    }

    /// For people.
    pub(super) fn text(&self, screen: &Screen) -> String {
        let histogram = drawing::histogram(&self.buckets, screen);
        let percentiles = drawing::percentiles(self.lateness_ms);
        let counts = self.counts();
        format!(
            "\nHow late: from its due time until its target got the request\n\n\
             {histogram}\n{percentiles}\n{counts}"
        )
    }

    fn counts(&self) -> String {
        let balance = &self.balance;
        let mut rows = vec![("accepted", balance.accepted, "")];
        if balance.sent_again > 0 {
            let note = "submissions, under the same keys";
            rows.push(("sent again", balance.sent_again, note));
        }
        rows.push(("requests", balance.requests, "that the target saw"));
        rows.push(("succeeded", balance.succeeded, ""));
        for (kind, count) in &balance.failed {
            rows.push(("failed", *count, note(kind)));
        }
        rows.push(("twice", balance.twice, ""));
        rows.push(("early", balance.early, ""));
        rows.push(("no outcome", balance.without_outcome, ""));
        if balance.untrue > 0 {
            let note = "outcomes that are not what the target answered";
            rows.push(("untrue", balance.untrue, note));
        }
        if balance.unasked > 0 {
            let note = "requests that nobody had asked for";
            rows.push(("unasked", balance.unasked, note));
        }
        let longest = self.kills.iter().map(|kill| kill.downtime).max();
        let longest = longest.map(|down| format!("of the service, down {} at most", late(down)));
        if let Some(note) = &longest {
            rows.push(("kills", self.kills.len(), note));
        }
        drawing::rows(&rows)
    }
}

/// What a kind of failure means here.
fn note(kind: &str) -> &str {
    if kind == ErrorKind::HttpStatus.as_str() {
        "HttpStatus: the target answered 500, as it should"
    } else if kind == ErrorKind::Interrupted.as_str() {
        "Interrupted: under way at a kill, and not repeated"
    } else {
        kind
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary() -> Summary {
        let failed = [("HttpStatus", 20), ("Interrupted", 3), ("Timeout", 1)];
        let failed = failed.map(|(kind, count)| (kind.to_owned(), count));
        let mut summary = Summary::new(10, 5, &Books::default(), &[]);
        summary.balance = Balance {
            calls: 200,
            accepted: 200,
            succeeded: 176,
            failed: failed.into(),
            requests: 200,
            ..Balance::default()
        };
        summary
    }

    #[test]
    fn failures_are_told_by_their_kind_and_what_must_not_be_always() {
        let summary = summary();
        let text = summary.counts();
        for line in [
            "  accepted      200\n",
            "  succeeded     176\n",
            "  failed         20   HttpStatus: ",
            "  failed          3   Interrupted: ",
            "  failed          1   Timeout\n",
            "  twice        none\n",
            "  early        none\n",
            "  no outcome   none\n",
        ] {
            assert!(text.contains(line), "{line:?} is not in\n{text}");
        }
        for word in ["sent again", "untrue", "unasked", "kills"] {
            assert!(!text.contains(word), "{word} is in\n{text}");
        }
        assert_eq!(summary.failed(ErrorKind::Interrupted), 3);
        assert_eq!(summary.failed(ErrorKind::ConnectFailed), 0);
    }

    #[test]
    fn what_happened_besides_is_told_if_it_did() {
        let mut summary = summary();
        summary.balance.sent_again = 4;
        summary.balance.untrue = 1;
        summary.balance.unasked = 2;
        summary.kills.push(Kill {
            process: 5,
            requests_before: 50,
            downtime: Duration::from_millis(287),
            due_meanwhile: 6,
        });
        let text = summary.counts();
        for words in ["sent again", "untrue", "unasked", "down 287 ms"] {
            assert!(text.contains(words), "{words} is not in\n{text}");
        }
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest.unwrap() <= 80, "{text}");
    }

    #[test]
    fn programs_get_every_figure_under_its_name() {
        let mut summary = summary();
        summary.kills.push(Kill {
            process: 5,
            requests_before: 50,
            downtime: Duration::from_millis(287),
            due_meanwhile: 6,
        });
        let json = serde_json::to_value(&summary).unwrap();
        assert_eq!(json["calls"], 200);
        assert_eq!(json["failed"]["Interrupted"], 3);
        for field in ["twice", "early", "withoutOutcome", "sentAgain"] {
            assert_eq!(json[field], 0, "{field}");
        }
        assert_eq!(json["histogram"][1]["toMs"], 2);
        assert_eq!(json["histogram"][1]["calls"], 0);
        assert_eq!(json["kills"][0]["requestsBefore"], 50);
        assert_eq!(json["kills"][0]["downtimeMs"], 287);
        assert!(json.get("database").is_none() && json.get("buckets").is_none());
    }
}
