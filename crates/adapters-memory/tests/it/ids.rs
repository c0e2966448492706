//! Sequential ids are ids.

use std::sync::Arc;

use punctual_adapters_memory::SequentialIds;
use punctual_conformance::IdFixture;
use punctual_ports::IdPort;

struct Sequential;

impl IdFixture for Sequential {
    fn ids(&self) -> Arc<dyn IdPort> {
        Arc::new(SequentialIds::new())
    }
}

punctual_conformance::id_suite!(Sequential);
