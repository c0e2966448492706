//! Another instance of a store under test, which speaks the same words as the first.

use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::TimerKey;
use punctual_ports::{CallStores, ClaimBatch, TimerStores};

use crate::store::at;
use crate::{CallStoreFixture, TimerStoreFixture};

/// The other instance, or the end of the case where there is none.
macro_rules! other_or_return {
    ($how:ident of $store:expr) => {
        match Other::$how(&$store).await {
            Some(other) => other,
            None => return,
        }
    };
}
pub(crate) use other_or_return;

/// How late an instance may be told of the end of another's lease: a store need not ask with every poll.
pub(crate) const LEASE_END_KNOWN_WITHIN: Duration = Duration::from_secs(1);

/// Nothing was claimed, and the next poll is late enough not to be a busy loop, and soon enough to take over
/// when a lease ends.
pub(crate) fn assert_announced(batch: &ClaimBatch, now: i64, lease_end: i64) {
    assert_eq!(batch.claims, []);
    let latest = at(lease_end).saturating_add(LEASE_END_KNOWN_WITHIN);
    let next = batch
        .next_due_at
        .expect("the end of the lease is announced");
    assert!(at(now) < next && next <= latest, "{next}");
}

/// Another opened handle of the store that a fixture has.
pub(crate) struct Other<'a, F> {
    first: &'a F,
    stores: TimerStores,
}

impl<'a, F: TimerStoreFixture> Other<'a, F> {
    /// Another instance that fires, where the store may have one.
    pub(crate) async fn second(first: &'a F) -> Option<Self> {
        let stores = first.second_instance().await?;
        Some(Self { first, stores })
    }

    /// Another instance that may not fire.
    pub(crate) async fn client(first: &'a F) -> Option<Self> {
        let stores = first.client().await?;
        Some(Self { first, stores })
    }
}

#[async_trait]
impl<F: TimerStoreFixture> TimerStoreFixture for Other<'_, F> {
    fn timer_stores(&self) -> TimerStores {
        self.stores.clone()
    }

    async fn prepare(&self, key: &TimerKey) {
        self.first.prepare(key).await;
    }

    async fn crash_and_reopen(&mut self) {
        panic!("a case lets only the first instance crash");
    }

    fn claims_survive_a_crash(&self) -> bool {
        self.first.claims_survive_a_crash()
    }
}

/// Another instance of a store of calls, or the end of the case where there is none.
macro_rules! second_or_return {
    ($store:expr) => {
        match OtherCalls::of(&$store).await {
            Some(other) => other,
            None => return,
        }
    };
}
pub(crate) use second_or_return;

/// Another opened handle of the store of calls that a fixture has.
pub(crate) struct OtherCalls {
    calls: CallStores,
    timers: TimerStores,
    has_calls: bool,
}

impl OtherCalls {
    pub(crate) async fn of(first: &dyn CallStoreFixture) -> Option<Self> {
        let (calls, timers) = first.second_instance().await?;
        let has_calls = first.has_calls();
        Some(Self {
            calls,
            timers,
            has_calls,
        })
    }
}

#[async_trait]
impl CallStoreFixture for OtherCalls {
    fn call_stores(&self) -> CallStores {
        self.calls.clone()
    }

    fn timer_stores(&self) -> TimerStores {
        self.timers.clone()
    }

    fn has_calls(&self) -> bool {
        self.has_calls
    }

    async fn crash_and_reopen(&mut self) {
        panic!("a case lets only the first instance crash");
    }
}
