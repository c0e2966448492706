//! The command line: commands, flags, and their help.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use punctual_demo::DemoArgs;
use punctual_domain::{CorrelationId, ServiceCallId, TenantId, TimerData, TimerState, Timestamp};

use crate::parse;
use crate::settings::{BrokerFlags, DatabaseFlags, ServeFlags, TraceFlags, table};

const EXAMPLES: &str = "\
`timer-service <COMMAND> --help` shows the flags of a command, and examples.

Try it, in two terminals of one folder. Timers, each a line on standard output:
  timer-service --modules timer
  timer-service schedule --tenant demo --in 5s --data '{\"say\":\"tea\"}'
Or service calls, each an HTTP request:
  timer-service
  timer-service call --tenant demo --in 2s --url https://example.com/
";

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  it failed, or nothing was found
  2  wrong usage: a bad flag, id or date
  3  refused to start: a bad setting, a database that is newer, damaged, of
     the wrong set, not writable, or already being served, or a broker that
     does not let us in or would lose messages
  130, 143  ended by a second SIGINT or SIGTERM";

fn after_help() -> String {
    format!("{EXAMPLES}\n{}\n{EXIT_CODES}", table::help())
}

/// Examples, and then what there is to set without a flag.
fn with_settings(examples: &str) -> String {
    format!("{examples}\n\n{}", table::help())
}

const LONG_ABOUT: &str = "\
Makes service calls: each is one HTTP request, made at or just after its due time, at most once. And \
fires timers: each becomes one line of JSON on standard output, or an event of a broker, at least \
once, whatever crashed in between, and never early.

Without a command it serves: calls, or with --modules timer timers alone. The other commands submit \
calls, and schedule, read and cancel timers in the same database file, also while it is being served.";

/// The parsed command line.
#[derive(Debug, Parser)]
#[command(
    name = "timer-service",
    version,
    about = "A durable timer service, on one SQLite file or on PostgreSQL.",
    long_about = LONG_ABOUT,
    after_help = after_help(),
    args_conflicts_with_subcommands = true,
    max_term_width = 100
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) serve: ServeFlags,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make calls and fire timers until a signal stops it (the default)
    ///
    /// Calls come over HTTP; the firing of a timer that belongs to none is one line of JSON on standard
    /// output, or with --broker an event there, where commands come from too. SIGTERM or Ctrl-C stops it in good
    /// order: what is in flight is finished, for at most 25 seconds. A second signal ends it at
    /// once, which loses nothing either. One process serves a file at a time.
    #[command(after_help = with_settings("\
Examples:
  timer-service serve --modules timer --db /var/lib/punctual/timer.db >> firings.ndjson
  timer-service serve --modules timer | while read -r firing; do echo \"$firing\"; done
  timer-service serve --broker nats://127.0.0.1:4222"))]
    Serve(ServeFlags),
    /// See it work: a ten-second demonstration on a temporary database
    ///
    /// Schedules timers, lets a worker process fire them, and ends with a histogram of how late
    /// they were, and with how many were early or lost: none. With --calls it submits service calls
    /// over HTTP, is their target, and reports how many were made twice or early or have no outcome:
    /// none.
    Demo(DemoArgs),
    /// Schedule a timer, or move one that has not fired
    ///
    /// Prints the timer as it is stored. It fires as long as a process serves the same database file,
    /// now or later; an overdue timer then fires at once.
    Schedule(ScheduleArgs),
    /// Have an HTTP request made at a time of your choice, and follow it to its outcome
    ///
    /// Submits a service call to a service that runs, by HTTP, and waits until the request was made.
    /// The exit code is 1 if it failed, or had no outcome in time.
    Call(CallArgs),
    /// Schedule a timer through the broker, and wait until it fires
    ///
    /// Publishes a ScheduleTimer command and prints it as soon as the broker has stored it; then waits
    /// for its DueTimeReached event and prints that. A service on the same broker fires it. The
    /// exit code is 1 if the event did not come in time.
    Send(SendArgs),
    /// Show one timer
    ///
    /// The exit code is 1 if there is none. Fired timers are kept for RETENTION_DAYS.
    Get(GetArgs),
    /// List a tenant's timers by due time
    ///
    /// Prints {"items":[…],"nextCursor":"…"}; give nextCursor to --after to go on. An empty list is
    /// no failure.
    List(ListArgs),
    /// Show the life of one request: its calls and timers, of whatever tenants, and what happened
    ///
    /// A request is known by its correlation id: the one that was given to `call` or `schedule` or in
    /// X-Correlation-Id, or that was drawn and printed. The exit code is 1 if nothing belongs to it.
    Trace(TraceArgs),
    /// Remove a timer that has not fired
    ///
    /// A timer that is reported as deleted does not fire. So one that has fired is refused, and so is
    /// one that is due within about ten seconds while its file is being served.
    Cancel(CancelArgs),
    /// List dead letters, or remove one
    ///
    /// A message that cannot be parsed, and a firing that no handler accepts, are kept byte for byte
    /// with the reason, until they are removed. An empty list is no failure.
    DeadLetters(DeadLettersArgs),
    /// List the processes that share a PostgreSQL database
    ///
    /// Those that have said within fifteen seconds that they live, with what each is working on and by how
    /// much its clock is ahead of the database's. An empty list is no failure.
    Instances(InstancesArgs),
    /// Bring the database up to date, or show how far it is
    ///
    /// Serving and scheduling do this by themselves; the command is for doing it beforehand. It goes
    /// for each database that would be served or, with --db, for that one as a file of timers.
    Migrate(MigrateArgs),
    /// Copy the databases while they are in use
    ///
    /// What is copied is of one instant, and read back before it gets its name. It may run beside the
    /// service, which goes on. Copying the file of a running service by other means loses what was
    /// acknowledged lately.
    Backup(BackupArgs),
    /// Check settings, databases, API and broker
    ///
    /// One line for each check, which begins with `ok`, `warn` or `WRONG`; the exit code is 1 if anything
    /// is wrong. It takes the flags of `serve`, changes nothing, and may run beside it.
    Check(CheckArgs),
    /// Print a script that lets a shell complete commands and flags
    Completions(CompletionsArgs),
}

/// Which timer.
#[derive(Debug, Clone, Args)]
#[group(skip)]
#[command(group(ArgGroup::new("which").required(true)))]
pub(crate) struct KeyArgs {
    /// Whose timer it is, say a customer of yours: 1 to 128 of A-Z a-z 0-9 _ -
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: TenantId,
    /// Its id, the serviceCallId that `schedule` printed
    #[arg(long, value_name = "UUID", group = "which")]
    pub(crate) id: Option<ServiceCallId>,
    /// Its name, if it was scheduled by name
    #[arg(long, value_name = "KEY", value_parser = parse::name, group = "which")]
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("when").required(true)), after_help = "\
Examples:
  timer-service schedule --tenant demo --in 90s
  timer-service schedule --tenant demo --due 2026-12-24T18:00:00+01:00 --name order-123
  timer-service schedule --tenant demo --in 2h --name order-123 --data '{\"step\":3}'
  timer-service schedule --batch timers.ndjson

A line of a batch: {\"tenantId\":\"demo\",\"name\":\"order-123\",\"dueAt\":\"2026-12-24T18:00:00Z\"}
with serviceCallId (a UUID) in place of name, or neither, and with correlationId and data if wanted.
Each line that is stored is acknowledged by one line; a bad one is reported, and the others go on.")]
pub(crate) struct ScheduleArgs {
    /// Whose timer it is, say a customer of yours: 1 to 128 of A-Z a-z 0-9 _ -
    #[arg(long, value_name = "TENANT", required_unless_present = "batch")]
    pub(crate) tenant: Option<TenantId>,
    #[command(flatten)]
    pub(crate) timer: TimerArgs,
    /// Let it fire again even if it has fired
    #[arg(long)]
    pub(crate) replace: bool,
    /// Schedule one timer for each line of JSON in a file, or of standard input if it is `-`
    #[arg(long, value_name = "FILE", group = "when", conflicts_with_all = ["tenant", "id", "name", "correlation", "data", "output"])]
    pub(crate) batch: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) answer: AnswerArgs,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("when").required(true)), after_help = "\
Examples:
  timer-service send --tenant demo --in 5s --broker nats://127.0.0.1:4222
  timer-service send --tenant demo --in 2h --name order-123 --data '{\"step\":3}' --no-wait")]
pub(crate) struct SendArgs {
    /// Whose timer it is, say a customer of yours: 1 to 128 of A-Z a-z 0-9 _ -
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: TenantId,
    #[command(flatten)]
    pub(crate) timer: TimerArgs,
    /// How long after its due time to wait for the event
    #[arg(long, value_name = "DURATION", value_parser = parse::duration, default_value = "60s")]
    pub(crate) wait: Duration,
    /// Do not wait for the event
    #[arg(long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    #[command(flatten)]
    pub(crate) broker: BrokerFlags,
}

#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("when")),
    after_help = "\
Examples:
  timer-service call --tenant demo --in 2s --url http://127.0.0.1:9000/hello
  timer-service call --tenant demo --due 2026-12-24T18:00:00Z --url https://example.com/greet \\
      --body '{\"say\":\"hello\"}' --header 'Content-Type: application/json' --tag greeting --no-wait

The service that makes the call has to be allowed to reach its address: public ones always are,
others with EXECUTION_ALLOW_NETS, where the service is started."
)]
pub(crate) struct CallArgs {
    /// Whose call it is, say a customer of yours: 1 to 128 of A-Z a-z 0-9 _ -
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: TenantId,
    /// Where the request goes: http:// or https://
    #[arg(long, value_name = "URL")]
    pub(crate) url: String,
    /// GET, POST, PUT, PATCH or DELETE [default: GET, or POST with --body]
    #[arg(long, value_name = "METHOD")]
    pub(crate) method: Option<String>,
    /// A header of the request, like 'Content-Type: application/json'; may be repeated
    #[arg(long, value_name = "NAME: VALUE", value_parser = parse::header)]
    pub(crate) header: Vec<(String, String)>,
    /// The body of the request
    #[arg(long, value_name = "TEXT")]
    pub(crate) body: Option<String>,
    /// When it is to be made, like 2026-12-24T18:00:00Z; in the past means now, and so does neither
    #[arg(long, value_name = "RFC3339", group = "when")]
    pub(crate) due: Option<Timestamp>,
    /// How long until it is to be made: 500ms, 90s, 5m, 2h or 3d
    #[arg(long = "in", id = "after", value_name = "DURATION", value_parser = parse::duration, group = "when")]
    pub(crate) after: Option<Duration>,
    /// What people call it [default: the method and the URL]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// A word by which it is found; may be repeated
    #[arg(long, value_name = "TAG")]
    pub(crate) tag: Vec<String>,
    /// Its id, a UUID [default: a new one]
    #[arg(long, value_name = "UUID")]
    pub(crate) id: Option<ServiceCallId>,
    /// An idempotency key: the same call under the same key is made once
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// The request that it belongs to, a UUID; `trace` finds it by that [default: a new one]
    #[arg(long, value_name = "UUID")]
    pub(crate) correlation: Option<CorrelationId>,
    /// How long after its due time to wait for the outcome
    #[arg(long, value_name = "DURATION", value_parser = parse::duration, default_value = "60s")]
    pub(crate) wait: Duration,
    /// Do not wait for the outcome
    #[arg(long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// How to show the outcome: json for programs, a sentence (table) for people
    #[arg(long, value_enum, value_name = "json|table", hide_possible_values = true, default_value_t = Output::Json)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

/// The service to call.
#[derive(Debug, Args)]
pub(crate) struct ApiArgs {
    /// Where the service's API is
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080", value_parser = parse::api)]
    pub(crate) api: String,
    /// A file with the token that the service wants
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

/// A timer, as `schedule` and `send` take it.
#[derive(Debug, Args)]
pub(crate) struct TimerArgs {
    /// When it is to fire, like 2026-12-24T18:00:00Z; in the past means now
    #[arg(long, value_name = "RFC3339", group = "when")]
    pub(crate) due: Option<Timestamp>,
    /// How long until it is to fire: 500ms, 90s, 5m, 2h or 3d
    #[arg(long = "in", id = "after", value_name = "DURATION", value_parser = parse::duration, group = "when")]
    pub(crate) after: Option<Duration>,
    /// Its id, a UUID; a new one is drawn if neither this nor --name is given
    #[arg(long, value_name = "UUID", conflicts_with = "name")]
    pub(crate) id: Option<ServiceCallId>,
    /// A name of your own, such as an order number: the same name is the same timer
    #[arg(long, value_name = "KEY", value_parser = parse::name)]
    pub(crate) name: Option<String>,
    /// The request that it belongs to, a UUID; `trace` finds it by that [default: a new one]
    #[arg(long, value_name = "UUID")]
    pub(crate) correlation: Option<CorrelationId>,
    /// JSON that comes back when it fires, at most 16 KiB
    #[arg(long, value_name = "JSON", value_parser = parse::data)]
    pub(crate) data: Option<TimerData>,
}

/// How a command answers, and of which databases.
#[derive(Debug, Args)]
pub(crate) struct AnswerArgs {
    /// How to show it: json for programs, a table for people
    #[arg(long, value_enum, value_name = "json|table", hide_possible_values = true, default_value_t = Output::Json)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) database: TraceFlags,
}

/// How to show timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For programs
    Json,
    /// For people
    Table,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  timer-service get --tenant demo --name order-123
  timer-service get --tenant demo --id 0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8e --output table")]
pub(crate) struct GetArgs {
    #[command(flatten)]
    pub(crate) key: KeyArgs,
    #[command(flatten)]
    pub(crate) answer: AnswerArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  timer-service list --tenant demo --output table
  timer-service list --tenant demo --state scheduled --limit 10")]
pub(crate) struct ListArgs {
    /// Whose timers: 1 to 128 of A-Z a-z 0-9 _ -
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: TenantId,
    /// Only those that are scheduled, or that have reached their due time
    #[arg(long, value_name = "scheduled|reached", value_parser = parse::state)]
    pub(crate) state: Option<TimerState>,
    #[command(flatten)]
    pub(crate) page: PageArgs,
}

/// A page of a list.
#[derive(Debug, Args)]
#[command(mut_arg("output", |output| output.help("How to show them: json for programs, a table for people")))]
pub(crate) struct PageArgs {
    /// Maximum number of items, 1 to 1000
    #[arg(long, value_name = "N", default_value = "100", value_parser = parse::limit)]
    pub(crate) limit: usize,
    /// Go on where a list ended: its nextCursor
    #[arg(long, value_name = "CURSOR")]
    pub(crate) after: Option<String>,
    #[command(flatten)]
    pub(crate) answer: AnswerArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  timer-service trace --correlation 0190a6e0-0000-7c11-9d2e-3f4a5b6c7d8e --output table")]
#[command(mut_arg("limit", |limit| limit.help("Maximum number of calls and timers, 1 to 1000")))]
#[command(mut_arg("after", |after| after.help("Go on after a page: its nextCursor")))]
pub(crate) struct TraceArgs {
    /// The request's correlation id, a UUID
    #[arg(long, value_name = "UUID")]
    pub(crate) correlation: CorrelationId,
    #[command(flatten)]
    pub(crate) page: PageArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  timer-service cancel --tenant demo --name order-123")]
#[command(mut_arg("output", |output| output.help("How to show what was done: json for programs, a table for people")))]
pub(crate) struct CancelArgs {
    #[command(flatten)]
    pub(crate) key: KeyArgs,
    #[command(flatten)]
    pub(crate) answer: AnswerArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  timer-service dead-letters --output table
  timer-service dead-letters --limit 1 --payload
  timer-service dead-letters --remove 7")]
#[command(mut_arg("output", |output| output.help("How to show them: json for programs, a table for people")))]
pub(crate) struct DeadLettersArgs {
    /// Maximum number of items, 1 to 1000
    #[arg(long, value_name = "N", default_value = "100", value_parser = parse::limit)]
    pub(crate) limit: usize,
    /// Only those after this one
    #[arg(long, value_name = "SEQUENCE", value_parser = parse::sequence)]
    pub(crate) after: Option<u64>,
    /// Also show what each says, up to 4 KiB, if it is text
    #[arg(long)]
    pub(crate) payload: bool,
    /// Remove this one for good
    #[arg(long, value_name = "SEQUENCE", value_parser = parse::sequence, conflicts_with_all = ["limit", "after", "payload", "output"])]
    pub(crate) remove: Option<u64>,
    #[command(flatten)]
    pub(crate) answer: AnswerArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  DATABASE_URL=postgres://me@db/timers timer-service instances --output table")]
#[command(mut_arg("output", |output| output.help("How to show them: json for programs, a table for people")))]
pub(crate) struct InstancesArgs {
    #[command(flatten)]
    pub(crate) answer: AnswerArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  timer-service migrate
  timer-service migrate --status --db /var/lib/punctual/timer.db")]
pub(crate) struct MigrateArgs {
    /// Show what is applied and what is pending, and change nothing
    #[arg(long)]
    pub(crate) status: bool,
    #[command(flatten)]
    pub(crate) database: DatabaseFlags,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  timer-service backup punctual-2026-12-24.db
  timer-service backup --db ./data/timer.db timers-2026-12-24.db

To go back to it, stop the service, move its database and the files beside it away, and put the
copy in its place. Calls that were made since the copy are made again then: the copy does not know
of them.")]
pub(crate) struct BackupArgs {
    /// The copy, which must not exist; a folder, where calls and timers have a file each
    #[arg(value_name = "FILE", value_parser = OsStringValueParser::new().try_map(|raw| parse::path(&raw)))]
    pub(crate) to: PathBuf,
    #[command(flatten)]
    pub(crate) database: TraceFlags,
}

#[derive(Debug, Args)]
#[command(after_help = with_settings("\
Examples:
  timer-service check
  TIMER_DB_PATH=/var/lib/punctual/timer.db timer-service check --output json"))]
pub(crate) struct CheckArgs {
    /// How to show what was found: json for programs, a table for people
    #[arg(long, value_enum, value_name = "json|table", hide_possible_values = true, default_value_t = Output::Table)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) flags: ServeFlags,
}

#[derive(Debug, Args)]
#[command(after_help = "\
To install it for you alone:
  bash        timer-service completions bash > ~/.timer-service.bash
              and in ~/.bashrc: source ~/.timer-service.bash
  zsh         timer-service completions zsh > ~/.zfunc/_timer-service
              and in ~/.zshrc before compinit: fpath+=~/.zfunc
  fish        timer-service completions fish > ~/.config/fish/completions/timer-service.fish
  powershell  timer-service completions powershell >> $PROFILE
  elvish      timer-service completions elvish >> ~/.config/elvish/rc.elv
The folder has to be there; a new shell knows them.")]
pub(crate) struct CompletionsArgs {
    /// For which shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: Shell,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use std::ffi::OsStr;

    fn parsed(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split(' '))
    }

    #[test]
    fn the_definition_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn no_command_means_serve_and_takes_its_flags() {
        let cli = parsed("timer-service --modules timer --batch-size 7").unwrap();
        assert!(cli.command.is_none());
        let flags = &cli.serve.0;
        let batch_size = flags.get(table::TIMER_BATCH_SIZE.about);
        assert_eq!(batch_size, Some(OsStr::new("7")));
        assert!(parsed("timer-service --batch-size 7 get").is_err());
    }

    #[test]
    fn a_timer_needs_one_due_time_and_at_most_one_key() {
        for line in [
            "timer-service schedule --tenant a --in 5s",
            "timer-service schedule --tenant a --in 5s --name x --replace",
            "timer-service schedule --batch -",
            "timer-service get --tenant a --name x",
            "timer-service send --tenant a --in 5s --wait 5s",
            "timer-service send --tenant a --in 5s --no-wait",
            "timer-service dead-letters --remove 7",
        ] {
            assert!(parsed(line).is_ok(), "{line}");
        }
        for line in [
            "timer-service schedule --tenant a",
            "timer-service schedule --in 5s",
            "timer-service schedule --tenant a --in 5s --due 2026-12-24T18:00:00Z",
            "timer-service schedule --tenant a --in 5s --name x --id 0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8e",
            "timer-service schedule --batch - --tenant a",
            "timer-service send --tenant a",
            "timer-service send --in 5s",
            "timer-service send --tenant a --in 5s --wait 5s --no-wait",
            "timer-service dead-letters --remove 7 --after 6",
            "timer-service get --tenant a",
            "timer-service cancel --name x",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
