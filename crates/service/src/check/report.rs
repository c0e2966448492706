//! Findings, one line each.

use serde::Serialize;

use crate::cli::Output;
use crate::commands::output::Answers;
use crate::display::one_line;
use crate::failure::Failure;

/// Width of the longest name, that of a setting.
const WIDTH: usize = 26;

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    /// It works, and carries a risk.
    Warn,
    Wrong,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Finding {
    ok: bool,
    verdict: Verdict,
    what: &'static str,
    detail: String,
}

/// The findings so far.
#[derive(Debug, Default)]
pub(super) struct Report(Vec<Finding>);

impl Report {
    pub(super) fn ok(&mut self, what: &'static str, detail: impl AsRef<str>) {
        self.add(Verdict::Ok, what, detail.as_ref());
    }

    /// A risk that does not prevent serving.
    pub(super) fn warn(&mut self, what: &'static str, detail: impl AsRef<str>) {
        self.add(Verdict::Warn, what, detail.as_ref());
    }

    pub(super) fn wrong(&mut self, what: &'static str, detail: impl AsRef<str>) {
        self.add(Verdict::Wrong, what, detail.as_ref());
    }

    /// Adds a problem, unless another finding reports it already.
    pub(super) fn wrong_unless_reported(&mut self, what: &'static str, detail: impl AsRef<str>) {
        let detail = one_line(detail.as_ref());
        if !self.0.iter().any(|it| !it.ok && it.detail == detail) {
            self.wrong(what, detail);
        }
    }

    fn add(&mut self, verdict: Verdict, what: &'static str, detail: &str) {
        self.0.push(Finding {
            ok: verdict != Verdict::Wrong,
            verdict,
            what,
            detail: one_line(detail),
        });
    }

    pub(super) fn wrong_count(&self) -> usize {
        self.0.iter().filter(|finding| !finding.ok).count()
    }

    #[cfg(test)]
    pub(super) fn has_warnings(&self) -> bool {
        let mut verdicts = self.0.iter().map(|finding| finding.verdict);
        verdicts.any(|verdict| verdict == Verdict::Warn)
    }

    pub(super) fn show(&self, answers: &mut Answers, output: Output) -> Result<(), Failure> {
        match output {
            Output::Json => answers.lines(&self.0),
            Output::Table => answers.text(&self.text()),
        }
    }

    fn text(&self) -> String {
        let lines = self.0.iter().map(|finding| {
            let verdict = match finding.verdict {
                Verdict::Ok => "ok",
                Verdict::Warn => "warn",
                Verdict::Wrong => "WRONG",
            };
            let (what, detail) = (finding.what, &finding.detail);
            format!("{verdict:5} {what:WIDTH$}  {detail}\n")
        });
        lines.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finding_is_a_line_that_begins_with_the_verdict() {
        let mut report = Report::default();
        report.ok("disk", "9 GiB are free");
        report.wrong("TIMER_BROKER_PASSWORD_FILE", "it is wrong");
        report.warn("secure", "no");
        assert_eq!(
            report.text(),
            "ok    disk                        9 GiB are free\n\
             WRONG TIMER_BROKER_PASSWORD_FILE  it is wrong\n\
             warn  secure                      no\n"
        );
        assert_eq!(report.wrong_count(), 1);
    }
}
