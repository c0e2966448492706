//! The examples of `--help` do what they say, as they are typed, in an empty folder.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::api_client::{calls_command, serve_calls};
use crate::running::{Ended, Home, Running, run};
use crate::target::Target;

const ID: &str = "0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8e";
const REQUEST: &str = "0190a6e0-0000-7c11-9d2e-3f4a5b6c7d8e";

/// A line as a shell runs it, in a folder with nothing set.
fn shell(home: &Home, line: &str) -> Command {
    let binary = Path::new(env!("CARGO_BIN_EXE_timer-service"));
    let folder = binary.parent().unwrap().display();
    // What belongs to the machine is a folder of the test's here.
    let line = line.replace("/var/lib/punctual", "var");
    let mut command = Command::new("sh");
    command
        .arg("-c")
        .arg(line)
        .current_dir(home.path(""))
        .env_clear()
        .env("PATH", format!("{folder}:/usr/bin:/bin"));
    command
}

fn typed(home: &Home, line: &str) -> Ended {
    run(&mut shell(home, line))
}

/// The example lines of a command's help, without the `\` that breaks one.
fn examples(command: &str) -> Vec<String> {
    let help = typed(&Home::new(), &format!("timer-service {command} --help"));
    assert_eq!(help.code, Some(0), "{help:?}");
    let text = help.stdout.replace("\\\n", " ");
    let lines = text.lines().filter_map(|line| line.strip_prefix("  "));
    let of_ours =
        |line: &&str| line.starts_with("timer-service") || line.starts_with("TIMER_DB_PATH=");
    lines.filter(of_ours).map(str::to_owned).collect()
}

/// Starts a service as an example says; `exec`, so that it is ended with the test.
fn started(home: &Home, line: &str) -> Running {
    Running::start(&mut shell(home, &format!("exec {line}")))
}

#[test]
fn the_first_example_fires() {
    let home = Home::new();
    let lines = examples("");
    assert_eq!(lines.len(), 4, "{lines:?}");
    let mut serving = started(&home, &lines[0]);
    serving.wait_until_ready();
    let scheduled = typed(&home, &lines[1].replace("5s", "1s"));
    assert_eq!(scheduled.code, Some(0), "{scheduled:?}");
    assert_eq!(scheduled.stderr, "");
    let say: Value = serving.firing().read().unwrap();
    assert_eq!(say["say"], "tea");
}

#[test]
fn the_second_example_is_a_call_and_schedule_says_so() {
    let (home, target) = (Home::new(), Target::start());
    let lines = examples("");
    let port = "--listen 127.0.0.1:0 --allow-nets 127.0.0.0/8";
    let mut serving = started(&home, &format!("{} {port}", lines[2]));
    let line = serving.wait_until_it_says("serving service calls");
    let line: Value = serde_json::from_str(&line).unwrap();
    let api = line["api"].as_str().unwrap();
    let call = lines[3].replace("https://example.com/", &target.url("/"));
    let called = typed(&home, &format!("{call} --api {api}"));
    assert_eq!(called.code, Some(0), "{called:?}");
    let called: Value = serde_json::from_str(&called.stdout).unwrap();
    let id = called["serviceCallId"].as_str().unwrap();

    // Every command works on what is served, or says which one does.
    let refused = typed(&home, &lines[1]);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    for words in [
        "event_service.db",
        "`timer-service call`",
        "--modules timer",
    ] {
        assert!(refused.stderr.contains(words), "{refused:?}");
    }
    assert!(!home.path("data/timer.db").exists(), "nothing was made");
    let get = typed(&home, &format!("timer-service get --tenant demo --id {id}"));
    assert_eq!(get.code, Some(0), "{get:?}");
    let list = typed(&home, "timer-service list --tenant demo --output table");
    assert!(list.stdout.contains(id), "{list:?}");
    let dead_letters = typed(&home, "timer-service dead-letters");
    assert_eq!(dead_letters.code, Some(0), "{dead_letters:?}");
    let fired = typed(
        &home,
        &format!("timer-service cancel --tenant demo --id {id}"),
    );
    assert_eq!(fired.code, Some(1), "{fired:?}");
    assert!(fired.stderr.contains("has fired already"), "{fired:?}");
    let later = typed(
        &home,
        &format!(
            "timer-service call --tenant demo --in 2h --no-wait --url http://a.example/ --api {api}"
        ),
    );
    let later: Value = serde_json::from_str(&later.stdout).unwrap();
    let later = later["serviceCallId"].as_str().unwrap();
    let cancel = format!("timer-service cancel --tenant demo --id {later}");
    // Its timer is made a moment after the call.
    let cancelled = (0..100)
        .map(|_| typed(&home, &cancel))
        .find(|ended| !ended.stderr.contains("there is no"))
        .expect("the call has its timer soon");
    assert_eq!(cancelled.code, Some(1), "{cancelled:?}");
    let words = format!("DELETE /api/tenants/demo/service-calls/{later}");
    assert!(cancelled.stderr.contains(&words), "{cancelled:?}");
}

#[test]
fn the_examples_of_timers_do_what_they_say() {
    let home = Home::new();
    let batch = r#"{"tenantId":"demo","name":"order-123","dueAt":"2096-12-24T18:00:00Z"}"#;
    std::fs::write(home.path("timers.ndjson"), batch).unwrap();
    std::fs::create_dir(home.path("var")).unwrap();
    for more in [
        format!("--id {ID} --correlation {REQUEST}"),
        "--name order-123".to_owned(),
    ] {
        let made = typed(
            &home,
            &format!("timer-service schedule --tenant demo --in 2h {more}"),
        );
        assert_eq!(made.code, Some(0), "{made:?}");
        assert!(
            made.stderr.contains("no process serves ./data/timer.db"),
            "{made:?}"
        );
    }
    let made = typed(&home, "timer-service migrate --db var/timer.db");
    assert_eq!(made.code, Some(0), "{made:?}");
    let commands = [
        "schedule",
        "get",
        "list",
        "trace",
        "dead-letters",
        "migrate",
        "backup",
        "check",
        "cancel",
    ];
    for command in commands {
        let lines = examples(command);
        assert!(!lines.is_empty(), "{command} has no example");
        for line in lines {
            let ended = typed(&home, &line);
            // There is no letter to remove.
            let expected = i32::from(line.contains("--remove 7"));
            assert_eq!(ended.code, Some(expected), "{line}: {ended:?}");
        }
    }
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let ended = typed(&home, &format!("timer-service completions {shell}"));
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
}

#[test]
fn the_examples_of_serve_serve() {
    let home = Home::new();
    let lines = examples("serve");
    let without_broker: Vec<_> = lines.iter().filter(|it| !it.contains("--broker")).collect();
    assert_eq!(without_broker.len(), 2, "{lines:?}");
    for line in without_broker {
        // What is behind it is the shell's.
        let line = line.split(['|', '>']).next().unwrap();
        let mut serving = started(&home, line);
        serving.wait_until_ready();
    }
}

#[test]
fn the_examples_of_call_are_made() {
    let (home, target) = (Home::new(), Target::start());
    let (_serving, api) = serve_calls(&mut calls_command(&home));
    let lines = examples("call");
    assert_eq!(lines.len(), 2, "{lines:?}");
    for line in lines {
        let line = line
            .replace("http://127.0.0.1:9000/hello", &target.url("/hello"))
            .replace("https://example.com/greet", &target.url("/greet"))
            .replace("2026-12-24T18:00:00Z", "2026-11-01T18:00:00Z")
            .replace(" --no-wait", "");
        let ended = typed(&home, &format!("{line} --api http://{}", api.0));
        assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
    }
    let paths: Vec<String> = target.seen().into_iter().map(|it| it.path).collect();
    assert_eq!(paths, ["/hello", "/greet"]);
}

#[test]
fn a_call_that_is_repeated_under_its_id_or_key_is_the_same_call() {
    let (home, target) = (Home::new(), Target::start());
    let (_serving, api) = serve_calls(&mut calls_command(&home));
    for by in [
        format!("--id {ID}"),
        "--key order-7".to_owned(),
        format!("--id {REQUEST} --key order-8"),
    ] {
        let line = format!(
            "timer-service call --tenant demo {by} --in 100ms --url {} --api http://{}",
            target.url("/once"),
            api.0
        );
        let before = target.seen().len();
        let [first, again] = [(); 2].map(|()| typed(&home, &line));
        let ids = [&first, &again].map(|ended| {
            assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
            let call: Value = serde_json::from_str(&ended.stdout).unwrap();
            call["serviceCallId"].as_str().unwrap().to_owned()
        });
        assert_eq!(ids[0], ids[1]);
        assert_eq!(target.seen().len(), before + 1, "{line}");
        let other = typed(&home, &line.replace("/once", "/other"));
        assert_eq!(other.code, Some(2), "{other:?}");
        assert!(other.stderr.contains("409"), "{other:?}");
    }
}

#[test]
fn no_message_has_a_sign_for_lost_text() {
    use std::os::unix::ffi::OsStrExt;
    let home = Home::new();
    let (_serving, api) = serve_calls(&mut calls_command(&home));
    let wrong = home.run(&format!(
        "call --tenant demo --url ftp://nowhere --tag , --api http://{}",
        api.0
    ));
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(wrong.stderr.contains("; /requestSpec/url"), "{wrong:?}");
    let strange = std::ffi::OsStr::from_bytes(b"no-\xff\n-such.db");
    let mut commands = vec![
        home.command("get --tenant a --name x"),
        home.command("list --tenant a"),
        home.command("serve"),
        home.command("serve --batch-size"),
        home.command("get --tenant"),
        home.command(""),
    ];
    commands[0].arg("--db").arg(strange);
    commands[1].env("TIMER_DB_PATH", strange);
    commands[2].arg("--config").arg(strange);
    commands[3].arg(strange);
    commands[4].arg(strange);
    commands[5].arg(strange);
    for mut command in commands {
        let ended = run(&mut command);
        assert_ne!(ended.code, Some(0), "{command:?}: {ended:?}");
        for said in [&wrong.stderr, &ended.stderr] {
            assert!(!said.contains('\u{fffd}'), "{command:?}: {said}");
            assert_eq!(said.lines().count(), 1, "{command:?}: {said}");
        }
    }
}
