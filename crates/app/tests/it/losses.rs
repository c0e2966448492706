//! A bus that has lost what it accepted gets it again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use punctual::ports::{
    BatchResult, DataLoss, EventBusPort, Message, MessageEnvelope, PortError, PortErrorKind,
    PublishOutcome, Subscribe, Subscription,
};
use punctual::{ErrorKind, FiringId, Punctual, Timer};
use tokio::sync::{mpsc, watch};

use crate::fixture::{at, key};

/// Accepts everything, and loses it when it is told to.
#[derive(Clone)]
struct Forgetful {
    accepted: mpsc::UnboundedSender<FiringId>,
    loss: Arc<watch::Sender<Option<DataLoss>>>,
    breaks: bool,
}

#[async_trait]
impl EventBusPort for Forgetful {
    async fn publish(&self, batch: Vec<MessageEnvelope>) -> BatchResult<PublishOutcome> {
        for envelope in &batch {
            if let Message::DueTimeReached(event) = &envelope.message {
                self.accepted.send(event.firing_id.clone()).unwrap();
            }
        }
        let accept = |_| Ok(PublishOutcome::Accepted);
        Ok(batch.iter().map(accept).collect())
    }

    async fn subscribe(&self, _: Subscribe) -> Result<Box<dyn Subscription>, PortError> {
        let kind = PortErrorKind::Rejected;
        Err(PortError::new(kind, "subscribe", "nobody does"))
    }

    async fn lost(&self) -> DataLoss {
        let mut losses = self.loss.subscribe();
        let lost = losses.wait_for(Option::is_some).await.unwrap();
        lost.clone().unwrap()
    }

    async fn recovered(&self, _: &DataLoss) -> Result<(), PortError> {
        if self.breaks {
            let kind = PortErrorKind::Broken;
            return Err(PortError::new(kind, "take note", "the disk is gone"));
        }
        self.loss.send_replace(None);
        Ok(())
    }
}

fn forgetful(breaks: bool) -> (Forgetful, mpsc::UnboundedReceiver<FiringId>) {
    let (accepted, acceptances) = mpsc::unbounded_channel();
    let bus = Forgetful {
        accepted,
        loss: Arc::new(watch::Sender::new(None)),
        breaks,
    };
    (bus, acceptances)
}

fn everything() -> DataLoss {
    DataLoss {
        number: 1,
        stream: "EVENTS".to_owned(),
        since: at("1970-01-01T00:00:00Z"),
        reason: "the stream was made anew".to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_engine_publishes_again_what_its_bus_has_lost() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let (bus, mut acceptances) = forgetful(false);
    let builder = Punctual::builder().bus(bus.clone());
    let builder = builder.sqlite(folder.path().join("timers.db"));
    let punctual = builder.build().await.unwrap();
    let running = punctual.start().await.unwrap();
    let mut first = BTreeSet::new();
    for name in ["a", "b"] {
        let timer = Timer::after(key(name), Duration::ZERO);
        let _ = punctual.schedule(timer).await.unwrap();
        first.insert(acceptances.recv().await.unwrap().to_string());
        // Until its mark is there, too.
        while let Some(entry) = punctual.find(&key(name)).await.unwrap() {
            if entry.reached_at().is_some() {
                break;
            }
        }
    }
    bus.loss.send_replace(Some(everything()));
    let mut again = BTreeSet::new();
    for _ in 0..2 {
        again.insert(acceptances.recv().await.unwrap().to_string());
    }
    assert_eq!(again, first);
    let mut recovered = bus.loss.subscribe();
    recovered.wait_for(Option::is_none).await.unwrap();
    running.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_whose_bus_cannot_take_note_any_more_stops_and_tells_why() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let (bus, _acceptances) = forgetful(true);
    let builder = Punctual::builder().bus(bus.clone());
    let builder = builder.sqlite(folder.path().join("timers.db"));
    let punctual = builder.build().await.unwrap();
    let running = punctual.start().await.unwrap();
    bus.loss.send_replace(Some(everything()));
    let why = running.stopped().await;
    assert_eq!(why.kind(), ErrorKind::Broken, "{why}");
}
