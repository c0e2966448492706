//! What is still to be applied to a database, judged by its history.

use thiserror::Error;

use crate::{Migration, SchemaSet};

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
pub fn plan(applied: &[Applied], set: SchemaSet) -> Result<Vec<&'static Migration>, Drift> {
    plan_with(applied, set.name(), set.migrations())
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
    if !known.iter().any(|it| it.version == row.version) {
        return Err(Drift::Unknown { name: name() });
    }
    // The rows ascend, and each is known: the set has a migration for every one of them.
    let Some(expected) = expected else {
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
    if row.checksum != expected.checksum() {
        return Err(Drift::Edited {
            name: expected.name,
        });
    }
    Ok(())
}
