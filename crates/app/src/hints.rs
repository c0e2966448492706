//! When to look for a timer whose transaction is still its caller's.
//!
//! `schedule_in` stores a row that the worker cannot see before the caller commits, and nobody tells
//! us of that commit. So each such timer leaves a hint: the worker looks at its due instant, and
//! again at growing intervals. By the last of them the watch over foreign commits, which looks once
//! a second, has seen the commit; and after that there is still the poll.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::Timestamp;
use punctual_ports::{ClockPort, Stepped};
use punctual_workflows::WakeSignal;
use tokio::sync::Notify;

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Of more hints than this, the latest are forgotten: the watch and the poll find those timers.
const MOST: usize = 1_024;

/// Instants at which the worker is to look.
pub(crate) struct Hints {
    clock: Arc<dyn ClockPort>,
    wake: WakeSignal,
    /// When to look, and how long to wait after that before looking again.
    looks: Mutex<BTreeSet<(Timestamp, Duration)>>,
    notifier: Notify,
}

impl Hints {
    pub(crate) fn new(clock: Arc<dyn ClockPort>, wake: WakeSignal) -> Arc<Self> {
        Arc::new(Self {
            clock,
            wake,
            looks: Mutex::default(),
            notifier: Notify::new(),
        })
    }

    /// A timer that is due at this instant may be there by then.
    pub(crate) fn leave(&self, due_at: Timestamp) {
        self.looks(|looks| {
            looks.insert((due_at, FIRST_PAUSE));
            if looks.len() > MOST {
                looks.pop_last();
            }
        });
        self.notifier.notify_one();
    }

    /// Lets the worker look at each instant, for ever.
    pub(crate) async fn run(&self) -> Infallible {
        loop {
            match self.next_wake() {
                None => self.notifier.notified().await,
                Some(next) => tokio::select! {
                    biased;
                    () = self.clock.sleep_until(next) => self.look(),
                    () = self.notifier.notified() => {}
                },
            }
        }
    }

    fn look(&self) {
        let now = self.clock.now();
        self.looks(|looks| {
            let due: Vec<_> = looks
                .extract_if(..=(now, Duration::MAX), |_| true)
                .collect();
            for (_, pause) in due {
                if pause <= LONGEST_PAUSE {
                    looks.insert((now.saturating_add(pause), pause * 2));
                }
            }
        });
        self.wake.due_at(now);
    }

    fn looks<T>(&self, change: impl FnOnce(&mut BTreeSet<(Timestamp, Duration)>) -> T) -> T {
        change(&mut self.looks.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl Stepped for Hints {
    fn next_wake(&self) -> Option<Timestamp> {
        self.looks(|looks| looks.first().map(|(at, _)| *at))
    }

    async fn step(&self) {
        self.look();
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use punctual_adapters_memory::FakeClock;

    #[tokio::test]
    async fn a_look_is_repeated_at_growing_intervals_and_then_no_more() {
        let start: Timestamp = "2026-12-24T18:00:00Z".parse().unwrap();
        let clock = FakeClock::new(start);
        let hints = Hints::new(Arc::new(clock.clone()), WakeSignal::new());
        hints.leave(start.saturating_add(Duration::from_millis(10)));
        let mut looks = Vec::new();
        while let Some(next) = hints.next_wake() {
            looks.push(next.since(start).as_millis());
            clock.advance_to(next).await;
            hints.step().await;
        }
        let expected = [10, 15, 25, 45, 85, 165, 325, 645, 1_285, 2_565];
        assert_eq!(looks, expected);
    }
}
