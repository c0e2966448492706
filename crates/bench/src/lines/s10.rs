//! S10: commands come in through a broker, and are acknowledged once they are committed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use punctual_domain::{MessageEnvelope, Topic};
use punctual_ports::{Answer, ConsumerName, EventBusPort, MessageHandler, Subscribe};
use punctual_workflows::ScheduleTimers;
use tokio::sync::Notify;

use super::{TENANTS, s1, s2};
use crate::bare::Bare;
use crate::broker::{self, Broker};
use crate::databases::Recipe;
use crate::report::{Measure, Unit};
use crate::stats::rate;
use crate::turns::Bench;
use crate::{Outcome, grouped};

pub(super) const WHAT: &str = "commands from JetStream: fetched, committed, acknowledged";

/// How many commands one call of the handler takes, as the service has it.
const BATCH: usize = 1_000;

/// Interval of the polls for an empty stream, once all is committed.
const POLL_EVERY: Duration = Duration::from_millis(1);

/// Commands that take longer are lost.
const LONGEST: Duration = Duration::from_mins(2);

pub(super) fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let Some(broker) = bench.broker() else {
        return Ok(Vec::new());
    };
    let start = Recipe::pending(bench.size(100_000, 50_000), TENANTS);
    let commands = bench.size(60_000, 20_000);
    let rounds = bench.size(5, 3);
    let [ours, called, bare] = bench.take_turns(
        rounds,
        [
            &|bench| ours(bench, &broker, start, commands),
            &|bench| s1::ours(bench, start, commands, (s2::BATCH, 1)),
            &|bench| s1::bare(bench, start, commands, BATCH),
        ],
    )?;
    let measure = |what: &str, than, which| {
        let (commands, onto) = (grouped(commands), s1::onto(start));
        let on = format!("{commands} commands {onto}; bare is {which}");
        Measure::of(what, Unit::PerSecond, &ours, &on).ratio_to(than)
    };
    let one = "commands ÷ S2, one caller of ours with 1 000 a call";
    let upsert = "commands ÷ bare upsert, 1 000 a transaction";
    Ok(vec![
        measure(one, &called, "ours of S2")?.at_least(0.70),
        measure(upsert, &bare, "that of S2")?,
    ])
}

fn ours(bench: &mut Bench, broker: &Broker, start: Recipe, count: usize) -> Outcome<f64> {
    let (copy, timers) = bench.copy_and_timers(start, count)?;
    let now = bench.now();
    let commands = timers.into_iter().map(|timer| broker::command(timer, now));
    let batches = broker::batches(&commands.collect::<Vec<_>>());
    let streams = broker.streams()?;
    let took = bench.runtime.block_on(async {
        let connected = streams.connect(&copy, &bench.clock).await?;
        let bus = &connected.bus;
        broker::publish(bus, batches).await?;
        let plain = streams.plain().await?;
        let ports = connected.ports(bus.clone());
        let committed = Arc::new(Committed {
            scheduling: ScheduleTimers::new(&ports),
            left: AtomicUsize::new(count),
            calls: AtomicUsize::new(0),
            enough: Notify::new(),
        });
        let request = Subscribe {
            topic: Topic::TimerCommands,
            consumer: ConsumerName::new("timer"),
            max_batch: BATCH,
            handler: Arc::<Committed>::clone(&committed),
        };
        let started = Instant::now();
        let subscription = bus.subscribe(request).await?;
        let empty = async {
            committed.enough.notified().await;
            while streams.count(&plain, "COMMANDS").await? > 0 {
                tokio::time::sleep(POLL_EVERY).await;
            }
            Outcome::Ok(started.elapsed())
        };
        let took = tokio::time::timeout(LONGEST, empty).await;
        let took = took.map_err(|_| format!("commands were left over after {LONGEST:?}"))??;
        eprintln!(
            "  {} commands in {} calls of the handler",
            grouped(count),
            committed.calls.load(Ordering::Relaxed)
        );
        subscription.stop().await;
        connected.close().await;
        streams.remove(&plain).await?;
        Outcome::Ok(took)
    })?;
    let stored = Bare::open(&copy.path())?.count("Scheduled")?;
    if stored != start.rows + count {
        return Err(format!("{count} commands made {} timers", stored - start.rows).into());
    }
    Ok(rate(count, took))
}

/// The use case, and when it has answered for everything.
struct Committed {
    scheduling: ScheduleTimers,
    left: AtomicUsize,
    calls: AtomicUsize,
    enough: Notify,
}

#[async_trait]
impl MessageHandler for Committed {
    /// Counts the answers; whatever is not done comes again.
    async fn handle(&self, batch: Vec<MessageEnvelope>) -> Vec<Answer> {
        let answers = self.scheduling.handle(batch).await;
        let done = answers.iter().filter(|it| **it == Answer::Done).count();
        self.calls.fetch_add(1, Ordering::Relaxed);
        let left = self.left.fetch_sub(done, Ordering::Relaxed);
        if done > 0 && left == done {
            self.enough.notify_one();
        }
        answers
    }
}
