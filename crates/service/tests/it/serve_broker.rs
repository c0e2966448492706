//! Serving with a broker: commands come from it, events leave through it, and it may come and go.

use punctual_adapters_nats::async_nats::jetstream::stream::{Config, StorageType};
use punctual_adapters_system::SystemClock;
use punctual_domain::{DueTimeReached, MessageEnvelope};
use punctual_ports::ClockPort;
use punctual_test_servers::NatsServer;
use rustix::process::Signal;
use serde_json::Value;

use crate::broker::Broker;
use crate::running::{Home, PATIENCE, Running, firing, run};

const READY: &str = "the broker is ready";

fn serve(broker: &Broker, home: &Home) -> Running {
    let mut serving = Running::start(&mut broker.command(home, "serve"));
    serving.wait_until_ready();
    serving
}

/// Stops it, and makes sure that it ended well and wrote nothing to standard output.
fn stop(serving: Running) -> String {
    serving.signal(Signal::TERM);
    let ended = serving.end();
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (Some(0), ""),
        "{ended:?}"
    );
    ended.stderr
}

/// Sends, and reads both lines.
fn send(broker: &Broker, home: &Home, line: &str) -> (MessageEnvelope, DueTimeReached) {
    let ended = run(&mut broker.command(home, &format!("send {line}")));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let lines: Vec<&str> = ended.stdout.lines().collect();
    let [sent, event] = lines[..] else {
        panic!("{ended:?}");
    };
    let sent: Value = serde_json::from_str(sent).unwrap();
    (
        serde_json::from_value(sent["sent"].clone()).unwrap(),
        firing(event),
    )
}

#[test]
fn a_command_comes_in_and_its_event_goes_out() {
    let Some(broker) = Broker::shared() else {
        return;
    };
    let home = Home::new();
    let serving = serve(&broker, &home);
    let line = "--tenant a --in 300ms --name x --data {\"say\":\"tea\"}";
    let (command, event) = send(&broker, &home, line);
    assert_eq!(event.service_call_id, command.message.service_call_id());
    assert!(event.reached_at >= event.due_at);
    assert_eq!(event.data.unwrap().as_json(), "{\"say\":\"tea\"}");
    let timer = home.json("get --tenant a --name x");
    let correlation = command.metadata.correlation_id.unwrap();
    assert_eq!(timer["correlationId"], correlation.to_string());
    // One that has fired is not fired again by another command.
    let again = run(&mut broker.command(&home, "send --tenant a --in 0s --name x --wait 500ms"));
    assert_eq!(again.code, Some(1), "{again:?}");
    stop(serving);
}

#[test]
fn what_is_scheduled_in_the_file_leaves_through_the_broker() {
    let Some(broker) = Broker::shared() else {
        return;
    };
    let home = Home::new();
    let serving = serve(&broker, &home);
    let timer = home.json("schedule --tenant a --in 0s");
    let (subject, id, payload) = broker.wait_for("EVENTS", 1);
    let event = firing(std::str::from_utf8(&payload).unwrap());
    assert_eq!(event.service_call_id.to_string(), timer["serviceCallId"]);
    assert_eq!(id, event.firing_id.to_string());
    assert_eq!(subject, format!("{}.timer.events.a", broker.prefix));
    stop(serving);
}

#[test]
fn what_can_never_be_handled_becomes_a_dead_letter_and_the_next_goes_on() {
    let Some(broker) = Broker::shared() else {
        return;
    };
    let home = Home::new();
    let serving = serve(&broker, &home);
    broker.publish("timer.commands", b"{\"no\":\"envelope\"}");
    broker.publish("timer.commands.a", b"\xff\xfe");
    send(&broker, &home, "--tenant a --in 0s");
    // The two are of other consumers and other turns than the good one, so they may come later.
    let clock = SystemClock::start().unwrap();
    let begun = clock.monotonic();
    let dead_letters = loop {
        let dead_letters = home.json("dead-letters --payload");
        if dead_letters["items"].as_array().unwrap().len() == 2 {
            break dead_letters;
        }
        let waited = clock.monotonic().saturating_sub(begun);
        assert!(waited < PATIENCE, "{dead_letters}");
    };
    let payloads = dead_letters["items"].as_array().unwrap().iter();
    let payloads: Vec<_> = payloads.filter_map(|it| it["payload"].as_str()).collect();
    assert_eq!(payloads, ["{\"no\":\"envelope\"}"]);
    stop(serving);
}

#[test]
fn it_starts_without_the_broker_and_goes_on_when_that_is_there() {
    let Some(mut server) = NatsServer::start() else {
        return;
    };
    let home = Home::new();
    let broker = Broker::at(&server.url());
    server.stop();
    let mut serving = Running::start(&mut broker.command(&home, "serve"));
    serving.wait_until_it_says("going on without the broker");
    serving.wait_until_ready();
    // Due while nobody can be told.
    let timer = home.json("schedule --tenant a --in 0s");
    server.restart();
    serving.wait_until_it_says(READY);
    let mut after = Broker::at(&server.url());
    after.prefix.clone_from(&broker.prefix);
    let (_, _, payload) = after.wait_for("EVENTS", 1);
    let event = firing(std::str::from_utf8(&payload).unwrap());
    assert_eq!(event.service_call_id.to_string(), timer["serviceCallId"]);
    send(&after, &home, "--tenant a --in 0s");
    stop(serving);
}

#[test]
fn a_broker_that_would_lose_messages_is_refused() {
    let Some(broker) = Broker::shared() else {
        return;
    };
    broker.make_stream(Config {
        name: broker.stream_name("EVENTS"),
        subjects: vec![
            format!("{}.*.events", broker.prefix),
            format!("{}.*.events.>", broker.prefix),
        ],
        storage: StorageType::Memory,
        ..Config::default()
    });
    let refused = |broker: &Broker, words: &str| {
        let ended = run(&mut broker.command(&Home::new(), "serve"));
        assert_eq!(ended.code, Some(3), "{ended:?}");
        let last = ended.stderr.lines().last().unwrap();
        assert!(
            last.starts_with("error: ") && last.contains(words),
            "{ended:?}"
        );
    };
    refused(&broker, "is kept in memory");
    let Some(broker) = Broker::shared() else {
        return;
    };
    broker.make_streams();
    broker.make_bad_consumer("timer_timer-commands");
    refused(&broker, "gives up on messages after some deliveries");
}

#[test]
fn a_broker_that_does_not_let_us_in_is_refused_and_no_secret_is_logged() {
    let config = "authorization { user: \"me\", password: \"hunter2\" }\n";
    let Some(server) = NatsServer::start_with(config) else {
        return;
    };
    let home = Home::new();
    let refused = |user: &str| {
        let url = server.url().replace("nats://", &format!("nats://{user}@"));
        run(home.command("serve").env("TIMER_BROKER_URL", url))
    };
    let ended = refused("me:hunter3");
    assert_eq!(ended.code, Some(3), "{ended:?}");
    let last = ended.stderr.lines().last().unwrap();
    assert!(
        last.starts_with("error: ") && last.contains("does not let us in"),
        "{ended:?}"
    );
    assert!(!ended.stderr.contains("hunter3"), "{ended:?}");
    let driver = "\"target\":\"async_nats";
    assert!(!ended.stderr.contains(driver), "it is said once: {ended:?}");

    let url = server.url().replace("nats://", "nats://me:hunter2@");
    let command = |line: &str| {
        let mut command = home.command(line);
        command.env("TIMER_BROKER_URL", &url);
        command
    };
    // The first one makes the streams; of the second every line is checked.
    let mut serving = Running::start(&mut command("serve"));
    let said = serving.wait_until_it_says("serving timers");
    assert!(said.contains(&server.url()), "{said}");
    assert!(!said.contains("hunter2"), "{said}");
    stop(serving);
    let serving = Running::start(&mut command("serve --log-level trace"));
    let sent = run(&mut command("send --tenant a --in 0s"));
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let said = stop(serving);
    assert!(said.contains(driver), "{said}");
    assert!(!said.contains("hunter2"), "{said}");
}

#[test]
fn nobody_needs_to_read_standard_output() {
    let Some(broker) = Broker::shared() else {
        return;
    };
    let home = Home::new();
    let mut command = broker.command(&home, "serve");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
    let mut serving = Running::start_unread(command.stdout(full.unwrap()));
    serving.wait_until_ready();
    send(&broker, &home, "--tenant a --in 0s");
    serving.signal(Signal::TERM);
    assert_eq!(serving.end().code, Some(0));
}
