//! A stall of standard output: a write of firings that blocks because the reader does not read.
//!
//! Nothing is lost, and calls go on. It is logged once, and readiness reports it until it ends.

use std::convert::Infallible;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use punctual_adapters_system::SystemClock;
use punctual_ports::ClockPort;

/// A write that waits longer than this is a stall.
const LIMIT: Duration = Duration::from_secs(2);
const EVERY: Duration = Duration::from_millis(500);

/// The write in flight, if there is one. Clones share it.
#[derive(Clone)]
pub(super) struct OutputStall {
    clock: SystemClock,
    /// When it started, by the monotonic clock.
    since: Arc<Mutex<Option<Duration>>>,
}

impl OutputStall {
    pub(super) fn new(clock: SystemClock) -> Self {
        Self {
            clock,
            since: Arc::default(),
        }
    }

    /// The stall in a sentence, if there is one.
    pub(super) fn problem(&self) -> Option<String> {
        let since = *self.since.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.clock.monotonic().saturating_sub(since?);
        (waited >= LIMIT).then(|| {
            let seconds = waited.as_secs();
            format!("standard output is not being read: a line has waited for {seconds} s, and firings wait with it")
        })
    }

    /// Logs the beginning and the end of each stall, for as long as it is polled.
    pub(super) async fn watch(&self) -> Infallible {
        let mut is_stalled = false;
        loop {
            self.clock.sleep_for(EVERY).await;
            let problem = self.problem();
            match (&problem, is_stalled) {
                (Some(_), false) => {
                    tracing::warn!("standard output is not being read: firings wait until it is");
                }
                (None, true) => tracing::info!("standard output is read again"),
                _ => {}
            }
            is_stalled = problem.is_some();
        }
    }

    fn set(&self, since: Option<Duration>) {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    /// The same output, with its write in flight recorded here.
    pub(super) fn watched<W: Write>(&self, out: W) -> WatchedOutput<'_, W> {
        WatchedOutput { stall: self, out }
    }
}

pub(super) struct WatchedOutput<'a, W> {
    stall: &'a OutputStall,
    out: W,
}

impl<W: Write> Write for WatchedOutput<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stall.set(Some(self.stall.clock.monotonic()));
        let written = self.out.write(bytes);
        self.stall.set(None);
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
