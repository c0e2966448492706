//! Fetching, as much as there is room for.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::consumer::pull::Batch;
use futures_util::{FutureExt, StreamExt};
use punctual_domain::Backoff;
use tokio::sync::OwnedSemaphorePermit;

use super::lane::give_back;
use super::{Consumer, MAX_FETCHED_BYTES};
use crate::NatsError;
use crate::names::Filter;
use crate::streams::ensure_consumer;

/// How long the server waits for messages before it says that there are none.
const FETCH_LIMIT: Duration = Duration::from_secs(20);

/// How long to wait before trying again what has failed.
const PAUSES: Backoff = Backoff {
    first: Duration::from_millis(100),
    limit: Duration::from_secs(5),
};

impl Consumer {
    pub(super) async fn durable(&self, filter: Filter) -> Result<PullConsumer, NatsError> {
        let prefix = &self.link.settings.prefix;
        let (name, topic) = (&self.wish.consumer, self.wish.topic);
        ensure_consumer(&self.link.context, prefix, name, topic, filter).await
    }

    /// Fetches until the subscription is stopped.
    pub(super) async fn fetch(self: Arc<Self>, filter: Filter) {
        let mut failures = 0;
        while !self.is_stopping() {
            let Err(reason) = self.fetch_for_a_while(filter).await else {
                failures = 0;
                continue;
            };
            failures += 1;
            tracing::warn!(topic = %self.wish.topic, reason, "messages cannot be fetched now");
            self.link.look_again();
            let wait = PAUSES.after(failures, &(std::process::id(), failures));
            self.unless_stopped(self.link.clock.sleep_for(wait)).await;
        }
    }

    /// Fetches over one connection, until it ends or something fails.
    async fn fetch_for_a_while(self: &Arc<Self>, filter: Filter) -> Result<(), String> {
        self.unless_stopped(self.link.until_ready()).await;
        if self.is_stopping() {
            return Ok(());
        }
        let disconnected = self.link.until_disconnected();
        let durable = self.durable(filter).await;
        let durable = durable.map_err(|error| error.to_string())?;
        tokio::pin!(disconnected);
        loop {
            self.unless_stopped(self.until_let_through()).await;
            // A request that the server has forgotten would be waited for in vain.
            let ends = async {
                tokio::select! {
                    () = self.until_stopped() => {}
                    () = &mut disconnected => {}
                }
            };
            if self.fetch_once(&durable, ends).await? {
                return Ok(());
            }
        }
    }

    async fn unless_stopped(&self, work: impl Future<Output = ()>) {
        tokio::select! {
            biased;
            () = self.until_stopped() => {}
            () = work => {}
        }
    }

    /// Fetches as much as there is room for, and hands it over as it comes; answers whether it was
    /// the last time, because `ends` was ready.
    async fn fetch_once(
        self: &Arc<Self>,
        durable: &PullConsumer,
        ends: impl Future<Output = ()>,
    ) -> Result<bool, String> {
        tokio::pin!(ends);
        let mut lane = tokio::select! {
            biased;
            () = &mut ends => return Ok(true),
            lane = self.lane() => Some(lane),
        };
        let room = (1 + self.lanes.available_permits()) * self.wish.max_batch;
        let fetching = durable
            .batch()
            .max_messages(room)
            .max_bytes(MAX_FETCHED_BYTES.max(self.link.client.max_payload() * 2))
            .expires(FETCH_LIMIT)
            .messages();
        let mut batch = fetching.await.map_err(|error| error.to_string())?;
        let mut taken = 0;
        while taken < room && self.is_let_through() {
            let chunk = tokio::select! {
                biased;
                () = &mut ends => {
                    give_back(&self.link, ready(&mut batch)).await;
                    return Ok(true);
                }
                chunk = next_chunk(&mut batch, self.wish.max_batch, &mut lane) => chunk?,
            };
            let Some(chunk) = chunk else {
                return Ok(false);
            };
            taken += chunk.len();
            let lane = match lane.take() {
                Some(lane) => lane,
                None => tokio::select! {
                    biased;
                    () = &mut ends => {
                        give_back(&self.link, chunk.into_iter().chain(ready(&mut batch))).await;
                        return Ok(true);
                    }
                    lane = self.lane() => lane,
                },
            };
            tokio::spawn(Arc::clone(self).hand_over(chunk, lane));
        }
        give_back(&self.link, ready(&mut batch)).await;
        Ok(false)
    }

    /// Waits for room to call the handler.
    async fn lane(&self) -> OwnedSemaphorePermit {
        let lane = Arc::clone(&self.lanes).acquire_owned().await;
        match lane {
            Ok(lane) => lane,
            // The semaphore is never closed.
            Err(_) => std::future::pending().await,
        }
    }
}

/// The messages that are there already.
fn ready(batch: &mut Batch) -> impl Iterator<Item = Message> {
    std::iter::from_fn(|| batch.next().now_or_never().flatten()?.ok())
}

/// Some messages, one at least; `None` when the request has ended. While none is there the lane is
/// given back: others may have something to do.
async fn next_chunk(
    batch: &mut Batch,
    most: usize,
    lane: &mut Option<OwnedSemaphorePermit>,
) -> Result<Option<Vec<Message>>, String> {
    let first = match batch.next().now_or_never() {
        Some(first) => first,
        None => {
            *lane = None;
            batch.next().await
        }
    };
    let Some(first) = first else {
        return Ok(None);
    };
    let mut chunk = vec![first.map_err(|error| error.to_string())?];
    chunk.extend(ready(batch).take(most - 1));
    Ok(Some(chunk))
}
