//! The bus between modules, which may lose, repeat or delay a message although it was accepted.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use punctual_adapters_memory::FakeClock;
use punctual_adapters_system::InProcessBus;
use punctual_domain::{MessageEnvelope, Timestamp};
use punctual_ports::{
    BatchResult, ClockPort, EventBusPort, PortError, PublishOutcome, Subscribe, Subscription,
};

/// What becomes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Number of deliveries; with zero it is lost, although it was accepted.
    Delivered(usize),
    /// It is accepted and delivered when somebody lets go of it.
    Delayed,
    /// It can never be delivered.
    Refused,
}

/// A message that was published.
#[derive(Debug, Clone)]
pub(crate) struct Passed {
    pub envelope: MessageEnvelope,
    pub at: Timestamp,
    pub fate: Fate,
}

type Script = Arc<dyn Fn(&MessageEnvelope) -> Fate + Send + Sync>;

pub(crate) struct Wire {
    bus: InProcessBus,
    clock: FakeClock,
    script: Mutex<Script>,
    passed: Mutex<Vec<Passed>>,
    delayed: Mutex<Vec<MessageEnvelope>>,
}

impl Wire {
    pub(crate) fn new(bus: &InProcessBus, clock: &FakeClock) -> Arc<Self> {
        Arc::new(Self {
            bus: bus.clone(),
            clock: clock.clone(),
            script: Mutex::new(Arc::new(|_| Fate::Delivered(1))),
            passed: Mutex::default(),
            delayed: Mutex::default(),
        })
    }

    pub(crate) fn decides(
        &self,
        script: impl Fn(&MessageEnvelope) -> Fate + Send + Sync + 'static,
    ) {
        *self.script.lock().unwrap() = Arc::new(script);
    }

    /// From now on everything arrives once.
    pub(crate) fn is_good(&self) {
        self.decides(|_| Fate::Delivered(1));
    }

    /// From now on messages of these types are lost.
    pub(crate) fn loses(&self, types: &'static [&'static str]) {
        self.decides(move |envelope| {
            let is_lost = types.contains(&envelope.message.type_name());
            Fate::Delivered(usize::from(!is_lost))
        });
    }

    pub(crate) fn passed(&self) -> Vec<Passed> {
        self.passed.lock().unwrap().clone()
    }

    /// The messages of a type.
    pub(crate) fn of_type(&self, type_name: &str) -> Vec<Passed> {
        let is_of_type = |it: &Passed| it.envelope.message.type_name() == type_name;
        self.passed().into_iter().filter(is_of_type).collect()
    }

    pub(crate) fn count(&self, type_name: &str) -> usize {
        self.of_type(type_name).len()
    }

    /// Removes and returns the delayed messages.
    pub(crate) fn take_delayed(&self) -> Vec<MessageEnvelope> {
        std::mem::take(&mut self.delayed.lock().unwrap())
    }

    /// Delivers messages as they are, whatever their fate would be.
    pub(crate) async fn deliver(&self, batch: Vec<MessageEnvelope>) -> BatchResult<PublishOutcome> {
        self.bus.publish(batch).await
    }

    /// The answer for one message, after as many deliveries as it gets.
    async fn pass(&self, envelope: MessageEnvelope, times: usize) -> BatchResult<PublishOutcome> {
        let mut last = Ok(vec![Ok(PublishOutcome::Accepted)]);
        for _ in 0..times {
            last = self.bus.publish(vec![envelope.clone()]).await;
        }
        last
    }
}

#[async_trait]
impl EventBusPort for Wire {
    async fn publish(&self, batch: Vec<MessageEnvelope>) -> BatchResult<PublishOutcome> {
        let script = self.script.lock().unwrap().clone();
        let fates: Vec<Fate> = batch.iter().map(|envelope| script(envelope)).collect();
        let at = self.clock.now();
        let passing = batch.iter().zip(&fates).map(|(envelope, fate)| Passed {
            envelope: envelope.clone(),
            at,
            fate: *fate,
        });
        self.passed.lock().unwrap().extend(passing);
        if fates.iter().all(|fate| *fate == Fate::Delivered(1)) {
            return self.bus.publish(batch).await;
        }
        let mut answers = Vec::new();
        for (envelope, fate) in batch.into_iter().zip(fates) {
            match fate {
                Fate::Delivered(times) => answers.append(&mut self.pass(envelope, times).await?),
                Fate::Refused => answers.push(Ok(PublishOutcome::Refused {
                    reason: "it is too long".to_owned(),
                })),
                Fate::Delayed => {
                    self.delayed.lock().unwrap().push(envelope);
                    answers.push(Ok(PublishOutcome::Accepted));
                }
            }
        }
        Ok(answers)
    }

    async fn subscribe(&self, request: Subscribe) -> Result<Box<dyn Subscription>, PortError> {
        self.bus.subscribe(request).await
    }
}
