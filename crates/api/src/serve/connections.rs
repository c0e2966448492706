//! Open connections, and which of them is evicted when there are too many.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::metric_names;

/// All open connections.
pub(super) struct Connections {
    shared: Arc<Shared>,
    max: usize,
    /// The slots that anonymous connections keep, however many others are authenticated.
    reserved_for_anonymous: usize,
}

struct Shared {
    state: Mutex<State>,
    freed: Notify,
}

/// The order in which idle connections are evicted: anonymous ones first, and of these the one that has
/// been idle the longest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    is_authenticated: bool,
    idle_since: u64,
}

#[derive(Default)]
struct State {
    open: usize,
    /// A counter instead of a clock: it grows with each connection that becomes idle.
    turn: u64,
    idle: BTreeMap<Rank, Arc<Notify>>,
}

/// One open connection. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Connection {
    shared: Arc<Shared>,
    evicted: Arc<Notify>,
    slot: Arc<Mutex<Slot>>,
}

#[derive(Default)]
struct Slot {
    /// Its rank among the idle ones, if it is idle.
    rank: Option<Rank>,
    is_authenticated: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connections {
    pub(super) fn new(max: usize) -> Self {
        let shared = Shared {
            state: Mutex::default(),
            freed: Notify::new(),
        };
        Self {
            shared: Arc::new(shared),
            max: max.max(1),
            reserved_for_anonymous: max / 4,
        }
    }

    /// Admits one more, for which another may be evicted. It waits only if all are busy.
    pub(super) async fn admit(&self) -> Open {
        while !self.try_acquire() {
            self.evict_oldest();
            self.shared.freed.notified().await;
        }
        let connection = Connection {
            shared: Arc::clone(&self.shared),
            evicted: Arc::new(Notify::new()),
            slot: Arc::default(),
        };
        connection.become_idle();
        Open(connection)
    }

    fn try_acquire(&self) -> bool {
        let mut state = self.shared.state();
        let has_room = state.open < self.max;
        state.open += usize::from(has_room);
        has_room
    }

    /// Evicts the connection that has been idle the longest: an anonymous one, unless they are few.
    pub(super) fn evict_oldest(&self) {
        let oldest = {
            let mut state = self.shared.state();
            let surplus = state.idle.keys().nth(self.reserved_for_anonymous);
            let authenticated = match surplus {
                Some(rank) if !rank.is_authenticated => None,
                _ => state.idle.keys().find(|it| it.is_authenticated).copied(),
            };
            match authenticated {
                Some(rank) => state.idle.remove(&rank),
                None => state.idle.pop_first().map(|(_, evicted)| evicted),
            }
        };
        if let Some(evicted) = oldest {
            metrics::counter!(metric_names::CONNECTIONS_CUT).increment(1);
            evicted.notify_one();
        }
    }
}

impl Connection {
    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It waits for its client, and may be evicted.
    fn become_idle(&self) {
        let (mut state, mut slot) = (self.shared.state(), self.slot());
        state.turn += 1;
        let rank = Rank {
            is_authenticated: slot.is_authenticated,
            idle_since: state.turn,
        };
        state.idle.insert(rank, Arc::clone(&self.evicted));
        slot.rank = Some(rank);
    }

    fn leave_idle(&self) {
        let (mut state, mut slot) = (self.shared.state(), self.slot());
        if let Some(rank) = slot.rank.take() {
            state.idle.remove(&rank);
        }
    }

    /// Its client has sent a request, so its idle time begins anew.
    pub(crate) fn request_received(&self) {
        self.leave_idle();
        self.become_idle();
    }

    /// Its client has given a valid token.
    pub(crate) fn authenticate(&self) {
        self.leave_idle();
        self.slot().is_authenticated = true;
        self.become_idle();
    }

    /// A request is carried out: until the guard is dropped the connection is not evicted.
    pub(crate) fn busy(&self) -> Busy<'_> {
        self.leave_idle();
        Busy(self)
    }
}

/// As long as it lives, the connection counts as open.
pub(super) struct Open(Connection);

impl Open {
    pub(super) fn connection(&self) -> Connection {
        self.0.clone()
    }

    /// Waits until it is evicted.
    pub(super) async fn evicted(&self) {
        self.0.evicted.notified().await;
    }

    /// Whether it is still evicted when it is notified. If a request has arrived meanwhile, another one is
    /// evicted instead.
    pub(super) fn confirm_eviction(&self) -> bool {
        let confirmed = {
            let (state, slot) = (self.0.shared.state(), self.0.slot());
            slot.rank
                .is_some_and(|rank| !state.idle.contains_key(&rank))
        };
        if !confirmed {
            self.0.shared.freed.notify_one();
        }
        confirmed
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.leave_idle();
        self.0.shared.state().open -= 1;
        self.0.shared.freed.notify_one();
    }
}

/// As long as it lives, a request is carried out.
pub(crate) struct Busy<'a>(&'a Connection);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.become_idle();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn is_evicted(open: &Open) -> bool {
        open.evicted().now_or_never().is_some()
    }

    #[test]
    fn a_new_connection_evicts_the_one_that_is_idle_longest() {
        let connections = Connections::new(2);
        let first = connections.admit().now_or_never().unwrap();
        let second = connections.admit().now_or_never().unwrap();
        drop(first.connection().busy());
        let mut third = Box::pin(connections.admit());
        assert!((&mut third).now_or_never().is_none());
        assert!(
            is_evicted(&second) && !is_evicted(&first),
            "the first was busy since"
        );
        drop(second);
        assert!(third.now_or_never().is_some());
    }

    #[test]
    fn one_that_became_busy_meanwhile_stays_and_another_is_evicted() {
        let connections = Connections::new(2);
        let first = connections.admit().now_or_never().unwrap();
        let second = connections.admit().now_or_never().unwrap();
        let mut third = Box::pin(connections.admit());
        assert!((&mut third).now_or_never().is_none());
        let connection = first.connection();
        let busy = connection.busy();
        assert!(is_evicted(&first) && !first.confirm_eviction());
        assert!((&mut third).now_or_never().is_none());
        assert!(is_evicted(&second) && second.confirm_eviction());
        drop((busy, second));
        assert!(third.now_or_never().is_some());
        assert!(!is_evicted(&first));
    }

    #[test]
    fn anonymous_connections_are_evicted_first_unless_they_are_few() {
        let connections = Connections::new(8);
        let admit = || connections.admit().now_or_never().unwrap();
        let open: Vec<Open> = (0..8).map(|_| admit()).collect();
        for authenticated in &open[..5] {
            authenticated.connection().authenticate();
        }
        connections.evict_oldest();
        assert!(is_evicted(&open[5]), "the oldest of three anonymous ones");
        connections.evict_oldest();
        assert!(is_evicted(&open[0]), "two anonymous ones are a quarter");
        connections.evict_oldest();
        assert!(is_evicted(&open[1]) && !is_evicted(&open[6]) && !is_evicted(&open[7]));
        open[2].connection().request_received();
        connections.evict_oldest();
        assert!(is_evicted(&open[3]), "the third has sent a request since");
    }

    #[test]
    fn a_busy_connection_is_not_evicted_and_the_next_one_waits() {
        let connections = Connections::new(1);
        let first = connections.admit().now_or_never().unwrap();
        let connection = first.connection();
        let busy = connection.busy();
        let mut second = Box::pin(connections.admit());
        assert!((&mut second).now_or_never().is_none());
        assert!(!is_evicted(&first));
        drop(busy);
        drop(first);
        assert!(second.now_or_never().is_some());
    }
}
