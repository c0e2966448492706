//! Signals: the first stops us in good order, the second at once.
//!
//! Wrappers such as `timeout` send one signal twice, to the process and to its group. So that this
//! is not taken for impatience, stopping in good order has a second to itself in any case.

use std::io;
use std::time::Duration;

use punctual_adapters_system::SystemClock;
use punctual_ports::ClockPort;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::stop::{Reason, Stop};

/// How long after the first signal a second one takes effect.
const AT_LEAST: Duration = Duration::from_secs(1);

/// SIGTERM and SIGINT, caught.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    pub(super) async fn obey(mut self, stop: Stop, clock: SystemClock) {
        let first = self.next().await;
        tracing::info!(
            signal = first.as_raw_value(),
            "stopping: what is in flight is finished; a second signal ends at once"
        );
        stop.request(Reason::Asked);
        let (second, ()) = tokio::join!(self.next(), clock.sleep_for(AT_LEAST));
        // As a shell reports a process that died of the signal. Nothing is lost: what was not
        // marked fires again after the next start.
        std::process::exit(128 + second.as_raw_value());
    }

    async fn next(&mut self) -> SignalKind {
        tokio::select! {
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.interrupt.recv() => SignalKind::interrupt(),
        }
    }
}
