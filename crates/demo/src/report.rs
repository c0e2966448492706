//! The report: figures, a histogram and a few sentences for people, one JSON object for programs.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use punctual_domain::service_call::ErrorKind;
use serde_json::{Value, json};

use crate::args::DemoArgs;
use crate::lateness::{Bucket, Percentiles, histogram};
use crate::ledger::Ledger;
use crate::plan::Script;
use crate::screen::{Screen, amount, late};

/// If half of the timers are late by so much, more come due than can be fired.
const OVERLOAD_MS: u64 = 1_000;

/// One time that the worker was killed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Kill {
    pub(crate) process: u32,
    /// Number of timers that had fired, or of calls that had come to the target.
    pub(crate) arrived_before: usize,
    /// From the kill until another one served.
    pub(crate) downtime: Duration,
    /// Number of timers or calls that came due in that time.
    pub(crate) due_meanwhile: usize,
}

impl Kill {
    /// One line.
    pub(crate) fn text(&self, script: Script) -> String {
        format!(
            "killed {} after {} {}: down {}, {} came due",
            self.process,
            amount(self.arrived_before),
            match script {
                Script::Timers => "firings",
                Script::Calls => "requests",
            },
            late(self.downtime),
            amount(self.due_meanwhile),
        )
    }
}

/// What will happen.
pub(crate) fn introduction(args: &DemoArgs, kills: usize, screen: &Screen) -> String {
    let (verb, how) = match args.script() {
        Script::Timers => (
            "fire",
            "A worker process fires, and this process checks what arrives and when.",
        ),
        Script::Calls => (
            "make",
            "A worker process makes them. This process submits them over HTTP and is their target: it \
             answers every tenth with 500, and counts what arrives and when.",
        ),
    };
    let times = match kills {
        0 | 1 => String::new(),
        _ => format!(" {kills} times"),
    };
    let killed = match kills {
        0 => String::new(),
        _ => format!(" On the way the worker is killed with SIGKILL{times} and started again."),
    };
    screen.wrapped(&format!(
        "To {verb} over {}: {} of {}, stored in a temporary SQLite file. {how}{killed}",
        count(args.seconds, "second"),
        count(args.count(), args.script().unit()),
        count(args.tenants, "tenant"),
    ))
}

fn count(number: u32, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        _ => format!("{} {what}s", amount(number as usize)),
    }
}

/// What to type to start us.
pub(crate) fn program() -> String {
    let program = std::env::args_os().next();
    let program = program.as_deref().and_then(OsStr::to_str);
    program.unwrap_or("timer-service").to_owned()
}

/// What came out.
pub(crate) struct Report<'a> {
    pub(crate) args: &'a DemoArgs,
    pub(crate) ledger: &'a Ledger,
    pub(crate) kills: &'a [Kill],
    /// Where it is, if it was kept.
    pub(crate) database: Option<PathBuf>,
}

impl Report<'_> {
    /// For people.
    pub(crate) fn text(&self, screen: &Screen) -> String {
        let until = match self.args.script() {
            Script::Timers => "its line was read here",
            Script::Calls => "its target got the request",
        };
        let lateness = &self.ledger.lateness;
        let histogram = histogram(&lateness.buckets(), screen);
        let percentiles = lateness.percentiles().map(Percentiles::text);
        let percentiles = percentiles.unwrap_or_default();
        let rows = self.rows();
        format!("\nHow late: from its due time until {until}\n\n{histogram}\n{percentiles}\n{rows}")
    }

    /// A line for each figure: what it counts, and a note.
    fn rows(&self) -> String {
        let mut rows = Vec::new();
        for (_, label, count) in self.ledger.figures() {
            let note = note_of(label);
            if !label.is_empty() && (count > 0 || note.is_empty()) {
                rows.push((label, count, note.to_owned()));
            }
            if label == "succeeded" {
                let failed = self.ledger.failed().into_iter();
                let failed = failed.map(|(kind, n)| ("failed", n, kind.to_owned() + note_of(kind)));
                rows.extend(failed);
            }
        }
        if let Some(longest) = self.kills.iter().map(|kill| kill.downtime).max() {
            let note = format!("of the worker, down {} at most", late(longest));
            rows.push(("kills", self.kills.len(), note));
        }
        let figure = |count: usize| match count {
            0 => "none".to_owned(),
            _ => amount(count),
        };
        let width = rows.iter().map(|row| figure(row.1).len()).max();
        let width = width.unwrap_or(0);
        let row = |(label, count, note): &(&str, usize, String)| {
            let row = format!("  {label:11}  {:>width$}   {note}", figure(*count));
            row.trim_end().to_owned() + "\n"
        };
        rows.iter().map(row).collect()
    }

    /// For programs. Fails if the path of the database is no text.
    pub(crate) fn json(&self) -> serde_json::Result<Value> {
        let script = self.args.script();
        let (unit, before) = match script {
            Script::Timers => ("timers", "firedBefore"),
            Script::Calls => ("calls", "requestsBefore"),
        };
        let bucket = |(from_ms, to_ms, count): Bucket| match to_ms {
            Some(to_ms) => json!({"fromMs": from_ms, "toMs": to_ms, unit: count}),
            None => json!({"fromMs": from_ms, unit: count}),
        };
        let kill = |kill: &Kill| {
            let downtime = u64::try_from(kill.downtime.as_millis()).unwrap_or(u64::MAX);
            json!({"process": kill.process, before: kill.arrived_before, "downtimeMs": downtime,
                "dueMeanwhile": kill.due_meanwhile})
        };
        let lateness = &self.ledger.lateness;
        let mut json = json!({
            "seconds": self.args.seconds,
            "tenants": self.args.tenants,
            "latenessMs": lateness.percentiles(),
            "histogram": lateness.buckets().into_iter().map(bucket).collect::<Value>(),
            "kills": self.kills.iter().map(kill).collect::<Value>(),
        });
        for (name, _, count) in self.ledger.figures() {
            if !name.is_empty() {
                json[name] = count.into();
            }
        }
        match script {
            Script::Timers => json["noticedMs"] = json!(self.ledger.noticed.percentiles()),
            Script::Calls => json["failed"] = json!(self.ledger.failed()),
        }
        if let Some(database) = &self.database {
            json["database"] = serde_json::to_value(database)?;
        }
        Ok(json)
    }

    /// What has been proved, and what to try next; `program` is what to type to start us.
    pub(crate) fn conclusion(&self, program: &str, screen: &Screen) -> String {
        let kill = |line: &str| (!self.args.kill).then(|| line.to_owned());
        let with = |line: &str| Some(line.to_owned());
        let database = self.database.as_ref();
        let flag = |flag: &str| database.map(|path| format!("{flag} {}", path.display()));
        let (proved, next, docs) = match self.args.script() {
            Script::Timers => (
                "None lost, none early.",
                [
                    flag("list --tenant demo-1 --output table --db"),
                    kill("demo --kill"),
                    with("demo --calls"),
                    with("serve --modules timer"),
                    with("schedule --tenant demo --in 5s"),
                ],
                "service",
            ),
            Script::Calls => (
                "None twice, none early, none without an outcome.",
                [
                    kill("demo --calls --kill"),
                    flag("serve --allow-nets 127.0.0.0/8 --calls-db")
                        .or_else(|| with("serve --allow-nets 127.0.0.0/8")),
                    with("call --tenant demo-1 --in 5s --url http://127.0.0.1:8080/healthz"),
                    None,
                    None,
                ],
                "api",
            ),
        };
        let next = next.into_iter().flatten();
        let next: Vec<_> = next.map(|line| format!("  {program} {line}\n")).collect();
        let last = format!("Run the last two in two terminals; docs/{docs}.md has the rest.");
        let (proved, what) = (screen.green(proved), screen.wrapped(&self.explanation()));
        let (next, last) = (next.concat(), screen.wrapped(&last));
        format!("\n{proved}\n{what}\n\nTry next:\n{next}{last}")
    }

    /// Why it came out like this.
    fn explanation(&self) -> String {
        let script = self.args.script();
        let failed = self.ledger.failed();
        let interrupted = failed.get(ErrorKind::Interrupted.as_str());
        let interrupted = interrupted.copied().unwrap_or(0);
        let repeated = self.ledger.totals.repeated;
        let mut text = match script {
            Script::Timers if !self.args.kill => {
                "Each timer was on the disk before it was acknowledged, so a crash would have lost \
                 none either: see for yourself with --kill."
                    .to_owned()
            }
            Script::Calls if !self.args.kill => {
                "Each call was on the disk before it was accepted, and is marked there before its \
                 request is sent, so a crash would have repeated none either: see for yourself \
                 with --kill."
                    .to_owned()
            }
            Script::Timers if repeated > 0 => format!(
                "The worker was killed in the middle of firing. {} had fired but were not marked \
                 yet, and fired again: after a crash a timer may come twice, under one id, but is \
                 never lost and never early.",
                amount(repeated)
            ),
            Script::Calls if interrupted > 0 => format!(
                "The worker was killed in the middle of making calls. Under way: {}. Whether the \
                 target has acted nobody can know for sure, so they were not made again but have \
                 failed as Interrupted.",
                amount(interrupted)
            ),
            _ => {
                "The worker was killed on the way. What came due meanwhile followed as soon as it \
                  was back."
                    .to_owned()
            }
        };
        let half = self.ledger.lateness.percentiles().map(|it| it.p50);
        if script == Script::Timers && half.is_some_and(|millis| millis >= OVERLOAD_MS) {
            text += " They were late because more came due each second than this machine can store \
                     and fire: give fewer --timers or more --seconds.";
        }
        text
    }
}

/// What a label or a kind of failure means. A figure with a note is printed only if there are any.
fn note_of(label: &str) -> &'static str {
    match label {
        "fired again" => "under the same ids",
        "other id" => "fired again, but not under the same id",
        "unasked" => "that were not requested",
        "rejected" => "never accepted",
        "sent again" => "submissions, under the same keys",
        "requests" => "that the target saw",
        "untrue" => "outcomes that are not what the target answered",
        "HttpStatus" => ": the target answered 500, as it should",
        "Interrupted" => ": under way at a kill, and not repeated",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::tests::args;
    use crate::ledger::Outcome;
    use crate::ledger::tests::{failed, ledger};
    use crate::screen::tests::plain;
    use std::os::unix::ffi::OsStrExt;

    const KILL: Kill = Kill {
        process: 5,
        arrived_before: 50,
        downtime: Duration::from_millis(287),
        due_meanwhile: 29,
    };

    fn report<'a>(args: &'a DemoArgs, ledger: &'a Ledger, kills: &'a [Kill]) -> Report<'a> {
        Report {
            args,
            ledger,
            kills,
            database: None,
        }
    }

    /// A hundred timers that have fired, seven of them again.
    fn timers() -> Ledger {
        let mut ledger = ledger("--timers 100");
        ledger.acknowledged(0..100);
        for n in (0..100).chain(0..7) {
            ledger.fire(n, 0, if n < 90 { 1 } else { 700 });
        }
        ledger
    }

    /// A hundred calls that have ended, one of them interrupted and one too slow.
    fn calls() -> Ledger {
        let mut ledger = ledger("--calls 100");
        ledger.acknowledged(0..100);
        for n in 0..100 {
            let outcome = match n {
                0 => failed(ErrorKind::Interrupted),
                1 => failed(ErrorKind::Timeout),
                _ if n % 10 == 9 => failed(ErrorKind::HttpStatus),
                _ => Outcome::Succeeded,
            };
            ledger.request(n, 1);
            ledger.completed(n, outcome);
        }
        ledger
    }

    #[test]
    fn nothing_is_wider_than_the_screen_and_the_bars_use_it() {
        let (args, ledger) = (args("--timers 100"), timers());
        let report = report(&args, &ledger, &[]);
        for width in [60, 80, 100] {
            for is_unicode in [true, false] {
                let text = report.text(&Screen {
                    is_unicode,
                    ..plain(width)
                });
                let widths = text.lines().map(|line| line.chars().count());
                let widest = widths.max().unwrap();
                assert!(widest <= width, "{widest} > {width}:\n{text}");
                assert!(widest >= width - 2, "{widest} < {width}:\n{text}");
                assert_eq!(text.is_ascii(), !is_unicode, "{text}");
            }
        }
    }

    /// Rows that are printed, and words that are only if there is a reason.
    fn assert_rows(line: &str, mut ledger: Ledger, rows: &[&str], hidden: &[&str]) {
        let args = args(line);
        let usual = report(&args, &ledger, &[]).rows();
        for row in rows {
            assert!(usual.contains(row), "{row:?} is not in\n{usual}");
        }
        ledger.spoil();
        let unusual = report(&args, &ledger, &[KILL]).rows();
        for word in hidden.iter().chain(&["kills", "unasked"]) {
            assert!(!usual.contains(word), "{word} is in\n{usual}");
            assert!(unusual.contains(word), "{word} is not in\n{unusual}");
        }
        let kill = "1   of the worker, down 287 ms";
        assert!(unusual.contains(kill), "{unusual}");
        let widest = unusual.lines().map(|line| line.chars().count()).max();
        assert!(widest.unwrap() <= 80, "{unusual}");
    }

    #[test]
    fn what_must_not_be_is_always_printed_and_what_is_unusual_only_if_it_is() {
        let again = "  fired again     7   under the same ids\n";
        let rows = [again, "  early        none\n", "  lost         none\n"];
        assert_rows("--timers 100", timers(), &rows, &["other id"]);
        let rows = [
            "  accepted      100\n  requests      100   that",
            "  succeeded      88\n  failed         10   HttpStatus: ",
            "  failed          1   Interrupted: ",
            "  failed          1   Timeout\n  twice        none\n",
            "  early        none\n  no outcome   none\n",
        ];
        assert_rows("--calls 100", calls(), &rows, &["sent again", "untrue"]);
    }

    #[test]
    fn programs_get_every_figure_under_its_name() {
        let args_of_timers = args("--timers 100 --tenants 7");
        let json = report(&args_of_timers, &timers(), &[KILL]).json().unwrap();
        let buckets = &json["histogram"];
        let expected = json!({"seconds": 10, "tenants": 7, "scheduled": 100, "fired": 100,
            "firedAgain": 7, "early": 0, "lost": 0, "otherId": 0, "unasked": 0,
            "latenessMs": {"p50": 1, "p99": 700, "max": 700},
            "noticedMs": {"p50": 0, "p99": 0, "max": 0}, "histogram": buckets,
            "kills": [{"process": 5, "firedBefore": 50, "downtimeMs": 287, "dueMeanwhile": 29}]});
        assert_eq!(json, expected);
        let (first, last) = (&buckets[1], &buckets[13]);
        assert_eq!(*first, json!({"fromMs": 1, "toMs": 2, "timers": 90}));
        assert_eq!(*last, json!({"fromMs": 10_000, "timers": 0}));
        let args_of_calls = args("--calls 100");
        let json = report(&args_of_calls, &calls(), &[KILL]).json().unwrap();
        let buckets = &json["histogram"];
        let expected = json!({"seconds": 10, "tenants": 10, "calls": 100, "accepted": 100,
            "sentAgain": 0, "succeeded": 88,
            "failed": {"HttpStatus": 10, "Interrupted": 1, "Timeout": 1},
            "requests": 100, "twice": 0, "early": 0, "withoutOutcome": 0, "untrue": 0, "unasked": 0,
            "latenessMs": {"p50": 1, "p99": 1, "max": 1}, "histogram": buckets,
            "kills": [{"process": 5, "requestsBefore": 50, "downtimeMs": 287, "dueMeanwhile": 29}]});
        assert_eq!(json, expected);
        let first = &buckets[1];
        assert_eq!(*first, json!({"fromMs": 1, "toMs": 2, "calls": 100}));
    }

    #[test]
    fn what_will_happen_is_said_within_the_width() {
        for (line, start) in [
            (
                "--seconds 1",
                "To fire over 1 second: 1 000 timers of 10 tenants, stored in\n",
            ),
            (
                "--calls --tenants 1",
                "To make over 10 seconds: 200 calls of 1 tenant, stored in a\n",
            ),
        ] {
            let text = introduction(&args(line), 0, &plain(60));
            assert!(text.starts_with(start), "{text}");
            assert!(!text.contains("SIGKILL"), "{text}");
            let text = introduction(&args(line), 3, &plain(60));
            assert!(text.contains("3 times"), "{text}");
            assert!(text.lines().all(|line| line.len() <= 60), "{text}");
        }
    }

    fn conclusion(line: &str, ledger: &Ledger, database: Option<&str>) -> String {
        let args = args(line);
        let report = Report {
            database: database.map(PathBuf::from),
            ..report(&args, ledger, &[])
        };
        report.conclusion("ts", &plain(100))
    }

    #[test]
    fn after_a_kill_the_report_explains_it_instead_of_suggesting_one() {
        for (line, mut ledger, came) in [
            ("--timers 100", timers(), "7 had fired but were not marked"),
            ("--calls 100", calls(), "Under way: 1."),
        ] {
            let unharmed = conclusion(line, &ledger, None);
            assert!(unharmed.contains(" --kill\n"), "{unharmed}");
            let killed = conclusion(&format!("{line} --kill"), &ledger, None);
            assert!(
                !killed.contains(" --kill") && killed.contains(came),
                "{killed}"
            );
            ledger = crate::ledger::tests::ledger(line);
            let killed = conclusion(&format!("{line} --kill"), &ledger, None);
            assert!(killed.contains("killed on the way"), "{killed}");
        }
    }

    #[test]
    fn an_overload_is_explained() {
        for (late, is_overload) in [(999, false), (1_000, true)] {
            let mut ledger = ledger("--timers 1");
            ledger.fire(0, 0, late);
            let text = conclusion("--timers 1", &ledger, None);
            assert_eq!(text.contains("give fewer --timers"), is_overload, "{text}");
        }
    }

    #[test]
    fn a_database_that_was_kept_is_named() {
        let text = conclusion("", &timers(), Some("/x/timer.db"));
        assert!(text.contains("  ts list --tenant demo-1 "), "{text}");
        assert!(text.contains("--db /x/timer.db\n"), "{text}");
        let text = conclusion("--calls", &calls(), Some("/x/calls.db"));
        assert!(text.contains("--calls-db /x/calls.db\n"), "{text}");
        let (args, ledger) = (args(""), timers());
        let mut report = report(&args, &ledger, &[]);
        report.database = Some("/x/timer.db".into());
        assert_eq!(report.json().unwrap()["database"], "/x/timer.db");
        report.database = Some(OsStr::from_bytes(b"/\xff/timer.db").into());
        assert!(report.json().is_err(), "a path that is no text has no JSON");
    }
}
