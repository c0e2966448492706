//! The fake clock is a clock, and drives workers through time in order.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use punctual_adapters_memory::FakeClock;
use punctual_conformance::ClockFixture;
use punctual_domain::Timestamp;
use punctual_ports::{ClockPort, Stepped};

struct Fake(FakeClock);

#[async_trait]
impl ClockFixture for Fake {
    fn clock(&self) -> Arc<dyn ClockPort> {
        Arc::new(self.0.clone())
    }

    fn exact(&self) -> Duration {
        self.0.exact()
    }

    async fn pass(&self, by: Duration) {
        self.0.advance(by).await;
    }

    fn set_wall(&self, wall: Timestamp) {
        self.0.set_wall(wall);
    }

    fn notices_within(&self) -> Duration {
        Duration::ZERO
    }
}

fn start() -> Timestamp {
    "2026-12-24T18:00:00Z".parse().unwrap()
}

mod contract {
    use super::{Fake, FakeClock, start};
    punctual_conformance::clock_suite!(Fake(FakeClock::new(start())));
}

/// Steps every so often and notes when.
struct Metronome {
    clock: FakeClock,
    every: Duration,
    next: AtomicI64,
    beats: Arc<Mutex<Vec<(&'static str, i64)>>>,
    name: &'static str,
}

impl Metronome {
    fn now(&self) -> i64 {
        self.clock.now().as_millis() - start().as_millis()
    }
}

#[async_trait]
impl Stepped for Metronome {
    fn next_wake(&self) -> Option<Timestamp> {
        Timestamp::from_millis(self.next.load(Ordering::SeqCst)).ok()
    }

    async fn step(&self) {
        self.beats.lock().unwrap().push((self.name, self.now()));
        let next = self.clock.now().saturating_add(self.every);
        self.next.store(next.as_millis(), Ordering::SeqCst);
    }
}

fn metronome(
    clock: &FakeClock,
    name: &'static str,
    every: u64,
    beats: &Arc<Mutex<Vec<(&'static str, i64)>>>,
) -> Arc<Metronome> {
    let every = Duration::from_millis(every);
    Arc::new(Metronome {
        clock: clock.clone(),
        every,
        next: AtomicI64::new(clock.now().saturating_add(every).as_millis()),
        beats: Arc::clone(beats),
        name,
    })
}

#[tokio::test]
async fn workers_are_stepped_at_their_instants_in_order() {
    let (clock, beats) = (FakeClock::new(start()), Arc::default());
    let _three = clock.drive(metronome(&clock, "three", 3, &beats));
    let _two = clock.drive(metronome(&clock, "two", 2, &beats));
    clock.advance(Duration::from_millis(6)).await;
    assert_eq!(
        *beats.lock().unwrap(),
        [
            ("two", 2),
            ("three", 3),
            ("two", 4),
            ("three", 6),
            ("two", 6)
        ]
    );
}

#[tokio::test]
async fn a_worker_is_driven_no_more_once_the_driving_is_dropped() {
    let (clock, beats) = (FakeClock::new(start()), Arc::default());
    let driving = clock.drive(metronome(&clock, "one", 1, &beats));
    clock.advance(Duration::from_millis(2)).await;
    drop(driving);
    clock.advance(Duration::from_millis(2)).await;
    assert_eq!(beats.lock().unwrap().len(), 2);
}

/// A worker whose step sleeps on the clock that drives it.
struct Sleepy {
    clock: FakeClock,
    woke_at: Mutex<Option<Timestamp>>,
}

#[async_trait]
impl Stepped for Sleepy {
    fn next_wake(&self) -> Option<Timestamp> {
        self.woke_at.lock().unwrap().is_none().then(start)
    }

    async fn step(&self) {
        let until = self.clock.now().saturating_add(Duration::from_secs(10));
        self.clock.sleep_until(until).await;
        *self.woke_at.lock().unwrap() = Some(self.clock.now());
    }
}

#[tokio::test]
async fn a_step_may_sleep_on_the_clock_and_go_on_in_a_later_advance() {
    let clock = FakeClock::new(start());
    let sleepy = Arc::new(Sleepy {
        clock: clock.clone(),
        woke_at: Mutex::new(None),
    });
    let _driving = clock.drive(sleepy.clone());
    clock.advance(Duration::from_secs(3)).await;
    assert_eq!(*sleepy.woke_at.lock().unwrap(), None);
    clock.advance(Duration::from_secs(30)).await;
    let woke_at = sleepy.woke_at.lock().unwrap().unwrap();
    assert_eq!(woke_at, start().saturating_add(Duration::from_secs(10)));
}

#[tokio::test]
async fn tasks_that_sleep_see_time_in_steps_and_not_only_the_target() {
    let clock = FakeClock::new(start());
    let sleeper = {
        let clock = clock.clone();
        tokio::spawn(async move {
            let mut seen = Vec::new();
            for _ in 0..3 {
                let until = clock.now().saturating_add(Duration::from_secs(1));
                clock.sleep_until(until).await;
                seen.push(clock.now().since(start()).as_millis());
            }
            seen
        })
    };
    tokio::task::yield_now().await;
    clock.advance(Duration::from_mins(1)).await;
    assert_eq!(sleeper.await.unwrap(), [1_000, 2_000, 3_000]);
}

#[tokio::test]
async fn advancing_to_the_past_does_nothing() {
    let clock = FakeClock::new(start());
    clock.advance_to(Timestamp::MIN).await;
    assert_eq!(clock.now(), start());
    clock.advance_to(start().next()).await;
    assert_eq!(clock.now(), start().next());
}

#[tokio::test]
#[should_panic(expected = "a worker steps on and on")]
async fn a_worker_that_never_lets_time_pass_is_found_out() {
    let (clock, beats) = (FakeClock::new(start()), Arc::default());
    let _busy = clock.drive(metronome(&clock, "busy", 0, &beats));
    clock.advance(Duration::from_millis(1)).await;
}
