//! A bus that loses what it had accepted, and notes what is published again.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use punctual_adapters_memory::FakeClock;
use punctual_domain::{Message, MessageEnvelope, TimerKey, Timestamp};
use punctual_ports::{
    BatchResult, ClockPort, DataLoss, EventBusPort, PortError, PortErrorKind, PublishOutcome,
    Subscribe, Subscription,
};
use tokio::sync::Notify;

/// What the bus makes of a batch; `None` if it never answers.
type Script = Box<dyn FnMut(&[MessageEnvelope]) -> Option<BatchResult<PublishOutcome>> + Send>;

/// A call of `publish`.
pub(crate) struct Published {
    pub batch: Vec<MessageEnvelope>,
    pub at: Timestamp,
}

pub(crate) struct LosingBus {
    clock: FakeClock,
    losses: Mutex<VecDeque<DataLoss>>,
    news: Notify,
    published: Mutex<Vec<Published>>,
    script: Mutex<Script>,
    /// What `recovered` answers first.
    recovery_fails: Mutex<VecDeque<PortErrorKind>>,
    /// The recovered losses, each with the number of calls of `publish` before it.
    recovered: Mutex<Vec<(u64, usize)>>,
    recovered_until: Mutex<Vec<Timestamp>>,
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "the answer is the one of every script"
)]
pub(crate) fn accept(batch: &[MessageEnvelope]) -> Option<BatchResult<PublishOutcome>> {
    let accept = |_| Ok(PublishOutcome::Accepted);
    Some(Ok(batch.iter().map(accept).collect()))
}

pub(crate) fn trouble(kind: PortErrorKind) -> PortError {
    PortError::new(kind, "publish", "not this time")
}

pub(crate) fn timer_of(envelope: &MessageEnvelope) -> TimerKey {
    match &envelope.message {
        Message::DueTimeReached(event) => event.key(),
        other => panic!("{other:?} is no firing"),
    }
}

impl LosingBus {
    pub(crate) fn new(clock: &FakeClock) -> Arc<Self> {
        Arc::new(Self {
            clock: clock.clone(),
            losses: Mutex::default(),
            news: Notify::new(),
            published: Mutex::default(),
            script: Mutex::new(Box::new(accept)),
            recovery_fails: Mutex::default(),
            recovered: Mutex::default(),
            recovered_until: Mutex::default(),
        })
    }

    pub(crate) fn loses(&self, number: u64, since: Timestamp) {
        self.losses.lock().unwrap().push_back(DataLoss {
            number,
            stream: "EVENTS".to_owned(),
            since,
            reason: format!("loss number {number}"),
        });
        self.news.notify_waiters();
    }

    pub(crate) fn answers(
        &self,
        script: impl FnMut(&[MessageEnvelope]) -> Option<BatchResult<PublishOutcome>> + Send + 'static,
    ) {
        *self.script.lock().unwrap() = Box::new(script);
    }

    pub(crate) fn fails_to_take_note(&self, kinds: impl IntoIterator<Item = PortErrorKind>) {
        self.recovery_fails.lock().unwrap().extend(kinds);
    }

    /// The timers of each call of `publish`.
    pub(crate) fn batches(&self) -> Vec<Vec<TimerKey>> {
        let published = self.published.lock().unwrap();
        let timers = |call: &Published| call.batch.iter().map(timer_of).collect();
        published.iter().map(timers).collect()
    }

    pub(crate) fn timers(&self) -> Vec<TimerKey> {
        self.batches().concat()
    }

    pub(crate) fn envelopes(&self) -> Vec<MessageEnvelope> {
        let published = self.published.lock().unwrap();
        published.iter().flat_map(|it| it.batch.clone()).collect()
    }

    /// When `publish` was called.
    pub(crate) fn times(&self) -> Vec<Timestamp> {
        let published = self.published.lock().unwrap();
        published.iter().map(|call| call.at).collect()
    }

    pub(crate) fn recovered(&self) -> Vec<(u64, usize)> {
        self.recovered.lock().unwrap().clone()
    }

    /// Up to which instants all was published again.
    pub(crate) fn recovered_until(&self) -> Vec<Timestamp> {
        self.recovered_until.lock().unwrap().clone()
    }
}

#[async_trait]
impl EventBusPort for LosingBus {
    async fn publish(&self, batch: Vec<MessageEnvelope>) -> BatchResult<PublishOutcome> {
        let answer = (self.script.lock().unwrap())(&batch);
        let at = self.clock.now();
        self.published.lock().unwrap().push(Published { batch, at });
        match answer {
            Some(answer) => answer,
            None => pending().await,
        }
    }

    async fn subscribe(&self, _request: Subscribe) -> Result<Box<dyn Subscription>, PortError> {
        Err(trouble(PortErrorKind::Rejected))
    }

    async fn lost(&self) -> DataLoss {
        loop {
            let news = self.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            let loss = self.losses.lock().unwrap().front().cloned();
            match loss {
                Some(loss) => return loss,
                None => news.await,
            }
        }
    }

    async fn recovered(&self, loss: &DataLoss) -> Result<(), PortError> {
        if let Some(kind) = self.recovery_fails.lock().unwrap().pop_front() {
            return Err(trouble(kind));
        }
        let calls = self.published.lock().unwrap().len();
        self.recovered.lock().unwrap().push((loss.number, calls));
        self.losses.lock().unwrap().retain(|it| it != loss);
        Ok(())
    }

    fn recovered_until(&self, _loss: &DataLoss, until: Timestamp) {
        self.recovered_until.lock().unwrap().push(until);
    }
}
