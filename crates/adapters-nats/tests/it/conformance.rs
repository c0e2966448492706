//! NATS is a bus like any other.

use std::sync::Arc;

use async_trait::async_trait;
use punctual_adapters_nats::NatsEventBus;
use punctual_conformance::EventBusFixture;
use punctual_ports::EventBusPort;

use crate::fixture::World;

struct Nats {
    world: World,
    bus: NatsEventBus,
}

impl Nats {
    async fn new() -> Option<Self> {
        let world = World::shared()?;
        let bus = world.bus().await;
        Some(Self { world, bus })
    }
}

#[async_trait]
impl EventBusFixture for Nats {
    fn bus(&self) -> Arc<dyn EventBusPort> {
        Arc::new(self.bus.clone())
    }

    fn keeps_messages_for_later(&self) -> bool {
        true
    }

    async fn until(&self, what: &str, condition: &(dyn Fn() -> bool + Sync)) {
        self.world.until(what, condition).await;
    }
}

punctual_conformance::event_bus_suite!(match Nats::new().await {
    Some(nats) => nats,
    None => return,
});
