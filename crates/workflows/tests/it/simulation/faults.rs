//! What goes wrong in a scenario, and how often.

use std::time::Duration;

use punctual_adapters_memory::faults::{Call, Fault};
use punctual_ports::PortErrorKind;

use super::random::Random;

/// One fault in each this many port calls or actions; zero is never.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chaos {
    pub(super) failures: u64,
    pub(super) delays: u64,
    pub(super) crashes: u64,
    pub(super) clock_changes: u64,
    /// Handlers that ask for another try, or refuse for ever.
    pub(super) bad_answers: u64,
    /// Handlers that take longer than a lease.
    pub(super) slow_handlers: u64,
}

impl Chaos {
    pub(super) const NONE: Self = Self {
        failures: 0,
        delays: 0,
        crashes: 0,
        clock_changes: 0,
        bad_answers: 0,
        slow_handlers: 0,
    };
    pub(super) const FAILURES: Self = Self {
        failures: 6,
        bad_answers: 6,
        ..Self::NONE
    };
    pub(super) const DELAYS: Self = Self {
        delays: 8,
        slow_handlers: 5,
        ..Self::NONE
    };
    pub(super) const CRASHES: Self = Self {
        crashes: 25,
        ..Self::NONE
    };
    pub(super) const CLOCK: Self = Self {
        clock_changes: 8,
        ..Self::NONE
    };
    pub(super) const ALL: Self = Self {
        failures: 15,
        delays: 20,
        crashes: 40,
        clock_changes: 15,
        bad_answers: 10,
        slow_handlers: 10,
    };

    /// Whether a duplicate could only be a bug.
    pub(super) const fn is_none(self) -> bool {
        self.failures == 0
            && self.delays == 0
            && self.crashes == 0
            && self.clock_changes == 0
            && self.bad_answers == 0
            && self.slow_handlers == 0
    }

    /// Decides what happens to a call.
    pub(super) fn fault(self, random: &mut Random, _call: Call) -> Option<Fault> {
        if random.once_in(self.crashes) {
            return Some(match random.below(2) {
                0 => Fault::CrashBefore,
                _ => Fault::CrashAfter,
            });
        }
        if random.once_in(self.failures) {
            let kind = match random.below(4) {
                0 => PortErrorKind::Busy,
                1 => PortErrorKind::StorageFull,
                2 => PortErrorKind::Overloaded,
                _ => PortErrorKind::Unavailable,
            };
            return Some(match random.below(2) {
                0 => Fault::FailBefore(kind),
                _ => Fault::FailAfter(kind),
            });
        }
        if random.once_in(self.delays) {
            // Up to more than a lease lasts.
            let by = Duration::from_millis(random.below(45_000));
            return Some(match random.below(2) {
                0 => Fault::DelayBefore(by),
                _ => Fault::DelayAfter(by),
            });
        }
        None
    }
}
