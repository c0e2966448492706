//! The subscriptions of one consumer, which take turns, and the calls in flight in each.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use punctual_ports::MessageHandler;
use tokio::sync::{Notify, Semaphore};

use crate::lock;

pub(super) struct Consumer {
    members: Mutex<Vec<Arc<Member>>>,
    turn: AtomicUsize,
    /// Limits concurrent calls, per consumer, so that a handler that publishes to another consumer cannot
    /// deadlock.
    pub(super) permits: Arc<Semaphore>,
}

impl Consumer {
    pub(super) fn new(concurrency: usize) -> Self {
        Self {
            members: Mutex::default(),
            turn: AtomicUsize::new(0),
            permits: Arc::new(Semaphore::new(concurrency.min(Semaphore::MAX_PERMITS))),
        }
    }

    pub(super) fn add(&self, member: Arc<Member>) {
        lock(&self.members).push(member);
    }

    pub(super) fn remove(&self, member: &Arc<Member>) {
        lock(&self.members).retain(|other| !Arc::ptr_eq(other, member));
    }

    /// Smallest batch size of the subscriptions; `None` if there is none.
    pub(super) fn smallest_batch(&self) -> Option<usize> {
        let members = lock(&self.members);
        members.iter().map(|member| member.max_batch).min()
    }

    /// The subscription whose turn it is; `None` if there is none.
    pub(super) fn next_member(&self) -> Option<Arc<Member>> {
        let members = lock(&self.members);
        if members.is_empty() {
            return None;
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        members.get(turn % members.len()).cloned()
    }
}

/// One subscription.
pub(super) struct Member {
    pub(super) handler: Arc<dyn MessageHandler>,
    pub(super) max_batch: usize,
    calls: Mutex<Calls>,
    idle: Notify,
}

#[derive(Default)]
struct Calls {
    in_flight: usize,
    stopped: bool,
}

impl Member {
    pub(super) fn new(handler: Arc<dyn MessageHandler>, max_batch: usize) -> Self {
        Self {
            handler,
            max_batch,
            calls: Mutex::default(),
            idle: Notify::new(),
        }
    }

    /// Starts a call; `None` if the subscription is stopped.
    pub(super) fn begin(self: &Arc<Self>) -> Option<CallGuard> {
        let mut calls = lock(&self.calls);
        if calls.stopped {
            return None;
        }
        calls.in_flight += 1;
        Some(CallGuard(Arc::clone(self)))
    }

    /// Refuses further calls.
    pub(super) fn refuse(&self) {
        lock(&self.calls).stopped = true;
    }

    /// Refuses further calls, and waits for those in flight.
    pub(super) async fn stop(&self) {
        self.refuse();
        loop {
            let idle = self.idle.notified();
            tokio::pin!(idle);
            // Registered before the check, so that the end of the last call is not missed.
            idle.as_mut().enable();
            if lock(&self.calls).in_flight == 0 {
                return;
            }
            idle.await;
        }
    }
}

/// A call in flight.
pub(super) struct CallGuard(pub(super) Arc<Member>);

impl Drop for CallGuard {
    fn drop(&mut self) {
        let mut calls = lock(&self.0.calls);
        calls.in_flight -= 1;
        if calls.in_flight == 0 {
            self.0.idle.notify_waiters();
        }
    }
}
