//! One database: its folder, its tables, its integrity, and the process that serves it.

use std::path::Path;

use punctual_adapters_sqlite::{
    Inspection, OpenError, SchemaSet, Wholeness, inspect, rusqlite, served_by,
};

use super::disk;
use super::report::Report;
use crate::display::{cut_to, reason};
use crate::failure::Failure;
use crate::store::refuse_what_is_no_file;

/// Maximum size of a file that is read completely: a larger one would take too long.
const READ_AT_MOST: u64 = 256 << 20;

/// Maximum length of the description of a damage.
const LONGEST_DAMAGE: usize = 200;

/// Checks a database that `serve` would open; returns whether a process serves it right now.
pub(super) fn check(path: &Path, set: SchemaSet, limit: Option<u64>, report: &mut Report) -> bool {
    let absolute = std::path::absolute(path);
    let path = absolute.as_deref().unwrap_or(path);
    let folder = path.parent().unwrap_or(path);
    if !say("folder", disk::folder(folder), report) {
        return false;
    }
    if let Some(room) = disk::free_space(folder) {
        say("disk", room, report);
    }
    if path.symlink_metadata().is_err() {
        let detail = format!(
            "{} is not there yet: it is made at the start",
            path.display()
        );
        report.ok("database", detail);
        return false;
    }
    if let Err(failure) = refuse_what_is_no_file(path) {
        report.wrong("database", failure.to_string());
        return false;
    }
    if let Err(problem) = disk::file(path) {
        report.wrong("database", problem);
        return false;
    }
    match inspect(path, set, READ_AT_MOST) {
        Err(OpenError::Missing { path }) => {
            report.wrong(
                "database",
                format!("{} is a link to nothing", path.display()),
            );
        }
        Err(error) => report.wrong("database", Failure::from(error).to_string()),
        Ok(None) => report.ok(
            "database",
            format!(
                "{} was left with its log alone: what is in it is seen at the next start",
                path.display()
            ),
        ),
        Ok(Some(found)) => say_what_is_in_it(path, set, limit, &found, report),
    }
    let holder = served_by(path);
    match &holder {
        Ok(Some(holder)) => report.ok("served", format!("by {holder}, right now")),
        Ok(None) => report.ok("served", "by no process right now"),
        Err(error) => report.wrong(
            "served",
            format!("the process is unknown: {}", reason(error)),
        ),
    }
    holder.is_ok_and(|holder| holder.is_some())
}

fn say_what_is_in_it(
    path: &Path,
    set: SchemaSet,
    limit: Option<u64>,
    found: &Inspection,
    report: &mut Report,
) {
    let size = disk::size(found.file_bytes);
    let detail = format!(
        "{} has the {} tables, {size}, SQLite {}",
        path.display(),
        set.name(),
        rusqlite::version()
    );
    match limit {
        Some(limit) if found.file_bytes >= limit => report.wrong(
            "database",
            format!("{detail}: it has grown to DB_MAX_MIB, so new timers are refused"),
        ),
        _ => report.ok("database", detail),
    }
    let all = found.status.migrations.len();
    report.ok(
        "tables",
        match found.status.pending() {
            0 => format!("up to date: {all} of {all} migrations"),
            pending => {
                format!("{pending} of {all} migrations are pending: they are applied at the start")
            }
        },
    );
    report.ok(
        "journal",
        if found.has_write_ahead_log {
            "a write-ahead log"
        } else {
            "not yet a write-ahead log: it gets one at the start"
        },
    );
    match &found.wholeness {
        Wholeness::Whole => report.ok("damage", "none was found"),
        Wholeness::Damaged(damage) => report.wrong(
            "damage",
            format!(
                "restore it from a backup: {}",
                cut_to(damage, LONGEST_DAMAGE)
            ),
        ),
        Wholeness::NotChecked => report.ok(
            "damage",
            format!(
                "not checked: the file has more than {}",
                disk::size(READ_AT_MOST)
            ),
        ),
    }
}

/// Adds a finding; returns whether it is ok.
fn say(what: &'static str, found: Result<String, String>, report: &mut Report) -> bool {
    let is_ok = found.is_ok();
    match found {
        Ok(detail) => report.ok(what, detail),
        Err(problem) => report.wrong(what, problem),
    }
    is_ok
}
