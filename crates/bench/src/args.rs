//! The command line of the benchmark.

use std::path::PathBuf;

pub(crate) const HELP: &str = "\
usage: cargo xtask bench [--quick] [--json FILE|-] [--dir FOLDER] [LINE...]

Measures each LINE (default: all) against a bare loop in the same run; docs/performance.md says how.

  --quick        smaller sizes, for a hint within two minutes
  --json FILE    also write everything as JSON; `-` is stdout, and the text then goes to stderr
  --dir FOLDER   where to keep the databases meanwhile; a real disk (default: the target folder)
";

/// What the user asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Help,
    Measure(Options),
    /// Only started by the benchmark itself: fills a log until it is killed.
    FillLog {
        path: PathBuf,
        bytes: u64,
    },
}

/// How to measure.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) quick: bool,
    pub(crate) json: Option<String>,
    pub(crate) dir: Option<PathBuf>,
    pub(crate) lines: Vec<String>,
}

/// Understands the arguments, or says in one sentence why not.
pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Command, String> {
    let mut args = args.into_iter();
    let mut options = Options::default();
    while let Some(arg) = args.next() {
        let mut value = |name: &str| {
            let missing = || format!("{arg} needs {name}: see --help.");
            args.next().ok_or_else(missing)
        };
        match arg.as_str() {
            "--help" | "-h" => return Ok(Command::Help),
            "--quick" => options.quick = true,
            "--json" => options.json = Some(value("a file or -")?),
            "--dir" => options.dir = Some(value("a folder")?.into()),
            "--fill-log" => {
                let path = value("a database")?.into();
                let bytes = value("a number of bytes")?;
                let bytes = bytes
                    .parse()
                    .map_err(|_| format!("{bytes} is no number."))?;
                return Ok(Command::FillLog { path, bytes });
            }
            flag if flag.starts_with('-') => {
                return Err(format!("there is no flag {flag}: see --help."));
            }
            line => options.lines.push(line.to_uppercase()),
        }
    }
    Ok(Command::Measure(options))
}
