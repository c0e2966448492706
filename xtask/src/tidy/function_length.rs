//! A function fits on a screen, so that it can be judged without scrolling.

use super::problem::Problem;
use super::source;
use super::tree::Tree;

const LIMIT: usize = 70;

/// Words that may stand before `fn`.
const QUALIFIERS: [&str; 5] = ["async ", "const ", "unsafe ", "extern \"C\" ", "extern "];

pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in tree.rust() {
        if source::is_test_file(&file.path) {
            continue;
        }
        let lines = source::production_lines(&file.text);
        for (at, (number, line)) in lines.iter().enumerate() {
            let Some(name) = function_name(line) else {
                continue;
            };
            let length = body_length(&lines[at..]);
            if length > LIMIT {
                problems.push(Problem::new(
                    &file.path,
                    *number,
                    format!("split `{name}`: it has {length} lines, the limit is {LIMIT}."),
                ));
            }
        }
    }
    problems
}

/// The name, if a function is declared on this line.
fn function_name(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    if let Some(after) = rest.strip_prefix("pub") {
        rest = match after.strip_prefix('(') {
            Some(scoped) => scoped.split_once(')')?.1.trim_start(),
            None => after.trim_start(),
        };
    }
    while let Some(after) = QUALIFIERS.iter().find_map(|word| rest.strip_prefix(word)) {
        rest = after;
    }
    source::words(rest.strip_prefix("fn ")?).next()
}

/// From the declaration to the brace that closes it at the same indent; 0 without a body.
fn body_length(lines: &[(usize, &str)]) -> usize {
    let Some((_, first)) = lines.first() else {
        return 0;
    };
    let closing = format!("{}}}", source::indent(first));
    let mut opened = false;
    for (at, (_, line)) in lines.iter().enumerate() {
        opened |= line.contains('{');
        let ends_here = *line == closing || (at == 0 && opened && line.ends_with('}'));
        if ends_here {
            return at + 1;
        }
        if !opened && line.trim_end().ends_with(';') {
            return 0;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::fixture::{fixture, locations};

    fn function(head: &str, inner_lines: usize) -> String {
        format!("{head} {{\n{}}}\n", "    work();\n".repeat(inner_lines))
    }

    #[test]
    fn a_function_over_the_limit_is_refused() {
        let text = function("fn short()", 3) + &function("pub(crate) async fn long()", 69);
        let tree = fixture(&[("crates/a/src/lib.rs", &text)]);
        let problems = check(&tree);
        assert_eq!(locations(&problems), ["crates/a/src/lib.rs:6"]);
        assert!(problems[0].advice.contains("`long`: it has 71 lines"));
    }

    #[test]
    fn a_function_at_the_limit_is_fine_and_tests_do_not_count() {
        let tail = "#[cfg(test)]\nmod tests {\n".to_owned() + &function("fn t()", 99) + "}\n";
        let tree = fixture(&[
            ("crates/a/src/lib.rs", &(function("fn full()", 68) + &tail)),
            ("crates/a/tests/t.rs", &function("fn long()", 99)),
        ]);
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn a_declaration_without_a_body_has_no_length() {
        let text = "trait T {\n    fn a(\n        &self,\n    );\n    fn b() {}\n}\n";
        let lines = source::production_lines(text);
        assert_eq!(body_length(&lines[1..]), 0);
        assert_eq!(body_length(&lines[4..]), 1);
    }

    #[test]
    fn declarations_are_told_from_calls() {
        assert_eq!(function_name("    pub const fn a() {"), Some("a"));
        assert_eq!(function_name("pub(in crate::x) fn b<T>() {"), Some("b"));
        assert_eq!(function_name("    public.fn_like();"), None);
        assert_eq!(function_name("// fn c() {"), None);
    }
}
