//! Reading Rust by the line: which lines are comments, which are tests, which words they hold.
//!
//! Heuristics over formatted code. They cannot be fooled by accident in a tree that rustfmt keeps,
//! and a parser would cost this tool most of its build time.

/// The line without its comment.
///
/// A `//` inside a string follows a letter or a colon (`http://`), a comment's follows a space.
pub(crate) fn code(line: &str) -> &str {
    if line.trim_start().starts_with("//") {
        return "";
    }
    line.find(" //").map_or(line, |at| &line[..at])
}

/// The lines outside `#[cfg(test)] mod … { … }`, with their numbers.
pub(crate) fn production_lines(text: &str) -> Vec<(usize, &str)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut kept = Vec::new();
    let mut closing: Option<String> = None;
    for (at, line) in lines.iter().enumerate() {
        if closing.is_none() && begins_test_module(&lines[at..]) {
            closing = Some(format!("{}}}", indent(line)));
        }
        match &closing {
            None => kept.push((at + 1, *line)),
            Some(end) if line == end => closing = None,
            Some(_) => {}
        }
    }
    kept
}

/// Whether a file is a test from its first line to its last.
pub(crate) fn is_test_file(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    ["/tests/", "/benches/", "/examples/"]
        .iter()
        .any(|folder| path.contains(folder))
        || name == "tests.rs"
        || name.ends_with("_tests.rs")
}

pub(crate) fn indent(line: &str) -> &str {
    &line[..line.len() - line.trim_start().len()]
}

/// The runs of letters, digits and underscores.
pub(crate) fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !is_word(c))
        .filter(|word| !word.is_empty())
}

pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn begins_test_module(lines: &[&str]) -> bool {
    let begins = ["#[cfg(test", "#[cfg(all(test", "#[cfg(any(test"];
    let Some(first) = lines.first().map(|line| line.trim_start()) else {
        return false;
    };
    begins.iter().any(|begin| first.starts_with(begin))
        && lines
            .iter()
            .map(|line| line.trim_start())
            .find(|line| !line.starts_with("#["))
            .is_some_and(|line| words(line).any(|word| word == "mod") && line.ends_with('{'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_not_code() {
        assert_eq!(code("    // a comment"), "");
        assert_eq!(code("/// a doc"), "");
        assert_eq!(code("let a = 1; // why"), "let a = 1;");
        assert_eq!(code("let a = \"nats://x\";"), "let a = \"nats://x\";");
    }

    #[test]
    fn a_test_module_is_not_production_but_what_follows_it_is() {
        let text = "fn a() {}\n#[cfg(test)]\n#[expect(x)]\nmod tests {\n    fn t() {\n    }\n}\nfn b() {}\n";
        let numbers: Vec<_> = production_lines(text).iter().map(|line| line.0).collect();
        assert_eq!(numbers, [1, 8]);
    }

    #[test]
    fn a_test_only_item_that_is_no_module_stays_production() {
        let text = "#[cfg(test)]\nmod tests;\n#[cfg(test)]\nfn helper() {\n}\n";
        assert_eq!(production_lines(text).len(), 5);
    }

    #[test]
    fn test_files_are_known_by_their_path() {
        assert!(is_test_file("crates/a/tests/b.rs"));
        assert!(is_test_file("crates/a/src/b/tests.rs"));
        assert!(!is_test_file("crates/a/src/tests_of_time.rs"));
    }
}
