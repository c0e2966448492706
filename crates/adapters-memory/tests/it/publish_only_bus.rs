//! A bus that publishes only, as whoever forwards events to a queue of their own would write it, passes the
//! suite of a bus.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use punctual_conformance::EventBusFixture;
use punctual_domain::MessageEnvelope;
use punctual_ports::{
    BatchResult, EventBusPort, PortError, PortErrorKind, PublishOutcome, Subscribe, Subscription,
};

/// Keeps what is published, for readers of its own.
#[derive(Clone, Default)]
struct Journal(Arc<Mutex<Vec<MessageEnvelope>>>);

#[async_trait]
impl EventBusPort for Journal {
    async fn publish(&self, batch: Vec<MessageEnvelope>) -> BatchResult<PublishOutcome> {
        let accepted = batch.iter().map(|_| Ok(PublishOutcome::Accepted)).collect();
        self.0.lock().unwrap().extend(batch);
        Ok(accepted)
    }

    async fn subscribe(&self, _: Subscribe) -> Result<Box<dyn Subscription>, PortError> {
        let why = "a journal is read, and delivers to nobody";
        Err(PortError::new(PortErrorKind::Rejected, "subscribe", why))
    }
}

#[async_trait]
impl EventBusFixture for Journal {
    fn bus(&self) -> Arc<dyn EventBusPort> {
        Arc::new(self.clone())
    }

    fn delivers(&self) -> bool {
        false
    }

    fn keeps_messages_for_later(&self) -> bool {
        true
    }

    async fn until(&self, what: &str, _condition: &(dyn Fn() -> bool + Sync)) {
        panic!("{what}: nobody is waited for, since nothing is delivered");
    }
}

punctual_conformance::event_bus_suite!(Journal::default());
