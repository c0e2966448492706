//! Fetching, as much as there is room for.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::PullConsumer;
use punctual_domain::Backoff;
use tokio::sync::OwnedSemaphorePermit;

use super::Consumer;
use super::lane::give_back;
use super::pull::Puller;
use crate::NatsError;
use crate::names::Filter;
use crate::streams::ensure_consumer;

/// How long to wait before trying again what has failed.
const PAUSES: Backoff = Backoff {
    first: Duration::from_millis(100),
    limit: Duration::from_secs(5),
};

/// How many messages are asked for at once where tenants take turns.
const FETCHED_AHEAD: usize = 128;

/// How many of them are lined up at once.
const LINED_UP: usize = 16;

impl Consumer {
    pub(super) async fn durable(&self, filter: Filter) -> Result<PullConsumer, NatsError> {
        let (link, wish) = (&self.link, &self.wish);
        let (name, topic) = (&wish.consumer, wish.topic);
        ensure_consumer(&link.context, &link.settings, name, topic, filter).await
    }

    /// Fetches until the subscription is stopped.
    pub(super) async fn fetch(self: Arc<Self>, filter: Filter) {
        let _ends = EndsFetching(&self);
        let mut failures = 0;
        while !self.is_stopping() {
            let Err(reason) = self.fetch_for_a_while(filter).await else {
                failures = 0;
                continue;
            };
            failures += 1;
            // A broker that says good-bye, or is away: somebody else says so.
            let is_away = reason.contains("Server Shutdown") || self.link.ready().is_err();
            if is_away {
                tracing::debug!(topic = %self.wish.topic, reason, "messages cannot be fetched now");
            } else {
                tracing::warn!(topic = %self.wish.topic, reason, "messages cannot be fetched now");
            }
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
        let mut fetching = Fetching {
            puller: Puller::new(&self.link, &durable).await?,
            waiting: Vec::new(),
            in_turn: VecDeque::new(),
        };
        let ends = async {
            tokio::select! {
                () = self.until_stopped() => {}
                // A request that the broker has forgotten would be waited for in vain.
                () = disconnected => {}
            }
        };
        tokio::pin!(ends);
        let failed = loop {
            let fetched = tokio::select! {
                biased;
                () = &mut ends => break Ok(()),
                fetched = self.fetch_and_hand_over(&mut fetching) => fetched,
            };
            if let Err(reason) = fetched {
                break Err(reason);
            }
        };
        let mut rest = fetching.waiting;
        rest.extend(fetching.in_turn);
        if self.is_stopping() {
            // After a disconnection there is nothing to be heard of it.
            rest.append(&mut fetching.puller.close().await);
        }
        give_back(&self.link, rest).await;
        failed
    }

    /// Fetches some messages, and hands them over or lets them wait for their turn. Dropping the
    /// future loses nothing.
    async fn fetch_and_hand_over(
        self: &Arc<Self>,
        fetching: &mut Fetching<'_>,
    ) -> Result<(), String> {
        if self.takes_turns() {
            if fetching.in_turn.is_empty() {
                if !fetching.puller.is_waiting() {
                    self.until_let_through().await;
                    fetching.puller.request(FETCHED_AHEAD).await?;
                }
                let fetched = fetching.puller.next(LINED_UP).await?;
                fetching.in_turn.extend(fetched.unwrap_or_default());
            }
            self.line_up(&mut fetching.in_turn).await;
            return Ok(());
        }
        let lane = self.fetch_some(fetching).await?;
        let chunk = std::mem::take(&mut fetching.waiting);
        tokio::spawn(Arc::clone(self).hand_over(chunk, lane));
        Ok(())
    }

    /// Fetches until messages are waiting and there is a lane for them. Dropping the future loses
    /// nothing.
    async fn fetch_some(
        &self,
        fetching: &mut Fetching<'_>,
    ) -> Result<OwnedSemaphorePermit, String> {
        let most = self.wish.max_batch;
        while fetching.waiting.is_empty() {
            if !fetching.puller.is_waiting() {
                self.until_let_through().await;
                // As much as there is room for, so that nothing has to wait once it is here.
                let lane = self.lane().await;
                let room = (1 + self.lanes.available_permits()) * most;
                drop(lane);
                fetching.puller.request(room).await?;
            }
            fetching.waiting = fetching.puller.next(most).await?.unwrap_or_default();
        }
        let lane = self.lane().await;
        // More may have come while all lanes were taken.
        fetching.puller.top_up(&mut fetching.waiting, most);
        Ok(lane)
    }

    /// Waits for room to call the handler.
    async fn lane(&self) -> OwnedSemaphorePermit {
        match Arc::clone(&self.lanes).acquire_owned().await {
            Ok(lane) => lane,
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

/// What one task has fetched.
struct Fetching<'a> {
    puller: Puller<'a>,
    /// Messages that wait for a lane.
    waiting: Vec<Message>,
    /// Messages that have yet to be lined up for their turn.
    in_turn: VecDeque<Message>,
}

/// A task that fetches, however it ends.
struct EndsFetching<'a>(&'a Consumer);

impl Drop for EndsFetching<'_> {
    fn drop(&mut self) {
        self.0.fetching.send_modify(|count| *count -= 1);
    }
}
