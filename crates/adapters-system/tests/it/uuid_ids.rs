//! UUIDs of version 7 are ids.

use std::sync::Arc;

use punctual_adapters_system::UuidIds;
use punctual_conformance::IdFixture;
use punctual_ports::IdPort;

struct Uuids;

impl IdFixture for Uuids {
    fn ids(&self) -> Arc<dyn IdPort> {
        Arc::new(UuidIds)
    }
}

punctual_conformance::id_suite!(Uuids);
