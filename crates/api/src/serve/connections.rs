//! Which connections are open, and which of them has to go when there are too many.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::metric_names;

/// All open connections.
pub(super) struct Connections {
    shared: Arc<Shared>,
    most: usize,
    /// So many strangers keep their places, however many connections have shown a token.
    kept_for_strangers: usize,
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
    /// Those that are not at work, by the turn at which they began to wait: strangers, and those that
    /// have shown a token.
    strangers: BTreeMap<u64, Arc<Notify>>,
    known: BTreeMap<u64, Arc<Notify>>,
}

/// One open connection. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Connection {
    shared: Arc<Shared>,
    cut: Arc<Notify>,
    place: Arc<Mutex<Place>>,
}

#[derive(Default)]
struct Place {
    /// Its turn among those that wait, if it does.
    turn: Option<u64>,
    /// Whether it has shown a token.
    is_known: bool,
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
            kept_for_strangers: most / 4,
        }
    }

    /// Takes one more, for which another may have to go. Only if all are at work it has to wait.
    pub(super) async fn admit(&self) -> Open {
        loop {
            if self.has_room() {
                let connection = Connection {
                    shared: Arc::clone(&self.shared),
                    cut: Arc::new(Notify::new()),
                    place: Arc::default(),
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

    /// Cuts the one that has waited for the longest time: of the strangers, unless they are few.
    pub(super) fn cut_oldest(&self) {
        let oldest = {
            let mut state = self.shared.state();
            if state.strangers.len() > self.kept_for_strangers || state.known.is_empty() {
                state.strangers.pop_first()
            } else {
                state.known.pop_first()
            }
        };
        if let Some((_, cut)) = oldest {
            metrics::counter!(metric_names::CONNECTIONS_CUT).increment(1);
            cut.notify_one();
        }
    }
}

impl Connection {
    fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It waits for its client, and may be cut for another.
    fn wait(&self) {
        let (mut state, mut place) = (self.shared.state(), self.place());
        state.turn += 1;
        let turn = state.turn;
        let waiting = if place.is_known {
            &mut state.known
        } else {
            &mut state.strangers
        };
        waiting.insert(turn, Arc::clone(&self.cut));
        place.turn = Some(turn);
    }

    fn stop_waiting(&self) {
        let (mut state, mut place) = (self.shared.state(), self.place());
        if let Some(turn) = place.turn.take() {
            state.strangers.remove(&turn);
            state.known.remove(&turn);
        }
    }

    /// Its client has sent a request, so it is awaited anew.
    pub(crate) fn has_asked(&self) {
        self.stop_waiting();
        self.wait();
    }

    /// Its client has shown a token that is good for something.
    pub(crate) fn is_known(&self) {
        self.stop_waiting();
        self.place().is_known = true;
        self.wait();
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

    /// Whether it still has to go when it hears so. If its client has asked for something meanwhile,
    /// another one goes in its place.
    pub(super) fn has_to_go(&self) -> bool {
        let goes = {
            let (state, place) = (self.0.shared.state(), self.0.place());
            place.turn.is_some_and(|turn| {
                !state.strangers.contains_key(&turn) && !state.known.contains_key(&turn)
            })
        };
        if !goes {
            self.0.shared.freed.notify_one();
        }
        goes
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
    fn one_that_has_begun_to_work_meanwhile_stays_and_another_goes() {
        let connections = Connections::new(2);
        let first = connections.admit().now_or_never().unwrap();
        let second = connections.admit().now_or_never().unwrap();
        let mut third = Box::pin(connections.admit());
        assert!((&mut third).now_or_never().is_none());
        let connection = first.connection();
        let at_work = connection.at_work();
        assert!(is_cut(&first) && !first.has_to_go());
        assert!((&mut third).now_or_never().is_none());
        assert!(is_cut(&second) && second.has_to_go());
        drop((at_work, second));
        assert!(third.now_or_never().is_some());
        assert!(!is_cut(&first));
    }

    #[test]
    fn strangers_go_first_unless_they_are_few() {
        let connections = Connections::new(8);
        let admit = || connections.admit().now_or_never().unwrap();
        let open: Vec<Open> = (0..8).map(|_| admit()).collect();
        for known in &open[..5] {
            known.connection().is_known();
        }
        connections.cut_oldest();
        assert!(is_cut(&open[5]), "the oldest of three strangers");
        connections.cut_oldest();
        assert!(is_cut(&open[0]), "two strangers are a quarter");
        connections.cut_oldest();
        assert!(is_cut(&open[1]) && !is_cut(&open[6]) && !is_cut(&open[7]));
        open[2].connection().has_asked();
        connections.cut_oldest();
        assert!(is_cut(&open[3]), "the third has asked since");
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
