//! Reading values of flags, variables and the settings file; each refusal says what would be right.
//!
//! The same function reads a setting wherever it comes from, so that all accept the same.

use std::ffi::OsStr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use punctual_adapters_sqlite::Synchronous;
use punctual_domain::{TimerData, TimerDataError, TimerState};
use tracing::level_filters::LevelFilter;

use crate::settings::LogFormat;
use crate::shown::cut;

/// Names of modules, all of which exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Modules;

/// The longest name of a timer: more is a document, and no name.
const LONGEST_NAME: usize = 512;

/// A path is whatever the system takes for one, and need not be text.
pub(crate) fn path(raw: &OsStr) -> Result<PathBuf, String> {
    if raw.is_empty() {
        Err("give the path of a file".to_owned())
    } else {
        Ok(PathBuf::from(raw))
    }
}

/// Everything else is text.
pub(crate) fn text<T>(
    raw: &OsStr,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, String> {
    raw.to_str()
        .ok_or_else(|| "give UTF-8".to_owned())
        .and_then(parse)
}

pub(crate) fn modules(text: &str) -> Result<Modules, String> {
    match text.split(',').map(str::trim).find(|name| *name != "timer") {
        None => Ok(Modules),
        Some(other) => Err(format!(
            "there is no module \"{}\" yet: only \"timer\" exists",
            cut(other)
        )),
    }
}

/// A whole number and a unit, like `90s`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    const ADVICE: &str = "give a whole number and a unit: 500ms, 90s, 5m, 2h or 3d";
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| ADVICE.to_owned())?;
    let millis_each = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(ADVICE.to_owned()),
    };
    let millis = number.checked_mul(millis_each);
    millis
        .map(Duration::from_millis)
        .ok_or_else(|| "it is too long: no timer is due after the year 9998".to_owned())
}

pub(crate) fn synchronous(text: &str) -> Result<Synchronous, String> {
    match text.to_ascii_uppercase().as_str() {
        "FULL" => Ok(Synchronous::Full),
        "NORMAL" => Ok(Synchronous::Normal),
        _ => Err("give FULL or NORMAL".to_owned()),
    }
}

pub(crate) fn polling_interval(text: &str) -> Result<Duration, String> {
    let advice = "give milliseconds from 10 to 86400000";
    number(text, 10..=86_400_000, advice).map(Duration::from_millis)
}

pub(crate) fn batch_size(text: &str) -> Result<usize, String> {
    let size = number(text, 1..=10_000, "give a number from 1 to 10000")?;
    Ok(usize::try_from(size).unwrap_or(usize::MAX))
}

/// A size in MiB, in bytes.
pub(crate) fn mebibytes(text: &str) -> Result<u64, String> {
    let advice = "give a size in MiB from 1 to 1000000";
    Ok(number(text, 1..=1_000_000, advice)? * 1024 * 1024)
}

pub(crate) fn retention(text: &str) -> Result<Duration, String> {
    let days = number(text, 1..=36_500, "give days from 1 to 36500")?;
    Ok(Duration::from_hours(24 * days))
}

pub(crate) fn limit(text: &str) -> Result<usize, String> {
    let limit = number(text, 1..=1_000, "give a number from 1 to 1000")?;
    Ok(usize::try_from(limit).unwrap_or(usize::MAX))
}

/// The number of a dead letter.
pub(crate) fn sequence(text: &str) -> Result<u64, String> {
    number(
        text,
        0..=u64::MAX,
        "give the sequence of a dead letter, a whole number",
    )
}

pub(crate) fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err("give text or json".to_owned()),
    }
}

pub(crate) fn log_level(text: &str) -> Result<LevelFilter, String> {
    match text.to_ascii_lowercase().as_str() {
        "off" => Ok(LevelFilter::OFF),
        "error" => Ok(LevelFilter::ERROR),
        "warn" => Ok(LevelFilter::WARN),
        "info" => Ok(LevelFilter::INFO),
        "debug" => Ok(LevelFilter::DEBUG),
        "trace" => Ok(LevelFilter::TRACE),
        _ => Err("give off, error, warn, info, debug or trace".to_owned()),
    }
}

pub(crate) fn state(text: &str) -> Result<TimerState, String> {
    match text.to_ascii_lowercase().as_str() {
        "scheduled" => Ok(TimerState::Scheduled),
        "reached" => Ok(TimerState::Reached),
        _ => Err("give scheduled or reached".to_owned()),
    }
}

/// A caller's own name for a timer. Any text will do, since only its hash is stored.
pub(crate) fn name(text: &str) -> Result<String, String> {
    match text.len() {
        1..=LONGEST_NAME => Ok(text.to_owned()),
        length => Err(format!(
            "a name has 1 to {LONGEST_NAME} bytes, not {length}"
        )),
    }
}

/// JSON that comes from a command line, where it needs quotes of its own.
pub(crate) fn data(text: &str) -> Result<TimerData, String> {
    TimerData::from_json(text).map_err(|error| match error {
        TimerDataError::NotJson { .. } => {
            format!("{error}: write it in single quotes, like '{{\"order\":7}}' or '\"some text\"'")
        }
        _ => error.to_string(),
    })
}

fn number(text: &str, range: RangeInclusive<u64>, advice: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| advice.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_number_and_a_unit() {
        for (text, millis) in [
            ("500ms", 500),
            ("90s", 90_000),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("3d", 259_200_000),
            ("0s", 0),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in [
            "",
            "5",
            "s",
            "-5s",
            "+5s",
            "5 s",
            "1.5h",
            "5S",
            "5w",
            "٥s",
            "99999999999999999999s",
            "99999999999999999d",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_are_refused_outside_their_range() {
        assert_eq!(polling_interval("5000"), Ok(Duration::from_secs(5)));
        assert_eq!(batch_size("10000"), Ok(10_000));
        assert_eq!(retention("1"), Ok(Duration::from_hours(24)));
        for refused in [
            polling_interval("9").is_err(),
            polling_interval("5s").is_err(),
            batch_size("0").is_err(),
            batch_size("10001").is_err(),
            retention("0").is_err(),
            retention("-1").is_err(),
            limit("1001").is_err(),
        ] {
            assert!(refused);
        }
    }

    #[test]
    fn an_unknown_module_is_named_with_those_that_exist() {
        assert_eq!(modules("timer"), Ok(Modules));
        let sentence = modules("timer,api").unwrap_err();
        assert!(sentence.contains("\"api\"") && sentence.contains("\"timer\""));
        assert!(modules("").is_err());
    }

    #[test]
    fn words_are_taken_in_either_case() {
        assert_eq!(synchronous("normal"), Ok(Synchronous::Normal));
        assert_eq!(log_level("WARN"), Ok(LevelFilter::WARN));
        assert_eq!(state("Reached"), Ok(TimerState::Reached));
        assert!(synchronous("OFF").is_err() && log_format("xml").is_err());
    }

    #[test]
    fn a_name_is_neither_empty_nor_endless() {
        assert!(name("order 123 · ä").is_ok());
        assert!(name("").is_err() && name(&"x".repeat(513)).is_err());
    }
}
