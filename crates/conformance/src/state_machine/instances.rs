//! The instances of a store that a history is played on: one, or two in turns.

use async_trait::async_trait;
use punctual_domain::TimerKey;
use punctual_ports::TimerStores;

use crate::TimerStoreFixture;

/// A store of which each step uses one instance.
pub(super) struct Instances<F> {
    first: F,
    second: Option<TimerStores>,
    /// Whether the second one is used now.
    is_second: bool,
    /// Number of crashes: what is opened after one is another instance.
    crashes: u32,
}

impl<F: TimerStoreFixture> Instances<F> {
    pub(super) fn one(first: F) -> Self {
        Self {
            first,
            second: None,
            is_second: false,
            crashes: 0,
        }
    }

    /// Two instances; `None` if the store can have only one.
    pub(super) async fn two(first: F) -> Option<Self> {
        let second = Some(first.second_instance().await?);
        Some(Self {
            second,
            ..Self::one(first)
        })
    }

    /// Chooses the instance that the next step uses.
    pub(super) fn choose(&mut self, is_second: bool) {
        self.is_second = is_second && self.second.is_some();
    }

    /// The number of the instance in use; that of an instance opened after a crash is a new one.
    pub(super) fn number(&self) -> u32 {
        self.crashes * 2 + u32::from(self.is_second)
    }

    /// Whether the instance in use may hear of the leases of others.
    pub(super) fn has_others(&self) -> bool {
        self.second.is_some() || (self.crashes > 0 && self.first.claims_survive_a_crash())
    }
}

#[async_trait]
impl<F: TimerStoreFixture> TimerStoreFixture for Instances<F> {
    fn timer_stores(&self) -> TimerStores {
        match &self.second {
            Some(second) if self.is_second => second.clone(),
            _ => self.first.timer_stores(),
        }
    }

    async fn prepare(&self, key: &TimerKey) {
        self.first.prepare(key).await;
    }

    async fn crash_and_reopen(&mut self) {
        let has_second = self.second.take().is_some();
        self.first.crash_and_reopen().await;
        self.crashes += 1;
        if has_second {
            self.second = self.first.second_instance().await;
        }
    }

    async fn disconnect(&self) {
        self.first.disconnect().await;
    }

    fn histories(&self) -> u32 {
        self.first.histories()
    }

    fn claims_survive_a_crash(&self) -> bool {
        self.first.claims_survive_a_crash()
    }
}
