//! Publishing what was committed, in order.
//!
//! A message is read, published and marked. A crash before the mark means that it is published again
//! under the same id. The next batch is published while the last one is being marked.
//!
//! A message that fails by itself is set aside and tried again later, alone; the others go on. When
//! the bus itself is away, nothing is set aside: the dispatcher waits, and goes on where it was.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::service_call::ServiceCall;
use punctual_domain::{Backoff, DeadLetterOrigin, Message, MessageEnvelope};
use punctual_ports::{
    CallChange, DeadLetter, DeadLetterMessage, OutboxOutcome, OutboxPosition, OutboxRow, PortError,
    PortErrorKind, PublishOutcome,
};

use super::envelopes::wrap;
use super::{BackgroundTask, BackgroundWorker, CallPorts, CallSettings};
use crate::fire_due_timers::WorkerStopped;
use crate::metric_names;

/// So many messages are read and published at once.
const BATCH: usize = 500;
/// So many that fail by themselves are set aside at most; then the dispatcher waits for them.
const MOST_ASIDE: usize = 100_000;
/// So many that were set aside are tried again at once.
const ASIDE_BATCH: usize = 50;
/// The gauge is not older than this while there is work, or else than the poll.
const COUNT_EVERY: Duration = Duration::from_secs(1);
/// The gauge counts no further than this.
const COUNT_TO: usize = 100_000;

const AFTER_FAILURE: Backoff = Backoff {
    first: Duration::from_millis(100),
    limit: Duration::from_secs(5),
};
const ASIDE: Backoff = Backoff {
    first: Duration::from_millis(200),
    limit: Duration::from_hours(1),
};

/// Publishes what was committed.
pub struct DispatchOutbox {
    ports: CallPorts,
    settings: CallSettings,
    /// Everything up to here was published, or is set aside.
    after: Option<OutboxPosition>,
    /// What was published and is not marked yet.
    to_mark: Vec<OutboxPosition>,
    aside: BTreeMap<OutboxPosition, Aside>,
    failures: u32,
    /// When to count what waits, on the monotonic clock.
    count_at: Duration,
}

/// A message that failed by itself.
struct Aside {
    failures: u32,
    /// On the monotonic clock.
    again_at: Duration,
}

/// What became of a batch.
#[derive(Default)]
struct Published {
    done: Vec<OutboxPosition>,
    refused: Vec<(OutboxRow, String)>,
    failed: Vec<(OutboxPosition, PortError)>,
    /// The bus was away for some of them.
    away: Option<PortError>,
}

impl DispatchOutbox {
    /// On these adapters.
    pub fn worker(ports: &CallPorts, settings: CallSettings) -> BackgroundWorker<Self> {
        let task = Self {
            ports: ports.clone(),
            settings,
            after: None,
            to_mark: Vec::new(),
            aside: BTreeMap::new(),
            failures: 0,
            count_at: Duration::ZERO,
        };
        BackgroundWorker::new(task, &ports.clock, &ports.to_publish)
    }

    /// One batch; tells whether there may be more.
    async fn batch(&mut self) -> Result<bool, PortError> {
        if self.aside.len() >= MOST_ASIDE {
            let reason = "too many messages fail by themselves";
            return Err(PortError::new(
                PortErrorKind::Overloaded,
                "publish the outbox",
                reason,
            ));
        }
        let rows = self.ports.outbox.unpublished(self.after, BATCH).await?;
        let (is_full, last) = (rows.len() >= BATCH, rows.last().map(|row| row.place));
        let rows: Vec<OutboxRow> = rows
            .into_iter()
            .filter(|row| {
                !self.aside.contains_key(&row.place) && !self.to_mark.contains(&row.place)
            })
            .collect();
        let to_mark = std::mem::take(&mut self.to_mark);
        let (marked, published) = tokio::join!(self.mark(to_mark.clone()), self.publish(rows));
        if marked.is_err() {
            self.to_mark = to_mark;
        }
        let away = self.settle(published).await?;
        marked?;
        if let Some(error) = away {
            return Err(error);
        }
        self.after = last.or(self.after);
        Ok(is_full)
    }

    /// Takes note of what became of a batch; gives back why the bus is away, if it is.
    async fn settle(&mut self, published: Published) -> Result<Option<PortError>, PortError> {
        self.to_mark.extend(published.done);
        let now = self.ports.clock.monotonic();
        for (place, error) in published.failed {
            let aside = self.aside.entry(place).or_insert(Aside {
                failures: 0,
                again_at: now,
            });
            aside.failures = aside.failures.saturating_add(1);
            aside.again_at = now.saturating_add(ASIDE.after(aside.failures, &place));
            metrics::counter!(metric_names::OUTBOX_PARKED).increment(1);
            tracing::warn!(%error, number = place.number, "a message cannot be published now and is set aside");
        }
        if !published.refused.is_empty() {
            self.dead_letter(published.refused).await?;
        }
        Ok(published.away)
    }

    async fn publish(&self, rows: Vec<OutboxRow>) -> Published {
        let mut published = Published::default();
        let (mut places, mut envelopes) = (Vec::new(), Vec::new());
        for OutboxRow { place, envelope } in rows {
            match envelope {
                Ok(envelope) => {
                    places.push(place);
                    envelopes.push(envelope);
                }
                Err(unreadable) => {
                    let reason = unreadable.reason.clone();
                    let envelope = Err(unreadable);
                    published
                        .refused
                        .push((OutboxRow { place, envelope }, reason));
                }
            }
        }
        if envelopes.is_empty() {
            return published;
        }
        let answers = match self.ports.bus.publish(envelopes.clone()).await {
            Ok(answers) => answers,
            Err(error) => {
                published.away = Some(error);
                return published;
            }
        };
        if answers.len() < places.len() {
            // Silence is not consent: those without an answer are read again.
            let (kind, reason) = (PortErrorKind::Unavailable, "the bus gave too few answers");
            published.away = Some(PortError::new(kind, "publish messages", reason));
        }
        for ((place, envelope), answer) in places.into_iter().zip(envelopes).zip(answers) {
            published.take(place, envelope, answer);
        }
        published
    }

    async fn mark(&self, places: Vec<OutboxPosition>) -> Result<(), PortError> {
        if places.is_empty() {
            return Ok(());
        }
        let now = self.ports.clock.now();
        let marked = self.ports.outbox.mark_published(places, now).await?;
        let count = marked.len();
        for one in marked {
            // Whatever was marked before needs no other mark.
            let _: OutboxOutcome = one?;
        }
        metrics::counter!(metric_names::OUTBOX_PUBLISHED).increment(count as u64);
        Ok(())
    }

    /// A command for an attempt that can never be delivered ends its call, before it is buried: nobody
    /// else would, and asking again would be in vain.
    async fn end_its_call(&self, row: &OutboxRow, reason: &str) -> Result<(), PortError> {
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
            seen: stored.version,
            outbox: wrap(step.outgoing, correlation_id, now, self.ports.ids.as_ref()),
        };
        for one in self.ports.calls.change(vec![change]).await? {
            // What somebody else has changed meanwhile is asked for again, and refused again.
            one?;
        }
        self.ports.to_publish.notify();
        Ok(())
    }

    async fn dead_letter(&self, refused: Vec<(OutboxRow, String)>) -> Result<(), PortError> {
        for (row, reason) in &refused {
            self.end_its_call(row, reason).await?;
        }
        let failed_at = self.ports.clock.now();
        let dead = refused
            .into_iter()
            .map(|(row, reason)| {
                tracing::error!(
                    reason,
                    number = row.place.number,
                    "a message can never be published and becomes a dead letter"
                );
                DeadLetterMessage {
                    place: row.place,
                    dead_letter: dead_letter(row, reason, failed_at),
                }
            })
            .collect();
        for one in self.ports.outbox.dead_letter(dead).await? {
            one?;
        }
        Ok(())
    }

    /// Tries again what was set aside and whose time has come.
    async fn retry_aside(&mut self) -> Result<(), PortError> {
        let now = self.ports.clock.monotonic();
        let due: Vec<OutboxPosition> = self
            .aside
            .iter()
            .filter(|(_, aside)| aside.again_at <= now)
            .map(|(place, _)| *place)
            .take(ASIDE_BATCH)
            .collect();
        for place in due {
            let before = OutboxPosition {
                number: place.number - 1,
                ..place
            };
            let rows = self.ports.outbox.unpublished(Some(before), 1).await?;
            let rows: Vec<OutboxRow> = rows.into_iter().filter(|row| row.place == place).collect();
            let published = self.publish(rows).await;
            let is_over = published.failed.is_empty() && published.away.is_none();
            if let Some(error) = self.settle(published).await? {
                return Err(error);
            }
            // Not before it is settled: nobody else would come back to it.
            if is_over {
                self.aside.remove(&place);
            }
        }
        Ok(())
    }

    async fn all(&mut self) -> Result<(), PortError> {
        self.retry_aside().await?;
        while self.batch().await? {}
        let to_mark = std::mem::take(&mut self.to_mark);
        let marked = self.mark(to_mark.clone()).await;
        if marked.is_err() {
            self.to_mark = to_mark;
        }
        marked
    }

    /// Counts what waits, now and then: under load a step takes milliseconds, and a count reads an index.
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

    fn rest(&self) -> Duration {
        let now = self.ports.clock.monotonic();
        let next = self
            .aside
            .values()
            .map(|aside| aside.again_at.saturating_sub(now))
            .min();
        let poll = self.settings.polling_interval;
        next.map_or(poll, |next| next.min(poll))
    }
}

impl Published {
    fn take(
        &mut self,
        place: OutboxPosition,
        envelope: MessageEnvelope,
        answer: Result<PublishOutcome, PortError>,
    ) {
        match answer {
            Ok(PublishOutcome::Accepted | PublishOutcome::Duplicate) => self.done.push(place),
            Ok(PublishOutcome::Refused { reason }) => {
                let envelope = Ok(envelope);
                self.refused.push((OutboxRow { place, envelope }, reason));
            }
            Ok(other) => {
                let reason = format!("the bus answered {other:?}");
                let kind = PortErrorKind::HandlerFailed;
                self.failed
                    .push((place, PortError::new(kind, "publish a message", reason)));
            }
            Err(error) if error.kind() == PortErrorKind::Rejected => {
                let envelope = Ok(envelope);
                let reason = error.to_string();
                self.refused.push((OutboxRow { place, envelope }, reason));
            }
            Err(error)
                if error.kind().concerns_the_item()
                    || error.kind() == PortErrorKind::NoSubscriber =>
            {
                self.failed.push((place, error));
            }
            Err(error) => self.away = Some(error),
        }
    }
}

fn dead_letter(
    row: OutboxRow,
    reason: String,
    failed_at: punctual_domain::Timestamp,
) -> DeadLetter {
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
            id: format!("outbox:{}", row.place.number),
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
    async fn step(&mut self) -> Result<Duration, WorkerStopped> {
        let done = self.all().await;
        self.count().await;
        match done {
            Ok(()) => {
                self.failures = 0;
                Ok(self.rest())
            }
            Err(cause) if cause.kind().is_critical() => Err(WorkerStopped { cause }),
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                let wait = AFTER_FAILURE.after(self.failures, &"outbox");
                if self.failures == 1 {
                    tracing::warn!(%error, "messages wait to be published; it is tried again until it succeeds");
                } else {
                    tracing::debug!(%error, failures = self.failures, ?wait, "messages wait to be published");
                }
                Ok(wait)
            }
        }
    }
}
