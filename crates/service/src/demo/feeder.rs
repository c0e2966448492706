//! Schedules the timers: as a client of the database, beside the worker that fires from it.

use std::path::Path;

use punctual_adapters_sqlite::{SqliteSettings, SqliteTimerStore};
use punctual_adapters_system::{Handlers, InProcessBus, SystemClock, UuidIds};
use punctual_domain::{TimerKey, Timestamp};
use punctual_ports::{PortError, PortErrorKind, SaveOutcome};
use punctual_workflows::{ScheduleTimers, TimerPorts, TimerRequest};
use tokio::sync::mpsc;

use super::event::Event;
use super::plan::Plan;
use crate::failure::Failure;
use crate::store;

/// How many timers are stored in one transaction.
const BATCH: u32 = 1_000;

/// Whoever schedules. Clones are the same.
#[derive(Clone)]
pub(super) struct Feeder {
    store: SqliteTimerStore,
    timers: ScheduleTimers,
}

impl Feeder {
    /// Makes the database.
    pub(super) async fn open(database: &Path, clock: &SystemClock) -> Result<Self, Failure> {
        let store = store::open(&SqliteSettings::client(database), clock).await?;
        // Nothing is published here: the worker does that.
        let bus = InProcessBus::new(Handlers::Inline);
        let ports = TimerPorts::new(clock.clone(), UuidIds, store.clone(), bus);
        let timers = ScheduleTimers::new(&ports);
        Ok(Self { store, timers })
    }

    /// Schedules everything in the order in which it is due, and tells of each batch before and
    /// after. Ends early if nobody listens any more.
    pub(super) async fn feed(self, plan: Plan, events: mpsc::Sender<Event>) {
        let mut next = 0;
        while next < plan.timers() {
            let end = plan.timers().min(next.saturating_add(BATCH));
            let batch = (next..end).map(|n| (plan.key(n), plan.due_at(n)));
            if !store(&self.timers, batch.collect(), &events).await {
                return;
            }
            next = end;
        }
    }

    pub(super) async fn close(&self) {
        self.store.close().await;
    }
}

/// Returns whether to go on.
async fn store(
    timers: &ScheduleTimers,
    batch: Vec<(TimerKey, Timestamp)>,
    events: &mpsc::Sender<Event>,
) -> bool {
    if events.send(Event::Asked(batch.clone())).await.is_err() {
        return false;
    }
    let requests = batch.iter().cloned();
    let requests = requests.map(|(key, due_at)| TimerRequest::at(key, due_at));
    let saved = timers.schedule(requests.collect()).await;
    let saved = saved.and_then(|outcomes| outcomes.into_iter().collect::<Result<Vec<_>, _>>());
    let outcome = saved.and_then(|outcomes| {
        let created = |outcome: &SaveOutcome| *outcome == SaveOutcome::Created;
        if outcomes.len() == batch.len() && outcomes.iter().all(created) {
            return Ok(());
        }
        Err(PortError::new(
            PortErrorKind::Broken,
            "schedule timers",
            "a new database had some of them already",
        ))
    });
    match outcome {
        Ok(()) => {
            let keys = batch.into_iter().map(|(key, _)| key).collect();
            events.send(Event::Acknowledged(keys)).await.is_ok()
        }
        Err(error) => {
            // If nobody listens any more, nobody minds.
            let _ = events.send(Event::NotStored(error)).await;
            false
        }
    }
}
