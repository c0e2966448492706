//! When a worker continues: at a wall-clock time, at a monotonic time, or at the earlier of both.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::BoxFuture;
use punctual_domain::Timestamp;
use punctual_ports::ClockPort;

use crate::Notifier;
use crate::driven::NextWake;

/// The deadlines of a worker's wait. Due times are on the wall clock; polls and pauses are on the monotonic
/// clock, so that they end although the wall clock is set back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Alarm {
    /// At this instant of the wall clock.
    pub(crate) wall: Option<Timestamp>,
    /// At this time of the monotonic clock.
    pub(crate) monotonic: Option<Duration>,
    /// Whether a notification of an earlier due time ends the wait.
    pub(crate) wakes_on_earlier_due: bool,
}

impl Alarm {
    /// Not later than this instant.
    pub(crate) fn at_wall(&mut self, instant: Timestamp) {
        self.wall = Some(self.wall.map_or(instant, |wall| wall.min(instant)));
    }

    /// Not later than this time of the monotonic clock.
    pub(crate) fn at_monotonic(&mut self, time: Duration) {
        self.monotonic = Some(self.monotonic.map_or(time, |other| other.min(time)));
    }

    /// Whether one of the two has come.
    pub(crate) fn has_come(self, clock: &dyn ClockPort) -> bool {
        self.wall.is_some_and(|wall| clock.now() >= wall)
            || self.monotonic.is_some_and(|time| clock.monotonic() >= time)
    }

    /// The wall-clock time of the earlier one, if the wall clock is not set meanwhile.
    pub(crate) fn as_wall_time(self, clock: &dyn ClockPort) -> Option<Timestamp> {
        let by_monotonic = self.monotonic.map(|time| {
            let left = time.saturating_sub(clock.monotonic());
            clock.now().saturating_add(left)
        });
        self.wall.into_iter().chain(by_monotonic).min()
    }

    /// Waits until one of the two has come, without sleeping: the driver of the clock polls.
    pub(crate) async fn poll_only(self, clock: &dyn ClockPort) {
        std::future::poll_fn(|_| {
            if self.has_come(clock) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// Waits until one of the two has come.
    pub(crate) async fn wait(self, clock: &dyn ClockPort) {
        let left = |time: Duration| time.saturating_sub(clock.monotonic());
        tokio::select! {
            () = or_never(self.wall.map(|wall| clock.sleep_until(wall))) => {}
            () = or_never(self.monotonic.map(|time| clock.sleep_for(left(time)))) => {}
        }
    }
}

async fn or_never(sleep: Option<BoxFuture<'_, ()>>) {
    match sleep {
        Some(sleep) => sleep.await,
        None => std::future::pending().await,
    }
}

/// An alarm that can be read during a step of the worker that sets it; `None` before the first step.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedAlarm(Arc<Mutex<Option<Alarm>>>);

impl SharedAlarm {
    pub(crate) fn set(&self, alarm: Alarm) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(alarm);
    }

    /// Sets it to a time from now, by the monotonic clock.
    pub(crate) fn set_after(&self, wait: Duration, clock: &dyn ClockPort) -> Alarm {
        let mut alarm = Alarm::default();
        alarm.at_monotonic(clock.monotonic().saturating_add(wait));
        self.set(alarm);
        alarm
    }

    /// When to step next: at the alarm; at once before the first step and after a notification.
    pub(crate) fn next_wake_fn(&self, clock: &Arc<dyn ClockPort>, notifier: &Notifier) -> NextWake {
        let (alarm, clock) = (self.clone(), Arc::clone(clock));
        let notifier = notifier.clone();
        Arc::new(move || match alarm.get() {
            Some(alarm) if !notifier.is_notified() => alarm.as_wall_time(clock.as_ref()),
            _ => Some(clock.now()),
        })
    }

    pub(crate) fn get(&self) -> Option<Alarm> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
