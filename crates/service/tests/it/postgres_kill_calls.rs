//! Treats several equal instances that make calls, and their PostgreSQL, badly, and asks the target what it got.
//!
//! `cargo xtask torture --postgres --calls` runs this for as long as one likes. A round is a second.

use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::thread::park_timeout;
use std::time::Duration;

use punctual_ports::ClockPort;
use rustix::process::Signal;

use crate::api_client::{Api, clock};
use crate::call_ledger::CallLedger;
use crate::kill::Random;
use crate::postgres_fleet::{Database, Instance, last_words};
use crate::postgres_kill::Options;
use crate::running::{Home, Running};

const ROUND: Duration = Duration::from_secs(1);
const SUBMITTERS: u64 = 8;
/// In a long run an instance is suspended for longer than the lease of its attempts, every so often.
const SUSPENSION: usize = 33;
const SUSPEND_EVERY: usize = 60;

struct Fleet {
    options: Options,
    home: Home,
    database: Database,
    ledger: CallLedger,
    random: Random,
    instances: Vec<(Instance, SocketAddr)>,
    kills: usize,
    server_kills: usize,
    suspensions: usize,
    ended_alone: Vec<String>,
}

/// An address that nobody listens at, now.
fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

impl Fleet {
    fn start(options: Options) -> Option<Self> {
        let database = Database::start(options.is_pooled, &[("max_connections", "200")])?;
        let spread = ROUND * if options.rounds > SUSPENSION { 20 } else { 3 };
        let seed = clock().now().as_millis().unsigned_abs();
        println!("the instants are drawn from {seed}");
        let instances = (0..options.instances).map(|n| (Instance::new(n), free_address()));
        let mut fleet = Self {
            instances: instances.collect(),
            options,
            home: Home::new(),
            database,
            ledger: CallLedger::new(spread),
            random: Random(seed),
            kills: 0,
            server_kills: 0,
            suspensions: 0,
            ended_alone: Vec::new(),
        };
        let apis = fleet.instances.iter().map(|(_, address)| Api(*address));
        fleet.ledger.listens_at(apis.collect());
        for n in 0..fleet.instances.len() {
            fleet.serve(n);
        }
        for (instance, _) in &mut fleet.instances {
            let process = instance.process.as_mut().unwrap();
            process.wait_until_it_says("serving service calls");
        }
        Some(fleet)
    }

    fn serve(&mut self, n: usize) {
        let has_faults = self.options.has_faults;
        let (instance, address) = &mut self.instances[n];
        let line = format!("serve --listen {address} --allow-nets 127.0.0.0/8");
        let set = |command: &mut Command| {
            command
                .env_remove("MODULES")
                .env("EXECUTION_TIMEOUT", "5000");
        };
        instance.start_as(&self.home, &self.database, &line, set, has_faults);
    }

    /// One that is neither suspended nor away.
    fn victim(&mut self) -> Option<usize> {
        let count = self.instances.len();
        let first = usize::try_from(self.random.below(64)).unwrap();
        let is_there = |n: &usize| {
            let (instance, _) = &self.instances[*n];
            instance.process.is_some() && !instance.is_suspended
        };
        (0..count).map(|n| (first + n) % count).find(is_there)
    }

    fn kill(&mut self) {
        if let Some(n) = self.victim() {
            self.instances[n].0.process.take().unwrap().kill();
            self.kills += 1;
            self.serve(n);
        }
    }

    /// Starts those again that have ended by themselves.
    fn restart(&mut self) {
        for n in 0..self.instances.len() {
            let process = &mut self.instances[n].0.process;
            if process.as_ref().is_some_and(Running::has_ended) {
                let ended = process.take().unwrap().end();
                self.ended_alone.push(last_words(&ended));
                self.serve(n);
            }
        }
    }

    fn kill_server(&mut self) {
        self.database.server.kill();
        park_timeout(Duration::from_millis(self.random.below(700)));
        self.database.server.restart();
        self.server_kills += 1;
    }

    fn resume(&mut self) {
        for (instance, _) in &mut self.instances {
            instance.resume();
        }
    }

    /// The faults of a round. Each has a rhythm of its own, so that they meet in every combination.
    fn torture(&mut self, n: usize) {
        match n % 3 {
            0 => self.database.proxy.cut_after("COMMIT"),
            1 => self.database.proxy.cut_before("COMMIT"),
            _ => {}
        }
        if n % 7 == 3 {
            self.database.end_listeners();
        }
        if self.options.rounds > SUSPENSION {
            if n % SUSPEND_EVERY == 8
                && let Some(victim) = self.victim()
            {
                self.instances[victim].0.suspend();
                self.suspensions += 1;
            }
            if n % SUSPEND_EVERY == 8 + SUSPENSION {
                self.resume();
            }
        }
        if n % 20 == 2 {
            self.kill_server();
        }
        park_timeout(Duration::from_millis(self.random.below(500)));
        self.kill();
    }

    fn run(mut self) {
        let seed = self.random.below(u64::MAX / 2);
        let submitters = self.ledger.start_submitters(SUBMITTERS, seed);
        let (clock, rounds) = (clock(), self.options.rounds);
        let every = (rounds / 20).max(5);
        for n in 0..rounds {
            let end = clock.monotonic() + ROUND;
            let share = self.options.timers * (n as u64 + 1) / rounds as u64;
            self.ledger.allow(share);
            if self.options.has_faults {
                self.torture(n);
            }
            park_timeout(end.saturating_sub(clock.monotonic()));
            self.restart();
            if (n + 1) % every == 0 {
                println!("round {}: {} accepted", n + 1, self.ledger.count());
            }
        }
        self.resume();
        self.ledger.end_submitters(submitters);
        let calls = self.ledger.settle();
        let (outcomes, late) = self.ledger.check(&calls);
        println!(
            "{} calls, {} kills of instances, {} of the server, {} suspensions, {} commits cut, {} ended by \
             themselves: {outcomes:?}; late: {late:?} ms",
            calls.len(),
            self.kills,
            self.server_kills,
            self.suspensions,
            self.database.proxy.cuts(),
            self.ended_alone.len(),
        );
        for words in &self.ended_alone {
            println!("ended by itself: {words}");
        }
        for (instance, _) in self.instances {
            let process = instance.process.unwrap();
            process.signal(Signal::TERM);
            let ended = process.end();
            assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        }
        if !self.options.has_faults {
            assert!(!outcomes.contains_key("Failed Interrupted"), "{outcomes:?}");
            assert!(self.ended_alone.is_empty());
        }
    }
}

#[test]
fn no_fault_of_instances_or_server_makes_a_call_twice_or_early_and_each_has_one_end() {
    if let Some(fleet) = Fleet::start(Options::read(6, 3, 300)) {
        fleet.run();
    }
}
