//! The system clock is a clock. Time passes here by itself, so the fixture waits for it, on the
//! clock under test's own terms: a few milliseconds, and half a second where it must notice that
//! the wall clock was set.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use punctual_adapters_system::SystemClock;
use punctual_conformance::ClockFixture;
use punctual_domain::Timestamp;
use punctual_ports::ClockPort;

/// A wall clock that can be set: the real one, and how far it was moved.
#[derive(Clone, Default)]
struct Wall(Arc<Mutex<(Duration, Duration)>>);

impl Wall {
    fn now(&self) -> SystemTime {
        let (forward, back) = *self.0.lock().unwrap();
        SystemTime::now() + forward - back
    }

    fn set(&self, to: SystemTime) {
        let real = SystemTime::now();
        let forward = to.duration_since(real).unwrap_or_default();
        let back = real.duration_since(to).unwrap_or_default();
        *self.0.lock().unwrap() = (forward, back);
    }
}

struct Real {
    wall: Wall,
    clock: SystemClock,
}

impl Real {
    fn new() -> Self {
        let wall = Wall::default();
        let shown = wall.clone();
        let clock = SystemClock::with_wall(Arc::new(move || shown.now())).unwrap();
        Self { wall, clock }
    }
}

#[async_trait]
impl ClockFixture for Real {
    fn clock(&self) -> Arc<dyn ClockPort> {
        Arc::new(self.clock.clone())
    }

    fn exact(&self) -> Duration {
        self.wall.now().duration_since(UNIX_EPOCH).unwrap()
    }

    async fn pass(&self, by: Duration) {
        let other = SystemClock::start().unwrap();
        let until = Timestamp::from(SystemTime::now() + by);
        other.sleep_until(until).await;
    }

    fn set_wall(&self, wall: Timestamp) {
        self.wall.set(wall.into());
    }

    fn notices_within(&self) -> Duration {
        SystemClock::NOTICES_WITHIN
    }
}

mod contract {
    use super::Real;
    punctual_conformance::clock_suite!(Real::new());
}

#[tokio::test]
async fn a_sleep_needs_no_timer_of_the_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let clock = SystemClock::start().unwrap();
    let until = clock.now().saturating_add(Duration::from_millis(5));
    let begun = Instant::now();
    std::thread::spawn(move || runtime.unwrap().block_on(clock.sleep_until(until)))
        .join()
        .unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(4));
}

#[test]
fn a_wall_clock_outside_the_range_is_shown_as_its_edge() {
    let before = SystemClock::with_wall(Arc::new(|| UNIX_EPOCH - Duration::from_secs(1)));
    assert_eq!(before.unwrap().now(), Timestamp::MIN);
    let far = UNIX_EPOCH + Duration::from_secs(400_000_000_000);
    let after = SystemClock::with_wall(Arc::new(move || far));
    assert_eq!(after.unwrap().now(), Timestamp::MAX);
}
