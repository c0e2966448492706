//! How time passes on the fake clock: from one instant at which something happens to the next.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use punctual_domain::Timestamp;

use super::{FakeClock, at_work};
use crate::lock;

/// A step of a worker in flight.
pub(super) struct Step {
    pub(super) of: u64,
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// How often other tasks get a turn before a step that has not finished counts as waiting for
/// time to pass.
const TURNS_FOR_OTHERS: u32 = 32;

/// How many steps one worker may take at one instant before it counts as a busy loop.
const MOST_STEPS_AT_ONE_INSTANT: u32 = 100_000;

pub(super) async fn advance(clock: &FakeClock, by: Duration) {
    let target = lock(&clock.inner).monotonic.saturating_add(by);
    // Tasks that were only just spawned have to get as far as their first sleep, or time would
    // pass them by.
    give_turns_to_others().await;
    let driven = lock(&clock.inner).driven.clone();
    for (_, worker) in driven {
        worker.before_time_passes();
    }
    loop {
        settle_this_instant(clock).await;
        let moved = move_towards(clock, target);
        let woke = clock.wake_sleepers();
        if woke {
            give_turns_to_others().await;
        }
        if !moved {
            settle_this_instant(clock).await;
            return;
        }
    }
}

/// Runs all work that is due at this instant.
async fn settle_this_instant(clock: &FakeClock) {
    let mut steps = 0;
    loop {
        poll_suspended(clock).await;
        if !begin_steps(clock) {
            return;
        }
        steps += 1;
        assert!(
            steps < MOST_STEPS_AT_ONE_INSTANT,
            "a worker steps on and on at {} without letting time pass",
            lock(&clock.inner).now()
        );
    }
}

/// Starts a step of every worker that is due and has none in flight.
fn begin_steps(clock: &FakeClock) -> bool {
    let driven = lock(&clock.inner).driven.clone();
    let mut begun = false;
    for (id, worker) in driven {
        // Asked without holding the lock: the worker may ask the clock.
        let wants_now = worker.next_wake();
        let mut inner = lock(&clock.inner);
        let busy = inner.suspended.iter().any(|step| step.of == id);
        if busy || wants_now.is_none_or(|wake| wake > inner.now()) {
            continue;
        }
        let worker = Arc::clone(&worker);
        let future = Box::pin(async move { worker.step().await });
        inner.suspended.push(Step { of: id, future });
        begun = true;
    }
    begun
}

/// Polls the steps in flight until each has finished, or waits for this clock to move.
async fn poll_suspended(clock: &FakeClock) {
    let mut turns = 0;
    poll_fn(|cx| {
        // Taken out while they are polled, because they use the clock.
        let steps = std::mem::take(&mut lock(&clock.inner).suspended);
        let mut waiting: Vec<Step> = steps
            .into_iter()
            .filter_map(
                |mut step| match at_work::in_a_step(|| step.future.as_mut().poll(cx)) {
                    Poll::Ready(()) => None,
                    Poll::Pending => Some(step),
                },
            )
            .collect();
        let mut inner = lock(&clock.inner);
        let still_driven = |of: u64| inner.driven.iter().any(|(id, _)| *id == of);
        waiting.retain(|step| still_driven(step.of));
        let all_done = waiting.is_empty();
        inner.suspended.append(&mut waiting);
        if all_done {
            return Poll::Ready(());
        }
        if inner.is_at_work(cx) || inner.has_no_sleepers() {
            return Poll::Pending;
        }
        turns += 1;
        if turns > TURNS_FOR_OTHERS {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

async fn give_turns_to_others() {
    let mut turns = 0;
    poll_fn(|cx| {
        turns += 1;
        if turns > TURNS_FOR_OTHERS {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Moves the time to the next wake-up, but not past `target`; false if the time was there already.
fn move_towards(clock: &FakeClock, target: Duration) -> bool {
    let driven = lock(&clock.inner).driven.clone();
    let wakes: Vec<Timestamp> = driven
        .iter()
        .filter_map(|(_, worker)| worker.next_wake())
        .collect();
    let mut inner = lock(&clock.inner);
    let left = target.saturating_sub(inner.monotonic);
    if left.is_zero() {
        return false;
    }
    let now = inner.now();
    let sleeper = inner.sleepers.keys().next().map(|(until, _)| *until);
    let timed_sleeper = inner.timed_sleepers.keys().next().map(|(end, _)| *end);
    let (wall, monotonic) = (inner.wall, inner.monotonic);
    let until_next = wakes
        .into_iter()
        .chain(sleeper)
        .filter(|instant| *instant > now)
        .map(|instant| instant.since(Timestamp::MIN).saturating_sub(wall))
        .chain(timed_sleeper.map(|end| end.saturating_sub(monotonic)))
        .min()
        .unwrap_or(left)
        .min(left);
    inner.wall = inner.wall.saturating_add(until_next);
    inner.monotonic = inner.monotonic.saturating_add(until_next);
    true
}
