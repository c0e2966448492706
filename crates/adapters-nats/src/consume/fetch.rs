//! Fetching as many messages as there is room for.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::PullConsumer;
use punctual_domain::Backoff;
use tokio::sync::OwnedSemaphorePermit;

use super::Consumer;
use super::delivery::nak_all;
use super::pull::Puller;
use crate::NatsError;
use crate::names::Source;
use crate::streams::ensure_consumer;

/// Backoff after a failed fetch.
const FETCH_BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));

/// Number of messages requested at once where tenants take turns.
const FETCHED_AHEAD: usize = 128;

/// Number of messages enqueued at once.
const ENQUEUED_AT_ONCE: usize = 16;

impl Consumer {
    pub(super) async fn durable(&self, source: Source) -> Result<PullConsumer, NatsError> {
        let (link, request) = (&self.link, &self.request);
        ensure_consumer(&link.context, &link.settings, &request.consumer, source).await
    }

    /// Fetches until the subscription is stopped.
    pub(super) async fn fetch(self: Arc<Self>, source: Source) {
        let _ends = FetchingGuard(&self);
        let mut failures = 0;
        while !self.is_stopping() {
            let Err(reason) = self.fetch_until_disconnected(source).await else {
                failures = 0;
                continue;
            };
            failures += 1;
            // A shutdown or an unavailable broker is logged by the link.
            let is_away = reason.contains("Server Shutdown") || self.link.ready().is_err();
            if is_away {
                tracing::debug!(topic = %self.request.topic, reason, "messages cannot be fetched now");
            } else {
                tracing::warn!(topic = %self.request.topic, reason, "messages cannot be fetched now");
            }
            self.link.check_soon();
            let wait = FETCH_BACKOFF.after(failures, &(std::process::id(), failures));
            self.unless_stopped(self.link.clock.sleep_for(wait)).await;
        }
    }

    /// Fetches over one connection, until it ends or something fails.
    async fn fetch_until_disconnected(self: &Arc<Self>, source: Source) -> Result<(), String> {
        self.unless_stopped(self.link.until_ready()).await;
        if self.is_stopping() {
            return Ok(());
        }
        let disconnected = self.link.until_disconnected();
        let durable = self.durable(source).await;
        let durable = durable.map_err(|error| error.to_string())?;
        let mut fetching = Fetching {
            puller: Puller::new(&self.link, &durable).await?,
            waiting: Vec::new(),
            to_enqueue: VecDeque::new(),
        };
        let ends = async {
            tokio::select! {
                () = self.until_stopped() => {}
                // The broker has forgotten a request of another connection.
                () = disconnected => {}
            }
        };
        tokio::pin!(ends);
        let failed = loop {
            let fetched = tokio::select! {
                biased;
                () = &mut ends => break Ok(()),
                fetched = self.fetch_and_deliver(&mut fetching) => fetched,
            };
            if let Err(reason) = fetched {
                break Err(reason);
            }
        };
        let mut rest = fetching.waiting;
        rest.extend(fetching.to_enqueue);
        if self.is_stopping() {
            // After a disconnect it cannot be completed.
            rest.append(&mut fetching.puller.close().await);
        }
        nak_all(&self.link, rest).await;
        failed
    }

    /// Fetches messages, and delivers or enqueues them. Cancel safe.
    async fn fetch_and_deliver(
        self: &Arc<Self>,
        fetching: &mut Fetching<'_>,
    ) -> Result<(), String> {
        if self.takes_turns() {
            if fetching.to_enqueue.is_empty() {
                if !fetching.puller.is_waiting() {
                    self.until_resumed().await;
                    fetching.puller.request(FETCHED_AHEAD).await?;
                }
                let fetched = fetching.puller.next(ENQUEUED_AT_ONCE).await?;
                fetching.to_enqueue.extend(fetched.unwrap_or_default());
            }
            self.enqueue(&mut fetching.to_enqueue).await;
            return Ok(());
        }
        let permit = self.fetch_some(fetching).await?;
        let chunk = std::mem::take(&mut fetching.waiting);
        tokio::spawn(Arc::clone(self).deliver(chunk, permit));
        Ok(())
    }

    /// Fetches until messages are waiting and a call may start for them. Cancel safe.
    async fn fetch_some(
        &self,
        fetching: &mut Fetching<'_>,
    ) -> Result<OwnedSemaphorePermit, String> {
        let most = self.request.max_batch;
        while fetching.waiting.is_empty() {
            if !fetching.puller.is_waiting() {
                self.until_resumed().await;
                // As many as there is room for, so that none has to wait here.
                let permit = self.call_permit().await;
                let room = (1 + self.call_permits.available_permits()) * most;
                drop(permit);
                fetching.puller.request(room).await?;
            }
            fetching.waiting = fetching.puller.next(most).await?.unwrap_or_default();
        }
        let permit = self.call_permit().await;
        // More may have arrived while all permits were in use.
        fetching.puller.top_up(&mut fetching.waiting, most);
        Ok(permit)
    }

    /// Waits for a permit to call the handler.
    async fn call_permit(&self) -> OwnedSemaphorePermit {
        match Arc::clone(&self.call_permits).acquire_owned().await {
            Ok(permit) => permit,
            // The subscription has stopped, and this task with it.
            Err(_) => std::future::pending().await,
        }
    }

    async fn unless_stopped(&self, work: impl Future<Output = ()>) {
        tokio::select! {
            biased;
            () = self.until_stopped() => {}
            () = work => {}
        }
    }
}

/// State of one fetching task.
struct Fetching<'a> {
    puller: Puller<'a>,
    /// Messages waiting for a permit to call the handler.
    waiting: Vec<Message>,
    /// Messages to be enqueued for their turn.
    to_enqueue: VecDeque<Message>,
}

/// Counts a fetching task, however it ends.
struct FetchingGuard<'a>(&'a Consumer);

impl Drop for FetchingGuard<'_> {
    fn drop(&mut self) {
        self.0.fetching.send_modify(|count| *count -= 1);
    }
}
