//! A message handler from a function of one message.

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use punctual_domain::MessageEnvelope;
use punctual_ports::{Answer, MessageHandler};

struct EachMessage<H>(H);

#[async_trait]
impl<H, A> MessageHandler for EachMessage<H>
where
    H: Fn(MessageEnvelope) -> A + Send + Sync,
    A: Future<Output = Answer> + Send,
{
    async fn handle(&self, batch: Vec<MessageEnvelope>) -> Vec<Answer> {
        join_all(batch.into_iter().map(&self.0)).await
    }
}

/// Makes a handler that takes its messages one by one, those of one batch at the same time.
pub fn each_message<H, A>(handle: H) -> Arc<dyn MessageHandler>
where
    H: Fn(MessageEnvelope) -> A + Send + Sync + 'static,
    A: Future<Output = Answer> + Send + 'static,
{
    Arc::new(EachMessage(handle))
}
