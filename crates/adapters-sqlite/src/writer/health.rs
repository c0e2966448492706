//! How writing goes, for whoever asks without waiting for the thread that writes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_ports::{PortError, PortErrorKind, WriteHealth};

/// Health of writes, shared with the thread that writes.
#[derive(Clone, Default)]
pub(crate) struct SharedHealth(Arc<Mutex<WriteHealth>>);

impl SharedHealth {
    pub(crate) fn get(&self) -> WriteHealth {
        self.lock().clone()
    }

    pub(super) fn failed(&self, error: &PortError) {
        self.lock().problem = Some(error.clone());
    }

    /// A group was committed. Whether there is room for more is shown only by one that needed some.
    pub(super) fn committed(&self, needed_room: bool) {
        let mut health = self.lock();
        health.commits += 1;
        let is_full = |error: &PortError| error.kind() == PortErrorKind::StorageFull;
        if needed_room || !health.problem.as_ref().is_some_and(is_full) {
            health.problem = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, WriteHealth> {
        // A number and a reason: whatever a panic leaves of them is true of some moment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
