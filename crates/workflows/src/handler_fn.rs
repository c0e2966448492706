//! A message handler made of an async function of one message.

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use punctual_domain::MessageEnvelope;
use punctual_ports::{Answer, MessageHandler};

struct HandlerFn<H>(H);

#[async_trait]
impl<H, A> MessageHandler for HandlerFn<H>
where
    H: Fn(MessageEnvelope) -> A + Send + Sync,
    A: Future<Output = Answer> + Send,
{
    async fn handle(&self, batch: Vec<MessageEnvelope>) -> Vec<Answer> {
        join_all(batch.into_iter().map(&self.0)).await
    }
}

/// A handler that calls `handle` for each message; the messages of a batch are handled concurrently.
pub fn handler_fn<H, A>(handle: H) -> Arc<dyn MessageHandler>
where
    H: Fn(MessageEnvelope) -> A + Send + Sync + 'static,
    A: Future<Output = Answer> + Send + 'static,
{
    Arc::new(HandlerFn(handle))
}
