//! Taking turns: ours and bare are measured alternately, so that whatever else goes on on the
//! machine meets both.

use std::collections::BTreeMap;
use std::path::Path;

use punctual_adapters_system::SystemClock;
use punctual_domain::Timestamp;
use punctual_ports::ClockPort;
use punctual_workflows::TimerRequest;
use tokio::runtime::Runtime;

use crate::Outcome;
use crate::broker::Broker;
use crate::databases::{Copy, Databases, Recipe};
use crate::ours::Ours;
use crate::plots::Plots;
use crate::postgres::{Database, Layout, Server};
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
    /// The line that is measured now.
    pub(crate) line: &'static str,
    postgres: Option<Server>,
    quick: bool,
    seeds: u64,
}

/// Measures something once.
type Turn<'a> = &'a dyn Fn(&mut Bench) -> Outcome<f64>;

impl Bench {
    pub(crate) fn new(folder: &Path, quick: bool) -> Outcome<Self> {
        let clock = SystemClock::start()?;
        Ok(Self {
            databases: Databases::new(folder, clock.clone()),
            clock,
            runtime: Runtime::new()?,
            plots: Plots::default(),
            not_measured: BTreeMap::new(),
            line: "",
            postgres: None,
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
    pub(crate) fn broker(&mut self) -> Option<Broker> {
        let broker = Broker::of_this_run();
        broker
            .map_err(|reason| self.not_measured.insert(self.line, reason))
            .ok()
    }

    /// The PostgreSQL of this run, for a line that needs one. Without it the line is not measured, and that
    /// is said.
    pub(crate) fn postgres(&mut self) -> Option<&mut Server> {
        if self.postgres.is_none() {
            self.postgres = Server::start();
        }
        if self.postgres.is_none() {
            let reason = "PostgreSQL is not installed".to_owned();
            self.not_measured.insert(self.line, reason);
        }
        self.postgres.as_mut()
    }

    /// Copies a recipe's database on PostgreSQL, works on the copy, and removes it.
    pub(crate) fn on_postgres<T>(
        &mut self,
        recipe: Recipe,
        layout: Layout,
        work: impl AsyncFnOnce(&Database) -> Outcome<T>,
    ) -> Outcome<T> {
        let copy = self.postgres_copy(recipe, layout)?;
        let done = self.runtime.block_on(work(&copy));
        self.remove_from_postgres(&copy);
        done
    }

    /// A copy of a recipe's database on PostgreSQL.
    pub(crate) fn postgres_copy(&mut self, recipe: Recipe, layout: Layout) -> Outcome<Database> {
        let server = self.postgres.as_mut().ok_or("PostgreSQL was not started")?;
        let copy = server.copy(recipe, layout, &self.clock);
        self.runtime.block_on(copy)
    }

    /// Removes such a copy.
    pub(crate) fn remove_from_postgres(&self, copy: &Database) {
        if let Some(server) = &self.postgres {
            server.remove(copy);
        }
    }

    /// A copy of a recipe's file, to be changed and thrown away.
    pub(crate) fn copy(&mut self, recipe: Recipe) -> Outcome<Copy> {
        let original = self.databases.original(recipe)?;
        self.databases.copy_of(&original)
    }

    /// The same, and new timers to be stored in it.
    pub(crate) fn copy_and_timers(
        &mut self,
        recipe: Recipe,
        count: usize,
    ) -> Outcome<(Copy, Vec<TimerRequest>)> {
        let copy = self.copy(recipe)?;
        Ok((copy, self.rows(recipe.tenants)?.many_pending(count)))
    }

    /// Opens a file for our side, works on it, and closes it.
    pub(crate) fn with_ours<T>(
        &self,
        copy: &Copy,
        work: impl AsyncFnOnce(&Ours) -> Outcome<T>,
    ) -> Outcome<T> {
        let settings = copy.settings();
        let working = Ours::with(&settings, &self.clock, work);
        self.runtime.block_on(working)
    }

    /// New timers of the same tenants as in the files, with other keys each time.
    pub(crate) fn rows(&mut self, of_tenants: usize) -> Outcome<Rows> {
        self.seeds += 1;
        Ok(Rows::new(tenants(of_tenants)?, self.seeds, self.now()))
    }

    /// The same of all tenants but the first, who may have a backlog.
    pub(crate) fn rows_of_others(&mut self, of_tenants: usize) -> Outcome<Rows> {
        self.seeds += 1;
        let others = tenants(of_tenants)?.split_off(1);
        Ok(Rows::new(others, self.seeds, self.now()))
    }

    /// Takes turns for a number of rounds; each round begins with another one, so that none always
    /// comes after the same neighbour.
    pub(crate) fn take_turns<const N: usize>(
        &mut self,
        rounds: usize,
        turns: [Turn<'_>; N],
    ) -> Outcome<[Rounds; N]> {
        let values = self.in_turns(rounds, N, |bench, place| turns[place](bench))?;
        let rounds = values.into_iter().map(Rounds::new);
        let rounds = rounds.collect::<Outcome<Vec<Rounds>>>()?;
        rounds.try_into().map_err(|_| "a turn was left out".into())
    }

    /// The same for a number of turns that are alike, whatever each of them finds.
    pub(crate) fn in_turns<T>(
        &mut self,
        rounds: usize,
        turns: usize,
        turn: impl Fn(&mut Self, usize) -> Outcome<T>,
    ) -> Outcome<Vec<Vec<T>>> {
        let mut found: Vec<Vec<T>> = (0..turns).map(|_| Vec::new()).collect();
        for round in 0..rounds {
            for step in 0..turns {
                let place = (round + step) % turns;
                found[place].push(turn(self, place)?);
            }
        }
        Ok(found)
    }
}
