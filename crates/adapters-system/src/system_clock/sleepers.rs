//! The thread that wakes the sleepers of the system clock.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant, SystemTime};

use punctual_domain::Timestamp;

use super::{SystemClock, Wall, truncated};
use crate::lock;

pub(super) struct Sleepers {
    state: Mutex<State>,
    /// Notified when a new sleep is the first to end.
    changed: Condvar,
    wall: Wall,
}

#[derive(Default)]
struct State {
    by_wall: BTreeMap<(Timestamp, u64), Waker>,
    by_monotonic: BTreeMap<(Instant, u64), Waker>,
    last_id: u64,
}

/// When a sleep ends: by the wall clock or by the monotonic one.
#[derive(Clone, Copy)]
pub(super) enum End {
    Wall(Timestamp),
    Monotonic(Instant),
}

/// Interval at which the thread checks whether the clock still exists, without sleepers.
const IDLE_INTERVAL: Duration = Duration::from_secs(5);

impl State {
    /// Removes the sleepers whose time has come.
    fn take_awake(&mut self, wall: SystemTime, monotonic: Instant) -> Vec<Waker> {
        let later = (truncated(wall), u64::MAX);
        let still_asleep = self.by_wall.split_off(&later);
        let awake = std::mem::replace(&mut self.by_wall, still_asleep);
        let later = (monotonic, u64::MAX);
        let still_asleep = self.by_monotonic.split_off(&later);
        let awake_too = std::mem::replace(&mut self.by_monotonic, still_asleep);
        awake.into_values().chain(awake_too.into_values()).collect()
    }

    /// Time until the next sleep ends, limited so that a set wall clock is noticed.
    fn time_left(&self, wall: SystemTime, monotonic: Instant) -> Duration {
        let by_wall = self.by_wall.keys().next().map(|(until, _)| {
            let left = SystemTime::from(*until).duration_since(wall);
            left.unwrap_or_default().min(SystemClock::NOTICES_WITHIN)
        });
        let by_monotonic = self.by_monotonic.keys().next();
        let by_monotonic = by_monotonic.map(|(end, _)| end.saturating_duration_since(monotonic));
        let left = by_wall.into_iter().chain(by_monotonic).min();
        left.unwrap_or(IDLE_INTERVAL).min(IDLE_INTERVAL)
    }
}

impl Sleepers {
    pub(super) fn start(wall: Wall) -> std::io::Result<Arc<Self>> {
        let sleepers = Arc::new(Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            wall,
        });
        let weak = Arc::downgrade(&sleepers);
        std::thread::Builder::new()
            .name("punctual-clock".to_owned())
            .spawn(move || run(&weak))?;
        Ok(sleepers)
    }

    pub(super) fn sleep(self: &Arc<Self>, end: End) -> Sleep {
        let mut state = lock(&self.state);
        state.last_id += 1;
        Sleep {
            id: state.last_id,
            end,
            sleepers: Arc::clone(self),
        }
    }

    /// Wakes the sleepers whose time has come, and waits for the next one.
    fn run_once(&self) {
        let awake = lock(&self.state).take_awake((self.wall)(), Instant::now());
        awake.into_iter().for_each(Waker::wake);
        let state = lock(&self.state);
        let wait = state.time_left((self.wall)(), Instant::now());
        if !wait.is_zero() {
            let waited = self.changed.wait_timeout(state, wait);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }

    fn is_over(&self, end: End) -> bool {
        match end {
            End::Wall(until) => truncated((self.wall)()) >= until,
            End::Monotonic(end) => Instant::now() >= end,
        }
    }
}

/// Runs as long as the clock exists.
fn run(sleepers: &Weak<Sleepers>) {
    // The last clone of the clock may be dropped meanwhile; then the next upgrade ends the thread.
    while let Some(sleepers) = sleepers.upgrade() {
        sleepers.run_once();
    }
}

pub(super) struct Sleep {
    id: u64,
    end: End,
    sleepers: Arc<Sleepers>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = lock(&self.sleepers.state);
        if self.sleepers.is_over(self.end) {
            return Poll::Ready(());
        }
        let waker = cx.waker().clone();
        let is_first = match self.end {
            End::Wall(until) => {
                state.by_wall.insert((until, self.id), waker);
                state.by_wall.keys().next() == Some(&(until, self.id))
            }
            End::Monotonic(end) => {
                state.by_monotonic.insert((end, self.id), waker);
                state.by_monotonic.keys().next() == Some(&(end, self.id))
            }
        };
        drop(state);
        if is_first {
            self.sleepers.changed.notify_one();
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let mut state = lock(&self.sleepers.state);
        match self.end {
            End::Wall(until) => _ = state.by_wall.remove(&(until, self.id)),
            End::Monotonic(end) => _ = state.by_monotonic.remove(&(end, self.id)),
        }
    }
}
