//! Fixtures behind a pointer: cases take those, so that they are compiled once and not for each adapter.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::{TimerKey, Timestamp};
use punctual_ports::{CallStores, ClockPort, EventBusPort, IdPort, TimerStores};

use crate::{CallStoreFixture, ClockFixture, EventBusFixture, IdFixture, TimerStoreFixture};

#[async_trait]
impl TimerStoreFixture for Box<dyn TimerStoreFixture> {
    fn timer_stores(&self) -> TimerStores {
        (**self).timer_stores()
    }

    async fn prepare(&self, key: &TimerKey) {
        (**self).prepare(key).await;
    }

    async fn crash_and_reopen(&mut self) {
        (**self).crash_and_reopen().await;
    }

    async fn disconnect(&self) {
        (**self).disconnect().await;
    }

    fn histories(&self) -> u32 {
        (**self).histories()
    }

    fn claims_survive_a_crash(&self) -> bool {
        (**self).claims_survive_a_crash()
    }

    async fn second_instance(&self) -> Option<TimerStores> {
        (**self).second_instance().await
    }

    async fn client(&self) -> Option<TimerStores> {
        (**self).client().await
    }

    fn has_store_clock(&self) -> bool {
        (**self).has_store_clock()
    }

    fn set_store_clock(&self, now: Option<Timestamp>) {
        (**self).set_store_clock(now);
    }

    async fn crash_store(&self) -> bool {
        (**self).crash_store().await
    }
}

#[async_trait]
impl CallStoreFixture for Box<dyn CallStoreFixture> {
    fn call_stores(&self) -> CallStores {
        (**self).call_stores()
    }

    fn has_calls(&self) -> bool {
        (**self).has_calls()
    }

    fn timer_stores(&self) -> TimerStores {
        (**self).timer_stores()
    }

    async fn crash_and_reopen(&mut self) {
        (**self).crash_and_reopen().await;
    }

    fn claims_survive_a_crash(&self) -> bool {
        (**self).claims_survive_a_crash()
    }

    async fn second_instance(&self) -> Option<(CallStores, TimerStores)> {
        (**self).second_instance().await
    }

    fn has_store_clock(&self) -> bool {
        (**self).has_store_clock()
    }

    fn set_store_clock(&self, now: Option<Timestamp>) {
        (**self).set_store_clock(now);
    }
}

#[async_trait]
impl ClockFixture for Box<dyn ClockFixture> {
    fn clock(&self) -> Arc<dyn ClockPort> {
        (**self).clock()
    }

    fn exact(&self) -> Duration {
        (**self).exact()
    }

    async fn pass(&self, by: Duration) {
        (**self).pass(by).await;
    }

    fn set_wall(&self, wall: Timestamp) {
        (**self).set_wall(wall);
    }

    fn notices_within(&self) -> Duration {
        (**self).notices_within()
    }
}

impl IdFixture for Box<dyn IdFixture> {
    fn ids(&self) -> Arc<dyn IdPort> {
        (**self).ids()
    }
}

#[async_trait]
impl EventBusFixture for Box<dyn EventBusFixture> {
    fn bus(&self) -> Arc<dyn EventBusPort> {
        (**self).bus()
    }

    fn delivers(&self) -> bool {
        (**self).delivers()
    }

    fn keeps_messages_for_later(&self) -> bool {
        (**self).keeps_messages_for_later()
    }

    async fn until(&self, what: &str, condition: &(dyn Fn() -> bool + Sync)) {
        (**self).until(what, condition).await;
    }
}
