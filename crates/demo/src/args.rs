//! The flags of the demo, each with its range.

use clap::{Args, ValueEnum};

use crate::plan::Script;

/// What the demo runs.
#[derive(Debug, Clone, Copy, Args)]
#[command(after_help = "\
Examples:
  timer-service demo
  timer-service demo --kill
  timer-service demo --timers 20000 --seconds 20 --tenants 500 --kill
  timer-service demo --calls --kill
  timer-service demo --calls 2000 --seconds 20

It uses none of your settings and none of your data. The exit code is 0 only if no timer was lost
and none was early; with --calls, only if no call was made twice or early and each has its outcome.")]
pub struct DemoArgs {
    /// How many timers to schedule, 1 to 1000000
    #[arg(long, value_name = "N", default_value = "1000", value_parser = up_to::<1_000_000>)]
    pub(crate) timers: u32,
    /// Run service calls instead of timers: N of them, 1 to 100000, or 200. This process is their
    /// target, counts what it gets, and answers every tenth with 500
    #[arg(
        long,
        value_name = "N",
        num_args = 0..=1,
        default_missing_value = "200",
        conflicts_with = "timers",
        value_parser = up_to::<100_000>
    )]
    pub(crate) calls: Option<u32>,
    /// Over how many seconds they come due, 1 to 3600
    #[arg(long, value_name = "S", default_value = "10", value_parser = up_to::<3_600>)]
    pub(crate) seconds: u32,
    /// To how many tenants they belong, 1 to 10000
    #[arg(long, value_name = "N", default_value = "10", value_parser = up_to::<10_000>)]
    pub(crate) tenants: u32,
    /// Kill the worker process several times on the way, and start it again
    #[arg(long)]
    pub(crate) kill: bool,
    /// Keep the database, and say where it is
    #[arg(long)]
    pub(crate) keep: bool,
    /// How to print the result
    #[arg(long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

/// How the result is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For programs
    Json,
    /// For people
    Table,
}

impl DemoArgs {
    pub(crate) const fn script(&self) -> Script {
        match self.calls {
            None => Script::Timers,
            Some(_) => Script::Calls,
        }
    }

    /// Number of timers or calls.
    pub(crate) fn count(&self) -> u32 {
        self.calls.unwrap_or(self.timers)
    }

    /// The same without tenants that would have no timer and no call.
    pub(crate) fn without_idle_tenants(self) -> Self {
        Self {
            tenants: self.tenants.min(self.count()),
            ..self
        }
    }
}

fn up_to<const MAX: u32>(text: &str) -> Result<u32, String> {
    let number = text.parse().ok();
    number
        .filter(|number| (1..=MAX).contains(number))
        .ok_or_else(|| format!("give a number from 1 to {MAX}"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: DemoArgs,
    }

    fn parse(line: &str) -> Result<DemoArgs, String> {
        let words = line.split(' ').filter(|word| !word.is_empty());
        let line = Line::try_parse_from(["demo"].into_iter().chain(words));
        line.map(|line| line.args.without_idle_tenants())
            .map_err(|error| error.to_string())
    }

    /// What these flags mean.
    pub(crate) fn args(line: &str) -> DemoArgs {
        parse(line).unwrap()
    }

    #[test]
    fn there_are_no_more_tenants_than_timers_or_calls() {
        assert_eq!(args("--timers 3 --tenants 10").tenants, 3);
        assert_eq!(args("--timers 10 --tenants 3").tenants, 3);
        assert_eq!(args("--calls 2 --tenants 10").tenants, 2);
    }

    #[test]
    fn the_ends_of_each_range_are_accepted_and_what_is_beyond_is_not() {
        for (flag, max) in [
            ("timers", 1_000_000),
            ("calls", 100_000),
            ("seconds", 3_600),
            ("tenants", 10_000),
        ] {
            for good in [1, max] {
                parse(&format!("--{flag}={good}")).unwrap();
            }
            for bad in ["0", "-1", "1.5", "many", "", &(max + 1).to_string()] {
                let advice = parse(&format!("--{flag}={bad}")).unwrap_err();
                assert!(advice.contains(&format!("from 1 to {max}")), "{advice}");
            }
        }
    }
}
