//! A run that is cut off anywhere leaves the file as it was, and the next one completes it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use rusqlite::Connection;
use rusqlite::trace::{TraceEvent, TraceEventCodes};

use super::scenarios::{Scenario, contents, folder, now};
use super::{migrate, migrate_connection};

/// The contents of a file before and after its migration.
struct Ends {
    before: Vec<String>,
    after: Vec<String>,
}

impl Ends {
    fn of(scenario: Scenario) -> Self {
        let folder = folder();
        let path = folder.path().join("a.db");
        scenario.begin(&path);
        let before = contents(&path);
        migrate(&path, scenario.set(), now()).unwrap();
        let after = contents(&path);
        assert_ne!(before, after);
        Self { before, after }
    }

    /// Cuts off the migrations of new files, each later than the one before, until one completes, and
    /// returns the number of those that had not been committed.
    fn cut_off(
        &self,
        scenario: Scenario,
        mut is_cut_off: impl FnMut(usize, &Path) -> bool,
    ) -> usize {
        let mut uncommitted = 0;
        for number in 0.. {
            let folder = folder();
            let path = folder.path().join("a.db");
            scenario.begin(&path);
            if !is_cut_off(number, &path) {
                break;
            }
            uncommitted += usize::from(!self.check(scenario, &path));
        }
        uncommitted
    }

    /// Checks a file whose migration was cut off, and says whether it had been committed.
    fn check(&self, scenario: Scenario, path: &Path) -> bool {
        let found = contents(path);
        let committed = found == self.after;
        assert!(
            committed || found == self.before,
            "half a migration: {found:#?}"
        );
        migrate(path, scenario.set(), now()).unwrap();
        assert_eq!(contents(path), self.after);
        committed
    }
}

/// Migrates with an interruption after a number of instructions of SQLite's virtual machine, and returns
/// whether the run was long enough to be interrupted.
fn interrupted_after(instructions: i64, scenario: Scenario, path: &Path) -> bool {
    let mut connection = Connection::open(path).unwrap();
    let left = Arc::new(AtomicI64::new(instructions));
    let counter = Arc::clone(&left);
    // Only once, or the rollback would be interrupted as well.
    let interrupt = move || counter.fetch_sub(1, Ordering::Relaxed) == 0;
    connection.progress_handler(1, Some(interrupt)).unwrap();
    // It fails, unless the interruption fell on the end of a read, where it does no harm.
    let _ = migrate_connection(&mut connection, path, scenario.set(), now());
    left.load(Ordering::Relaxed) < 0
}

#[test]
fn a_run_interrupted_at_any_instruction_leaves_the_file_as_it_was_or_complete() {
    for scenario in Scenario::ALL {
        let uncommitted = Ends::of(scenario).cut_off(scenario, |number, path| {
            // A prime, so that the interruptions fall on every part of every loop.
            let instructions = i64::try_from(number * 17).unwrap();
            interrupted_after(instructions, scenario, path)
        });
        assert!(
            uncommitted > 50,
            "{scenario:?}: {uncommitted} interruptions"
        );
    }
}

const STATEMENT: &str = "PUNCTUAL_TEST_DIE_AT_STATEMENT";
const FILE: &str = "PUNCTUAL_TEST_FILE";
const SCENARIO: &str = "PUNCTUAL_TEST_SCENARIO";

static STATEMENTS_LEFT: AtomicUsize = AtomicUsize::new(0);

fn die_at_last_statement(_: TraceEvent<'_>) {
    if STATEMENTS_LEFT.fetch_sub(1, Ordering::Relaxed) == 1 {
        std::process::abort();
    }
}

/// The body of a process that another test starts; by itself it does nothing.
#[test]
fn a_process_that_dies_at_a_statement() {
    let Ok(statement) = std::env::var(STATEMENT) else {
        return;
    };
    let path = PathBuf::from(std::env::var(FILE).unwrap());
    let scenario = Scenario::ALL[std::env::var(SCENARIO).unwrap().parse::<usize>().unwrap()];
    let mut connection = Connection::open(&path).unwrap();
    STATEMENTS_LEFT.store(statement.parse().unwrap(), Ordering::Relaxed);
    connection.trace_v2(
        TraceEventCodes::SQLITE_TRACE_STMT,
        Some(die_at_last_statement),
    );
    migrate_connection(&mut connection, &path, scenario.set(), now()).unwrap();
}

fn dies_at(statement: usize, scenario: usize, path: &Path) -> bool {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "migrate::interruption_tests::a_process_that_dies_at_a_statement",
        ])
        .env(STATEMENT, statement.to_string())
        .env(SCENARIO, scenario.to_string())
        .env(FILE, path)
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("running 1 test"), "{stdout}");
    // A run that fails in another way than by dying is a failure of this test.
    assert!(
        output.status.success() || output.status.code().is_none(),
        "{stdout}"
    );
    !output.status.success()
}

#[test]
fn a_process_killed_at_any_statement_leaves_the_file_as_it_was_or_complete() {
    for (number, scenario) in Scenario::ALL.into_iter().enumerate() {
        let dies = |before, path: &Path| dies_at(before + 1, number, path);
        let uncommitted = Ends::of(scenario).cut_off(scenario, dies);
        assert!(uncommitted > 10, "{scenario:?}: {uncommitted} deaths");
    }
}
