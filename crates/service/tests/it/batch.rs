//! Many timers in one go: what is acknowledged is stored, and a bad line spoils no other.

use std::io::Write;
use std::process::Stdio;

use serde_json::Value;

use crate::running::{Home, Running};

const DUE: &str = "2096-12-24T18:00:00Z";

fn batch(home: &Home) -> Running {
    Running::start(home.command("schedule --batch -").stdin(Stdio::piped()))
}

#[test]
fn each_line_is_acknowledged_as_soon_as_it_is_stored() {
    let home = Home::new();
    let mut feeding = batch(&home);
    let mut stdin = feeding.take_stdin();
    for n in 1..=3 {
        writeln!(
            stdin,
            r#"{{"tenantId":"a","name":"n{n}","dueAt":"{DUE}","data":[{n}]}}"#
        )
        .unwrap();
        // Standard input is still open: it does not wait for the end.
        let line: Value = serde_json::from_str(&feeding.line().unwrap()).unwrap();
        assert_eq!(line["line"], n);
        assert_eq!(line["outcome"], "created");
        let stored = home.json(&format!("get --tenant a --name n{n}"));
        for field in ["tenantId", "serviceCallId", "correlationId", "dueAt"] {
            assert_eq!(stored[field], line[field], "{field}");
        }
        assert_eq!(stored["data"][0], n);
    }
    drop(stdin);
    assert_eq!(feeding.end().code, Some(0));
}

#[test]
fn a_bad_line_is_reported_by_number_and_field_and_the_others_go_on() {
    let home = Home::new();
    let file = home.path("timers.ndjson");
    let lines = [
        format!(r#"{{"tenantId":"a","name":"one","dueAt":"{DUE}"}}"#),
        r#"{"tenantId":"a","name":"two","dueAt":"soon"}"#.to_owned(),
        String::new(),
        "nonsense".to_owned(),
        r#"{"tenantId":"a","name":"one","dueAt":"2096-12-25T18:00:00Z"}"#.to_owned(),
        format!(r#"{{"tenantId":"a b","dueAt":"{DUE}"}}"#),
        format!(r#"{{"tenantId":"a","dueAt":"{DUE}"}}"#),
    ];
    std::fs::write(&file, lines.join("\n")).unwrap();
    let ended = home.run("schedule --batch timers.ndjson");
    assert_eq!(ended.code, Some(1));
    let acknowledged: Vec<Value> = ended
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let told: Vec<_> = acknowledged
        .iter()
        .map(|it| (&it["line"], &it["outcome"]))
        .collect();
    assert_eq!(
        format!("{told:?}"),
        r#"[(Number(1), String("created")), (Number(5), String("rescheduled")), (Number(7), String("created"))]"#
    );
    let said: Vec<&str> = ended.stderr.lines().collect();
    assert!(said[0].starts_with("line 2: dueAt: \"soon\""), "{said:?}");
    assert!(
        said[1].starts_with("line 4: it is not a JSON object"),
        "{said:?}"
    );
    assert!(said[2].starts_with("line 6: tenantId: "), "{said:?}");
    assert_eq!(said[3], "error: 3 of 6 lines were not scheduled");
    assert_eq!(
        home.json("get --tenant a --name one")["dueAt"],
        "2096-12-25T18:00:00.000Z"
    );
}

#[test]
fn a_file_of_an_editor_that_marks_its_files_is_read_whole() {
    let home = Home::new();
    let lines = format!("\u{feff}{{\"tenantId\":\"a\",\"name\":\"x\",\"dueAt\":\"{DUE}\"}}\r\n");
    std::fs::write(home.path("timers.ndjson"), lines).unwrap();
    let ended = home.run("schedule --batch timers.ndjson");
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    home.json("get --tenant a --name x");
}

#[test]
fn ten_thousand_lines_are_stored_in_few_transactions() {
    let home = Home::new();
    let file = home.path("timers.ndjson");
    let line = |n: usize| format!("{{\"tenantId\":\"a\",\"name\":\"{n}\",\"dueAt\":\"{DUE}\"}}\n");
    std::fs::write(&file, (0..10_000).map(line).collect::<String>()).unwrap();
    let ended = home.run("schedule --batch timers.ndjson");
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(ended.stdout.lines().count(), 10_000);
    home.json("get --tenant a --name 9999");
}

#[test]
fn an_empty_batch_is_done_at_once() {
    let home = Home::new();
    std::fs::write(home.path("none"), "\n\n").unwrap();
    let ended = home.run("schedule --batch none");
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""));
}

#[test]
fn a_file_that_is_not_there_makes_no_database() {
    let home = Home::new();
    let ended = home.run("schedule --batch absent.ndjson");
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stderr.contains("cannot read absent.ndjson"),
        "{ended:?}"
    );
    assert!(!home.db().exists());
}
