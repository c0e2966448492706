//! Reading values of flags, variables and the settings file; each refusal says what would be right.
//!
//! The same function reads a setting wherever it comes from, so that all accept the same.

use std::ffi::OsStr;
use std::fmt::{self, Display};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use punctual::http::{AllowedNets, NetsError};
use punctual_adapters_sqlite::Synchronous;
use punctual_domain::service_call::TargetUrl;
use punctual_domain::{TimerData, TimerDataError, TimerState};
use tracing::level_filters::LevelFilter;

use crate::display::cut;
use crate::settings::LogFormat;

/// Which modules to run. Whether they make sense together depends on the other settings, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each module runs, or it does not"
)]
pub(crate) struct Modules {
    /// The HTTP API.
    pub(crate) api: bool,
    pub(crate) orchestration: bool,
    pub(crate) timer: bool,
    pub(crate) execution: bool,
}

impl Modules {
    pub(crate) const ALL: Self = Self {
        api: true,
        orchestration: true,
        timer: true,
        execution: true,
    };

    /// Whether no service calls run.
    pub(crate) const fn are_timers_alone(self) -> bool {
        self.timer && !self.orchestration && !self.execution
    }

    /// Whether calls are only submitted and read.
    pub(crate) const fn are_api_alone(self) -> bool {
        !self.orchestration && !self.timer && !self.execution
    }

    /// Whether attempts are all that is kept.
    pub(crate) const fn are_execution_alone(self) -> bool {
        self.execution && !self.orchestration && !self.timer
    }

    /// Whether they communicate with modules in other processes.
    pub(crate) const fn need_a_broker(self) -> bool {
        let all = self.orchestration && self.timer && self.execution;
        !all && !self.are_timers_alone() && !self.are_api_alone()
    }

    /// Whether calls can be submitted to them over HTTP.
    pub(crate) const fn have_calls_api(self) -> bool {
        self.api && (self.orchestration || self.are_api_alone())
    }
}

/// Their names, as a setting has them.
impl Display for Modules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = [
            (self.api, "api"),
            (self.orchestration, "orchestration"),
            (self.timer, "timer"),
            (self.execution, "execution"),
        ];
        let names = each.into_iter().filter(|(runs, _)| *runs);
        let names: Vec<&str> = names.map(|(_, name)| name).collect();
        f.write_str(&names.join(","))
    }
}

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
    let names: Vec<&str> = text.split(',').map(str::trim).collect();
    let exists = |name: &&str| ["api", "orchestration", "timer", "execution"].contains(name);
    if let Some(other) = names.iter().find(|name| !exists(name)) {
        return Err(format!(
            "there is no module \"{}\": api, orchestration, timer and execution exist",
            cut(other)
        ));
    }
    Ok(Modules {
        api: names.contains(&"api"),
        orchestration: names.contains(&"orchestration"),
        timer: names.contains(&"timer"),
        execution: names.contains(&"execution"),
    })
}

pub(crate) fn listen(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| "give an address and a port, like 127.0.0.1:8080".to_owned())
}

/// A header as people write it.
pub(crate) fn header(text: &str) -> Result<(String, String), String> {
    let split = text
        .split_once(':')
        .map(|(name, value)| (name.trim(), value.trim()));
    match split {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("give a name, a colon and a value, like 'Accept: text/plain'".to_owned()),
    }
}

/// The address of a service's API.
pub(crate) fn api(text: &str) -> Result<String, String> {
    let url: Result<TargetUrl, _> = text.parse();
    match url {
        Ok(url) if !url.as_str().contains('?') => Ok(text.to_owned()),
        Ok(_) => Err("leave out what begins with a question mark".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

pub(crate) fn allowed_nets(text: &str) -> Result<AllowedNets, String> {
    text.parse().map_err(|error: NetsError| error.to_string())
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

/// A whole number within a range; `what` it is of.
pub(crate) fn number<T: FromStr + PartialOrd + Display>(
    text: &str,
    what: &str,
    range: RangeInclusive<T>,
) -> Result<T, String> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("give {what} from {} to {}", range.start(), range.end()))
}

pub(crate) fn limit(text: &str) -> Result<usize, String> {
    number(text, "a number", 1..=1_000)
}

/// The number of a dead letter.
pub(crate) fn sequence(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| "give the sequence of a dead letter, a whole number".to_owned())
}

pub(crate) fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err("give text or json".to_owned()),
    }
}

pub(crate) fn log_level(text: &str) -> Result<LevelFilter, String> {
    // The filter's own parser would take numbers too.
    let is_word = text.bytes().any(|byte| byte.is_ascii_alphabetic());
    let level = text.parse().ok().filter(|_| is_word);
    level.ok_or_else(|| "give off, error, warn, info, debug or trace".to_owned())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::table::{RETENTION_DAYS, TIMER_BATCH_SIZE, TIMER_POLLING_INTERVAL};

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
        let read = |text| (TIMER_POLLING_INTERVAL.read)(OsStr::new(text));
        assert_eq!(read("5000"), Ok(Duration::from_secs(5)));
        let read = |text| (TIMER_BATCH_SIZE.read)(OsStr::new(text));
        assert_eq!(read("10000"), Ok(10_000));
        let read = |text| (RETENTION_DAYS.read)(OsStr::new(text));
        assert_eq!(read("1"), Ok(Duration::from_hours(24)));
        for (setting, refused) in [
            (TIMER_POLLING_INTERVAL.about, ["9", "5s"]),
            (TIMER_BATCH_SIZE.about, ["0", "10001"]),
            (RETENTION_DAYS.about, ["0", "-1"]),
        ] {
            for refused in refused {
                assert!((setting.check)(OsStr::new(refused)).is_err(), "{refused}");
            }
        }
        assert!(limit("1001").is_err());
    }

    #[test]
    fn modules_come_in_any_order_and_one_that_does_not_exist_is_refused_with_those_that_do() {
        let only = |text| {
            let it = modules(text).unwrap();
            [it.api, it.orchestration, it.timer, it.execution]
        };
        assert_eq!(only("timer"), [false, false, true, false]);
        assert_eq!(only("timer, api"), [true, false, true, false]);
        assert_eq!(only("execution,execution"), [false, false, false, true]);
        let all = modules("execution,timer,orchestration,api");
        assert_eq!(all, Ok(Modules::ALL));
        let sentence = modules("timer,occasions").unwrap_err();
        assert!(sentence.contains("\"occasions\"") && sentence.contains("execution exist"));
        assert!(modules("").is_err());
    }

    #[test]
    fn modules_apart_communicate_through_a_broker() {
        for (text, needs_a_broker) in [
            ("api,orchestration,timer,execution", false),
            ("orchestration,timer,execution", false),
            ("timer", false),
            ("api,timer", false),
            ("api", false),
            ("api,orchestration", true),
            ("execution", true),
            ("timer,execution", true),
            ("api,orchestration,timer", true),
        ] {
            let modules = modules(text).unwrap();
            assert_eq!(modules.need_a_broker(), needs_a_broker, "{text}");
        }
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
