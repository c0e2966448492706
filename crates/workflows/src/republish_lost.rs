//! Recovery from a data loss of the broker: publishing lost events again.
//!
//! A broker that is restored from an older copy no longer has events that it had acknowledged, and
//! their timers are marked: the worker will not fire them again. The bus reports since when events
//! may be missing, and every firing since then is published again under its firing id, by which the
//! broker and the receivers recognise a duplicate.
//!
//! An event that fails by itself is parked and retried, while the others go on. After too many
//! failures it becomes a dead letter, so that every event is published or stored before the loss
//! counts as recovered.
//!
//! Recovery keeps no state. The bus reports a loss, also after a restart, until it is recovered, which
//! is after every event was accepted. It also gets the progress after each page, and may leave out
//! after a restart what was accepted by then.
//!
//! Of several instances on one store, one recovers at a time: each recovers from the losses that it has
//! detected, and would otherwise publish the same events at the same moment as the others.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use punctual_domain::{EnvelopeId, ReachedTimer};
use punctual_ports::{
    BusPositionPort, ClockPort, DataLoss, DeadLetterPort, EventBusPort, IdPort, PortError,
    TimerQueuePort, TimerStores, only_answer,
};

use crate::fire_due_timers::WorkerStopped;
use crate::fire_due_timers::publishing::{Firing, PublishResult, publish};
use crate::retries::{PARKED_EVENT_BACKOFF, PORT_BACKOFF, Retries};
use crate::{InFlightEpoch, TimerPorts, metric_names};

/// Number of firings in memory at once.
const PAGE: usize = 500;

/// Maximum number of parked events. Beyond it, the one parked first becomes a dead letter.
const MOST_PARKED: usize = 1_000;

/// Number of failures after which a parked event becomes a dead letter: after about a quarter of an
/// hour.
const MOST_FAILURES: u32 = 20;

/// How long an instance owns the republication after it last said so.
const OWNED_FOR: Duration = Duration::from_secs(15);

/// Interval at which an instance tries to own it.
const OWNER_CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Recovers from data losses of the bus.
pub struct RepublishLost {
    clock: Arc<dyn ClockPort>,
    ids: Arc<dyn IdPort>,
    queue: Arc<dyn TimerQueuePort>,
    bus: Arc<dyn EventBusPort>,
    dead_letters: Arc<dyn DeadLetterPort>,
    positions: Arc<dyn BusPositionPort>,
    in_flight_epoch: InFlightEpoch,
}

/// An event that failed by itself and is retried later.
struct Parked {
    firing: Firing,
    failures: u32,
    error: PortError,
    /// By the monotonic clock.
    until: Duration,
}

impl RepublishLost {
    /// On these adapters; an event that can never be published becomes a dead letter of the store.
    pub fn new(ports: &TimerPorts, store: &TimerStores) -> Self {
        Self {
            dead_letters: Arc::clone(&store.dead_letters),
            positions: Arc::clone(&store.positions),
            clock: Arc::clone(&ports.clock),
            ids: Arc::clone(&ports.ids),
            queue: Arc::clone(&ports.queue),
            bus: Arc::clone(&ports.bus),
            in_flight_epoch: ports.in_flight_epoch.clone(),
        }
    }

    /// Recovers from data losses until `shutdown` is ready, or a critical error.
    ///
    /// Dropping the future is safe, wherever it waits: the bus reports the same loss again.
    ///
    /// # Errors
    /// With the cause, after a critical error of the store.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), WorkerStopped> {
        tokio::select! {
            biased;
            () = shutdown => Ok(()),
            stopped = self.watch() => Err(stopped),
        }
    }

    /// One loss after the other: a loss found during a recovery is the next.
    async fn watch(&self) -> WorkerStopped {
        loop {
            let loss = self.bus.lost().await;
            if let Err(stopped) = self.recover(&loss).await {
                return stopped;
            }
        }
    }

    async fn recover(&self, loss: &DataLoss) -> Result<(), WorkerStopped> {
        self.wait_for_in_flight().await;
        while !self.own(loss).await? {
            self.clock.sleep_for(OWNER_CHECK_INTERVAL).await;
        }
        let (mut found, mut after) = (0, None);
        let mut parked: VecDeque<Parked> = VecDeque::new();
        loop {
            let read = || self.queue.fired_since(loss.since, after.clone(), PAGE);
            let failure = "firings to republish could not be read";
            let page = self.until_success(failure, read).await?;
            // A bus that was not stopped gracefully reports its last moments as lost. Mostly nothing
            // was fired in them, and then there is nothing to log.
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
            let oldest_parked = parked.iter().map(|it| it.firing.reached_at()).min();
            let until = oldest_parked.map_or(next.reached_at, |it| it.min(next.reached_at));
            self.bus.recovered_until(loss, until);
            // If another instance owns it by now, both publish: a duplicate is better than a wait.
            self.own(loss).await?;
            after = Some(next);
        }
        while let Some(next) = parked.iter().map(|it| it.until).min() {
            let wait = next.saturating_sub(self.clock.monotonic());
            self.clock.sleep_for(wait).await;
            self.retry_parked(&mut parked).await?;
        }
        // The bus stores that the loss is recovered.
        let confirm = || self.bus.recovered(loss);
        let failure = "the recovery could not be confirmed to the bus";
        self.until_success(failure, confirm).await?;
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

    /// Takes or keeps the republication; false if another instance has it.
    async fn own(&self, loss: &DataLoss) -> Result<bool, WorkerStopped> {
        let own = || {
            let now = self.clock.now();
            self.positions
                .own_republication(loss.stream.clone(), now, OWNED_FOR)
        };
        let failure = "the republication could not be owned";
        self.until_success(failure, own).await
    }

    /// Waits until the firings in flight are settled: one that was acknowledged before the loss and is
    /// marked after the last page was read would be on no page.
    async fn wait_for_in_flight(&self) {
        self.in_flight_epoch.advance();
        let mut checks = 0_u32;
        while !self.in_flight_epoch.earlier_are_settled() {
            checks = checks.saturating_add(1);
            let wait = PORT_BACKOFF.after(checks, &"in flight");
            self.clock.sleep_for(wait).await;
        }
    }

    /// Publishes until each event is acknowledged, parked or a dead letter.
    async fn publish_all(
        &self,
        timers: Vec<ReachedTimer>,
        parked: &mut VecDeque<Parked>,
    ) -> Result<(), WorkerStopped> {
        let now = self.clock.now();
        let firing = |reached| {
            let id = EnvelopeId::from_uuid(self.ids.next_id());
            Firing::new(reached, id, now)
        };
        let mut left: Vec<Firing> = timers.into_iter().map(firing).collect();
        let mut retries = Retries::new(PORT_BACKOFF, "events could not be republished");
        while !left.is_empty() {
            let (batch, outcomes) = publish(Arc::clone(&self.bus), left).await;
            left = Vec::new();
            let (mut accepted, mut failure) = (0, None);
            for (firing, outcome) in batch.into_iter().zip(outcomes) {
                match outcome {
                    PublishResult::Acknowledged => accepted += 1,
                    PublishResult::Poison(reason) => self.dead_letter(&firing, &reason).await?,
                    PublishResult::Failed(error) => parked.push_back(self.park(firing, 1, error)),
                    PublishResult::BusFailed(error) => {
                        left.push(firing);
                        failure = Some(error);
                    }
                }
            }
            metrics::counter!(metric_names::REPUBLISHED).increment(accepted);
            if accepted > 0 {
                retries.succeeded();
            }
            if let Some(error) = failure {
                self.clock.sleep_for(retries.back_off(&error)).await;
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
        let wait = PARKED_EVENT_BACKOFF.after(failures, &firing.envelope.id);
        Parked {
            until: self.clock.monotonic().saturating_add(wait),
            firing,
            failures,
            error,
        }
    }

    /// Retries parked events that are due, and dead-letters those that failed too often or exceed
    /// the limit.
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
                    PublishResult::Acknowledged => {
                        metrics::counter!(metric_names::REPUBLISHED).increment(1);
                    }
                    PublishResult::Poison(reason) => self.dead_letter(&it.firing, &reason).await?,
                    PublishResult::Failed(error) if it.failures + 1 >= MOST_FAILURES => {
                        self.dead_letter(&it.firing, &error.to_string()).await?;
                    }
                    PublishResult::Failed(error) => {
                        parked.push_back(self.park(it.firing, it.failures + 1, error));
                    }
                    // A failure of the bus does not count against the event.
                    PublishResult::BusFailed(error) => {
                        parked.push_back(self.park(it.firing, it.failures, error));
                    }
                }
            }
        }
        while parked.len() > MOST_PARKED
            && let Some(first) = parked.pop_front()
        {
            let reason = first.error.to_string();
            self.dead_letter(&first.firing, &reason).await?;
        }
        Ok(())
    }

    /// Stores an event as a dead letter, retrying until the store has it.
    async fn dead_letter(&self, firing: &Firing, reason: &str) -> Result<(), WorkerStopped> {
        let record = async || {
            let dead_letter = firing.dead_letter(reason, self.clock.now());
            let recorded = self.dead_letters.record(vec![dead_letter]).await;
            only_answer(recorded, "record a dead letter")
        };
        let failure = "a dead letter could not be recorded";
        self.until_success(failure, record).await?;
        firing.span().in_scope(|| {
            tracing::error!(
                reason,
                "an event cannot be published again and is kept as a dead letter"
            );
        });
        Ok(())
    }

    /// Repeats an operation until it succeeds; fails after a critical error.
    async fn until_success<T, F>(
        &self,
        failure: &'static str,
        operation: impl FnMut() -> F,
    ) -> Result<T, WorkerStopped>
    where
        F: Future<Output = Result<T, PortError>>,
    {
        let retries = Retries::new(PORT_BACKOFF, failure);
        retries.until_success(self.clock.as_ref(), operation).await
    }
}
