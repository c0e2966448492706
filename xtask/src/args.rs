//! The command line, parsed by hand: a few commands do not earn a dependency that every build of
//! this tool would wait for.

use crate::torture::{Fleet, Victim};

pub(crate) const HELP: &str = "\
usage: cargo xtask <command>

commands:
  test [--no-servers] [FILTER...]
                     run every test. Starts a private nats-server and PostgreSQL first and stops
                     them afterwards, and makes a Python environment with the packages of
                     clients/python; as root, installs what is missing with apt-get.
                     FILTERs are parts of test names, handed to the test runner.
      --no-servers   leave the servers and Python out: the quick inner loop
  ci                 everything that must pass before a change is merged: fmt, clippy, tidy, docs,
                     each feature alone, test, embedding, a sample of the mutants
  tidy               the house rules that no compiler checks
  embedding          count the crates that embedders get, and build, run and test a crate outside
                     the workspace that depends on `punctual`
  mutants [NAME...]  apply each patch of xtask/mutants to a copy of the tree and see that the
                     tests it names fail. NAMEs are file names without `.patch`.
  bench [--quick] [--json FILE|-] [--dir FOLDER] [--plots FOLDER] [LINE...]
                     build the benchmark for release and run it: each LINE (default: all) against
                     a bare loop in the same run, as docs/performance.md says
      --quick        smaller sizes: a hint within minutes
      --json FILE    also write everything as JSON; `-` is stdout
      --dir FOLDER   where the databases are meanwhile; on a real disk (default: target)
      --plots FOLDER draw lateness and cost there as SVG
  torture [--broker | --calls | --postgres | --full-disk] [--rounds N]
                     kill the real binary under load, N times (500 by default), and
                     see that no timer is lost, early, or fired under two ids
      --broker       kill it and its broker in turn (50 times by default), and see
                     that every command that the broker has acknowledged yields its event
      --calls        kill it while it makes service calls (60 times by default), and
                     see that none is made twice or early, and that each has one outcome
      --postgres     treat several instances and their PostgreSQL badly, for N seconds (200 by
                     default): kills, a suspension past the lease, commits that are cut, ended
                     listeners, a shifted clock
          [--calls] [--instances N] [--timers N] [--no-faults] [--pgbouncer]
                     with service calls; how many (4, and 100000 timers or 20000 calls);
                     without any fault; with PgBouncer in front
      --full-disk    the same on a disk that fills up again and again (60 seconds by default)
  help               this text

exit code: 0 all is well, 1 something is wrong with the tree, 2 the command line was not understood
";

/// The command of the user, parsed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Help,
    Test(TestOptions),
    Ci,
    Tidy,
    Embedding,
    Mutants {
        names: Vec<String>,
    },
    /// The benchmark understands its arguments itself; here they are only checked, so that
    /// a mistake is known before a release build.
    Bench {
        arguments: Vec<String>,
    },
    Torture {
        victim: Victim,
        rounds: u32,
        fleet: Fleet,
    },
}

/// Default number of kills of `torture`. A broker takes its time to come back.
const ROUNDS: u32 = 500;
const ROUNDS_WITH_BROKER: u32 = 50;
const ROUNDS_WITH_CALLS: u32 = 60;
const ROUNDS_OF_INSTANCES: u32 = 200;
const ROUNDS_WITHOUT_ROOM: u32 = 60;

/// How to run the tests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TestOptions {
    pub(crate) no_servers: bool,
    pub(crate) filters: Vec<String>,
    /// Set by `ci` alone: the runner's profile that goes on after a failure.
    pub(crate) ci_profile: bool,
}

/// Understands the arguments, or says in one sentence why not.
pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Command, String> {
    let mut args = args.into_iter();
    let Some(name) = args.next() else {
        return Err(refusal("a command is missing"));
    };
    let rest: Vec<String> = args.collect();
    if rest.iter().any(|arg| is_help(arg)) {
        return Ok(Command::Help);
    }
    match name.as_str() {
        "help" => Ok(Command::Help),
        flag if is_help(flag) => Ok(Command::Help),
        "test" => test_options(rest).map(Command::Test),
        "ci" => nothing_more(&name, &rest).map(|()| Command::Ci),
        "tidy" => nothing_more(&name, &rest).map(|()| Command::Tidy),
        "embedding" => nothing_more(&name, &rest).map(|()| Command::Embedding),
        "mutants" => match rest.iter().find(|arg| arg.starts_with('-')) {
            Some(flag) => Err(unknown_flag(&name, flag)),
            None => Ok(Command::Mutants { names: rest }),
        },
        "bench" => bench_arguments(&rest).map(|()| Command::Bench { arguments: rest }),
        "torture" => torture(&rest),
        unknown => Err(refusal(&format!("there is no command `{unknown}`"))),
    }
}

fn test_options(args: Vec<String>) -> Result<TestOptions, String> {
    let mut options = TestOptions::default();
    for arg in args {
        if arg == "--no-servers" {
            options.no_servers = true;
        } else if arg.starts_with('-') {
            return Err(unknown_flag("test", &arg));
        } else {
            options.filters.push(arg);
        }
    }
    Ok(options)
}

fn bench_arguments(args: &[String]) -> Result<(), String> {
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--quick" => {}
            "--json" | "--dir" | "--plots" => {
                let missing = || refusal(&format!("`{arg}` needs a value"));
                args.next().ok_or_else(missing)?;
            }
            flag if flag.starts_with('-') => return Err(unknown_flag("bench", flag)),
            _line => {}
        }
    }
    Ok(())
}

fn torture(args: &[String]) -> Result<Command, String> {
    let (mut victim, mut rounds) = (Victim::Service, None);
    let mut fleet = Fleet::default();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut number = || number_of(arg, args.next().map_or("", String::as_str));
        match arg.as_str() {
            "--broker" => victim = Victim::ServiceAndBroker,
            "--calls" if victim == Victim::InstancesAndPostgres => {
                victim = Victim::InstancesWithCalls;
            }
            "--calls" => victim = Victim::ServiceWithCalls,
            "--postgres" if victim == Victim::ServiceWithCalls => {
                victim = Victim::InstancesWithCalls;
            }
            "--postgres" => victim = Victim::InstancesAndPostgres,
            "--full-disk" => victim = Victim::PostgresWithoutRoom,
            "--rounds" => rounds = Some(number()?),
            "--instances" => fleet.instances = Some(number()?),
            "--timers" => fleet.timers = Some(number()?),
            "--no-faults" => fleet.no_faults = true,
            "--pgbouncer" => fleet.pgbouncer = true,
            flag if flag.starts_with('-') => return Err(unknown_flag("torture", flag)),
            word => {
                return Err(refusal(&format!(
                    "`torture` takes --broker, --calls, --postgres or --full-disk, and --rounds with a number, but got `{word}`"
                )));
            }
        }
    }
    if fleet != Fleet::default() && !victim.is_fleet() {
        let sentence =
            "--instances, --timers, --no-faults and --pgbouncer need --postgres or --full-disk";
        return Err(refusal(sentence));
    }
    let rounds = rounds.unwrap_or(match victim {
        Victim::Service => ROUNDS,
        Victim::ServiceAndBroker => ROUNDS_WITH_BROKER,
        Victim::ServiceWithCalls => ROUNDS_WITH_CALLS,
        Victim::InstancesAndPostgres | Victim::InstancesWithCalls => ROUNDS_OF_INSTANCES,
        Victim::PostgresWithoutRoom => ROUNDS_WITHOUT_ROOM,
    });
    Ok(Command::Torture {
        victim,
        rounds,
        fleet,
    })
}

fn number_of(flag: &str, given: &str) -> Result<u32, String> {
    let number = given.parse().ok().filter(|number| *number > 0);
    let what = flag.trim_start_matches('-');
    let sentence = || format!("`{flag}` needs a number of {what}, not `{given}`");
    number.ok_or_else(|| refusal(&sentence()))
}

fn nothing_more(command: &str, rest: &[String]) -> Result<(), String> {
    match rest.first() {
        None => Ok(()),
        Some(flag) if flag.starts_with('-') => Err(unknown_flag(command, flag)),
        Some(word) => Err(refusal(&format!(
            "`{command}` takes no argument, but got `{word}`"
        ))),
    }
}

fn is_help(arg: &str) -> bool {
    matches!(arg, "--help" | "-h")
}

fn unknown_flag(command: &str, flag: &str) -> String {
    refusal(&format!("`{command}` has no flag `{flag}`"))
}

fn refusal(what: &str) -> String {
    format!("{what}: see `cargo xtask --help`.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace().map(String::from))
    }

    #[test]
    fn every_command_is_understood() {
        assert_eq!(parsed("ci"), Ok(Command::Ci));
        assert_eq!(parsed("tidy"), Ok(Command::Tidy));
        assert_eq!(parsed("test"), Ok(Command::Test(TestOptions::default())));
        assert_eq!(parsed("mutants"), Ok(Command::Mutants { names: vec![] }));
    }

    #[test]
    fn test_takes_filters_and_may_leave_the_servers_out() {
        let expected = TestOptions {
            no_servers: true,
            filters: vec!["due".into(), "reached".into()],
            ci_profile: false,
        };
        assert_eq!(
            parsed("test due --no-servers reached"),
            Ok(Command::Test(expected))
        );
    }

    #[test]
    fn mutants_takes_names() {
        let names = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(parsed("mutants a b"), Ok(Command::Mutants { names }));
    }

    #[test]
    fn bench_hands_its_arguments_on() {
        let line = "--quick --json - --dir /mnt/disk --plots docs/plots S1 S15";
        let arguments = line.split(' ').map(String::from).collect();
        assert_eq!(
            parsed(&format!("bench {line}")),
            Ok(Command::Bench { arguments })
        );
        assert_eq!(parsed("bench"), Ok(Command::Bench { arguments: vec![] }));
    }

    #[test]
    fn torture_takes_a_number_of_rounds_and_may_kill_the_broker_too() {
        let torture = |victim, rounds| {
            Ok(Command::Torture {
                victim,
                rounds,
                fleet: Fleet::default(),
            })
        };
        let (service, both) = (Victim::Service, Victim::ServiceAndBroker);
        assert_eq!(parsed("torture"), torture(service, 500));
        assert_eq!(parsed("torture --rounds 7"), torture(service, 7));
        assert_eq!(parsed("torture --broker"), torture(both, 50));
        assert_eq!(parsed("torture --rounds 7 --broker"), torture(both, 7));
        let calls = Victim::ServiceWithCalls;
        assert_eq!(parsed("torture --calls"), torture(calls, 60));
        let both = Victim::InstancesWithCalls;
        assert_eq!(parsed("torture --calls --postgres"), torture(both, 200));
        assert_eq!(parsed("torture --postgres --calls"), torture(both, 200));
        let full = Victim::PostgresWithoutRoom;
        assert_eq!(parsed("torture --full-disk"), torture(full, 60));
    }

    #[test]
    fn torture_of_several_instances_takes_how_many_and_what_comes_upon_them() {
        let line = "torture --postgres --instances 2 --timers 9 --no-faults --pgbouncer";
        let torture = Command::Torture {
            victim: Victim::InstancesAndPostgres,
            rounds: 200,
            fleet: Fleet {
                instances: Some(2),
                timers: Some(9),
                no_faults: true,
                pgbouncer: true,
            },
        };
        assert_eq!(parsed(line), Ok(torture));
    }

    #[test]
    fn help_is_given_wherever_it_is_asked_for() {
        for line in ["help", "--help", "-h", "test --help", "tidy -h"] {
            assert_eq!(parsed(line), Ok(Command::Help), "{line}");
        }
    }

    #[test]
    fn what_is_not_understood_is_refused_by_name() {
        for (line, named) in [
            ("", "missing"),
            ("tset", "`tset`"),
            ("test --fast", "`--fast`"),
            ("ci now", "`now`"),
            ("tidy -v", "`-v`"),
            ("mutants --all", "`--all`"),
            ("bench --fast", "`--fast`"),
            ("bench S1 --json", "`--json`"),
            ("torture --fast", "`--fast`"),
            ("torture 7", "`7`"),
            ("torture --rounds", "number"),
            ("torture --rounds 0", "`0`"),
            ("torture --rounds 1 2", "`2`"),
            ("torture --instances 2", "--postgres"),
            ("torture --postgres --instances", "number of instances"),
        ] {
            let sentence = parsed(line).unwrap_err();
            assert!(sentence.contains(named), "{line}: {sentence}");
            assert_eq!(sentence.lines().count(), 1, "{sentence}");
        }
    }

    #[test]
    fn the_help_names_every_command() {
        for command in [
            "test",
            "ci",
            "tidy",
            "mutants",
            "bench",
            "--no-servers",
            "--json",
            "torture",
            "--rounds",
            "--broker",
            "--calls",
            "--postgres",
            "--full-disk",
        ] {
            assert!(HELP.contains(command), "{command}");
        }
    }
}
