//! The settings, each defined once: its name, parser, default and meaning.
//!
//! A setting has one name. In capitals it is the variable, in small letters the key of the settings
//! file, and where it has a flag, that is named here too. Help, `check`, the settings file and the
//! refusals are made from this table, so that a new setting is one line.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use punctual::http::AllowedNets;
use punctual_adapters_nats::{NatsSettings, Prefix};
use punctual_adapters_postgres::PostgresUrl;
use punctual_adapters_sqlite::Synchronous;
use tracing::level_filters::LevelFilter;

use super::LogFormat;
use super::broker::{self, Tls};
use super::postgres;
use crate::display::cut;
use crate::parse;

/// A setting whose value is a `T`.
pub(crate) struct Setting<T: 'static> {
    pub(crate) about: &'static About,
    pub(crate) read: fn(&OsStr) -> Result<T, String>,
}

/// A setting, without the type of its value.
#[derive(Debug)]
pub(crate) struct About {
    /// Its name as a variable, in capitals.
    pub(crate) variable: &'static str,
    pub(crate) flag: Option<&'static Flag>,
    pub(crate) shape: Shape,
    /// The default: a value, or words for one.
    pub(crate) default: &'static str,
    pub(crate) meaning: &'static str,
    /// Says what would be right, if a value is not.
    pub(crate) check: fn(&OsStr) -> Result<(), String>,
    /// Formats a value without its secrets; `None` if all of it is secret.
    pub(crate) display: fn(&OsStr) -> Option<String>,
}

#[derive(Debug)]
pub(crate) struct Flag {
    pub(crate) name: &'static str,
    pub(crate) value_name: &'static str,
}

/// How a value is written in the settings file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Text,
    Number,
    /// Texts in brackets, or one text with commas.
    List,
}

impl About {
    /// Its name in the settings file.
    pub(crate) fn key(&self) -> String {
        self.variable.to_ascii_lowercase()
    }
}

/// A setting is not secret unless it says otherwise.
macro_rules! display {
    () => {
        |raw| Some(cut(&crate::display::os(raw)))
    };
    ($display:expr) => {
        $display
    };
}

macro_rules! settings {
    ($($name:ident: $type:ty, $shape:ident, $read:expr, [$($flag:literal $value_name:literal)?], $default:literal, $meaning:literal $(, display $display:expr)?;)*) => {
        $(pub(crate) static $name: Setting<$type> = Setting {
            about: &About {
                variable: stringify!($name),
                flag: {
                    const FLAG: &[Flag] = &[$(Flag { name: $flag, value_name: $value_name })?];
                    FLAG.first()
                },
                shape: Shape::$shape,
                default: $default,
                meaning: $meaning,
                check: |raw| ($name.read)(raw).map(drop),
                display: display!($($display)?),
            },
            read: $read,
        };)*

        /// All of them.
        pub(crate) static ALL: &[&About] = &[$($name.about),*];
    };
}

#[rustfmt::skip]
settings! {
    TIMER_DB_PATH: PathBuf, Text, parse::path, ["db" "PATH"], "none", "a database file for timers alone; where no service calls run, and for the commands of timers, it is ./data/timer.db unless it is set";
    DB_PATH: PathBuf, Text, parse::path, ["calls-db" "PATH"], "./data/event_service.db", "the database file of service calls, and of their timers unless TIMER_DB_PATH is set";
    EXECUTION_DB_PATH: PathBuf, Text, parse::path, ["execution-db" "PATH"], "./data/execution.db", "the database file of attempts, where execution runs without orchestration";
    DB_SYNCHRONOUS: Synchronous, Text, |raw| parse::text(raw, parse::synchronous), ["synchronous" "FULL|NORMAL"], "FULL", "what an acknowledged timer survives: FULL a power failure, NORMAL any crash of the process";
    DB_MAX_MIB: u64, Number, |raw| parse::text(raw, |it| Ok(parse::number(it, "a size in MiB", 1..=1_000_000)? << 20)), [], "no limit", "how large each database file may become, with its log, in MiB; then new timers and calls are refused, and what was accepted goes on";
    DATABASE_URL: PostgresUrl, Text, |raw| parse::text(raw, postgres::address), ["database-url" "URL"], "none", "a PostgreSQL database for calls and timers, instead of files: postgres://user@host:5432/database", display postgres::redacted_address;
    DATABASE_SCHEMA: String, Text, |raw| parse::text(raw, postgres::schema), [], "none", "the schema of the tables in DATABASE_URL, without it the first of the search_path";
    DATABASE_PASSWORD_FILE: PathBuf, Text, parse::path, [], "none", "a file with the password of the user in DATABASE_URL";
    DATABASE_LISTEN_URL: PostgresUrl, Text, |raw| parse::text(raw, postgres::address), [], "none", "where notifications arrive if DATABASE_URL is the address of a pooler: that of the server itself", display postgres::redacted_address;
    DATABASE_TIMEOUT: Duration, Number, |raw| parse::text(raw, |it| parse::number(it, "milliseconds", 1_000..=600_000)).map(Duration::from_millis), [], "10000", "milliseconds that an operation on DATABASE_URL may take, 1000 to 600000";
    DATABASE_WAIT: Duration, Number, |raw| parse::text(raw, |it| parse::number(it, "milliseconds", 0..=3_600_000)).map(Duration::from_millis), [], "30000", "milliseconds that the start waits for a DATABASE_URL that does not answer, 0 to 3600000";
    TIMER_POLLING_INTERVAL: Duration, Number, |raw| parse::text(raw, |it| parse::number(it, "milliseconds", 10..=86_400_000)).map(Duration::from_millis), ["polling-interval" "MS"], "5000", "maximum milliseconds between two polls for due timers, 10 to 86400000";
    TIMER_BATCH_SIZE: usize, Number, |raw| parse::text(raw, |it| parse::number(it, "a number", 1..=10_000)), ["batch-size" "N"], "100", "how many timers are claimed at once, 1 to 10000";
    RETENTION_DAYS: Duration, Number, |raw| parse::text(raw, |it| parse::number(it, "days", 1..=36_500)).map(|days| Duration::from_hours(24 * days)), ["retention-days" "DAYS"], "30", "how many days fired timers are kept, 1 to 36500";
    TIMER_BROKER_URL: NatsSettings, Text, |raw| parse::text(raw, broker::address), ["broker" "URL"], "none", "the NATS broker that commands come from and events go to: nats://host:4222", display broker::redacted_address;
    TIMER_BROKER_PREFIX: Prefix, Text, |raw| parse::text(raw, broker::prefix), [], "none", "what the names of streams and subjects begin with, for several installations on one broker";
    TIMER_BROKER_USER: String, Text, |raw| parse::text(raw, broker::user), [], "none", "who we are to the broker, together with TIMER_BROKER_PASSWORD_FILE";
    TIMER_BROKER_PASSWORD_FILE: PathBuf, Text, parse::path, [], "none", "a file with the password of TIMER_BROKER_USER";
    TIMER_BROKER_TOKEN_FILE: PathBuf, Text, parse::path, [], "none", "a file with the broker's token";
    TIMER_BROKER_NKEY_FILE: PathBuf, Text, parse::path, [], "none", "a file with the seed of our nkey";
    TIMER_BROKER_CREDS_FILE: PathBuf, Text, parse::path, [], "none", "a credentials file, as `nsc` writes it";
    TIMER_BROKER_CA_FILE: PathBuf, Text, parse::path, [], "none", "certificates to trust besides the system's, in PEM";
    TIMER_BROKER_CERT_FILE: PathBuf, Text, parse::path, [], "none", "our own certificate, in PEM, together with TIMER_BROKER_KEY_FILE";
    TIMER_BROKER_KEY_FILE: PathBuf, Text, parse::path, [], "none", "the key of our own certificate, in PEM";
    TIMER_BROKER_TLS: Tls, Text, |raw| parse::text(raw, broker::tls), [], "auto", "whether the connection has to be secure: require, or auto, which leaves it to the address and the broker";
    API_LISTEN: SocketAddr, Text, |raw| parse::text(raw, parse::listen), ["listen" "ADDRESS"], "127.0.0.1:8080", "where the HTTP API listens; beyond this machine only with API_TOKENS_FILE";
    API_TOKENS_FILE: PathBuf, Text, parse::path, ["tokens" "FILE"], "none", "a file with who may use the API: a line `tenant:sha256hex` for each token, with * for all tenants";
    EXECUTION_TIMEOUT: Duration, Number, |raw| parse::text(raw, |it| parse::number(it, "milliseconds", 1..=3_600_000)).map(Duration::from_millis), [], "30000", "milliseconds that the request of a call may take, from its beginning to the end of the answer";
    EXECUTION_ALLOW_NETS: AllowedNets, List, |raw| parse::text(raw, parse::allowed_nets), ["allow-nets" "NETS"], "none", "networks that calls may reach besides the public internet, like 127.0.0.0/8,10.1.0.0/16";
    MODULES: parse::Modules, List, |raw| parse::text(raw, parse::modules), ["modules" "NAMES"], "api,orchestration,timer,execution", "what to run: all of these for service calls, api,timer for timers over HTTP, or timer alone; with a broker any of them, and the others elsewhere";
    LOG_FORMAT: LogFormat, Text, |raw| parse::text(raw, parse::log_format), ["log-format" "FORMAT"], "text on a terminal, else json", "how to log on standard error: text or json";
    LOG_LEVEL: LevelFilter, Text, |raw| parse::text(raw, parse::log_level), ["log-level" "LEVEL"], "info", "how much to log: off, error, warn, info, debug or trace";
}

/// Default database of timers that are served alone.
pub(crate) const TIMERS_ALONE: &str = "./data/timer.db";

/// Lines of the help that are longer would be broken without regard to the columns.
const HELP_WIDTH: usize = 80;

/// What the help says of settings, besides the flags: those that have none, and the file.
pub(crate) fn help() -> String {
    let mut text = String::from("Settings without a flag:\n");
    for about in ALL.iter().filter(|about| about.flag.is_none()) {
        let mut line = format!("  {:12}", about.variable);
        if !line.ends_with(' ') {
            // A long name has a line of its own.
            text.push_str(&line);
            line = format!("\n{:14}", "");
        }
        let words = format!("{} [default: {}]", about.meaning, about.default);
        for word in words.split_inclusive(' ') {
            if line.len() + word.trim_end().len() > HELP_WIDTH {
                text.push_str(line.trim_end());
                text.push('\n');
                line = format!("{:14}", "");
            }
            line.push_str(word);
        }
        text.push_str(&line);
        text.push('\n');
    }
    text.push_str(
        "\nEvery setting is also a key of punctual.toml, the name of its variable in small\n\
         letters: timer_batch_size = 100. A flag beats the variable, which beats the\n\
         file, which beats the default. `timer-service check` shows the effective values.\n",
    );
    text
}
