//! Signals: the first stops us in good order, the second at once. SIGHUP stops nothing.
//!
//! Wrappers such as `timeout` send one signal twice, to the process and to its group. So that this
//! is not taken for impatience, what comes right after the first counts as the first.

use std::io;
use std::time::Duration;

use punctual_adapters_system::SystemClock;
use punctual_ports::ClockPort;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::stop::{Reason, Stop};

/// Period after the first signal in which others are ignored.
const ONE_SIGNAL: Duration = Duration::from_millis(200);

/// SIGTERM and SIGINT, caught.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Catches signals from now on: SIGHUP, which would end us, apart from those that stop us. One
    /// that comes before it is awaited is kept.
    pub(super) fn listen() -> io::Result<(Self, Signal)> {
        let hangup = signal(SignalKind::hangup())?;
        let signals = Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        };
        Ok((signals, hangup))
    }

    pub(super) async fn obey(mut self, stop: Stop, clock: SystemClock) {
        let first = self.next().await;
        tracing::info!(
            signal = first.as_raw_value(),
            "stopping: what is in flight is finished first"
        );
        stop.request(Reason::Requested);
        let moment = clock.sleep_for(ONE_SIGNAL);
        tokio::pin!(moment);
        loop {
            tokio::select! {
                biased;
                () = &mut moment => break,
                _ = self.next() => {}
            }
        }
        tracing::info!("still finishing what is in flight; a second signal ends it at once");
        let second = self.next().await;
        // The exit code by which a shell reports the signal. Nothing is lost: what was not
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
