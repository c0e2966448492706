//! Schemas of every history are migrated once, completely or not at all, and refused in one sentence.

use std::sync::Arc;

use punctual_adapters_postgres::{ConnectError, OpenError, PostgresSettings, SchemaSet};
use punctual_migrations::Dialect;
use punctual_ports::{Backend, TimerPersistencePort};
use punctual_test_servers::{PgBouncer, PostgresServer};

use crate::scratch::{Scratch, client_settings, execute, key, open, save_some, settings, timer};

/// Everything that a migration makes, with its history, line by line.
const CONTENTS: &str = "
    SELECT c.relkind, c.relname, c.relpersistence, c.reloptions FROM pg_class c
        WHERE c.relnamespace = current_schema()::regnamespace AND c.relname NOT LIKE 'pg_toast%'
        ORDER BY 1, 2;
    SELECT proname FROM pg_proc WHERE pronamespace = current_schema()::regnamespace ORDER BY 1;
    SELECT tgname FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1;";

const HISTORY: &str =
    "SELECT version, name, checksum, set_name, app_version FROM punctual_migrations
    ORDER BY version";

fn of_set(scratch: &Scratch, set: SchemaSet) -> PostgresSettings {
    let mut settings = scratch.settings();
    settings.set = set;
    settings
}

async fn refusal(settings: &PostgresSettings) -> OpenError {
    match open(settings).await {
        Ok(_) => panic!("it was opened"),
        Err(error) => error,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_history_names_each_migration_its_checksum_and_its_set() {
    for set in SchemaSet::ALL {
        let Some(scratch) = Scratch::migrated(set).await else {
            return;
        };
        let migrations = set.migrations(Dialect::Postgres).iter();
        let expected: Vec<String> = migrations
            .map(|it| {
                let (version, name, checksum) = (it.version, it.name, it.checksum);
                let program = env!("CARGO_PKG_VERSION");
                format!("{version}|{name}|{checksum}|{}|{program}", set.name())
            })
            .collect();
        assert_eq!(scratch.rows(HISTORY), expected);
        let times = "SELECT count(*) FROM punctual_migrations WHERE applied_at
            BETWEEN now() - interval '1 minute' AND now() + interval '1 second'";
        assert_eq!(scratch.execute(times), expected.len().to_string());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_start_changes_nothing_and_writes_nothing() {
    for set in SchemaSet::ALL {
        let Some(scratch) = Scratch::migrated(set).await else {
            return;
        };
        // A change of the history would have another xmin.
        let whole = format!("{CONTENTS} SELECT xmin, * FROM punctual_migrations ORDER BY version;");
        let before = scratch.rows(&whole);
        open(&of_set(&scratch, set)).await.unwrap().close().await;
        assert_eq!(scratch.rows(&whole), before);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn five_that_start_at_once_migrate_once() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let starters: Vec<_> = (0..5)
        .map(|number| {
            let settings = scratch.settings();
            tokio::spawn(async move {
                let store = open(&settings).await.unwrap();
                save_some(&store, number..number + 1).await;
                store
            })
        })
        .collect();
    let mut stores = Vec::new();
    for starter in starters {
        stores.push(starter.await.unwrap());
    }
    for (number, store) in stores.iter().rev().enumerate() {
        assert!(store.find(key(number)).await.unwrap().is_some());
    }
    let migrations = SchemaSet::TimersOnly.migrations(Dialect::Postgres).len();
    assert_eq!(scratch.rows(HISTORY).len(), migrations);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn behind_a_pooler_they_migrate_as_well() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    // Fewer connections than clients: nobody keeps one.
    let few = [("default_pool_size", "2")];
    let Some(pooler) = PgBouncer::start_with(&scratch.url(), &few) else {
        return;
    };
    let url = Arc::new(pooler.url());
    let starters: Vec<_> = (0..3)
        .map(|number| {
            let url = Arc::clone(&url);
            tokio::spawn(async move {
                let store = open(&settings(&url)).await.unwrap();
                save_some(&store, number..number + 1).await;
                store.close().await;
            })
        })
        .collect();
    for starter in starters {
        starter.await.unwrap();
    }
    let migrations = SchemaSet::TimersOnly.migrations(Dialect::Postgres).len();
    assert_eq!(scratch.rows(HISTORY).len(), migrations);
    assert_eq!(scratch.execute("SELECT count(*) FROM timers"), "3");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_history_that_is_not_ours_is_refused_and_nothing_is_changed() {
    let Some(scratch) = Scratch::migrated(SchemaSet::TimersOnly).await else {
        return;
    };
    let place = format!("schema public of the database {}", scratch.url());
    let newer = format!(
        "the {place} has migration 0099_later, which this program does not know: use a newer program"
    );
    let cannot = |detail: &str| {
        format!(
            "the history of the {place} is not one that this program can continue ({detail}): use the program that wrote it, or restore a backup"
        )
    };
    for (change, undo, sentence) in [
        (
            "INSERT INTO punctual_migrations SELECT 99, '0099_later', checksum, set_name, applied_at,
                '9.9.9' FROM punctual_migrations LIMIT 1",
            "DELETE FROM punctual_migrations WHERE version = 99",
            newer,
        ),
        (
            "UPDATE punctual_migrations SET checksum = reverse(checksum) WHERE version = 1",
            "UPDATE punctual_migrations SET checksum = reverse(checksum) WHERE version = 1",
            cannot("migration 0001_timer_schedules was applied in another wording than this program's"),
        ),
        (
            "UPDATE punctual_migrations SET version = 2 WHERE version = 1",
            "UPDATE punctual_migrations SET version = 1 WHERE version = 2",
            cannot("migration 0001_timer_schedules is unknown to this program"),
        ),
    ] {
        scratch.execute(change);
        let before = scratch.rows(CONTENTS);
        for wanted in [scratch.settings(), client_settings(&scratch.url())] {
            let error = refusal(&wanted).await;
            assert_eq!(error.to_string(), sentence);
            assert!(!error.is_retryable());
        }
        assert_eq!(scratch.rows(CONTENTS), before);
        scratch.execute(undo);
    }
    scratch.store().await.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tables_of_the_other_set_are_refused_except_by_a_client_which_takes_them() {
    for (set, other) in [
        (SchemaSet::Shared, SchemaSet::TimersOnly),
        (SchemaSet::TimersOnly, SchemaSet::Shared),
        (SchemaSet::Shared, SchemaSet::ExecutionOnly),
        (SchemaSet::ExecutionOnly, SchemaSet::TimersOnly),
    ] {
        let Some(scratch) = Scratch::migrated(set).await else {
            return;
        };
        let sentence = format!(
            "the schema public of the database {} holds the {} tables, but the {} tables are needed: name another schema with DATABASE_SCHEMA",
            scratch.url(),
            set.name(),
            other.name()
        );
        let mut client = of_set(&scratch, other);
        client.role = punctual_adapters_postgres::Role::Client;
        let refused = refusal(&of_set(&scratch, other)).await;
        assert_eq!(refused.to_string(), sentence);
        let client = open(&client).await.unwrap();
        let has_calls = client.call_stores().is_some();
        assert_eq!(has_calls, set.has_attempts());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_creates_no_tables_and_says_who_does() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let error = refusal(&client_settings(&scratch.url())).await;
    assert!(matches!(error, OpenError::Missing { .. }), "{error:?}");
    assert_eq!(
        error.to_string(),
        format!(
            "the schema public of the database {} has no tables of ours: start the program that fires its timers first",
            scratch.url()
        )
    );
    assert_eq!(scratch.rows(CONTENTS), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_fails_in_the_middle_leaves_nothing() {
    for (set, foreign) in [
        (
            SchemaSet::TimersOnly,
            "CREATE TABLE dead_letters (mine int)",
        ),
        (
            SchemaSet::TimersOnly,
            "CREATE VIEW timer_schedules AS SELECT 1 AS mine",
        ),
        (SchemaSet::Shared, "CREATE TABLE submissions (mine int)"),
        // The last of all, in another session's way: a table of the same name is no table of ours.
        (
            SchemaSet::Shared,
            "CREATE TABLE idx_timer_queue_tenant_retried (mine int)",
        ),
    ] {
        let Some(scratch) = Scratch::new() else {
            return;
        };
        scratch.execute(foreign);
        let before = scratch.rows(CONTENTS);
        let error = refusal(&of_set(&scratch, set)).await;
        assert!(matches!(error, OpenError::Foreign { .. }), "{error:?}");
        assert!(!error.is_retryable());
        let sentence = error.to_string();
        assert!(
            sentence.ends_with("rename it, or name another schema with DATABASE_SCHEMA"),
            "{sentence}"
        );
        assert_eq!(scratch.rows(CONTENTS), before, "{foreign}");
        // Somebody has renamed it.
        scratch.execute(
            &foreign
                .replace("CREATE", "DROP")
                .replace(" AS SELECT 1 AS mine", "")
                .replace(" (mine int)", ""),
        );
        open(&of_set(&scratch, set)).await.unwrap().close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tables_are_in_the_schema_that_was_named_whatever_the_search_path_is() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    // Names that have to be quoted, and one that a search path begins with.
    scratch.execute(&format!(
        "CREATE SCHEMA \"My Timers\"\"%.\"; CREATE SCHEMA first;
         ALTER DATABASE {} SET search_path = first, public",
        scratch.name()
    ));
    let mut named = scratch.settings();
    named.schema = Some("My Timers\"%.".to_owned());
    let in_named = open(&named).await.unwrap();
    save_some(&in_named, 0..1).await;
    let in_first = scratch.store().await;
    save_some(&in_first, 0..2).await;
    let mut client = client_settings(&scratch.url());
    client.schema = Some("first".to_owned());
    let client = open(&client).await.unwrap();
    assert!(client.find(key(1)).await.unwrap().is_some());
    assert!(in_named.find(key(1)).await.unwrap().is_none());
    let count = "SELECT count(*) FROM";
    assert_eq!(
        scratch.execute(&format!("{count} \"My Timers\"\"%.\".timers")),
        "1"
    );
    assert_eq!(scratch.execute(&format!("{count} first.timers")), "2");
    let public = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace";
    assert_eq!(scratch.execute(public), "0");
    assert!(in_named.name().starts_with("the schema My Timers\"%. of "));

    let mut missing = scratch.settings();
    missing.schema = Some("none".to_owned());
    let error = refusal(&missing).await.to_string();
    assert!(
        error.contains("has no schema none: create it with"),
        "{error}"
    );
}

/// Roles are the server's, so it is a private one.
#[tokio::test(flavor = "multi_thread")]
async fn a_role_needs_no_more_than_it_does() {
    let Some(server) = PostgresServer::start() else {
        return;
    };
    server.execute(
        "CREATE ROLE maker LOGIN; CREATE ROLE worker LOGIN; CREATE ROLE guest LOGIN;
         CREATE SCHEMA timers AUTHORIZATION maker;
         GRANT USAGE ON SCHEMA timers TO worker",
    );
    let as_role = |role: &str| {
        let mut settings = settings(&server.url_as(role));
        settings.schema = Some("timers".to_owned());
        settings
    };
    let error = refusal(&as_role("worker")).await;
    let is_privilege = matches!(
        error,
        OpenError::Connect(ConnectError::MissingPrivilege { .. })
    );
    assert!(is_privilege, "{error:?}");
    assert!(
        error
            .to_string()
            .ends_with("run GRANT CREATE ON SCHEMA timers TO worker"),
        "{error}"
    );
    let left = "SELECT count(*) FROM pg_class WHERE relnamespace = 'timers'::regnamespace";
    assert_eq!(server.execute(left), "0");

    open(&as_role("maker")).await.unwrap().close().await;
    // Whoever may not read the tables is told so, and that waiting does not help.
    for role in ["worker", "guest"] {
        let error = refusal(&as_role(role)).await;
        assert!(!error.is_retryable(), "{error}");
        assert!(error.to_string().contains("timers"), "{error}");
    }
    // With the tables in place, no privilege to create is needed.
    server.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA timers TO worker");
    let store = open(&as_role("worker")).await.unwrap();
    save_some(&store, 0..3).await;
    let deleted = store
        .delete(vec![timer(1).key], crate::scratch::now())
        .await;
    deleted.unwrap().remove(0).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_takes_no_writes_is_refused_and_unchanged() {
    let Some(mut server) = PostgresServer::start() else {
        return;
    };
    server.set("default_transaction_read_only", "on");
    server.restart();
    let error = refusal(&settings(&server.url())).await;
    let is_read_only = matches!(error, OpenError::Connect(ConnectError::ReadOnly { .. }));
    assert!(is_read_only, "{error:?}");
    let tables = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace";
    assert_eq!(execute(&server.url(), tables), "0");
}
