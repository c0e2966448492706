//! What happens during a demo, in the order in which it happens.

use punctual_domain::{TimerKey, Timestamp};
use punctual_ports::PortError;

use super::worker::Said;

/// Something that happened. All of it goes through one queue, so that a timer is known to be asked
/// for before anybody can read that it fired.
#[derive(Debug)]
pub(super) enum Event {
    /// Timers are about to be stored.
    Asked(Vec<(TimerKey, Timestamp)>),
    /// Timers were stored.
    Acknowledged(Vec<TimerKey>),
    /// Timers could not be stored.
    NotStored(PortError),
    /// A worker, the `run`-th, did something.
    Worker { run: usize, said: Said },
}
