//! One step in the growth of a schema.

/// One step in the growth of a schema. Once anybody may have applied it, it is never edited.
#[derive(Debug, PartialEq, Eq)]
pub struct Migration {
    /// Its place in the order; there may be gaps between versions.
    pub version: u32,
    /// The name of its file, without the ending.
    pub name: &'static str,
    /// SHA-256 of its file in hexadecimal, with line endings as they are in the repository. Databases
    /// in the field carry it; a test sees that it is the file's, so that no program that uses us has to
    /// be able to compute one.
    pub checksum: &'static str,
    /// Its statements. `:now` in those of SQLite is the time of the run, which the runner binds.
    pub sql: &'static str,
}

/// How the statements begin that give a name to something; one that replaces it does not.
const CREATIONS: [&str; 5] = [
    "CREATE TABLE ",
    "CREATE UNLOGGED TABLE ",
    "CREATE VIEW ",
    "CREATE INDEX ",
    "CREATE UNIQUE INDEX ",
];

/// A migration, with its statements from the file that it is named after.
macro_rules! migration {
    ($folder:literal, $version:literal, $name:literal, $checksum:literal) => {
        Migration {
            version: $version,
            name: $name,
            checksum: $checksum,
            sql: include_str!(concat!("../", $folder, "/", $name, ".sql")),
        }
    };
}
pub(crate) use migration;

impl Migration {
    /// The names of the tables, views and indexes that it creates, so that a runner can see beforehand
    /// whether somebody else has taken one of them.
    pub fn creates(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.sql.lines().filter_map(|line| {
            let rest = CREATIONS
                .iter()
                .find_map(|start| line.strip_prefix(start))?;
            rest.split([' ', '(']).next()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_creates_is_read_from_its_statements() {
        let migration = Migration {
            version: 1,
            name: "0001_a",
            checksum: "",
            sql: "-- CREATE TABLE no\nCREATE TABLE a (\n  b TEXT\n);\nCREATE UNIQUE INDEX c\nON a(b);\nCREATE INDEX d ON a(b);\nCREATE UNLOGGED TABLE e (\n);\nCREATE VIEW f AS\nSELECT 1;\nCREATE OR REPLACE VIEW no AS\nSELECT 1;",
        };
        let created: Vec<_> = migration.creates().collect();
        assert_eq!(created, ["a", "c", "d", "e", "f"]);
    }
}
