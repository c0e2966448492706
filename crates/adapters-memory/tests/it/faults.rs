//! Faults happen at the call they were planned for, with the effect they promise.

use std::sync::Arc;
use std::time::Duration;

use punctual_adapters_memory::faults::{Fault, Faults, Faulty};
use punctual_adapters_memory::{FakeClock, MemoryTimerStore};
use punctual_domain::{CorrelationId, ScheduleOrigin, TenantId, TimerKey, Timestamp};
use punctual_ports::{ClockPort, PortErrorKind, SaveTimer, TimerPersistencePort};
use uuid::Uuid;

struct World {
    clock: FakeClock,
    faults: Faults,
    store: MemoryTimerStore,
    wrapped: Arc<Faulty<MemoryTimerStore>>,
}

fn world() -> World {
    let clock = FakeClock::new(Timestamp::MIN);
    let faults = Faults::new(Arc::new(clock.clone()));
    let store = MemoryTimerStore::new();
    let wrapped = Arc::new(Faulty::new(Arc::new(store.clone()), &faults));
    World {
        clock,
        faults,
        store,
        wrapped,
    }
}

fn key() -> TimerKey {
    TimerKey::named(TenantId::default(), "t")
}

fn timer() -> Vec<SaveTimer> {
    vec![SaveTimer {
        key: key(),
        correlation_id: CorrelationId::from_uuid(Uuid::nil()),
        due_at: Timestamp::MIN,
        data: None,
        origin: ScheduleOrigin::Direct,
    }]
}

impl World {
    async fn is_stored(&self) -> bool {
        self.store.find(key()).await.unwrap().is_some()
    }
}

#[tokio::test]
async fn a_call_that_fails_before_has_no_effect() {
    let world = world();
    world
        .faults
        .at_call(1, Fault::FailBefore(PortErrorKind::Busy));
    let error = world
        .wrapped
        .save(timer(), Timestamp::MIN)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), PortErrorKind::Busy);
    assert!(!world.is_stored().await);
}

#[tokio::test]
async fn a_call_that_fails_after_has_its_effect() {
    let world = world();
    world
        .faults
        .at_call_of("save", 1, Fault::FailAfter(PortErrorKind::Unavailable));
    assert!(world.wrapped.save(timer(), Timestamp::MIN).await.is_err());
    assert!(world.is_stored().await);
    assert_eq!(world.faults.fired().len(), 1);
}

#[tokio::test]
async fn a_delayed_call_is_made_when_its_time_has_come() {
    let world = world();
    world
        .faults
        .at_call(1, Fault::DelayBefore(Duration::from_secs(5)));
    let wrapped = Arc::clone(&world.wrapped);
    let saving = tokio::spawn(async move { wrapped.save(timer(), Timestamp::MIN).await });
    tokio::task::yield_now().await;
    world.clock.advance(Duration::from_secs(4)).await;
    assert!(!world.is_stored().await);
    world.clock.advance(Duration::from_secs(1)).await;
    assert!(saving.await.unwrap().is_ok());
    assert_eq!(world.clock.now().as_millis(), 5_000);
}

#[tokio::test]
async fn a_delayed_answer_belongs_to_a_call_that_was_made_at_once() {
    let world = world();
    let fault = Fault::DelayAfter(Duration::from_secs(5));
    world.faults.at_call(1, fault);
    let wrapped = Arc::clone(&world.wrapped);
    let saving = tokio::spawn(async move { wrapped.save(timer(), Timestamp::MIN).await });
    world.clock.advance(Duration::from_secs(4)).await;
    assert!(world.is_stored().await);
    assert!(!saving.is_finished());
    world.clock.advance(Duration::from_secs(1)).await;
    assert!(saving.await.unwrap().is_ok());
}

#[tokio::test]
async fn a_crash_is_the_last_thing_that_happens() {
    for (fault, stored) in [(Fault::CrashBefore, false), (Fault::CrashAfter, true)] {
        let world = world();
        world.faults.at_call(1, fault);
        tokio::select! {
            _ = world.wrapped.save(timer(), Timestamp::MIN) => panic!("nobody hears of it"),
            () = world.faults.crashed() => {}
        }
        assert!(world.faults.has_crashed());
        assert_eq!(world.is_stored().await, stored);
        tokio::select! {
            biased;
            _ = world.wrapped.find(key()) => panic!("a dead process answers nobody"),
            () = world.faults.crashed() => {}
        }
    }
}
