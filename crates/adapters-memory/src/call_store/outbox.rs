//! Outbox messages, kept from the commit of the change they describe until they are purged.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use punctual_domain::{MessageEnvelope, TimerKey, Timestamp};
use punctual_ports::{OutboxOutcome, OutboxPosition, OutboxRow, PublishedMessage};

#[derive(Default)]
pub(super) struct Outbox {
    rows: BTreeMap<OutboxPosition, PublishedMessage>,
    unpublished: BTreeSet<OutboxPosition>,
    published: BTreeSet<(Timestamp, OutboxPosition)>,
    by_call: BTreeMap<TimerKey, BTreeSet<OutboxPosition>>,
    /// The last position, which the next one exceeds even if the clock was set back.
    last: Option<OutboxPosition>,
}

impl Outbox {
    pub(super) fn append(&mut self, messages: Vec<MessageEnvelope>) {
        for envelope in messages {
            let position = self.next_position(envelope.timestamp);
            self.unpublished.insert(position);
            let of_call = self.by_call.entry(about(&envelope)).or_default();
            of_call.insert(position);
            let published_at = None;
            let message = PublishedMessage {
                envelope,
                published_at,
            };
            self.rows.insert(position, message);
        }
    }

    fn next_position(&mut self, written_at: Timestamp) -> OutboxPosition {
        let next = OutboxPosition {
            created_at: self
                .last
                .map_or(written_at, |last| last.created_at.max(written_at)),
            number: self.last.map_or(1, |last| last.number + 1),
        };
        self.last = Some(next);
        next
    }

    pub(super) fn unpublished(
        &self,
        after: Option<OutboxPosition>,
        limit: usize,
    ) -> Vec<OutboxRow> {
        let from = after.map_or(Unbounded, Excluded);
        self.unpublished
            .range((from, Unbounded))
            .take(limit)
            .filter_map(|position| Some((position, self.rows.get(position)?)))
            .map(|(position, message)| OutboxRow {
                position: *position,
                envelope: Ok(message.envelope.clone()),
            })
            .collect()
    }

    pub(super) fn mark(&mut self, position: OutboxPosition, at: Timestamp) -> OutboxOutcome {
        if !self.unpublished.remove(&position) {
            return OutboxOutcome::AlreadyDone;
        }
        self.published.insert((at, position));
        if let Some(message) = self.rows.remove(&position) {
            let kept = PublishedMessage {
                envelope: message.envelope.redacted(),
                published_at: Some(at),
            };
            self.rows.insert(position, kept);
        }
        OutboxOutcome::Marked
    }

    pub(super) fn count(&self, limit: usize) -> usize {
        self.unpublished.len().min(limit)
    }

    pub(super) fn about(&self, key: &TimerKey, limit: usize) -> Vec<PublishedMessage> {
        let positions = self.by_call.get(key).into_iter().flatten();
        let messages = positions.filter_map(|position| self.rows.get(position));
        messages
            .take(limit)
            .map(|message| PublishedMessage {
                envelope: message.envelope.clone().redacted(),
                published_at: message.published_at,
            })
            .collect()
    }

    pub(super) fn purge(&mut self, before: Timestamp, limit: usize) -> usize {
        let old = self.published.iter().take_while(|(at, _)| *at < before);
        let old: Vec<_> = old.take(limit).copied().collect();
        for row in &old {
            self.published.remove(row);
            self.remove(row.1);
        }
        old.len()
    }

    fn remove(&mut self, position: OutboxPosition) {
        let Some(message) = self.rows.remove(&position) else {
            return;
        };
        let key = about(&message.envelope);
        if let Some(positions) = self.by_call.get_mut(&key) {
            positions.remove(&position);
            if positions.is_empty() {
                self.by_call.remove(&key);
            }
        }
    }
}

fn about(envelope: &MessageEnvelope) -> TimerKey {
    let message = &envelope.message;
    TimerKey::new(message.tenant_id().clone(), message.service_call_id())
}
