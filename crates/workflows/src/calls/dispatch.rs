//! Publishing the outbox, in order.
//!
//! A message is read, published and marked. After a crash before the mark it is published again under
//! the same id. The next batch is published while the last one is being marked.
//!
//! A message that fails by itself is parked and retried alone; the others go on. When the bus is
//! unavailable, nothing is parked: the dispatcher backs off, and continues where it was.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::service_call::ServiceCall;
use punctual_domain::{DeadLetterOrigin, Message, MessageEnvelope, Timestamp};
use punctual_ports::{
    CallChange, DeadLetter, DeadLetterMessage, OutboxOutcome, OutboxPosition, OutboxRow, PortError,
    PortErrorKind, PublishOutcome,
};

use super::envelopes::wrap;
use super::{CallPorts, CallSettings};
use crate::fire_due_timers::publishing::{PublishResult, outcome};
use crate::retries::calls::PARKED_MESSAGE_BACKOFF;
use crate::retries::{PORT_BACKOFF, Retries};
use crate::{BackgroundTask, BackgroundWorker, metric_names};

/// Maximum number of messages in one batch.
const BATCH: usize = 500;
/// Maximum number of parked messages. At this limit the dispatcher backs off until fewer are.
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
    /// Every message up to here was published, or is parked.
    after: Option<OutboxPosition>,
    /// Messages that were published and are not marked yet.
    to_mark: Vec<OutboxPosition>,
    parked: BTreeMap<OutboxPosition, Parked>,
    /// When to update the gauge, on the monotonic clock.
    count_at: Duration,
}

/// A message that failed by itself.
struct Parked {
    failures: u32,
    /// On the monotonic clock.
    retry_at: Duration,
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
            after: None,
            to_mark: Vec::new(),
            parked: BTreeMap::new(),
            count_at: Duration::ZERO,
        };
        let retries = Retries::new(PORT_BACKOFF, "messages could not be published");
        BackgroundWorker::new(task, &ports.clock, &ports.to_publish, retries)
    }

    /// Publishes one batch; true if there may be more.
    async fn batch(&mut self) -> Result<bool, PortError> {
        if self.parked.len() >= MOST_PARKED {
            let (kind, reason) = (PortErrorKind::Overloaded, "too many messages are parked");
            return Err(PortError::new(kind, "publish the outbox", reason));
        }
        let rows = self.ports.outbox.unpublished(self.after, BATCH).await?;
        let (is_full, last) = (rows.len() >= BATCH, rows.last().map(|row| row.position));
        let is_new = |at: &_| !self.parked.contains_key(at) && !self.to_mark.contains(at);
        let rows = rows
            .into_iter()
            .filter(|row| is_new(&row.position))
            .collect();
        let to_mark = std::mem::take(&mut self.to_mark);
        let (marked, published) = tokio::join!(self.mark(&to_mark), self.publish(rows));
        if marked.is_err() {
            self.to_mark = to_mark;
        }
        let unavailable = self.settle(published).await?;
        marked?;
        if let Some(error) = unavailable {
            return Err(error);
        }
        self.after = last.or(self.after);
        Ok(is_full)
    }

    /// Applies the result of a batch; returns why the bus is unavailable, if it is.
    async fn settle(&mut self, published: Published) -> Result<Option<PortError>, PortError> {
        self.to_mark.extend(published.done);
        let now = self.ports.clock.monotonic();
        for (position, error) in published.failed {
            let parked = self.parked.entry(position).or_insert(Parked {
                failures: 0,
                retry_at: now,
            });
            parked.failures = parked.failures.saturating_add(1);
            let wait = PARKED_MESSAGE_BACKOFF.after(parked.failures, &position);
            parked.retry_at = now.saturating_add(wait);
            metrics::counter!(metric_names::OUTBOX_PARKED).increment(1);
            tracing::warn!(%error, number = position.number, "a message cannot be published now and is parked");
        }
        if !published.refused.is_empty() {
            self.dead_letter(published.refused).await?;
        }
        Ok(published.unavailable)
    }

    async fn publish(&self, rows: Vec<OutboxRow>) -> Published {
        let mut published = Published::default();
        let (mut positions, mut envelopes) = (Vec::new(), Vec::new());
        for row in rows {
            match row.envelope {
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
            // Messages without an answer are read again.
            let (kind, reason) = (PortErrorKind::Unavailable, "the bus gave too few answers");
            published.unavailable = Some(PortError::new(kind, "publish messages", reason));
        }
        for ((position, envelope), answer) in positions.into_iter().zip(envelopes).zip(answers) {
            published.record(position, envelope, answer);
        }
        published
    }

    async fn mark(&self, positions: &[OutboxPosition]) -> Result<(), PortError> {
        if positions.is_empty() {
            return Ok(());
        }
        let now = self.ports.clock.now();
        let marked = self.ports.outbox.mark_published(positions.to_vec(), now);
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
        };
        for one in self.ports.calls.change(vec![change]).await? {
            // A call that was changed meanwhile is redispatched, and refused again.
            one?;
        }
        self.ports.to_publish.notify();
        Ok(())
    }

    async fn dead_letter(&self, refused: Vec<(OutboxRow, String)>) -> Result<(), PortError> {
        for (row, reason) in &refused {
            self.finish_its_call(row, reason).await?;
        }
        let failed_at = self.ports.clock.now();
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
        Ok(())
    }

    /// Retries parked messages that are due.
    async fn retry_parked(&mut self) -> Result<(), PortError> {
        let now = self.ports.clock.monotonic();
        let is_due =
            |(at, parked): (&OutboxPosition, &Parked)| (parked.retry_at <= now).then_some(*at);
        let due = self.parked.iter().filter_map(is_due).take(PARKED_BATCH);
        for position in due.collect::<Vec<_>>() {
            let before = OutboxPosition {
                number: position.number - 1,
                ..position
            };
            let mut rows = self.ports.outbox.unpublished(Some(before), 1).await?;
            rows.retain(|row| row.position == position);
            let published = self.publish(rows).await;
            let is_over = published.failed.is_empty() && published.unavailable.is_none();
            if let Some(error) = self.settle(published).await? {
                return Err(error);
            }
            // Only after it is settled, or it would not be retried.
            if is_over {
                self.parked.remove(&position);
            }
        }
        Ok(())
    }

    async fn publish_all(&mut self) -> Result<(), PortError> {
        self.retry_parked().await?;
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

    fn idle_interval(&self) -> Duration {
        let now = self.ports.clock.monotonic();
        let parked = self.parked.values();
        let until_retry = parked.map(|parked| parked.retry_at.saturating_sub(now));
        let poll = self.settings.polling_interval;
        until_retry.min().map_or(poll, |next| next.min(poll))
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
        self.count().await;
        published.map(|()| self.idle_interval())
    }
}
