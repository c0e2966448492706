//! What is still to be applied to a database, judged by its history.

use thiserror::Error;

use crate::{Dialect, Migration, SchemaSet};

/// A row of a database's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The version of the migration.
    pub version: u32,
    /// Its name.
    pub name: String,
    /// [`Migration::checksum`] of what was applied.
    pub checksum: String,
    /// [`SchemaSet::name`] of the set it belongs to.
    pub set: String,
}

/// Why a history is not one that this program may continue.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Drift {
    /// The history is that of another set of tables.
    #[error("it holds the {found} tables")]
    OtherSet {
        /// The set that the history names.
        found: String,
    },
    /// A newer program was here.
    #[error("migration {name} is newer than this program")]
    Newer {
        /// The newest migration of the history.
        name: String,
    },
    /// A migration that this program has never had, older than its newest.
    #[error("migration {name} is unknown to this program")]
    Unknown {
        /// The migration.
        name: String,
    },
    /// A migration was passed over.
    #[error("migration {missing} is missing, but {name} after it was applied")]
    Gap {
        /// What was not applied.
        missing: &'static str,
        /// What was applied after it.
        name: String,
    },
    /// The rows do not ascend.
    #[error("migration {name} is out of order")]
    Reordered {
        /// The first that is not after its predecessor.
        name: String,
    },
    /// A migration of this version has another name here.
    #[error("migration {name} was applied where this program has {expected}")]
    Renamed {
        /// The name in the history.
        name: String,
        /// The name in this program.
        expected: &'static str,
    },
    /// A migration was edited after it was applied.
    #[error("migration {name} was applied in another wording than this program's")]
    Edited {
        /// The migration.
        name: &'static str,
    },
}

/// The migrations that a database with this history still needs, in order.
///
/// The history must be a beginning of the set's migrations: none edited, none left out, none that
/// is not ours. Anything else is a [`Drift`], and the database is not to be touched.
pub fn plan(
    applied: &[Applied],
    set: SchemaSet,
    dialect: Dialect,
) -> Result<Vec<&'static Migration>, Drift> {
    plan_with(applied, set.name(), set.migrations(dialect))
}

fn plan_with(
    applied: &[Applied],
    set: &str,
    known: &'static [Migration],
) -> Result<Vec<&'static Migration>, Drift> {
    if let Some(row) = applied.iter().find(|row| row.set != set) {
        return Err(Drift::OtherSet {
            found: row.set.clone(),
        });
    }
    let newest_known = known.last().map_or(0, |migration| migration.version);
    if let Some(row) = applied.iter().max_by_key(|row| row.version)
        && row.version > newest_known
    {
        return Err(Drift::Newer {
            name: row.name.clone(),
        });
    }
    let mut rest = known.iter();
    let mut previous = None;
    for row in applied {
        if previous.is_some_and(|previous| row.version <= previous) {
            return Err(Drift::Reordered {
                name: row.name.clone(),
            });
        }
        previous = Some(row.version);
        check(row, known, rest.next())?;
    }
    Ok(rest.collect())
}

/// Holds one row of the history against the migration that should be there.
fn check(
    row: &Applied,
    known: &'static [Migration],
    expected: Option<&'static Migration>,
) -> Result<(), Drift> {
    let name = || row.name.clone();
    let is_known = known.iter().any(|it| it.version == row.version);
    let Some(expected) = expected.filter(|_| is_known) else {
        return Err(Drift::Unknown { name: name() });
    };
    if row.version != expected.version {
        return Err(Drift::Gap {
            missing: expected.name,
            name: name(),
        });
    }
    if row.name != expected.name {
        return Err(Drift::Renamed {
            name: name(),
            expected: expected.name,
        });
    }
    if row.checksum != expected.checksum {
        return Err(Drift::Edited {
            name: expected.name,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KNOWN: [Migration; 3] = [
        Migration {
            version: 1,
            name: "0001_one",
            checksum: "checksum of 0001_one",
            sql: "SELECT 1;",
        },
        Migration {
            version: 3,
            name: "0003_three",
            checksum: "checksum of 0003_three",
            sql: "SELECT 3;",
        },
        Migration {
            version: 4,
            name: "0004_four",
            checksum: "checksum of 0004_four",
            sql: "SELECT 4;",
        },
    ];

    fn applied(version: u32) -> Applied {
        let known = KNOWN.iter().find(|it| it.version == version);
        Applied {
            version,
            name: known.map_or_else(|| format!("{version:04}_other"), |it| it.name.to_owned()),
            checksum: known.map_or_else(String::new, |it| it.checksum.to_owned()),
            set: "ours".to_owned(),
        }
    }

    fn plan_of(history: &[Applied]) -> Result<Vec<u32>, Drift> {
        let plan = plan_with(history, "ours", &KNOWN)?;
        Ok(plan.iter().map(|migration| migration.version).collect())
    }

    fn versions(versions: &[u32]) -> Vec<Applied> {
        versions.iter().copied().map(applied).collect()
    }

    #[test]
    fn a_beginning_of_the_history_is_continued_where_it_ends() {
        assert_eq!(plan_of(&[]), Ok(vec![1, 3, 4]));
        assert_eq!(plan_of(&versions(&[1])), Ok(vec![3, 4]));
        assert_eq!(plan_of(&versions(&[1, 3])), Ok(vec![4]));
        assert_eq!(plan_of(&versions(&[1, 3, 4])), Ok(vec![]));
    }

    #[test]
    fn a_migration_beyond_the_newest_known_one_means_a_newer_program() {
        let newer = |name: &str| Err(Drift::Newer { name: name.into() });
        assert_eq!(plan_of(&versions(&[1, 3, 4, 5])), newer("0005_other"));
        // The newest is named, and it goes before what else is wrong: a newer program may well
        // know better.
        assert_eq!(plan_of(&versions(&[1, 2, 9, 7])), newer("0009_other"));
    }

    #[test]
    fn an_unknown_migration_in_between_is_drift() {
        let unknown = Err(Drift::Unknown {
            name: "0002_other".into(),
        });
        assert_eq!(plan_of(&versions(&[1, 2])), unknown);
        assert_eq!(plan_of(&versions(&[1, 2, 3, 4])), unknown);
    }

    #[test]
    fn a_gap_is_drift() {
        let gap = |missing, name: &str| {
            Err(Drift::Gap {
                missing,
                name: name.into(),
            })
        };
        assert_eq!(plan_of(&versions(&[3])), gap("0001_one", "0003_three"));
        assert_eq!(plan_of(&versions(&[1, 4])), gap("0003_three", "0004_four"));
    }

    #[test]
    fn rows_that_do_not_ascend_are_drift() {
        let reordered = |name: &str| Err(Drift::Reordered { name: name.into() });
        assert_eq!(plan_of(&versions(&[1, 3, 1])), reordered("0001_one"));
        assert_eq!(plan_of(&versions(&[1, 1])), reordered("0001_one"));
    }

    #[test]
    fn an_edited_migration_is_drift() {
        let mut history = versions(&[1, 3]);
        history[0].checksum.replace_range(..1, "x");
        assert_eq!(plan_of(&history), Err(Drift::Edited { name: "0001_one" }));
    }

    #[test]
    fn a_renamed_migration_is_drift() {
        let mut history = versions(&[1, 3]);
        history[1].name = "0003_tree".into();
        let expected = Drift::Renamed {
            name: "0003_tree".into(),
            expected: "0003_three",
        };
        assert_eq!(plan_of(&history), Err(expected));
    }

    #[test]
    fn another_set_is_named_whatever_else_is_wrong() {
        let mut history = versions(&[1, 9]);
        history[1].set = "theirs".into();
        let expected = Drift::OtherSet {
            found: "theirs".into(),
        };
        assert_eq!(plan_of(&history), Err(expected));
    }

    /// The history of a database that has been through the whole of a set.
    fn complete(set: SchemaSet, dialect: Dialect) -> Vec<Applied> {
        set.migrations(dialect)
            .iter()
            .map(|migration| Applied {
                version: migration.version,
                name: migration.name.into(),
                checksum: migration.checksum.into(),
                set: set.name().into(),
            })
            .collect()
    }

    #[test]
    fn the_sets_refuse_each_other() {
        for dialect in Dialect::ALL {
            for set in SchemaSet::ALL {
                let history = complete(set, dialect);
                assert_eq!(plan(&history, set, dialect), Ok(vec![]));
                let refused = Drift::OtherSet {
                    found: set.name().into(),
                };
                for other in SchemaSet::ALL.into_iter().filter(|other| *other != set) {
                    assert_eq!(plan(&history, other, dialect), Err(refused.clone()));
                }
            }
        }
    }

    #[test]
    fn a_history_of_the_other_dialect_is_in_another_wording() {
        for set in SchemaSet::ALL {
            let history = complete(set, Dialect::Sqlite);
            let edited = Drift::Edited {
                name: set.migrations(Dialect::Postgres)[0].name,
            };
            assert_eq!(plan(&history, set, Dialect::Postgres), Err(edited));
        }
    }

    proptest! {
        /// Only a beginning of the known migrations is ever continued, and then with exactly the
        /// rest of them.
        #[test]
        fn what_is_planned_and_what_was_applied_are_together_what_is_known(
            history in prop::collection::vec(0_u32..7, 0..6)
        ) {
            let known = [1, 3, 4];
            match plan_of(&versions(&history)) {
                Ok(rest) => prop_assert_eq!([history, rest].concat(), known),
                Err(_) => prop_assert!(!known.starts_with(&history)),
            }
        }
    }
}
