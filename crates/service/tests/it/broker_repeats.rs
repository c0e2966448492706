//! Commands that come several times and in any order: the newest counts, and it fires once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use punctual_adapters_system::{SystemClock, UuidIds};
use punctual_domain::{
    EnvelopeId, MessageEnvelope, MessageMetadata, ScheduleTimer, TimerKey, Timestamp,
};
use punctual_ports::{ClockPort, IdPort};
use rustix::process::Signal;

use crate::broker::Broker;
use crate::broker_traffic::keys;
use crate::kill::Random;
use crate::running::{Home, Running, firing, instant};

const SEEDS: [u64; 3] = [7, 1_234_567, 0x9e37_79b9_7f4a_7c15];
/// Number of timers of each kind for a seed, and of versions of each.
const TIMERS: usize = 8;
const VERSIONS: u64 = 4;
const SOON: Duration = Duration::from_millis(300);
const HOUR: Duration = Duration::from_hours(1);

/// A timer and the commands that schedule it; the last is the newest.
struct Commands {
    key: TimerKey,
    versions: Vec<MessageEnvelope>,
}

impl Commands {
    /// Only the newest may be due soon: an older one that comes first would rightly fire.
    fn new(key: TimerKey, now: Timestamp, newest_is_due_in: Duration) -> Self {
        let version = |n: u64| {
            let age = Duration::from_secs(60 - n);
            let due_in = if n + 1 == VERSIONS {
                newest_is_due_in
            } else {
                HOUR * u32::try_from(n * 2 + 1).unwrap()
            };
            MessageEnvelope {
                id: EnvelopeId::from_uuid(UuidIds.next_id()),
                timestamp: now.saturating_sub(age),
                metadata: MessageMetadata::default(),
                message: ScheduleTimer {
                    tenant_id: key.tenant_id.clone(),
                    service_call_id: key.service_call_id,
                    due_at: now.saturating_add(due_in),
                    data: None,
                }
                .into(),
            }
        };
        let versions = (0..VERSIONS).map(version).collect();
        Self { key, versions }
    }

    fn newest(&self) -> &MessageEnvelope {
        self.versions.last().unwrap()
    }
}

fn commands_of(name: &str, now: Timestamp, newest_is_due_in: Duration) -> Vec<Commands> {
    let keys = keys(name, TIMERS).into_iter();
    keys.map(|key| Commands::new(key, now, newest_is_due_in))
        .collect()
}

fn below(random: &mut Random, limit: usize) -> usize {
    usize::try_from(random.below(limit as u64)).unwrap()
}

/// Publishes each command one to five times, in any order, on either subject.
fn publish(broker: &Broker, timers: &[&Commands], random: &mut Random) {
    let mut commands = Vec::new();
    for timer in timers {
        for version in &timer.versions {
            let repeats = 1 + below(random, 5);
            commands.extend(std::iter::repeat_n((&timer.key, version), repeats));
        }
    }
    for n in (1..commands.len()).rev() {
        commands.swap(n, below(random, n + 1));
    }
    for (key, command) in commands {
        let subject = if random.below(2) == 0 {
            "timer.commands".to_owned()
        } else {
            format!("timer.commands.{}.{}", key.tenant_id, key.service_call_id)
        };
        // Without an id for the broker, which would take the repetitions away.
        broker.publish(&subject, &command.to_json().unwrap());
    }
    broker.wait_until_empty("COMMANDS");
}

fn assert_is_newest(home: &Home, commands: &Commands, state: &str) {
    let (tenant, id) = (&commands.key.tenant_id, commands.key.service_call_id);
    let timer = home.json(&format!("get --tenant {tenant} --id {id}"));
    let newest: serde_json::Value =
        serde_json::from_slice(&commands.newest().to_json().unwrap()).unwrap();
    let due_at = instant(&newest["payload"]["dueAt"]);
    assert_eq!(instant(&timer["dueAt"]), due_at, "{timer}");
    let registered_at = instant(&timer["registeredAt"]);
    assert_eq!(registered_at, commands.newest().timestamp, "{timer}");
    assert_eq!(timer["state"], state, "{timer}");
}

/// How many rows the database has.
fn rows(home: &Home) -> usize {
    let db = rusqlite::Connection::open(home.db()).unwrap();
    let count = db.query_row("SELECT count(*) FROM timer_schedules", [], |row| {
        row.get::<_, i64>(0)
    });
    usize::try_from(count.unwrap()).unwrap()
}

/// The firing ids of each timer in the stream.
fn firings(broker: &Broker) -> BTreeMap<TimerKey, BTreeSet<String>> {
    let mut firings = BTreeMap::<_, BTreeSet<_>>::new();
    for sequence in 1..=broker.last_sequence("EVENTS") {
        let (_, _, payload) = broker.message("EVENTS", sequence);
        let event = firing(std::str::from_utf8(&payload).unwrap());
        let ids = firings.entry(event.key()).or_default();
        ids.insert(event.firing_id.to_string());
    }
    firings
}

/// Waits until a timer has fired that was scheduled and due after all others: whatever should not be
/// due had its chance before it.
fn fire_a_last_one(broker: &Broker, clock: &SystemClock, name: &str) {
    let before = broker.last_sequence("EVENTS");
    let key = keys(name, 1).remove(0);
    let last = Commands::new(key.clone(), clock.now(), SOON);
    let payload = last.newest().to_json().unwrap();
    broker.publish("timer.commands", &payload);
    for sequence in before + 1.. {
        let (_, _, payload) = broker.wait_for("EVENTS", sequence);
        if firing(std::str::from_utf8(&payload).unwrap()).key() == key {
            return;
        }
    }
}

fn round(broker: &Broker, home: &Home, clock: &SystemClock, seed: u64) {
    let mut serving = Running::start(&mut broker.command(home, "serve"));
    serving.wait_until_ready();
    let random = &mut Random(seed);
    let now = clock.now();
    let events_before = broker.last_sequence("EVENTS");
    let rows_before = rows(home);
    let soon = commands_of(&format!("soon-{seed}"), now, SOON);
    let late = commands_of(&format!("late-{seed}"), now, HOUR * 2);
    let deleted = commands_of(&format!("deleted-{seed}"), now, HOUR * 2);
    let all: Vec<&Commands> = soon.iter().chain(&late).chain(&deleted).collect();
    publish(broker, &all, random);
    for timer in late.iter().chain(&deleted) {
        assert_is_newest(home, timer, "Scheduled");
    }
    fire_a_last_one(broker, clock, &format!("one-{seed}"));
    broker.wait_for("EVENTS", events_before + TIMERS as u64 + 1);
    assert_eq!(rows(home) - rows_before, 3 * TIMERS + 1, "one row for each");
    for timer in &deleted {
        let (tenant, id) = (&timer.key.tenant_id, timer.key.service_call_id);
        home.json(&format!("cancel --tenant {tenant} --id {id}"));
    }
    // Everything again, after some have fired and some were deleted.
    publish(broker, &all, random);
    fire_a_last_one(broker, clock, &format!("two-{seed}"));
    // What was under way is done then.
    serving.signal(Signal::TERM);
    assert_eq!(serving.end().code, Some(0));
    assert_eq!(rows(home) - rows_before, 2 * TIMERS + 2, "deleted for good");
    for timer in &late {
        assert_is_newest(home, timer, "Scheduled");
    }
    let firings = firings(broker);
    for timer in &soon {
        assert_is_newest(home, timer, "Reached");
        assert_eq!(firings[&timer.key].len(), 1, "{:?}", firings[&timer.key]);
    }
    for timer in late.iter().chain(&deleted) {
        assert!(!firings.contains_key(&timer.key));
    }
}

#[test]
fn each_command_up_to_five_times_in_any_order_is_one_row_and_one_firing() {
    let Some(broker) = Broker::shared() else {
        return;
    };
    let (home, clock) = (Home::new(), SystemClock::start().unwrap());
    // Makes the database.
    home.json("schedule --tenant other --in 3h");
    for seed in SEEDS {
        round(&broker, &home, &clock, seed);
    }
}
