//! Treats several instances of the service and their PostgreSQL badly, and asks the ledger what was lost.
//!
//! `cargo xtask torture --postgres` runs this for as long as one likes. A round is a second.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use punctual_adapters_system::SystemClock;
use punctual_domain::{TenantId, TimerEntry, TimerKey, Timestamp};
use punctual_ports::ClockPort;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::kill::Random;
use crate::ledger::Ledger;
use crate::postgres_fleet::{Database, Feeder, Filler, Instance, last_words, shifter};
use crate::running::{Home, PATIENCE, firing};

const TENANTS: [&str; 5] = ["t0", "t1", "t2", "t3", "t4"];
const ROUND: Duration = Duration::from_secs(1);
/// How long an instance is suspended: longer than its lease.
const SUSPENSION: usize = 12;
/// How long after its end one is started again that could not start.
const RESTART_PAUSE: Duration = Duration::from_millis(300);
/// How long everything may take to fire in the end, without anybody being killed any more.
const END: Duration = Duration::from_mins(2);
/// The disk that a run in a process of its own has.
const DISK: &str = "PUNCTUAL_SMALL_DISK";

/// What a run is to do.
pub(crate) struct Options {
    pub(crate) rounds: usize,
    pub(crate) instances: usize,
    pub(crate) timers: u64,
    pub(crate) has_faults: bool,
    pub(crate) is_pooled: bool,
}

impl Options {
    pub(crate) fn read(rounds: usize, instances: usize, timers: u64) -> Self {
        let number = |name: &str| {
            let text = std::env::var(name).ok()?;
            Some(text.parse::<u64>().expect("a number"))
        };
        let size = |number: Option<u64>| number.map(|it| usize::try_from(it).unwrap());
        let rounds = size(number("PUNCTUAL_KILL_ROUNDS")).unwrap_or(rounds);
        Self {
            rounds,
            instances: size(number("PUNCTUAL_INSTANCES")).unwrap_or(instances),
            timers: number("PUNCTUAL_TIMERS").unwrap_or(timers),
            has_faults: std::env::var_os("PUNCTUAL_NO_FAULTS").is_none(),
            is_pooled: std::env::var_os("PUNCTUAL_PGBOUNCER").is_some(),
        }
    }

    /// Within how long most timers are due. Those that are moved are due after that, and those that will be
    /// cancelled last.
    fn spread(&self) -> Duration {
        ROUND * if self.rounds > SUSPENSION { 20 } else { 3 }
    }
}

/// How often something was done.
#[derive(Debug, Default)]
struct Counts {
    kills: usize,
    kills_of_server: usize,
    suspensions: usize,
    orderly_restarts: usize,
    cut_commits: usize,
    listeners: usize,
    full_disks: usize,
    cancelled: usize,
    /// Instances that ended although nobody had told them to.
    ended_alone: Vec<String>,
}

struct Torture {
    options: Options,
    clock: SystemClock,
    begun: Duration,
    home: Home,
    database: Database,
    disk: Option<Filler>,
    ledger: Ledger,
    random: Random,
    instances: Vec<Instance>,
    /// When those are started again that have ended by themselves.
    restarts: Vec<(Duration, usize)>,
    feeder: Feeder,
    movable: Vec<TimerKey>,
    cancellable: Vec<(Timestamp, TimerKey)>,
    asked: u64,
    counts: Counts,
}

impl Torture {
    /// `None` where there is no PostgreSQL.
    fn start(options: Options, disk: Option<&Path>) -> Option<Self> {
        let mut settings = vec![("max_connections", "200")];
        if disk.is_some() {
            settings.extend([("min_wal_size", "32MB"), ("max_wal_size", "64MB")]);
        }
        let database = Database::start(options.is_pooled, &settings)?;
        let (home, ledger) = (Home::new(), Ledger::new());
        let seed = ledger.now().as_millis().unsigned_abs();
        println!("the instants are drawn from {seed}");
        let mut instances: Vec<_> = (0..options.instances).map(Instance::new).collect();
        for instance in &mut instances {
            instance.start(&home, &database, options.has_faults);
        }
        for instance in &mut instances {
            instance.process.as_mut().unwrap().wait_until_ready();
        }
        let clock = SystemClock::start().unwrap();
        Some(Self {
            feeder: Feeder::start(&home, &database, options.has_faults),
            begun: clock.monotonic(),
            clock,
            options,
            home,
            database,
            disk: disk.map(Filler::on),
            ledger,
            random: Random(seed),
            instances,
            restarts: Vec::new(),
            movable: Vec::new(),
            cancellable: Vec::new(),
            asked: 0,
            counts: Counts::default(),
        })
    }

    /// Lets time pass, in which whatever comes is written down.
    fn pass(&mut self, time: Duration) {
        let end = self.clock.monotonic() + time;
        loop {
            self.read();
            if self.clock.monotonic() >= end {
                return;
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }

    /// Writes down what has come, and starts instances again that have ended by themselves.
    fn read(&mut self) {
        // Evenly: a commit that is cut is that of a few.
        let gone = self
            .clock
            .monotonic()
            .saturating_sub(self.begun)
            .as_millis();
        let whole = ROUND.as_millis() * self.options.rounds as u128;
        let share = self.options.timers * u64::try_from(gone.min(whole)).unwrap();
        let goal = share / u64::try_from(whole).unwrap();
        self.feed(goal.saturating_sub(self.asked));
        self.read_acknowledgements();
        let now = self.clock.monotonic();
        for (_, n) in self
            .restarts
            .extract_if(.., |(at, _)| *at <= now)
            .collect::<Vec<_>>()
        {
            self.start_instance(n);
        }
        for n in 0..self.instances.len() {
            self.read_firings(n);
        }
    }

    fn read_acknowledgements(&mut self) {
        while let Ok(Some(line)) = self.feeder.process.line_within(Duration::ZERO) {
            let line: Value = serde_json::from_str(&line).unwrap();
            let entry = |field: &str| line[field].as_str().unwrap().to_owned();
            let tenant = TenantId::new(&entry("tenantId")).unwrap();
            let key = TimerKey::new(tenant, entry("serviceCallId").parse().unwrap());
            let due_at = entry("dueAt").parse().unwrap();
            self.ledger.acknowledged(&key, due_at);
        }
    }

    fn read_firings(&mut self, n: usize) {
        loop {
            let instance = &mut self.instances[n];
            let Some(process) = &instance.process else {
                return;
            };
            match process.line_within(Duration::ZERO) {
                Ok(Some(line)) => self.ledger.fired_in(n, &firing(&line)),
                Ok(None) => return,
                Err(()) => {
                    // Where the server is away, it cannot start.
                    let ended = instance.process.take().unwrap().end();
                    self.counts.ended_alone.push(last_words(&ended));
                    let now = self.clock.monotonic();
                    self.restarts.push((now + RESTART_PAUSE, n));
                    return;
                }
            }
        }
    }

    fn start_instance(&mut self, n: usize) {
        let has_faults = self.options.has_faults;
        self.instances[n].start(&self.home, &self.database, has_faults);
    }

    /// A due time that no other schedule of the timer has: past, or within the next seconds.
    fn due_at(&mut self) -> Timestamp {
        let now = self.ledger.now();
        let millis = Duration::from_millis;
        match self.random.below(4) {
            0 => now.saturating_sub(millis(1_000 + self.random.below(3_600_000))),
            1 => {
                let most = u64::try_from(self.options.spread().as_millis()).unwrap();
                now.saturating_add(millis(self.random.below(most)))
            }
            _ => now.saturating_add(millis(self.random.below(2_000))),
        }
    }

    fn new_key(&mut self) -> TimerKey {
        let tenant = usize::try_from(self.random.below(5)).unwrap();
        let tenant = TenantId::new(TENANTS[tenant]).unwrap();
        TimerKey::named(tenant, &self.asked.to_string())
    }

    /// Requests timers: new ones, moved ones, and one that will be cancelled.
    fn feed(&mut self, count: u64) {
        for n in 0..count {
            self.asked += 1;
            let is_move = self.random.below(10) == 0 && !self.movable.is_empty();
            let (key, due_at) = if is_move {
                let at = self.random.below(self.movable.len() as u64);
                // Once moved, not again: the due times of one timer have to differ.
                let key = self.movable.swap_remove(usize::try_from(at).unwrap());
                let later = Duration::from_millis(1 + self.random.below(2_000));
                let later = self.options.spread() + later;
                (key, self.ledger.now().saturating_add(later))
            } else if n == 0 && self.random.below(20) == 0 {
                let (key, now) = (self.new_key(), self.ledger.now());
                self.cancellable.push((now, key.clone()));
                (key, now.saturating_add(self.options.spread() + 5 * ROUND))
            } else {
                let (key, due_at) = (self.new_key(), self.due_at());
                if self.random.below(5) == 0 {
                    self.movable.push(key.clone());
                }
                (key, due_at)
            };
            self.ledger.asked(&key, due_at);
            let line = json!({
                "tenantId": key.tenant_id,
                "serviceCallId": key.service_call_id,
                "dueAt": due_at,
                "data": {"n": self.asked},
            });
            self.feeder.schedule(line.to_string());
        }
        let oldest = self.movable.len().saturating_sub(500);
        self.movable.drain(..oldest);
    }

    /// Cancels a timer that was requested a while ago, if it was stored.
    fn cancel(&mut self) {
        let before = self.ledger.now().saturating_sub(2 * ROUND);
        if self.cancellable.first().is_none_or(|(at, _)| *at > before) {
            return;
        }
        let (_, key) = self.cancellable.remove(0);
        let (tenant, id) = (&key.tenant_id, key.service_call_id);
        let line = format!("cancel --tenant {tenant} --id {id}");
        let mut command = self.database.command(&self.home, &line, false);
        if crate::running::run(&mut command).code == Some(0) {
            self.ledger.cancelled(&key);
            self.counts.cancelled += 1;
        }
    }

    /// One that is neither suspended nor away.
    fn victim(&mut self) -> Option<usize> {
        let first = usize::try_from(self.random.below(64)).unwrap();
        let count = self.instances.len();
        let is_there = |n: &usize| {
            let instance = &self.instances[*n];
            instance.process.is_some() && !instance.is_suspended
        };
        (0..count).map(|n| (first + n) % count).find(is_there)
    }

    /// Kills an instance, whatever it is doing, and starts it again.
    fn kill(&mut self) {
        let Some(n) = self.victim() else {
            return;
        };
        let mut process = self.instances[n].process.take().unwrap();
        process.kill();
        self.counts.kills += 1;
        // What it had written counts.
        while let Ok(Some(line)) = process.line_within(PATIENCE) {
            self.ledger.fired_in(n, &firing(&line));
        }
        self.start_instance(n);
    }

    /// Stops an instance in good order, and starts it again.
    fn restart(&mut self) {
        let Some(n) = self.victim() else {
            return;
        };
        let process = self.instances[n].process.take().unwrap();
        process.signal(Signal::TERM);
        let ended = process.end();
        for line in ended.stdout.lines() {
            self.ledger.fired_in(n, &firing(line));
        }
        self.counts.orderly_restarts += 1;
        self.start_instance(n);
    }

    fn suspend(&mut self) {
        if let Some(n) = self.victim() {
            self.instances[n].suspend();
            self.counts.suspensions += 1;
        }
    }

    fn resume(&mut self) {
        for instance in &mut self.instances {
            instance.resume();
        }
    }

    fn kill_server(&mut self) {
        self.database.server.kill();
        let away = Duration::from_millis(self.random.below(700));
        self.pass(away);
        self.database.server.restart();
        self.counts.kills_of_server += 1;
    }

    /// Fills the disk of the server until somebody cannot store, and gives the room back.
    fn fill_disk(&mut self) {
        let Some(disk) = self.disk.take() else {
            return;
        };
        disk.fill();
        self.pass(2 * ROUND);
        disk.remove();
        self.disk = Some(disk);
        self.counts.full_disks += 1;
        if !self.database.answers() {
            self.database.server.restart();
        }
    }

    /// The faults of a round. Each has a rhythm of its own, so that they meet in every combination.
    fn torture(&mut self, n: usize) {
        let proxy = &self.database.proxy;
        match n % 3 {
            0 => proxy.cut_after("COMMIT"),
            1 => proxy.cut_before("COMMIT"),
            _ => {}
        }
        if n % 7 == 3 {
            self.counts.listeners += self.database.end_listeners();
        }
        if n % 30 == 8 && self.options.rounds > SUSPENSION {
            self.suspend();
        }
        if n % 30 == 8 + SUSPENSION {
            self.resume();
        }
        if n % 9 == 6 {
            self.restart();
        }
        if n % 10 == 4 {
            self.fill_disk();
        }
        if n % 20 == 2 {
            self.kill_server();
        }
        let moment = Duration::from_millis(self.random.below(500));
        self.pass(moment);
        self.kill();
    }

    fn round(&mut self, n: usize) {
        let end = self.clock.monotonic() + ROUND;
        if self.options.has_faults {
            self.torture(n);
        }
        self.cancel();
        self.pass(end.saturating_sub(self.clock.monotonic()));
    }

    /// Lets everything fire that is still owed, and stops all in good order.
    fn finish(&mut self) {
        self.resume();
        self.feeder.finish();
        let end = self.clock.monotonic() + END;
        while self.ledger.owed() > 0 && self.clock.monotonic() < end {
            self.pass(ROUND);
        }
        self.counts.cut_commits = self.database.proxy.cuts();
        self.pass(2 * RESTART_PAUSE);
        for n in 0..self.instances.len() {
            let process = self.instances[n].process.take().unwrap();
            process.signal(Signal::TERM);
            let ended = process.end();
            for line in ended.stdout.lines() {
                self.ledger.fired_in(n, &firing(line));
            }
            assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        }
    }

    /// Compares the database with the ledger, while no process serves it.
    fn check_the_database(&mut self) {
        for tenant in TENANTS {
            let mut after = String::new();
            loop {
                let line = format!("list --tenant {tenant} --limit 1000 {after}");
                let mut command = self.database.command(&self.home, &line, false);
                let ended = crate::running::run(&mut command);
                assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
                let page: Value = serde_json::from_str(&ended.stdout).unwrap();
                for item in page["items"].as_array().unwrap() {
                    let entry: TimerEntry = serde_json::from_value(item.clone()).unwrap();
                    self.ledger.stored(&entry);
                }
                match page["nextCursor"].as_str() {
                    Some(cursor) => after = format!("--after {cursor}"),
                    None => break,
                }
            }
        }
    }

    fn report(&self) -> String {
        let (ledger, counts) = (&self.ledger, &self.counts);
        format!(
            "{} kills of instances, {} of the server, {} suspended, {} stopped in good order, \
             {} commits cut, {} listeners ended, {} times no room, {} cancelled, \
             {} ended by themselves; {} acknowledged of {}, {} firings, {} of them repeated, {} owed; \
             late after being due and stored: {}",
            counts.kills,
            counts.kills_of_server,
            counts.suspensions,
            counts.orderly_restarts,
            counts.cut_commits.max(self.database.proxy.cuts()),
            counts.listeners,
            counts.full_disks,
            counts.cancelled,
            counts.ended_alone.len(),
            ledger.acknowledged,
            self.asked,
            ledger.firings,
            ledger.duplicates,
            ledger.owed(),
            ledger.lateness(),
        )
    }

    fn run(mut self) {
        if self.options.has_faults && self.options.instances > 2 && shifter().is_none() {
            println!("left out: a shifted clock (Debian's package `faketime` is not installed)");
        }
        let every = (self.options.rounds / 20).max(5);
        for n in 0..self.options.rounds {
            self.round(n);
            if (n + 1) % every == 0 {
                println!("round {}: {}", n + 1, self.report());
            }
        }
        self.finish();
        self.check_the_database();
        println!("in the end: {}", self.report());
        for words in &self.counts.ended_alone {
            println!("ended by itself: {words}");
        }
        self.ledger.assert_all_is_well();
        if !self.options.has_faults {
            assert_eq!(self.ledger.duplicates, 0, "nothing has failed");
            assert!(self.counts.ended_alone.is_empty());
        }
        assert!(self.ledger.acknowledged > 0);
    }
}

#[test]
fn no_fault_of_instances_or_server_loses_a_timer_or_makes_it_early() {
    let options = Options::read(6, 3, 600);
    if let Some(torture) = Torture::start(options, None) {
        torture.run();
    }
}

/// Once more in a process that has mounted a small disk for the server.
#[test]
fn a_server_without_room_loses_no_timer() {
    let name = "postgres_kill::a_server_without_room_loses_no_timer";
    if let Some(disk) = std::env::var_os(DISK).map(PathBuf::from) {
        let options = Options {
            is_pooled: false,
            has_faults: true,
            ..Options::read(6, 2, 600)
        };
        if let Some(torture) = Torture::start(options, Some(&disk)) {
            torture.run();
        }
        return;
    }
    let home = Home::new();
    let disk = home.path("disk");
    std::fs::create_dir(&disk).unwrap();
    let mount = |then: &str| {
        let line = format!("mount -t tmpfs -o size=400m,mode=1777 small \"$1\" && {then}");
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &line, "sh"]).arg(&disk);
        command
    };
    if !mount("true").output().is_ok_and(|it| it.status.success()) {
        println!("skipped: {name}: a disk can be mounted by root alone");
        return;
    }
    let again = mount("shift && exec \"$@\"")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(DISK, &disk)
        .env("TMPDIR", &disk)
        .status();
    assert!(again.unwrap().success(), "on its disk it has failed");
}
