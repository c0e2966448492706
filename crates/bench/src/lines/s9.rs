//! S9: events leave through a broker, each acknowledged by it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use async_trait::async_trait;
use punctual_adapters_nats::NatsEventBus;
use punctual_adapters_nats::async_nats::jetstream::message::PublishMessage;
use punctual_domain::MessageEnvelope;
use punctual_ports::{
    BatchResult, EventBusPort, PortError, PublishOutcome, Subscribe, Subscription,
};
use punctual_workflows::{TimerWorker, WorkerSettings};
use tokio::sync::Notify;

use super::{TENANTS, s3};
use crate::broker::{self, Broker, Streams};
use crate::databases::Recipe;
use crate::ours::run_until;
use crate::report::{Measure, Unit};
use crate::stats::rate;
use crate::turns::Bench;
use crate::{Outcome, grouped};

pub(super) const WHAT: &str = "publishing fired timers to JetStream";

/// How many acknowledgements the bare loop waits for at once.
const WINDOW: usize = 256;

pub(super) fn run(bench: &mut Bench) -> Outcome<Vec<Measure>> {
    let Some(broker) = bench.broker() else {
        return Ok(Vec::new());
    };
    let events = bench.size(50_000, 10_000);
    let backlog = Recipe {
        due: bench.size(20_000, 10_000),
        ..Recipe::pending(bench.size(200_000, 100_000), TENANTS)
    };
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
    let on = format!(
        "{} events, batches of 256 and 8 of them at once, file storage",
        grouped(events)
    );
    let what = "publish ÷ bare, 256 acknowledgements on the way";
    let published = Measure::of(what, Unit::PerSecond, &ours, &on).ratio_to(&bare)?;
    let on = s3::due_of(backlog) + ", synchronous FULL; bare is ours of S3";
    let what = "worker on the broker ÷ worker in process (S3)";
    let drained = Measure::of(what, Unit::PerSecond, &drain, &on).ratio_to(&in_process)?;
    Ok(vec![published.at_least(0.80), drained])
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
        let connected = streams.connect(&copy, &bench.clock).await?;
        let started = Instant::now();
        broker::publish(&connected.bus, batches).await?;
        let took = started.elapsed();
        connected.close().await;
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
        // Ours makes the streams, so that they are the same.
        streams.connect(&copy, &bench.clock).await?.close().await;
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
        let connected = streams.connect(&copy, &bench.clock).await?;
        let enough = Arc::new(Notify::new());
        let ports = connected.ports(Counting {
            bus: connected.bus.clone(),
            left: AtomicUsize::new(recipe.due),
            enough: Arc::clone(&enough),
        });
        let took = run_until(TimerWorker::new(&ports, draining())?, enough).await?;
        connected.close().await;
        check(streams, recipe.due).await?;
        Outcome::Ok(took)
    })?;
    s3::all_marked(&copy, recipe, recipe.due)?;
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
