//! A worker as something that a manual clock drives.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use punctual_domain::Timestamp;
use punctual_ports::Stepped;

use crate::WorkerStopped;

/// A worker that does its work in steps.
#[async_trait]
pub trait SteppedWorker: Send {
    /// Does all there is to do now, without ever sleeping on the clock.
    async fn step_when_driven(&mut self) -> Result<(), WorkerStopped>;

    /// A function that tells when it wants to be stepped next, also in the middle of a step.
    fn wants_to_wake(&self) -> Arc<dyn Fn() -> Option<Timestamp> + Send + Sync>;
}

/// Wraps a worker for a clock that is moved by hand; the first page of this crate shows how.
pub struct Driven<W> {
    worker: tokio::sync::Mutex<W>,
    wants_to_wake: Arc<dyn Fn() -> Option<Timestamp> + Send + Sync>,
    stopped: Mutex<Option<WorkerStopped>>,
}

impl<W: SteppedWorker> Driven<W> {
    /// Wraps a worker.
    pub fn new(worker: W) -> Arc<Self> {
        Arc::new(Self {
            wants_to_wake: worker.wants_to_wake(),
            worker: tokio::sync::Mutex::new(worker),
            stopped: Mutex::new(None),
        })
    }

    /// Why the worker has stopped, if it has.
    pub fn stopped(&self) -> Option<WorkerStopped> {
        let stopped = self.stopped.lock();
        stopped.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The worker, for whoever wants to end it properly. Waits for a step under way.
    pub async fn worker(&self) -> tokio::sync::MutexGuard<'_, W> {
        self.worker.lock().await
    }
}

#[async_trait]
impl<W: SteppedWorker> Stepped for Driven<W> {
    fn next_wake(&self) -> Option<Timestamp> {
        if self.stopped().is_some() {
            return None;
        }
        (self.wants_to_wake)()
    }

    async fn step(&self) {
        let outcome = self.worker.lock().await.step_when_driven().await;
        if let Err(stopped) = outcome {
            let mut place = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
            *place = Some(stopped);
        }
    }
}
