//! Keys whose deletion waits for a transaction of somebody else's.
//!
//! All deletions share a connection. Those of a blocked key take turns, so that at most one of them waits in
//! the database, and the deletions of other keys pass between two turns.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use punctual_domain::TimerKey;

/// The blocked keys of a store, each with how many deletions of it wait.
#[derive(Default)]
pub(super) struct BlockedKeys {
    waiting: Mutex<HashMap<TimerKey, usize>>,
    turn: tokio::sync::Mutex<()>,
}

/// Deletions that wait, until it is dropped.
pub(super) struct Blocked<'a> {
    all: &'a BlockedKeys,
    keys: &'a [TimerKey],
}

impl BlockedKeys {
    /// Whether a deletion of one of these keys waits.
    pub(super) fn has_any(&self, keys: &[TimerKey]) -> bool {
        let waiting = self.waiting();
        !waiting.is_empty() && keys.iter().any(|key| waiting.contains_key(key))
    }

    pub(super) fn add<'a>(&'a self, keys: &'a [TimerKey]) -> Blocked<'a> {
        let mut waiting = self.waiting();
        for key in keys {
            *waiting.entry(key.clone()).or_default() += 1;
        }
        Blocked { all: self, keys }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<TimerKey, usize>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Blocked<'_> {
    /// Waits for the next turn, in the order of those who wait.
    pub(super) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.all.turn.lock().await
    }
}

impl Drop for Blocked<'_> {
    fn drop(&mut self) {
        let mut waiting = self.all.waiting();
        for key in self.keys {
            if let Some(count) = waiting.get_mut(key) {
                *count -= 1;
                if *count == 0 {
                    waiting.remove(key);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use punctual_domain::TenantId;

    use super::*;

    fn key(name: &str) -> TimerKey {
        TimerKey::named(TenantId::default(), name)
    }

    #[test]
    fn a_key_is_blocked_until_the_last_deletion_of_it_has_ended() {
        let blocked = BlockedKeys::default();
        let (both, one) = ([key("a"), key("a"), key("b")], [key("a")]);
        let first = blocked.add(&both);
        let second = blocked.add(&one);
        assert!(blocked.has_any(&[key("c"), key("b")]));
        drop(first);
        assert!(!blocked.has_any(&[key("c"), key("b")]));
        assert!(blocked.has_any(&one));
        drop(second);
        assert!(!blocked.has_any(&both));
        assert!(blocked.waiting().is_empty());
    }
}
