//! The subscriptions of one consumer, which take turns, and the calls under way in each.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use punctual_ports::MessageHandler;
use tokio::sync::{Notify, Semaphore};

use crate::lock;

pub(super) struct Consumer {
    members: Mutex<Vec<Arc<Member>>>,
    turn: AtomicUsize,
    /// Bounds how many calls run at once. It belongs to one consumer alone, so that a handler that
    /// publishes to another one cannot wait for itself.
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

    /// How many messages every subscription takes at once; `None` if there is none.
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
    under_way: usize,
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

    /// Notes that a call begins; `None` if no more may.
    pub(super) fn begin(self: &Arc<Self>) -> Option<CallGuard> {
        let mut calls = lock(&self.calls);
        if calls.stopped {
            return None;
        }
        calls.under_way += 1;
        Some(CallGuard(Arc::clone(self)))
    }

    /// Lets no more calls begin.
    pub(super) fn refuse(&self) {
        lock(&self.calls).stopped = true;
    }

    /// Lets no more calls begin, and waits for those under way.
    pub(super) async fn stop(&self) {
        self.refuse();
        loop {
            let idle = self.idle.notified();
            tokio::pin!(idle);
            // Listening before looking, so that the last call cannot end in between unnoticed.
            idle.as_mut().enable();
            if lock(&self.calls).under_way == 0 {
                return;
            }
            idle.await;
        }
    }
}

/// A call under way.
pub(super) struct CallGuard(pub(super) Arc<Member>);

impl Drop for CallGuard {
    fn drop(&mut self) {
        let mut calls = lock(&self.0.calls);
        calls.under_way -= 1;
        if calls.under_way == 0 {
            self.0.idle.notify_waiters();
        }
    }
}
