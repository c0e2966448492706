//! Hints: when to poll for a timer whose transaction is still its caller's.
//!
//! A timer that is stored inside a caller's transaction is invisible to the worker before the caller
//! commits, and no signal comes with that commit. So each such timer leaves a hint: the worker polls at its
//! due instant, and again at growing intervals. By the last of them the store's change feed has reported
//! the commit; and after that there is still the regular poll.

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
/// Maximum number of hints. The latest are dropped first: the change feed and the regular poll find
/// those timers.
const MAX_HINTS: usize = 1_024;

/// Instants at which the worker polls.
pub(crate) struct Hints {
    clock: Arc<dyn ClockPort>,
    wake: WakeSignal,
    /// When to poll, and how long after that to poll again.
    polls: Mutex<BTreeSet<(Timestamp, Duration)>>,
    added: Notify,
}

impl Hints {
    pub(crate) fn new(clock: Arc<dyn ClockPort>, wake: WakeSignal) -> Arc<Self> {
        Arc::new(Self {
            clock,
            wake,
            polls: Mutex::default(),
            added: Notify::new(),
        })
    }

    /// A timer that is due at this instant may be there by then.
    pub(crate) fn leave(&self, due_at: Timestamp) {
        self.polls(|polls| {
            polls.insert((due_at, FIRST_PAUSE));
            if polls.len() > MAX_HINTS {
                polls.pop_last();
            }
        });
        self.added.notify_one();
    }

    /// Lets the worker poll at each instant, for ever.
    pub(crate) async fn run(&self) -> Infallible {
        loop {
            match self.next_wake() {
                None => self.added.notified().await,
                Some(next) => tokio::select! {
                    biased;
                    () = self.clock.sleep_until(next) => self.poll(),
                    () = self.added.notified() => {}
                },
            }
        }
    }

    fn poll(&self) {
        let now = self.clock.now();
        self.polls(|polls| {
            let due: Vec<_> = polls
                .extract_if(..=(now, Duration::MAX), |_| true)
                .collect();
            for (_, pause) in due {
                if pause <= LONGEST_PAUSE {
                    polls.insert((now.saturating_add(pause), pause * 2));
                }
            }
        });
        self.wake.due_at(now);
    }

    fn polls<T>(&self, change: impl FnOnce(&mut BTreeSet<(Timestamp, Duration)>) -> T) -> T {
        change(&mut self.polls.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl Stepped for Hints {
    fn next_wake(&self) -> Option<Timestamp> {
        self.polls(|polls| polls.first().map(|(at, _)| *at))
    }

    async fn step(&self) {
        self.poll();
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use punctual_adapters_memory::FakeClock;

    #[tokio::test]
    async fn a_poll_is_repeated_at_growing_intervals_and_then_no_more() {
        let start: Timestamp = "2026-12-24T18:00:00Z".parse().unwrap();
        let clock = FakeClock::new(start);
        let hints = Hints::new(Arc::new(clock.clone()), WakeSignal::new());
        hints.leave(start.saturating_add(Duration::from_millis(10)));
        let mut polls = Vec::new();
        while let Some(next) = hints.next_wake() {
            polls.push(next.since(start).as_millis());
            clock.advance_to(next).await;
            hints.step().await;
        }
        let expected = [10, 15, 25, 45, 85, 165, 325, 645, 1_285, 2_565];
        assert_eq!(polls, expected);
    }
}
