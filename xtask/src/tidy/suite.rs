//! Reading a `suite! { $ name, Fixture => case, case }` invocation.

use super::source;
use super::tree::SourceFile;

/// Where the conformance cases live.
pub(crate) const CASES: &str = "crates/conformance/src/cases/";

/// One invocation, as it stands in a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Suite {
    pub(crate) line: usize,
    /// The macro that it defines for adapters to invoke.
    pub(crate) name: String,
    /// The cases that it lists, each with its line.
    pub(crate) cases: Vec<(usize, String)>,
}

/// Every invocation in a file; `Err` holds the line of one that can not be read.
pub(crate) fn suites(file: &SourceFile) -> Result<Vec<Suite>, usize> {
    let code: Vec<&str> = file.text.lines().map(source::code).collect();
    let code = code.join("\n");
    let mut found = Vec::new();
    for (at, keyword) in code.match_indices("suite!") {
        let before = code[..at].chars().next_back();
        if before.is_some_and(source::is_word) {
            continue;
        }
        let line = line_at(&code, at);
        let body = at + keyword.len();
        let suite = suite(&code, body, line).ok_or(line)?;
        found.push(suite);
    }
    Ok(found)
}

/// Reads one invocation from just behind its `!`.
fn suite(code: &str, from: usize, line: usize) -> Option<Suite> {
    let open = from + code[from..].find(|c: char| !c.is_whitespace())?;
    let close = match code[open..].chars().next()? {
        '{' => '}',
        '(' => ')',
        _ => return None,
    };
    let end = open + code[open..].find(close)?;
    let arrow = open + code[open..end].find("=>")?;
    let name = source::words(&code[open..arrow]).next()?.to_owned();
    let mut cases = Vec::new();
    let mut at = arrow + 2;
    for entry in code[at..end].split(',') {
        if let Some(case) = source::words(entry).next() {
            let offset = at + entry.len() - entry.trim_start().len();
            cases.push((line_at(code, offset), case.to_owned()));
        }
        at += entry.len() + 1;
    }
    Some(Suite { line, name, cases })
}

fn line_at(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> SourceFile {
        SourceFile {
            path: format!("{CASES}x.rs"),
            text: text.to_owned(),
        }
    }

    #[test]
    fn the_name_and_the_cases_are_read_with_their_lines() {
        let text = "//! suite! in a doc\nsuite! { $ save_suite, crate::Fixture =>\n    first, // why\n    second,\n}\n";
        let suites = suites(&file(text)).unwrap();
        assert_eq!(
            suites,
            [Suite {
                line: 2,
                name: "save_suite".to_owned(),
                cases: vec![(3, "first".to_owned()), (4, "second".to_owned())],
            }]
        );
    }

    #[test]
    fn a_file_may_hold_several_suites_or_none() {
        let two = "suite! { a, F => x }\nsuite! { $ b, F =>\n}\n";
        assert_eq!(suites(&file(two)).unwrap().len(), 2);
        assert_eq!(suites(&file("my_suite! { a }\n")), Ok(vec![]));
    }

    #[test]
    fn an_invocation_without_an_arrow_can_not_be_read() {
        assert_eq!(suites(&file("\nsuite! { a, b }\n")), Err(2));
    }
}
