//! Tenants in turn: messages wait by tenant, and a call begins for whoever's turn it is.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::jetstream::{AckKind, Message};
use futures_util::FutureExt;
use tokio::sync::OwnedSemaphorePermit;

use super::Consumer;
use super::fair_queue::{FairQueue, Room};
use super::lane::{give_back, panic_text, tell};

/// How long to wait for room before it is looked for again although nobody has said so.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

impl Consumer {
    /// Whether tenants take turns: only a call for one message is a call for one tenant.
    pub(super) const fn takes_turns(&self) -> bool {
        self.wish.max_batch == 1
    }

    fn turns(&self) -> MutexGuard<'_, FairQueue<Message>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets messages wait for their turn, or puts them off. Dropping the future loses nothing.
    pub(super) async fn line_up(self: &Arc<Self>, messages: &mut VecDeque<Message>) {
        while let Some(message) = messages.front() {
            let topic = self.link.settings.prefix.topic(self.wish.topic);
            let tenant = tenant_of(&topic, message.subject.as_str()).to_owned();
            let now = self.link.clock.monotonic();
            let room = self.turns().room(&tenant, now);
            if room == Room::Soon {
                tokio::select! {
                    () = self.has_room.notified() => {}
                    () = self.link.clock.sleep_for(LOOK_AGAIN) => {}
                }
                continue;
            }
            let Some(message) = messages.pop_front() else {
                return;
            };
            if let Room::Later(wait) = room {
                tell(&self.link, &message, AckKind::Nak(Some(wait))).await;
            } else {
                let bytes = message.payload.len();
                self.turns().push(&tenant, bytes, message, now);
                self.call_in_turn();
            }
        }
    }

    /// Begins every call that may begin now.
    fn call_in_turn(self: &Arc<Self>) {
        while !self.is_stopping() {
            let Ok(lane) = Arc::clone(&self.lanes).try_acquire_owned() else {
                return;
            };
            let Some((tenant, message)) = self.turns().next() else {
                return;
            };
            tokio::spawn(Arc::clone(self).take_turn(tenant, message, lane));
        }
    }

    async fn take_turn(
        self: Arc<Self>,
        tenant: String,
        message: Message,
        lane: OwnedSemaphorePermit,
    ) {
        let handing_over = Arc::clone(&self).hand_over(vec![message], lane);
        // The call is its tenant's until it is done, however it ends.
        if let Err(panic) = AssertUnwindSafe(handing_over).catch_unwind().await {
            let reason = panic_text(panic.as_ref());
            tracing::error!(reason, "a panic; the broker delivers the message again");
        }
        self.turns().done(&tenant, self.link.clock.monotonic());
        self.has_room.notify_one();
        self.call_in_turn();
    }

    /// Lets the broker know from time to time that we still have what waits.
    pub(super) async fn keep_what_waits(self: Arc<Self>) {
        while !self.is_stopping() {
            tokio::select! {
                () = self.until_stopped() => return,
                () = self.link.clock.sleep_for(self.link.settings.ack_wait / 3) => {}
            }
            let waiting: Vec<Message> = self.turns().waiting().cloned().collect();
            for message in waiting {
                tell(&self.link, &message, AckKind::Progress).await;
            }
        }
    }

    /// Gives back what waits, at the end: after nothing more can be lined up.
    pub(super) async fn give_back_what_waits(&self) {
        if self.takes_turns() {
            self.until_nothing_is_fetched().await;
            let waiting = self.turns().take_all();
            give_back(&self.link, waiting).await;
        }
    }
}

/// Whose message it is, by its subject: what it says itself is read later. Those of the bare subject
/// are all the same tenant's here.
fn tenant_of<'a>(topic: &str, subject: &'a str) -> &'a str {
    let rest = subject.strip_prefix(topic).unwrap_or_default();
    let rest = rest.strip_prefix('.').unwrap_or_default();
    rest.split('.').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subject_says_whose_message_it_is() {
        for (subject, tenant) in [
            ("acme.timer.events.tenant-a.0190a6e1", "tenant-a"),
            ("acme.timer.events", ""),
            ("other", ""),
        ] {
            assert_eq!(tenant_of("acme.timer.events", subject), tenant);
        }
    }
}
