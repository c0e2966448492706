//! The files that are measured on: each is built once in a run, and every round gets a copy.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Instant;

use punctual_adapters_sqlite::{SchemaSet, SqliteSettings, migrate};
use punctual_adapters_system::SystemClock;
use punctual_ports::ClockPort;
use tempfile::TempDir;

use crate::bare::Bare;
use crate::rows::{Rows, tenants};
use crate::{Outcome, grouped};

/// What a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Recipe {
    pub(crate) rows: usize,
    pub(crate) tenants: usize,
    /// How many of the rows are due already, evenly spread among the others.
    pub(crate) due: usize,
    pub(crate) filling: Filling,
    pub(crate) owner: Owner,
}

/// Whose the due rows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    /// Any tenant's, at random.
    Any,
    /// All of the first tenant; each of the others has what is pending.
    One,
}

/// How a file came to its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Filling {
    /// Row by row, in random order of keys and due times, so that its pages are as full as after
    /// months of use.
    RowByRow,
    /// Indexes last. It takes half the time and leaves the pages of indexes fuller than use does:
    /// for lines that only read.
    Bulk,
}

impl Recipe {
    pub(crate) const fn pending(rows: usize, tenants: usize) -> Self {
        Self {
            rows,
            tenants,
            due: 0,
            filling: Filling::RowByRow,
            owner: Owner::Any,
        }
    }
}

/// Builds files and copies them.
pub(crate) struct Databases {
    /// Where the files are.
    pub(crate) folder: PathBuf,
    clock: SystemClock,
    built: HashMap<Recipe, PathBuf>,
    /// How many files were built so far.
    files: usize,
}

/// How many rows one transaction of the building takes.
const CHUNK: usize = 10_000;

impl Databases {
    pub(crate) fn new(folder: &Path, clock: SystemClock) -> Self {
        Self {
            folder: folder.to_owned(),
            clock,
            built: HashMap::new(),
            files: 0,
        }
    }

    /// The file of a recipe. It is not to be written to.
    pub(crate) fn original(&mut self, recipe: Recipe) -> Outcome<PathBuf> {
        if let Some(path) = self.built.get(&recipe) {
            return Ok(path.clone());
        }
        let started = Instant::now();
        self.files += 1;
        let path = self.folder.join(format!("original-{}.db", self.files));
        fill(&path, recipe, &self.clock)?;
        let bytes = fs::metadata(&path)?.len();
        eprintln!(
            "  built {} timers of {} tenants: {} MB in {:.1} s",
            grouped(recipe.rows),
            grouped(recipe.tenants),
            bytes / 1_000_000,
            started.elapsed().as_secs_f64()
        );
        self.built.insert(recipe, path.clone());
        Ok(path)
    }

    /// Removes a file that is not needed any more: a large one takes space.
    pub(crate) fn forget(&mut self, recipe: Recipe) {
        if let Some(path) = self.built.remove(&recipe) {
            // What stays behind goes with the whole folder at the end of the run.
            drop(fs::remove_file(path));
        }
    }

    /// A copy of any file, with the log beside it if it has one.
    pub(crate) fn copy_of(&self, original: &Path) -> Outcome<Copy> {
        let copy = Copy(TempDir::new_in(&self.folder)?);
        copy_durably(original, &copy.path())?;
        let log = log_of(original);
        if log.exists() {
            copy_durably(&log, &log_of(&copy.path()))?;
        }
        Ok(copy)
    }
}

/// A copy that is deleted with all that was written beside it.
pub(crate) struct Copy(TempDir);

impl Copy {
    pub(crate) fn path(&self) -> PathBuf {
        self.0.path().join("timers.db")
    }

    pub(crate) fn settings(&self) -> SqliteSettings {
        SqliteSettings::timers(self.path())
    }
}

/// The log beside a database file.
pub(crate) fn log_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    PathBuf::from(name)
}

/// Copies, and waits until the disk has it: or the first commit that is measured would have to wait
/// for the copy as well.
fn copy_durably(from: &Path, to: &Path) -> Outcome<()> {
    fs::copy(from, to)?;
    File::open(to)?.sync_all()?;
    Ok(())
}

/// Makes and fills a new file.
fn fill(path: &Path, recipe: Recipe, clock: &SystemClock) -> Outcome<()> {
    let now = clock.now();
    migrate(path, SchemaSet::TimersOnly, now)?;
    let tenants = tenants(recipe.tenants)?;
    let owner = match recipe.owner {
        Owner::Any => tenants.clone(),
        Owner::One => tenants.iter().take(1).cloned().collect(),
    };
    let mut overdue = Rows::new(owner, 8, now);
    let mut rows = Rows::new(tenants, 7, now);
    let mut bare = Bare::open_to_build(path)?;
    let indexes = match recipe.filling {
        Filling::RowByRow => String::new(),
        Filling::Bulk => bare.drop_indexes()?,
    };
    let numbers: Vec<usize> = (0..recipe.rows).collect();
    for chunk in numbers.chunks(CHUNK) {
        let timer = |number: &usize| {
            if is_due(*number, recipe) {
                overdue.overdue()
            } else {
                rows.pending()
            }
        };
        let timers: Vec<_> = chunk.iter().map(timer).collect();
        bare.upsert(&timers, CHUNK, now)?;
    }
    bare.connection.execute_batch(&indexes)?;
    bare.checkpoint()?;
    drop(bare);
    File::open(path)?.sync_all()?;
    Ok(())
}

/// Spreads the due rows evenly, and makes exactly as many as there are to be.
const fn is_due(number: usize, recipe: Recipe) -> bool {
    let before = number * recipe.due / recipe.rows;
    let after = (number + 1) * recipe.due / recipe.rows;
    before != after
}
