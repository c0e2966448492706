//! Long random histories on a store, compared step by step with a small model of it.
//!
//! The model is a map of rows and the pure rules of the domain: too simple to be wrong in the same
//! way as a store. What it cannot know (which token a claim gets, which timers a full claim is
//! shared between) it takes from the store and checks against the contract.

mod history;
mod instances;
mod model;
mod runner;

use std::future::Future;

use proptest::test_runner::{Config, TestCaseError, TestRunner};

use crate::TimerStoreFixture;
use instances::Instances;

/// Runs random histories on stores that `make` makes, and fails with the smallest history that
/// the store answers differently from the model. Passes at once if it makes none.
///
/// The number of histories is `PROPTEST_CASES`, or what the fixture says if that is not set, and `PROPTEST_RNG_SEED` says
/// which; without it they are new ones each time. A failing history is printed completely.
pub fn check<F, M>(make: impl Fn() -> M)
where
    F: TimerStoreFixture,
    M: Future<Output = Option<F>>,
{
    check_on(false, || async { make().await.map(Instances::one) });
}

/// The same on two instances of a store, each step on one of them. The model is the same, except for what
/// only one instance can know exactly. Passes at once if the store can have only one.
pub fn check_two_instances<F, M>(make: impl Fn() -> M)
where
    F: TimerStoreFixture,
    M: Future<Output = Option<F>>,
{
    check_on(true, || async { Instances::two(make().await?).await });
}

fn check_on<F, M>(has_two: bool, make: impl Fn() -> M)
where
    F: TimerStoreFixture,
    M: Future<Output = Option<Instances<F>>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a test needs a runtime");
    let Some(first) = runtime.block_on(make()) else {
        return;
    };
    let cases = std::env::var("PROPTEST_CASES").ok();
    let cases = cases.and_then(|cases| cases.parse().ok());
    let config = Config {
        cases: cases.unwrap_or_else(|| first.histories()),
        max_shrink_iters: 4_000,
        failure_persistence: None,
        ..Config::default()
    };
    drop(first);
    let outcome = TestRunner::new(config).run(&history::histories(has_two), |history| {
        runtime
            .block_on(async {
                match make().await {
                    Some(store) => runner::run(store, &history).await,
                    None => Ok(()),
                }
            })
            .map_err(TestCaseError::fail)
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}
