//! Logs on standard error; standard output belongs to the firings.

use std::io::IsTerminal;

use tracing::level_filters::LevelFilter;

use crate::settings::LogFormat;

/// Starts logging, in the format that suits whoever reads: text for a person, JSON for a program.
pub(crate) fn start(format: Option<LogFormat>, level: LevelFilter) {
    let on_terminal = std::io::stderr().is_terminal();
    // A standard error that is gone must not end the process, so nothing is said about it.
    let lines = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .log_internal_errors(false);
    match format_for(format, on_terminal) {
        LogFormat::Text => lines.with_ansi(on_terminal).with_target(false).init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
}

/// The format that was asked for, or else the one for a terminal or a program.
pub(crate) const fn format_for(asked: Option<LogFormat>, on_terminal: bool) -> LogFormat {
    match (asked, on_terminal) {
        (Some(format), _) => format,
        (None, true) => LogFormat::Text,
        (None, false) => LogFormat::Json,
    }
}
