//! Health of the writes, kept by those who write.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;

use punctual_ports::{PortError, PortErrorKind, WriteHealth};

/// The health of a store's writes. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Health(Arc<Mutex<WriteHealth>>);

impl Health {
    /// A commit has succeeded, which answers every doubt.
    pub(crate) fn committed(&self) {
        let mut health = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        health.commits += 1;
        health.problem = None;
    }

    /// A write has failed. What concerns only its content says nothing about others.
    pub(crate) fn failed(&self, error: &PortError) {
        let kind = error.kind();
        if matches!(
            kind,
            PortErrorKind::Rejected | PortErrorKind::Busy | PortErrorKind::Stopped
        ) {
            return;
        }
        let mut health = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        health.problem = Some(error.during(error.operation()));
    }

    pub(crate) fn get(&self) -> WriteHealth {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
