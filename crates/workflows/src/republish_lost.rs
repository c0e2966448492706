//! Publishing again what a broker has lost.
//!
//! A broker that is restored from an older copy no longer has events that it had acknowledged, and
//! their timers are marked: the worker will not fire them again. The bus tells from when on
//! something may be missing, and every firing since then is published again under its firing id.
//! A receiver that had the event knows it by that id, and the broker too.
//!
//! An event that cannot be published for a reason of its own is parked and tried again later, while
//! the others go on. If it fails to the end it is kept as a dead letter, so that one way or the other
//! everything is dealt with durably before the loss counts as made good.
//!
//! Nothing is remembered here. Whoever stops in the middle is told of the loss again, because the bus
//! tells of it until it hears that it was made good, and it hears that only after every event was
//! accepted. It hears of each page, too, and may leave out after a restart what was accepted by then.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use punctual_domain::{Backoff, EnvelopeId, ReachedTimer};
use punctual_ports::{
    ClockPort, DataLoss, DeadLetterPort, EventBusPort, FiredCursor, FiredPage, IdPort, PortError,
    PortErrorKind, TimerQueuePort,
};

use crate::fire_due_timers::WorkerStopped;
use crate::fire_due_timers::publishing::{Firing, FiringOutcome, publish};
use crate::{InFlightEpoch, TimerPorts, metric_names};

/// How many firings are in memory at once.
const PAGE: usize = 500;

const AFTER_FAILURE: Backoff = Backoff {
    first: Duration::from_millis(100),
    limit: Duration::from_secs(5),
};

/// How long an event is parked that failed by itself.
const PARKED: Backoff = Backoff {
    first: Duration::from_secs(1),
    limit: Duration::from_mins(1),
};

/// Maximum number of parked events. Of more, the one that was parked first becomes a dead letter.
const MOST_PARKED: usize = 1_000;

/// An event that has failed so often by itself becomes a dead letter: after about a quarter of an
/// hour.
const MOST_FAILURES: u32 = 20;

/// Publishes again what the bus may have lost.
pub struct RepublishLost {
    clock: Arc<dyn ClockPort>,
    ids: Arc<dyn IdPort>,
    queue: Arc<dyn TimerQueuePort>,
    bus: Arc<dyn EventBusPort>,
    dead_letters: Arc<dyn DeadLetterPort>,
    in_flight_epoch: InFlightEpoch,
}

/// An event that failed by itself and is tried again later.
struct Parked {
    firing: Firing,
    failures: u32,
    error: PortError,
    /// By the monotonic clock.
    until: Duration,
}

impl RepublishLost {
    /// On these adapters; what can never be published goes to the dead letters.
    pub fn new(ports: &TimerPorts, dead_letters: Arc<dyn DeadLetterPort>) -> Self {
        Self {
            dead_letters,
            clock: Arc::clone(&ports.clock),
            ids: Arc::clone(&ports.ids),
            queue: Arc::clone(&ports.queue),
            bus: Arc::clone(&ports.bus),
            in_flight_epoch: ports.in_flight_epoch.clone(),
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
            if let Err(stopped) = self.recover(&loss).await {
                return stopped;
            }
        }
    }

    async fn recover(&self, loss: &DataLoss) -> Result<(), WorkerStopped> {
        self.wait_for_what_has_begun().await;
        let (mut found, mut after) = (0, None);
        let mut parked: VecDeque<Parked> = VecDeque::new();
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
            self.publish_all(page.timers, &mut parked).await?;
            self.retry_parked(&mut parked).await?;
            let Some(next) = page.next else { break };
            let oldest_parked = parked.iter().map(|it| it.firing.envelope.timestamp).min();
            let until = oldest_parked.map_or(next.reached_at, |it| it.min(next.reached_at));
            self.bus.recovered_until(loss, until);
            after = Some(next);
        }
        while let Some(next) = parked.iter().map(|it| it.until).min() {
            let wait = next.saturating_sub(self.clock.monotonic());
            self.clock.sleep_for(wait).await;
            self.retry_parked(&mut parked).await?;
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
        self.in_flight_epoch.advance();
        let mut looks = 0_u32;
        while !self.in_flight_epoch.earlier_are_settled() {
            looks = looks.saturating_add(1);
            let wait = AFTER_FAILURE.after(looks, &"begun");
            self.clock.sleep_for(wait).await;
        }
    }

    /// The next firings since the loss.
    async fn page(
        &self,
        loss: &DataLoss,
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

    /// Publishes until the bus has answered for each, or it is parked. Nothing but an explicit
    /// success is one.
    async fn publish_all(
        &self,
        timers: Vec<ReachedTimer>,
        parked: &mut VecDeque<Parked>,
    ) -> Result<(), WorkerStopped> {
        let firing = |reached| Firing::new(reached, EnvelopeId::from_uuid(self.ids.next_id()));
        let mut left: Vec<Firing> = timers.into_iter().map(firing).collect();
        let mut patience = self.patience("events cannot be published again now");
        while !left.is_empty() {
            let (batch, outcomes) = publish(Arc::clone(&self.bus), left).await;
            left = Vec::new();
            let (mut accepted, mut failure) = (0, None);
            for (firing, outcome) in batch.into_iter().zip(outcomes) {
                match outcome {
                    FiringOutcome::Acknowledged => accepted += 1,
                    // It never can be published, so there is nothing to wait for.
                    FiringOutcome::Poison(reason) => self.put_down(&firing, &reason).await?,
                    FiringOutcome::Failed(error) => parked.push_back(self.park(firing, 1, error)),
                    FiringOutcome::BusFailed(error) => {
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
        Ok(())
    }

    fn park(&self, firing: Firing, failures: u32, error: PortError) -> Parked {
        if failures == 1 {
            firing.span().in_scope(|| {
                tracing::warn!(%error, "an event cannot be published again now; it is tried again later");
            });
        }
        let wait = PARKED.after(failures, &firing.envelope.id);
        Parked {
            until: self.clock.monotonic().saturating_add(wait),
            firing,
            failures,
            error,
        }
    }

    /// Publishes parked events whose time has come, and puts down those that have had their tries
    /// or for which there is no room.
    async fn retry_parked(&self, parked: &mut VecDeque<Parked>) -> Result<(), WorkerStopped> {
        let now = self.clock.monotonic();
        let (ready, later): (Vec<_>, Vec<_>) = parked.drain(..).partition(|it| it.until <= now);
        parked.extend(later);
        let mut ready = ready.into_iter().peekable();
        while ready.peek().is_some() {
            let some: Vec<Parked> = ready.by_ref().take(PAGE).collect();
            let firings = some.iter().map(|it| it.firing.clone()).collect();
            let (_, outcomes) = publish(Arc::clone(&self.bus), firings).await;
            for (it, outcome) in some.into_iter().zip(outcomes) {
                match outcome {
                    FiringOutcome::Acknowledged => {
                        metrics::counter!(metric_names::REPUBLISHED).increment(1);
                    }
                    FiringOutcome::Poison(reason) => self.put_down(&it.firing, &reason).await?,
                    FiringOutcome::Failed(error) if it.failures + 1 >= MOST_FAILURES => {
                        self.put_down(&it.firing, &error.to_string()).await?;
                    }
                    FiringOutcome::Failed(error) => {
                        parked.push_back(self.park(it.firing, it.failures + 1, error));
                    }
                    // Not its own fault, so it does not count.
                    FiringOutcome::BusFailed(error) => {
                        parked.push_back(self.park(it.firing, it.failures, error));
                    }
                }
            }
        }
        while parked.len() > MOST_PARKED
            && let Some(first) = parked.pop_front()
        {
            let reason = first.error.to_string();
            self.put_down(&first.firing, &reason).await?;
        }
        Ok(())
    }

    /// Keeps an event that cannot be published as a dead letter, until the store has taken it.
    async fn put_down(&self, firing: &Firing, reason: &str) -> Result<(), WorkerStopped> {
        let mut patience =
            self.patience("an event that cannot be published again cannot be kept now");
        loop {
            let dead_letter = firing.dead_letter(reason, self.clock.now());
            let recorded = self.dead_letters.record(vec![dead_letter]).await;
            let error = match recorded.map(|mut answers| answers.pop()) {
                Ok(Some(Ok(_))) => break,
                Ok(Some(Err(error))) | Err(error) => error,
                Ok(None) => PortError::new(
                    PortErrorKind::Unavailable,
                    "record a dead letter",
                    "there was no answer",
                ),
            };
            patience.after(error).await?;
        }
        firing.span().in_scope(|| {
            tracing::error!(
                reason,
                "an event cannot be published again and is kept as a dead letter"
            );
        });
        Ok(())
    }

    /// Tells the bus that all is published, until it has taken note: it keeps that in a store.
    async fn tell(&self, loss: &DataLoss) -> Result<(), WorkerStopped> {
        let mut patience = self.patience("the bus cannot take note now that nothing is missing");
        while let Err(error) = self.bus.recovered(loss).await {
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
