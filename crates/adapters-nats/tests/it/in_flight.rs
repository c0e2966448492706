//! Any number of publishes at once come to their end, and each within a limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use punctual_domain::{MessageEnvelope, Timestamp};
use punctual_ports::{BatchResult, EventBusPort, PublishOutcome};
use punctual_test_servers::NatsServer;
use tokio::task::JoinHandle;

use crate::fixture::{World, event};

fn batch(number: u64, size: u64) -> Vec<MessageEnvelope> {
    let first = u128::from(number) * 10_000;
    let all = (0..u128::from(size)).map(|n| event(first + n, Timestamp::MAX));
    all.collect()
}

fn accepted(answers: BatchResult<PublishOutcome>) -> u64 {
    let accepted = answers.map_or(0, |it| it.iter().filter(|one| one.is_ok()).count());
    accepted as u64
}

/// Waits for the work as long as it makes progress; returns how far it came.
async fn until_done_or_stuck(world: &World, work: JoinHandle<()>, done: &AtomicU64) -> u64 {
    let (mut before, mut quiet) = (0, 0);
    while !work.is_finished() && quiet < 15 {
        world.pass(Duration::from_secs(1)).await;
        let now = done.load(Ordering::SeqCst);
        quiet = if now == before { quiet + 1 } else { 0 };
        before = now;
    }
    work.abort();
    done.load(Ordering::SeqCst)
}

/// Like a worker: one task with `publishes` publishes of `size` messages in flight.
async fn in_flight(publishes: usize, size: u64, rounds: u64) {
    let Some(world) = World::shared() else { return };
    let bus = world.bus().await;
    let done = Arc::new(AtomicU64::new(0));
    let counting = Arc::clone(&done);
    let work = tokio::spawn(async move {
        let mut number = 0;
        let mut under_way = FuturesUnordered::new();
        while number < rounds || !under_way.is_empty() {
            while number < rounds && under_way.len() < publishes {
                number += 1;
                under_way.push(bus.publish(batch(number, size)));
            }
            let answers = under_way.next().await.unwrap();
            counting.fetch_add(accepted(answers), Ordering::SeqCst);
        }
    });
    let done = until_done_or_stuck(&world, work, &done).await;
    assert_eq!(done, rounds * size, "then nothing happened for 15 s");
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_publishes_of_a_full_window_each_come_to_their_end() {
    in_flight(16, 256, 64).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_publishes_of_more_than_a_window_each_come_to_their_end() {
    in_flight(10, 500, 40).await;
}

/// They take turns, so that each has sent a part when there is no room for more.
#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_publishes_in_tasks_of_their_own_come_to_their_end() {
    let Some(world) = World::shared() else { return };
    let bus = world.bus().await;
    let done = Arc::new(AtomicU64::new(0));
    let publishes = (0..100).map(|number| {
        let (bus, done) = (bus.clone(), Arc::clone(&done));
        tokio::spawn(async move {
            let answers = bus.publish(batch(number, 256)).await;
            done.fetch_add(accepted(answers), Ordering::SeqCst);
        })
    });
    let publishes: Vec<_> = publishes.collect();
    let work = tokio::spawn(async move {
        join_all(publishes).await;
    });
    let done = until_done_or_stuck(&world, work, &done).await;
    assert_eq!(done, 100 * 256, "then nothing happened for 15 s");
}

/// A worker's eight, and three others that send 500 at a time, all in one task.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_a_dispatcher_and_a_recovery_share_the_permits() {
    let Some(world) = World::shared() else { return };
    let bus = world.bus().await;
    let done = Arc::new(AtomicU64::new(0));
    let counting = Arc::clone(&done);
    let work = tokio::spawn(async move {
        let send = async |first: u64, rounds: u64, size: u64| {
            for number in 0..rounds {
                let answers = bus.publish(batch(first + number, size)).await;
                counting.fetch_add(accepted(answers), Ordering::SeqCst);
            }
        };
        let worker = join_all((0..8).map(|n| send(n * 1_000, 12, 256)));
        let others = join_all((8..11).map(|n| send(n * 1_000, 6, 500)));
        tokio::join!(worker, others);
    });
    let done = until_done_or_stuck(&world, work, &done).await;
    assert_eq!(done, 8 * 12 * 256 + 3 * 6 * 500, "then nothing happened");
}

#[tokio::test(flavor = "multi_thread")]
async fn publishes_that_are_never_polled_are_waited_for_within_a_limit() {
    let Some(mut world) = World::shared() else {
        return;
    };
    world.settings.ack_timeout = Duration::from_millis(300);
    let bus = world.bus().await;
    let mut left: Vec<_> = (0..40).map(|n| bus.publish(batch(n, 300))).collect();
    for publish in &mut left {
        // Once, and never again: sent messages keep their permits.
        assert!(publish.now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    let begun = world.monotonic();
    let answers = bus.publish(batch(100, 1)).await.unwrap();
    let took = world.monotonic().saturating_sub(begun);
    assert!(took < Duration::from_secs(5), "{took:?}");
    if let Err(error) = &answers[0] {
        assert!(error.is_retryable(), "{error}");
    }
    drop(left);
    let answers = bus.publish(batch(100, 1)).await.unwrap();
    assert!(answers[0].is_ok(), "{answers:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_connected_and_acknowledges_nothing_is_not_ready() {
    let Some(server) = NatsServer::start() else {
        return;
    };
    let mut world = World::at(&server.url());
    world.settings.ack_timeout = Duration::from_millis(500);
    let bus = world.bus().await;
    server.pause();
    let begun = world.monotonic();
    let publishes = (0..20).map(|n| bus.publish(batch(n, 256)));
    for answers in join_all(publishes).await {
        assert_eq!(accepted(answers), 0);
    }
    let took = world.monotonic().saturating_sub(begun);
    assert!(took < Duration::from_secs(10), "{took:?}");
    let unready = || bus.readiness().is_err();
    world.until("it is noticed", unready).await;
    server.resume();
    // As a worker does, until it is accepted.
    while accepted(bus.publish(batch(0, 256)).await) < 256 {
        world.pass(Duration::from_millis(50)).await;
    }
    assert_eq!(bus.readiness(), Ok(()));
}
