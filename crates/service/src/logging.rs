//! Logs on standard error; standard output belongs to the firings.
//!
//! The time of a line is that of our own clock, in milliseconds, as in everything else we write.

use std::fmt;
use std::io::IsTerminal;

use punctual_adapters_system::SystemClock;
use punctual_domain::Timestamp;
use punctual_ports::ClockPort;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::settings::LogFormat;

/// Starts logging: text on a terminal, JSON otherwise, unless a format is configured.
pub(crate) fn start(format: Option<LogFormat>, level: LevelFilter, clock: SystemClock) {
    let on_terminal = std::io::stderr().is_terminal();
    let format = format_for(format, on_terminal);
    let has_colours = on_terminal && std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty());
    let without_date = on_terminal && format == LogFormat::Text;
    // A closed standard error must not end the process, so it is not reported.
    let lines = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_timer(LineTime {
            clock,
            without_date,
        })
        .log_internal_errors(false);
    let ours = targets(level);
    match format {
        LogFormat::Text => {
            let lines = lines.with_ansi(has_colours).with_target(false);
            lines.finish().with(ours).init();
        }
        LogFormat::Json => lines.json().flatten_event(true).finish().with(ours).init(),
    }
}

/// The log lines of the broker's driver repeat ours, so they are enabled for debugging only.
fn targets(level: LevelFilter) -> Targets {
    let driver = if level >= LevelFilter::DEBUG {
        level
    } else {
        LevelFilter::OFF
    };
    Targets::new()
        .with_default(level)
        .with_target("async_nats", driver)
}

/// The configured format, or else the one for a terminal or a program.
pub(crate) fn format_for(configured: Option<LogFormat>, on_terminal: bool) -> LogFormat {
    let usual = if on_terminal {
        LogFormat::Text
    } else {
        LogFormat::Json
    };
    configured.unwrap_or(usual)
}

/// The time that a line begins with.
struct LineTime {
    clock: SystemClock,
    /// A terminal needs no date.
    without_date: bool,
}

impl FormatTime for LineTime {
    fn format_time(&self, line: &mut Writer<'_>) -> fmt::Result {
        line.write_str(&shown(self.clock.now(), self.without_date))
    }
}

fn shown(now: Timestamp, without_date: bool) -> String {
    let text = now.to_string();
    match text.split_once('T') {
        Some((_, time)) if without_date => time.to_owned(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn the_brokers_driver_logs_at_debug_level_only() {
        let is_logged = |level, target| targets(level).would_enable(target, &Level::ERROR);
        assert!(is_logged(LevelFilter::INFO, "punctual_adapters_nats::link"));
        assert!(!is_logged(LevelFilter::INFO, "async_nats::connector"));
        assert!(is_logged(LevelFilter::DEBUG, "async_nats::connector"));
    }

    #[test]
    fn a_terminal_needs_no_date() {
        let now = Timestamp::from_millis(1_000).unwrap();
        assert_eq!(shown(now, false), "1970-01-01T00:00:01.000Z");
        assert_eq!(shown(now, true), "00:00:01.000Z");
    }
}
