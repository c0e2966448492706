//! What is said about each measurement: ours, bare, the figure that counts, and its target.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::grouped;
use crate::stats::Rounds;

/// What a figure has to be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
    /// Shown for comparison only.
    None,
}

impl Target {
    /// By how much a figure misses; `None` if it holds.
    pub(crate) fn missed_by(self, figure: f64) -> Option<f64> {
        let missing = match self {
            Self::AtLeast(least) => least - figure,
            Self::AtMost(most) => figure - most,
            Self::None => 0.0,
        };
        (missing > 0.0).then_some(missing)
    }
}

/// What a number is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    PerSecond,
    Milliseconds,
    Microseconds,
    Bytes,
    Mebibytes,
    Seconds,
    Percent,
    /// A number of things.
    Count,
    /// One number divided by another.
    Times,
}

impl Unit {
    fn shown(self, value: f64) -> String {
        match self {
            Self::PerSecond => format!("{} /s", rounded(value)),
            Self::Milliseconds => format!("{value:.2} ms"),
            Self::Microseconds => format!("{value:.1} µs"),
            Self::Bytes => format!("{value:.0} bytes"),
            Self::Mebibytes => format!("{value:.1} MiB"),
            Self::Seconds => format!("{value:.0} s"),
            Self::Percent => format!("{value:.3} %"),
            Self::Count => format!("{value:.0}"),
            Self::Times => format!("{value:.2}"),
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::PerSecond => "1/s",
            Self::Milliseconds => "ms",
            Self::Microseconds => "µs",
            Self::Bytes => "bytes",
            Self::Mebibytes => "MiB",
            Self::Seconds => "s",
            Self::Percent => "%",
            Self::Count => "count",
            Self::Times => "ratio",
        }
    }
}

/// One measurement of a line.
#[derive(Debug)]
pub(crate) struct Measure {
    /// The line that it belongs to: `S1`.
    pub(crate) line: &'static str,
    pub(crate) what: String,
    /// The unit of `ours` and `bare`.
    pub(crate) unit: Unit,
    pub(crate) ours: Rounds,
    pub(crate) bare: Option<Rounds>,
    /// What the target is about, and its unit.
    pub(crate) figure: Rounds,
    pub(crate) figure_unit: Unit,
    pub(crate) target: Target,
    /// On what: rows, tenants, and whatever else was chosen.
    pub(crate) on: String,
}

impl Measure {
    pub(crate) fn holds(&self) -> bool {
        self.missed_by().is_none()
    }

    pub(crate) fn has_target(&self) -> bool {
        self.target != Target::None
    }

    fn missed_by(&self) -> Option<f64> {
        self.target.missed_by(self.figure.median())
    }

    /// Three lines for people.
    pub(crate) fn text(&self) -> String {
        let figure = |value| self.figure_unit.shown(value);
        let mut text = format!("{:<4} {}\n     ", self.line, self.what);
        let _ = write!(text, "ours {}", self.unit.shown(self.ours.median()));
        if let Some(bare) = &self.bare {
            let _ = write!(text, "   bare {}", self.unit.shown(bare.median()));
        }
        let (mut spread, mut rounds) = (String::new(), String::new());
        if self.figure.len() > 1 {
            let (min, max) = (figure(self.figure.min()), figure(self.figure.max()));
            spread = format!(" ({min} – {max})");
            rounds = format!("; {} rounds", self.figure.len());
        }
        let _ = write!(
            text,
            "   figure {}{}   {}\n     on {}{}\n",
            figure(self.figure.median()),
            spread,
            self.verdict(),
            self.on,
            rounds,
        );
        text
    }

    /// Against its target, in words.
    pub(crate) fn verdict(&self) -> String {
        let wanted = match self.target {
            Target::AtLeast(least) => format!("target ≥ {}", self.figure_unit.shown(least)),
            Target::AtMost(most) => format!("target ≤ {}", self.figure_unit.shown(most)),
            Target::None => return "for comparison".to_owned(),
        };
        match self.missed_by() {
            None => format!("{wanted}: holds"),
            Some(missing) => format!("{wanted}: MISSES by {}", self.figure_unit.shown(missing)),
        }
    }

    pub(crate) fn json(&self) -> Value {
        let (target, kind) = match self.target {
            Target::AtLeast(least) => (json!(least), json!("at least")),
            Target::AtMost(most) => (json!(most), json!("at most")),
            Target::None => (Value::Null, Value::Null),
        };
        json!({
            "line": self.line,
            "what": self.what,
            "unit": self.unit.name(),
            "ours": rounds_json(&self.ours),
            "bare": self.bare.as_ref().map(rounds_json),
            "figure": rounds_json(&self.figure),
            "figureUnit": self.figure_unit.name(),
            "target": target,
            "targetIs": kind,
            "holds": self.holds(),
            "missedBy": self.missed_by(),
            "on": self.on,
        })
    }
}

fn rounds_json(rounds: &Rounds) -> Value {
    json!({
        "median": rounds.median(),
        "min": rounds.min(),
        "max": rounds.max(),
        "rounds": rounds.values(),
    })
}

/// A rate, to the digits that mean something.
fn rounded(value: f64) -> String {
    let whole = format!("{value:.0}").parse().unwrap_or(0);
    grouped(whole)
}
