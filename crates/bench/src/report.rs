//! What is said about each measurement: ours, bare, the figure that counts, and its target.

use serde_json::{Value, json};

use crate::stats::Rounds;
use crate::{Outcome, grouped};

/// What a figure has to be.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Target {
    AtLeast(f64),
    AtMost(f64),
    /// Shown for comparison only.
    None,
}

impl Target {
    /// By how much a figure misses; `None` if it holds.
    fn missed_by(self, figure: f64) -> Option<f64> {
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
    /// Its name, what is shown of it after a number, and to how many digits that is.
    const fn form(self) -> (&'static str, &'static str, usize) {
        match self {
            Self::PerSecond => ("1/s", " /s", 0),
            Self::Milliseconds => ("ms", " ms", 2),
            Self::Microseconds => ("µs", " µs", 1),
            Self::Bytes => ("bytes", " bytes", 0),
            Self::Mebibytes => ("MiB", " MiB", 1),
            Self::Seconds => ("s", " s", 0),
            Self::Percent => ("%", " %", 3),
            Self::Count => ("count", "", 0),
            Self::Times => ("ratio", "", 2),
        }
    }

    fn shown(self, value: f64) -> String {
        let (_, symbol, digits) = self.form();
        let number = format!("{value:.digits$}");
        match self {
            Self::PerSecond => grouped(number.parse().unwrap_or(0)) + symbol,
            _ => number + symbol,
        }
    }
}

/// One measurement of a line.
#[derive(Debug)]
pub(crate) struct Measure {
    /// The line that it belongs to: `S1`. Empty: the one that is run.
    pub(crate) line: &'static str,
    what: String,
    /// The unit of `ours` and `bare`.
    unit: Unit,
    ours: Rounds,
    bare: Option<Rounds>,
    /// What the target is about, and its unit.
    figure: Rounds,
    figure_unit: Unit,
    target: Target,
    /// On what: rows, tenants, and whatever else was chosen.
    on: String,
}

impl Measure {
    /// A measurement whose own value is what counts, for comparison.
    pub(crate) fn of(what: impl Into<String>, unit: Unit, ours: &Rounds, on: &str) -> Self {
        Self {
            line: "",
            what: what.into(),
            unit,
            ours: ours.clone(),
            bare: None,
            figure: ours.clone(),
            figure_unit: unit,
            target: Target::None,
            on: on.to_owned(),
        }
    }

    /// Shows a bare loop's beside it.
    pub(crate) fn beside(mut self, bare: &Rounds) -> Self {
        self.bare = Some(bare.clone());
        self
    }

    /// What counts is another figure.
    pub(crate) fn with_figure(mut self, figure: Rounds, unit: Unit) -> Self {
        (self.figure, self.figure_unit) = (figure, unit);
        self
    }

    /// What counts is its ratio to a bare loop's.
    pub(crate) fn ratio_to(self, bare: &Rounds) -> Outcome<Self> {
        let ratio = self.ours.ratio(bare)?;
        Ok(self.beside(bare).with_figure(ratio, Unit::Times))
    }

    /// What counts is the difference to a bare loop's.
    pub(crate) fn over(self, bare: &Rounds) -> Outcome<Self> {
        let (over, unit) = (
            self.ours.against(bare, |ours, bare| ours - bare)?,
            self.unit,
        );
        Ok(self.beside(bare).with_figure(over, unit))
    }

    /// What counts has this target.
    pub(crate) fn at_least(mut self, least: f64) -> Self {
        self.target = Target::AtLeast(least);
        self
    }

    /// What counts has this target.
    pub(crate) fn at_most(mut self, most: f64) -> Self {
        self.target = Target::AtMost(most);
        self
    }

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
        let (line, what, on) = (self.line, &self.what, &self.on);
        let ours = self.unit.shown(self.ours.median());
        let bare = self
            .bare
            .as_ref()
            .map(|bare| self.unit.shown(bare.median()));
        let bare = bare.map_or(String::new(), |bare| format!("   bare {bare}"));
        let (mut spread, mut rounds) = (String::new(), String::new());
        if self.figure.values().len() > 1 {
            let (min, max) = (figure(self.figure.min()), figure(self.figure.max()));
            spread = format!(" ({min} – {max})");
            rounds = format!("; {} rounds", self.figure.values().len());
        }
        let (figure, verdict) = (figure(self.figure.median()), self.verdict());
        format!(
            "{line:<4} {what}\n     ours {ours}{bare}   figure {figure}{spread}   {verdict}\n     \
             on {on}{rounds}\n"
        )
    }

    /// Against its target, in words.
    fn verdict(&self) -> String {
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
            "unit": self.unit.form().0,
            "ours": rounds_json(&self.ours),
            "bare": self.bare.as_ref().map(rounds_json),
            "figure": rounds_json(&self.figure),
            "figureUnit": self.figure_unit.form().0,
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
