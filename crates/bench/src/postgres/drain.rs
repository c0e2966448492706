//! Claiming and marking, by this process or by several.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child as Process, ChildStdin, ChildStdout, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use punctual_adapters_postgres::{PostgresTimerStore, Role};
use punctual_adapters_system::SystemClock;
use punctual_domain::MarkOutcome;
use punctual_ports::{
    Backend, ClockPort, FiredTimer, PortErrorKind, TimerPersistencePort, TimerQueuePort,
};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use super::server::open;
use crate::Outcome;
use crate::child::{self, Child};

const BATCH: usize = 1_000;
const LEASE: Duration = Duration::from_secs(8);

/// A process that claims and marks until nothing is due.
pub(crate) const CHILD: Child = Child {
    name: "claim-and-mark",
    run: other_process,
};

/// Claims and marks until nothing is due. As in the worker, the next claim does not wait for the marks of
/// the last one. Returns how many were marked.
async fn claim_and_mark(store: &PostgresTimerStore, clock: &SystemClock) -> Outcome<usize> {
    let (send, mut claimed) = mpsc::channel::<Vec<FiredTimer>>(1);
    let marking = store.clone();
    let marking = tokio::spawn(async move {
        let mut marked = 0;
        while let Some(fired) = claimed.recv().await {
            marked += fired.len();
            mark_all(&marking, fired).await?;
        }
        Outcome::Ok(marked)
    });
    loop {
        let now = clock.now();
        let batch = store.claim_due(now, BATCH, LEASE).await?;
        if batch.claims.is_empty() && !batch.more_due {
            break;
        }
        let fired = batch.claims.into_iter().map(|claim| FiredTimer {
            firing_id: claim.timer.firing_id(),
            reached_at: now,
        });
        if send.send(fired.collect()).await.is_err() {
            break;
        }
    }
    drop(send);
    marking.await?
}

/// Marks timers; again, as the worker does, those whose rows another process holds for a moment.
async fn mark_all(store: &PostgresTimerStore, mut open: Vec<FiredTimer>) -> Outcome<()> {
    while !open.is_empty() {
        let outcomes = store.mark_fired(open.clone()).await?;
        let mut busy = Vec::new();
        for (fired, outcome) in open.into_iter().zip(outcomes) {
            match outcome {
                Ok(MarkOutcome::Marked) => {}
                Ok(other) => {
                    return Err(format!("a claimed timer was answered with {other:?}").into());
                }
                Err(error) if error.kind() == PortErrorKind::Busy => busy.push(fired),
                Err(error) => return Err(error.into()),
            }
        }
        open = busy;
    }
    Ok(())
}

/// The other process: says when it is ready, waits for a line, and reports how many it marked.
fn other_process(path: &Path, _: [u64; 2]) -> Outcome<()> {
    let url = path.to_str().ok_or("the address is no text")?;
    let clock = SystemClock::start()?;
    let marked = Runtime::new()?.block_on(async {
        let store = open(url, Role::Timer, &clock).await?;
        // Connected before it begins: that is not what is measured.
        store.claim_due(clock.now(), 0, LEASE).await?;
        let (watched, watching) = (store.clone(), Arc::new(clock.clone()));
        drop(tokio::spawn(async move {
            watched.watch(watching, Arc::new(|| {})).await
        }));
        println!("ready");
        let mut line = String::new();
        std::io::stdin().read_line(&mut line)?;
        let marked = tokio::spawn({
            let (store, clock) = (store.clone(), clock.clone());
            async move { claim_and_mark(&store, &clock).await }
        });
        let marked = marked.await??;
        println!("{}", json!({ "marked": marked }));
        store.close().await;
        Outcome::Ok(marked)
    })?;
    eprintln!("  a process marked {marked}");
    Ok(())
}

/// Starts processes of this program that claim and mark until nothing is due. Returns how long all of them
/// took, and how many each has marked.
pub(crate) fn draining_processes(url: &str, count: usize) -> Outcome<(Duration, Vec<usize>)> {
    let mut started = Vec::new();
    for _ in 0..count {
        started.push(Started::new(url)?);
    }
    for process in &mut started {
        process.line()?;
    }
    let begun = Instant::now();
    for process in &mut started {
        process.input.write_all(b"go\n")?;
    }
    let mut marked = Vec::new();
    for process in &mut started {
        let answer: Value = serde_json::from_str(&process.line()?)?;
        let number = answer["marked"].as_u64().ok_or("an answer has no number")?;
        marked.push(usize::try_from(number)?);
    }
    let took = begun.elapsed();
    for mut process in started {
        drop(process.input);
        process.process.wait()?;
    }
    Ok((took, marked))
}

/// A process that was started.
struct Started {
    process: Process,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Started {
    fn new(url: &str) -> Outcome<Self> {
        let mut process = child::command(CHILD.name, Path::new(url), [0, 0])?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()?;
        let input = process.stdin.take().ok_or("a process has no input")?;
        let output = process.stdout.take().ok_or("a process has no output")?;
        Ok(Self {
            process,
            input,
            output: BufReader::new(output),
        })
    }

    /// The next line that it writes.
    fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err("a process that claims and marks has ended".into());
        }
        Ok(line)
    }
}
