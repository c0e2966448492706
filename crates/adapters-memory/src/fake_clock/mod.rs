//! A clock that is moved by hand, and drives workers while it moves.
//!
//! [`FakeClock::advance`] does what hours of real time would do, in order and without waiting:
//! it moves to the next instant at which a worker wants to be stepped or a task has slept enough,
//! lets them do all they can, and goes on until the target. Nothing is spawned, so the result is
//! the same on every runtime and in every run.

mod at_work;
mod driver;
mod sleep;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::Timestamp;
use punctual_ports::{ClockPort, Stepped};

use crate::lock;
use driver::Step;
use sleep::Sleep;

pub use at_work::{AtWork, Awaited};

/// A clock for tests. Clones are the same clock.
///
/// ```
/// # use punctual_adapters_memory::FakeClock;
/// # use punctual_ports::ClockPort;
/// # use std::time::Duration;
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let clock = FakeClock::new("2026-12-24T18:00:00Z".parse()?);
/// clock.advance(Duration::from_secs(3 * 3600)).await;
/// assert_eq!(clock.now().to_string(), "2026-12-24T21:00:00.000Z");
/// # Ok::<(), punctual_domain::TimestampError>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct FakeClock {
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    /// Wall time since 1970, finer than it is shown.
    wall: Duration,
    monotonic: Duration,
    sleepers: BTreeMap<(Timestamp, u64), Waker>,
    timed_sleepers: BTreeMap<(Duration, u64), Waker>,
    driven: Vec<(u64, Arc<dyn Stepped>)>,
    /// Steps that wait for time to pass, kept from one `advance` to the next.
    suspended: Vec<Step>,
    /// Number of calls in flight during which time must not pass, and the wakers waiting for their end.
    at_work: usize,
    waits_for_work: Vec<Waker>,
    last_id: u64,
}

impl Inner {
    fn has_no_sleepers(&self) -> bool {
        self.sleepers.is_empty() && self.timed_sleepers.is_empty()
    }

    /// Whether a call is in flight; if so, the caller is woken at its end.
    fn is_at_work(&mut self, cx: &Context<'_>) -> bool {
        let waits = self.at_work > 0;
        if waits {
            self.waits_for_work.push(cx.waker().clone());
        }
        waits
    }

    fn now(&self) -> Timestamp {
        let millis = i64::try_from(self.wall.as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(millis).unwrap_or(Timestamp::MAX)
    }

    fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}

impl FakeClock {
    /// A clock that stands at `start`.
    pub fn new(start: Timestamp) -> Self {
        Self {
            inner: Arc::new(Mutex::new(Inner {
                wall: start.since(Timestamp::MIN),
                monotonic: Duration::ZERO,
                sleepers: BTreeMap::new(),
                timed_sleepers: BTreeMap::new(),
                driven: Vec::new(),
                suspended: Vec::new(),
                at_work: 0,
                waits_for_work: Vec::new(),
                last_id: 0,
            })),
        }
    }

    /// The wall time with all its digits, of which [`ClockPort::now`] shows the milliseconds.
    pub fn exact(&self) -> Duration {
        lock(&self.inner).wall
    }

    /// Steps a worker whenever its time has come, until the answer is dropped.
    #[must_use = "dropping it stops the driving"]
    pub fn drive(&self, worker: Arc<dyn Stepped>) -> Driving {
        let mut inner = lock(&self.inner);
        let id = inner.new_id();
        inner.driven.push((id, worker));
        Driving {
            clock: self.clone(),
            id,
        }
    }

    /// Lets time pass, doing on the way all that is due, each at its instant.
    ///
    /// A step that waits for something other than this clock is waited for. If tasks sleep on the
    /// clock, one of them may be what the step waits for, and time goes on, unless a
    /// [store](crate::Awaited) is at work. So a handler must not
    /// wait for what only a later instant brings in any other way than by sleeping on the clock,
    /// and must not advance the clock itself: both would wait for ever.
    pub async fn advance(&self, by: Duration) {
        driver::advance(self, by).await;
    }

    /// Lets time pass up to an instant; nothing if that has passed.
    pub async fn advance_to(&self, instant: Timestamp) {
        let left = instant.since(Timestamp::MIN).saturating_sub(self.exact());
        self.advance(left).await;
    }

    /// Sets the wall clock, forward or back, as an operator or a time server would. No time
    /// passes: the monotonic clock stays. Workers notice when time next passes.
    pub fn set_wall(&self, wall: Timestamp) {
        lock(&self.inner).wall = wall.since(Timestamp::MIN);
        self.wake_sleepers();
    }

    /// Wakes the sleepers whose time has come.
    fn wake_sleepers(&self) -> bool {
        let due: Vec<Waker> = {
            let mut inner = lock(&self.inner);
            let later = (inner.now(), u64::MAX);
            let still_asleep = inner.sleepers.split_off(&later);
            let awake = std::mem::replace(&mut inner.sleepers, still_asleep);
            let later = (inner.monotonic, u64::MAX);
            let still_asleep = inner.timed_sleepers.split_off(&later);
            let awake_too = std::mem::replace(&mut inner.timed_sleepers, still_asleep);
            awake.into_values().chain(awake_too.into_values()).collect()
        };
        let any = !due.is_empty();
        due.into_iter().for_each(Waker::wake);
        any
    }
}

#[async_trait]
impl ClockPort for FakeClock {
    fn now(&self) -> Timestamp {
        lock(&self.inner).now()
    }

    fn monotonic(&self) -> Duration {
        lock(&self.inner).monotonic
    }

    async fn sleep_until(&self, instant: Timestamp) {
        Sleep::until(self.clone(), instant).await;
    }

    async fn sleep_for(&self, duration: Duration) {
        Sleep::timed(self.clone(), duration).await;
    }
}

impl fmt::Debug for FakeClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FakeClock({})", self.now())
    }
}

/// As long as it lives, a clock drives a worker.
#[derive(Debug)]
pub struct Driving {
    clock: FakeClock,
    id: u64,
}

impl Drop for Driving {
    fn drop(&mut self) {
        let (driven, suspended) = {
            let mut inner = lock(&self.clock.inner);
            let id = self.id;
            let driven: Vec<_> = inner.driven.extract_if(.., |(of, _)| *of == id).collect();
            let suspended: Vec<_> = inner.suspended.extract_if(.., |s| s.of == id).collect();
            (driven, suspended)
        };
        // Dropped here and not above: dropping a worker may use the clock.
        drop((driven, suspended));
    }
}
