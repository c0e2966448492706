//! Who publishes which message, in memory.
//!
//! Only one process publishes the messages of a file, and numbers are in the order of commits. So claims
//! need no column, a crash ends them all, and each message is read once at most: what was claimed before is
//! read again only when its claim has ended, by its number.
//!
//! What this process commits is not read at all: the writer hands it over, into a queue that begins where
//! the last claim has ended. Once something cannot be added to the queue, such as a message of another
//! program in between, nothing is, until the queue is empty. An empty queue says nothing, so then the file
//! is read.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_domain::Timestamp;
use punctual_ports::{OutboxBatch, OutboxPosition, OutboxRow};

/// Maximum number of claims. At this limit nothing new is claimed until there are fewer.
const MOST_CLAIMS: usize = 100_000;
/// Maximum number of messages in the queue.
const MOST_HANDED_OVER: usize = 4_096;
/// Maximum size of their contents.
const MOST_BYTES: usize = 8 * 1024 * 1024;

/// The claims of this process. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct OutboxClaims {
    claims: Arc<Mutex<Claims>>,
    /// Held while messages are claimed, so that no two claims read the same.
    pub(super) claiming: Arc<tokio::sync::Mutex<()>>,
}

/// A committed message.
pub(crate) struct HandedOver {
    pub(crate) row: OutboxRow,
    /// Approximate size.
    pub(crate) bytes: usize,
}

#[derive(Default)]
struct Claims {
    /// Every message up to here was claimed.
    claimed_to: Option<OutboxPosition>,
    until: BTreeMap<OutboxPosition, Claim>,
    by_end: BTreeSet<(Timestamp, OutboxPosition)>,
    queue: VecDeque<HandedOver>,
    bytes: usize,
    is_used: bool,
    /// Whether what is committed next can be added to the queue.
    is_open: bool,
    /// Whether messages before those of the queue are being read, or were to be when that failed.
    is_behind: bool,
}

#[derive(Clone, Copy)]
struct Claim {
    until: Timestamp,
    /// Whether the row is known to have no secrets.
    is_clean: bool,
}

/// A message to be marked as published.
pub(super) struct ToMark {
    pub(super) position: OutboxPosition,
    /// Whether its row is known to have no secrets.
    pub(super) is_clean: bool,
}

/// What a claim has to read.
pub(super) struct ToRead {
    limit: usize,
    /// Messages whose claim has ended.
    pub(super) again: Vec<OutboxPosition>,
    /// New ones, if the queue does not have them.
    pub(super) new: Option<NewOnes>,
}

#[derive(Clone, Copy)]
pub(super) struct NewOnes {
    pub(super) after: Option<OutboxPosition>,
    pub(super) limit: usize,
}

/// What was read for a claim.
#[derive(Default)]
pub(super) struct Read {
    /// Commands whose call has its outcome, or is not there any more.
    pub(super) nothing_to_start: Vec<OutboxPosition>,
    /// Rows that may have secrets.
    pub(super) unclean: BTreeSet<OutboxPosition>,
    pub(super) again: Vec<OutboxRow>,
    pub(super) new: Vec<OutboxRow>,
}

impl OutboxClaims {
    fn lock(&self) -> MutexGuard<'_, Claims> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a claim, which [`claim`](Self::claim) ends unless reading fails.
    pub(super) fn to_read(&self, now: Timestamp, limit: usize) -> ToRead {
        let mut claims = self.lock();
        claims.is_used = true;
        let ended = claims.by_end.iter().take_while(|(end, _)| *end <= now);
        let mut again: Vec<OutboxPosition> = ended.map(|(_, position)| *position).collect();
        again.sort_unstable();
        again.truncate(limit);
        let wanted = (limit - again.len()).min(MOST_CLAIMS.saturating_sub(claims.until.len()));
        let is_to_read = wanted > 0 && (claims.is_behind || claims.queue.is_empty());
        if is_to_read {
            // From now on the queue gets what the snapshot of the read may miss.
            claims.clear();
            (claims.is_open, claims.is_behind) = (true, true);
        }
        let new = NewOnes {
            after: claims.claimed_to,
            limit: wanted,
        };
        ToRead {
            limit: wanted,
            again,
            new: is_to_read.then_some(new),
        }
    }

    /// Claims what was read or handed over, and forgets what was to be read again and is published.
    pub(super) fn claim(
        &self,
        to_read: ToRead,
        read: Read,
        now: Timestamp,
        until: Timestamp,
    ) -> OutboxBatch {
        let mut claims = self.lock();
        for position in to_read.again {
            claims.remove(position);
        }
        let next_at = claims.by_end.iter().find(|(end, _)| *end > now);
        let mut next_at = next_at.map(|(end, _)| *end);
        let mut rows = read.again;
        let new = match to_read.new {
            Some(_) => claims.after_reading(read.new, to_read.limit),
            None => claims.take(to_read.limit),
        };
        if new.len() < to_read.limit && !claims.is_open {
            next_at = Some(now);
        }
        rows.extend(new);
        for position in rows.iter().map(|row| row.position) {
            let is_clean = !read.unclean.contains(&position);
            claims.set(position, Claim { until, is_clean });
        }
        OutboxBatch { rows, next_at }
    }

    /// Whether anybody publishes, to whom messages should be handed over.
    pub(crate) fn is_used(&self) -> bool {
        self.lock().is_used
    }

    /// Adds the messages of a commit, which directly follow those of the commit before.
    pub(crate) fn hand_over(&self, messages: Vec<HandedOver>) {
        let mut claims = self.lock();
        for message in messages {
            let bytes = claims.bytes.saturating_add(message.bytes);
            if !claims.is_open || claims.queue.len() >= MOST_HANDED_OVER || bytes > MOST_BYTES {
                claims.is_open = false;
                return;
            }
            // Otherwise a read has seen this commit before it was handed over.
            if claims.claimed_to < Some(message.row.position) {
                claims.bytes = bytes;
                claims.queue.push_back(message);
            }
        }
    }

    /// Records that the file has messages that were not handed over.
    pub(crate) fn close(&self) {
        self.lock().is_open = false;
    }

    /// Ends a claim at another time.
    pub(super) fn end_at(&self, position: OutboxPosition, at: Timestamp) {
        let mut claims = self.lock();
        if let Some(claim) = claims.until.get(&position).copied() {
            claims.set(position, Claim { until: at, ..claim });
        }
    }

    /// Only what was claimed is known: what was handed over is written without secrets.
    pub(super) fn to_mark(&self, batch: &[OutboxPosition]) -> Vec<ToMark> {
        let claims = self.lock();
        let to_mark = |position: &OutboxPosition| ToMark {
            position: *position,
            is_clean: claims.until.get(position).is_some_and(|it| it.is_clean),
        };
        batch.iter().map(to_mark).collect()
    }

    /// Forgets a message that is published.
    pub(super) fn end(&self, position: OutboxPosition) {
        self.lock().remove(position);
    }
}

impl Claims {
    fn set(&mut self, position: OutboxPosition, claim: Claim) {
        self.remove(position);
        self.claimed_to = self.claimed_to.max(Some(position));
        self.until.insert(position, claim);
        self.by_end.insert((claim.until, position));
    }

    fn remove(&mut self, position: OutboxPosition) {
        if let Some(claim) = self.until.remove(&position) {
            self.by_end.remove(&(claim.until, position));
        } else if self.claimed_to < Some(position) {
            let found = self
                .queue
                .binary_search_by_key(&position, HandedOver::position);
            let removed = found.ok().and_then(|index| self.queue.remove(index));
            self.bytes -= removed.map_or(0, |it| it.bytes);
        }
    }

    fn clear(&mut self) {
        self.queue.clear();
        self.bytes = 0;
    }

    /// The first of the queue.
    fn take(&mut self, limit: usize) -> Vec<OutboxRow> {
        let number = limit.min(self.queue.len());
        let taken: Vec<HandedOver> = self.queue.drain(..number).collect();
        self.bytes -= taken.iter().map(|it| it.bytes).sum::<usize>();
        taken.into_iter().map(|it| it.row).collect()
    }

    /// Makes the queue begin after what was read.
    fn after_reading(&mut self, read: Vec<OutboxRow>, limit: usize) -> Vec<OutboxRow> {
        if read.len() < limit {
            let last = read.last().map(|row| row.position);
            let seen = self.queue.partition_point(|it| Some(it.position()) <= last);
            self.take(seen);
        } else {
            // There may be more before those of the queue.
            self.clear();
            self.is_open = false;
        }
        self.is_behind = false;
        read
    }
}

impl HandedOver {
    const fn position(&self) -> OutboxPosition {
        self.row.position
    }
}

#[cfg(test)]
mod tests {
    use punctual_ports::Unreadable;

    use super::*;

    fn row(number: i64) -> OutboxRow {
        OutboxRow {
            position: OutboxPosition {
                created_at: Timestamp::MIN,
                number,
            },
            envelope: Err(Unreadable {
                payload: Vec::new(),
                reason: String::new(),
            }),
        }
    }

    fn hand_over(claims: &OutboxClaims, numbers: impl Iterator<Item = i64>, bytes: usize) {
        let message = |number| HandedOver {
            row: row(number),
            bytes,
        };
        claims.hand_over(numbers.map(message).collect());
    }

    /// Claims up to ten, of which these are found where it is read.
    fn claim(claims: &OutboxClaims, read: &[i64]) -> (Vec<i64>, bool) {
        let to_read = claims.to_read(Timestamp::MIN, 10);
        end(claims, to_read, read)
    }

    fn end(claims: &OutboxClaims, to_read: ToRead, read: &[i64]) -> (Vec<i64>, bool) {
        assert_eq!(to_read.new.is_none(), read.is_empty());
        let read = Read {
            new: read.iter().copied().map(row).collect(),
            ..Read::default()
        };
        let batch = claims.claim(to_read, read, Timestamp::MIN, Timestamp::MAX);
        let numbers = batch.rows.iter().map(|row| row.position.number).collect();
        (numbers, batch.next_at == Some(Timestamp::MIN))
    }

    #[test]
    fn what_is_committed_during_a_read_is_claimed_after_it_and_once() {
        let claims = OutboxClaims::default();
        let to_read = claims.to_read(Timestamp::MIN, 10);
        hand_over(&claims, 1..=4, 0);
        // The snapshot of the read was taken in between.
        assert_eq!(end(&claims, to_read, &[1, 2]), (vec![1, 2], false));
        assert_eq!(claim(&claims, &[]), (vec![3, 4], false));
        // This read has seen a commit before it was handed over.
        assert_eq!(claim(&claims, &[5, 6]), (vec![5, 6], false));
        hand_over(&claims, 5..=7, 0);
        assert_eq!(claim(&claims, &[]), (vec![7], false));
    }

    #[test]
    fn after_a_read_that_was_given_up_everything_is_read() {
        let claims = OutboxClaims::default();
        drop(claims.to_read(Timestamp::MIN, 10));
        hand_over(&claims, 3..=4, 0);
        assert_eq!(claim(&claims, &[1, 2, 3, 4]), (vec![1, 2, 3, 4], false));
    }

    #[test]
    fn after_a_read_up_to_its_limit_the_rest_is_read_first() {
        let claims = OutboxClaims::default();
        let to_read = claims.to_read(Timestamp::MIN, 10);
        hand_over(&claims, 12..=13, 0);
        let all: Vec<i64> = (1..=13).collect();
        assert_eq!(end(&claims, to_read, &all[..10]).0, all[..10]);
        hand_over(&claims, 14..=15, 0);
        let rest = [11, 12, 13, 14, 15];
        assert_eq!(claim(&claims, &rest), (rest.to_vec(), false));
    }

    #[test]
    fn a_queue_that_is_too_large_says_that_there_is_more_to_read() {
        let claims = OutboxClaims::default();
        claim(&claims, &[1]);
        hand_over(&claims, 2..=4, MOST_BYTES / 2);
        hand_over(&claims, 5..=5, 0);
        assert_eq!(claim(&claims, &[]), (vec![2, 3], true));
        assert_eq!(claim(&claims, &[4, 5]), (vec![4, 5], false));
        hand_over(&claims, 6..=7, MOST_BYTES / 2);
        assert_eq!(claim(&claims, &[]), (vec![6, 7], false));
    }
}
