//! What is said before and after the show.

use std::ffi::OsStr;
use std::fmt::Write as _;

use super::args::DemoArgs;
use super::report::Summary;
use super::screen::{Screen, amount};

/// What will happen.
pub(super) fn before(args: &DemoArgs, kills: usize, screen: &Screen) -> String {
    let kills = match kills {
        0 => String::new(),
        1 => " On the way the worker is killed with SIGKILL and started again.".to_owned(),
        _ => format!(
            " On the way the worker is killed with SIGKILL {kills} times and started again."
        ),
    };
    screen.wrapped(&format!(
        "To fire over {}: {} of {}, stored in a temporary SQLite file. A worker process fires, \
         and this process checks what arrives and when.{kills}",
        count(args.seconds, "second"),
        count(args.timers, "timer"),
        count(args.tenants, "tenant"),
    ))
}

pub(super) fn count(number: u32, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        _ => format!("{} {what}s", amount(number as usize)),
    }
}

/// What was shown, and what to try next.
pub(super) fn after(args: &DemoArgs, summary: &Summary, screen: &Screen) -> String {
    after_from(&program(), args, summary, screen)
}

/// What to type to start us.
pub(super) fn program() -> String {
    let program = std::env::args_os().next();
    let program = program.as_deref().and_then(OsStr::to_str);
    program.unwrap_or("timer-service").to_owned()
}

fn after_from(program: &str, args: &DemoArgs, summary: &Summary, screen: &Screen) -> String {
    let what = if !args.kill {
        "Each timer was on the disk before it was acknowledged, so a crash would have lost none \
         either: see for yourself with --kill."
            .to_owned()
    } else if summary.fired_again() > 0 {
        format!(
            "The worker was killed in the middle of firing. {} had fired but were not marked yet, \
             and fired again: after a crash a timer may come twice, under one id, but is never \
             lost and never early.",
            amount(summary.fired_again())
        )
    } else {
        "The worker was killed on the way. What came due meanwhile fired as soon as it was back."
            .to_owned()
    };
    let load = if summary.is_overloaded() {
        " They were late because more came due each second than this machine can store and fire: \
         give fewer --timers or more --seconds."
    } else {
        ""
    };
    let mut text = format!(
        "\n{}\n{}\n\nTry next:\n",
        screen.green("None lost, none early."),
        screen.wrapped(&(what + load))
    );
    let mut offer = |line: &str| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {program} {line}");
    };
    if let Some(database) = &summary.database {
        let database = database.display();
        offer(&format!(
            "list --tenant demo-1 --output table --db {database}"
        ));
    }
    if !args.kill {
        offer("demo --kill");
    }
    offer("demo --calls");
    offer("serve --modules timer");
    offer("schedule --tenant demo --in 5s");
    text.push_str(
        &screen.wrapped("Run the last two in two terminals; docs/service.md tells the rest."),
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Output;
    use crate::demo::ledger::Ledger;
    use punctual_domain::{DueTimeReached, FiringId, Registration, TenantId, TimerKey, Timestamp};

    fn args() -> DemoArgs {
        DemoArgs {
            timers: 1_000,
            calls: None,
            seconds: 1,
            tenants: 10,
            kill: false,
            keep: false,
            output: Output::Table,
        }
    }

    const SCREEN: Screen = Screen {
        width: 60,
        is_unicode: true,
        is_coloured: false,
    };

    #[test]
    fn what_will_happen_is_told_within_the_width() {
        let text = before(&args(), 0, &SCREEN);
        let start = "To fire over 1 second: 1 000 timers of 10 tenants, stored in\n";
        assert!(text.starts_with(start), "{text}");
        assert!(!text.contains("SIGKILL"), "{text}");
        let text = before(&args(), 3, &SCREEN);
        assert!(text.contains("3 times"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 60), "{text}");
    }

    #[test]
    fn whoever_has_seen_a_kill_is_not_sent_to_one() {
        let summary = Summary::new(1, 10, &Ledger::default(), &[]);
        let text = after_from("ts", &args(), &summary, &SCREEN);
        assert!(text.contains("\n  ts demo --kill\n"), "{text}");
        let args = DemoArgs {
            kill: true,
            ..args()
        };
        let text = after_from("ts", &args, &summary, &SCREEN);
        assert!(!text.contains("demo --kill"), "{text}");
    }

    #[test]
    fn an_overload_is_explained() {
        let late_by = |millis| {
            let mut ledger = Ledger::default();
            let key = TimerKey::named(TenantId::new("a").unwrap(), "x");
            ledger.asked(key.clone(), Timestamp::MIN);
            let registration = Registration {
                registered_at: Timestamp::MIN,
                due_at: Timestamp::MIN,
            };
            let event = DueTimeReached {
                tenant_id: key.tenant_id.clone(),
                service_call_id: key.service_call_id,
                reached_at: Timestamp::MIN,
                due_at: Timestamp::MIN,
                firing_id: FiringId { key, registration },
                data: None,
            };
            ledger.fired(&event, Timestamp::from_millis(millis).unwrap());
            let summary = Summary::new(1, 1, &ledger, &[]);
            after_from("ts", &args(), &summary, &SCREEN)
        };
        assert!(late_by(1_000).contains("give fewer --timers"));
        assert!(!late_by(999).contains("give fewer --timers"));
    }

    #[test]
    fn a_database_that_was_kept_is_told() {
        let mut summary = Summary::new(1, 10, &Ledger::default(), &[]);
        summary.database = Some("/x/timer.db".into());
        let text = after_from("ts", &args(), &summary, &SCREEN);
        assert!(text.contains("  ts list --tenant demo-1 "), "{text}");
        assert!(text.contains("--db /x/timer.db\n"), "{text}");
    }
}
