//! House rules that no compiler checks, each a small function over the tree's text.
//!
//! Every check says what to do instead, and is itself tested on a tree that breaks it.

mod adapter_names;
mod bare_allow;
mod clippy_config;
mod clock_use;
mod conformance_cases;
mod dependencies;
mod documented_paths;
mod file_length;
mod function_length;
mod leftovers;
mod licences;
mod migrations;
mod module_docs;
mod mutant_patches;
mod problem;
mod retired_words;
mod source;
mod suite;
mod tree;

use std::path::Path;

use anyhow::Result;
use problem::Problem;
use tree::Tree;

/// Reads the tree and lists its problems.
type Check = fn(&Tree) -> Vec<Problem>;

/// Every check, under the name by which the documentation speaks of it.
const CHECKS: [(&str, Check); 14] = [
    ("dependency direction", dependencies::check),
    ("module docs", module_docs::check),
    ("clock use", clock_use::check),
    ("clippy configuration", clippy_config::check),
    ("file length", file_length::check),
    ("function length", function_length::check),
    ("migrations in step", migrations::check),
    ("conformance cases", conformance_cases::check),
    ("adapter names in cases", adapter_names::check),
    ("leftovers", leftovers::check),
    ("bare allow", bare_allow::check),
    ("mutant patches", mutant_patches::check),
    ("retired words", retired_words::check),
    ("paths in documents", documented_paths::check),
];

/// Runs every check and prints every problem; answers whether there was none.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let tree = Tree::load(root)?;
    let mut count = 0;
    for (name, check) in CHECKS {
        for problem in check(&tree) {
            println!("{problem} [{name}]");
            count += 1;
        }
    }
    for problem in licences::check(root)? {
        println!("{problem} [licences and sources]");
        count += 1;
    }
    println!("tidy: {} checks, {count} problems", CHECKS.len() + 1);
    Ok(count == 0)
}
