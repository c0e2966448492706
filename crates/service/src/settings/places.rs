//! Which modules keep what where: their databases, and whether they can do their work with them.

use std::path::PathBuf;
use std::time::Duration;

use punctual_adapters_postgres::InstanceLabel;
use punctual_adapters_sqlite::{SchemaSet, SqliteSettings};

use super::{CallsSettings, Sources, TimerDatabase, table, this_process};
use crate::failure::Failure;
use crate::parse::Modules;

const APART_WITHOUT_A_BROKER: &str = "MODULES names some of orchestration, timer and execution, which communicate with the others through a broker: set TIMER_BROKER_URL, or run all three";
const API_ALONE: &str = "MODULES is api alone, which submits into the PostgreSQL database of an orchestration: set DATABASE_URL to that one, or add orchestration, timer and execution, or timer";
const NOBODY_SUBMITS: &str = "without a broker no calls can be submitted to these modules: add api to MODULES, or set TIMER_BROKER_URL";
const TWO_SCHEMAS: &str = "MODULES names timer and execution without orchestration, and DATABASE_URL holds the tables of one of them: run two processes, each with a DATABASE_SCHEMA of its own";
/// What a command answers that is about calls and timers.
pub(crate) const ATTEMPTS_ALONE: &str = "this is the database of attempts, where execution runs alone: calls are traced in the database of orchestration, and timers in their own; name one with --calls-db, --db or DATABASE_URL";

impl Sources<'_> {
    /// Every database that these settings name: the one of service calls, unless timers are served
    /// alone, and the timers' own.
    pub(crate) fn databases(&self) -> Result<Vec<(PathBuf, SchemaSet)>, Failure> {
        let modules = self.modules()?;
        let (timers_alone, mut databases) = (modules.are_timers_alone(), Vec::new());
        if modules.orchestration || timers_alone && self.get(&table::DB_PATH)?.is_some() {
            databases.push((self.calls_database()?, SchemaSet::Shared));
        }
        let have_own_file = !modules.orchestration || self.get(&table::TIMER_DB_PATH)?.is_some();
        if modules.timer && have_own_file {
            databases.push((self.timer_database()?, SchemaSet::TimersOnly));
        }
        if modules.execution && !modules.orchestration {
            databases.push((self.execution_database()?, SchemaSet::ExecutionOnly));
        }
        match databases.as_slice() {
            [(one, set), (other, other_set)] if one == other => {
                let name = |set| match set {
                    SchemaSet::Shared => table::DB_PATH.about.variable,
                    SchemaSet::TimersOnly => table::TIMER_DB_PATH.about.variable,
                    SchemaSet::ExecutionOnly => table::EXECUTION_DB_PATH.about.variable,
                };
                Err(Failure::refused(format!(
                    "{} and {} both name {}: give each its own file, or leave TIMER_DB_PATH out",
                    name(*other_set),
                    name(*set),
                    crate::display::path(one)
                )))
            }
            _ => Ok(databases),
        }
    }

    /// The database of attempts without their calls.
    pub(super) fn execution_database(&self) -> Result<PathBuf, Failure> {
        let given = self.get(&table::EXECUTION_DB_PATH)?;
        Ok(given.unwrap_or_else(|| PathBuf::from(table::EXECUTION_DB_PATH.about.default)))
    }

    /// The file of what these modules keep, and the second one if they keep timers and calls, or timers and
    /// attempts, in one each.
    fn files(&self, modules: Modules) -> Result<(SqliteSettings, Option<SqliteSettings>), Failure> {
        let open = |(path, set): &(PathBuf, SchemaSet)| match set {
            SchemaSet::Shared if modules.timer => SqliteSettings::service_calls(path),
            SchemaSet::Shared => SqliteSettings::calls_alone(path),
            SchemaSet::TimersOnly => SqliteSettings::timers(path),
            SchemaSet::ExecutionOnly => SqliteSettings::execution(path),
        };
        let files = if modules.are_timers_alone() {
            vec![(self.timer_database()?, SchemaSet::TimersOnly)]
        } else {
            self.databases()?
        };
        let (first, second) = match files.as_slice() {
            [one] => (open(one), None),
            [calls @ (_, SchemaSet::Shared), timers] => {
                let calls = SqliteSettings::calls_alone(&calls.0);
                (open(timers), Some(calls))
            }
            [timers, attempts] => (open(timers), Some(open(attempts))),
            _ => return Err(Failure::refused(API_ALONE)),
        };
        let second = second.map(|it| self.opened_by_rule(it)).transpose()?;
        Ok((self.opened_by_rule(first)?, second))
    }

    /// Where these modules keep what, with the settings of calls if they have some.
    pub(super) fn places(
        &self,
        modules: Modules,
        keep: Duration,
    ) -> Result<(TimerDatabase, Option<CallsSettings>), Failure> {
        let (database, second) = if let Some(mut database) = self.postgres()? {
            database.label = InstanceLabel {
                name: this_process(),
                modules: modules.to_string(),
            };
            if modules.timer && modules.execution && !modules.orchestration {
                return Err(Failure::refused(TWO_SCHEMAS));
            }
            (TimerDatabase::Postgres(Box::new(database)), None)
        } else {
            let (file, second) = self.files(modules)?;
            (TimerDatabase::Sqlite(file), second)
        };
        if modules.are_timers_alone() {
            return Ok((database, None));
        }
        let calls = CallsSettings {
            database: second,
            ..self.calls(keep)?
        };
        Ok((database, Some(calls)))
    }

    /// Refuses modules that cannot do their work with what they have.
    pub(super) fn check_modules(&self, modules: Modules, has_broker: bool) -> Result<(), Failure> {
        if modules.need_a_broker() && !has_broker {
            return Err(Failure::refused(APART_WITHOUT_A_BROKER));
        }
        let is_postgres = self.postgres()?.is_some();
        if modules.are_api_alone() && !is_postgres {
            return Err(Failure::refused(API_ALONE));
        }
        if modules.orchestration && !modules.api && !has_broker && !is_postgres {
            return Err(Failure::refused(NOBODY_SUBMITS));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::serve;

    /// The files that these modules keep, the second one if there are two.
    fn files(
        variables: &[(&str, &str)],
    ) -> Result<(SqliteSettings, Option<SqliteSettings>), String> {
        let settings = serve(variables).map_err(|failure| {
            assert_eq!(failure.exit_code(), 3);
            failure.to_string()
        })?;
        let first = settings.database.sqlite().unwrap().clone();
        Ok((first, settings.calls.and_then(|calls| calls.database)))
    }

    #[test]
    fn each_module_that_runs_apart_has_a_file_of_its_own() {
        let broker = ("TIMER_BROKER_URL", "nats://127.0.0.1");
        let (calls, timers) = ("./data/event_service.db", "./data/timer.db");
        let attempts = "./data/execution.db";
        for (modules, first, second) in [
            (
                "api,orchestration",
                SqliteSettings::calls_alone(calls),
                None,
            ),
            ("timer", SqliteSettings::timers(timers), None),
            ("execution", SqliteSettings::execution(attempts), None),
            ("api,execution", SqliteSettings::execution(attempts), None),
            (
                "timer,execution",
                SqliteSettings::timers(timers),
                Some(SqliteSettings::execution(attempts)),
            ),
            (
                "orchestration,execution",
                SqliteSettings::calls_alone(calls),
                None,
            ),
            (
                "orchestration,timer",
                SqliteSettings::service_calls(calls),
                None,
            ),
        ] {
            let found = files(&[broker, ("MODULES", modules)]).unwrap();
            assert_eq!(found, (first, second), "{modules}");
        }
        let own = [
            broker,
            ("MODULES", "orchestration,timer"),
            ("TIMER_DB_PATH", "/x/t.db"),
        ];
        let expected = SqliteSettings::timers("/x/t.db");
        let calls = SqliteSettings::calls_alone(calls);
        assert_eq!(files(&own).unwrap(), (expected, Some(calls)));
        let moved = [
            broker,
            ("MODULES", "execution"),
            ("EXECUTION_DB_PATH", "/x/e.db"),
            // Of other processes, which have the same environment.
            ("TIMER_DB_PATH", "/x/e.db"),
        ];
        let expected = SqliteSettings::execution("/x/e.db");
        assert_eq!(files(&moved).unwrap(), (expected, None));
    }

    #[test]
    fn modules_that_cannot_do_their_work_are_refused_with_what_they_need() {
        let broker = ("TIMER_BROKER_URL", "nats://127.0.0.1");
        for modules in ["execution", "api,orchestration", "timer,execution"] {
            let sentence = files(&[("MODULES", modules)]).unwrap_err();
            assert!(sentence.contains("set TIMER_BROKER_URL, or run all three"));
        }
        for given in [vec![("MODULES", "api")], vec![("MODULES", "api"), broker]] {
            let sentence = files(&given).unwrap_err();
            assert!(sentence.contains("set DATABASE_URL"), "{sentence}");
        }
        let without_api = ("MODULES", "orchestration,timer,execution");
        let sentence = files(&[without_api]).unwrap_err();
        assert!(sentence.contains("add api to MODULES"), "{sentence}");
        let one = [
            broker,
            ("MODULES", "timer,execution"),
            ("TIMER_DB_PATH", "/x/a.db"),
            ("EXECUTION_DB_PATH", "/x/a.db"),
        ];
        let sentence = files(&one).unwrap_err();
        let words = "EXECUTION_DB_PATH and TIMER_DB_PATH both name /x/a.db";
        assert!(sentence.starts_with(words), "{sentence}");
    }
}
