//! The PostgreSQL database: its server, its settings, its clock, and its tables.

use punctual_adapters_postgres::{
    Inspection, PostgresSettings, PostgresUrl, SchemaSet, examine, migration_status,
};
use punctual_adapters_system::SystemClock;

use super::report::Report;
use crate::failure::Failure;

/// Number of connections of one instance, with the one that is open now and then.
const CONNECTIONS: u64 = 9;
/// The same with service calls.
const CONNECTIONS_WITH_CALLS: u64 = 15;
/// An offset of the clocks beyond this is worth a warning, and beyond the second an instance is not ready.
const OFFSET_WARNING_MILLIS: i128 = 100;
const OFFSET_LIMIT_MILLIS: i128 = 5_000;
/// A snapshot that is older than this number of transactions slows polls down.
const OLD_SNAPSHOT: u64 = 1_000_000;

/// Checks a database that `serve` would open.
pub(super) async fn check(settings: &PostgresSettings, clock: &SystemClock, report: &mut Report) {
    let schema = settings.schema.as_deref();
    match examine(&settings.url, schema, clock).await {
        Err(error) => report.wrong("database", error.to_string()),
        Ok(found) => {
            say_what_it_is(&found, report);
            say_how_durable(&found, report);
            say_how_it_is(settings, &found, report);
            if found.refusal.is_none() {
                say_tables(settings, &found, clock, report).await;
            }
        }
    }
    if let Some(listen_url) = &settings.listen_url {
        check_listening(listen_url, schema, clock, report).await;
    }
}

fn say_what_it_is(found: &Inspection, report: &mut Report) {
    match &found.refusal {
        Some(refusal) => report.wrong("database", refusal.to_string()),
        None => report.ok(
            "database",
            format!("{} answers, as user {}", found.server, found.user),
        ),
    }
    let version = format!("PostgreSQL {}", found.server_version);
    if found.is_version_verified() {
        report.ok("version", version);
    } else {
        report.warn(
            "version",
            format!("{version}: newer than the one that this program was tested with"),
        );
    }
    let role = if found.is_in_recovery {
        "it is a standby, which takes no writes"
    } else {
        "it is a primary"
    };
    report.ok("recovery", role);
}

fn say_how_durable(found: &Inspection, report: &mut Report) {
    let mut risk = |what, is_on: bool, loses: &str| {
        if is_on {
            report.ok(what, "on");
        } else {
            report.warn(what, format!("off: {loses}, so set it to on"));
        }
    };
    risk(
        "fsync",
        found.has_fsync,
        "a crash of its machine may destroy the database",
    );
    risk(
        "full_page_writes",
        found.has_full_page_writes,
        "a crash of its machine may destroy pages",
    );
    risk(
        "autovacuum",
        found.has_autovacuum,
        "dead rows accumulate and polls become slow",
    );
    match found.synchronous_commit.as_str() {
        // That it is refused is in the line of the database.
        "off" => report.wrong(
            "synchronous_commit",
            "off: confirmed timers would be lost in a crash",
        ),
        setting => report.ok("synchronous_commit", setting),
    }
    report.ok("standbys", standbys(found));
}

fn standbys(found: &Inspection) -> String {
    let waits = match found.synchronous_standby_names.as_str() {
        "" => "a commit waits for none".to_owned(),
        names => format!("a commit waits for {names}"),
    };
    if found.standbys.is_empty() {
        return format!("none is connected; {waits}");
    }
    let each = found.standbys.iter().map(|it| match it.state.as_str() {
        "" => it.name.clone(),
        state => format!("{} ({state}, {})", it.name, it.sync_state),
    });
    let each: Vec<String> = each.collect();
    format!("{}; {waits}", each.join(", "))
}

fn say_how_it_is(settings: &PostgresSettings, found: &Inspection, report: &mut Report) {
    let age = found.oldest_xmin_age;
    let snapshot = format!("the oldest snapshot is {age} transactions old");
    if age > OLD_SNAPSHOT {
        report.warn(
            "xmin",
            format!("{snapshot}: end the transaction, slot or standby that holds it"),
        );
    } else {
        report.ok("xmin", snapshot);
    }
    let offset = found.clock_offset.whole_milliseconds();
    let error = found.clock_offset_error.whole_milliseconds();
    let clock = format!("its clock is {offset} ms ahead of ours, give or take {error} ms");
    if offset.abs() <= OFFSET_WARNING_MILLIS {
        report.ok("clock", clock);
    } else if offset.abs() <= OFFSET_LIMIT_MILLIS {
        report.warn("clock", format!("{clock}: synchronize both"));
    } else {
        report.wrong("clock", format!("{clock}: synchronize both"));
    }
    let (used, all) = (found.connections, found.max_connections);
    let needed = match settings.set {
        SchemaSet::TimersOnly => CONNECTIONS,
        SchemaSet::Shared | SchemaSet::ExecutionOnly => CONNECTIONS_WITH_CALLS,
    };
    let connections = format!("{used} of {all} are used, an instance needs {needed}");
    if used + needed > all {
        report.warn(
            "connections",
            format!("{connections}: raise max_connections, or put a pooler in front"),
        );
    } else {
        report.ok("connections", connections);
    }
}

async fn say_tables(
    settings: &PostgresSettings,
    found: &Inspection,
    clock: &SystemClock,
    report: &mut Report,
) {
    let status = match migration_status(settings, clock).await {
        Ok(status) => status,
        Err(error) => return report.wrong("tables", Failure::from(error).to_string()),
    };
    let schema = found.schema.as_deref().unwrap_or_default();
    let (pending, all) = (status.pending(), status.migrations.len());
    match pending {
        0 => report.ok(
            "tables",
            format!("up to date in the schema {schema}: {all} of {all} migrations"),
        ),
        _ if found.may_create_tables => report.ok(
            "tables",
            format!(
                "{pending} of {all} migrations are pending in the schema {schema}: they are applied at the start"
            ),
        ),
        _ => report.wrong(
            "tables",
            format!(
                "{pending} of {all} migrations are pending in the schema {schema}, and the user {user} may not create tables there: run GRANT CREATE ON SCHEMA {schema} TO {user}",
                user = found.user
            ),
        ),
    }
}

async fn check_listening(
    url: &PostgresUrl,
    schema: Option<&str>,
    clock: &SystemClock,
    report: &mut Report,
) {
    match examine(url, schema, clock).await {
        Ok(found) => report.ok("notifications", format!("{} answers", found.server)),
        // Nothing depends on them.
        Err(error) => report.warn("notifications", format!("timers are polled for: {error}")),
    }
}
