//! A worker as something that a manual clock drives.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use punctual_domain::Timestamp;
use punctual_ports::Stepped;

use crate::WorkerStopped;

/// Returns when a worker steps next, also during a step.
pub type NextWake = Arc<dyn Fn() -> Option<Timestamp> + Send + Sync>;

/// A worker that does its work in steps.
#[async_trait]
pub trait SteppedWorker: Send {
    /// Does everything that can be done now, without sleeping on the clock.
    async fn step_when_driven(&mut self) -> Result<(), WorkerStopped>;

    /// When to step next.
    fn next_wake_fn(&self) -> NextWake;
}

/// Wraps a worker for a clock that is moved by hand; the first page of this crate shows how.
pub struct Driven<W> {
    worker: tokio::sync::Mutex<W>,
    next_wake_fn: NextWake,
    stopped: Mutex<Option<WorkerStopped>>,
}

impl<W: SteppedWorker> Driven<W> {
    /// Wraps a worker.
    pub fn new(worker: W) -> Arc<Self> {
        Arc::new(Self {
            next_wake_fn: worker.next_wake_fn(),
            worker: tokio::sync::Mutex::new(worker),
            stopped: Mutex::new(None),
        })
    }

    /// Why the worker has stopped, if it has.
    pub fn stopped(&self) -> Option<WorkerStopped> {
        let stopped = self.stopped.lock();
        stopped.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The worker, for a graceful shutdown. Waits for the current step.
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
        (self.next_wake_fn)()
    }

    async fn step(&self) {
        let outcome = self.worker.lock().await.step_when_driven().await;
        if let Err(stopped) = outcome {
            *self.stopped.lock().unwrap_or_else(PoisonError::into_inner) = Some(stopped);
        }
    }
}
