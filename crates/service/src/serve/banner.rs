//! What is said at the start: what runs, on which data, and what to try.

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::path::Path;

use punctual_adapters_sqlite::Synchronous;

use crate::logging;
use crate::settings::table::TIMER_DB_PATH;
use crate::settings::{LogFormat, ServeSettings};

/// Tells whoever started us. Where programs read the log, it is a line of the log.
pub(super) fn show(settings: &ServeSettings) {
    let on_terminal = std::io::stderr().is_terminal();
    if logging::format_for(settings.log_format, on_terminal) == LogFormat::Text {
        let program = std::env::args_os().next();
        let program = program.as_deref().and_then(OsStr::to_str);
        crate::say(&text(settings, program.unwrap_or("timer-service")));
        return;
    }
    let database = &settings.database;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        process = std::process::id(),
        database = %absolute(&database.path),
        synchronous = synchronous(database.synchronous).0,
        settings_file = settings.file.as_deref().map(absolute),
        "serving timers: each firing is one line of JSON on standard output"
    );
}

fn text(settings: &ServeSettings, program: &str) -> String {
    let database = &settings.database;
    let (setting, survives) = synchronous(database.synchronous);
    let elsewhere = if database.path == Path::new(TIMER_DB_PATH.about.default) {
        String::new()
    } else {
        format!(" --db {}", for_a_shell(&absolute(&database.path)))
    };
    let file = settings.file.as_deref().map_or_else(String::new, |file| {
        format!("from:  {} (settings)\n", absolute(file))
    });
    format!(
        "timer-service {} serves timers (process {})\n\
         on:    SQLite, synchronous {setting}: what is acknowledged survives {survives}\n\
         data:  {}\n\
         {file}\
         out:   each firing is one line of JSON on standard output\n\
         try:   {program} schedule --tenant demo --in 5s{elsewhere}\n\
         stop:  Ctrl-C finishes what is in flight",
        env!("CARGO_PKG_VERSION"),
        std::process::id(),
        absolute(&database.path),
    )
}

fn absolute(path: &Path) -> String {
    let absolute = std::path::absolute(path);
    absolute.as_deref().unwrap_or(path).display().to_string()
}

/// A path as it can be pasted into a command.
fn for_a_shell(path: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+,:@%".contains(c);
    if path.chars().all(is_plain) {
        path.to_owned()
    } else {
        format!("'{}'", path.replace('\'', "'\\''"))
    }
}

/// The setting's name, and what an acknowledged timer survives with it.
const fn synchronous(setting: Synchronous) -> (&'static str, &'static str) {
    match setting {
        Synchronous::Full => ("FULL", "power failures"),
        Synchronous::Normal => ("NORMAL", "crashes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use crate::settings::Environment;
    use clap::Parser;

    fn shown(line: &str) -> String {
        let cli = Cli::try_parse_from(line.split(' ')).unwrap();
        let settings = Environment(&|_| None).serve(&cli.serve.flags).unwrap();
        text(&settings, "ts")
    }

    #[test]
    fn the_command_to_try_finds_the_same_database() {
        assert!(shown("ts").contains("try:   ts schedule --tenant demo --in 5s\n"));
        assert!(shown("ts --db /x/t.db").contains("--in 5s --db /x/t.db\n"));
        let elsewhere = std::path::absolute("t.db").unwrap();
        let elsewhere = for_a_shell(&elsewhere.display().to_string());
        assert!(shown("ts --db t.db").contains(&format!(" --db {elsewhere}\n")));
        assert_eq!(for_a_shell("/my files/it's.db"), "'/my files/it'\\''s.db'");
    }
}
