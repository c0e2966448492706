//! Every dependency between crates points inward, towards the domain.

use super::problem::Problem;
use super::tree::Tree;
use crate::workspace::{self, Package};

/// Which members of the workspace a crate may name.
enum Allowed {
    Anything,
    Only(&'static [&'static str]),
}

/// Crates that tests may name, whatever the rule says of the rest.
const FOR_TESTS: [&str; 5] = [
    "adapters-memory",
    "adapters-system",
    "conformance",
    "migrations",
    "test-servers",
];

const DRIVERS: &[&str] = &[
    "async-nats",
    "rusqlite",
    "r2d2*",
    "sqlx*",
    "tokio-postgres",
    "reqwest",
];

pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    match workspace::load(&tree.root) {
        Ok(workspace) => breaches(&workspace.packages)
            .into_iter()
            .map(|breach| breach.located(tree))
            .collect(),
        Err(error) => vec![Problem::new("Cargo.toml", 1, format!("{error:#}."))],
    }
}

/// The rule, by the crate's folder. A crate that is missing here has no layer yet.
fn rule(folder: &str) -> Option<Allowed> {
    Some(match folder {
        "domain" | "migrations" | "test-servers" | "xtask" => Allowed::Only(&[]),
        "ports" => Allowed::Only(&["domain"]),
        "workflows" | "conformance" => Allowed::Only(&["domain", "ports"]),
        "api" => Allowed::Only(&["domain", "ports", "workflows"]),
        "demo" => Allowed::Only(&[
            "adapters-sqlite",
            "adapters-system",
            "domain",
            "ports",
            "workflows",
        ]),
        "app" | "service" | "bench" => Allowed::Anything,
        adapter if adapter.starts_with("adapters-") => {
            Allowed::Only(&["domain", "ports", "migrations"])
        }
        _ => return None,
    })
}

/// Outside crates that would tie an inner crate to a runtime, a driver or an untyped error.
/// A name that ends in `*` stands for every name that begins so.
fn banned(folder: &str) -> Vec<&'static str> {
    let more: &[&str] = match folder {
        "domain" => &["tokio", "async-*", "hyper", "anyhow", "tracing*"],
        "ports" => &["tokio", "hyper", "anyhow"],
        "workflows" => &["hyper", "anyhow"],
        "conformance" => &[],
        "api" => &["anyhow"],
        _ => return Vec::new(),
    };
    [DRIVERS, more].concat()
}

/// A dependency that is not allowed, before its line is found in the manifest.
#[derive(Debug)]
struct Breach {
    folder: String,
    dependency: Option<String>,
    advice: String,
}

impl Breach {
    fn located(self, tree: &Tree) -> Problem {
        let path = format!("{}/Cargo.toml", self.folder);
        let line = tree
            .get(&path)
            .zip(self.dependency)
            .and_then(|(manifest, name)| {
                let starts = |line: &str| {
                    line.trim_start()
                        .strip_prefix(&name)
                        .is_some_and(|rest| rest.starts_with([' ', '.', '=']))
                };
                manifest.lines().find(|(_, line)| starts(line))
            })
            .map_or(1, |(number, _)| number);
        Problem::new(path, line, self.advice)
    }
}

fn breaches(packages: &[Package]) -> Vec<Breach> {
    packages
        .iter()
        .flat_map(|package| breaches_of(package, packages))
        .collect()
}

fn breaches_of(package: &Package, packages: &[Package]) -> Vec<Breach> {
    let me = short(package);
    let breach = |dependency: Option<&str>, advice: String| Breach {
        folder: package.dir.clone(),
        dependency: dependency.map(String::from),
        advice,
    };
    let Some(allowed) = rule(me) else {
        let advice =
            format!("give `{me}` a rule in tidy's dependency check: which crates may it name?");
        return vec![breach(None, advice)];
    };
    let mut found = Vec::new();
    for dependency in &package.dependencies {
        let name = dependency.name.as_str();
        if let Some(member) = packages.iter().find(|other| other.name == name) {
            let to = short(member);
            let permitted = match allowed {
                Allowed::Anything => to != "demo" || me == "service",
                Allowed::Only(list) => list.contains(&to),
            };
            let for_tests = dependency.dev && FOR_TESTS.contains(&to);
            if !permitted && !for_tests {
                let advice = format!(
                    "`{me}` may not depend on `{to}`: define a port, or move the code inward."
                );
                found.push(breach(Some(name), advice));
            }
        } else if !dependency.dev && banned(me).iter().any(|pattern| matches(pattern, name)) {
            let advice =
                format!("`{me}` may not depend on `{name}`: put what needs it in an adapter.");
            found.push(breach(Some(name), advice));
        }
    }
    found
}

fn short(package: &Package) -> &str {
    package.dir.strip_prefix("crates/").unwrap_or(&package.dir)
}

fn matches(pattern: &str, name: &str) -> bool {
    pattern
        .strip_suffix('*')
        .map_or(pattern == name, |prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::fixture::fixture;
    use crate::workspace::Dependency;

    /// A package in `crates/<folder>`; a dependency that begins with `dev:` is for tests.
    fn package(folder: &str, dependencies: &[&str]) -> Package {
        Package {
            name: format!("punctual-{folder}"),
            dir: format!("crates/{folder}"),
            dependencies: dependencies
                .iter()
                .map(|name| Dependency {
                    name: name.trim_start_matches("dev:").to_owned(),
                    dev: name.starts_with("dev:"),
                })
                .collect(),
            ..Package::default()
        }
    }

    /// What is wrong with one crate, among crates without dependencies.
    fn advice(folder: &str, dependency: &str) -> Vec<String> {
        let others = [
            "domain",
            "ports",
            "workflows",
            "conformance",
            "adapters-memory",
            "app",
            "demo",
            "test-servers",
        ];
        let mut packages = vec![package(folder, &[dependency])];
        packages.extend(
            others
                .iter()
                .filter(|other| **other != folder)
                .map(|other| package(other, &[])),
        );
        breaches(&packages)
            .into_iter()
            .map(|it| it.advice)
            .collect()
    }

    #[test]
    fn a_dependency_that_points_outward_is_refused() {
        for (folder, dependency) in [
            ("domain", "punctual-ports"),
            ("ports", "punctual-workflows"),
            ("workflows", "punctual-adapters-memory"),
            ("conformance", "punctual-workflows"),
            ("adapters-sqlite", "punctual-adapters-memory"),
            ("api", "punctual-app"),
            ("adapters-nats", "punctual-test-servers"),
            ("test-servers", "punctual-domain"),
            ("workflows", "dev:punctual-app"),
            ("domain", "tokio"),
            ("domain", "async-trait"),
            ("domain", "tracing-core"),
            ("ports", "tokio"),
            ("workflows", "anyhow"),
            ("conformance", "rusqlite"),
            ("api", "rusqlite"),
            ("api", "punctual-adapters-memory"),
            ("app", "punctual-demo"),
            ("demo", "punctual-app"),
        ] {
            assert_eq!(
                advice(folder, dependency).len(),
                1,
                "{folder} → {dependency}"
            );
        }
    }

    #[test]
    fn a_dependency_that_points_inward_is_fine() {
        for (folder, dependency) in [
            ("ports", "punctual-domain"),
            ("ports", "async-trait"),
            ("workflows", "punctual-ports"),
            ("workflows", "tokio"),
            ("workflows", "tracing"),
            ("workflows", "metrics"),
            ("workflows", "dev:punctual-adapters-memory"),
            ("domain", "dev:tokio"),
            ("adapters-sqlite", "dev:punctual-conformance"),
            ("adapters-nats", "dev:punctual-test-servers"),
            ("adapters-sqlite", "rusqlite"),
            ("app", "punctual-adapters-memory"),
            ("api", "punctual-workflows"),
            ("api", "hyper"),
            ("api", "dev:punctual-adapters-memory"),
            ("api", "dev:punctual-test-servers"),
            ("demo", "punctual-workflows"),
            ("service", "punctual-demo"),
        ] {
            assert_eq!(
                advice(folder, dependency),
                [""; 0],
                "{folder} → {dependency}"
            );
        }
    }

    #[test]
    fn a_crate_without_a_rule_is_refused() {
        assert!(advice("misc", "serde")[0].contains("give `misc` a rule"));
    }

    #[test]
    fn a_breach_is_shown_at_its_line_of_the_manifest() {
        let manifest = "[dependencies]\ntokio-util = \"1\"\ntokio = \"1\"\n";
        let tree = fixture(&[("crates/domain/Cargo.toml", manifest)]);
        let breach = breaches(&[package("domain", &["tokio"])]).remove(0);
        assert_eq!(breach.located(&tree).line, 3);
    }

    #[test]
    fn manifests_are_read_from_disk() {
        let workspace = "[workspace]\nmembers = [\"crates/*\"]\nresolver = \"3\"\n";
        let manifest = |name: &str, more: &str| {
            format!(
                "[package]\nname = \"punctual-{name}\"\nedition = \"2024\"\n[dependencies]\n{more}"
            )
        };
        let tree = fixture(&[
            (
                "crates/domain/Cargo.toml",
                &manifest("domain", "punctual-ports = { path = \"../ports\" }\n"),
            ),
            ("crates/domain/src/lib.rs", ""),
            ("crates/ports/Cargo.toml", &manifest("ports", "")),
            ("crates/ports/src/lib.rs", ""),
        ]);
        std::fs::write(tree.root.join("Cargo.toml"), workspace).unwrap();
        let problems = check(&tree);
        assert_eq!(problems.len(), 1);
        assert!(
            problems[0]
                .to_string()
                .starts_with("crates/domain/Cargo.toml:5: ")
        );
    }
}
