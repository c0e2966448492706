//! Whoever embeds `punctual` is outside this workspace: what they build, and how much of it.
//!
//! A crate is made in a temporary folder that depends on `punctual` by path. It is run with the
//! default features, and its own test with `testing`. Before that, the crates that come with the
//! default features are counted, and none of them may belong to a feature that is not enabled. After
//! that it is the turn of the example with a store and a bus of its own.

mod own_store;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::process;

/// The most crates that the default features may bring, those of build scripts included.
const MOST_CRATES: usize = 80;

/// Crates of a broker, an HTTP front or a command line, which come with their features only.
const UNWANTED: [&str; 10] = [
    "async-nats",
    "axum",
    "clap",
    "hyper",
    "indicatif",
    "punctual-adapters-memory",
    "reqwest",
    "rustls",
    "tokio-postgres",
    "tracing-subscriber",
];

const MAIN: &str = include_str!("../../outside/src/main.rs");
const TEST: &str = include_str!("../../outside/tests/reminders.rs");

/// Builds and runs the crates outside; answers whether all is well.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let problems = too_much(&crates(root)?);
    for problem in &problems {
        println!("embedding: {problem}");
    }
    let folder = tempfile::tempdir().context("failed to make a folder outside")?;
    make(root, folder.path())?;
    let runs = process::succeeds(&mut cargo(root, folder.path(), "run"))?;
    let tests = runs && process::succeeds(&mut cargo(root, folder.path(), "test"))?;
    Ok(problems.is_empty() && tests && own_store::check(root)?)
}

/// The names and versions of all crates that the default features bring.
fn crates(root: &Path) -> Result<BTreeSet<String>> {
    let mut tree = process::cargo(root);
    tree.args("tree --package punctual --locked --edges normal,build --prefix none".split(' '));
    let output = tree.output().context("failed to start cargo tree")?;
    ensure!(
        output.status.success(),
        "failed to list the crates of punctual: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(names_and_versions(&String::from_utf8_lossy(&output.stdout)))
}

fn names_and_versions(tree: &str) -> BTreeSet<String> {
    let first_two = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    tree.lines()
        .filter(|line| !line.is_empty())
        .map(first_two)
        .collect()
}

fn too_much(crates: &BTreeSet<String>) -> Vec<String> {
    let mut problems = Vec::new();
    println!(
        "embedding: the default features bring {} crates, of at most {MOST_CRATES}",
        crates.len()
    );
    if crates.len() > MOST_CRATES {
        problems.push(format!(
            "that is too many: {}",
            crates.iter().cloned().collect::<Vec<_>>().join(", ")
        ));
    }
    let is_unwanted = |name: &&String| {
        let name = name.split(' ').next().unwrap_or_default();
        UNWANTED.contains(&name)
    };
    let unwanted = crates.iter().filter(is_unwanted);
    problems.extend(unwanted.map(|name| format!("{name} comes with features that do not need it")));
    problems
}

/// Writes the crate. It begins with our lock file, so that it needs nothing that is not here.
fn make(root: &Path, outside: &Path) -> Result<()> {
    let punctual = root.join("crates/app");
    let punctual = punctual.display();
    let manifest = format!(
        "[package]\nname = \"outside\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
         [dependencies]\npunctual = {{ path = \"{punctual}\" }}\n\
         tokio = {{ version = \"1\", features = [\"macros\", \"rt-multi-thread\"] }}\n\n\
         [dev-dependencies]\npunctual = {{ path = \"{punctual}\", features = [\"testing\"] }}\n"
    );
    let put = |name: &str, text: &str| {
        let path = outside.join(name);
        let folder = path.parent().unwrap_or(outside);
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&path, text))
            .with_context(|| format!("failed to write {}", path.display()))
    };
    put("Cargo.toml", &manifest)?;
    put("src/main.rs", MAIN)?;
    put("tests/reminders.rs", TEST)?;
    fs::copy(root.join("Cargo.lock"), outside.join("Cargo.lock"))
        .context("failed to copy Cargo.lock")?;
    Ok(())
}

/// A cargo outside, whose target folder is kept so that a second run is quick.
fn cargo(root: &Path, outside: &Path, what: &str) -> Command {
    let mut command = process::cargo(outside);
    command
        .args([what, "--offline", "--quiet"])
        .env("CARGO_TARGET_DIR", root.join("target/outside"));
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| format!("{name} v1.0.0")).collect()
    }

    #[test]
    fn a_crate_is_counted_once_however_often_it_is_listed() {
        let tree = "punctual v0.1.0 (/here)\nserde v1.0.0\n\nserde v1.0.0 (*)\nserde v2.0.0\n";
        let expected = ["punctual v0.1.0", "serde v1.0.0", "serde v2.0.0"];
        assert_eq!(names_and_versions(tree), expected.map(String::from).into());
    }

    #[test]
    fn what_nobody_asked_for_is_named() {
        assert!(too_much(&named(&["tokio", "rusqlite"])).is_empty());
        let problems = too_much(&named(&["tokio", "clap"]));
        assert_eq!(problems.len(), 1);
        assert!(problems[0].starts_with("clap v1.0.0"), "{problems:?}");
    }

    #[test]
    fn too_many_are_too_many() {
        let names: Vec<String> = (0..=MOST_CRATES).map(|n| format!("crate-{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert!(too_much(&named(&names))[0].starts_with("that is too many"));
        assert!(too_much(&named(&names[1..])).is_empty());
    }
}
