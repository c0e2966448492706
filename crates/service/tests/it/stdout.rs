//! Standard output breaks, is full, or was cut: no firing is lost there.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;

use crate::running::{Home, Running, firing};
use crate::serving::schedule_many;

/// It ends with 1 and a sentence, and what it could not write fires after the next start.
fn assert_it_stops_and_loses_nothing(home: &Home, serving: Running) {
    let ended = serving.end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let last = ended.stderr.lines().last().unwrap();
    assert!(
        last.contains("standard output") && last.contains("stay scheduled"),
        "{last}"
    );
    let timer = home.json("get --tenant a --name x");
    assert_eq!(timer["state"], "Scheduled");
    let fired = home.serve().firing();
    assert_eq!(fired.service_call_id.to_string(), timer["serviceCallId"]);
}

#[test]
fn a_reader_that_is_gone_stops_it_and_loses_nothing() {
    let home = Home::new();
    let mut serving = Running::start_unread(home.command("serve").stdout(Stdio::piped()));
    serving.wait_until_ready();
    drop(serving.take_stdout());
    home.json("schedule --tenant a --in 0s --name x");
    assert_it_stops_and_loses_nothing(&home, serving);
}

#[test]
fn a_standard_output_that_cannot_be_written_is_refused_at_the_start() {
    let home = Home::new();
    let readable = || File::open("/dev/null").unwrap();
    let (code, said) = run_with(&home, "serve", readable());
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("standard output cannot be written"), "{said}");
    let (code, said) = run_with(&home, "schedule --tenant a --in 0s --name x", readable());
    assert_eq!(code, Some(1), "{said}");
    let found = home.run("get --tenant a --name x");
    assert_eq!(found.code, Some(1), "nothing was stored");
}

fn run_with(home: &Home, line: &str, stdout: File) -> (Option<i32>, String) {
    let ended = Running::start_unread(home.command(line).stdout(stdout)).end();
    (ended.code, ended.stderr)
}

#[test]
fn a_standard_output_that_leads_nowhere_is_said() {
    let home = Home::new();
    let mut serving = Running::start_unread(home.command("serve").stdout(Stdio::null()));
    serving.wait_until_it_says("firings are discarded");
    serving.signal(Signal::TERM);
    assert_eq!(serving.end().code, Some(0));
}

#[test]
fn a_line_that_a_killed_process_has_cut_spoils_no_other() {
    let home = Home::new();
    let lines = home.path("firings.ndjson");
    std::fs::write(&lines, "{\"id\":\"cut in the mid").unwrap();
    for name in ["x", "y"] {
        home.json(&format!("schedule --tenant a --in 0s --name {name}"));
        let appending = OpenOptions::new().append(true).open(&lines).unwrap();
        let mut serving =
            Running::start_unread(home.command("serve --log-level debug").stdout(appending));
        serving.wait_until_it_says("a timer has fired");
        serving.signal(Signal::TERM);
        assert_eq!(serving.end().code, Some(0));
    }
    let written = std::fs::read_to_string(&lines).unwrap();
    let written: Vec<&str> = written.lines().collect();
    assert_eq!(written.len(), 3, "{written:?}");
    assert_ne!(firing(written[1]).key(), firing(written[2]).key());
}

#[test]
fn a_pipe_that_does_not_wait_is_waited_for() {
    const COUNT: usize = 100;
    let home = Home::new();
    schedule_many(&home, COUNT, &"x".repeat(10_000));
    let (read, write) = rustix::pipe::pipe().unwrap();
    rustix::io::ioctl_fionbio(&write, true).unwrap();
    let serving = Running::start_unread(home.command("serve").stdout(Stdio::from(write)));
    // Read by the byte, so that more is written than read, and the pipe is full.
    let slow = BufReader::with_capacity(1, File::from(read));
    let lines = slow.lines().take(COUNT).map(Result::unwrap);
    let fired: BTreeSet<_> = lines.map(|line| firing(&line).key()).collect();
    assert_eq!(fired.len(), COUNT);
    serving.signal(Signal::TERM);
    assert_eq!(serving.end().code, Some(0));
}

#[test]
fn an_answer_that_nobody_reads_is_a_failure() {
    let full = Path::new("/dev/full");
    if !full.exists() {
        println!("skipped: there is no /dev/full here");
        return;
    }
    let home = Home::new();
    home.json("schedule --tenant a --in 1h");
    let full = OpenOptions::new().write(true).open(full).unwrap();
    let (code, said) = run_with(&home, "list --tenant a", full);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("standard output cannot be written"), "{said}");
}
