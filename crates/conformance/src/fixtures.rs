//! What an adapter has to offer to be tested, and what it declares about itself.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::{TimerKey, Timestamp};
use punctual_ports::{CallStores, ClockPort, EventBusPort, IdPort, TimerStores};

/// A store of timers, empty at first. Dropping the fixture cleans up.
#[async_trait]
pub trait TimerStoreFixture: Send + Sync {
    /// The ports of the store.
    fn timer_stores(&self) -> TimerStores;

    /// Makes what a timer of this key belongs to, where the store insists on that.
    async fn prepare(&self, _key: &TimerKey) {}

    /// Ends the process that has the store open as a crash would, and opens the store again.
    async fn crash_and_reopen(&mut self);

    /// Cuts the connections of the first instance to its database, if it has some, between two operations:
    /// nothing is under way. Returns when the instance has noticed.
    async fn disconnect(&self) {}

    /// Number of random histories that are played on the store: fewer where each step takes long.
    fn histories(&self) -> u32 {
        64
    }

    /// Whether a claim outlives the process that made it, and ends only with its lease.
    fn claims_survive_a_crash(&self) -> bool;

    /// Opens the store once more, as another instance that fires, too. `None` if only one may. A store that
    /// may pass over for a while what another instance made due in the past does not do so here.
    async fn second_instance(&self) -> Option<TimerStores> {
        None
    }

    /// Opens the store once more, to schedule, read, delete and purge, and perhaps not to fire. `None`
    /// if it can be open only once.
    async fn client(&self) -> Option<TimerStores> {
        self.second_instance().await
    }

    /// Whether the store has a clock of its own, which a case can set.
    fn has_store_clock(&self) -> bool {
        false
    }

    /// Stops the clock of the store, which all instances share, at an instant. With `None`, as at first,
    /// the store has no clock of its own, and the `now` of each call is its time. Cases call it after they
    /// have opened the second instance, too.
    fn set_store_clock(&self, _now: Option<Timestamp>) {}

    /// Loses the claims of all instances, as a crash of the store itself does while the instances run on.
    /// The longest lease is then that of the claims of the case. False if nothing can lose them, and then
    /// nothing has happened.
    async fn crash_store(&self) -> bool {
        false
    }
}

/// A store of service calls with their timers, empty at first. Dropping the fixture cleans up.
#[async_trait]
pub trait CallStoreFixture: Send + Sync {
    /// The calls, their messages and their attempts.
    fn call_stores(&self) -> CallStores;

    /// Their timers, in the same database.
    fn timer_stores(&self) -> TimerStores;

    /// Whether calls are in the same database as their attempts. If not, only the suites of attempts and of
    /// the outbox are for this store.
    fn has_calls(&self) -> bool {
        true
    }

    /// Ends the process that has the store open as a crash would, and opens the store again.
    async fn crash_and_reopen(&mut self);

    /// Whether a claim outlives the process that made it, and ends only with its lease.
    fn claims_survive_a_crash(&self) -> bool {
        false
    }

    /// Opens the store once more, as another instance that publishes and executes, too. `None` if only one
    /// may.
    async fn second_instance(&self) -> Option<(CallStores, TimerStores)> {
        None
    }

    /// Whether the store has a clock of its own, which a case can set.
    fn has_store_clock(&self) -> bool {
        false
    }

    /// Stops the clock of the store, as [`TimerStoreFixture::set_store_clock`] does.
    fn set_store_clock(&self, _now: Option<Timestamp>) {}
}

/// A clock, and a hand on it.
#[async_trait]
pub trait ClockFixture: Send + Sync {
    /// The clock.
    fn clock(&self) -> Arc<dyn ClockPort>;

    /// The time since 1970 that the clock should read, with all its digits.
    fn exact(&self) -> Duration;

    /// Lets time pass, a little at least.
    async fn pass(&self, by: Duration);

    /// Sets the wall clock.
    fn set_wall(&self, wall: Timestamp);

    /// How long it takes at most until a sleeper notices that the wall clock was set.
    fn notices_within(&self) -> Duration;
}

/// A source of ids.
pub trait IdFixture: Send + Sync {
    /// The source.
    fn ids(&self) -> Arc<dyn IdPort>;
}

/// A bus without subscriptions.
#[async_trait]
pub trait EventBusFixture: Send + Sync {
    /// The bus.
    fn bus(&self) -> Arc<dyn EventBusPort>;

    /// Whether it delivers to subscribers. If not, it publishes only: it refuses every subscription, and
    /// what it accepted is for readers that it does not know.
    fn delivers(&self) -> bool {
        true
    }

    /// Whether a message without a subscriber is kept until there is one. If not, it is
    /// refused with `NoSubscriber`. A bus that publishes only keeps every message.
    fn keeps_messages_for_later(&self) -> bool;

    /// Waits until something has become true; fails the test if it takes too long.
    async fn until(&self, what: &str, condition: &(dyn Fn() -> bool + Sync));
}
