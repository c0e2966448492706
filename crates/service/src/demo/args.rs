//! What can be asked of the demo, and in which range.

use clap::Args;

use crate::cli::Output;

/// What the demo is to show.
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
pub(crate) struct DemoArgs {
    /// How many timers to schedule, 1 to 1000000
    #[arg(long, value_name = "N", default_value = "1000", value_parser = timers)]
    pub(crate) timers: u32,
    /// Show service calls instead of timers: N of them, 1 to 100000, or 200. This process is their
    /// target, counts what it gets, and answers every tenth with 500
    #[arg(
        long,
        value_name = "N",
        num_args = 0..=1,
        default_missing_value = "200",
        conflicts_with = "timers",
        value_parser = calls
    )]
    pub(crate) calls: Option<u32>,
    /// Over how many seconds they come due, 1 to 3600
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds)]
    pub(crate) seconds: u32,
    /// To how many tenants they belong, 1 to 10000
    #[arg(long, value_name = "N", default_value = "10", value_parser = tenants)]
    pub(crate) tenants: u32,
    /// Kill the worker process several times on the way, and start it again
    #[arg(long)]
    pub(crate) kill: bool,
    /// Keep the database, and tell where it is
    #[arg(long)]
    pub(crate) keep: bool,
    /// How to show the result
    #[arg(long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

impl DemoArgs {
    /// How many timers or calls there are.
    pub(super) fn number(&self) -> u32 {
        self.calls.unwrap_or(self.timers)
    }

    /// No tenant without a timer or a call.
    pub(super) fn without_idle_tenants(self) -> Self {
        Self {
            tenants: self.tenants.min(self.number()),
            ..self
        }
    }
}

fn timers(text: &str) -> Result<u32, String> {
    up_to(text, 1_000_000)
}

fn calls(text: &str) -> Result<u32, String> {
    up_to(text, 100_000)
}

fn seconds(text: &str) -> Result<u32, String> {
    up_to(text, 3_600)
}

fn tenants(text: &str) -> Result<u32, String> {
    up_to(text, 10_000)
}

fn up_to(text: &str, most: u32) -> Result<u32, String> {
    let number = text.parse().ok();
    number
        .filter(|number| (1..=most).contains(number))
        .ok_or_else(|| format!("give a number from 1 to {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_no_more_tenants_than_timers_or_calls() {
        let args = |timers, tenants| DemoArgs {
            timers,
            calls: None,
            seconds: 1,
            tenants,
            kill: false,
            keep: false,
            output: Output::Json,
        };
        assert_eq!(args(3, 10).without_idle_tenants().tenants, 3);
        assert_eq!(args(10, 3).without_idle_tenants().tenants, 3);
        let args = DemoArgs {
            calls: Some(2),
            ..args(10, 10)
        };
        assert_eq!(args.without_idle_tenants().tenants, 2);
    }

    #[test]
    fn the_ends_of_each_range_are_taken_and_what_is_beyond_is_not() {
        type Parse = fn(&str) -> Result<u32, String>;
        let flags: [(Parse, u32); 4] = [
            (timers, 1_000_000),
            (calls, 100_000),
            (seconds, 3_600),
            (tenants, 10_000),
        ];
        for (parse, most) in flags {
            assert_eq!(parse("1"), Ok(1));
            assert_eq!(parse(&most.to_string()), Ok(most));
            for text in ["0", "-1", "1.5", "many", "", &(most + 1).to_string()] {
                let advice = parse(text).unwrap_err();
                assert!(advice.ends_with(&format!("from 1 to {most}")), "{advice}");
            }
        }
    }
}
