//! Settings: a flag beats the environment, which beats the default.
//!
//! The environment comes as a function, so that nothing here reads the process's own, and a test
//! can give another.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use punctual_adapters_sqlite::{Role, SqliteSettings, Synchronous};
use punctual_workflows::{RetentionSettings, WorkerSettings};
use tracing::level_filters::LevelFilter;

use crate::cli::ServeArgs;
use crate::failure::Failure;
use crate::parse;

/// Where the timers are unless somebody says otherwise.
pub(crate) const DEFAULT_DATABASE: &str = "./data/timer.db";

/// Looks a variable up.
pub(crate) type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// Everything that `serve` needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServeSettings {
    pub(crate) database: SqliteSettings,
    pub(crate) worker: WorkerSettings,
    pub(crate) retention: RetentionSettings,
    /// `None`: whatever suits standard error.
    pub(crate) log_format: Option<LogFormat>,
    pub(crate) log_level: LevelFilter,
}

/// The variables, each read at most once and refused by name.
pub(crate) struct Environment<'a>(pub(crate) Lookup<'a>);

impl Environment<'_> {
    /// An empty variable counts as absent: that is how a compose file unsets one.
    fn raw(&self, name: &str) -> Option<OsString> {
        (self.0)(name).filter(|value| !value.is_empty())
    }

    fn read<T>(
        &self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Failure> {
        let Some(value) = self.raw(name) else {
            return Ok(None);
        };
        let text = value.to_string_lossy();
        let parsed = match value.to_str() {
            Some(text) => parse(text),
            None => Err("give UTF-8".to_owned()),
        };
        parsed.map(Some).map_err(|advice| {
            let shown: String = text.chars().take(48).flat_map(char::escape_debug).collect();
            Failure::refused(format!("{name} is \"{shown}\": {advice}"))
        })
    }

    fn flag_or<T>(
        &self,
        flag: Option<T>,
        name: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Failure> {
        match flag {
            Some(given) => Ok(Some(given)),
            None => self.read(name, parse),
        }
    }

    /// A wish that would be silently ignored is refused: timers would fire to the wrong place, or
    /// be stored in the wrong one.
    fn refuse_what_does_not_exist(&self) -> Result<(), Failure> {
        for (name, what) in [
            ("TIMER_BROKER_URL", "a broker"),
            ("DATABASE_URL", "PostgreSQL"),
        ] {
            if self.raw(name).is_some() {
                return Err(Failure::refused(format!(
                    "{name} is set, but this version cannot use {what} yet: unset it"
                )));
            }
        }
        Ok(())
    }

    /// The timers' own database.
    pub(crate) fn timer_database(&self, flag: Option<&Path>) -> PathBuf {
        let variable = || self.raw("TIMER_DB_PATH").map(PathBuf::from);
        flag.map(Path::to_path_buf)
            .or_else(variable)
            .unwrap_or_else(|| PathBuf::from(DEFAULT_DATABASE))
    }

    /// The shared database, if one is named.
    pub(crate) fn shared_database(&self) -> Option<PathBuf> {
        self.raw("DB_PATH").map(PathBuf::from)
    }

    fn synchronous(&self, flag: Option<Synchronous>) -> Result<Synchronous, Failure> {
        let given = self.flag_or(flag, "DB_SYNCHRONOUS", parse::synchronous)?;
        Ok(given.unwrap_or_default())
    }

    /// How a command opens the timers beside whoever serves them.
    pub(crate) fn client(&self, db: Option<&Path>) -> Result<SqliteSettings, Failure> {
        self.refuse_what_does_not_exist()?;
        Ok(SqliteSettings {
            role: Role::Client,
            synchronous: self.synchronous(None)?,
            max_file_bytes: self.read("DB_MAX_MIB", parse::mebibytes)?,
            ..SqliteSettings::timers(self.timer_database(db))
        })
    }

    /// How to serve.
    pub(crate) fn serve(&self, args: &ServeArgs) -> Result<ServeSettings, Failure> {
        self.refuse_what_does_not_exist()?;
        let worker = WorkerSettings::default();
        let retention = RetentionSettings::default();
        let polling_interval = self.flag_or(
            args.polling_interval,
            "TIMER_POLLING_INTERVAL",
            parse::polling_interval,
        )?;
        let batch_size = self
            .flag_or(args.batch_size, "TIMER_BATCH_SIZE", parse::batch_size)?
            .unwrap_or(worker.batch_size);
        let keep = self.flag_or(args.retention_days, "RETENTION_DAYS", parse::retention)?;
        let log_level = self.flag_or(args.log_level, "LOG_LEVEL", parse::log_level)?;
        Ok(ServeSettings {
            database: SqliteSettings {
                synchronous: self.synchronous(args.synchronous)?,
                max_file_bytes: self.read("DB_MAX_MIB", parse::mebibytes)?,
                ..SqliteSettings::timers(self.timer_database(args.database.db.as_deref()))
            },
            worker: WorkerSettings {
                polling_interval: polling_interval.unwrap_or(worker.polling_interval),
                batch_size,
                max_in_hand: worker.max_in_hand.max(batch_size),
                ..worker
            },
            retention: RetentionSettings {
                keep: keep.unwrap_or(retention.keep),
                ..retention
            },
            log_format: self.flag_or(args.log_format, "LOG_FORMAT", parse::log_format)?,
            log_level: log_level.unwrap_or(LevelFilter::INFO),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn serve(variables: &[(&str, &str)], args: &ServeArgs) -> Result<ServeSettings, Failure> {
        let lookup = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| OsString::from(value))
        };
        Environment(&lookup).serve(args)
    }

    #[test]
    fn an_empty_environment_gives_the_documented_defaults() {
        let settings = serve(&[], &ServeArgs::default()).unwrap();
        assert_eq!(settings.database, SqliteSettings::timers(DEFAULT_DATABASE));
        assert_eq!(settings.worker, WorkerSettings::default());
        assert_eq!(settings.worker.polling_interval, Duration::from_secs(5));
        assert_eq!(settings.worker.drain_limit, Duration::from_secs(25));
        assert_eq!(settings.retention.keep, Duration::from_hours(30 * 24));
        assert_eq!(settings.log_level, LevelFilter::INFO);
        assert_eq!(settings.log_format, None);
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
        let settings = serve(&variables, &ServeArgs::default()).unwrap();
        assert_eq!(settings.database.path, PathBuf::from("/x/t.db"));
        assert_eq!(settings.database.synchronous, Synchronous::Normal);
        assert_eq!(settings.database.max_file_bytes, Some(3 * 1024 * 1024));
        assert_eq!(settings.worker.polling_interval, Duration::from_millis(250));
        assert_eq!(settings.worker.batch_size, 2_000);
        assert_eq!(settings.worker.check(), Ok(()), "a batch fits in hand");
        assert_eq!(settings.retention.keep, Duration::from_hours(7 * 24));
        assert_eq!(settings.log_format, Some(LogFormat::Json));
        assert_eq!(settings.log_level, LevelFilter::DEBUG);
    }

    #[test]
    fn a_flag_beats_its_variable_even_a_bad_one() {
        let args = ServeArgs {
            batch_size: Some(5),
            ..ServeArgs::default()
        };
        let settings = serve(&[("TIMER_BATCH_SIZE", "many")], &args).unwrap();
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
            ("TIMER_BROKER_URL", "nats://localhost:4222", "unset"),
            ("DATABASE_URL", "postgres://localhost", "unset"),
        ] {
            let failure = serve(&[(name, value)], &ServeArgs::default()).unwrap_err();
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
        assert!(serve(&variables, &ServeArgs::default()).is_ok());
    }
}
