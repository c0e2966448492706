//! What all tests of a run share: a server, names that keep them apart on it, and a Python.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

const NATS_URL: &str = "PUNCTUAL_TEST_NATS_URL";
const PYTHON: &str = "PUNCTUAL_TEST_PYTHON";

/// Servers are installed here, and an ordinary user's `PATH` often leaves it out.
const ADMIN_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Where the NATS server is that `cargo xtask test` has started for all tests of this run.
///
/// `None`, with a line that says so, if there is none.
///
/// # Panics
/// If there is none on the CI machine, where every test has to run.
pub fn shared_nats_url() -> Option<String> {
    variable(NATS_URL)
}

/// The Python interpreter that `cargo xtask test` has made ready, with the packages that
/// `clients/python` asks for.
///
/// `None`, with a line that says so, if there is none.
///
/// # Panics
/// If there is none on the CI machine, where every test has to run.
pub fn shared_python() -> Option<PathBuf> {
    variable(PYTHON).map(PathBuf::from)
}

/// Prometheus' program that checks rules, which `cargo xtask test` installs where it can.
///
/// `None`, with a line that says so, if there is none.
///
/// # Panics
/// If there is none on the CI machine, where every test has to run.
pub fn promtool() -> Option<PathBuf> {
    installed(
        "promtool",
        "promtool is not installed: it is in Debian's package prometheus",
    )
}

/// A program that is installed.
pub(crate) fn installed(name: &str, otherwise: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let program = std::env::split_paths(&path)
        .chain(ADMIN_FOLDERS.iter().map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file());
    found(program, otherwise)
}

/// What `cargo xtask test` has left in a variable.
pub(crate) fn variable(name: &str) -> Option<String> {
    let value = std::env::var(name).ok().filter(|value| !value.is_empty());
    found(value, &format!("{name} is not set: use `cargo xtask test`"))
}

/// A prefix for streams and subjects that no other test has, not even one of an earlier run on the
/// same server: the process, a counter, and what the operating system draws at random. It has at
/// most 32 letters and digits.
pub fn unique_prefix() -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    format!("t{}x{count}x{:016x}", std::process::id(), random())
}

/// Eight bytes from the operating system.
pub(crate) fn random() -> u64 {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .expect("the operating system gives random bytes");
    u64::from_ne_bytes(bytes)
}

/// On the CI machine what is missing is a failure; elsewhere it is said and passed over.
pub(crate) fn found<T>(server: Option<T>, otherwise: &str) -> Option<T> {
    if server.is_none() {
        assert!(std::env::var_os("CI").is_none(), "{otherwise}");
        eprintln!("skipped: {otherwise}");
    }
    server
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn prefixes_differ_and_fit_into_a_name() {
        let prefixes: BTreeSet<_> = (0..1_000).map(|_| unique_prefix()).collect();
        assert_eq!(prefixes.len(), 1_000);
        for prefix in prefixes {
            assert!(prefix.len() <= 32, "{prefix}");
            assert!(
                prefix.chars().all(|c| c.is_ascii_alphanumeric()),
                "{prefix}"
            );
        }
    }

    #[test]
    fn the_random_part_does_not_repeat_in_another_run() {
        // What differs between runs is the random part alone: process ids come again.
        assert_ne!(random(), random());
    }
}
