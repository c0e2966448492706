//! The example with a store and a bus of its own, `examples/own-store`: it passes the suites, and it is
//! killed at work again and again without losing a timer.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::process;

/// Number of times that the example is killed.
const KILLS: usize = 5;

/// Number of timers that have to be stored in a round before its kill.
const STORED_PER_ROUND: usize = 50;

/// Maximum time that a round, or the firing of all that is left, may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Builds, tests and kills the example; returns whether all is well.
pub(super) fn check(root: &Path) -> Result<bool> {
    let example = root.join("examples/own-store");
    fs::copy(root.join("Cargo.lock"), example.join("Cargo.lock"))
        .context("failed to copy Cargo.lock")?;
    let mut format = process::cargo(&example);
    let is_formatted = process::succeeds(format.args(["fmt", "--check"]))?;
    let built = process::succeeds(&mut super::cargo(root, &example, "test"))?
        && process::succeeds(&mut super::cargo(root, &example, "build"))?;
    let program = root.join("target/outside/debug/own-store");
    Ok(is_formatted && built && survives_kills(&program)?)
}

/// Kills the program while it schedules and fires, and then lets it fire the rest.
fn survives_kills(program: &Path) -> Result<bool> {
    let folder = tempfile::tempdir().context("failed to make a folder for the example")?;
    let mut ledger = Ledger::new(folder.path());
    for _ in 0..KILLS {
        let (stored, fired) = (ledger.stored.len(), ledger.firings);
        let mut child = ledger.start(program, "1000000")?;
        let at_work = process::wait_until(PATIENCE, || {
            ledger.read()?;
            Ok(ledger.stored.len() >= stored + STORED_PER_ROUND && ledger.firings > fired)
        });
        child.kill().context("failed to kill the example")?;
        child.wait()?;
        ensure!(at_work?, "the example does not schedule and fire");
        ledger.read()?;
    }
    let waiting = ledger.lost().count();
    let mut child = ledger.start(program, "0")?;
    let all_fired = process::wait_until(PATIENCE, || {
        ledger.read()?;
        Ok(ledger.lost().count() == 0)
    });
    drop(child.stdin.take());
    let ended = process::wait_at_most(&mut child, PATIENCE)?;
    child.kill().ok();
    ensure!(
        ended.is_some_and(|status| status.success()),
        "the example does not shut down when its input ends"
    );
    let problems = ledger.problems();
    println!(
        "embedding: a store of one's own, killed {KILLS} times: {} timers stored, {waiting} of them unfired \
         at the last kill, {} events in the end",
        ledger.stored.len(),
        ledger.firings,
    );
    for problem in &problems {
        println!("embedding: {problem}");
    }
    Ok(all_fired? && problems.is_empty())
}

/// What the program said that it has stored, and what it has published.
struct Ledger {
    folder: PathBuf,
    /// The due time of each timer that was stored, by service call.
    stored: BTreeMap<String, String>,
    /// The due time in the event of each timer that has fired.
    fired: BTreeMap<String, String>,
    /// Number of events.
    firings: usize,
    early: Vec<String>,
}

impl Ledger {
    fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_path_buf(),
            stored: BTreeMap::new(),
            fired: BTreeMap::new(),
            firings: 0,
            early: Vec::new(),
        }
    }

    /// Starts the program, with its output after that of the runs before.
    fn start(&self, program: &Path, count: &str) -> Result<Child> {
        let stored = self.folder.join("stored");
        let stored = File::options().create(true).append(true).open(stored)?;
        Command::new(program)
            .arg(&self.folder)
            .arg(count)
            .stdin(Stdio::piped())
            .stdout(stored)
            .spawn()
            .with_context(|| format!("failed to start {}", program.display()))
    }

    /// Reads what is there by now.
    fn read(&mut self) -> Result<()> {
        // The clock is read last: what is due after that and is there has fired early.
        let text = |name| fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        let (stored, events) = (text("stored"), text("events.jsonl"));
        self.take(&stored, &events, SystemTime::now())
    }

    fn take(&mut self, stored: &str, events: &str, now: SystemTime) -> Result<()> {
        for line in complete(stored) {
            if let Some((call, due_at)) = line.split_once(' ') {
                self.stored.insert(call.to_owned(), due_at.to_owned());
            }
        }
        let now = now.duration_since(SystemTime::UNIX_EPOCH)?.as_millis();
        // What is no JSON was cut off by a kill, and is there again.
        let events = complete(events).filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let new: Vec<Value> = events.skip(self.firings).collect();
        self.firings += new.len();
        for event in new {
            let payload = &event["payload"];
            let text = |name| payload[name].as_str().map(str::to_owned);
            let call = text("serviceCallId").context("an event names no service call")?;
            let due_at = text("dueAt").context("an event has no due time")?;
            let firing = text("firingId").context("an event has no firing id")?;
            let due_millis = firing.rsplit(':').next().unwrap_or_default();
            if due_millis.parse::<u128>()? > now || text("reachedAt") < Some(due_at.clone()) {
                self.early.push(firing);
            }
            self.fired.insert(call, due_at);
        }
        Ok(())
    }

    /// The timers that were stored and have not fired, or not for the due time that was stored.
    fn lost(&self) -> impl Iterator<Item = &String> {
        let stored = self.stored.iter();
        stored.filter_map(|(call, due_at)| (self.fired.get(call) != Some(due_at)).then_some(call))
    }

    fn problems(&self) -> Vec<String> {
        let lost = self.lost().map(|call| format!("{call} is lost"));
        let early = self.early.iter().map(|id| format!("{id} was early"));
        lost.chain(early).collect()
    }
}

/// The lines that have an end.
fn complete(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive('\n')
        .filter_map(|line| line.strip_suffix('\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORED: &str = "a 1970-01-01T00:00:01.000Z\nb 1970-01-01T00:00:02.000Z\nc 19";

    fn event(call: &str, due_at: u32, reached_at: u32) -> String {
        format!(
            "{{\"payload\":{{\"serviceCallId\":\"{call}\",\"dueAt\":\"1970-01-01T00:00:0{due_at}.000Z\",\
             \"reachedAt\":\"1970-01-01T00:00:0{reached_at}.000Z\",\"firingId\":\"t:{call}:0:{due_at}000\"}}}}\n"
        )
    }

    fn problems(events: &str, now: u64) -> Vec<String> {
        let mut ledger = Ledger::new(Path::new("."));
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(now);
        ledger.take(STORED, events, now).unwrap();
        ledger.problems()
    }

    #[test]
    fn a_timer_may_fire_late_and_twice() {
        let events = [event("a", 1, 3), event("b", 2, 2), event("a", 1, 3)];
        assert_eq!(problems(&events.concat(), 4), [""; 0]);
    }

    #[test]
    fn a_timer_without_its_event_is_lost() {
        let torn = event("b", 2, 2).replace('\n', "");
        assert_eq!(problems(&(event("a", 1, 1) + &torn), 4), ["b is lost"]);
        let other = event("a", 1, 1) + &event("b", 3, 3);
        assert_eq!(problems(&other, 4), ["b is lost"]);
    }

    #[test]
    fn an_event_before_its_due_time_is_early() {
        let early = event("a", 1, 1) + &event("b", 2, 1);
        assert_eq!(problems(&early, 4), ["t:b:0:2000 was early"]);
        let claimed = event("a", 1, 1) + &event("b", 2, 2);
        assert_eq!(problems(&claimed, 1), ["t:b:0:2000 was early"]);
    }

    #[test]
    fn the_code_of_the_chapter_is_the_example_s() {
        let root = crate::workspace::root().unwrap();
        let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
        let lines = |text: &str| -> String {
            let trimmed = text.lines().map(str::trim);
            trimmed.flat_map(|line| [line, "\n"]).collect()
        };
        let example = ["src/log_store.rs", "src/main.rs", "tests/conformance.rs"]
            .map(|file| lines(&read(&format!("examples/own-store/{file}"))));
        let guide = read("docs/guide.md");
        let chapter = guide
            .split("\n## ")
            .find(|it| it.contains("Your own store"));
        let blocks: Vec<&str> = chapter.unwrap().split("```").skip(1).step_by(2).collect();
        assert!(
            blocks.len() >= 3,
            "the chapter shows store, program and tests"
        );
        for block in blocks {
            let code = lines(
                block
                    .strip_prefix("rust,ignore\n")
                    .expect("a block is Rust"),
            );
            assert!(example.iter().any(|file| file.contains(&code)), "{block}");
        }
    }
}
