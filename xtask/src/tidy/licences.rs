//! Licences and sources of every crate in the build, compared with `deny.toml`.
//!
//! The file is cargo-deny's, which reads more into it; this check reads what cargo itself knows, so
//! that it needs nothing installed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::problem::Problem;
use crate::process;

const FILE: &str = "deny.toml";
/// How cargo names the default index in its metadata.
const DEFAULT_INDEX: &str = "registry+";

#[derive(Deserialize)]
struct Policy {
    licenses: Licences,
    bans: Bans,
}

#[derive(Deserialize)]
struct Licences {
    allow: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Bans {
    deny: Vec<Ban>,
}

/// A crate that may not be in the graph, unless only its `wrappers` depend on it.
#[derive(Deserialize)]
struct Ban {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
    #[serde(default)]
    wrappers: Vec<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    /// Absent for a crate of this workspace.
    source: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    dependencies: Vec<String>,
}

/// Reads what cargo has resolved for this platform, with all features.
pub(crate) fn check(root: &Path) -> Result<Vec<Problem>> {
    let policy = fs::read_to_string(root.join(FILE)).context("failed to read deny.toml")?;
    let mut command = process::cargo(root);
    // Of other platforms a build fetches nothing.
    command.args([
        "metadata",
        "--all-features",
        "--locked",
        "--format-version=1",
    ]);
    command.args(["--filter-platform", &host()?]);
    let metadata = output(&mut command)?;
    Ok(problems(
        &toml::from_str(&policy).context("failed to read deny.toml")?,
        &serde_json::from_str(&metadata)?,
    ))
}

fn host() -> Result<String> {
    let version = output(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host
        .context("failed to find the host in `rustc -vV`")?
        .to_owned())
}

fn output(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("failed to start {command:?}"))?;
    ensure!(
        output.status.success(),
        "failed to read the dependencies: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8(output.stdout)?)
}

fn problems(policy: &Policy, metadata: &Metadata) -> Vec<Problem> {
    let resolved: BTreeSet<_> = metadata.resolve.nodes.iter().map(|node| &node.id).collect();
    let packages = metadata
        .packages
        .iter()
        .filter(|it| resolved.contains(&it.id));
    let dependents = dependents(metadata);
    let mut advice = Vec::new();
    for package in packages {
        let what = format!("{} {}", package.name, package.version);
        match package.license.as_deref() {
            Some(licence) if is_allowed(licence, &policy.licenses.allow) => {}
            Some(licence) => advice.push(format!(
                "replace {what}: its licence `{licence}` is not allowed here."
            )),
            None => advice.push(format!("replace {what}: it names no licence.")),
        }
        if package
            .source
            .as_ref()
            .is_some_and(|it| !it.starts_with(DEFAULT_INDEX))
        {
            advice.push(format!("take {what} from the default index."));
        }
        for ban in policy
            .bans
            .deny
            .iter()
            .filter(|ban| ban.name == package.name)
        {
            let wrapped = |dependent: &&str| ban.wrappers.iter().any(|it| it == dependent);
            if !dependents
                .get(&package.id)
                .into_iter()
                .flatten()
                .all(wrapped)
            {
                advice.push(format!("drop {what}: {}.", ban.reason));
            }
        }
    }
    advice
        .into_iter()
        .map(|advice| Problem::new(FILE, 1, advice))
        .collect()
}

/// The names of the crates that depend on each directly.
fn dependents(metadata: &Metadata) -> BTreeMap<String, Vec<&str>> {
    let names: BTreeMap<_, _> = metadata
        .packages
        .iter()
        .map(|package| (&package.id, package.name.as_str()))
        .collect();
    let mut dependents: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for node in &metadata.resolve.nodes {
        for dependency in &node.dependencies {
            let name = names.get(&node.id).copied().unwrap_or_default();
            dependents.entry(dependency.clone()).or_default().push(name);
        }
    }
    dependents
}

/// Whether an SPDX expression can be met with the allowed licences: one of an `OR`, all of an `AND`.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let mut tokens = spaced.split_whitespace().peekable();
    any_of(&mut tokens, allowed)
}

type Tokens<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any_of(tokens: &mut Tokens<'_>, allowed: &BTreeSet<String>) -> bool {
    let mut met = all_of(tokens, allowed);
    while tokens.next_if_eq(&"OR").is_some() {
        met |= all_of(tokens, allowed);
    }
    met
}

fn all_of(tokens: &mut Tokens<'_>, allowed: &BTreeSet<String>) -> bool {
    let mut met = one(tokens, allowed);
    while tokens.next_if_eq(&"AND").is_some() {
        met &= one(tokens, allowed);
    }
    met
}

fn one(tokens: &mut Tokens<'_>, allowed: &BTreeSet<String>) -> bool {
    match tokens.next() {
        Some("(") => {
            let met = any_of(tokens, allowed);
            met && tokens.next() == Some(")")
        }
        Some(name) => {
            let mut name = name.to_owned();
            if tokens.next_if_eq(&"WITH").is_some() {
                name = format!("{name} WITH {}", tokens.next().unwrap_or_default());
            }
            allowed.contains(&name)
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn allowed() -> BTreeSet<String> {
        ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"]
            .map(str::to_owned)
            .into()
    }

    #[test]
    fn an_expression_is_met_by_one_alternative_and_by_all_of_what_is_joined() {
        for good in [
            "MIT",
            "GPL-3.0 OR MIT",
            "GPL-3.0/MIT",
            "(MIT OR GPL-3.0) AND ISC",
            "Apache-2.0 WITH LLVM-exception OR GPL-3.0",
        ] {
            assert!(is_allowed(good, &allowed()), "{good}");
        }
        for bad in [
            "",
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "(MIT AND GPL-3.0) OR GPL-2.0",
            "Apache-2.0",
        ] {
            assert!(!is_allowed(bad, &allowed()), "{bad}");
        }
    }

    fn found(package: &serde_json::Value, dependent: &str) -> Vec<Problem> {
        let policy = "licenses.allow = ['MIT']\nbans.deny = [{ crate = 'banned', reason = 'why', wrappers = ['ours'] }]";
        let metadata = json!({
            "packages": [package, { "id": "d", "name": dependent, "version": "1.0.0", "license": "MIT", "source": null }],
            "resolve": { "nodes": [
                { "id": "p", "dependencies": [] },
                { "id": "d", "dependencies": ["p"] },
            ] },
        });
        problems(
            &toml::from_str(policy).unwrap(),
            &serde_json::from_value(metadata).unwrap(),
        )
    }

    fn package(name: &str, license: Option<&str>, source: &str) -> serde_json::Value {
        json!({ "id": "p", "name": name, "version": "1.0.0", "license": license, "source": source })
    }

    #[test]
    fn every_breach_is_named() {
        assert_eq!(
            found(&package("fine", Some("MIT"), "registry+x"), "ours"),
            []
        );
        for breach in [
            package("other", Some("GPL-3.0"), "registry+x"),
            package("none", None, "registry+x"),
            package("fork", Some("MIT"), "git+x"),
        ] {
            assert_eq!(found(&breach, "ours").len(), 1);
        }
        let banned = package("banned", Some("MIT"), "registry+x");
        assert_eq!(found(&banned, "ours"), []);
        assert_eq!(found(&banned, "theirs").len(), 1);
    }
}
