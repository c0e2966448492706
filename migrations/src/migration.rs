//! One step in the growth of a schema.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// One step in the growth of a schema. Once anybody may have applied it, it is never edited.
#[derive(Debug, PartialEq, Eq)]
pub struct Migration {
    /// Its place in the order; there may be gaps between versions.
    pub version: u32,
    /// The name of its file, without the ending.
    pub name: &'static str,
    /// Its statements. `:now` in them is the time of the run, which the runner binds.
    pub sql: &'static str,
}

impl Migration {
    /// SHA-256 of the statements, in hexadecimal. Line endings do not count, because a checkout
    /// may have changed them.
    pub fn checksum(&self) -> String {
        let digest = Sha256::digest(self.sql.replace("\r\n", "\n"));
        digest.iter().fold(String::new(), |mut text, byte| {
            // Writing to a string never fails.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// The names of the tables and indexes that it creates, so that a runner can see beforehand
    /// whether somebody else has taken one of them.
    pub fn creates(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.sql.lines().filter_map(|line| {
            let rest = ["CREATE TABLE ", "CREATE INDEX ", "CREATE UNIQUE INDEX "]
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
    fn line_endings_do_not_change_the_checksum_but_anything_else_does() {
        let with = |sql| Migration {
            version: 1,
            name: "0001_a",
            sql,
        };
        let checksum = with("CREATE TABLE a (b TEXT);\nDROP TABLE a;\n").checksum();
        assert_eq!(checksum.len(), 64);
        assert_eq!(
            checksum,
            with("CREATE TABLE a (b TEXT);\r\nDROP TABLE a;\r\n").checksum()
        );
        assert_ne!(
            checksum,
            with("CREATE TABLE a (b TEXT);\nDROP TABLE  a;\n").checksum()
        );
    }

    #[test]
    fn the_checksum_is_sha_256() {
        let abc = Migration {
            version: 1,
            name: "0001_abc",
            sql: "abc",
        };
        assert_eq!(
            abc.checksum(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn what_it_creates_is_read_from_its_statements() {
        let migration = Migration {
            version: 1,
            name: "0001_a",
            sql: "-- CREATE TABLE no\nCREATE TABLE a (\n  b TEXT\n);\nCREATE UNIQUE INDEX c\nON a(b);\nCREATE INDEX d ON a(b);",
        };
        assert_eq!(migration.creates().collect::<Vec<_>>(), ["a", "c", "d"]);
    }
}
