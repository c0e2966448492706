//! Clippy's ban on clocks holds only while its configuration says so, and a crate's own
//! `clippy.toml` replaces the root's altogether.

use super::problem::Problem;
use super::tree::Tree;

/// What the root's `disallowed-methods` must name.
const BANNED: [&str; 10] = [
    "std::time::SystemTime::now",
    "std::time::Instant::now",
    "time::OffsetDateTime::now_utc",
    "uuid::Uuid::now_v7",
    "uuid::Uuid::new_v4",
    "std::thread::sleep",
    "tokio::time::sleep",
    "tokio::time::sleep_until",
    "tokio::time::interval",
    "tokio::time::timeout",
];

/// Who may have a configuration of their own, and so escape the root's.
const OWN_CONFIG: [&str; 3] = ["crates/adapters-system", "crates/bench", "xtask"];

pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    let Some(config) = tree.get("clippy.toml") else {
        let advice = "write the root's clippy.toml: it bans the clocks by name.";
        return vec![Problem::new("clippy.toml", 1, advice)];
    };
    let active: Vec<&str> = config
        .text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .collect();
    for name in BANNED {
        let quoted = format!("\"{name}\"");
        if !active.iter().any(|line| line.contains(&quoted)) {
            let advice = format!("list `{name}` in disallowed-methods again.");
            problems.push(Problem::new("clippy.toml", 1, advice));
        }
    }
    for file in &tree.files {
        let Some((folder, "clippy.toml" | ".clippy.toml")) = file.path.rsplit_once('/') else {
            continue;
        };
        if !OWN_CONFIG.contains(&folder) {
            let advice =
                "delete this file: it lifts the root's ban on clocks for the complete crate.";
            problems.push(Problem::new(&file.path, 1, advice));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::fixture::{fixture, locations};

    fn config() -> String {
        let lines = BANNED.map(|name| format!("  {{ path = \"{name}\" }},\n"));
        format!("disallowed-methods = [\n{}]\n", lines.concat())
    }

    #[test]
    fn the_configuration_must_exist() {
        assert_eq!(locations(&check(&fixture(&[]))), ["clippy.toml:1"]);
    }

    #[test]
    fn a_ban_that_was_dropped_or_commented_out_is_missed() {
        let dropped = config().replace("\"tokio::time::sleep\"", "\"x\"");
        let commented = config().replace(
            "  { path = \"uuid::Uuid::now_v7\"",
            "# \"uuid::Uuid::now_v7\"",
        );
        for (text, name) in [(dropped, "`tokio::time::sleep`"), (commented, "now_v7")] {
            let problems = check(&fixture(&[("clippy.toml", &text)]));
            assert_eq!(problems.len(), 1, "{name}");
            assert!(problems[0].advice.contains(name), "{}", problems[0]);
        }
    }

    #[test]
    fn only_the_named_crates_may_have_their_own() {
        let tree = fixture(&[
            ("clippy.toml", &config()),
            ("crates/adapters-system/clippy.toml", ""),
            ("crates/workflows/clippy.toml", ""),
            ("crates/app/.clippy.toml", ""),
            ("xtask/clippy.toml", ""),
        ]);
        assert_eq!(
            locations(&check(&tree)),
            [
                "crates/app/.clippy.toml:1",
                "crates/workflows/clippy.toml:1"
            ]
        );
    }

    #[test]
    fn a_complete_configuration_is_fine() {
        let tree = fixture(&[("clippy.toml", &config()), ("xtask/clippy.toml", "")]);
        assert_eq!(check(&tree), []);
    }
}
