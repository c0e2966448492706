//! What can happen to a store, and how often.

use proptest::prelude::*;

/// Something that happens. Timers and claims are named by small numbers, so that histories meet
/// the same ones again and again, and stay meaningful when they are shortened.
#[derive(Debug, Clone)]
pub(super) enum Event {
    /// A direct call; the due time is relative to now.
    Schedule { timer: u8, due_in: i64 },
    /// A replacement.
    Replace { timer: u8, due_in: i64 },
    /// Somebody wants the timer to exist.
    Ensure { timer: u8, due_in: i64 },
    /// A command, sent some time ago.
    Command { timer: u8, age: i64, due_in: i64 },
    /// The last command for a timer again.
    Redeliver { timer: u8 },
    /// Somebody deletes a timer.
    Delete { timer: u8 },
    /// A worker claims.
    Claim { limit: usize },
    /// What was claimed is published and marked.
    Fire { claim: u8 },
    /// A firing failed.
    Retry { claim: u8, later: i64 },
    /// A claim is given back.
    Release { claim: u8 },
    /// A claim is kept for longer.
    Renew { claim: u8 },
    /// A firing can never succeed.
    DeadLetter { claim: u8 },
    /// Old rows are removed.
    Purge { age: i64, limit: usize },
    /// The process ends and begins again.
    Crash,
    /// Time passes.
    Pass { millis: i64 },
    /// The wall clock is set.
    Jump { millis: i64 },
    /// The connections of the first instance are cut.
    Disconnect,
}

const TIMERS: u8 = 6;

fn event() -> impl Strategy<Value = Event> {
    let timer = 0..TIMERS;
    let claim = 0..8_u8;
    // Often the same few instants, so that ties and equal milliseconds happen.
    let soon = prop_oneof![Just(0), Just(1), -50..50_i64, 0..60_000_i64];
    prop_oneof![
        6 => (timer.clone(), soon.clone())
            .prop_map(|(timer, due_in)| Event::Schedule { timer, due_in }),
        2 => (timer.clone(), soon.clone())
            .prop_map(|(timer, due_in)| Event::Replace { timer, due_in }),
        2 => (timer.clone(), soon.clone())
            .prop_map(|(timer, due_in)| Event::Ensure { timer, due_in }),
        5 => (timer.clone(), prop_oneof![Just(0), -20..40_i64], soon)
            .prop_map(|(timer, age, due_in)| Event::Command { timer, age, due_in }),
        2 => timer.clone().prop_map(|timer| Event::Redeliver { timer }),
        3 => timer.prop_map(|timer| Event::Delete { timer }),
        6 => (1..8_usize).prop_map(|limit| Event::Claim { limit }),
        4 => claim.clone().prop_map(|claim| Event::Fire { claim }),
        2 => (claim.clone(), 0..40_000_i64)
            .prop_map(|(claim, later)| Event::Retry { claim, later }),
        2 => claim.clone().prop_map(|claim| Event::Release { claim }),
        2 => claim.clone().prop_map(|claim| Event::Renew { claim }),
        1 => claim.prop_map(|claim| Event::DeadLetter { claim }),
        1 => (0..60_000_i64, 1..4_usize).prop_map(|(age, limit)| Event::Purge { age, limit }),
        1 => Just(Event::Crash),
        1 => Just(Event::Disconnect),
        6 => prop_oneof![Just(1), 0..50_i64, 0..40_000_i64]
            .prop_map(|millis| Event::Pass { millis }),
        1 => (-30_000..30_000_i64).prop_map(|millis| Event::Jump { millis }),
    ]
}

/// An event, and the instance that it happens on.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) event: Event,
    /// Whether it is the second of two.
    pub(super) on_second: bool,
}

/// Histories of one instance, or of two in turns.
pub(super) fn histories(has_two: bool) -> impl Strategy<Value = Vec<Step>> {
    let step = (event(), any::<bool>()).prop_map(move |(event, on_second)| Step {
        event,
        on_second: on_second && has_two,
    });
    prop::collection::vec(step, 1..160)
}
