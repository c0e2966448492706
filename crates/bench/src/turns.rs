//! Taking turns: ours and bare are measured alternately, so that whatever else goes on on the
//! machine meets both.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use punctual_adapters_system::SystemClock;
use punctual_domain::Timestamp;
use punctual_ports::ClockPort;
use tokio::runtime::Runtime;

use crate::Outcome;
use crate::broker::Broker;
use crate::databases::{Copy, Databases, Recipe};
use crate::plots::Plots;
use crate::rows::{Rows, tenants};
use crate::stats::Rounds;

/// What every line needs.
pub(crate) struct Bench {
    pub(crate) databases: Databases,
    pub(crate) clock: SystemClock,
    pub(crate) runtime: Runtime,
    /// What can be drawn of what was measured so far.
    pub(crate) plots: Plots,
    /// The lines that could not be measured here, and why.
    pub(crate) not_measured: BTreeMap<&'static str, String>,
    quick: bool,
    seeds: u64,
}

/// Measures something once.
pub(crate) type Turn<'a> = &'a dyn Fn(&mut Bench) -> Outcome<f64>;

impl Bench {
    pub(crate) fn new(folder: &Path, quick: bool) -> Outcome<Self> {
        Ok(Self {
            databases: Databases::new(folder),
            clock: SystemClock::start()?,
            runtime: Runtime::new()?,
            plots: Plots::default(),
            not_measured: BTreeMap::new(),
            quick,
            seeds: 1_000,
        })
    }

    /// A size, by the kind of run.
    pub(crate) const fn size(&self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The broker of this run, for a line that needs one. Without it the line is not measured, and
    /// that is said.
    pub(crate) fn broker(&mut self, line: &'static str) -> Option<Broker> {
        match Broker::of_this_run() {
            Ok(broker) => Some(broker),
            Err(reason) => {
                self.not_measured.insert(line, reason);
                None
            }
        }
    }

    /// A copy of a recipe's file.
    pub(crate) fn copy(&mut self, recipe: Recipe) -> Outcome<Copy> {
        self.databases.copy(recipe, &self.clock)
    }

    /// New timers of the same tenants as in the files, with other keys each time.
    pub(crate) fn rows(&mut self, of_tenants: usize) -> Outcome<Rows> {
        self.seeds += 1;
        Ok(Rows::new(tenants(of_tenants)?, self.seeds, self.now()))
    }

    /// Takes turns for a number of rounds; each round begins with another one, so that none always
    /// comes after the same neighbour.
    pub(crate) fn take_turns<const N: usize>(
        &mut self,
        rounds: usize,
        turns: [Turn<'_>; N],
    ) -> Outcome<[Rounds; N]> {
        let mut values = vec![Vec::new(); N];
        for round in 0..rounds {
            for step in 0..N {
                let place = (round + step) % N;
                values[place].push(turns[place](self)?);
            }
        }
        let rounds: Option<Vec<Rounds>> = values.into_iter().map(Rounds::new).collect();
        let rounds = rounds.ok_or("a measurement was no number")?;
        rounds.try_into().map_err(|_| "a turn was left out".into())
    }
}

/// How many a second.
pub(crate) fn rate(count: usize, took: Duration) -> f64 {
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts here are far below what a double holds exactly"
    )]
    let count = count as f64;
    count / took.as_secs_f64()
}
