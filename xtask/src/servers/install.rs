//! Installing what is missing, where that is possible, and saying plainly where it is not.

use std::os::unix::fs::MetadataExt;
use std::process::Command;

use super::{Kind, nats, postgres};
use crate::process;

/// What tests talk to, and the package it comes in.
struct Wanted {
    kind: Kind,
    name: &'static str,
    package: &'static str,
    installed: fn() -> bool,
}

const WANTED: [Wanted; 3] = [
    Wanted {
        kind: Kind::Nats,
        name: "nats-server",
        package: "nats-server",
        installed: || nats::find().is_some(),
    },
    Wanted {
        kind: Kind::Postgres,
        name: "PostgreSQL",
        package: "postgresql",
        installed: || postgres::find().is_some(),
    },
    Wanted {
        kind: Kind::PgBouncer,
        name: "PgBouncer",
        package: "pgbouncer",
        installed: || process::find_program("pgbouncer").is_some(),
    },
];

/// Installs those that are missing. What stays missing comes back as the tests that can not be run.
pub(crate) fn install_missing(kinds: &[Kind]) -> Vec<String> {
    let absent = || {
        let wanted = WANTED.iter().filter(|it| kinds.contains(&it.kind));
        wanted.filter(|server| !(server.installed)())
    };
    let packages: Vec<_> = absent().map(|server| server.package).collect();
    if packages.is_empty() {
        return Vec::new();
    }
    let reason = match apt_get(&packages) {
        Ok(()) => "its package was installed but holds no server".to_owned(),
        Err(reason) => reason,
    };
    absent()
        .map(|server| format!("tests against {} (not found, and {reason})", server.name))
        .collect()
}

/// Installs Prometheus' program that checks rules, if it is missing.
pub(crate) fn promtool() -> Result<(), String> {
    match process::find_program("promtool") {
        Some(_) => Ok(()),
        None => apt_get(&["prometheus"]),
    }
}

/// Installs what shifts the clock of a single process, if it is missing.
pub(crate) fn faketime() -> Result<(), String> {
    match process::find_program("faketime") {
        Some(_) => Ok(()),
        None => apt_get(&["faketime"]),
    }
}

/// Installs packages of the system, or says why that is not possible.
pub(crate) fn apt_get(packages: &[&str]) -> Result<(), String> {
    if process::find_program("apt-get").is_none() {
        return Err("there is no apt-get to install it with".to_owned());
    }
    if !is_root() {
        return Err("installing needs root".to_owned());
    }
    let install = [&["install", "-y"], packages].concat();
    for arguments in [&["update"][..], &install] {
        println!("apt-get {}", arguments.join(" "));
        let output = Command::new("apt-get")
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .output()
            .map_err(|error| format!("apt-get did not start: {error}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let last = said.lines().last().unwrap_or("it gave no reason");
            return Err(format!("apt-get {} failed: {last}", arguments[0]));
        }
    }
    Ok(())
}

/// Whether this process runs as root, asked without a library: it owns its own `/proc` entry.
pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|entry| entry.uid() == 0)
}
