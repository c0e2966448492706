//! What must be right about a server before timers are entrusted to it, read in one round trip.

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Row};

use crate::ConnectError;

/// The oldest version that is supported.
const OLDEST: i32 = 150_000;

/// One statement, unnamed and typed, and all columns of types that the driver knows: it asks the server
/// about others with named statements, which poolers lose.
const FACTS: &str = "\
SELECT pg_catalog.current_setting('server_version_num')::pg_catalog.int4 AS version_num,
       pg_catalog.version() AS version,
       pg_catalog.pg_is_in_recovery() AS is_in_recovery,
       pg_catalog.current_setting('transaction_read_only') AS read_only,
       pg_catalog.current_setting('default_transaction_read_only') AS default_read_only,
       pg_catalog.current_setting('synchronous_commit') AS synchronous_commit,
       pg_catalog.current_setting('server_encoding') AS encoding,
       pg_catalog.current_setting('search_path') AS search_path,
       pg_catalog.current_setting('fsync') AS fsync,
       pg_catalog.current_setting('full_page_writes') AS full_page_writes,
       current_user::pg_catalog.text AS current_user,
       pg_catalog.pg_backend_pid() AS process,
       wanted.name AS schema,
       found.oid IS NOT NULL AS schema_exists,
       coalesce(pg_catalog.has_schema_privilege(found.oid, 'USAGE'), false) AS may_use,
       coalesce(pg_catalog.has_schema_privilege(found.oid, 'CREATE'), false) AS may_create
  FROM (SELECT coalesce($1, pg_catalog.current_schema()::pg_catalog.text) AS name) AS wanted
  LEFT JOIN pg_catalog.pg_namespace AS found ON found.nspname = wanted.name";

/// Servers that speak the protocol of PostgreSQL, and of which `version()` says so.
const FORKS: [(&str, &str); 12] = [
    ("CockroachDB", "CockroachDB"),
    ("-YB-", "YugabyteDB"),
    ("Yugabyte", "YugabyteDB"),
    ("Redshift", "Amazon Redshift"),
    ("Greenplum", "Greenplum"),
    ("Cloudberry", "Apache Cloudberry"),
    ("Materialize", "Materialize"),
    ("RisingWave", "RisingWave"),
    ("QuestDB", "QuestDB"),
    ("CrateDB", "CrateDB"),
    ("openGauss", "openGauss"),
    ("GaussDB", "GaussDB"),
];

/// What a server says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an answer of the server, and none follows from another"
)]
pub(crate) struct ServerFacts {
    /// As in an address, for messages.
    pub(crate) server: String,
    pub(crate) version_num: i32,
    pub(crate) version: String,
    pub(crate) is_in_recovery: bool,
    pub(crate) is_read_only: bool,
    pub(crate) is_read_only_by_default: bool,
    pub(crate) synchronous_commit: String,
    pub(crate) encoding: String,
    pub(crate) search_path: String,
    pub(crate) has_fsync: bool,
    pub(crate) has_full_page_writes: bool,
    /// The role whose privileges count, which a pooler may have chosen.
    pub(crate) user: String,
    /// The process that has answered.
    pub(crate) process: i32,
    /// The schema that was asked for, or the first of the search path.
    pub(crate) schema: Option<String>,
    pub(crate) schema_exists: bool,
    pub(crate) may_use: bool,
    pub(crate) may_create: bool,
}

impl ServerFacts {
    /// Reads them. `schema` is that of the tables; without one it is the first of the search path.
    pub(crate) async fn read(
        client: &Client,
        server: String,
        schema: Option<&str>,
    ) -> Result<Self, FactsError> {
        match client
            .query_typed_one(FACTS, &[(&schema, Type::TEXT)])
            .await
            .and_then(|row| Self::of_row(&row, server.clone()))
        {
            Ok(facts) => Ok(facts),
            Err(error) if error.is_closed() => Err(FactsError::Driver(error)),
            Err(error) => {
                // Other servers may not know one of the functions: that is not what is wrong with them.
                let row = client
                    .query_typed_one("SELECT pg_catalog.version()", &[])
                    .await;
                let version = row.and_then(|row| row.try_get::<_, String>(0));
                match version.ok().and_then(|it| foreign(&it)) {
                    Some(found) => Err(FactsError::Refused(ConnectError::WrongServer {
                        server,
                        found,
                    })),
                    None => Err(FactsError::Driver(error)),
                }
            }
        }
    }

    fn of_row(row: &Row, server: String) -> Result<Self, Error> {
        let is_on = |name| row.try_get::<_, &str>(name).map(|it| it == "on");
        Ok(Self {
            server,
            version_num: row.try_get("version_num")?,
            version: row.try_get("version")?,
            is_in_recovery: row.try_get("is_in_recovery")?,
            is_read_only: is_on("read_only")?,
            is_read_only_by_default: is_on("default_read_only")?,
            synchronous_commit: row.try_get("synchronous_commit")?,
            encoding: row.try_get("encoding")?,
            search_path: row.try_get("search_path")?,
            has_fsync: is_on("fsync")?,
            has_full_page_writes: is_on("full_page_writes")?,
            user: row.try_get("current_user")?,
            process: row.try_get("process")?,
            schema: row.try_get("schema")?,
            schema_exists: row.try_get("schema_exists")?,
            may_use: row.try_get("may_use")?,
            may_create: row.try_get("may_create")?,
        })
    }

    /// Refuses a server that cannot keep timers.
    pub(crate) fn check(&self) -> Result<(), ConnectError> {
        self.check_server()?;
        self.check_writable()?;
        self.check_settings()?;
        self.check_schema()
    }

    pub(crate) fn check_server(&self) -> Result<(), ConnectError> {
        let found = foreign(&self.version).or_else(|| {
            let major = self.version_num / 10_000;
            (self.version_num < OLDEST).then(|| format!("PostgreSQL {major}"))
        });
        match found {
            None => Ok(()),
            Some(found) => Err(ConnectError::WrongServer {
                server: self.server.clone(),
                found,
            }),
        }
    }

    fn check_writable(&self) -> Result<(), ConnectError> {
        let refuse = |reason: &str| {
            Err(ConnectError::ReadOnly {
                server: self.server.clone(),
                reason: reason.to_owned(),
                is_standby: self.is_in_recovery,
            })
        };
        if self.is_in_recovery {
            return refuse(
                "it is a standby, give the address of the primary, or all hosts separated by commas",
            );
        }
        if self.is_read_only_by_default || self.is_read_only {
            return refuse(
                "set default_transaction_read_only = off for the server, database or role",
            );
        }
        Ok(())
    }

    fn check_settings(&self) -> Result<(), ConnectError> {
        if self.synchronous_commit == "off" {
            return self.unsuitable(format!(
                "has synchronous_commit = off, and would lose confirmed timers in a crash: set it to on, for example with ALTER ROLE {} SET synchronous_commit = on",
                quoted(&self.user)
            ));
        }
        if self.encoding != "UTF8" {
            return self.unsuitable(format!(
                "has the encoding {}: create a database with ENCODING 'UTF8' TEMPLATE template0",
                self.encoding
            ));
        }
        Ok(())
    }

    fn check_schema(&self) -> Result<(), ConnectError> {
        let Some(schema) = &self.schema else {
            return self.unsuitable(format!(
                "has no schema that its search_path ({}) names and {} may use: create one, or name it with DATABASE_SCHEMA",
                self.search_path, self.user
            ));
        };
        if is_system_schema(schema) {
            return self.unsuitable(format!(
                "reserves the schema {schema} for itself: name one of your own with DATABASE_SCHEMA"
            ));
        }
        let (schema, user) = (quoted(schema), quoted(&self.user));
        if !self.schema_exists {
            return self.unsuitable(format!(
                "has no schema {schema}: create it with CREATE SCHEMA {schema} AUTHORIZATION {user}"
            ));
        }
        if !self.may_use {
            return self.no_privilege(format!(
                "may not use the schema {schema}: run GRANT USAGE ON SCHEMA {schema} TO {user}"
            ));
        }
        Ok(())
    }

    /// Refuses a schema in which no table can be created. Only a migration needs that.
    pub(crate) fn check_may_create(&self) -> Result<(), ConnectError> {
        self.check_schema()?;
        if self.may_create {
            return Ok(());
        }
        let schema = quoted(self.schema.as_deref().unwrap_or_default());
        let user = quoted(&self.user);
        self.no_privilege(format!(
            "may not create tables in the schema {schema}: run GRANT CREATE ON SCHEMA {schema} TO {user}"
        ))
    }

    fn unsuitable(&self, what: String) -> Result<(), ConnectError> {
        let server = self.server.clone();
        Err(ConnectError::Unsuitable { server, what })
    }

    fn no_privilege(&self, what: String) -> Result<(), ConnectError> {
        Err(ConnectError::MissingPrivilege {
            server: self.server.clone(),
            user: self.user.clone(),
            what,
        })
    }
}

/// Whether a schema is one of the server itself. Nobody can create one of such a name.
fn is_system_schema(name: &str) -> bool {
    name == "information_schema" || name.starts_with("pg_")
}

/// Why the facts could not be read.
#[derive(Debug)]
pub(crate) enum FactsError {
    Refused(ConnectError),
    Driver(Error),
}

/// The name of a server that is not PostgreSQL.
fn foreign(version: &str) -> Option<String> {
    let fork = FORKS.iter().find(|(mark, _)| version.contains(mark));
    if let Some((_, name)) = fork {
        return Some(format!("{name}, not PostgreSQL"));
    }
    if version.starts_with("PostgreSQL ") {
        return None;
    }
    // Its first word is the name of whatever it is.
    let name: String = version
        .chars()
        .take_while(|c| c.is_alphanumeric())
        .collect();
    let name = if name.is_empty() { "unknown" } else { &name };
    Some(format!("{name}, not PostgreSQL"))
}

/// An identifier as it is written in SQL.
fn quoted(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_') && name.chars().all(is_plain)
    {
        return name.to_owned();
    }
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> ServerFacts {
        ServerFacts {
            server: "postgres://me@a:5432/t".to_owned(),
            version_num: 150_018,
            version: "PostgreSQL 15.18 (Debian 15.18-1) on x86_64-pc-linux-gnu".to_owned(),
            is_in_recovery: false,
            is_read_only: false,
            is_read_only_by_default: false,
            synchronous_commit: "on".to_owned(),
            encoding: "UTF8".to_owned(),
            search_path: "\"$user\", public".to_owned(),
            has_fsync: true,
            has_full_page_writes: true,
            user: "me".to_owned(),
            process: 1,
            schema: Some("public".to_owned()),
            schema_exists: true,
            may_use: true,
            may_create: true,
        }
    }

    fn sentence(change: impl Fn(&mut ServerFacts)) -> String {
        let mut facts = good();
        change(&mut facts);
        facts.check().unwrap_err().to_string()
    }

    #[test]
    fn other_servers_are_refused_by_name_and_newer_ones_are_not() {
        for (version, version_num, found) in [
            (
                "CockroachDB CCL v23.1.11 (x86_64-pc-linux-gnu)",
                130_000,
                "CockroachDB, not PostgreSQL",
            ),
            (
                "PostgreSQL 15.2-YB-2.25.0.0-b0 on x86_64",
                150_002,
                "YugabyteDB, not PostgreSQL",
            ),
            (
                "PostgreSQL 8.0.2 on i686-pc-linux-gnu, Redshift 1.0.12103",
                80_002,
                "Amazon Redshift, not PostgreSQL",
            ),
            (
                "PostgreSQL 12.12 (Greenplum Database 7.0.0)",
                120_012,
                "Greenplum, not PostgreSQL",
            ),
            ("Umbra 1.0", 150_000, "Umbra, not PostgreSQL"),
            ("", 150_000, "unknown, not PostgreSQL"),
            ("PostgreSQL 14.9 on x86_64", 140_009, "PostgreSQL 14"),
        ] {
            let error = sentence(|it| {
                version.clone_into(&mut it.version);
                it.version_num = version_num;
            });
            let expected = format!(
                "the database postgres://me@a:5432/t is {found}: give the address of a PostgreSQL 15 or newer"
            );
            assert_eq!(error, expected);
        }
        let mut newer = good();
        newer.version_num = 180_001;
        assert_eq!(newer.check(), Ok(()));
    }

    #[test]
    fn each_fact_that_would_lose_timers_is_refused_with_what_to_set() {
        let database = "the database postgres://me@a:5432/t";
        for (error, rest) in [
            (
                sentence(|it| it.is_in_recovery = true),
                "is read-only: it is a standby, give the address of the primary, or all hosts separated by commas",
            ),
            (
                sentence(|it| it.is_read_only_by_default = true),
                "is read-only: set default_transaction_read_only = off for the server, database or role",
            ),
            (
                sentence(|it| {
                    it.synchronous_commit = "off".to_owned();
                    it.user = "Me".to_owned();
                }),
                "has synchronous_commit = off, and would lose confirmed timers in a crash: set it to on, for example with ALTER ROLE \"Me\" SET synchronous_commit = on",
            ),
            (
                sentence(|it| it.encoding = "SQL_ASCII".to_owned()),
                "has the encoding SQL_ASCII: create a database with ENCODING 'UTF8' TEMPLATE template0",
            ),
            (
                sentence(|it| it.schema = None),
                "has no schema that its search_path (\"$user\", public) names and me may use: create one, or name it with DATABASE_SCHEMA",
            ),
            (
                sentence(|it| it.schema = Some("pg_catalog".to_owned())),
                "reserves the schema pg_catalog for itself: name one of your own with DATABASE_SCHEMA",
            ),
            (
                sentence(|it| {
                    it.schema = Some("a\"b".to_owned());
                    it.schema_exists = false;
                }),
                "has no schema \"a\"\"b\": create it with CREATE SCHEMA \"a\"\"b\" AUTHORIZATION me",
            ),
        ] {
            assert_eq!(error, format!("{database} {rest}"));
        }
        let error = sentence(|it| it.may_use = false);
        assert!(
            error
                .ends_with("may not use the schema public: run GRANT USAGE ON SCHEMA public TO me"),
            "{error}"
        );
        let mut facts = good();
        facts.may_create = false;
        assert_eq!(facts.check(), Ok(()));
        let error = facts.check_may_create().unwrap_err().to_string();
        assert!(
            error.ends_with("run GRANT CREATE ON SCHEMA public TO me"),
            "{error}"
        );
    }
}
