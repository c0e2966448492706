//! `check` with a broker: what it lacks is said, what it may cost is warned of, and nothing is made.

use std::process::Command;

use punctual_adapters_nats::async_nats::jetstream::stream::{Config, StorageType};
use punctual_test_servers::NatsServer;
use serde_json::Value;

use crate::broker::Broker;
use crate::check::{assert_said, assert_wrong, findings};
use crate::running::{Ended, Home, run};

/// What it warned of, if nothing is wrong.
fn warnings(ended: &Ended) -> Vec<&str> {
    assert_eq!(
        (ended.code, ended.stderr.as_str()),
        (Some(0), ""),
        "{ended:?}"
    );
    let warned = findings(ended).into_iter();
    warned
        .filter(|(verdict, _)| *verdict == "warn")
        .map(|(_, rest)| rest)
        .collect()
}

fn checked(home: &Home, server: &NatsServer, variables: &[(&str, &str)]) -> Ended {
    let mut command: Command = home.command("check");
    command.env("TIMER_BROKER_URL", server.url());
    run(command.envs(variables.iter().copied()))
}

#[test]
fn a_fresh_broker_is_well_and_stays_as_it_was() {
    let Some(broker) = Broker::shared() else {
        return;
    };
    let home = Home::new();
    let ended = run(&mut broker.command(&home, "check"));
    assert_said(
        &ended,
        &[
            &format!("{} answers, nats-server 2.", broker.url),
            "none were required",
            "it stays on this machine",
            "largest message             8 MiB",
            &format!(
                "{} and {}: made at the start",
                broker.stream_name("COMMANDS"),
                broker.stream_name("EVENTS")
            ),
        ],
    );
    let warnings = warnings(&ended);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].starts_with("power failure"), "{warnings:?}");
    assert!(
        warnings[0].contains("sync_interval: always"),
        "{warnings:?}"
    );
    assert_eq!(broker.streams(), [""; 0], "nothing is made");
}

#[test]
fn streams_that_would_lose_messages_are_wrong() {
    let Some(broker) = Broker::shared() else {
        return;
    };
    let home = Home::new();
    broker.make_streams();
    let events = broker.stream_name("EVENTS");
    let well = run(&mut broker.command(&home, "check"));
    assert_said(&well, &["are as they have to be"]);
    broker.remove_stream(&events);
    broker.make_stream(Config {
        name: events.clone(),
        subjects: vec![
            format!("{}.*.events", broker.prefix),
            format!("{}.*.events.>", broker.prefix),
        ],
        storage: StorageType::Memory,
        ..Config::default()
    });
    let ended = run(&mut broker.command(&home, "check"));
    assert_wrong(&ended, 1, &[&format!("stream {events} is kept in memory")]);
}

#[test]
fn programs_get_the_verdict_too() {
    let Some(broker) = Broker::shared() else {
        return;
    };
    let home = Home::new();
    let ended = run(&mut broker.command(&home, "check --output json"));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let lines = ended.stdout.lines();
    let findings: Vec<Value> = lines.map(|it| serde_json::from_str(it).unwrap()).collect();
    let find = |what: &str| findings.iter().find(|it| it["what"] == what).unwrap();
    assert_eq!(find("broker")["verdict"], "ok");
    let warned = find("power failure");
    assert_eq!(
        (&warned["ok"], &warned["verdict"]),
        (&Value::Bool(true), &"warn".into())
    );
}

#[test]
fn a_broker_that_does_not_answer_is_wrong() {
    let home = Home::new();
    let ended = home.run("check --broker nats://me:hunter2@127.0.0.1:1");
    assert_wrong(
        &ended,
        1,
        &["the broker at nats://127.0.0.1:1 does not answer"],
    );
    assert_said(&ended, &["nats://127.0.0.1:1 (--broker)"]);
    assert!(!ended.stdout.contains("hunter2"), "{ended:?}");
}

#[test]
fn a_broker_without_jetstream_is_wrong_and_a_small_one_is_warned_of() {
    let Some(server) = NatsServer::start_with("jetstream: false\nmax_payload: 32KB\n") else {
        return;
    };
    let ended = checked(&Home::new(), &server, &[]);
    assert_wrong(&ended, 1, &["start nats-server with -js"]);
    assert_said(
        &ended,
        &["32 KiB: set the server's max_payload to 64KB or more"],
    );
}

#[test]
fn who_we_are_comes_from_files_and_the_broker_has_to_agree() {
    let Some(server) =
        NatsServer::start_with("authorization { user: \"me\", password: \"hunter2\" }\n")
    else {
        return;
    };
    let home = Home::new();
    let file = home.path("password");
    let path = file.to_str().unwrap();
    let named = [
        ("TIMER_BROKER_USER", "me"),
        ("TIMER_BROKER_PASSWORD_FILE", path),
    ];
    std::fs::write(&file, "hunter2\n").unwrap();
    let accepted = checked(&home, &server, &named);
    assert_eq!(warnings(&accepted).len(), 1, "{accepted:?}");
    assert_said(&accepted, &["user and password were accepted"]);
    std::fs::write(&file, "hunter3").unwrap();
    let denied = checked(&home, &server, &named);
    assert_wrong(&denied, 1, &["does not let us in"]);
    let nobody = checked(&home, &server, &[]);
    assert_wrong(&nobody, 1, &["does not let us in"]);
    let in_the_address = server.url().replace("nats://", "nats://me:hunter2@");
    let in_the_address = checked(&home, &server, &[("TIMER_BROKER_URL", &in_the_address)]);
    assert_said(&in_the_address, &["user and password were accepted"]);
    for ended in [accepted, denied, nobody, in_the_address] {
        assert!(!ended.stdout.contains("hunter"), "{ended:?}");
    }
}

#[test]
fn a_connection_that_has_to_be_secure_and_is_not_is_wrong() {
    let Some(broker) = Broker::shared() else {
        return;
    };
    let home = Home::new();
    let mut command = broker.command(&home, "check");
    let ended = run(command.env("TIMER_BROKER_TLS", "require"));
    assert_wrong(&ended, 1, &["cannot be reached securely"]);
}

/// Makes an authority, and certificates of it for the broker and for us; `false` without `openssl`.
fn make_certificates(home: &Home) -> bool {
    let script = "set -e
        openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -subj /CN=ca -days 2
        echo subjectAltName=IP:127.0.0.1 > names
        for who in server client; do
            openssl req -newkey rsa:2048 -nodes -keyout $who.key -out $who.csr -subj /CN=$who
            openssl x509 -req -in $who.csr -CA ca.pem -CAkey ca.key -CAcreateserial \
                -out $who.pem -days 2 -extfile names
        done";
    let mut shell = Command::new("sh");
    let made = run(shell.args(["-c", script]).current_dir(home.path("")));
    if made.code != Some(0) {
        eprintln!("skipped: openssl makes no certificates: {made:?}");
    }
    made.code == Some(0)
}

#[test]
fn certificates_are_taken_from_their_files() {
    let home = Home::new();
    if !make_certificates(&home) {
        return;
    }
    let path = |name: &str| home.path(name).to_str().unwrap().to_owned();
    let config = format!(
        "tls {{ cert_file: \"{}\", key_file: \"{}\", ca_file: \"{}\", verify: true }}\n",
        path("server.pem"),
        path("server.key"),
        path("ca.pem")
    );
    let Some(server) = NatsServer::start_with(&config) else {
        return;
    };
    let (ca, certificate, key) = (path("ca.pem"), path("client.pem"), path("client.key"));
    let ours = [
        ("TIMER_BROKER_CA_FILE", ca.as_str()),
        ("TIMER_BROKER_CERT_FILE", certificate.as_str()),
        ("TIMER_BROKER_KEY_FILE", key.as_str()),
    ];
    let accepted = checked(&home, &server, &ours);
    assert_eq!(warnings(&accepted).len(), 1, "{accepted:?}");
    assert_said(
        &accepted,
        &["secure                      the connection is\n"],
    );
    for too_little in [&ours[..1], &[]] {
        let ended = checked(&home, &server, too_little);
        assert_wrong(&ended, 1, &["cannot be reached securely"]);
    }
}

#[test]
fn a_token_and_an_nkey_are_taken_from_their_files() {
    const SEED: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
    const PUBLIC: &str = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";
    let home = Home::new();
    let file = home.path("secret");
    let path = file.to_str().unwrap();
    for (config, variable, secret, said) in [
        (
            "authorization { token: \"s3cret\" }\n".to_owned(),
            "TIMER_BROKER_TOKEN_FILE",
            "s3cret\r\n",
            "the token was accepted",
        ),
        (
            format!("authorization {{ users: [ {{ nkey: {PUBLIC} }} ] }}\n"),
            "TIMER_BROKER_NKEY_FILE",
            SEED,
            "the nkey was accepted",
        ),
    ] {
        let Some(server) = NatsServer::start_with(&config) else {
            return;
        };
        std::fs::write(&file, secret).unwrap();
        let ended = checked(&home, &server, &[(variable, path)]);
        assert_said(&ended, &[said]);
        assert!(!ended.stdout.contains(secret.trim()), "{ended:?}");
    }
}

#[test]
fn the_servers_settings_that_we_ship_are_taken_by_it() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/nats-server.conf");
    let tried = ["nats-server", "/usr/sbin/nats-server"].map(|program| {
        let mut command = Command::new(program);
        command.args(["-t", "-c", file]).output()
    });
    let Some(output) = tried.into_iter().find_map(Result::ok) else {
        assert!(std::env::var_os("CI").is_none(), "nats-server is missing");
        eprintln!("skipped: nats-server is not installed");
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}
