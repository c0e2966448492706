//! Delivery of messages to a handler, and the meaning of its answers.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::join_all;
use punctual_domain::MessageEnvelope;
use punctual_ports::Answer;
use tokio::task::JoinHandle;
use tracing::Instrument;

use super::Handlers;
use super::consumer::{CallGuard, Consumer};

/// Delivers messages to one consumer, in calls of at most the batch size of its handlers; `None` if the
/// consumer has no subscription left.
pub(super) async fn deliver(
    consumer: &Consumer,
    batch: &[MessageEnvelope],
    handlers: &Handlers,
) -> Option<Vec<Answer>> {
    let calls = batch
        .chunks(consumer.smallest_batch()?)
        .map(|chunk| call(consumer, chunk.to_vec(), handlers));
    Some(join_all(calls).await.into_iter().flatten().collect())
}

async fn call(
    consumer: &Consumer,
    chunk: Vec<MessageEnvelope>,
    handlers: &Handlers,
) -> Vec<Answer> {
    let permit = Arc::clone(&consumer.permits).acquire_owned().await;
    // The semaphore is never closed.
    let permit = permit.ok();
    let length = chunk.len();
    let Some(guard) = begin(consumer) else {
        // It was subscribed when the message was published: the answers of others must not hide that it
        // did not get the message.
        return vec![stopped(); length];
    };
    let work = async move {
        let _permit = permit;
        handle(guard, chunk).await
    };
    let mut answers = match handlers {
        Handlers::Inline => work.await,
        // Log lines of the handler belong to the span of the firing.
        Handlers::Spawned(runtime) => {
            AbortOnDrop(runtime.spawn(work.in_current_span()))
                .join()
                .await
        }
    };
    answers.resize_with(length, no_answer);
    answers
}

fn stopped() -> Answer {
    Answer::RetryLater {
        reason: "the subscription was stopped before it got this message".to_owned(),
    }
}

/// Starts a call of the subscription whose turn it is, skipping stopped ones; `None` if none is left.
fn begin(consumer: &Consumer) -> Option<CallGuard> {
    loop {
        if let Some(guard) = consumer.next_member()?.begin() {
            return Some(guard);
        }
    }
}

/// Calls the handler, several times if the batch size of this subscription is smaller than the chunk.
async fn handle(guard: CallGuard, chunk: Vec<MessageEnvelope>) -> Vec<Answer> {
    let mut answers = Vec::with_capacity(chunk.len());
    for piece in chunk.chunks(guard.0.max_batch) {
        let handled = AssertUnwindSafe(guard.0.handler.handle(piece.to_vec())).catch_unwind();
        let mut of_piece = handled.await.unwrap_or_else(|panic| {
            let reason = panic_text(panic.as_ref());
            tracing::error!(
                reason,
                "a message handler panicked; its messages are retried"
            );
            Vec::new()
        });
        of_piece.resize_with(piece.len(), no_answer);
        answers.append(&mut of_piece);
    }
    answers
}

/// A missing answer; surplus answers are ignored.
fn no_answer() -> Answer {
    Answer::RetryLater {
        reason: "the handler gave no answer for this message".to_owned(),
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message")
}

/// Aborts the task when its caller is dropped, so that no handler outlives its publisher.
struct AbortOnDrop(JoinHandle<Vec<Answer>>);

impl AbortOnDrop {
    async fn join(mut self) -> Vec<Answer> {
        // A task that was aborted with its runtime has handled nothing.
        (&mut self.0).await.unwrap_or_default()
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
