//! The examples are run, each to its end, in a folder of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use punctual_test_servers::SharedDatabase;
use tempfile::TempDir;

/// An example's program, which `cargo test` and `cargo nextest run` build beside the tests.
fn example(name: &str) -> (TempDir, Command) {
    let me = std::env::current_exe().unwrap();
    let profile = me.ancestors().nth(2).unwrap();
    let program: PathBuf = profile.join("examples").join(name);
    assert!(
        program.exists(),
        "{} is not built: cargo build -p punctual --examples",
        program.display()
    );
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut command = Command::new(program);
    command.current_dir(folder.path());
    (folder, command)
}

fn said(output: &Output) -> String {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    text
}

#[test]
fn embed_fires_what_it_has_scheduled_in_every_run() {
    let (_folder, mut embed) = example("embed");
    for _ in 0..2 {
        let text = said(&embed.output().unwrap());
        for name in ["tea", "pasta", "meeting", "now"] {
            assert!(text.contains(&format!("{name} (")), "{text}");
        }
        assert!(text.ends_with("stopped, 0 unfinished\n"), "{text}");
    }
}

#[test]
fn an_order_that_was_rolled_back_has_no_reminder() {
    let (_folder, mut shop) = example("in_transaction");
    let text = said(&shop.output().unwrap());
    assert!(text.contains("order-1: please pay"), "{text}");
    assert!(text.contains("order-3: please pay"), "{text}");
    assert!(!text.contains("order-2: please pay"), "{text}");
}

#[test]
fn the_same_holds_on_postgresql() {
    let Some(database) = SharedDatabase::create() else {
        return;
    };
    let (_folder, mut shop) = example("postgres_transaction");
    let text = said(&shop.env("DATABASE_URL", database.url()).output().unwrap());
    assert!(text.contains("order-1: please pay"), "{text}");
    assert!(text.contains("order-3: please pay"), "{text}");
    assert!(!text.contains("order-2: please pay"), "{text}");
}

#[test]
fn a_week_on_a_fake_clock_ends_well() {
    let (_folder, mut week) = example("fake_clock");
    let text = said(&week.output().unwrap());
    assert!(text.contains("order-2: reminder 3"), "{text}");
}

#[test]
fn every_event_is_in_the_journal_once() {
    let (folder, mut own_bus) = example("own_bus");
    said(&own_bus.output().unwrap());
    let journal = std::fs::read_to_string(folder.path().join("data/journal.ndjson")).unwrap();
    let ids: Vec<String> = journal
        .lines()
        .map(|line| {
            let envelope: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(envelope["type"], "DueTimeReached");
            envelope["payload"]["firingId"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(ids.len(), 1_000);
    let different: std::collections::BTreeSet<_> = ids.iter().collect();
    assert_eq!(different.len(), 1_000);
}

/// Ends the process, whatever becomes of the test.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_reminder_service_takes_requests_reminds_and_stops_on_ctrl_c() {
    let (_folder, mut service) = example("reminder_service");
    service.arg("127.0.0.1:0").stdout(Stdio::piped());
    let mut service = Ends(service.spawn().unwrap());
    let mut lines = BufReader::new(service.0.stdout.take().unwrap()).lines();
    let mut line = || lines.next().unwrap().unwrap();
    let listening = line();
    let address = listening.strip_prefix("listening on http://").unwrap();
    let ask = |method: &str, name: &str, body: &str| request(address, method, name, body);

    let tea = r#"{"seconds": 0, "text": "tea is ready"}"#;
    assert!(ask("PUT", "tea", tea).starts_with("HTTP/1.1 201"));
    assert_eq!(line(), "tea is ready");
    assert!(ask("GET", "tea", "").contains("\"data\":\"tea is ready\""));
    assert!(ask("GET", "nothing", "").starts_with("HTTP/1.1 404"));
    let later = r#"{"seconds": 3600, "text": "much later"}"#;
    assert!(ask("PUT", "later", later).starts_with("HTTP/1.1 201"));
    assert!(ask("DELETE", "later", "").starts_with("HTTP/1.1 204"));
    let long = format!(r#"{{"seconds": 1, "text": "{}"}}"#, "x".repeat(20_000));
    let refused = ask("PUT", "long", &long);
    assert!(refused.starts_with("HTTP/1.1 422"), "{refused}");
    assert!(refused.contains("at most 16384"), "{refused}");

    let pid = service.0.id().to_string();
    let sent = Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert!(sent.success());
    assert_eq!(line(), "stopped");
    assert!(service.0.wait().unwrap().success());
}

fn request(address: &str, method: &str, name: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    write!(
        stream,
        "{method} /reminders/{name} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
