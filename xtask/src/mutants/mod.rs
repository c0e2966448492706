//! Do the tests notice? Each patch in `xtask/mutants` is a mistake that could be made; the tests
//! that it names must fail on it.
//!
//! Coverage says that a line ran under test. This says that the promise it keeps is tested.

mod copy;
pub(crate) mod patch;
mod sample;
mod trial;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use patch::{CaughtBy, Mode, Mutant};
use trial::{Ground, Outcome};

use crate::servers::{Kind, Servers};
use crate::{test_command, workspace};

/// A test that takes longer than this hangs.
const TEST_LIMIT: Duration = Duration::from_mins(2);

/// What became of one mutant.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Caught,
    Survived(CaughtBy),
    Trouble { what: String, log: String },
}

/// Tries the named mutants, or all; answers whether every one was caught.
pub(crate) fn run(root: &Path, names: &[String]) -> Result<bool> {
    try_all(root, &select(load(root)?, names)?)
}

/// Tries the sample of this commit; answers whether every one was caught.
pub(crate) fn run_sample(root: &Path) -> Result<bool> {
    let all = load(root)?;
    let sample = sample::of_commit(root, &all)?;
    println!("mutants: {} of {}, by commit", sample.len(), all.len());
    try_all(root, &sample)
}

fn try_all(root: &Path, mutants: &[Mutant]) -> Result<bool> {
    if mutants.is_empty() {
        println!("mutants: there is no patch in {}", patch::FOLDER);
        return Ok(true);
    }
    let base = workspace::load(root)?.target_dir.join("mutants");
    let servers = Servers::start(&[Kind::Nats, Kind::Postgres])?;
    if let Some(sentence) = test_command::not_run(servers.missing()) {
        println!("{sentence}");
    }
    let mut ground = Ground::prepare(&base, TEST_LIMIT)?;
    ground.environment = servers.environment();
    copy::sync(root, &ground.tree)?;
    baseline(&ground, mutants)?;

    let mut missed = 0;
    for mutant in mutants {
        let started = Instant::now();
        let file = root
            .join(patch::FOLDER)
            .join(format!("{}.patch", mutant.name));
        let verdict = try_mutant(&ground, mutant, &file)?;
        missed += usize::from(verdict != Verdict::Caught);
        report(mutant, &verdict, started.elapsed());
    }
    println!("mutants: {} tried, {missed} not caught", mutants.len());
    Ok(missed == 0)
}

fn load(root: &Path) -> Result<Vec<Mutant>> {
    let folder = root.join(patch::FOLDER);
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|it| it == "patch"));
    files.sort();
    files.iter().map(|file| read(file)).collect()
}

fn read(file: &Path) -> Result<Mutant> {
    let name = file.to_string_lossy();
    let text = fs::read_to_string(file).with_context(|| format!("failed to read {name}"))?;
    patch::parse(&name, &text).map_err(|fault| anyhow!("{name}:{}: {}", fault.line, fault.advice))
}

fn select(mutants: Vec<Mutant>, names: &[String]) -> Result<Vec<Mutant>> {
    if let Some(unknown) = names
        .iter()
        .find(|name| !mutants.iter().any(|mutant| mutant.name == **name))
    {
        let known: Vec<_> = mutants.iter().map(|mutant| mutant.name.as_str()).collect();
        bail!(
            "there is no mutant `{unknown}`; there are: {}",
            known.join(", ")
        );
    }
    let wanted = |mutant: &Mutant| names.is_empty() || names.contains(&mutant.name);
    Ok(mutants.into_iter().filter(wanted).collect())
}

/// Without any mutant the named tests must exist and pass, or their failure would prove nothing.
fn baseline(ground: &Ground, mutants: &[Mutant]) -> Result<()> {
    let tests: BTreeSet<&CaughtBy> = mutants.iter().flat_map(|it| &it.caught_by).collect();
    for tests in tests {
        let named = format!("`{} {}`", tests.package, tests.filter);
        match ground.run(tests)? {
            Outcome::Passed { tests: 0 } => bail!("no test matches {named}"),
            Outcome::Passed { tests: count } => {
                println!("passes  {} {} ({count} tests)", tests.package, tests.filter);
            }
            Outcome::Failed { log } => bail!("{named} fails without any mutant:\n{log}"),
            Outcome::Hung => bail!("{named} hangs without any mutant"),
            Outcome::DoesNotBuild { log } => {
                bail!("{named} does not build without any mutant:\n{log}")
            }
        }
    }
    Ok(())
}

fn try_mutant(ground: &Ground, mutant: &Mutant, file: &Path) -> Result<Verdict> {
    if let Err(reason) = patch::apply(&ground.tree, file, Mode::Forward)? {
        return Ok(Verdict::Trouble {
            what: "does not apply".to_owned(),
            log: format!("    {reason}\n"),
        });
    }
    let verdict = judge(ground, mutant);
    if let Err(reason) = patch::apply(&ground.tree, file, Mode::Backward)? {
        bail!("failed to take {} back: {reason}", mutant.name);
    }
    verdict
}

/// Every test that the header names must fail: a name that does not is a false claim.
fn judge(ground: &Ground, mutant: &Mutant) -> Result<Verdict> {
    for tests in &mutant.caught_by {
        match ground.run(tests)? {
            Outcome::Failed { .. } => {}
            Outcome::Hung if mutant.may_hang => {}
            Outcome::Passed { .. } => return Ok(Verdict::Survived(tests.clone())),
            Outcome::Hung => {
                return Ok(Verdict::Trouble {
                    what: "hangs, and its header has no `# may-hang`".to_owned(),
                    log: String::new(),
                });
            }
            Outcome::DoesNotBuild { log } => {
                return Ok(Verdict::Trouble {
                    what: "does not build".to_owned(),
                    log,
                });
            }
        }
    }
    Ok(Verdict::Caught)
}

fn report(mutant: &Mutant, verdict: &Verdict, took: Duration) {
    let name = &mutant.name;
    let seconds = took.as_secs_f64();
    match verdict {
        Verdict::Caught => {
            let by: Vec<_> = mutant
                .caught_by
                .iter()
                .map(|tests| format!("{} {}", tests.package, tests.filter))
                .collect();
            println!("caught  {name}  by {} ({seconds:.1} s)", by.join(", "));
        }
        Verdict::Survived(tests) => println!(
            "SURVIVED  {name}: {} — {} {} still passes ({seconds:.1} s)",
            mutant.sentence, tests.package, tests.filter
        ),
        Verdict::Trouble { what, log } => {
            println!("ERROR  {name}: mutant {what} ({seconds:.1} s)\n{log}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    const CODE: &str = "pub fn one() -> u32 {\n    1\n}\n";
    const TESTS: &str = "#[test]\nfn one_is_one() {\n    assert_eq!(toy::one(), 1);\n}\n#[test]\nfn one_is_small() {\n    assert!(toy::one() < 10);\n}\n";

    /// A workspace of one crate, not under git, with one mutant that turns `1` into `body`.
    fn toy(tests: &str, body: &str) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(
            "Cargo.toml",
            "[package]\nname = \"toy\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n",
        );
        write(
            "Cargo.lock",
            "version = 4\n\n[[package]]\nname = \"toy\"\nversion = \"0.1.0\"\n",
        );
        write("src/lib.rs", CODE);
        write("tests/t.rs", TESTS);
        let diff =
            "--- a/src/lib.rs\n+++ b/src/lib.rs\n@@ -1,3 +1,3 @@\n pub fn one() -> u32 {\n-    1\n";
        write(
            "xtask/mutants/m.patch",
            &format!(
                "# mutant: one is not one\n# caught-by: toy {tests}\n{diff}+    {body}\n }}\n"
            ),
        );
        folder
    }

    fn verdict(folder: &TempDir, limit: Duration) -> Verdict {
        let mutant = load(folder.path()).unwrap().remove(0);
        let ground = Ground::prepare(&folder.path().join("target/mutants"), limit).unwrap();
        copy::sync(folder.path(), &ground.tree).unwrap();
        baseline(&ground, std::slice::from_ref(&mutant)).unwrap();
        let file = folder.path().join("xtask/mutants/m.patch");
        let verdict = try_mutant(&ground, &mutant, &file).unwrap();
        let after = fs::read_to_string(ground.tree.join("src/lib.rs")).unwrap();
        assert_eq!(after, CODE, "the mutant is taken back");
        verdict
    }

    #[test]
    fn a_mutant_that_fails_its_test_is_caught() {
        assert_eq!(
            verdict(&toy("one_is_one", "2"), TEST_LIMIT),
            Verdict::Caught
        );
    }

    #[test]
    fn a_mutant_that_its_test_does_not_notice_survives() {
        let verdict = verdict(&toy("one_is_small", "2"), TEST_LIMIT);
        assert!(matches!(verdict, Verdict::Survived(_)), "{verdict:?}");
    }

    #[test]
    fn a_mutant_that_does_not_build_is_not_caught() {
        let verdict = verdict(&toy("one_is_one", "\"two\""), TEST_LIMIT);
        assert!(
            matches!(&verdict, Verdict::Trouble { what, log } if what == "does not build" && log.contains("mismatched types")),
            "{verdict:?}"
        );
    }

    #[test]
    fn a_mutant_that_hangs_is_caught_only_if_its_header_says_so() {
        let folder = toy("one_is_one", "loop {}");
        let limit = Duration::from_secs(2);
        let hung = verdict(&folder, limit);
        assert!(matches!(hung, Verdict::Trouble { .. }), "{hung:?}");

        let file = folder.path().join("xtask/mutants/m.patch");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replacen("--- a", "# may-hang\n--- a", 1)).unwrap();
        assert_eq!(verdict(&folder, limit), Verdict::Caught);
    }

    #[test]
    fn a_header_that_names_no_test_is_an_error() {
        let folder = toy("no_such_test", "2");
        let ground = Ground::prepare(&folder.path().join("target/mutants"), TEST_LIMIT).unwrap();
        copy::sync(folder.path(), &ground.tree).unwrap();
        let error = baseline(&ground, &load(folder.path()).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "no test matches `toy no_such_test`");
    }

    #[test]
    fn a_name_that_no_mutant_has_is_an_error() {
        let mutants = load(toy("one_is_one", "2").path()).unwrap();
        let error = select(mutants, &["x".to_owned()]).unwrap_err();
        assert_eq!(error.to_string(), "there is no mutant `x`; there are: m");
    }
}
