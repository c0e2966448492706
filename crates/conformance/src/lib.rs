//! The contract of every port as test cases that each adapter runs.
//!
//! A case is one sentence of a `# Contract`. It is written once, registered once, in the file that
//! holds it, and runs on every adapter as a test of its own. An adapter's test is a fixture
//! and one macro:
//!
//! ```text
//! punctual_conformance::timer_store_suites!(MyFixture::new().await);
//! ```
//!
//! The fixture says what differs between adapters; no case asks which one it runs on.

#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::unused_async,
    reason = "cases are tests: to panic is how they fail, and all are async so that all run alike"
)]

#[macro_use]
mod suite;

mod boxed;
mod calls;
pub mod cases;
mod fixtures;
mod instances;
pub mod state_machine;
mod store;

pub use fixtures::{CallStoreFixture, ClockFixture, EventBusFixture, IdFixture, TimerStoreFixture};

use std::future::Future;
use std::pin::Pin;

/// Runs a case to its end on a runtime of its own.
pub fn run(case: Pin<Box<dyn Future<Output = ()> + '_>>) {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a test needs a runtime")
        .block_on(case);
}
