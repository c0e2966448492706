//! How often what goes wrong in the life of calls, by chance.

use std::time::Duration;

use punctual_adapters_memory::faults::Fault;
use punctual_ports::PortErrorKind;

use crate::simulation::random::Random;

/// One fault in each this many events; zero is never.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chaos {
    pub(super) failures: u64,
    pub(super) delays: u64,
    pub(super) crashes: u64,
    pub(super) lost: u64,
    pub(super) repeated: u64,
    pub(super) late: u64,
    pub(super) bad_targets: u64,
    /// Whether time passes that nobody sees.
    pub(super) suspensions: bool,
}

pub(super) const NONE: Chaos = Chaos {
    failures: 0,
    delays: 0,
    crashes: 0,
    lost: 0,
    repeated: 0,
    late: 0,
    bad_targets: 0,
    suspensions: true,
};

/// Everything at once.
pub(super) const ALL: Chaos = Chaos {
    failures: 20,
    delays: 60,
    crashes: 60,
    lost: 12,
    repeated: 8,
    late: 12,
    bad_targets: 6,
    suspensions: true,
};

pub(super) fn fault(chaos: Chaos, random: &mut Random) -> Option<Fault> {
    if random.once_in(chaos.crashes) {
        return Some(match random.below(2) {
            0 => Fault::CrashBefore,
            _ => Fault::CrashAfter,
        });
    }
    if random.once_in(chaos.failures) {
        let kind = match random.below(3) {
            0 => PortErrorKind::Busy,
            1 => PortErrorKind::StorageFull,
            _ => PortErrorKind::Unavailable,
        };
        return Some(match random.below(2) {
            0 => Fault::FailBefore(kind),
            _ => Fault::FailAfter(kind),
        });
    }
    if random.once_in(chaos.delays) {
        let by = Duration::from_millis(random.below(20_000));
        return Some(match random.below(2) {
            0 => Fault::DelayBefore(by),
            _ => Fault::DelayAfter(by),
        });
    }
    None
}
