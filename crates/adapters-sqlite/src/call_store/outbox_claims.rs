//! Who publishes which message, in memory.
//!
//! Only one process publishes the messages of a file, and numbers are in the order of commits. So claims
//! need no column, a crash ends them all, and each message is read once: what was read before is read
//! again only when its claim has ended, by its number.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_domain::Timestamp;
use punctual_ports::{OutboxPosition, OutboxRow};

/// Maximum number of claims. At this limit nothing new is read until there are fewer.
const MOST_CLAIMS: usize = 100_000;

/// The claims of this process. Clones share them.
#[derive(Clone, Default)]
pub(super) struct OutboxClaims {
    claims: Arc<Mutex<Claims>>,
    /// Held while messages are read to be claimed, so that no two claims read the same.
    pub(super) reading: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
struct Claims {
    /// Every message up to here was claimed.
    read_to: Option<OutboxPosition>,
    until: BTreeMap<OutboxPosition, Timestamp>,
    by_end: BTreeSet<(Timestamp, OutboxPosition)>,
}

/// What a claim has to read.
pub(super) struct ToRead {
    /// Messages whose claim has ended.
    pub(super) again: Vec<OutboxPosition>,
    /// Where new messages begin.
    pub(super) after: Option<OutboxPosition>,
    /// Maximum number of new ones.
    pub(super) limit: usize,
}

impl OutboxClaims {
    fn lock(&self) -> MutexGuard<'_, Claims> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn to_read(&self, now: Timestamp, limit: usize) -> ToRead {
        let claims = self.lock();
        let ended = claims.by_end.iter().take_while(|(end, _)| *end <= now);
        let mut again: Vec<OutboxPosition> = ended.map(|(_, position)| *position).collect();
        again.sort_unstable();
        again.truncate(limit);
        ToRead {
            after: claims.read_to,
            limit: (limit - again.len()).min(MOST_CLAIMS.saturating_sub(claims.until.len())),
            again,
        }
    }

    /// Claims what was read, and forgets what was to be read again and is published. Returns when the next
    /// claim ends.
    pub(super) fn claim(
        &self,
        again: Vec<OutboxPosition>,
        rows: &[OutboxRow],
        now: Timestamp,
        until: Timestamp,
    ) -> Option<Timestamp> {
        let mut claims = self.lock();
        for position in again {
            claims.remove(position);
        }
        let next_at = claims.by_end.iter().find(|(end, _)| *end > now);
        let next_at = next_at.map(|(end, _)| *end);
        for row in rows {
            claims.set(row.position, until);
            claims.read_to = claims.read_to.max(Some(row.position));
        }
        next_at
    }

    /// Ends a claim at another time.
    pub(super) fn end_at(&self, position: OutboxPosition, at: Timestamp) {
        let mut claims = self.lock();
        if claims.until.contains_key(&position) {
            claims.set(position, at);
        }
    }

    /// Forgets a message that is published.
    pub(super) fn end(&self, position: OutboxPosition) {
        self.lock().remove(position);
    }
}

impl Claims {
    fn set(&mut self, position: OutboxPosition, until: Timestamp) {
        self.remove(position);
        self.until.insert(position, until);
        self.by_end.insert((until, position));
    }

    fn remove(&mut self, position: OutboxPosition) {
        if let Some(until) = self.until.remove(&position) {
            self.by_end.remove(&(until, position));
        }
    }
}
