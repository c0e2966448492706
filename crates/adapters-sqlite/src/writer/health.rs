//! Health of writes, readable without waiting for the writer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_ports::{PortError, PortErrorKind, WriteHealth};

/// Health of writes, shared with the writer's thread.
#[derive(Clone, Default)]
pub(crate) struct SharedHealth(Arc<Mutex<WriteHealth>>);

impl SharedHealth {
    pub(crate) fn get(&self) -> WriteHealth {
        self.lock().clone()
    }

    pub(super) fn failed(&self, error: &PortError) {
        self.lock().problem = Some(error.clone());
    }

    /// Records a commit. Only one that needed room proves that there is room again.
    pub(super) fn committed(&self, needed_room: bool) {
        let mut health = self.lock();
        health.commits += 1;
        let is_full = |error: &PortError| error.kind() == PortErrorKind::StorageFull;
        if needed_room || !health.problem.as_ref().is_some_and(is_full) {
            health.problem = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, WriteHealth> {
        // A panic cannot leave a count and a reason in an invalid state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
