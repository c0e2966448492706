//! Kills the service and its broker in turn under load, and asks the ledger what was lost.
//!
//! `cargo xtask torture --broker --rounds N` runs this for as long as one likes.

use std::time::Duration;

use punctual_test_servers::NatsServer;
use rustix::process::Signal;

use crate::broker::Broker;
use crate::broker_traffic::{Traffic, keys};
use crate::kill::Random;
use crate::running::{Home, Running};

const ROUNDS: usize = 4;
/// How many commands are sent in one round, and within how long they are due.
const LOAD: u64 = 400;
const DUE_WITHIN: Duration = Duration::from_secs(3);

struct Torture {
    home: Home,
    server: NatsServer,
    broker: Broker,
    traffic: Traffic,
    /// `None` only while it is started again.
    serving: Option<Running>,
    random: Random,
    kills_of_service: usize,
    kills_of_broker: usize,
    /// Kills while commands were on their way without an acknowledgement.
    kills_amid_commands: usize,
    /// Kills while timers were due whose events had not come.
    kills_amid_events: usize,
}

impl Torture {
    /// `None` where there is no broker to be had.
    fn new() -> Option<Self> {
        let (home, server) = (Home::new(), NatsServer::start()?);
        let broker = Broker::at(&server.url());
        let traffic = Traffic::at(&broker);
        let seed = traffic.now().as_millis().unsigned_abs();
        println!("the instants of the kills are drawn from {seed}");
        let mut torture = Self {
            home,
            server,
            broker,
            traffic,
            serving: None,
            random: Random(seed),
            kills_of_service: 0,
            kills_of_broker: 0,
            kills_amid_commands: 0,
            kills_amid_events: 0,
        };
        torture.start();
        // Whoever serves first makes the streams.
        let serving = torture.serving.as_mut();
        serving.into_iter().for_each(Running::wait_until_ready);
        Some(torture)
    }

    fn start(&mut self) {
        let mut command = self.broker.command(&self.home, "serve");
        self.serving = Some(Running::start(&mut command));
    }

    fn pause(&mut self, below_millis: u64) {
        let time = Duration::from_millis(self.random.below(below_millis));
        self.traffic.pass(time);
    }

    /// Waits for the instant of the kill: among the commands, among the events, or at any moment.
    fn until_the_instant(&mut self, n: usize) {
        let (acknowledged, seen) = {
            let book = self.traffic.book();
            (book.acknowledged, book.seen.len())
        };
        let mut some = |most: u64| 1 + usize::try_from(self.random.below(most)).unwrap();
        match n / 2 % 3 {
            0 => {
                let goal = acknowledged + some(LOAD / 2);
                let what = "some commands are acknowledged";
                self.traffic.until(what, |book| book.acknowledged >= goal);
            }
            1 => {
                let goal = seen + some(LOAD / 2);
                let what = "some events have come";
                self.traffic.until(what, |book| book.seen.len() >= goal);
            }
            _ => self.pause(500),
        }
    }

    fn count_what_is_under_way(&mut self) {
        let book = self.traffic.book();
        self.kills_amid_commands += usize::from(book.acknowledged < book.asked);
        self.kills_amid_events += usize::from(book.ledger.overdue() > 0);
    }

    fn round(&mut self, n: usize) {
        let load = keys(&format!("round-{n}"), usize::try_from(LOAD).unwrap());
        self.traffic.send(load, DUE_WITHIN);
        self.until_the_instant(n);
        self.count_what_is_under_way();
        let are_both = n % 10 >= 8;
        if n.is_multiple_of(2) || are_both {
            self.serving.as_mut().unwrap().kill();
            self.kills_of_service += 1;
        }
        if !n.is_multiple_of(2) || are_both {
            self.server.kill();
            self.kills_of_broker += 1;
            self.pause(700);
            self.server.restart();
        }
        if n.is_multiple_of(2) || are_both {
            // Its end is waited for: its database is free again.
            self.serving = None;
            self.pause(300);
            self.start();
        }
    }

    /// Lets everything arrive that is still owed, and stops in good order.
    fn finish(&mut self) {
        self.traffic.until_all_is_done();
        let serving = self.serving.take().unwrap();
        serving.signal(Signal::TERM);
        let ended = serving.end();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert_eq!(ended.stdout, "");
    }

    fn report(&self) -> String {
        format!(
            "{}; {} kills of the service and {} of the broker ({} amid commands, {} amid events)",
            self.traffic.report(),
            self.kills_of_service,
            self.kills_of_broker,
            self.kills_amid_commands,
            self.kills_amid_events,
        )
    }
}

#[test]
fn no_kill_of_service_or_broker_loses_a_command() {
    let rounds = std::env::var("PUNCTUAL_KILL_ROUNDS").ok();
    let rounds = rounds.map_or(ROUNDS, |text| text.parse().expect("a number of rounds"));
    let Some(mut torture) = Torture::new() else {
        return;
    };
    for n in 0..rounds {
        torture.round(n);
        println!("round {}: {}", n + 1, torture.report());
    }
    torture.finish();
    println!("in the end: {}", torture.report());
    let book = torture.traffic.book();
    book.ledger.assert_all_is_well();
    assert_eq!(book.acknowledged, rounds * usize::try_from(LOAD).unwrap());
    drop(book);
    let (service, broker) = (torture.kills_of_service, torture.kills_of_broker);
    assert!(service >= rounds / 2 && broker >= rounds / 2);
    let amid = torture.kills_amid_commands.max(torture.kills_amid_events);
    assert!(
        amid * 4 >= rounds,
        "too few of the kills hit while something was under way: {}",
        torture.report()
    );
}
