//! The command line of the benchmark.

use std::path::PathBuf;

pub(crate) const HELP: &str = "\
usage: cargo xtask bench [--quick] [--json FILE|-] [--plots FOLDER] [--dir FOLDER] [LINE...]

Measures each LINE (default: all) against a bare loop in the same run; docs/performance.md says how.

  --quick        smaller sizes, for a hint within a few minutes
  --json FILE    also write everything as JSON; `-` is stdout, and the text then goes to stderr
  --plots FOLDER also draw what was measured, as SVG files
  --dir FOLDER   where to keep the databases meanwhile; a real disk (default: the target folder)
";

/// The command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Help,
    Measure(Options),
    /// Only started by the benchmark itself.
    Child(String, PathBuf, [u64; 2]),
}

/// How to measure.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) quick: bool,
    pub(crate) json: Option<String>,
    pub(crate) dir: Option<PathBuf>,
    pub(crate) plots: Option<PathBuf>,
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
            "--plots" => options.plots = Some(value("a folder")?.into()),
            "--child" => {
                let (name, path) = (value("a name")?, value("a database")?.into());
                let mut number = || {
                    let text = value("two numbers")?;
                    let parsed = text.parse();
                    parsed.map_err(|_| format!("{text} is no number."))
                };
                let numbers = [number()?, number()?];
                return Ok(Command::Child(name, path, numbers));
            }
            flag if flag.starts_with('-') => {
                return Err(format!("there is no flag {flag}: see --help."));
            }
            line => options.lines.push(line.to_uppercase()),
        }
    }
    Ok(Command::Measure(options))
}
