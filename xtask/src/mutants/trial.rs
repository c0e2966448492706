//! Building and running a few tests in the copy, with one outcome for every way it can end.
//!
//! Cargo only builds; the test programs are started directly. So a build that fails is never taken
//! for a test that fails, and a test that hangs is our own child and can be ended.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::patch::CaughtBy;
use crate::process::{self, Ending};

/// Far above any build of one crate; it only keeps a stuck build from lasting for ever.
const BUILD_LIMIT: Duration = Duration::from_mins(30);

/// How many lines of a log are worth showing.
const TAIL: usize = 25;

/// Where trials happen.
#[derive(Debug)]
pub(crate) struct Ground {
    /// The copy of the workspace.
    pub(crate) tree: PathBuf,
    /// Where cargo builds it: its own folder, so that the user's builds stay warm.
    pub(crate) build: PathBuf,
    pub(crate) logs: PathBuf,
    /// For each test program.
    pub(crate) limit: Duration,
    /// The variables through which tests find servers.
    pub(crate) environment: Vec<(&'static str, String)>,
}

/// How the named tests ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed { tests: usize },
    Failed { log: String },
    Hung,
    DoesNotBuild { log: String },
}

/// A test program that cargo built, and the folder cargo would run it in.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    path: PathBuf,
    package_dir: PathBuf,
}

impl Ground {
    /// Makes the folders below `base`.
    pub(crate) fn prepare(base: &Path, limit: Duration) -> Result<Self> {
        let ground = Self {
            tree: base.join("tree"),
            build: base.join("build"),
            logs: base.join("logs"),
            limit,
            environment: Vec::new(),
        };
        for folder in [&ground.tree, &ground.logs] {
            fs::create_dir_all(folder)
                .with_context(|| format!("failed to create {}", folder.display()))?;
        }
        Ok(ground)
    }

    /// Builds the package's tests and runs those that the filter selects.
    pub(crate) fn run(&self, tests: &CaughtBy) -> Result<Outcome> {
        let messages = self.logs.join("build.json");
        let diagnostics = self.logs.join("build.log");
        let mut cargo = process::cargo(&self.tree);
        cargo
            .args(["test", "--no-run", "--all-features", "--locked"])
            .args(["--message-format", "json-render-diagnostics"])
            .args(["--package", &tests.package])
            .env("CARGO_TARGET_DIR", &self.build);
        let ending = process::run_limited(&mut cargo, &messages, &diagnostics, BUILD_LIMIT)?;
        if ending != Ending::Succeeded {
            return Ok(Outcome::DoesNotBuild {
                log: process::tail(&diagnostics, TAIL),
            });
        }
        self.run_programs(&programs(&fs::read_to_string(&messages)?), &tests.filter)
    }

    fn run_programs(&self, programs: &[Program], filter: &str) -> Result<Outcome> {
        let log = self.logs.join("test.log");
        let mut tests = 0;
        for program in programs {
            let mut command = Command::new(&program.path);
            command
                .arg(filter)
                .current_dir(&program.package_dir)
                .envs(self.environment.iter().map(|(name, url)| (name, url)))
                .env("CARGO_MANIFEST_DIR", &program.package_dir);
            match process::run_limited(&mut command, &log, &log, self.limit)? {
                Ending::Succeeded => tests += passed(&fs::read_to_string(&log)?),
                Ending::TimedOut => return Ok(Outcome::Hung),
                Ending::Failed => {
                    return Ok(Outcome::Failed {
                        log: process::tail(&log, TAIL),
                    });
                }
            }
        }
        Ok(Outcome::Passed { tests })
    }
}

/// The test programs among cargo's messages, one JSON object a line.
fn programs(messages: &str) -> Vec<Program> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["profile"]["test"] == true)
        .filter_map(|message| {
            let manifest = Path::new(message["manifest_path"].as_str()?);
            Some(Program {
                path: message["executable"].as_str()?.into(),
                package_dir: manifest.parent()?.to_path_buf(),
            })
        })
        .collect()
}

/// How many tests a program says have passed.
fn passed(output: &str) -> usize {
    output
        .lines()
        .filter_map(|line| line.strip_prefix("test result: ok. "))
        .filter_map(|rest| rest.split(' ').next()?.parse::<usize>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_programs_are_found_among_cargos_messages() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","profile":{"test":false},"executable":"/t/bin","manifest_path":"/w/a/Cargo.toml"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","profile":{"test":true},"executable":"/t/a-1","manifest_path":"/w/a/Cargo.toml"}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#,
            "\n",
        );
        assert_eq!(
            programs(messages),
            [Program {
                path: "/t/a-1".into(),
                package_dir: "/w/a".into()
            }]
        );
    }

    #[test]
    fn tests_are_told_where_servers_are() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let script =
            "#!/bin/sh\n[ \"$A_SERVER\" = here ] && echo 'test result: ok. 1 passed; 0 failed'\n";
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let mut ground = Ground::prepare(folder.path(), Duration::from_secs(20)).unwrap();
        ground.environment = vec![("A_SERVER", "here".to_owned())];
        let program = Program {
            path,
            package_dir: folder.path().to_path_buf(),
        };
        let outcome = ground.run_programs(&[program], "").unwrap();
        assert_eq!(outcome, Outcome::Passed { tests: 1 });
    }

    #[test]
    fn passed_tests_are_counted_from_the_programs_own_words() {
        let output = "running 2 tests\n\ntest result: ok. 2 passed; 0 failed; 0 ignored\n";
        assert_eq!(passed(output), 2);
        assert_eq!(passed("test result: ok. 0 passed; 0 failed"), 0);
    }
}
