//! Publishing again what a broker has lost.
//!
//! A broker that is restored from an older copy no longer has events that it had acknowledged, and
//! their timers are marked: the worker will not fire them again. The bus tells from when on
//! something may be missing, and every firing since then is published again under its firing id.
//! A receiver that had the event knows it by that id, and the broker too.
//!
//! Nothing is remembered here. Whoever stops in the middle begins again from the start, because the
//! bus tells of a loss until it hears that it was made good, and it hears that only after every
//! event was accepted.

use std::sync::Arc;
use std::time::Duration;

use punctual_domain::{Backoff, EnvelopeId, ReachedTimer};
use punctual_ports::{
    ClockPort, EventBusPort, FiredCursor, FiredPage, IdPort, Loss, PortError, TimerQueuePort,
};

use crate::fire_due_timers::WorkerStopped;
use crate::fire_due_timers::publishing::{Firing, Verdict, publish};
use crate::{Begun, TimerPorts, metric_names};

/// How many firings are in memory at once.
const PAGE: usize = 500;

const AFTER_FAILURE: Backoff = Backoff {
    first: Duration::from_millis(100),
    limit: Duration::from_secs(5),
};

/// Publishes again what the bus may have lost.
pub struct RepublishLost {
    clock: Arc<dyn ClockPort>,
    ids: Arc<dyn IdPort>,
    queue: Arc<dyn TimerQueuePort>,
    bus: Arc<dyn EventBusPort>,
    begun: Begun,
}

impl RepublishLost {
    /// On these adapters.
    pub fn new(ports: &TimerPorts) -> Self {
        Self {
            clock: Arc::clone(&ports.clock),
            ids: Arc::clone(&ports.ids),
            queue: Arc::clone(&ports.queue),
            bus: Arc::clone(&ports.bus),
            begun: ports.begun.clone(),
        }
    }

    /// Makes good what the bus loses until `shutdown` is ready, or the store is broken.
    ///
    /// Dropping the future is safe, wherever it waits: the bus tells of the same loss again.
    ///
    /// # Errors
    /// With the cause, if the store cannot be relied on any more.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), WorkerStopped> {
        tokio::select! {
            biased;
            () = shutdown => Ok(()),
            stopped = self.watch() => Err(stopped),
        }
    }

    /// One loss after the other: what is found while one is made good is the next.
    async fn watch(&self) -> WorkerStopped {
        loop {
            let loss = self.bus.lost().await;
            if let Err(stopped) = self.make_good(&loss).await {
                return stopped;
            }
        }
    }

    async fn make_good(&self, loss: &Loss) -> Result<(), WorkerStopped> {
        self.wait_for_what_has_begun().await;
        let (mut found, mut after) = (0, None);
        loop {
            let page = self.page(loss, after).await?;
            // A bus that was not stopped in good order asks for its last moments. Mostly nothing
            // was fired in them, and then there is nothing to tell anybody.
            if found == 0 && !page.timers.is_empty() {
                metrics::counter!(metric_names::BROKER_LOST).increment(1);
                tracing::warn!(
                    reason = loss.reason,
                    since = %loss.since,
                    "the broker may have lost events: every firing since then is published again"
                );
            }
            found += page.timers.len();
            self.publish_all(page.timers).await;
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        self.tell(loss).await?;
        if found > 0 {
            tracing::warn!(
                count = found,
                "what the broker may have lost is published again"
            );
        } else {
            tracing::debug!(reason = loss.reason, "the broker can have lost nothing");
        }
        Ok(())
    }

    /// What was acknowledged before the loss and is not marked yet would be on no page, and be marked
    /// after that. So all that has begun is settled first, however long the store takes no marks.
    async fn wait_for_what_has_begun(&self) {
        self.begun.begin_round();
        let mut looks = 0_u32;
        while !self.begun.earlier_are_settled() {
            looks = looks.saturating_add(1);
            let wait = AFTER_FAILURE.after(looks, &"begun");
            self.clock.sleep_for(wait).await;
        }
    }

    /// The next firings since the loss.
    async fn page(
        &self,
        loss: &Loss,
        after: Option<FiredCursor>,
    ) -> Result<FiredPage, WorkerStopped> {
        let mut patience = self.patience("firings to publish again cannot be read now");
        loop {
            let page = self.queue.fired_since(loss.since, after.clone(), PAGE);
            match page.await {
                Ok(page) => return Ok(page),
                Err(error) => patience.after(error).await?,
            }
        }
    }

    /// Publishes until the bus has answered for each. Nothing but an explicit success is one.
    async fn publish_all(&self, timers: Vec<ReachedTimer>) {
        let firing = |reached| Firing::new(reached, EnvelopeId::from_uuid(self.ids.next_id()));
        let mut left: Vec<Firing> = timers.into_iter().map(firing).collect();
        let mut patience = self.patience("events cannot be published again now");
        while !left.is_empty() {
            let (batch, verdicts) = publish(Arc::clone(&self.bus), left).await;
            left = Vec::new();
            let (mut accepted, mut failure) = (0, None);
            for (firing, verdict) in batch.into_iter().zip(verdicts) {
                match verdict {
                    Verdict::Acknowledged => accepted += 1,
                    // It never can be published, so there is nothing to wait for.
                    Verdict::Poison(reason) => firing.span().in_scope(|| {
                        tracing::warn!(reason, "an event is refused and not published again");
                    }),
                    Verdict::Failed(error) | Verdict::BusFailed(error) => {
                        left.push(firing);
                        failure = Some(error);
                    }
                }
            }
            metrics::counter!(metric_names::REPUBLISHED).increment(accepted);
            if accepted > 0 {
                patience.failures = 0;
            }
            if let Some(error) = failure {
                patience.wait(&error).await;
            }
        }
    }

    /// Tells the bus that all is published, until it has taken note: it keeps that in a store.
    async fn tell(&self, loss: &Loss) -> Result<(), WorkerStopped> {
        let mut patience = self.patience("the bus cannot take note now that nothing is missing");
        while let Err(error) = self.bus.made_good(loss).await {
            patience.after(error).await?;
        }
        Ok(())
    }

    fn patience(&self, trouble: &'static str) -> Patience<'_> {
        Patience {
            clock: self.clock.as_ref(),
            trouble,
            failures: 0,
        }
    }
}

/// Waiting longer after each failure in a row, and saying so once.
struct Patience<'a> {
    clock: &'a dyn ClockPort,
    trouble: &'static str,
    failures: u32,
}

impl Patience<'_> {
    /// Waits, unless the store is broken.
    async fn after(&mut self, error: PortError) -> Result<(), WorkerStopped> {
        if error.kind().is_critical() {
            return Err(WorkerStopped { cause: error });
        }
        self.wait(&error).await;
        Ok(())
    }

    async fn wait(&mut self, error: &PortError) {
        self.failures = self.failures.saturating_add(1);
        let wait = AFTER_FAILURE.after(self.failures, &self.trouble);
        let trouble = self.trouble;
        if self.failures == 1 {
            tracing::warn!(%error, "{trouble}; it is tried again until it succeeds");
        } else {
            tracing::debug!(%error, failures = self.failures, ?wait, "{trouble}");
        }
        self.clock.sleep_for(wait).await;
    }
}
