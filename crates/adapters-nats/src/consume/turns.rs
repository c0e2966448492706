//! Tenants in turn: messages wait by tenant, and a call starts for the tenant whose turn it is.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::{AckKind, Message};
use futures_util::FutureExt;
use punctual_domain::Topic;
use tokio::sync::OwnedSemaphorePermit;

use super::Consumer;
use super::delivery::{acknowledge, nak_all, panic_text};
use super::fair_queue::Room;
use crate::names::below_topic;
use crate::{Prefix, lock};

/// Interval at which room is checked without a notification.
const ROOM_CHECK_INTERVAL: Duration = Duration::from_millis(10);

impl Consumer {
    /// Whether tenants take turns: only a call for one message is a call for one tenant.
    pub(super) const fn takes_turns(&self) -> bool {
        self.request.max_batch == 1
    }

    /// Enqueues messages for their turn, or defers them. Cancel safe.
    pub(super) async fn enqueue(self: &Arc<Self>, messages: &mut VecDeque<Message>) {
        while let Some(message) = messages.front() {
            let (prefix, topic) = (&self.link.settings.prefix, self.request.topic);
            let tenant = tenant_of(prefix, topic, message.subject.as_str()).to_owned();
            let now = self.link.clock.monotonic();
            let room = lock(&self.turns).room(&tenant, now);
            if room == Room::Soon {
                tokio::select! {
                    () = self.has_room.notified() => {}
                    () = self.link.clock.sleep_for(ROOM_CHECK_INTERVAL) => {}
                }
                continue;
            }
            let Some(message) = messages.pop_front() else {
                return;
            };
            if let Room::Later(wait) = room {
                acknowledge(&self.link, &message, AckKind::Nak(Some(wait))).await;
            } else {
                let bytes = message.payload.len();
                lock(&self.turns).push(&tenant, bytes, message, now);
                self.call_in_turn();
            }
        }
    }

    /// Starts every call that may start now.
    fn call_in_turn(self: &Arc<Self>) {
        while !self.is_stopping() {
            let Ok(permit) = Arc::clone(&self.call_permits).try_acquire_owned() else {
                return;
            };
            let Some((tenant, message)) = lock(&self.turns).next() else {
                return;
            };
            tokio::spawn(Arc::clone(self).call_for(tenant, message, permit));
        }
    }

    async fn call_for(
        self: Arc<Self>,
        tenant: String,
        message: Message,
        permit: OwnedSemaphorePermit,
    ) {
        let delivering = Arc::clone(&self).deliver(vec![message], permit);
        // The call counts for its tenant until it ends, whatever its outcome.
        if let Err(panic) = AssertUnwindSafe(delivering).catch_unwind().await {
            let reason = panic_text(panic.as_ref());
            tracing::error!(reason, "a panic; the broker delivers the message again");
        }
        lock(&self.turns).done(&tenant, self.link.clock.monotonic());
        self.has_room.notify_one();
        self.call_in_turn();
    }

    /// Extends the ack wait of waiting messages.
    pub(super) async fn extend_waiting(self: Arc<Self>) {
        while !self.is_stopping() {
            tokio::select! {
                () = self.until_stopped() => return,
                () = self.link.clock.sleep_for(self.link.settings.ack_wait / 3) => {}
            }
            let waiting: Vec<Message> = lock(&self.turns).waiting().cloned().collect();
            for message in waiting {
                acknowledge(&self.link, &message, AckKind::Progress).await;
            }
        }
    }

    /// Returns waiting messages to the broker once fetching has stopped.
    pub(super) async fn nak_waiting(&self) {
        if self.takes_turns() {
            self.until_nothing_is_fetched().await;
            let waiting = lock(&self.turns).take_all();
            nak_all(&self.link, waiting).await;
        }
    }
}

/// The tenant of a message, by its subject: the payload is decoded later. Messages on the bare subject
/// count as one tenant.
fn tenant_of<'a>(prefix: &Prefix, topic: Topic, subject: &'a str) -> &'a str {
    let rest = below_topic(prefix, topic, subject).unwrap_or_default();
    rest.split('.').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subject_names_the_tenant() {
        let prefix: Prefix = "acme".parse().unwrap();
        for (subject, tenant) in [
            ("acme.orchestration.commands.tenant-a", "tenant-a"),
            ("acme.api.commands.tenant-a", "tenant-a"),
            ("acme.orchestration.commands.tenant-a.0190a6e1", "tenant-a"),
            ("acme.orchestration.commands", ""),
            ("other", ""),
        ] {
            let topic = Topic::OrchestrationCommands;
            assert_eq!(tenant_of(&prefix, topic, subject), tenant);
        }
    }
}
