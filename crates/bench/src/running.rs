//! An engine that runs for as long as it is wanted, as an embedder's process has it.

use std::sync::Arc;

use punctual_domain::Timestamp;
use punctual_ports::{MessageHandler, Subscription};
use punctual_workflows::{Drained, TimerWorker, WorkerSettings, WorkerStopped};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::Outcome;
use crate::ours::{Ours, all_settled};

/// A worker with a handler, and the watch for other programs' commits.
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    worker: JoinHandle<Result<Drained, WorkerStopped>>,
    watching: JoinHandle<()>,
    subscription: Box<dyn Subscription>,
}

impl Ours {
    /// Fires timers until it is stopped.
    pub(crate) async fn run(
        &self,
        settings: WorkerSettings,
        handler: Arc<dyn MessageHandler>,
    ) -> Outcome<Running> {
        let subscription = self.subscribe(handler).await?;
        let worker = TimerWorker::new(&self.ports, settings)?;
        let (stop, stopped) = oneshot::channel();
        let worker = tokio::spawn(worker.run(async { _ = stopped.await }));
        let (store, ports) = (self.store.clone(), self.ports.clone());
        let watching = tokio::spawn(async move {
            let wake = || ports.wake.due_at(Timestamp::MIN);
            store.watch_foreign_commits(ports.clock.clone(), wake).await;
        });
        Ok(Running {
            stop,
            worker,
            watching,
            subscription,
        })
    }
}

impl Running {
    /// Stops in an orderly way; what was in flight is settled then.
    pub(crate) async fn stop(self) -> Outcome<()> {
        self.watching.abort();
        // A dropped receiver means that the worker has stopped, and its error is returned below.
        let _ = self.stop.send(());
        let drained = self.worker.await??;
        self.subscription.stop().await;
        all_settled(drained)
    }
}
