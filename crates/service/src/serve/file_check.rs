//! Notices that the database file was removed or replaced under us.
//!
//! We would go on with the old file, and every timer that is scheduled into the new one would wait
//! for a restart that nobody knows of. We do not stop either: the timers of the old file exist
//! nowhere else any more. But nothing new may be promised: it would be gone with the old file.

use std::convert::Infallible;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use punctual_ports::ClockPort;
use tokio::sync::watch;

const LOOK_EVERY: Duration = Duration::from_secs(1);
const SAY_EVERY: Duration = Duration::from_mins(1);

/// Whether the file is gone. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Gone(watch::Sender<bool>);

impl Gone {
    pub(super) fn not_yet() -> Self {
        Self(watch::Sender::new(false))
    }

    /// Waits until it is.
    pub(super) async fn noticed(&self) {
        // The sender lives as long as `self`, so waiting does not fail.
        let _ = self.0.subscribe().wait_for(|is_gone| *is_gone).await;
    }
}

/// Looks for as long as it is polled, and says what it found.
pub(super) async fn watch(path: &Path, clock: &dyn ClockPort, is_gone: &Gone) -> Infallible {
    let ours = identity(path);
    loop {
        let wait = if identity(path) == ours {
            LOOK_EVERY
        } else {
            is_gone.0.send_replace(true);
            tracing::error!(
                database = %path.display(),
                "the database file was removed or replaced: timers of the old file go on firing, those of the new one wait for a restart, and the API takes nothing more"
            );
            SAY_EVERY
        };
        clock.sleep_for(wait).await;
    }
}

/// What tells a file from another of the same name.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}
