//! What a receiver of events has seen, and how it answers.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use punctual_adapters_memory::FakeClock;
use punctual_domain::{DueTimeReached, FiringId, Message, MessageEnvelope, TimerKey, Timestamp};
use punctual_ports::{Answer, ClockPort, MessageHandler};

/// An event that arrived.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub event: DueTimeReached,
    pub envelope: MessageEnvelope,
    /// The time on the clock when it arrived.
    pub at: Timestamp,
}

pub(crate) type Reply = Pin<Box<dyn Future<Output = Answer> + Send>>;
type Script = Box<dyn Fn(&DueTimeReached, usize) -> Reply + Send + Sync>;

/// Notes every event, in the order of arrival.
pub(crate) struct Ledger {
    clock: FakeClock,
    seen: Mutex<Vec<Seen>>,
    /// How often each firing was seen, so that a long ledger is as quick as a short one.
    times: Mutex<BTreeMap<FiringId, usize>>,
    script: Mutex<Arc<Script>>,
}

pub(crate) fn reply(answer: Answer) -> Reply {
    Box::pin(async move { answer })
}

pub(crate) fn retry() -> Answer {
    Answer::RetryLater {
        reason: "not this time".to_owned(),
    }
}

pub(crate) fn poison() -> Answer {
    Answer::Poison {
        reason: "not ever".to_owned(),
    }
}

impl Ledger {
    pub(crate) fn new(clock: &FakeClock) -> Arc<Self> {
        Arc::new(Self {
            clock: clock.clone(),
            seen: Mutex::default(),
            times: Mutex::default(),
            script: Mutex::new(Arc::new(Box::new(|_, _| reply(Answer::Done)))),
        })
    }

    /// From now on answers by this: it gets the event and how often it was seen before.
    pub(crate) fn answers(
        &self,
        script: impl Fn(&DueTimeReached, usize) -> Reply + Send + Sync + 'static,
    ) {
        *self.script.lock().unwrap() = Arc::new(Box::new(script));
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn firings(&self) -> BTreeMap<FiringId, usize> {
        self.times.lock().unwrap().clone()
    }

    pub(crate) fn count(&self, key: &TimerKey) -> usize {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|seen| seen.event.key() == *key).count()
    }

    pub(crate) fn has(&self, firing_id: &FiringId) -> bool {
        self.times.lock().unwrap().contains_key(firing_id)
    }
}

#[async_trait]
impl MessageHandler for Ledger {
    async fn handle(&self, batch: Vec<MessageEnvelope>) -> Vec<Answer> {
        let mut answers = Vec::new();
        for envelope in batch {
            let Message::DueTimeReached(event) = envelope.message.clone() else {
                panic!("only timer events are subscribed to");
            };
            let (earlier, script) = {
                let mut seen = self.seen.lock().unwrap();
                let mut times = self.times.lock().unwrap();
                let times = times.entry(event.firing_id.clone()).or_default();
                let earlier = *times;
                *times += 1;
                seen.push(Seen {
                    event: event.clone(),
                    envelope,
                    at: self.clock.now(),
                });
                (earlier, Arc::clone(&self.script.lock().unwrap()))
            };
            answers.push(script(&event, earlier).await);
        }
        answers
    }
}
