//! Which mutants one run of CI tries: those whose files changed last, and a share that rotates with
//! the commits, so that every mutant has its turn and a run stays short.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::patch::Mutant;

/// Maximum number of mutants that are tried because their files changed.
const TOUCHED: usize = 6;
/// Fraction of the others that is tried on each commit: one in ten.
const ROTATION: usize = 10;
/// How many commits count as the change.
const COMMITS: &str = "--max-count=40";

/// The sample for the commit that is checked out.
pub(crate) fn of_commit(root: &Path, mutants: &[Mutant]) -> Result<Vec<Mutant>> {
    let commits = git(root, &["rev-list", "--count", "HEAD"])?;
    let changed = git(root, &["log", COMMITS, "--name-only", "--format="])?;
    let changed: Vec<&str> = changed.lines().filter(|line| !line.is_empty()).collect();
    Ok(sample(mutants, &changed, commits.trim().parse()?))
}

/// `changed` has the newest first, each as often as it changed.
fn sample(mutants: &[Mutant], changed: &[&str], commits: usize) -> Vec<Mutant> {
    let age = |mutant: &Mutant| {
        let is_of_mutant = |file: &&str| mutant.files.iter().any(|it| it == file);
        changed.iter().position(is_of_mutant)
    };
    let mut touched: Vec<_> = mutants
        .iter()
        .filter_map(|mutant| Some((age(mutant)?, mutant)))
        .collect();
    touched.sort_by_key(|(age, _)| *age);
    touched.truncate(TOUCHED);
    let mut chosen: Vec<_> = touched
        .into_iter()
        .map(|(_, mutant)| mutant.clone())
        .collect();
    let turn = mutants.iter().skip(commits % ROTATION).step_by(ROTATION);
    for mutant in turn {
        if !chosen.contains(mutant) {
            chosen.push(mutant.clone());
        }
    }
    chosen
}

fn git(root: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(root)
        .output()
        .context("failed to start git")?;
    ensure!(
        output.status.success(),
        "failed to read the history: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutants(count: usize) -> Vec<Mutant> {
        let mutant = |n| Mutant {
            name: format!("m{n}"),
            sentence: String::new(),
            caught_by: Vec::new(),
            may_hang: false,
            files: vec![format!("{n}.rs")],
        };
        (0..count).map(mutant).collect()
    }

    fn names(mutants: &[Mutant], changed: &[&str], commits: usize) -> Vec<String> {
        let sample = sample(mutants, changed, commits);
        sample.into_iter().map(|mutant| mutant.name).collect()
    }

    #[test]
    fn what_changed_last_comes_first_and_is_limited() {
        let changed = [
            "9.rs", "8.rs", "9.rs", "7.rs", "6.rs", "5.rs", "4.rs", "3.rs",
        ];
        let names = names(&mutants(10), &changed, 0);
        assert_eq!(names, ["m9", "m8", "m7", "m6", "m5", "m4", "m0"]);
    }

    #[test]
    fn each_has_its_turn_within_ten_commits() {
        let mutants = mutants(38);
        let mut tried: Vec<_> = (100..110)
            .flat_map(|commits| names(&mutants, &[], commits))
            .collect();
        tried.sort();
        tried.dedup();
        assert_eq!(tried.len(), 38);
    }

    #[test]
    fn none_is_tried_twice() {
        assert_eq!(names(&mutants(3), &["0.rs"], 0), ["m0"]);
    }
}
