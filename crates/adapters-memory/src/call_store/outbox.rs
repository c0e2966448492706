//! Outbox messages, kept from the commit of the change they describe until they are purged.

use std::collections::{BTreeMap, BTreeSet};

use punctual_domain::messages::Listeners;
use punctual_domain::{MessageEnvelope, TimerKey, Timestamp};
use punctual_ports::{OutboxBatch, OutboxOutcome, OutboxPosition, OutboxRow, PublishedMessage};

/// Who may publish a message, and until when nobody else.
#[derive(Clone, Copy)]
struct Claim {
    /// The number of the instance.
    owner: u64,
    until: Timestamp,
    /// Whether its owner leaves it alone until then.
    is_parked: bool,
}

#[derive(Default)]
pub(super) struct Outbox {
    rows: BTreeMap<OutboxPosition, PublishedMessage>,
    unpublished: BTreeSet<OutboxPosition>,
    /// Of unpublished ones; they may have ended.
    claims: BTreeMap<OutboxPosition, Claim>,
    published: BTreeSet<(Timestamp, OutboxPosition)>,
    by_call: BTreeMap<TimerKey, BTreeSet<OutboxPosition>>,
    /// The last position, which the next one exceeds even if the clock was set back.
    last: Option<OutboxPosition>,
}

impl Outbox {
    pub(super) fn append(&mut self, messages: Vec<MessageEnvelope>, listeners: Listeners) {
        for envelope in messages {
            let (at, position) = (envelope.timestamp, self.next_position(envelope.timestamp));
            let is_received = listeners.receive(&envelope.message);
            let published_at = (!is_received).then_some(at);
            if is_received {
                self.unpublished.insert(position);
            } else {
                self.published.insert((at, position));
            }
            let of_call = self.by_call.entry(about(&envelope)).or_default();
            of_call.insert(position);
            let message = PublishedMessage {
                envelope,
                published_at,
            };
            self.rows.insert(position, message);
        }
    }

    /// Whether a message about a call is to be published.
    pub(super) fn has_unpublished(&self, call: &TimerKey) -> bool {
        let about = self.by_call.get(call).into_iter().flatten();
        about.into_iter().any(|it| self.unpublished.contains(it))
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

    /// Claims the first ones that nobody has, and tells when the next claim ends.
    pub(super) fn claim(
        &mut self,
        owner: u64,
        now: Timestamp,
        until: Timestamp,
        limit: usize,
    ) -> OutboxBatch {
        let (mut rows, mut next_at) = (Vec::new(), None);
        // Calls of which another instance is publishing an earlier message.
        let mut taken = BTreeSet::new();
        for position in &self.unpublished {
            let Some(message) = self.rows.get(position).filter(|_| rows.len() < limit) else {
                break;
            };
            let call = about(&message.envelope);
            match self.claims.get(position) {
                Some(claim) if claim.until > now => {
                    next_at = next_at.into_iter().chain([claim.until]).min();
                    if claim.owner != owner && !claim.is_parked {
                        taken.insert(call);
                    }
                }
                _ if taken.contains(&call) => {}
                _ => rows.push(OutboxRow {
                    position: *position,
                    envelope: Ok(message.envelope.clone()),
                }),
            }
        }
        let claim = Claim {
            owner,
            until,
            is_parked: false,
        };
        let positions = rows.iter().map(|row| row.position);
        self.claims
            .extend(positions.map(|position| (position, claim)));
        OutboxBatch { rows, next_at }
    }

    pub(super) fn retry_later(&mut self, owner: u64, position: OutboxPosition, at: Timestamp) {
        let claim = self.claims.get_mut(&position);
        if let Some(claim) = claim.filter(|claim| claim.owner == owner) {
            claim.until = at;
            claim.is_parked = true;
        }
    }

    pub(super) fn forget_claims(&mut self) {
        self.claims.clear();
    }

    pub(super) fn mark(&mut self, position: OutboxPosition, at: Timestamp) -> OutboxOutcome {
        if !self.unpublished.remove(&position) {
            return OutboxOutcome::AlreadyDone;
        }
        self.claims.remove(&position);
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
