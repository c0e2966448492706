//! Publishing the outbox.
//!
//! A message is claimed, published and marked. After a crash before the mark it is published again under
//! the same id, once the claim has ended. The next batch is published while the last one is being marked.
//!
//! A message that fails by itself is parked and retried alone; the others go on. When the bus is
//! unavailable, nothing is parked: the dispatcher gives back what it has claimed, and backs off.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::service_call::ServiceCall;
use punctual_domain::{DeadLetterOrigin, Message, MessageEnvelope, Timestamp};
use punctual_ports::{
    CallChange, DeadLetter, DeadLetterMessage, OutboxOutcome, OutboxPosition, OutboxRow, PortError,
    PortErrorKind, PublishLater, PublishOutcome,
};

use super::envelopes::wrap;
use super::{CallPorts, CallSettings};
use crate::fire_due_timers::publishing::{PublishResult, outcome};
use crate::retries::calls::PARKED_MESSAGE_BACKOFF;
use crate::retries::{PORT_BACKOFF, Retries};
use crate::{BackgroundTask, BackgroundWorker, metric_names};

/// Maximum number of messages in one batch.
const BATCH: usize = 500;
/// Maximum number of parked messages whose failures are counted. Beyond that, all begin anew.
const MOST_PARKED: usize = 100_000;
/// Maximum number of parked messages retried in one step.
const PARKED_BATCH: usize = 50;
/// Maximum age of the gauge while there is work; otherwise it is the polling interval.
const COUNT_EVERY: Duration = Duration::from_secs(1);
/// The gauge counts up to this.
const COUNT_TO: usize = 100_000;

/// Publishes the outbox.
pub struct DispatchOutbox {
    ports: CallPorts,
    settings: CallSettings,
    /// Claimed messages about which nothing was decided yet.
    undecided: BTreeSet<OutboxPosition>,
    /// Messages that were published and are not marked yet.
    to_mark: BTreeSet<OutboxPosition>,
    /// How often each parked message has failed. The store says when it is retried.
    parked: BTreeMap<OutboxPosition, u32>,
    /// When the next claim ends.
    next_at: Option<Timestamp>,
    /// When to update the gauge, on the monotonic clock.
    count_at: Duration,
}

/// The result of a batch.
#[derive(Default)]
struct Published {
    done: Vec<OutboxPosition>,
    refused: Vec<(OutboxRow, String)>,
    failed: Vec<(OutboxPosition, PortError)>,
    /// Why the bus was unavailable for some of them.
    unavailable: Option<PortError>,
}

impl DispatchOutbox {
    /// On these adapters.
    pub fn worker(ports: &CallPorts, settings: CallSettings) -> BackgroundWorker<Self> {
        let task = Self {
            ports: ports.clone(),
            settings,
            undecided: BTreeSet::new(),
            to_mark: BTreeSet::new(),
            parked: BTreeMap::new(),
            next_at: None,
            count_at: Duration::ZERO,
        };
        let retries = Retries::new(PORT_BACKOFF, "messages could not be published");
        BackgroundWorker::new(task, &ports.clock, &ports.to_publish, retries)
    }

    /// Publishes one batch; true if there may be more.
    async fn batch(&mut self) -> Result<bool, PortError> {
        let (now, lease) = (self.ports.clock.now(), self.settings.lease);
        let claimed = self.ports.outbox.claim(now, BATCH, lease).await?;
        self.next_at = claimed.next_at;
        let is_full = claimed.rows.len() >= BATCH;
        // The claim of one that is published already has ended before it could be marked.
        let rows = claimed.rows.into_iter();
        let rows = rows.filter(|row| !self.to_mark.contains(&row.position));
        let (parked, new): (Vec<_>, Vec<_>) =
            rows.partition(|row| self.parked.contains_key(&row.position));
        let positions = parked.iter().chain(&new).map(|row| row.position);
        self.undecided.extend(positions);
        let to_mark = std::mem::take(&mut self.to_mark);
        let (marked, published) = tokio::join!(self.mark(&to_mark), self.publish(new));
        if marked.is_err() {
            self.to_mark = to_mark;
        }
        self.settle(published).await?;
        marked?;
        // Each alone, so that what fails with others is told from what fails by itself.
        for row in parked.into_iter().take(PARKED_BATCH) {
            let published = self.publish(vec![row]).await;
            self.settle(published).await?;
        }
        Ok(is_full)
    }

    /// Applies the result of a batch; fails if the bus is unavailable.
    async fn settle(&mut self, published: Published) -> Result<(), PortError> {
        for position in published.done {
            self.undecided.remove(&position);
            self.parked.remove(&position);
            self.to_mark.insert(position);
        }
        if self.parked.len() >= MOST_PARKED {
            self.parked.clear();
        }
        let (now, mut later) = (self.ports.clock.now(), Vec::new());
        for (position, error) in published.failed {
            self.undecided.remove(&position);
            let failures = self.parked.entry(position).or_default();
            *failures = failures.saturating_add(1);
            let after = PARKED_MESSAGE_BACKOFF.after(*failures, &position);
            let retry_at = now.saturating_add(after);
            self.next_at = self.next_at.into_iter().chain([retry_at]).min();
            later.push(PublishLater { position, after });
            metrics::counter!(metric_names::OUTBOX_PARKED).increment(1);
            tracing::warn!(%error, number = position.number, "a message cannot be published now and is parked");
        }
        if !later.is_empty() {
            self.ports.outbox.retry_later(later, now).await?;
        }
        if !published.refused.is_empty() {
            self.dead_letter(published.refused).await?;
        }
        published.unavailable.map_or(Ok(()), Err)
    }

    async fn publish(&self, rows: Vec<OutboxRow>) -> Published {
        let mut published = Published::default();
        let (mut positions, mut envelopes) = (Vec::new(), Vec::new());
        for row in rows {
            match row.envelope {
                // Another process has written it, for whoever listens: here nobody does.
                Ok(envelope) if !self.ports.listeners.receive(&envelope.message) => {
                    published.done.push(row.position);
                }
                Ok(envelope) => {
                    positions.push(row.position);
                    envelopes.push(envelope);
                }
                Err(ref unreadable) => {
                    let reason = unreadable.reason.clone();
                    published.refused.push((row, reason));
                }
            }
        }
        if envelopes.is_empty() {
            return published;
        }
        let answers = match self.ports.bus.publish(envelopes.clone()).await {
            Ok(answers) => answers,
            Err(error) => {
                published.unavailable = Some(error);
                return published;
            }
        };
        if answers.len() < positions.len() {
            // Messages without an answer are claimed again.
            let (kind, reason) = (PortErrorKind::Unavailable, "the bus gave too few answers");
            published.unavailable = Some(PortError::new(kind, "publish messages", reason));
        }
        for ((position, envelope), answer) in positions.into_iter().zip(envelopes).zip(answers) {
            published.record(position, envelope, answer);
        }
        published
    }

    async fn mark(&self, positions: &BTreeSet<OutboxPosition>) -> Result<(), PortError> {
        if positions.is_empty() {
            return Ok(());
        }
        let (batch, now) = (positions.iter().copied().collect(), self.ports.clock.now());
        let marked = self.ports.outbox.mark_published(batch, now);
        let marked = marked.await?;
        let count = marked.len();
        for one in marked {
            // One that was marked before needs no other mark.
            let _: OutboxOutcome = one?;
        }
        metrics::counter!(metric_names::OUTBOX_PUBLISHED).increment(count as u64);
        Ok(())
    }

    /// Finishes the call of a command that can never be delivered, before the command becomes a dead
    /// letter: a redispatch would be refused again.
    async fn finish_its_call(&self, row: &OutboxRow, reason: &str) -> Result<(), PortError> {
        let Ok(envelope) = &row.envelope else {
            return Ok(());
        };
        let Message::StartExecution(command) = &envelope.message else {
            return Ok(());
        };
        let found = self.ports.calls.find(vec![command.key()]).await?;
        let Some(stored) = found.into_iter().flatten().next() else {
            return Ok(());
        };
        let ServiceCall::Running(call) = stored.call else {
            return Ok(());
        };
        let (now, correlation_id) = (self.ports.clock.now(), call.details.correlation_id);
        let Ok(step) = call.undeliverable(envelope.id, reason, now) else {
            return Ok(());
        };
        let change = CallChange {
            call: step.call,
            expected_version: stored.version,
            outbox: wrap(step.outgoing, correlation_id, now, self.ports.ids.as_ref()),
            listeners: self.ports.listeners,
        };
        for one in self.ports.calls.change(vec![change]).await? {
            // A call that was changed meanwhile is redispatched, and refused again.
            one?;
        }
        self.ports.to_publish.notify();
        Ok(())
    }

    async fn dead_letter(&mut self, refused: Vec<(OutboxRow, String)>) -> Result<(), PortError> {
        for (row, reason) in &refused {
            self.finish_its_call(row, reason).await?;
        }
        let failed_at = self.ports.clock.now();
        let positions: Vec<OutboxPosition> = refused.iter().map(|(row, _)| row.position).collect();
        let dead = refused
            .into_iter()
            .map(|(row, reason)| {
                tracing::error!(
                    reason,
                    number = row.position.number,
                    "a message can never be published and becomes a dead letter"
                );
                DeadLetterMessage {
                    position: row.position,
                    dead_letter: dead_letter(row, reason, failed_at),
                }
            })
            .collect();
        for one in self.ports.outbox.dead_letter(dead).await? {
            one?;
        }
        for position in positions {
            self.undecided.remove(&position);
            self.parked.remove(&position);
        }
        Ok(())
    }

    async fn publish_all(&mut self) -> Result<(), PortError> {
        while self.batch().await? {}
        self.mark(&self.to_mark).await?;
        self.to_mark.clear();
        Ok(())
    }

    /// Updates the gauge, but not in every step: under load a step takes milliseconds, and a count reads
    /// an index.
    async fn count(&mut self) {
        let now = self.ports.clock.monotonic();
        if now < self.count_at {
            return;
        }
        self.count_at = now.saturating_add(COUNT_EVERY);
        if let Ok(waiting) = self.ports.outbox.count(COUNT_TO).await {
            metrics::gauge!(metric_names::OUTBOX_UNPUBLISHED)
                .set(f64::from(u32::try_from(waiting).unwrap_or(u32::MAX)));
        }
    }

    /// Gives back claimed messages about which nothing was decided; true if there were some.
    async fn give_back(&mut self) -> Result<bool, PortError> {
        let undecided = std::mem::take(&mut self.undecided).into_iter();
        let now_again = |position| PublishLater {
            position,
            after: Duration::ZERO,
        };
        let batch: Vec<PublishLater> = undecided.map(now_again).collect();
        if batch.is_empty() {
            return Ok(false);
        }
        let now = self.ports.clock.now();
        self.ports.outbox.retry_later(batch, now).await?;
        Ok(true)
    }

    fn idle_interval(&self) -> Duration {
        let now = self.ports.clock.now();
        let poll = self.settings.polling_interval;
        self.next_at.map_or(poll, |next| next.since(now).min(poll))
    }
}

impl Published {
    fn record(
        &mut self,
        position: OutboxPosition,
        envelope: MessageEnvelope,
        answer: Result<PublishOutcome, PortError>,
    ) {
        let envelope = Ok(envelope);
        match outcome(answer) {
            PublishResult::Acknowledged => self.done.push(position),
            PublishResult::Poison(reason) => {
                self.refused
                    .push((OutboxRow { position, envelope }, reason));
            }
            PublishResult::Failed(error) if error.kind() == PortErrorKind::Rejected => {
                let reason = error.to_string();
                self.refused
                    .push((OutboxRow { position, envelope }, reason));
            }
            PublishResult::Failed(error) => self.failed.push((position, error)),
            PublishResult::BusFailed(error) if error.kind() == PortErrorKind::NoSubscriber => {
                self.failed.push((position, error));
            }
            PublishResult::BusFailed(error) => self.unavailable = Some(error),
        }
    }
}

fn dead_letter(row: OutboxRow, reason: String, failed_at: Timestamp) -> DeadLetter {
    match row.envelope {
        Ok(envelope) => DeadLetter {
            id: envelope.deduplication_id(),
            origin: DeadLetterOrigin::Outbox(Some(envelope.message.topic())),
            tenant_id: Some(envelope.tenant_id().clone()),
            // Writing an envelope cannot fail; an empty payload would still be named.
            // What is secret about a request has no business in it.
            payload: envelope.redacted().to_json().unwrap_or_default(),
            reason,
            failed_at,
        },
        Err(unreadable) => DeadLetter {
            id: format!("outbox:{}", row.position.number),
            origin: DeadLetterOrigin::Outbox(None),
            tenant_id: None,
            payload: unreadable.payload,
            reason,
            failed_at,
        },
    }
}

#[async_trait]
impl BackgroundTask for DispatchOutbox {
    async fn step(&mut self) -> Result<Duration, PortError> {
        let published = self.publish_all().await;
        let given_back = self.give_back().await;
        self.count().await;
        published?;
        Ok(if given_back? {
            Duration::ZERO
        } else {
            self.idle_interval()
        })
    }
}
