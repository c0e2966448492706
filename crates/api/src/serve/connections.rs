//! Which connections are open, and which of them has to go when there are too many.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::metric_names;

/// All open connections.
pub(super) struct Connections {
    shared: Arc<Shared>,
    most: usize,
}

struct Shared {
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Default)]
struct State {
    open: usize,
    /// Grows, so that who waits the longest comes first.
    turn: u64,
    /// Those that are not at work, by the turn at which they began to wait.
    waiting: BTreeMap<u64, Arc<Notify>>,
}

/// One open connection. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Connection {
    shared: Arc<Shared>,
    cut: Arc<Notify>,
    /// Its place among those that wait, if it does.
    turn: Arc<Mutex<Option<u64>>>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connections {
    pub(super) fn new(most: usize) -> Self {
        let shared = Shared {
            state: Mutex::default(),
            freed: Notify::new(),
        };
        Self {
            shared: Arc::new(shared),
            most: most.max(1),
        }
    }

    /// Takes one more, for which another may have to go. Only if all are at work it has to wait.
    pub(super) async fn admit(&self) -> Open {
        loop {
            if self.has_room() {
                let connection = Connection {
                    shared: Arc::clone(&self.shared),
                    cut: Arc::new(Notify::new()),
                    turn: Arc::default(),
                };
                connection.wait();
                return Open(connection);
            }
            self.cut_oldest();
            self.shared.freed.notified().await;
        }
    }

    fn has_room(&self) -> bool {
        let mut state = self.shared.state();
        let room = state.open < self.most;
        state.open += usize::from(room);
        room
    }

    /// Cuts the one that has waited for the longest time.
    pub(super) fn cut_oldest(&self) {
        let oldest = self.shared.state().waiting.pop_first();
        if let Some((_, cut)) = oldest {
            metrics::counter!(metric_names::CONNECTIONS_CUT).increment(1);
            cut.notify_one();
        }
    }
}

impl Connection {
    fn turn(&self) -> MutexGuard<'_, Option<u64>> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It waits for its client, and may be cut for another.
    fn wait(&self) {
        let mut state = self.shared.state();
        state.turn += 1;
        let turn = state.turn;
        state.waiting.insert(turn, Arc::clone(&self.cut));
        *self.turn() = Some(turn);
    }

    fn stop_waiting(&self) {
        let mut state = self.shared.state();
        if let Some(turn) = self.turn().take() {
            state.waiting.remove(&turn);
        }
    }

    /// A request is carried out: until the guard is dropped it is not cut for another.
    pub(crate) fn at_work(&self) -> AtWork<'_> {
        self.stop_waiting();
        AtWork(self)
    }
}

/// As long as it lives, the connection counts as open.
pub(super) struct Open(Connection);

impl Open {
    pub(super) fn connection(&self) -> Connection {
        self.0.clone()
    }

    /// Waits until it has to go.
    pub(super) async fn cut(&self) {
        self.0.cut.notified().await;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.stop_waiting();
        self.0.shared.state().open -= 1;
        self.0.shared.freed.notify_one();
    }
}

/// As long as it lives, a request is carried out.
pub(crate) struct AtWork<'a>(&'a Connection);

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn is_cut(open: &Open) -> bool {
        open.cut().now_or_never().is_some()
    }

    #[test]
    fn a_new_one_takes_the_place_of_the_one_that_waits_longest() {
        let connections = Connections::new(2);
        let first = connections.admit().now_or_never().unwrap();
        let second = connections.admit().now_or_never().unwrap();
        drop(first.connection().at_work());
        let mut third = Box::pin(connections.admit());
        assert!((&mut third).now_or_never().is_none());
        assert!(
            is_cut(&second) && !is_cut(&first),
            "the first was asked since"
        );
        drop(second);
        assert!(third.now_or_never().is_some());
    }

    #[test]
    fn who_is_at_work_is_not_cut_and_the_next_waits() {
        let connections = Connections::new(1);
        let first = connections.admit().now_or_never().unwrap();
        let connection = first.connection();
        let at_work = connection.at_work();
        let mut second = Box::pin(connections.admit());
        assert!((&mut second).now_or_never().is_none());
        assert!(!is_cut(&first));
        drop(at_work);
        drop(first);
        assert!(second.now_or_never().is_some());
    }
}
