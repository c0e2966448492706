//! The settings of PostgreSQL, put together: where the database is, and who we are to it.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use punctual_adapters_postgres::{ConnectError, PostgresSettings, PostgresUrl};

use super::broker::read_secret;
use super::table::{
    self, ALL, About, DATABASE_LISTEN_URL, DATABASE_PASSWORD_FILE, DATABASE_SCHEMA,
    DATABASE_TIMEOUT, DATABASE_URL, DATABASE_WAIT,
};
use super::{Sources, refusal};
use crate::display::reason;
use crate::failure::Failure;

/// The longest name of a schema, in bytes; the server cuts longer ones.
const LONGEST_NAME: usize = 63;
/// A machine that boots starts us before its database, as a rule.
const WAIT: Duration = Duration::from_secs(30);

pub(super) fn address(text: &str) -> Result<PostgresUrl, String> {
    PostgresUrl::new(text).map_err(|error| match error {
        ConnectError::Address { advice } => advice,
        ConnectError::Setting { field, advice } => format!("its {field}: {advice}"),
        ConnectError::UnknownParameter { name, nearest } => {
            format!("there is no parameter {name}: did you mean {nearest}?")
        }
        other => other.to_string(),
    })
}

/// An address without what may be secret in it. One that cannot be understood may be secret as a
/// whole.
pub(super) fn redacted_address(raw: &OsStr) -> Option<String> {
    let url = PostgresUrl::new(raw.to_str()?).ok()?;
    Some(url.redacted())
}

pub(super) fn schema(text: &str) -> Result<String, String> {
    let is_name = (1..=LONGEST_NAME).contains(&text.len()) && !text.chars().any(char::is_control);
    if is_name {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "give the name of a schema, 1 to {LONGEST_NAME} bytes"
        ))
    }
}

/// The database, if one is set, for a process that fires its timers.
pub(super) fn read(sources: &Sources<'_>) -> Result<Option<PostgresSettings>, Failure> {
    let Some(mut url) = sources.get(&DATABASE_URL)? else {
        refuse_what_needs_a_database(sources)?;
        return Ok(None);
    };
    refuse_what_needs_a_file(sources)?;
    let mut listen_url = sources.get(&DATABASE_LISTEN_URL)?;
    if let Some(path) = sources.get(&DATABASE_PASSWORD_FILE)? {
        let password = password(&path)?;
        url = url.with_password(&password);
        listen_url = listen_url.map(|url| url.with_password(&password));
    }
    let modules = sources.modules()?;
    let mut settings = if modules.are_timers_alone() {
        PostgresSettings::timers(url)
    } else if modules.are_execution_alone() {
        PostgresSettings::execution(url)
    } else {
        PostgresSettings::service_calls(url)
    };
    settings.schema = sources.get(&DATABASE_SCHEMA)?;
    settings.listen_url = listen_url;
    if let Some(limit) = sources.get(&DATABASE_TIMEOUT)? {
        settings.time_limit = limit;
    }
    settings.wait = sources.get(&DATABASE_WAIT)?.unwrap_or(WAIT);
    Ok(Some(settings))
}

fn password(path: &Path) -> Result<String, Failure> {
    let about = DATABASE_PASSWORD_FILE.about;
    let why = match read_secret(path) {
        Ok(text) if !text.is_empty() => return Ok(text),
        Ok(_) => "is empty".to_owned(),
        Err(error) => format!("cannot be read ({})", reason(&error)),
    };
    Err(Failure::refused(format!(
        "{} names {}, which {why}: give a file with the password in its first line",
        about.variable,
        crate::display::path(path)
    )))
}

/// Refuses settings that have no effect without PostgreSQL. A value that equals the default is accepted.
fn refuse_what_needs_a_database(sources: &Sources<'_>) -> Result<(), Failure> {
    let of_a_database = ALL
        .iter()
        .copied()
        .filter(|it| it.variable.starts_with("DATABASE_"));
    refuse_given(sources, of_a_database, |name| {
        format!("{name} is set, but no database: set DATABASE_URL too, or remove it")
    })
}

/// Refuses settings of an SQLite file: with two places nobody can tell which one was meant.
fn refuse_what_needs_a_file(sources: &Sources<'_>) -> Result<(), Failure> {
    let of_a_file = [
        table::TIMER_DB_PATH.about,
        table::DB_PATH.about,
        table::EXECUTION_DB_PATH.about,
        table::DB_SYNCHRONOUS.about,
        table::DB_MAX_MIB.about,
    ];
    refuse_given(sources, of_a_file, |name| {
        format!(
            "{name} is for an SQLite file, but DATABASE_URL names a PostgreSQL database: keep one of them"
        )
    })
}

fn refuse_given(
    sources: &Sources<'_>,
    settings: impl IntoIterator<Item = &'static About>,
    sentence: impl Fn(String) -> String,
) -> Result<(), Failure> {
    for about in settings {
        let Some((raw, source)) = sources.given(about) else {
            continue;
        };
        if let Err(advice) = (about.check)(&raw) {
            return Err(Failure::refused(refusal(about, &raw, &source, &advice)));
        }
        if raw != about.default {
            return Err(Failure::refused(sentence(source.name_of(about))));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::TimerDatabase;
    use crate::settings::tests::serve;

    const URL: (&str, &str) = ("DATABASE_URL", "postgres://me@host/timers");

    fn with_url(variables: &[(&str, &str)]) -> Result<PostgresSettings, String> {
        let given = [&[URL, ("MODULES", "timer")], variables].concat();
        let settings = serve(&given).map_err(|failure| {
            assert_eq!(failure.exit_code(), 3);
            failure.to_string()
        })?;
        assert_eq!(settings.worker.lease, Duration::from_secs(8));
        match settings.database {
            TimerDatabase::Postgres(settings) => Ok(*settings),
            TimerDatabase::Sqlite(file) => panic!("{file:?}"),
        }
    }

    #[test]
    fn everything_that_is_set_is_heeded() {
        let usual = with_url(&[]).unwrap();
        assert_eq!(usual.url.redacted(), "postgres://me@host:5432/timers");
        assert_eq!((usual.schema, usual.listen_url), (None, None));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        std::fs::write(&file, "hunter2\n").unwrap();
        let settings = with_url(&[
            ("DATABASE_SCHEMA", "mine"),
            ("DATABASE_LISTEN_URL", "postgres://me@server/timers"),
            ("DATABASE_TIMEOUT", "2500"),
            ("DATABASE_WAIT", "0"),
            ("DATABASE_PASSWORD_FILE", file.to_str().unwrap()),
        ]);
        let settings = settings.unwrap();
        assert_eq!(settings.schema.as_deref(), Some("mine"));
        assert_eq!(settings.time_limit, Duration::from_millis(2_500));
        assert_eq!((usual.wait, settings.wait), (WAIT, Duration::ZERO));
        let with_password = |address: &str| {
            let url = PostgresUrl::new(address).unwrap();
            url.with_password("hunter2")
        };
        assert_eq!(settings.url, with_password(URL.1));
        let listen_url = with_password("postgres://me@server/timers");
        assert_eq!(settings.listen_url, Some(listen_url.clone()));
        assert!(!format!("{listen_url:?}").contains("hunter2"));
    }

    #[test]
    fn an_address_that_is_wrong_as_a_whole_is_said_in_one_sentence() {
        for (address, advice) in [
            (
                "postgres://me:50%@host/timers",
                "a % is not followed by two hexadecimal digits: write %25 for a percent sign",
            ),
            (
                "mysql://me@host/timers",
                "it does not begin with postgres://: give postgres://user:password@host:5432/database",
            ),
        ] {
            let refused = serve(&[("DATABASE_URL", address), ("MODULES", "timer")]);
            let sentence = format!("DATABASE_URL is wrong: {advice}");
            assert_eq!(refused.unwrap_err().to_string(), sentence);
        }
    }

    #[test]
    fn what_the_default_says_may_stand_beside_it() {
        let defaults = [
            ("DB_PATH", "./data/event_service.db"),
            ("DB_SYNCHRONOUS", "FULL"),
        ];
        assert!(with_url(&defaults).is_ok());
        let refused = with_url(&[("DB_SYNCHRONOUS", "NORMAL")]).unwrap_err();
        assert!(refused.starts_with("DB_SYNCHRONOUS is for an SQLite file"));
    }

    #[test]
    fn calls_are_made_with_and_without_a_broker_by_modules_together_and_apart() {
        use punctual_adapters_postgres::SchemaSet::{ExecutionOnly, Shared, TimersOnly};
        let broker = ("TIMER_BROKER_URL", "nats://127.0.0.1");
        let all = "api,orchestration,timer,execution";
        for (modules, set, needs_a_broker) in [
            (all, Shared, false),
            ("orchestration,timer,execution", Shared, false),
            ("api", Shared, false),
            ("timer", TimersOnly, false),
            ("api,orchestration", Shared, true),
            ("orchestration,timer", Shared, true),
            ("orchestration,execution", Shared, true),
            ("api,execution", ExecutionOnly, true),
        ] {
            let given = [URL, broker, ("MODULES", modules)];
            let settings = serve(&given).unwrap();
            match settings.database {
                TimerDatabase::Postgres(settings) => assert_eq!(settings.set, set, "{modules}"),
                TimerDatabase::Sqlite(file) => panic!("{file:?}"),
            }
            assert_eq!(settings.calls.is_some(), set != TimersOnly, "{modules}");
            let alone = serve(&[URL, ("MODULES", modules)]);
            assert_eq!(alone.is_err(), needs_a_broker, "{modules}");
        }
        let given = [URL, broker, ("MODULES", "timer,execution")];
        let two = serve(&given).unwrap_err().to_string();
        assert!(two.contains("a DATABASE_SCHEMA of its own"), "{two}");
    }
}
