//! What is said before and after the show.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::Path;

use super::args::DemoArgs;
use super::screen::{Screen, amount};

/// What will happen.
pub(super) fn before(args: &DemoArgs, kills: usize, screen: &Screen) -> String {
    let count = |number: u32, one: &str, many: &str| match number {
        1 => format!("1 {one}"),
        _ => format!("{} {many}", amount(number as usize)),
    };
    let kills = match kills {
        0 => String::new(),
        1 => " On the way the worker is killed with SIGKILL and started again.".to_owned(),
        _ => format!(
            " On the way the worker is killed with SIGKILL {kills} times and started again."
        ),
    };
    screen.wrapped(&format!(
        "{} of {} come due over {}. They are stored in a temporary SQLite file, a worker \
         process fires them from there, and this process checks what arrives.{kills}",
        count(args.timers, "timer", "timers"),
        count(args.tenants, "tenant", "tenants"),
        count(args.seconds, "second", "seconds"),
    ))
}

/// What was shown, and what to try next.
pub(super) fn after(args: &DemoArgs, kept: Option<&Path>, screen: &Screen) -> String {
    let program = std::env::args_os().next();
    let program = program.as_deref().and_then(OsStr::to_str);
    after_from(program.unwrap_or("timer-service"), args, kept, screen)
}

fn after_from(program: &str, args: &DemoArgs, kept: Option<&Path>, screen: &Screen) -> String {
    let verdict = if args.kill {
        "None lost and none early, although the worker was killed in the middle of firing. What it \
         had not marked as fired when it died fired again: a duplicate is possible after a crash, \
         a lost or early timer is not."
    } else {
        "None lost and none early. Each timer was on the disk before it was acknowledged, so a \
         crash would not have lost one either: see for yourself with --kill."
    };
    let mut text = format!("\n{}\n\nTry next:\n", screen.wrapped(verdict));
    let mut offer = |line: &str| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {program} {line}");
    };
    if let Some(database) = kept {
        let database = database.display();
        offer(&format!(
            "list --tenant demo-1 --output table --db {database}"
        ));
    }
    if !args.kill {
        offer("demo --kill");
    }
    offer("serve");
    offer("schedule --tenant demo --in 5s --name tea");
    text.push_str("The last two in two terminals; docs/service.md tells the rest.");
    text
}
