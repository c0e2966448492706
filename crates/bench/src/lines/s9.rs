//! S9: events leave through a broker, each acknowledged by it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use punctual_adapters_nats::NatsEventBus;
use punctual_adapters_nats::async_nats::jetstream::message::PublishMessage;
use punctual_adapters_sqlite::{SqliteSettings, SqliteTimerStore, Synchronous};
use punctual_adapters_system::UuidIds;
use punctual_domain::MessageEnvelope;
use punctual_ports::{
    BatchResult, ClockPort, EventBusPort, PortError, PublishOutcome, Subscribe, Subscription,
};
use punctual_workflows::{TimerPorts, TimerWorker, WorkerSettings};
use tokio::sync::Notify;

use super::{Line, TENANTS, s3};
use crate::bare::Bare;
use crate::broker::{self, Broker, Streams};
use crate::databases::{Filling, Owner, Recipe};
use crate::report::{Measure, Target, Unit};
use crate::turns::{Bench, rate};
use crate::{Outcome, grouped};

pub(crate) const LINE: Line = Line {
    name: "S9",
    what: "publishing fired timers to JetStream",
    run,
};

/// How many acknowledgements the bare loop waits for at once.
const WINDOW: usize = 256;

/// A drain that takes longer has lost something.
const LONGEST: Duration = Duration::from_mins(2);

fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let Some(broker) = bench.broker(LINE.name) else {
        return Ok(Vec::new());
    };
    let events = bench.size(50_000, 10_000);
    let backlog = backlog(bench);
    let rounds = bench.size(5, 3);
    let [ours, bare, drain, in_process] = bench.take_turns(
        rounds,
        [
            &|bench| ours(bench, &broker, events),
            &|bench| bare(bench, &broker, events),
            &|bench| drain(bench, &broker, backlog),
            &|bench| s3::ours(bench, backlog),
        ],
    )?;
    Ok(vec![
        Measure {
            line: LINE.name,
            what: "publish ÷ bare, 256 acknowledgements on the way".to_owned(),
            unit: Unit::PerSecond,
            figure: ours.ratio(&bare).ok_or("rounds are missing")?,
            ours,
            bare: Some(bare),
            figure_unit: Unit::Times,
            target: Target::AtLeast(0.80),
            on: format!(
                "{} events, batches of 256 and 8 of them at once, file storage",
                grouped(events)
            ),
        },
        Measure {
            line: LINE.name,
            what: "worker on the broker ÷ worker in process (S3)".to_owned(),
            unit: Unit::PerSecond,
            figure: drain.ratio(&in_process).ok_or("rounds are missing")?,
            ours: drain,
            bare: Some(in_process),
            figure_unit: Unit::Times,
            target: Target::None,
            on: format!(
                "{} due of {} rows, {TENANTS} tenants, synchronous FULL; bare is ours of S3",
                grouped(backlog.due),
                grouped(backlog.rows)
            ),
        },
    ])
}

fn backlog(bench: &Bench) -> Recipe {
    Recipe {
        rows: bench.size(200_000, 100_000),
        tenants: TENANTS,
        due: bench.size(20_000, 10_000),
        filling: Filling::RowByRow,
        owner: Owner::Any,
    }
}

/// Events of timers that fire now, and a file for the bus to keep its position in.
fn events(bench: &mut Bench, count: usize) -> Outcome<Vec<MessageEnvelope>> {
    let mut rows = bench.rows(TENANTS)?;
    let now = bench.now();
    let timers = (0..count).map(|_| rows.overdue());
    timers.map(|timer| broker::event(timer, now)).collect()
}

/// A file of next to nothing: only the bus's position is kept in it.
const SMALL: Recipe = Recipe::pending(1, 1);

fn ours(bench: &mut Bench, broker: &Broker, count: usize) -> Outcome<f64> {
    let copy = bench.copy(SMALL)?;
    let batches = broker::batches(&events(bench, count)?);
    let streams = broker.streams()?;
    bench.runtime.block_on(async {
        let clock = &bench.clock;
        let store = SqliteTimerStore::open(&SqliteSettings::timers(copy.path()), clock.now())?;
        let bus = streams.bus(clock, &store).await?;
        let started = Instant::now();
        broker::publish(&bus, batches).await?;
        let took = started.elapsed();
        bus.close().await;
        store.close().await;
        check(streams, count).await?;
        Ok(rate(count, took))
    })
}

/// One task and the plain library: everything but the sending is done before.
fn bare(bench: &mut Bench, broker: &Broker, count: usize) -> Outcome<f64> {
    let copy = bench.copy(SMALL)?;
    let events = events(bench, count)?;
    let streams = broker.streams()?;
    bench.runtime.block_on(async {
        let clock = &bench.clock;
        let store = SqliteTimerStore::open(&SqliteSettings::timers(copy.path()), clock.now())?;
        // Ours makes the streams, so that they are the same.
        streams.bus(clock, &store).await?.close().await;
        store.close().await;
        let mut messages = Vec::with_capacity(count);
        for event in &events {
            let (id, subject) = (event.deduplication_id(), streams.subject(event));
            messages.push((subject, id, event.to_json()?));
        }
        let plain = streams.plain().await?;
        let sending = async move {
            let started = Instant::now();
            let mut on_the_way = VecDeque::with_capacity(WINDOW);
            for (subject, id, payload) in messages {
                if on_the_way.len() == WINDOW
                    && let Some(first) = on_the_way.pop_front()
                {
                    IntoFuture::into_future(first).await?;
                }
                let message = PublishMessage::build()
                    .payload(payload.into())
                    .message_id(&id);
                on_the_way.push_back(plain.send_publish(subject, message).await?);
            }
            for last in on_the_way {
                last.await?;
            }
            Outcome::Ok(started.elapsed())
        };
        // As a task: what `block_on` runs itself is on a thread of its own, and every wake-up of it
        // would cost a hand-over more.
        let took = tokio::spawn(sending).await??;
        check(streams, count).await?;
        Ok(rate(count, took))
    })
}

/// The stream has every event once.
async fn check(streams: Streams, count: usize) -> Outcome<()> {
    let plain = streams.plain().await?;
    let stored = streams.count(&plain, "EVENTS").await?;
    streams.remove(&plain).await?;
    if usize::try_from(stored) != Ok(count) {
        return Err(format!("of {count} events {stored} are in the stream").into());
    }
    Ok(())
}

/// The whole worker: claim, publish, mark.
fn drain(bench: &mut Bench, broker: &Broker, recipe: Recipe) -> Outcome<f64> {
    let copy = bench.copy(recipe)?;
    let streams = broker.streams()?;
    let took = bench.runtime.block_on(async {
        let clock = &bench.clock;
        let store = SqliteTimerStore::open(&SqliteSettings::timers(copy.path()), clock.now())?;
        let bus = streams.bus(clock, &store).await?;
        let enough = Arc::new(Notify::new());
        let counting = Counting {
            bus: bus.clone(),
            left: AtomicUsize::new(recipe.due),
            enough: Arc::clone(&enough),
        };
        let ports = TimerPorts::new(clock.clone(), UuidIds, store.clone(), counting);
        let worker = TimerWorker::new(&ports, draining())?;
        let shutdown = async move {
            tokio::select! {
                () = enough.notified() => {}
                () = tokio::time::sleep(LONGEST) => {}
            }
        };
        let started = Instant::now();
        let drained = tokio::spawn(worker.run(shutdown)).await??;
        let took = started.elapsed();
        bus.close().await;
        store.close().await;
        if drained.unfinished > 0 {
            return Err(format!("{} firings were not settled", drained.unfinished).into());
        }
        check(streams, recipe.due).await?;
        Outcome::Ok(took)
    })?;
    let marked = Bare::open(&copy.path(), Synchronous::Full)?.count("Reached")?;
    if marked != recipe.due {
        return Err(format!("of {} due timers {marked} were marked", recipe.due).into());
    }
    Ok(rate(recipe.due, took))
}

/// As the worker in process is set, so that the bus is all that differs.
fn draining() -> WorkerSettings {
    let broker = WorkerSettings::for_a_broker();
    WorkerSettings {
        publish_batch: broker.publish_batch,
        publishes_in_flight: broker.publishes_in_flight,
        ..s3::draining()
    }
}

/// A bus that notifies when enough was accepted.
struct Counting {
    bus: NatsEventBus,
    left: AtomicUsize,
    enough: Arc<Notify>,
}

#[async_trait]
impl EventBusPort for Counting {
    async fn publish(&self, batch: Vec<MessageEnvelope>) -> BatchResult<PublishOutcome> {
        let outcomes = self.bus.publish(batch).await?;
        let accepted = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        if self.left.fetch_sub(accepted, Ordering::Relaxed) == accepted {
            self.enough.notify_one();
        }
        Ok(outcomes)
    }

    async fn subscribe(&self, request: Subscribe) -> Result<Box<dyn Subscription>, PortError> {
        self.bus.subscribe(request).await
    }
}
