//! What a clock guarantees to its sleepers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use punctual_domain::Timestamp;
use punctual_ports::ClockPort;
use tokio::task::JoinHandle;

use crate::ClockFixture;

const TICK: Duration = Duration::from_millis(20);
const HOUR: Duration = Duration::from_hours(1);

/// Later than any busy machine would explain.
const FAR_TOO_LATE: Duration = Duration::from_secs(4);

suite! { $ clock_suite, clock =>
    now_is_truncated_down_to_the_millisecond,
    monotonic_time_moves_on_and_never_back,
    a_wall_clock_set_back_leaves_monotonic_time_alone,
    a_sleep_ends_at_its_instant_and_not_before,
    a_sleep_until_the_past_ends_at_once,
    a_wall_clock_set_forward_ends_a_sleep_within_a_second,
    a_wall_clock_set_back_prolongs_a_sleep,
    a_timed_sleep_ends_after_its_time_and_not_before,
    a_wall_clock_set_back_does_not_prolong_a_timed_sleep,
    a_wall_clock_set_forward_does_not_shorten_a_timed_sleep,
    sleeps_end_in_the_order_of_their_instants,
    sleeps_until_one_instant_all_end,
    a_dropped_sleep_disturbs_no_other,
}

/// A task that sleeps, and whether it has woken.
struct Sleeper {
    woken: Arc<AtomicBool>,
    task: JoinHandle<Timestamp>,
}

impl Sleeper {
    async fn start(clock: Arc<dyn ClockPort>, until: Timestamp) -> Self {
        let sleeping = Arc::clone(&clock);
        Self::sleep(clock, async move { sleeping.sleep_until(until).await }).await
    }

    async fn start_for(clock: Arc<dyn ClockPort>, duration: Duration) -> Self {
        let sleeping = Arc::clone(&clock);
        Self::sleep(clock, async move { sleeping.sleep_for(duration).await }).await
    }

    async fn sleep(
        clock: Arc<dyn ClockPort>,
        sleep: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        let woken = Arc::new(AtomicBool::new(false));
        let (polled, was_polled) = tokio::sync::oneshot::channel();
        let flag = Arc::clone(&woken);
        let task = tokio::spawn(async move {
            tokio::pin!(sleep);
            // One poll, so that the sleep is under way when the case goes on.
            let first = std::future::poll_fn(|cx| std::task::Poll::Ready(sleep.as_mut().poll(cx)));
            let at_once = first.await.is_ready();
            _ = polled.send(());
            if !at_once {
                sleep.await;
            }
            let now = clock.now();
            flag.store(true, Ordering::SeqCst);
            now
        });
        was_polled.await.expect("the sleeper begins");
        Self { woken, task }
    }

    /// Waits for it to wake, which must not take much longer than it should.
    async fn wakes(self, clock: &dyn ClockPort, since: Duration) -> Timestamp {
        let woken_at = self.task.await.expect("no panic");
        let took = clock.monotonic().saturating_sub(since);
        assert!(took < FAR_TOO_LATE, "it woke only after {took:?}");
        woken_at
    }

    fn is_awake(&self) -> bool {
        self.woken.load(Ordering::SeqCst)
    }
}

/// Never ahead of the real time.
pub async fn now_is_truncated_down_to_the_millisecond(fixture: Box<dyn ClockFixture>) {
    for _ in 0..20 {
        let before = fixture.exact();
        let now = fixture.clock().now().since(Timestamp::MIN);
        let after = fixture.exact();
        assert!(now <= after, "{now:?} is ahead of {after:?}");
        assert!(
            now.as_millis() >= before.as_millis(),
            "{now:?} is behind {before:?}"
        );
        fixture.pass(Duration::from_micros(700)).await;
    }
}

/// As time passes.
pub async fn monotonic_time_moves_on_and_never_back(fixture: Box<dyn ClockFixture>) {
    let clock = fixture.clock();
    let start = clock.monotonic();
    fixture.pass(TICK).await;
    let later = clock.monotonic();
    assert!(later >= start + TICK, "{start:?} {later:?}");
}

/// Durations are measured in peace.
pub async fn a_wall_clock_set_back_leaves_monotonic_time_alone(fixture: Box<dyn ClockFixture>) {
    let clock = fixture.clock();
    let before = clock.monotonic();
    fixture.set_wall(clock.now().saturating_sub(HOUR));
    assert!(clock.monotonic() >= before);
    assert!(clock.monotonic() < before + HOUR / 2);
}

/// Late is possible, early is not.
pub async fn a_sleep_ends_at_its_instant_and_not_before(fixture: Box<dyn ClockFixture>) {
    let clock = fixture.clock();
    let since = clock.monotonic();
    let until = clock.now().saturating_add(TICK);
    let sleeper = Sleeper::start(fixture.clock(), until).await;
    fixture.pass(TICK * 2).await;
    let woken_at = sleeper.wakes(clock.as_ref(), since).await;
    assert!(woken_at >= until, "{woken_at} is before {until}");
}

/// Nothing to wait for.
pub async fn a_sleep_until_the_past_ends_at_once(fixture: Box<dyn ClockFixture>) {
    let clock = fixture.clock();
    clock.sleep_until(clock.now()).await;
    clock.sleep_until(Timestamp::MIN).await;
}

/// A forward jump makes things due.
pub async fn a_wall_clock_set_forward_ends_a_sleep_within_a_second(fixture: Box<dyn ClockFixture>) {
    let clock = fixture.clock();
    let until = clock.now().saturating_add(HOUR);
    let sleeper = Sleeper::start(fixture.clock(), until).await;
    // So that the task which wakes sleepers is already waiting for an hour.
    fixture.pass(TICK).await;
    let since = clock.monotonic();
    fixture.set_wall(until);
    assert!(fixture.notices_within() <= Duration::from_secs(1));
    fixture.pass(fixture.notices_within()).await;
    assert!(sleeper.wakes(clock.as_ref(), since).await >= until);
}

/// What was nearly over is far away again.
pub async fn a_wall_clock_set_back_prolongs_a_sleep(fixture: Box<dyn ClockFixture>) {
    let until = fixture.clock().now().saturating_add(TICK);
    let sleeper = Sleeper::start(fixture.clock(), until).await;
    fixture.set_wall(until.saturating_sub(HOUR));
    fixture.pass(TICK * 3).await;
    assert!(!sleeper.is_awake(), "it woke an hour early");
    sleeper.task.abort();
}

/// By the monotonic clock.
pub async fn a_timed_sleep_ends_after_its_time_and_not_before(fixture: Box<dyn ClockFixture>) {
    let clock = fixture.clock();
    let since = clock.monotonic();
    let sleeper = Sleeper::start_for(fixture.clock(), TICK).await;
    fixture.pass(TICK * 2).await;
    sleeper.wakes(clock.as_ref(), since).await;
    assert!(clock.monotonic() >= since + TICK);
}

/// An operator who sets the clock back prolongs no pause.
pub async fn a_wall_clock_set_back_does_not_prolong_a_timed_sleep(fixture: Box<dyn ClockFixture>) {
    let sleeper = Sleeper::start_for(fixture.clock(), TICK).await;
    fixture.set_wall(fixture.clock().now().saturating_sub(HOUR));
    fixture.pass(TICK * 2).await;
    sleeper.task.await.expect("no panic");
}

/// Nor shortens one.
pub async fn a_wall_clock_set_forward_does_not_shorten_a_timed_sleep(
    fixture: Box<dyn ClockFixture>,
) {
    let sleeper = Sleeper::start_for(fixture.clock(), HOUR).await;
    fixture.set_wall(fixture.clock().now().saturating_add(HOUR * 2));
    fixture.pass(TICK * 2).await;
    assert!(!sleeper.is_awake(), "it woke an hour early");
    sleeper.task.abort();
}

/// Each at its own.
pub async fn sleeps_end_in_the_order_of_their_instants(fixture: Box<dyn ClockFixture>) {
    let now = fixture.clock().now();
    let far = Sleeper::start(fixture.clock(), now.saturating_add(HOUR)).await;
    let near = Sleeper::start(fixture.clock(), now.saturating_add(TICK)).await;
    fixture.pass(TICK * 2).await;
    near.task.await.expect("no panic");
    assert!(!far.is_awake());
    far.task.abort();
}

/// However many they are.
pub async fn sleeps_until_one_instant_all_end(fixture: Box<dyn ClockFixture>) {
    let clock = fixture.clock();
    let since = clock.monotonic();
    let until = clock.now().saturating_add(TICK);
    let mut sleepers = Vec::new();
    for _ in 0..5 {
        sleepers.push(Sleeper::start(fixture.clock(), until).await);
        sleepers.push(Sleeper::start_for(fixture.clock(), TICK).await);
    }
    fixture.pass(TICK * 2).await;
    for sleeper in sleepers {
        sleeper.wakes(clock.as_ref(), since).await;
    }
}

/// Only the dropped one ends.
pub async fn a_dropped_sleep_disturbs_no_other(fixture: Box<dyn ClockFixture>) {
    let now = fixture.clock().now();
    let given_up = Sleeper::start(fixture.clock(), now.saturating_add(TICK)).await;
    let kept = Sleeper::start(fixture.clock(), now.saturating_add(TICK)).await;
    given_up.task.abort();
    fixture.pass(TICK * 2).await;
    kept.task.await.expect("no panic");
}
