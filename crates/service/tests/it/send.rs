//! `send`: a command goes through a real broker, and its event comes back.

use punctual_adapters_system::{SystemClock, UuidIds};
use punctual_domain::{
    EnvelopeId, Message, MessageEnvelope, MessageMetadata, Registration, ScheduledTimer,
    ServiceCallId, TimerKey, Timestamp,
};
use punctual_ports::{ClockPort, IdPort};
use punctual_test_servers::NatsServer;
use serde_json::Value;

use crate::broker::Broker;
use crate::refusals::assert_refused;
use crate::running::{Home, Running, instant, run};

/// The line that says what was sent.
fn sent(line: &str) -> (MessageEnvelope, Value) {
    let line: Value = serde_json::from_str(line).unwrap();
    let envelope = serde_json::from_value(line["sent"].clone()).unwrap();
    (envelope, line)
}

/// The event of a timer that was due at some time.
fn event_of(command: &MessageEnvelope, due_at: Timestamp) -> MessageEnvelope {
    let id = command.message.service_call_id();
    let timer = ScheduledTimer {
        key: TimerKey::new(command.tenant_id().clone(), id),
        correlation_id: command.metadata.correlation_id.unwrap(),
        registration: Registration {
            registered_at: command.timestamp,
            due_at,
        },
        data: None,
    };
    MessageEnvelope {
        id: EnvelopeId::from_uuid(UuidIds.next_id()),
        timestamp: due_at,
        metadata: MessageMetadata::default(),
        message: timer.reach(due_at).unwrap().event().into(),
    }
}

/// The same command for another timer of the tenant.
fn another(command: &MessageEnvelope) -> MessageEnvelope {
    let mut command = command.clone();
    if let Message::ScheduleTimer(timer) = &mut command.message {
        timer.service_call_id = ServiceCallId::MAX;
    }
    command
}

fn due_at(command: &MessageEnvelope) -> Timestamp {
    match &command.message {
        Message::ScheduleTimer(timer) => timer.due_at,
        other => panic!("{other:?}"),
    }
}

fn subject_of(command: &MessageEnvelope) -> String {
    format!("timer.events.{}", command.tenant_id())
}

#[test]
fn what_the_broker_has_stored_is_what_was_printed() {
    let Some(broker) = Broker::shared() else {
        return;
    };
    broker.make_streams();
    let home = Home::new();
    let clock = SystemClock::start().unwrap();
    let before = clock.now();
    let line = "send --tenant a --in 1h --no-wait --data {\"say\":\"tea\"}";
    let ended = run(&mut broker.command(&home, line));
    assert_eq!(
        (ended.code, ended.stderr.as_str()),
        (Some(0), ""),
        "{ended:?}"
    );
    assert_eq!(ended.stdout.lines().count(), 1, "{ended:?}");
    let (command, line) = sent(&ended.stdout);
    assert_eq!(line["stream"], broker.stream_name("COMMANDS"));
    assert!(command.timestamp >= before && command.timestamp <= clock.now());
    assert!(command.metadata.correlation_id.is_some());
    let (subject, id, payload) = broker.message("COMMANDS", line["sequence"].as_u64().unwrap());
    assert_eq!(MessageEnvelope::from_json(&payload), Ok(command.clone()));
    assert_eq!(id, command.id.to_string());
    assert_eq!(subject, format!("{}.timer.commands.a", broker.prefix));
    assert!(!home.db().exists(), "it needs no database");
}

#[test]
fn the_event_of_this_command_is_waited_for_and_no_other() {
    let Some(broker) = Broker::shared() else {
        return;
    };
    broker.make_streams();
    let home = Home::new();
    let waiting = Running::start(&mut broker.command(&home, "send --tenant a --in 0s --name x"));
    let (command, _) = sent(&waiting.line().unwrap());
    let due_at = due_at(&command);
    let subject = subject_of(&command);
    broker.publish(&subject, b"no envelope");
    let earlier = event_of(&command, due_at.next());
    broker.publish(&subject, &earlier.to_json().unwrap());
    let of_another_timer = event_of(&another(&command), due_at);
    broker.publish(&subject, &of_another_timer.to_json().unwrap());
    let event = event_of(&command, due_at);
    broker.publish(&subject, &event.to_json().unwrap());
    let ended = waiting.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let shown = MessageEnvelope::from_json(ended.stdout.trim().as_bytes());
    assert_eq!(shown, Ok(event));
}

#[test]
fn an_event_of_the_same_timer_from_before_is_none() {
    let Some(broker) = Broker::shared() else {
        return;
    };
    broker.make_streams();
    let home = Home::new();
    let line = "send --tenant a --due 2026-01-01T00:00:00Z --name x";
    let first = run(&mut broker.command(&home, &format!("{line} --no-wait")));
    let (command, _) = sent(&first.stdout);
    let old = event_of(&command, due_at(&command));
    broker.publish(&subject_of(&command), &old.to_json().unwrap());
    let again = run(&mut broker.command(&home, &format!("{line} --wait 300ms")));
    assert_eq!(again.code, Some(1), "{again:?}");
    assert_eq!(again.stdout.lines().count(), 1, "{again:?}");
    assert_eq!(again.stderr.lines().count(), 1, "{again:?}");
    for words in [
        "no event of that timer",
        "2026-01-01",
        "is timer-service running",
    ] {
        assert!(again.stderr.contains(words), "{again:?}");
    }
}

#[test]
fn an_event_is_found_although_the_broker_went_away_in_between() {
    let Some(mut server) = NatsServer::start() else {
        return;
    };
    let home = Home::new();
    let broker = Broker::at(&server.url());
    broker.make_streams();
    let waiting = Running::start(&mut broker.command(&home, "send --tenant a --in 0s"));
    let (command, _) = sent(&waiting.line().unwrap());
    server.restart();
    // A connection of its own, which knows nothing of the one that broke.
    let mut after = Broker::at(&server.url());
    after.prefix.clone_from(&broker.prefix);
    let event = event_of(&command, due_at(&command));
    after.publish(&subject_of(&command), &event.to_json().unwrap());
    let ended = waiting.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains(&event.id.to_string()), "{ended:?}");
}

#[test]
fn a_long_wait_is_announced() {
    let Some(broker) = Broker::shared() else {
        return;
    };
    broker.make_streams();
    let home = Home::new();
    let mut waiting = Running::start(&mut broker.command(&home, "send --tenant a --in 2h"));
    let (command, _) = sent(&waiting.line().unwrap());
    let said = waiting.wait_until_it_says("--no-wait");
    let until = due_at(&command).saturating_add(std::time::Duration::from_mins(1));
    assert!(said.contains(&until.to_string()), "{said}");
    let printed: Value = serde_json::to_value(&command).unwrap();
    assert_eq!(instant(&printed["payload"]["dueAt"]), due_at(&command));
}

#[test]
fn a_broker_without_the_streams_is_named() {
    let Some(broker) = Broker::shared() else {
        return;
    };
    let home = Home::new();
    for (line, stream) in [
        ("send --tenant a --in 0s", "EVENTS"),
        ("send --tenant a --in 0s --no-wait", "COMMANDS"),
    ] {
        let ended = run(&mut broker.command(&home, line));
        let words = [&broker.stream_name(stream), "is timer-service running"];
        assert_refused(line, &ended, 1, &words);
    }
    assert_eq!(broker.streams(), [""; 0], "nothing is made");
}

#[test]
fn no_broker_and_one_that_does_not_answer_are_told_apart() {
    let home = Home::new();
    let none = home.run("send --tenant a --in 0s");
    assert_refused("none", &none, 2, &["--broker", "TIMER_BROKER_URL"]);
    let away = home.run("send --tenant a --in 0s --broker nats://me:hunter2@127.0.0.1:1");
    assert_refused("away", &away, 1, &["nats://127.0.0.1:1", "does not answer"]);
    assert!(!away.stderr.contains("hunter2"), "{away:?}");
}

#[test]
fn a_broker_without_jetstream_is_named() {
    let Some(server) = NatsServer::start_with("jetstream: false\n") else {
        return;
    };
    let home = Home::new();
    for line in [
        "send --tenant a --in 0s",
        "send --tenant a --in 0s --no-wait",
    ] {
        let mut command = home.command(line);
        let ended = run(command.env("TIMER_BROKER_URL", server.url()));
        assert_refused(line, &ended, 1, &["JetStream"]);
    }
}
