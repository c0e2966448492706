//! Long random histories on a store, compared step by step with a small model of it.
//!
//! The model is a map of rows and the pure rules of the domain: too simple to be wrong in the same
//! way as a store. What it cannot know (which token a claim gets, which timers a full claim is
//! shared between) it takes from the store and checks against the contract.

mod history;
mod model;
mod runner;

use std::future::Future;

use proptest::test_runner::{Config, TestCaseError, TestRunner};

use crate::TimerStoreFixture;

/// Runs random histories on stores that `make` makes, and fails with the smallest history that
/// the store answers differently from the model.
///
/// The number of histories is `PROPTEST_CASES`, 64 if that is not set, and `PROPTEST_RNG_SEED` says
/// which; without it they are new ones each time. A failing history is printed completely.
pub fn check<F, M>(make: impl Fn() -> M)
where
    F: TimerStoreFixture,
    M: Future<Output = F>,
{
    let config = Config {
        cases: std::env::var("PROPTEST_CASES")
            .ok()
            .and_then(|cases| cases.parse().ok())
            .unwrap_or(64),
        max_shrink_iters: 4_000,
        failure_persistence: None,
        ..Config::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a test needs a runtime");
    let outcome = TestRunner::new(config).run(&history::histories(), |history| {
        runtime
            .block_on(async { runner::run(make().await, &history).await })
            .map_err(TestCaseError::fail)
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}
