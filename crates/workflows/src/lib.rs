//! The verbs of Punctual: scheduling, firing, firing again and retention, over ports only.
//!
//! - [`ScheduleTimers`] stores timers, for callers and for commands from a bus;
//! - [`TimerWorker`] fires what is due: the heart of Punctual;
//! - [`RepublishLost`] publishes again what a broker has lost;
//! - [`Retention`] purges old rows;
//! - `calls` (with the feature of that name) is the life of a service call;
//! - [`WakeSignal`] connects the first two: a save with an earlier due time wakes the worker.
//!
//! Nothing here knows a database, a broker or a real clock. In a process, workers `run` as tasks;
//! in a test, a fake clock drives them through [`Driven`], and years pass in milliseconds.
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//! use punctual_adapters_memory::{FakeClock, MemoryTimerStore, SequentialIds};
//! use punctual_adapters_system::{Handlers, InProcessBus};
//! use punctual_domain::{TenantId, TimerKey, Topic};
//! use punctual_ports::{Answer, ClockPort, ConsumerName, EventBusPort, Subscribe};
//! use punctual_workflows::*;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = FakeClock::new("2026-12-24T18:00:00Z".parse()?);
//! let bus = InProcessBus::new(Handlers::Inline);
//! let ports = TimerPorts::new(clock.clone(), SequentialIds::new(), MemoryTimerStore::new(), bus.clone());
//! let (fired, mut seen) = tokio::sync::mpsc::unbounded_channel();
//! let handler = handler_fn(move |envelope| {
//!     fired.send(envelope).ok();
//!     async { Answer::Done }
//! });
//! let topic = Topic::TimerEvents;
//! let request = Subscribe { topic, consumer: ConsumerName::new("app"), max_batch: 1, handler };
//! let _subscription = bus.subscribe(request).await?;
//! let timers = ScheduleTimers::new(&ports);
//! let worker = TimerWorker::new(&ports, WorkerSettings::default())?;
//! let _driving = clock.drive(Driven::new(worker));
//!
//! let key = TimerKey::named(TenantId::default(), "order-123");
//! let due_at = clock.now().saturating_add(Duration::from_secs(3 * 3600));
//! timers.schedule(vec![TimerRequest::at(key, due_at)]).await?;
//! clock.advance(Duration::from_secs(2 * 3600)).await;
//! assert!(seen.try_recv().is_err(), "never early");
//! clock.advance(Duration::from_secs(3600)).await;
//! assert_eq!(seen.try_recv()?.timestamp, due_at);
//! # Ok(())
//! # }
//! ```

mod alarm;
mod answers;
mod background;
#[cfg(feature = "calls")]
pub mod calls;
mod detach_on_drop;
mod driven;
mod fire_due_timers;
mod handler_fn;
mod in_flight_epoch;
mod last_poll;
mod log_limiter;
pub mod metric_names;
mod notifier;
mod ports;
mod republish_lost;
mod retention;
mod retries;
mod schedule_timers;
mod wake_signal;

pub use background::{BackgroundTask, BackgroundWorker};
pub use driven::{Driven, NextWake, SteppedWorker};
pub use fire_due_timers::{Drained, SettingsError, TimerWorker, WorkerSettings, WorkerStopped};
pub use handler_fn::handler_fn;
pub use in_flight_epoch::InFlightEpoch;
pub use last_poll::LastPoll;
pub use log_limiter::LogLimiter;
pub use notifier::Notifier;
pub use ports::TimerPorts;
pub use republish_lost::RepublishLost;
pub use retention::{Retention, RetentionSettings};
pub use schedule_timers::{ScheduleTimers, TimerRequest};
pub use wake_signal::WakeSignal;
