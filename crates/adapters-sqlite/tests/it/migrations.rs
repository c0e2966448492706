//! Files of every history are migrated once, completely, and without changing foreign rows.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;

use punctual_adapters_sqlite::{OpenError, SchemaSet, migrate, migration_status};
use punctual_domain::Timestamp;
use punctual_migrations::Dialect;

use crate::scratch::{Scratch, now};

const LATER: &str = "2027-01-01T00:00:00Z";

fn later() -> Timestamp {
    LATER.parse().unwrap()
}

#[test]
fn the_file_and_its_folders_are_created() {
    for set in SchemaSet::ALL {
        let scratch = Scratch::new();
        let path = scratch.folder().join("deep").join("deeper").join("a.db");
        let report = migrate(&path, set, now()).unwrap();
        assert_eq!(report.applied_now, set.migrations(Dialect::Sqlite).len());
        assert!(path.is_file());
    }
}

#[test]
fn a_second_run_changes_nothing() {
    for set in SchemaSet::ALL {
        let scratch = Scratch::new();
        let first = migrate(&scratch.path(), set, now()).unwrap();
        let before = (scratch.contents(), std::fs::read(scratch.path()).unwrap());
        let second = migrate(&scratch.path(), set, later()).unwrap();
        assert_eq!(second.applied_now, 0);
        assert_eq!(second.migrations, first.migrations);
        let after = (scratch.contents(), std::fs::read(scratch.path()).unwrap());
        assert!(before == after);
    }
}

#[test]
fn the_history_names_each_migration_its_checksum_its_set_and_its_time() {
    for set in SchemaSet::ALL {
        let expected: Vec<String> = set
            .migrations(Dialect::Sqlite)
            .iter()
            .map(|migration| {
                format!(
                    "{}|{}|{}|{}|2026-12-24T18:00:00.000Z|{}",
                    migration.version,
                    migration.name,
                    migration.checksum,
                    set.name(),
                    env!("CARGO_PKG_VERSION"),
                )
            })
            .collect();
        let scratch = Scratch::migrated(set);
        assert_eq!(
            scratch.rows(
                "SELECT version, name, checksum, set_name, applied_at, app_version
                 FROM punctual_migrations ORDER BY version"
            ),
            expected
        );
    }
}

#[test]
fn the_status_lists_what_was_applied_and_what_is_pending() {
    let scratch = Scratch::migrated_halfway(SchemaSet::Shared, 2);
    let before = scratch.contents();
    let status = migration_status(&scratch.path(), SchemaSet::Shared).unwrap();
    let lines: Vec<(u32, &str, bool)> = status
        .migrations
        .iter()
        .map(|it| (it.version, it.name, it.applied_at.is_some()))
        .collect();
    assert_eq!(
        lines,
        [
            (1, "0001_bootstrap_schema", true),
            (3, "0003_timer_schedules_schema", true),
            (4, "0004_timer_engine", false),
            (5, "0005_bus_positions", false),
            (6, "0006_service_calls", false),
            (7, "0007_tenant_ready", false),
            (8, "0008_attempts_by_port", false),
            (9, "0009_last_error", false),
            (10, "0010_dispatch_and_check", false),
            (11, "0011_database_id", false),
        ]
    );
    assert_eq!(status.pending(), lines.len() - 2);
    assert_eq!(scratch.contents(), before);
}

#[test]
fn the_status_of_a_missing_file_says_so_and_creates_none() {
    let scratch = Scratch::new();
    let error = migration_status(&scratch.path(), SchemaSet::Shared).unwrap_err();
    assert!(matches!(error, OpenError::Missing { .. }), "{error}");
    assert!(!scratch.path().exists());
}

#[test]
fn the_status_of_an_empty_file_is_that_everything_is_pending() {
    let scratch = Scratch::new();
    std::fs::write(scratch.path(), "").unwrap();
    let status = migration_status(&scratch.path(), SchemaSet::Shared).unwrap();
    assert_eq!(
        status.pending(),
        SchemaSet::Shared.migrations(Dialect::Sqlite).len()
    );
    assert_eq!(std::fs::metadata(scratch.path()).unwrap().len(), 0);
}

/// Three calls, two of them with a timer and two with an execution; and an event.
const STUB_ROWS: &str = "
    INSERT INTO service_calls VALUES ('a', '1'), ('a', '2'), ('b', '1');
    INSERT INTO timer_schedules VALUES ('a', '1'), ('b', '1');
    INSERT INTO http_execution_log VALUES ('a', '1', 'x'), ('a', '2', 'y');
    INSERT INTO outbox (tenant_id, aggregate_id, event_type, event_payload, created_at)
    VALUES ('a', '1', 'ServiceCallSubmitted', '{}', '2026-01-01T00:00:00.000Z');
";

#[test]
fn rows_of_the_stub_tables_survive_and_a_timer_without_a_due_time_has_been_reached() {
    let scratch = Scratch::migrated_halfway(SchemaSet::Shared, 1);
    scratch.execute(STUB_ROWS);
    let report = migrate(&scratch.path(), SchemaSet::Shared, now()).unwrap();
    assert_eq!(
        report.applied_now,
        SchemaSet::Shared.migrations(Dialect::Sqlite).len() - 1
    );
    assert_eq!(
        scratch.rows(
            "SELECT tenant_id, service_call_id, correlation_id, due_at, registered_at, reached_at,
                    state, data, attempts, retry_at
             FROM timer_schedules ORDER BY tenant_id"
        ),
        ["a", "b"].map(|tenant| format!(
            "{tenant}|1|00000000-0000-0000-0000-000000000000|2026-12-24T18:00:00.000Z|\
             2026-12-24T18:00:00.000Z|2026-12-24T18:00:00.000Z|Reached|NULL|0|NULL"
        ))
    );
    for (table, count) in [
        ("service_calls", 3),
        ("http_execution_log", 2),
        ("outbox", 1),
    ] {
        let found = scratch.rows(&format!("SELECT count(*) FROM {table}"));
        assert_eq!(found, [count.to_string()], "{table}");
    }
}

const NIL: &str = "00000000-0000-0000-0000-000000000000";
const MIGRATED: &str =
    r#"{"kind":"Migrated","message":"it was there before calls could be made","latencyMs":0}"#;

#[test]
fn a_call_of_which_only_the_id_was_known_has_failed_and_its_id_stays_taken() {
    let scratch = Scratch::migrated_halfway(SchemaSet::Shared, 1);
    scratch.execute(STUB_ROWS);
    migrate(&scratch.path(), SchemaSet::Shared, now()).unwrap();
    let at = "2026-12-24T18:00:00.000Z";
    assert_eq!(
        scratch.rows(
            "SELECT tenant_id, service_call_id, name, status, submitted_at, due_at, started_at,
                    finished_at, request_spec, outcome_meta, correlation_id, version, next_check_at
             FROM service_calls ORDER BY tenant_id, service_call_id"
        ),
        ["a|1", "a|2", "b|1"].map(|key| format!(
            "{key}|(migrated)|Failed|{at}|{at}|NULL|{at}|\
             {{\"method\":\"GET\",\"url\":\"http://migrated.invalid/\"}}|{MIGRATED}|{NIL}|1|NULL"
        ))
    );
    assert_eq!(
        scratch.rows(
            "SELECT tenant_id, service_call_id, idempotency_key, length(body_sha256), gone_at
             FROM submissions ORDER BY tenant_id, service_call_id"
        ),
        ["a|1", "a|2", "b|1"].map(|key| format!("{key}|NULL|32|NULL"))
    );
    assert_eq!(
        scratch.rows(
            "SELECT tenant_id, service_call_id, execution_id, started_at, finished_at, state,
                    error_message, request_spec, outcome_meta
             FROM http_execution_log ORDER BY execution_id"
        ),
        ["a|1|x", "a|2|y"].map(|key| format!(
            "{key}|{at}|{at}|Finished|it was there before calls could be made|NULL|{MIGRATED}"
        ))
    );
}

#[test]
fn the_host_of_an_attempt_that_waits_gets_its_port() {
    let migrations = SchemaSet::Shared.migrations(Dialect::Sqlite);
    let before = migrations.iter().take_while(|it| it.version < 8).count();
    let scratch = Scratch::migrated_halfway(SchemaSet::Shared, before);
    let rows = [
        ("a.example", "http://A.example", "Waiting", "a.example:80"),
        ("a", "HTTPS://a?x=:9", "Waiting", "a:443"),
        ("a", "http://a:08080/x", "Waiting", "a:8080"),
        ("a", "http://a:81?y=[1]:7", "Waiting", "a:81"),
        ("a", "http://a/]:82", "Waiting", "a:80"),
        ("::1", "http://[::1]/", "Waiting", "[::1]:80"),
        ("::1", "https://[0::1]:8443/a:1", "Waiting", "[::1]:8443"),
        ("a", "http://a:82/", "Attempted", "a"),
    ];
    let mut insert = String::new();
    let call = |id: &str| {
        format!(
            "INSERT INTO service_calls (tenant_id, service_call_id, name, status, submitted_at,
                 due_at, request_spec, correlation_id, command_id, version)
             VALUES ('t', '{id}', '', 'Running', '', '', '{{}}', '', '', 1);"
        )
    };
    for (n, (host, url, state, _)) in rows.iter().enumerate() {
        insert += &call(&n.to_string());
        let attempt = format!(
            "INSERT INTO http_execution_log (tenant_id, service_call_id, execution_id, started_at,
                 request_url, request_method, request_headers, correlation_id, state, timeout_ms,
                 host, request_spec)
             VALUES ('t', '{n}', 'x', '', '', 'GET', '{{}}', '', '{state}', 1, '{host}',
                 '{{\"method\":\"GET\",\"url\":\"{url}\"}}');"
        );
        insert += &attempt;
    }
    // Unreadable rows stay as they are, and block nothing.
    insert += &call("y");
    insert += "INSERT INTO http_execution_log SELECT tenant_id, 'y', execution_id, started_at,
        finished_at, request_url, request_method, request_headers, request_body, response_status,
        response_headers, response_body, error_message, correlation_id, state, timeout_ms, host,
        'no json', outcome_meta FROM http_execution_log WHERE service_call_id = '0';";
    scratch.execute(&insert);
    migrate(&scratch.path(), SchemaSet::Shared, now()).unwrap();
    let hosts = "SELECT host FROM http_execution_log ORDER BY service_call_id";
    let mut expected = rows.map(|(.., host)| host).to_vec();
    expected.push("a.example");
    assert_eq!(scratch.rows(hosts), expected);
}

#[test]
fn a_running_call_keeps_its_next_check_its_dispatches_and_its_tags() {
    let scratch = Scratch::migrated_halfway(SchemaSet::Shared, 8);
    scratch.execute(
        "INSERT INTO service_calls (tenant_id, service_call_id, name, status, submitted_at, due_at,
             request_spec, correlation_id, command_id, version, look_at, asked_at, asked)
         VALUES ('a', '1', 'n', 'Running', 's', 'd', '{}', 'c', 'm', 7, 'l', 'k', 3);
         INSERT INTO service_call_tags VALUES ('a', '1', 'x', 'd');",
    );
    migrate(&scratch.path(), SchemaSet::Shared, now()).unwrap();
    let call =
        "SELECT name, version, next_check_at, dispatched_at, dispatch_count FROM service_calls";
    assert_eq!(scratch.rows(call), ["n|7|l|k|3"]);
    assert_eq!(scratch.rows("SELECT tag FROM service_call_tags"), ["x"]);
    scratch.execute("PRAGMA foreign_keys = ON; DELETE FROM service_calls;");
    assert_eq!(scratch.rows("SELECT tag FROM service_call_tags"), [""; 0]);
}

#[test]
fn timers_under_a_call_that_is_made_anew_stay_and_still_belong_to_it() {
    let scratch = Scratch::migrated_halfway(SchemaSet::Shared, 4);
    scratch.execute(
        "INSERT INTO service_calls VALUES ('a', '1'), ('a', '2');
         INSERT INTO timer_schedules
             (tenant_id, service_call_id, correlation_id, due_at, registered_at)
         VALUES ('a', '1', 'c', 'd', 'r'), ('a', '2', 'c', 'd', 'r');",
    );
    migrate(&scratch.path(), SchemaSet::Shared, now()).unwrap();
    let timers = "SELECT service_call_id, state FROM timer_schedules ORDER BY service_call_id";
    assert_eq!(scratch.rows(timers), ["1|Scheduled", "2|Scheduled"]);
    let nothing = Vec::<String>::new();
    assert_eq!(scratch.rows("PRAGMA foreign_key_check"), nothing);
    let connection = scratch.open();
    connection
        .execute("DELETE FROM service_calls WHERE service_call_id = '1'", [])
        .unwrap();
    assert_eq!(scratch.rows(timers), ["2|Scheduled"]);
}

#[test]
fn rows_that_refer_to_a_table_that_is_made_anew_are_not_cascaded_away() {
    let scratch = Scratch::migrated_halfway(SchemaSet::Shared, 1);
    scratch.execute(STUB_ROWS);
    scratch.execute(
        "CREATE TABLE theirs (
             tenant TEXT, call TEXT,
             FOREIGN KEY (tenant, call)
                 REFERENCES timer_schedules(tenant_id, service_call_id) ON DELETE CASCADE
         );
         INSERT INTO theirs VALUES ('a', '1'), ('b', '1');",
    );
    migrate(&scratch.path(), SchemaSet::Shared, now()).unwrap();
    assert_eq!(scratch.rows("SELECT * FROM theirs"), ["a|1", "b|1"]);
    // The reference still holds, to the new table.
    let connection = scratch.open();
    connection
        .execute("DELETE FROM timer_schedules WHERE tenant_id = 'a'", [])
        .unwrap();
    assert_eq!(scratch.rows("SELECT * FROM theirs"), ["b|1"]);
}

/// What an embedder may well have: rows, a trigger, an index, a broken reference of its own, a view
/// that is broken and one of our table, and settings of its own.
const EMBEDDER: &str = "
    CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER REFERENCES customers(id));
    CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT);
    CREATE INDEX orders_by_customer ON orders(customer);
    CREATE TRIGGER no_orphans AFTER DELETE ON customers BEGIN
        DELETE FROM orders WHERE customer = old.id;
    END;
    CREATE VIEW broken AS SELECT * FROM gone;
    CREATE VIEW due AS SELECT due_at FROM timer_schedules;
    INSERT INTO customers VALUES (1, 'one');
    INSERT INTO orders VALUES (1, 1), (2, 77);
    PRAGMA user_version = 42;
    PRAGMA application_id = 4711;
";

#[test]
fn an_embedders_own_tables_are_left_alone_whatever_state_they_are_in() {
    // The view of timers that they have is one of a file with timers.
    for set in SchemaSet::ALL.into_iter().filter(|it| it.has_timers()) {
        let scratch = Scratch::new();
        scratch.execute(EMBEDDER);
        let before = scratch.contents();
        let settings = "SELECT * FROM pragma_user_version, pragma_application_id";
        assert_eq!(scratch.rows(settings), ["42|4711"]);
        migrate(&scratch.path(), set, now()).unwrap();
        let after = scratch.contents();
        for line in before {
            assert!(after.contains(&line), "lost: {line}");
        }
        assert_eq!(scratch.rows(settings), ["42|4711"]);
        assert_eq!(scratch.rows("SELECT * FROM orders"), ["1|1", "2|77"]);
        assert_eq!(scratch.rows("SELECT count(*) FROM due"), ["0"]);
    }
}

#[test]
fn five_threads_at_once_apply_each_migration_once() {
    for round in 0..30 {
        let set = SchemaSet::ALL[round % SchemaSet::ALL.len()];
        let scratch = Scratch::new();
        let barrier = Barrier::new(5);
        let reports: Vec<_> = std::thread::scope(|scope| {
            let starters: Vec<_> = (0..5)
                .map(|_| {
                    scope.spawn(|| {
                        barrier.wait();
                        migrate(&scratch.path(), set, now()).unwrap()
                    })
                })
                .collect();
            starters.into_iter().map(|it| it.join().unwrap()).collect()
        });
        let mut applied: Vec<usize> = reports.iter().map(|it| it.applied_now).collect();
        applied.sort_unstable();
        assert_eq!(applied, [0, 0, 0, 0, set.migrations(Dialect::Sqlite).len()]);
        assert!(
            reports
                .iter()
                .all(|it| it.migrations == reports[0].migrations)
        );
        assert_eq!(scratch.contents(), Scratch::migrated(set).contents());
    }
}

const FILE: &str = "PUNCTUAL_TEST_FILE";

/// The body of a process that another test starts; by itself it does nothing.
#[test]
fn a_process_that_migrates() {
    let Ok(path) = std::env::var(FILE) else {
        return;
    };
    migrate(&PathBuf::from(path), SchemaSet::Shared, now()).unwrap();
}

fn start_migrating(path: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "migrations::a_process_that_migrates"])
        .env(FILE, path)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn five_processes_at_once_all_succeed() {
    for _ in 0..5 {
        let scratch = Scratch::migrated_halfway(SchemaSet::Shared, 1);
        scratch.execute(STUB_ROWS);
        let children: Vec<Child> = (0..5).map(|_| start_migrating(&scratch.path())).collect();
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
        let status = migration_status(&scratch.path(), SchemaSet::Shared).unwrap();
        assert_eq!(status.pending(), 0);
        assert_eq!(scratch.rows("SELECT count(*) FROM timer_schedules"), ["2"]);
    }
}
