//! A conformance case that no suite lists, or whose suite no adapter runs, is a test that never runs.

use std::collections::BTreeSet;

use super::problem::Problem;
use super::source;
use super::suite::{self, CASES, Suite};
use super::tree::{SourceFile, Tree};

pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in tree.rust().filter(|file| file.path.starts_with(CASES)) {
        match suite::suites(file) {
            Ok(suites) => {
                problems.extend(listing(file, &suites));
                problems.extend(use_of_suites(tree, file, &suites));
            }
            Err(line) => problems.push(Problem::new(
                &file.path,
                line,
                "write this as `suite! { $ name, Fixture => case, case }`.",
            )),
        }
    }
    problems
}

/// Cases and lists must name each other.
fn listing(file: &SourceFile, suites: &[Suite]) -> Vec<Problem> {
    let mut problems = Vec::new();
    if suites.is_empty() && file.name() != "mod.rs" {
        let advice = "list this file's cases in a `suite!`, or move the file out of cases/.";
        problems.push(Problem::new(&file.path, 1, advice));
    }
    let cases = cases(file);
    let listed: BTreeSet<&str> = suites
        .iter()
        .flat_map(|suite| &suite.cases)
        .map(|(_, name)| name.as_str())
        .collect();
    for (line, name) in &cases {
        if !listed.contains(name) {
            let advice = format!("list `{name}` in this file's `suite!`, or it never runs.");
            problems.push(Problem::new(&file.path, *line, advice));
        }
    }
    for (line, name) in suites.iter().flat_map(|suite| &suite.cases) {
        if !cases.iter().any(|(_, case)| case == name) {
            let advice =
                format!("write `pub async fn {name}` in this file, or take it off the list.");
            problems.push(Problem::new(&file.path, *line, advice));
        }
    }
    problems
}

fn cases(file: &SourceFile) -> Vec<(usize, &str)> {
    file.lines()
        .filter_map(|(number, line)| {
            let rest = line.trim_start().strip_prefix("pub async fn ")?;
            Some((number, source::words(rest).next()?))
        })
        .collect()
}

/// Some other file must name the macro that a suite defines.
fn use_of_suites(tree: &Tree, home: &SourceFile, suites: &[Suite]) -> Vec<Problem> {
    suites
        .iter()
        .filter(|suite| {
            !tree
                .rust()
                .filter(|file| file.path != home.path && may_run_suites(&file.path))
                .any(|file| names(file, &suite.name))
        })
        .map(|suite| {
            let advice = format!(
                "invoke `{}!` in an adapter's tests, or it never runs.",
                suite.name
            );
            Problem::new(&home.path, suite.line, advice)
        })
        .collect()
}

fn may_run_suites(path: &str) -> bool {
    path.starts_with("crates/conformance/src/")
        || (path.starts_with("crates/adapters-") && path.contains("/tests/"))
}

fn names(file: &SourceFile, name: &str) -> bool {
    file.text
        .lines()
        .any(|line| source::words(source::code(line)).any(|word| word == name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::fixture::{fixture, locations};

    const FILE: &str = "crates/conformance/src/cases/save.rs";
    const GOOD: &str = "//! Doc\npub async fn found<F: Fixture>(f: F) {\n}\nasync fn helper() {}\nsuite! { $ save_suite, crate::Fixture =>\n    found,\n}\n";
    const USE: (&str, &str) = (
        "crates/adapters-memory/tests/save.rs",
        "a::save_suite!(X);\n",
    );

    #[test]
    fn a_listed_case_in_a_suite_that_runs_is_fine() {
        let tree = fixture(&[
            (FILE, GOOD),
            USE,
            ("crates/conformance/src/cases/mod.rs", "mod save;\n"),
        ]);
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn a_case_that_is_not_listed_is_refused() {
        let text = GOOD.to_owned() + "pub async fn forgotten() {}\n";
        let problems = check(&fixture(&[(FILE, &text), USE]));
        assert_eq!(locations(&problems), [format!("{FILE}:8")]);
        assert!(problems[0].advice.contains("`forgotten`"));
    }

    #[test]
    fn a_listed_case_that_does_not_exist_is_refused() {
        let text = GOOD.replace("    found,\n", "    found,\n    imagined,\n");
        let problems = check(&fixture(&[(FILE, &text), USE]));
        assert_eq!(locations(&problems), [format!("{FILE}:7")]);
    }

    #[test]
    fn a_file_without_a_suite_is_refused() {
        let problems = check(&fixture(&[(FILE, "//! Doc\n")]));
        assert_eq!(locations(&problems), [format!("{FILE}:1")]);
    }

    #[test]
    fn a_suite_that_is_only_mentioned_in_a_comment_does_not_run() {
        let comment = ("crates/adapters-memory/tests/x.rs", "// save_suite!\n");
        let problems = check(&fixture(&[(FILE, GOOD), comment]));
        assert_eq!(locations(&problems), [format!("{FILE}:5")]);
        assert!(problems[0].advice.contains("`save_suite!`"));
    }

    #[test]
    fn a_malformed_suite_is_refused() {
        let problems = check(&fixture(&[(FILE, "//! Doc\nsuite! { a, b }\n")]));
        assert_eq!(locations(&problems), [format!("{FILE}:2")]);
    }
}
