//! The operating system's clock.

mod sleepers;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use punctual_domain::Timestamp;
use punctual_ports::ClockPort;

use sleepers::{End, Sleepers};

/// The wall clock and the monotonic clock of this machine. Clones are the same clock.
///
/// A dedicated thread wakes the sleepers: it waits for the exact instant, where the timer of an async
/// runtime would round up to its next tick, and reads the wall clock at least twice a second, to notice
/// when that is set.
#[derive(Clone)]
pub struct SystemClock {
    wall: Wall,
    start: Instant,
    sleepers: Arc<Sleepers>,
}

type Wall = Arc<dyn Fn() -> SystemTime + Send + Sync>;

impl SystemClock {
    /// Maximum time until a sleeper notices that the wall clock was set.
    pub const NOTICES_WITHIN: Duration = Duration::from_millis(500);

    /// Starts the clock.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start() -> std::io::Result<Self> {
        Self::with_wall(Arc::new(SystemTime::now))
    }

    /// A clock with another wall clock, for tests that set it.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn with_wall(wall: Wall) -> std::io::Result<Self> {
        Ok(Self {
            sleepers: Sleepers::start(Arc::clone(&wall))?,
            wall,
            start: Instant::now(),
        })
    }
}

/// Truncates down, so that the clock is never ahead and no sleep ends early.
fn truncated(wall: SystemTime) -> Timestamp {
    let millis = wall.duration_since(UNIX_EPOCH).map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    });
    Timestamp::from_millis(millis).unwrap_or(Timestamp::MAX)
}

#[async_trait]
impl ClockPort for SystemClock {
    fn now(&self) -> Timestamp {
        truncated((self.wall)())
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    async fn sleep_until(&self, instant: Timestamp) {
        if self.now() < instant {
            self.sleepers.sleep(End::Wall(instant)).await;
        }
    }

    async fn sleep_for(&self, duration: Duration) {
        // An instant beyond the range of the clock is never reached.
        if let Some(end) = Instant::now().checked_add(duration) {
            self.sleepers.sleep(End::Monotonic(end)).await;
        } else {
            std::future::pending::<()>().await;
        }
    }
}

impl fmt::Debug for SystemClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SystemClock({})", self.now())
    }
}
