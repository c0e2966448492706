//! Unfinished work: it is finished before it is merged, or not started.

use super::problem::Problem;
use super::source;
use super::tree::Tree;

/// In two pieces each, or this file would be the first to be found.
const MACROS: [&str; 4] = [
    concat!("to", "do!("),
    concat!("unimple", "mented!("),
    concat!("db", "g!("),
    concat!("#[", "ignore"),
];
const NOTES: [&str; 2] = [concat!("TO", "DO"), concat!("FIX", "ME")];

pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in &tree.files {
        for (number, line) in file.lines() {
            if let Some(found) = leftover(line) {
                problems.push(Problem::new(
                    &file.path,
                    number,
                    format!("finish what `{found}` stands for, or take it out."),
                ));
            }
        }
    }
    problems
}

fn leftover(line: &str) -> Option<&'static str> {
    MACROS
        .into_iter()
        .find(|text| line.contains(text))
        .or_else(|| {
            NOTES
                .into_iter()
                .find(|note| source::words(line).any(|word| word == *note))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::fixture::fixture;

    #[test]
    fn every_kind_of_leftover_is_refused_in_code_and_in_comments() {
        for pattern in MACROS.iter().chain(&NOTES) {
            let text = format!("//! Doc\nfn a() {{\n    // {pattern} x)\n}}\n");
            let tree = fixture(&[("crates/a/src/lib.rs", &text), ("crates/a/x.sql", "\n")]);
            let problems = check(&tree);
            assert_eq!(problems.len(), 1, "{pattern}");
            assert_eq!(problems[0].line, 3, "{pattern}");
        }
    }

    #[test]
    fn words_that_only_resemble_one_are_fine() {
        let text = "//! Doc\nconst METHODOLOGY: &str = \"a to-do list\";\n";
        let tree = fixture(&[("crates/a/src/lib.rs", text)]);
        assert_eq!(check(&tree), []);
    }
}
