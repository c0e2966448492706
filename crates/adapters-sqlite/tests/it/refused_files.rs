//! Files that are not ours to migrate are refused, and not one byte of them changes.

use std::fs;
use std::path::{Path, PathBuf};

use punctual_adapters_sqlite::{OpenError, SchemaSet, migrate, migration_status};

use crate::scratch::{Scratch, now};

/// Migrates a file that must be refused, checks that its bytes stay, and answers why.
fn refused(path: &Path, set: SchemaSet) -> OpenError {
    let before = fs::read(path).unwrap();
    let error = migrate(path, set, now()).unwrap_err();
    let told = error.to_string();
    assert!(told.contains(path.to_str().unwrap()), "{told}");
    assert!(fs::read(path).unwrap() == before, "the file was written to");
    error
}

/// As [`refused`], for a file whose history or tables are the reason, which its status also tells.
fn refused_by_its_tables(scratch: &Scratch, set: SchemaSet) -> OpenError {
    let error = refused(&scratch.path(), set);
    let status = migration_status(&scratch.path(), set).unwrap_err();
    assert_eq!(status.to_string(), error.to_string());
    error
}

#[test]
fn the_wrong_set() {
    for (has, wanted) in [
        (SchemaSet::Shared, SchemaSet::TimersOnly),
        (SchemaSet::TimersOnly, SchemaSet::Shared),
        (SchemaSet::TimersOnly, SchemaSet::ExecutionOnly),
        (SchemaSet::ExecutionOnly, SchemaSet::Shared),
    ] {
        let scratch = Scratch::migrated(has);
        match refused_by_its_tables(&scratch, wanted) {
            OpenError::WrongSet {
                found, wanted: set, ..
            } => {
                assert_eq!(found, has.name());
                assert_eq!(set, wanted);
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn a_newer_file() {
    for set in SchemaSet::ALL {
        let scratch = Scratch::migrated(set);
        scratch.execute(
            "INSERT INTO punctual_migrations
             SELECT 9000, '9000_future', checksum, set_name, applied_at, '9.0.0'
             FROM punctual_migrations LIMIT 1",
        );
        match refused_by_its_tables(&scratch, set) {
            OpenError::Newer { found, .. } => assert_eq!(found, "9000_future"),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn an_edited_migration() {
    for set in SchemaSet::ALL {
        let scratch = Scratch::migrated(set);
        scratch.execute(
            "UPDATE punctual_migrations SET checksum = replace(checksum, 'a', 'b')
             WHERE version = 1",
        );
        match refused_by_its_tables(&scratch, set) {
            OpenError::Drift { detail, .. } => assert!(detail.contains("another wording")),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn a_gap_in_the_history() {
    let scratch = Scratch::migrated(SchemaSet::Shared);
    scratch.execute("DELETE FROM punctual_migrations WHERE version = 3");
    match refused_by_its_tables(&scratch, SchemaSet::Shared) {
        OpenError::Drift { detail, .. } => assert!(detail.contains("0003")),
        other => panic!("{other}"),
    }
}

#[test]
fn a_history_with_a_nonsensical_row() {
    for spoil in [
        "UPDATE punctual_migrations SET applied_at = 'yesterday'",
        "UPDATE punctual_migrations SET version = -1 WHERE version = 1",
    ] {
        let scratch = Scratch::migrated(SchemaSet::Shared);
        scratch.execute(spoil);
        let error = refused_by_its_tables(&scratch, SchemaSet::Shared);
        assert!(matches!(error, OpenError::Drift { .. }), "{error}");
    }
}

#[test]
fn somebody_elses_table_of_our_name() {
    for (sql, taken) in [
        (
            "CREATE TABLE timer_schedules (id INTEGER)",
            "table timer_schedules",
        ),
        ("CREATE TABLE Tombstones (id INTEGER)", "table Tombstones"),
        ("CREATE VIEW dead_letters AS SELECT 1", "view dead_letters"),
        (
            "CREATE TABLE x (y INTEGER); CREATE INDEX idx_timer_schedules_ready ON x(y)",
            "index idx_timer_schedules_ready",
        ),
        (
            "CREATE TABLE punctual_migrations (id INTEGER)",
            "table punctual_migrations",
        ),
        (
            "CREATE TABLE x (y INTEGER); CREATE INDEX punctual_migrations ON x(y)",
            "index punctual_migrations",
        ),
    ] {
        for set in SchemaSet::ALL.into_iter().filter(|it| it.has_timers()) {
            let scratch = Scratch::new();
            scratch.execute(sql);
            match refused_by_its_tables(&scratch, set) {
                OpenError::Foreign { object, .. } => assert_eq!(object, taken),
                other => panic!("{other}"),
            }
        }
    }
}

#[test]
fn somebody_elses_table_of_a_name_that_only_an_upgrade_needs() {
    let scratch = Scratch::migrated_halfway(SchemaSet::Shared, 2);
    scratch.execute("CREATE TABLE tombstones (id INTEGER)");
    match refused_by_its_tables(&scratch, SchemaSet::Shared) {
        OpenError::Foreign { object, .. } => assert_eq!(object, "table tombstones"),
        other => panic!("{other}"),
    }
}

#[test]
fn a_file_that_is_no_database() {
    for garbage in ["hello".to_owned(), "no database\n".repeat(1000)] {
        let scratch = Scratch::new();
        fs::write(scratch.path(), garbage).unwrap();
        for set in SchemaSet::ALL {
            let error = refused_by_its_tables(&scratch, set);
            assert!(matches!(error, OpenError::Corrupt { .. }), "{error}");
        }
    }
}

/// A file with pending migrations and enough rows to fill some pages.
fn with_many_stubs() -> Scratch {
    let scratch = Scratch::migrated_halfway(SchemaSet::Shared, 1);
    scratch.execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
         INSERT INTO service_calls SELECT 'a', 'call ' || i FROM n;
         INSERT INTO timer_schedules SELECT * FROM service_calls;",
    );
    scratch
}

#[test]
fn a_truncated_file() {
    let scratch = with_many_stubs();
    let whole = fs::read(scratch.path()).unwrap();
    for length in [600, 4096, whole.len() / 2, whole.len() - 4096] {
        fs::write(scratch.path(), &whole[..length]).unwrap();
        let error = refused(&scratch.path(), SchemaSet::Shared);
        assert!(
            matches!(error, OpenError::Corrupt { .. }),
            "{length}: {error}"
        );
    }
}

#[test]
fn a_file_with_any_page_damaged() {
    let scratch = with_many_stubs();
    let whole = fs::read(scratch.path()).unwrap();
    let pages = whole.len() / 4096;
    assert!(pages > 20);
    for page in 0..pages {
        let mut damaged = whole.clone();
        damaged[page * 4096..(page + 1) * 4096].fill(0xA5);
        fs::write(scratch.path(), &damaged).unwrap();
        let error = refused(&scratch.path(), SchemaSet::Shared);
        assert!(
            matches!(error, OpenError::Corrupt { .. }),
            "{page}: {error}"
        );
    }
}

#[test]
fn rows_that_refer_to_nothing() {
    let scratch = Scratch::migrated_halfway(SchemaSet::Shared, 1);
    scratch.execute("INSERT INTO http_execution_log VALUES ('a', '1', 'x'), ('a', '2', 'x')");
    let before = scratch.contents();
    match migrate(&scratch.path(), SchemaSet::Shared, now()).unwrap_err() {
        OpenError::DanglingRows {
            table,
            parent,
            rows,
            ..
        } => assert_eq!(
            (table.as_str(), parent.as_str(), rows),
            ("http_execution_log", "service_calls", 2)
        ),
        other => panic!("{other}"),
    }
    assert_eq!(scratch.contents(), before);
    scratch.execute("DELETE FROM http_execution_log");
    migrate(&scratch.path(), SchemaSet::Shared, now()).unwrap();
}

#[test]
fn an_embedders_rows_that_refer_to_a_timer_that_is_not_there() {
    let scratch = Scratch::migrated_halfway(SchemaSet::Shared, 1);
    scratch.execute(
        "CREATE TABLE theirs (
             tenant TEXT, call TEXT,
             FOREIGN KEY (tenant, call) REFERENCES Timer_Schedules(tenant_id, service_call_id)
         );
         INSERT INTO theirs VALUES ('a', '1');",
    );
    let error = migrate(&scratch.path(), SchemaSet::Shared, now()).unwrap_err();
    match error {
        OpenError::DanglingRows { table, rows, .. } => {
            assert_eq!((table.as_str(), rows), ("theirs", 1));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_folder_in_the_place_of_the_file() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path()).unwrap();
    let error = migrate(&scratch.path(), SchemaSet::Shared, now()).unwrap_err();
    assert!(matches!(error, OpenError::Unreadable { .. }), "{error}");
}

#[test]
fn a_file_in_the_place_of_the_folder() {
    let scratch = Scratch::new();
    fs::write(scratch.path(), "").unwrap();
    let inside = scratch.path().join("b.db");
    let error = migrate(&inside, SchemaSet::Shared, now()).unwrap_err();
    assert!(matches!(error, OpenError::Folder { .. }), "{error}");
}

/// Permission bits stop everybody but root, so as root the attempts are made by a process that has
/// become nobody.
#[cfg(unix)]
mod permissions {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    const FILE: &str = "PUNCTUAL_TEST_FILE";

    /// The body of a process that another test starts; by itself it does nothing.
    #[test]
    fn a_process_that_is_refused() {
        let Ok(path) = std::env::var(FILE) else {
            return;
        };
        let outcome = migrate(&PathBuf::from(path), SchemaSet::Shared, now());
        println!("outcome: {outcome:?}");
    }

    /// What somebody without special rights is told; `None` if there is no way to become one.
    fn told_without_rights(path: &Path) -> Option<String> {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "--nocapture"])
            .arg("refused_files::permissions::a_process_that_is_refused")
            .env(FILE, path);
        if fs::File::options().append(true).open(path).is_ok() {
            command.uid(65_534);
        }
        let output = command.output().ok()?;
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(told.contains("outcome: "), "{told}");
        Some(told)
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_file_that_may_not_be_written_or_not_even_read() {
        let scratch = Scratch::migrated_halfway(SchemaSet::Shared, 1);
        let before = scratch.contents();
        for (mode, reason) in [(0o444, "Err(ReadOnly"), (0o000, "Err(Unreadable")] {
            set_mode(&scratch.path(), mode);
            set_mode(scratch.folder(), 0o555);
            if let Some(told) = told_without_rights(&scratch.path()) {
                assert!(told.contains(reason), "{mode:o}: {told}");
            } else {
                eprintln!("not tested: nobody may not execute this test");
            }
            set_mode(scratch.folder(), 0o755);
            set_mode(&scratch.path(), 0o644);
        }
        assert_eq!(scratch.contents(), before);
    }
}
