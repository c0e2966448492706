//! Handing messages to a handler, and what its answers, or their absence, mean.

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

/// Delivers messages to one consumer, in calls of at most what its handlers take; `None` if nobody
/// is left who subscribes as that consumer.
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
    // The semaphore is never closed; without a permit the call just goes on.
    let permit = permit.ok();
    let length = chunk.len();
    let Some(guard) = begin(consumer) else {
        // It was there when the message was published: the others' answers must not hide that it
        // did not get this one.
        return vec![stopped(); length];
    };
    let work = async move {
        let _permit = permit;
        handle(guard, chunk).await
    };
    let mut answers = match handlers {
        Handlers::Inline => work.await,
        // Whatever the handler logs belongs to the firing that it handles.
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

/// Begins a call of the subscription whose turn it is. One that stops at this very moment is passed
/// over; when none is left, the search is over.
fn begin(consumer: &Consumer) -> Option<CallGuard> {
    loop {
        if let Some(guard) = consumer.next_member()?.begin() {
            return Some(guard);
        }
    }
}

/// Hands the messages over, in pieces if this subscription takes fewer than the others did when the
/// pieces were cut.
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

/// Silence is not consent, and more answers than questions mean nothing.
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

/// Ends the task when whoever waits for it gives up, so that no handler outlives its publisher.
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
