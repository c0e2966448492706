//! Settings: a flag beats the environment, which beats the settings file, which beats the default.
//!
//! The environment comes as a function, so that nothing here reads the process's own, and a test
//! can give another.

pub(crate) mod broker;
mod file;
mod flags;
mod places;
mod postgres;
pub(crate) mod table;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use punctual::http::AllowedNets;
use punctual_adapters_nats::NatsSettings;
use punctual_adapters_postgres::{PostgresSettings, Role as PostgresRole};
use punctual_adapters_sqlite::{Role, SchemaSet, SqliteSettings};
use punctual_workflows::calls::CallSettings;
use punctual_workflows::{RetentionSettings, WorkerSettings};
use tracing::level_filters::LevelFilter;

use crate::failure::Failure;
use crate::parse::{self, Modules};
pub(crate) use file::SettingsFile;
pub(crate) use flags::{BrokerFlags, DatabaseFlags, Flags, ServeFlags, TraceFlags};
use flags::{CONFIG_DEFAULT, CONFIG_VARIABLE};
pub(crate) use places::ATTEMPTS_ALONE;
use table::{About, Setting};

/// Reads an environment variable.
pub(crate) type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Format of the log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// Where the HTTP API listens, and to whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiSettings {
    pub(crate) listen: SocketAddr,
    pub(crate) tokens_file: Option<PathBuf>,
}

/// How service calls are served.
#[derive(Debug, Clone)]
pub(crate) struct CallsSettings {
    /// Where they are, or their attempts, if timers are in another database of this process.
    pub(crate) database: Option<SqliteSettings>,
    pub(crate) calls: CallSettings,
    pub(crate) allowed: AllowedNets,
}

/// Where timers are kept.
#[derive(Debug, Clone)]
pub(crate) enum TimerDatabase {
    Sqlite(SqliteSettings),
    Postgres(Box<PostgresSettings>),
}

impl TimerDatabase {
    /// The file, if it is one.
    pub(crate) const fn sqlite(&self) -> Option<&SqliteSettings> {
        match self {
            Self::Sqlite(settings) => Some(settings),
            Self::Postgres(_) => None,
        }
    }
}

/// Its path or address, without secrets.
impl fmt::Display for TimerDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(settings) => f.write_str(&crate::display::path(&settings.path)),
            Self::Postgres(settings) => settings.url.fmt(f),
        }
    }
}

/// Settings of `serve`.
#[derive(Debug, Clone)]
pub(crate) struct ServeSettings {
    pub(crate) modules: Modules,
    /// Where the timers are, or whatever these modules keep instead.
    pub(crate) database: TimerDatabase,
    /// `None`: no service calls, only timers.
    pub(crate) calls: Option<CallsSettings>,
    pub(crate) api: Option<ApiSettings>,
    /// `None`: firings are lines on standard output, and there are no commands.
    pub(crate) broker: Option<NatsSettings>,
    pub(crate) worker: WorkerSettings,
    pub(crate) retention: RetentionSettings,
    /// `None`: whatever suits standard error.
    pub(crate) log_format: Option<LogFormat>,
    pub(crate) log_level: LevelFilter,
    /// The settings file that was read.
    pub(crate) file: Option<PathBuf>,
}

impl ServeSettings {
    /// Whether firings become lines on standard output: without a broker, those of timers that belong
    /// to no call. Where timers have no file of their own, all of them belong to one.
    pub(crate) fn writes_lines(&self) -> bool {
        let calls = self.calls.as_ref();
        calls.is_none_or(|calls| calls.database.is_some()) && self.broker.is_none()
    }
}

/// The variables. An empty one counts as absent: that is how a compose file unsets one.
#[derive(Clone, Copy)]
pub(crate) struct Environment<'a>(pub(crate) Lookup<'a>);

impl<'a> Environment<'a> {
    fn raw(&self, name: &str) -> Option<OsString> {
        (self.0)(name).filter(|value| !value.is_empty())
    }

    /// Everything that settings may come from, with whatever is wrong with the settings file.
    pub(crate) fn sources(self, flags: &'a Flags) -> Sources<'a> {
        let named = |path: &Path, by| Some(SettingsFile::named(path, by));
        let file = match (flags.config(), self.raw(CONFIG_VARIABLE)) {
            (Some(path), _) => named(path, "--config"),
            (None, Some(path)) => named(Path::new(&path), CONFIG_VARIABLE),
            (None, None) => SettingsFile::if_present(Path::new(CONFIG_DEFAULT)),
        };
        Sources {
            flags,
            environment: self,
            file,
        }
    }

    /// The same, if nothing is wrong with the settings file.
    pub(crate) fn good_sources(self, flags: &'a Flags) -> Result<Sources<'a>, Failure> {
        let sources = self.sources(flags);
        let mut file_problems = sources.file.iter().flat_map(SettingsFile::problems);
        if let Some(problem) = file_problems.next() {
            return Err(Failure::refused(&problem.sentence));
        }
        drop(file_problems);
        Ok(sources)
    }

    /// The databases of timers that a command may open while they are being served. If no setting
    /// names one, both are returned, and the caller takes the one that is served or exists.
    pub(crate) fn client(self, flags: &'a TraceFlags) -> Result<ClientDatabases, Failure> {
        let sources = self.good_sources(&flags.0)?;
        if let Some(database) = sources.postgres_client()? {
            return Ok(ClientDatabases::Postgres(Box::new(database)));
        }
        let own = sources.as_client(sources.timer_database()?, SchemaSet::TimersOnly)?;
        let shared = sources.as_client(sources.calls_database()?, SchemaSet::Shared)?;
        if sources.modules()?.are_execution_alone() && flags.named() == (false, false) {
            let attempts = sources.execution_database()?;
            let attempts = sources.as_client(attempts, SchemaSet::ExecutionOnly)?;
            return Ok(ClientDatabases::One(attempts));
        }
        let is_meant = sources.timers_alone()? || sources.get(&table::TIMER_DB_PATH)?.is_some();
        Ok(match flags.named() {
            (true, true) => {
                return Err(Failure::usage(
                    "--db and --calls-db name two databases: give one of them",
                ));
            }
            (false, true) => ClientDatabases::One(shared),
            (true, false) => ClientDatabases::One(own),
            (false, false) if is_meant => ClientDatabases::One(own),
            (false, false) => ClientDatabases::Either { own, shared },
        })
    }

    /// The databases that would be served, as a client opens them, those of calls first.
    pub(crate) fn to_read(self, flags: &'a TraceFlags) -> Result<Vec<TimerDatabase>, Failure> {
        let sources = self.good_sources(&flags.0)?;
        if let Some(database) = sources.postgres_client()? {
            return Ok(vec![TimerDatabase::Postgres(Box::new(database))]);
        }
        if sources.modules()?.are_execution_alone() && flags.named() == (false, false) {
            return Err(Failure::refused(ATTEMPTS_ALONE));
        }
        let mut databases = sources.databases()?;
        if sources.get(&table::MODULES)?.is_none() && databases.len() == 1 {
            // Nothing says that timers are not served alone.
            databases.push((sources.timer_database()?, SchemaSet::TimersOnly));
        }
        let (timers, calls) = flags.named();
        let wanted = |set: SchemaSet| match set {
            SchemaSet::Shared => calls || !timers,
            SchemaSet::TimersOnly => timers || !calls,
            SchemaSet::ExecutionOnly => !timers && !calls,
        };
        let databases = databases.into_iter().filter(|(_, set)| wanted(*set));
        databases
            .map(|(path, set)| sources.as_client(path, set).map(TimerDatabase::Sqlite))
            .collect()
    }
}

/// Databases of timers that a command may use.
#[derive(Debug)]
pub(crate) enum ClientDatabases {
    Postgres(Box<PostgresSettings>),
    One(SqliteSettings),
    /// No setting names one: timers alone, or those of calls.
    Either {
        own: SqliteSettings,
        shared: SqliteSettings,
    },
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    Flag(&'static str),
    Variable,
    File { path: PathBuf, line: usize },
}

impl Source {
    /// A setting by the name under which it was given.
    fn name_of(&self, about: &About) -> String {
        match self {
            Self::Flag(flag) => format!("--{flag}"),
            Self::Variable => about.variable.to_owned(),
            Self::File { path, line } => {
                let (path, key) = (crate::display::path(path), about.key());
                format!("{path} line {line}: {key}")
            }
        }
    }
}

/// The flags, the environment and the settings file, together.
pub(crate) struct Sources<'a> {
    flags: &'a Flags,
    environment: Environment<'a>,
    file: Option<SettingsFile>,
}

impl Sources<'_> {
    /// The settings file, if there is one.
    pub(crate) const fn file(&self) -> Option<&SettingsFile> {
        self.file.as_ref()
    }

    /// The effective value, as it was given, and its source.
    pub(crate) fn given(&self, about: &About) -> Option<(OsString, Source)> {
        if let Some((flag, value)) = about.flag.zip(self.flags.get(about)) {
            return Some((value.to_os_string(), Source::Flag(flag.name)));
        }
        if let Some(value) = self.environment.raw(about.variable) {
            return Some((value, Source::Variable));
        }
        let file = self.file.as_ref()?;
        let (value, line) = file.get(about)?;
        let path = file.path().to_path_buf();
        Some((value.to_os_string(), Source::File { path, line }))
    }

    /// The value of a setting; `None` if it is not set.
    pub(crate) fn get<T>(&self, setting: &Setting<T>) -> Result<Option<T>, Failure> {
        let Some((raw, source)) = self.given(setting.about) else {
            return Ok(None);
        };
        (setting.read)(&raw)
            .map(Some)
            .map_err(|advice| Failure::refused(refusal(setting.about, &raw, &source, &advice)))
    }

    /// The database of service calls.
    pub(crate) fn calls_database(&self) -> Result<PathBuf, Failure> {
        let given = self.get(&table::DB_PATH)?;
        Ok(given.unwrap_or_else(|| PathBuf::from(table::DB_PATH.about.default)))
    }

    /// Whether a setting says that there are no service calls.
    fn timers_alone(&self) -> Result<bool, Failure> {
        Ok(self.modules()?.are_timers_alone())
    }

    /// The timers' own database.
    pub(crate) fn timer_database(&self) -> Result<PathBuf, Failure> {
        let given = self.get(&table::TIMER_DB_PATH)?;
        Ok(given.unwrap_or_else(|| PathBuf::from(table::TIMERS_ALONE)))
    }

    /// The PostgreSQL database of the timers, if one is set.
    pub(crate) fn postgres(&self) -> Result<Option<PostgresSettings>, Failure> {
        postgres::read(self)
    }

    /// The same, as a command opens it beside those who fire its timers: whoever types one sees at once why
    /// it fails.
    fn postgres_client(&self) -> Result<Option<PostgresSettings>, Failure> {
        let settings = self.postgres()?;
        Ok(settings.map(|settings| PostgresSettings {
            role: PostgresRole::Client,
            wait: Duration::ZERO,
            ..settings
        }))
    }

    /// How a command opens a database file that may be served by another process.
    fn as_client(&self, path: PathBuf, set: SchemaSet) -> Result<SqliteSettings, Failure> {
        Ok(SqliteSettings {
            set,
            role: Role::Client,
            ..self.opened_by_rule(SqliteSettings::timers(path))?
        })
    }

    fn opened_by_rule(&self, usual: SqliteSettings) -> Result<SqliteSettings, Failure> {
        Ok(SqliteSettings {
            synchronous: self.get(&table::DB_SYNCHRONOUS)?.unwrap_or_default(),
            max_file_bytes: self.get(&table::DB_MAX_MIB)?,
            ..usual
        })
    }

    /// How calls are made that are kept beside their timers.
    fn calls(&self, keep: Duration) -> Result<CallsSettings, Failure> {
        let usual = CallSettings::default();
        let calls = CallSettings {
            timeout: self
                .get(&table::EXECUTION_TIMEOUT)?
                .unwrap_or(usual.timeout),
            keep,
            ..usual
        };
        Ok(CallsSettings {
            database: None,
            calls,
            allowed: self.get(&table::EXECUTION_ALLOW_NETS)?.unwrap_or_default(),
        })
    }

    /// Where the API listens, if these modules have one.
    pub(crate) fn api(&self) -> Result<Option<ApiSettings>, Failure> {
        // A wrong value is refused even if the modules do not use it.
        let api = ApiSettings {
            listen: match self.get(&table::API_LISTEN)? {
                Some(listen) => listen,
                None => parse::listen(table::API_LISTEN.about.default).map_err(Failure::refused)?,
            },
            tokens_file: self.get(&table::API_TOKENS_FILE)?,
        };
        Ok(self.modules()?.api.then_some(api))
    }

    fn modules(&self) -> Result<Modules, Failure> {
        Ok(self.get(&table::MODULES)?.unwrap_or(Modules::ALL))
    }

    /// The broker, if one is set.
    pub(crate) fn broker(&self) -> Result<Option<NatsSettings>, Failure> {
        broker::read(self).map_err(|problems| {
            let senseless = || Failure::refused("the settings of the broker make no sense");
            problems.into_iter().next().unwrap_or_else(senseless)
        })
    }

    /// How to serve, or the first reason why not.
    pub(crate) fn serve(&self) -> Result<ServeSettings, Failure> {
        let retention = RetentionSettings::default();
        let modules = self.modules()?;
        let polling_interval = self.get(&table::TIMER_POLLING_INTERVAL)?;
        let batch_size = self.get(&table::TIMER_BATCH_SIZE)?;
        let broker = self.broker()?;
        let mut worker = match &broker {
            Some(_) => WorkerSettings::for_a_broker(),
            None if modules.are_timers_alone() => WorkerSettings::default(),
            None => WorkerSettings::for_calls(),
        };
        let batch_size = batch_size.unwrap_or(worker.batch_size);
        let keep = self.get(&table::RETENTION_DAYS)?.unwrap_or(retention.keep);
        self.check_modules(modules, broker.is_some())?;
        let (database, calls) = self.places(modules, keep)?;
        if database.sqlite().is_none() {
            worker = worker.for_several_instances();
        }
        let api = self.api()?;
        // As with the API: refused even if the modules do not use them.
        self.get(&table::EXECUTION_TIMEOUT)?;
        self.get(&table::EXECUTION_ALLOW_NETS)?;
        Ok(ServeSettings {
            modules,
            database,
            calls,
            api,
            broker,
            worker: WorkerSettings {
                polling_interval: polling_interval.unwrap_or(worker.polling_interval),
                batch_size,
                max_in_flight: worker.max_in_flight.max(batch_size),
                ..worker
            },
            retention: RetentionSettings { keep, ..retention },
            log_format: self.get(&table::LOG_FORMAT)?,
            log_level: self.get(&table::LOG_LEVEL)?.unwrap_or(LevelFilter::INFO),
            file: self.file.as_ref().map(|file| file.path().to_path_buf()),
        })
    }
}

/// What operators know this process by: its host and its number.
pub(crate) fn this_process() -> String {
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy();
    format!("{host}:{}", std::process::id())
}

/// What is wrong with a value, by the name under which it was given.
pub(crate) fn refusal(about: &About, raw: &OsStr, source: &Source, advice: &str) -> String {
    format!(
        "{} {}: {advice}",
        source.name_of(about),
        is_given(about, raw)
    )
}

/// What a refusal says of a value, which may hold a secret.
fn is_given(about: &About, raw: &OsStr) -> String {
    let shown = (about.display)(raw).map(|shown| format!("is \"{shown}\""));
    shown.unwrap_or_else(|| "is wrong".to_owned())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::Parser;
    use punctual_adapters_sqlite::Synchronous;

    /// The settings that these variables give.
    pub(super) fn serve(variables: &[(&str, &str)]) -> Result<ServeSettings, Failure> {
        serve_with(variables, &ServeFlags::default())
    }

    pub(crate) fn serve_with(
        variables: &[(&str, &str)],
        flags: &ServeFlags,
    ) -> Result<ServeSettings, Failure> {
        let lookup = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| OsString::from(value))
        };
        Environment(&lookup).good_sources(&flags.0)?.serve()
    }

    #[test]
    fn an_empty_environment_gives_the_documented_defaults() {
        let settings = serve(&[]).unwrap();
        let shared = SqliteSettings::service_calls("./data/event_service.db");
        assert_eq!(settings.database.sqlite(), Some(&shared));
        let calls = settings.calls.unwrap();
        assert_eq!(calls.database, None);
        assert_eq!(calls.calls, CallSettings::default());
        assert_eq!(calls.calls.timeout, Duration::from_secs(30));
        assert_eq!(calls.allowed, AllowedNets::default());
        let api = settings.api.unwrap();
        assert_eq!(
            (api.listen.to_string().as_str(), api.tokens_file),
            ("127.0.0.1:8080", None)
        );
        let alone = serve(&[("MODULES", "timer")]).unwrap();
        let own = SqliteSettings::timers("./data/timer.db");
        assert_eq!(alone.database.sqlite(), Some(&own));
        assert!(alone.calls.is_none() && alone.api.is_none());
        assert_eq!(alone.worker, WorkerSettings::default());
        assert_eq!(settings.worker, WorkerSettings::for_calls());
        assert_eq!(settings.worker.polling_interval, Duration::from_secs(5));
        assert_eq!(settings.worker.drain_limit, Duration::from_secs(25));
        assert_eq!(settings.retention.keep, Duration::from_hours(30 * 24));
        assert_eq!(settings.log_level, LevelFilter::INFO);
        assert_eq!(settings.log_format, None);
    }

    #[test]
    fn the_defaults_of_the_table_are_the_ones_that_hold() {
        let none = serve(&[]).unwrap();
        for about in table::ALL {
            if (about.check)(OsStr::new(about.default)).is_ok() && about.default != "none" {
                let given = [(about.variable, about.default)];
                let settings = serve(&given).unwrap();
                let (settings, none) = (format!("{settings:?}"), format!("{none:?}"));
                assert_eq!(settings, none, "{}", about.variable);
            }
        }
    }

    #[test]
    fn every_variable_is_heeded() {
        let variables = [
            ("TIMER_DB_PATH", "/x/t.db"),
            ("DB_SYNCHRONOUS", "NORMAL"),
            ("DB_MAX_MIB", "3"),
            ("TIMER_POLLING_INTERVAL", "250"),
            ("TIMER_BATCH_SIZE", "2000"),
            ("RETENTION_DAYS", "7"),
            ("LOG_FORMAT", "json"),
            ("LOG_LEVEL", "debug"),
        ];
        let settings = serve(&variables).unwrap();
        let database = settings.database.sqlite().unwrap();
        assert_eq!(database.path, PathBuf::from("/x/t.db"));
        assert_eq!(database.synchronous, Synchronous::Normal);
        assert_eq!(database.max_file_bytes, Some(3 * 1024 * 1024));
        assert_eq!(settings.worker.polling_interval, Duration::from_millis(250));
        assert_eq!(settings.worker.batch_size, 2_000);
        assert_eq!(settings.worker.check(), Ok(()), "a batch fits in flight");
        assert_eq!(settings.retention.keep, Duration::from_hours(7 * 24));
        assert_eq!(settings.log_format, Some(LogFormat::Json));
        assert_eq!(settings.log_level, LevelFilter::DEBUG);
    }

    #[test]
    fn a_flag_beats_its_variable_even_a_bad_one() {
        let cli = Cli::try_parse_from(["timer-service", "--batch-size", "5"]).unwrap();
        let settings = serve_with(&[("TIMER_BATCH_SIZE", "many")], &cli.serve).unwrap();
        assert_eq!(settings.worker.batch_size, 5);
    }

    #[test]
    fn a_bad_variable_is_refused_by_name_with_what_would_be_right() {
        for (name, value, advice) in [
            ("TIMER_POLLING_INTERVAL", "5s", "milliseconds"),
            ("TIMER_BATCH_SIZE", "0", "1 to 10000"),
            ("RETENTION_DAYS", "-1", "days"),
            ("DB_SYNCHRONOUS", "OFF", "FULL or NORMAL"),
            ("LOG_FORMAT", "xml", "text or json"),
            ("LOG_LEVEL", "loud", "debug"),
            ("DB_MAX_MIB", "1.5", "MiB"),
            ("MODULES", "api", "set DATABASE_URL"),
            ("API_LISTEN", "8080", "127.0.0.1:8080"),
            ("EXECUTION_TIMEOUT", "30s", "milliseconds"),
            ("EXECUTION_ALLOW_NETS", "intranet", "10.0.0.0/8"),
            ("TIMER_BROKER_URL", "http://localhost:4222", "nats://host"),
            ("DATABASE_URL", "postgres://localhost", "its user"),
            ("DATABASE_LISTEN_URL", "localhost", "postgres://"),
            ("DATABASE_SCHEMA", "timers", "set DATABASE_URL too"),
            ("DATABASE_TIMEOUT", "5s", "milliseconds"),
            ("DATABASE_WAIT", "30s", "milliseconds"),
        ] {
            let failure = serve(&[(name, value)]).unwrap_err();
            let sentence = failure.to_string();
            assert!(sentence.starts_with(name), "{sentence}");
            assert!(sentence.contains(advice), "{sentence}");
            assert!(!sentence.contains("localhost"), "it may hold a password");
            assert_eq!(failure.exit_code(), 3);
        }
    }

    #[test]
    fn an_empty_variable_is_as_good_as_none() {
        let variables = [("TIMER_BATCH_SIZE", ""), ("TIMER_BROKER_URL", "")];
        assert!(serve(&variables).is_ok());
    }
}
