//! What all threads of a proxy share: which connections there are, and what is to happen to them.

use std::collections::BTreeMap;
use std::net::{Shutdown, TcpStream};
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The state, and a way to wait for the end of a hang.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) target: (String, u16),
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) hangs: bool,
    pub(super) order: Option<Order>,
    pub(super) accepted: usize,
    pub(super) cuts: usize,
    pub(super) open: BTreeMap<usize, Connection>,
}

/// One that is open.
#[derive(Debug, Default)]
pub(super) struct Connection {
    /// To the client, and to the server.
    sockets: Vec<TcpStream>,
    /// By an order, which counts as a cut already: the client gets nothing more.
    is_cut: bool,
}

/// Where the next connection is cut.
#[derive(Debug, Clone)]
pub(super) struct Order {
    pub(super) words: Vec<u8>,
    pub(super) moment: Moment,
}

/// What happens to the words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    Before,
    After,
}

impl Network {
    pub(super) fn to(target: (String, u16)) -> Self {
        Self {
            target,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_hanging(&self, hangs: bool) {
        self.lock().hangs = hangs;
        self.changed.notify_all();
    }

    /// Ends all connections on both sides.
    pub(super) fn cut_all(&self) {
        let mut state = self.lock();
        for connection in std::mem::take(&mut state.open).into_values() {
            state.cuts += usize::from(!connection.is_cut);
            for socket in connection.sockets {
                // The other side may have been faster.
                let _ = socket.shutdown(Shutdown::Both);
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    /// A new connection; its number.
    pub(super) fn open(&self, client: &TcpStream) -> usize {
        let mut state = self.lock();
        let id = state.accepted;
        state.accepted += 1;
        let connection = Connection {
            sockets: client.try_clone().into_iter().collect(),
            is_cut: false,
        };
        state.open.insert(id, connection);
        id
    }

    /// The socket of a connection to the server; `false` if it was cut in the meantime.
    pub(super) fn add(&self, id: usize, server: &TcpStream) -> bool {
        match (self.lock().open.get_mut(&id), server.try_clone()) {
            (Some(connection), Ok(server)) => {
                connection.sockets.push(server);
                true
            }
            _ => false,
        }
    }

    pub(super) fn close(&self, id: usize) {
        self.lock().open.remove(&id);
    }

    /// Waits while everything hangs; whether the connection is still open then.
    pub(super) fn may_go_on(&self, id: usize) -> bool {
        let hanging = |state: &mut State| state.hangs && state.open.contains_key(&id);
        let state = self
            .changed
            .wait_while(self.lock(), hanging)
            .unwrap_or_else(PoisonError::into_inner);
        state.open.contains_key(&id)
    }

    /// Whether the client may be told something.
    pub(super) fn may_answer(&self, id: usize) -> bool {
        let state = self.lock();
        state.open.get(&id).is_some_and(|it| !it.is_cut)
    }

    /// Takes the order if its words end behind the first `known` bytes, which were searched
    /// before; when to cut, and where the words are. It is carried out only once, and from here on the
    /// client is told nothing more.
    pub(super) fn take_order(
        &self,
        id: usize,
        sent: &[u8],
        known: usize,
    ) -> Option<(Moment, Range<usize>)> {
        let mut state = self.lock();
        let words = &state.order.as_ref()?.words;
        let from = known.saturating_sub(words.len() - 1);
        let at = sent[from..]
            .windows(words.len())
            .position(|it| it == words)?;
        let order = state.order.take()?;
        state.cuts += 1;
        if let Some(connection) = state.open.get_mut(&id) {
            connection.is_cut = true;
        }
        let start = from + at;
        Some((order.moment, start..start + order.words.len()))
    }

    /// How much of what was forwarded may be the beginning of the words.
    pub(super) fn kept(&self) -> usize {
        let state = self.lock();
        state.order.as_ref().map_or(0, |it| it.words.len() - 1)
    }
}
