//! The scheduler of the timers: a client of the database, beside the worker that fires from it.

use std::path::Path;

use punctual_adapters_sqlite::{SqliteSettings, SqliteTimerStore};
use punctual_adapters_system::{Handlers, InProcessBus, SystemClock, UuidIds};
use punctual_ports::{ClockPort, SaveOutcome};
use punctual_workflows::{ScheduleTimers, TimerPorts, TimerRequest};
use tokio::sync::mpsc;

use crate::Failure;
use crate::engine::Event;
use crate::plan::Plan;

/// Maximum number of timers that are stored in one transaction.
const BATCH: u32 = 1_000;

/// Schedules the timers of a plan. Clones share one store.
#[derive(Clone)]
pub(crate) struct Scheduler {
    pub(crate) store: SqliteTimerStore,
    timers: ScheduleTimers,
}

impl Scheduler {
    /// Makes the database.
    pub(crate) async fn open(database: &Path, clock: &SystemClock) -> Result<Self, Failure> {
        let (settings, now) = (SqliteSettings::client(database), clock.now());
        let opened = tokio::task::spawn_blocking(move || SqliteTimerStore::open(&settings, now));
        let opened = opened.await;
        let opened =
            opened.map_err(|error| Failure::Failed(format!("opening broke off: {error}")))?;
        let store = opened.map_err(|error| Failure::Refused(error.to_string()))?;
        // Nothing is published here: the worker does that.
        let bus = InProcessBus::new(Handlers::Inline);
        let ports = TimerPorts::new(clock.clone(), UuidIds, store.clone(), bus);
        let timers = ScheduleTimers::new(&ports);
        Ok(Self { store, timers })
    }

    /// Schedules all timers in the order in which they are due, and reports each batch. Ends early
    /// if the receiver is closed.
    pub(crate) async fn run(self, plan: Plan, events: mpsc::Sender<Event>) {
        for start in (0..plan.count).step_by(BATCH as usize) {
            let batch = start..plan.count.min(start + BATCH);
            let timer = |n| TimerRequest::at(plan.key(n), plan.due_at(n));
            let saved = self
                .timers
                .schedule(batch.clone().map(timer).collect())
                .await;
            let saved =
                saved.and_then(|outcomes| outcomes.into_iter().collect::<Result<Vec<_>, _>>());
            let event = match saved {
                Err(error) => Event::Failed(Failure::Failed(error.to_string())),
                Ok(outcomes) if outcomes != vec![SaveOutcome::Created; batch.len()] => {
                    let what = "schedule timers: a new database had some of them already";
                    Event::Failed(Failure::Failed(what.to_owned()))
                }
                Ok(_) => Event::Acknowledged(batch),
            };
            if events.send(event).await.is_err() {
                return;
            }
        }
    }
}
