//! Durable timers for your service: schedule `(tenant, key, due time)`, and at or just after that
//! instant your handler is called, at least once, whatever crashed, restarted or was cut off in
//! between. Storage is one SQLite file, which needs no server, a PostgreSQL database, or
//! [a store of your own](Builder::store).
//!
//! One rule settles every trade-off: **a duplicate is acceptable, a lost or early timer never is.**
//!
//! # The first timer
//!
//! ```no_run
//! use std::time::Duration;
//! use punctual::{DueTimeReached, Punctual, TenantId, Timer, TimerKey};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), punctual::Error> {
//!     let punctual = Punctual::builder()
//!         .sqlite("timers.db")
//!         .on_due(|due: DueTimeReached| async move { Ok(println!("remind {}", due.read::<String>()?)) })
//!         .build().await?;
//!     let running = punctual.start().await?;
//!     let key = TimerKey::named(TenantId::default(), "order-123");
//!     let timer = Timer::after(key, Duration::from_secs(2)).data("Ada")?;
//!     println!("{:?}", punctual.schedule(timer).await?);
//!     tokio::signal::ctrl_c().await.ok();
//!     running.shutdown().await?; // finishes what is in flight
//!     Ok(())
//! }
//! ```
//!
//! 1. [`Punctual::builder`] takes a store for the timers and a handler for due ones, and says at
//!    [`build`](Builder::build) what is missing.
//! 2. [`start`](Punctual::start) fires on your own tokio runtime, also what became due while no
//!    engine ran.
//! 3. [`schedule`](Punctual::schedule) returns when the timer is stored: `Ok` means that it will fire, even
//!    if the process is killed in the next line. Scheduling the same key again moves the timer, as a
//!    second run of this program does; [`ensure`](Punctual::ensure) would leave it alone, which is right
//!    for what is scheduled at every start. Once it has fired, both are the error
//!    [`AlreadyReached`](ErrorKind::AlreadyReached), and [`replace`](Punctual::replace) lets it fire again.
//! 4. [`shutdown`](Running::shutdown) drains. Without it nothing is lost either.
//!
//! A [key](TimerKey) is a tenant and a UUID; [`TimerKey::named`] makes one from a name of your own.
//! Tenants share the engine fairly: neither one's backlog nor its failing or hanging handlers hold up
//! another. Those who have no tenants use `TenantId::default()`.
//!
//! # What is guaranteed
//!
//! | what happens | what you see |
//! |---|---|
//! | the process is killed after `schedule` returned | the timer fires, after the next start at the latest |
//! | power fails after `schedule` returned | the same with [`Synchronous::Full`], the default, as far as disk and file system keep their word; with [`Normal`](Synchronous::Normal) the last commits may be gone |
//! | the process is killed while a handler runs, or before its success was written down | the handler is called again, with the same [`firing_id`](DueTimeReached::firing_id) |
//! | a handler fails or panics | it is called again: after about a second, then after twice as long each time, up to an hour, and hourly from then on; on a broker, its event is a dead letter after twenty failures |
//! | a handler answers [`poison`](HandlerError::poison) | the event becomes a [dead letter](Punctual::dead_letters) |
//! | a handler schedules its own key and then fails, in whatever way | the new schedule stands, and the failure is neither retried nor a dead letter |
//! | `schedule` races with the firing of the same key | the new schedule fires too |
//! | the disk is full | scheduling fails with [`Full`](ErrorKind::Full); what is stored goes on firing |
//! | the wall clock is set forward or back | timers go by the wall clock: due at once, or later; a jump is noticed within a second |
//! | the file breaks | the engine stops, [`stopped`](Running::stopped) returns why, and every call answers [`Stopped`](ErrorKind::Stopped). It never ends your process |
//!
//! **Never**: an event before its due time; an acknowledged timer forgotten; two different firings
//! with one `firing_id`, or one firing with two.
//!
//! **Not promised**: exactly once (a crash at the wrong moment repeats an event, so make handlers
//! idempotent by `firing_id`), an order between timers, and two engines on one file (the second is
//! refused; [clients](Builder::sqlite_client) are welcome). A network drive is no place for SQLite.
//!
//! # Your own tests
//!
//! With the feature `testing`, a clock that is moved by hand drives the real engine through days in
//! milliseconds, and nothing sleeps:
//!
//! ```
//! use std::time::Duration;
//! use punctual::testing::FakeClock;
//! use punctual::{Punctual, TenantId, Timer, TimerKey};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), punctual::Error> {
//! let clock = FakeClock::new("2026-12-24T18:00:00Z".parse()?);
//! let (sent, mut mails) = tokio::sync::mpsc::unbounded_channel();
//! let punctual = Punctual::builder()
//!     .in_memory(clock.clone())
//!     .on_due(move |due| std::future::ready(sent.send(due.due_at).map_err(Into::into)))
//!     .build()
//!     .await?;
//! let running = punctual.start().await?;
//! let key = TimerKey::named(TenantId::default(), "order-123");
//! punctual.ensure(Timer::after(key, Duration::from_hours(72))).await?;
//!
//! clock.advance(Duration::from_hours(71)).await;
//! assert!(mails.try_recv().is_err(), "never early");
//! clock.advance(Duration::from_hours(1)).await;
//! assert_eq!(mails.try_recv().unwrap().to_string(), "2026-12-27T18:00:00.000Z");
//! running.shutdown().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Your rows and your timers, together
//!
//! [`Punctual::schedule_in`] stores a timer inside your own transaction of `rusqlite` on the same file, or of
//! `tokio_postgres` on the same database, so that an order and its reminder are both there or both not.
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `sqlite` (default) | timers on one SQLite file |
//! | `postgres` | timers in a PostgreSQL database that any number of engines fire together: [`Builder::postgres`] |
//! | `calls` | service calls: HTTP requests that are made once, at their due time: [`Builder::service_calls`] |
//! | `nats` | commands in and events out through NATS JetStream: [`Builder::nats`] |
//! | `testing` | the module `testing`: a fake clock and timers in memory |
//! | `conformance` | the module `conformance`: test cases for a store or a bus of your own |
//! | `time`, `jiff`, `chrono` | due times of these libraries: `Timer::at(key, their_instant)` |
//!
//! # What it reports
//!
//! Events through `tracing`, figures through the `metrics` facade (`timer_lateness_seconds`,
//! `timer_schedules_processed_total`, `timer_permanent_errors_total`, …): install a subscriber and a
//! recorder of your choice. Neither ever shows a timer's data.
//!
//! # Speed
//!
//! `rusqlite` builds SQLite so that all connections of a process share one page cache behind one
//! lock. Scheduling and firing at the same time is faster without it: set in your
//! `.cargo/config.toml`
//!
//! ```toml
//! [env]
//! LIBSQLITE3_FLAGS = "-USQLITE_ENABLE_MEMORY_MANAGEMENT -DSQLITE_DEFAULT_MEMSTATUS=0"
//! ```

/// `Debug` of a handle: its name, and nothing of what is behind it.
macro_rules! opaque_debug {
    ($handle:ident) => {
        impl std::fmt::Debug for $handle {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($handle)).finish_non_exhaustive()
            }
        }
    };
}

mod builder;
mod bus;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod caller_transaction;
#[cfg(feature = "calls")]
mod calls;
#[cfg(not(feature = "calls"))]
#[path = "no_calls.rs"]
mod calls;
mod clock;
#[cfg(feature = "testing")]
mod driven;
mod engine;
mod error;
mod handler;
mod hints;
#[cfg(feature = "nats")]
mod nats;
mod outcomes;
#[cfg(feature = "postgres")]
mod postgres;
mod punctual;
mod readiness;
mod running;
#[cfg(feature = "sqlite")]
mod sqlite;
mod stores;
mod timer;
mod write_check;

pub use builder::Builder;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub use caller_transaction::CallerTransaction;
#[cfg(feature = "calls")]
pub use calls::{CallModules, CallOptions, ServiceCalls};
pub use error::{Error, ErrorKind};
pub use handler::HandlerError;
pub use outcomes::{BatchError, CancelOutcome, EnsureOutcome, ScheduleOutcome};
pub use punctual::Punctual;
#[cfg(feature = "calls")]
pub use punctual_adapters_http as http;
#[cfg(feature = "nats")]
pub use punctual_adapters_nats::{NatsAuth, NatsError, NatsSettings, NatsTls, Prefix};
#[cfg(feature = "postgres")]
pub use punctual_adapters_postgres::{
    CommitNotify, ConnectError, InstanceLabel, PostgresSettings, PostgresUrl, tokio_postgres,
};
#[cfg(feature = "sqlite")]
pub use punctual_adapters_sqlite::{Role, SchemaSet, SqliteSettings, Synchronous, rusqlite};
pub use punctual_domain::{
    CorrelationId, DeadLetterOrigin, DueTimeReached, Failures, FiringId, IdError, ReachedTimer,
    Registration, ScheduledTimer, ServiceCallId, TenantId, TenantIdError, TimerData,
    TimerDataError, TimerEntry, TimerKey, TimerState, Timestamp, TimestampError,
};
pub use punctual_ports::{
    ClaimedWork, DeadLetter, Instance, PageCursor, StoredDeadLetter, TimerPage, TimerPageQuery,
};
pub use punctual_workflows::{RetentionSettings, WorkerSettings};
pub use readiness::NotReady;
pub use running::{Running, ShutDown};
pub use timer::Timer;

/// For authors of stores and buses: every port with its contract, the values that go through them, and the
/// rules that all adapters share, such as [`schedule_order`](ports::schedule_order) and
/// [`timer_entry`](ports::timer_entry).
pub mod ports {
    /// What an `impl` of a port is written under.
    pub use async_trait::async_trait;
    pub use punctual_domain::*;
    pub use punctual_ports::*;
}

/// For authors of stores and buses: the contract of every port as test cases.
///
/// An adapter's test is a fixture and one macro, `punctual::conformance::timer_store_suites!(MyFixture::new())`
/// for a store of timers, `event_bus_suite!` for a bus.
#[cfg(feature = "conformance")]
pub mod conformance {
    pub use punctual_conformance::*;
}

/// Service calls: submissions, outcomes, and the client that makes the requests.
#[cfg(feature = "calls")]
pub mod service_calls {
    pub use punctual_domain::service_call::*;
    pub use punctual_ports::{
        CallPage, CallPageQuery, ConflictField, ExecutionEntry, ExecutionState, HttpAttempt,
        HttpClientPort, HttpFailure, HttpResponse, Receipt, SubmitOutcome,
    };
    pub use punctual_workflows::calls::{
        CallSettings, CallView, DeleteCallOutcome, Trace, TraceStep,
    };
}

/// For your own tests: a clock that is moved by hand, and stores in memory. Nothing here waits or reads a
/// real clock.
#[cfg(feature = "testing")]
pub mod testing {
    pub use punctual_adapters_memory::{FakeClock, MemoryCallStore, MemoryTimerStore};
    /// What any clock can do, for code of yours that takes one.
    pub use punctual_ports::ClockPort;
}

/// The README's examples compile and run, as they stand there.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
