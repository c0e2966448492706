//! What is said before and after the show of service calls.

use std::fmt::Write as _;

use punctual_domain::service_call::ErrorKind;

use super::report::Summary;
use crate::demo::args::DemoArgs;
use crate::demo::screen::{Screen, amount};
use crate::demo::texts::{count, program};

/// What will happen.
pub(super) fn before(args: &DemoArgs, kills: usize, screen: &Screen) -> String {
    let kills = match kills {
        0 => String::new(),
        1 => " On the way the service is killed with SIGKILL and started again.".to_owned(),
        _ => format!(
            " On the way the service is killed with SIGKILL {kills} times and started again."
        ),
    };
    screen.wrapped(&format!(
        "To make over {}: {} of {}, stored in a temporary SQLite file. A service process makes \
         them. This process submits them over HTTP and is their target: it answers every tenth \
         with 500, and counts what arrives and when.{kills}",
        count(args.seconds, "second"),
        count(args.number(), "call"),
        count(args.tenants, "tenant"),
    ))
}

/// What was shown, and what to try next.
pub(super) fn after(args: &DemoArgs, summary: &Summary, screen: &Screen) -> String {
    after_from(&program(), args, summary, screen)
}

fn after_from(program: &str, args: &DemoArgs, summary: &Summary, screen: &Screen) -> String {
    let interrupted = summary.failed(ErrorKind::Interrupted);
    let what = if !args.kill {
        "Each call was on the disk before it was accepted, and is marked there before its request \
         is sent, so a crash would have repeated none either: see for yourself with --kill."
            .to_owned()
    } else if interrupted > 0 {
        format!(
            "The service was killed in the middle of making calls. {} under way: whether the \
             target has acted nobody can know for sure, so they were not made again but have \
             failed as Interrupted.",
            match interrupted {
                1 => "1 was".to_owned(),
                _ => format!("{} were", amount(interrupted)),
            }
        )
    } else {
        "The service was killed on the way. What came due meanwhile was called as soon as it was \
         back."
            .to_owned()
    };
    let mut text = format!(
        "\n{}\n{}\n\nTry next:\n",
        screen.green("None twice, none early, none without an outcome."),
        screen.wrapped(&what)
    );
    let mut offer = |line: &str| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {program} {line}");
    };
    if !args.kill {
        offer("demo --calls --kill");
    }
    match &summary.database {
        None => offer("serve --allow-nets 127.0.0.0/8"),
        Some(database) => offer(&format!(
            "serve --allow-nets 127.0.0.0/8 --calls-db {}",
            database.display()
        )),
    }
    offer("call --tenant demo-1 --in 5s --url http://127.0.0.1:8080/healthz");
    text.push_str(
        &screen.wrapped("Run the last two in two terminals; docs/api.md tells the rest."),
    );
    text
}

#[cfg(test)]
mod tests {
    use super::super::books::Books;
    use super::*;
    use crate::cli::Output;

    const SCREEN: Screen = Screen {
        width: 60,
        is_unicode: true,
        is_coloured: false,
    };

    fn args(kill: bool) -> DemoArgs {
        DemoArgs {
            timers: 1_000,
            calls: Some(200),
            seconds: 10,
            tenants: 1,
            kill,
            keep: false,
            output: Output::Table,
        }
    }

    #[test]
    fn what_will_happen_is_told_within_the_width() {
        let text = before(&args(false), 0, &SCREEN);
        let start = "To make over 10 seconds: 200 calls of 1 tenant, ";
        assert!(text.starts_with(start), "{text}");
        assert!(!text.contains("SIGKILL"), "{text}");
        let text = before(&args(true), 3, &SCREEN);
        assert!(text.contains("3 times"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 60), "{text}");
    }

    #[test]
    fn whoever_has_seen_a_kill_is_told_what_came_of_it() {
        let mut books = Books::default();
        let text = |kill, books: &Books| {
            let summary = Summary::new(10, 1, books, &[]);
            after_from("ts", &args(kill), &summary, &SCREEN)
        };
        let unharmed = text(false, &books);
        assert!(unharmed.contains("\n  ts demo --calls --kill\n"));
        let killed = text(true, &books);
        assert!(!killed.contains("--kill") && !killed.contains("Interrupted"));
        books.interrupt_one();
        let told = text(true, &books).replace('\n', " ");
        assert!(told.contains("1 was under way"), "{told}");
    }

    #[test]
    fn a_database_that_was_kept_is_told() {
        let mut summary = Summary::new(10, 1, &Books::default(), &[]);
        summary.database = Some("/x/calls.db".into());
        let text = after_from("ts", &args(true), &summary, &SCREEN);
        assert!(text.contains("--calls-db /x/calls.db\n"), "{text}");
    }
}
