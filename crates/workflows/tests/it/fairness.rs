//! That no tenant waits for another.

use std::time::Duration;

use punctual_adapters_memory::faults::Fault;
use punctual_ports::{Answer, ClockPort};
use punctual_workflows::{TimerRequest, WorkerSettings};

use crate::world::{World, key_of, ms, rare_polls, secs};

#[tokio::test]
async fn fresh_timers_fire_on_time_while_a_backlog_drains() {
    let mut world = World::new().await;
    world.stop();
    let due_at = world.now();
    let backlog = (0..6_000).map(|n| TimerRequest::at(key_of("big", &n.to_string()), due_at));
    world.timers.schedule(backlog.collect()).await.unwrap();
    world.advance(Duration::from_hours(1)).await;
    world.restart(WorkerSettings {
        publishes_in_flight: 8,
        ..WorkerSettings::default()
    });
    // A handler takes ten milliseconds: the backlog alone takes over seven seconds.
    let clock = world.clock.clone();
    world.ledger.answers(move |_, _| {
        let clock = clock.clone();
        Box::pin(async move {
            clock.sleep_for(ms(10)).await;
            Answer::Done
        })
    });
    for n in 0..50 {
        world
            .schedule(&key_of(&format!("small-{n}"), "fresh"), ms(100 * n))
            .await;
    }
    world.advance(secs(6)).await;
    let seen = world.ledger.seen();
    let fresh: Vec<_> = seen
        .iter()
        .filter(|s| s.event.tenant_id.as_str() != "big")
        .collect();
    assert_eq!(fresh.len(), 50);
    let latest = fresh
        .iter()
        .map(|s| s.at.since(s.event.due_at))
        .max()
        .unwrap();
    assert!(latest <= ms(1_500), "a fresh timer waited for {latest:?}");
    assert!(seen.len() < 6_000, "the backlog was still there");
}

#[tokio::test]
async fn fresh_timers_do_not_wait_for_the_commits_of_a_backlog() {
    let mut world = World::new().await;
    world.stop();
    let due_at = world.now();
    let backlog = (0..6_000).map(|n| {
        let tenant = format!("tenant-{}", n % 50);
        TimerRequest::at(key_of(&tenant, &n.to_string()), due_at)
    });
    world.timers.schedule(backlog.collect()).await.unwrap();
    world.advance(Duration::from_hours(1)).await;
    world.restart(rare_polls());
    // A commit takes half a second, in which as much is claimed as may be in flight.
    world.faults.decide(|call| {
        let is_mark = call.operation == "mark_fired";
        is_mark.then_some(Fault::DelayBefore(ms(500)))
    });
    for n in 0..20 {
        let tenant = format!("tenant-{n}");
        world.schedule(&key_of(&tenant, "fresh"), ms(97 * n)).await;
    }
    world.advance(secs(2)).await;
    let seen = world.ledger.seen();
    let fresh = seen.iter().filter(|s| s.event.due_at > due_at);
    let late: Vec<_> = fresh.map(|s| s.at.since(s.event.due_at)).collect();
    assert_eq!(late.len(), 20);
    assert!(late.iter().all(|late| *late <= ms(100)), "{late:?}");
    assert!(seen.len() < 6_000, "the backlog was still there");
}

#[tokio::test]
async fn a_claim_of_a_saturated_tenant_is_polled_for_again_although_its_release_comes_late() {
    let world = World::with(WorkerSettings {
        publishes_in_flight: 2,
        ..rare_polls()
    })
    .await;
    world.answers_after(secs(1));
    // A claim without a slot is released only after a slot is free, and so after the poll for it.
    let late = Fault::DelayBefore(secs(5));
    world.faults.at_call_of("release", 1, late);
    let keys: Vec<_> = (0..12).map(|n| key_of("a", &n.to_string())).collect();
    for key in &keys {
        world.schedule(key, ms(0)).await;
    }
    world.advance(secs(30)).await;
    for key in &keys {
        assert!(world.is_reached(key).await, "{key:?}");
    }
    assert_eq!(world.ledger.firings().len(), 12);
}

/// Handlers of one tenant that wait for hours.
async fn a_tenant_hangs(world: &World, timers: usize) {
    let clock = world.clock.clone();
    world.ledger.answers(move |event, _| {
        let (clock, hangs) = (clock.clone(), event.tenant_id.as_str() == "hanging");
        Box::pin(async move {
            if hangs {
                clock.sleep_for(Duration::from_hours(10)).await;
            }
            Answer::Done
        })
    });
    let due_at = world.in_(secs(1));
    let hanging = (0..timers).map(|n| TimerRequest::at(key_of("hanging", &n.to_string()), due_at));
    world.timers.schedule(hanging.collect()).await.unwrap();
    world.advance(secs(2)).await;
}

#[tokio::test]
async fn a_tenant_whose_handlers_hang_leaves_slots_for_the_others() {
    let world = World::new().await;
    // As many as may be in flight at all.
    a_tenant_hangs(&world, 2_000).await;
    for n in 0..20 {
        world
            .schedule(&key_of("healthy", &n.to_string()), secs(n))
            .await;
    }
    world.advance(secs(30)).await;
    let seen = world.ledger.seen();
    let healthy: Vec<_> = seen
        .iter()
        .filter(|s| s.event.tenant_id.as_str() == "healthy")
        .collect();
    assert_eq!(healthy.len(), 20);
    assert!(healthy.iter().all(|s| s.at == s.event.due_at));
}

#[tokio::test]
async fn of_a_few_slots_too_one_is_left_for_the_others() {
    for places in [8, 9, 12] {
        let world = World::with(WorkerSettings {
            batch_size: 4,
            max_in_flight: places,
            ..rare_polls()
        })
        .await;
        a_tenant_hangs(&world, 50).await;
        world.schedule(&key_of("healthy", "x"), secs(1)).await;
        world.advance(secs(2)).await;
        let count = world.ledger.count(&key_of("healthy", "x"));
        assert_eq!(count, 1, "of {places} places");
    }
}

#[tokio::test]
async fn a_tenant_s_timers_fire_in_the_order_of_their_due_times() {
    let mut world = World::new().await;
    world.stop();
    for n in 0..60_u64 {
        let tenant = format!("tenant-{}", n % 3);
        world
            .schedule(&key_of(&tenant, &n.to_string()), secs(n * 37 % 61))
            .await;
    }
    world.advance(secs(100)).await;
    world.restart(WorkerSettings::default());
    world.advance(ms(0)).await;
    for tenant in ["tenant-0", "tenant-1", "tenant-2"] {
        let seen = world.ledger.seen();
        let dues: Vec<_> = seen
            .iter()
            .filter(|s| s.event.tenant_id.as_str() == tenant)
            .map(|s| s.event.due_at)
            .collect();
        assert_eq!(dues.len(), 20);
        assert!(dues.is_sorted(), "{tenant}: {dues:?}");
    }
}

#[tokio::test]
async fn slow_timers_in_larger_batches_leave_slots_too() {
    let world = World::with(WorkerSettings {
        publishes_in_flight: 8,
        publish_batch: 8,
        ..WorkerSettings::default()
    })
    .await;
    let clock = world.clock.clone();
    world.ledger.answers(move |event, _| {
        let (clock, hangs) = (clock.clone(), event.tenant_id.as_str() == "hanging");
        Box::pin(async move {
            if hangs {
                clock.sleep_for(Duration::from_hours(10)).await;
            }
            Answer::Done
        })
    });
    for n in 0..20 {
        world
            .schedule(&key_of("hanging", &n.to_string()), secs(n))
            .await;
    }
    world.advance(secs(30)).await;
    world.schedule(&key_of("healthy", "x"), secs(1)).await;
    world.advance(secs(2)).await;
    assert_eq!(world.ledger.count(&key_of("healthy", "x")), 1);
}

#[tokio::test]
async fn what_a_hanging_tenant_had_to_give_back_fires_when_it_hangs_no_more() {
    let world = World::new().await;
    let clock = world.clock.clone();
    world.ledger.answers(move |_, _| {
        let clock = clock.clone();
        Box::pin(async move {
            clock.sleep_for(secs(20)).await;
            Answer::Done
        })
    });
    let due_at = world.in_(secs(1));
    let claims = world.count_calls("claim_due");
    let batch = (0..2_000).map(|n| TimerRequest::at(key_of("slow", &n.to_string()), due_at));
    world.timers.schedule(batch.collect()).await.unwrap();
    world.advance(Duration::from_mins(15)).await;
    assert_eq!(world.ledger.seen().len(), 2_000);
    assert_eq!(world.ledger.firings().len(), 2_000);
    let claims = claims.load(std::sync::atomic::Ordering::SeqCst);
    assert!(claims < 2_000, "no busy loop: {claims}");
}

/// Tenants whose handlers take long, and others beside them.
struct Crowd {
    slow: usize,
    backlog_of_each: usize,
    takes: Duration,
    /// How long after the one before it each slow tenant begins.
    apart: Duration,
}

const HOURS: Duration = Duration::from_hours(10);

/// As many healthy tenants as slow ones, ten at least, have together 500 timers a second for two
/// seconds. How late each of those fires.
async fn lateness_of_the_others(world: &World, crowd: &Crowd) -> Vec<Duration> {
    let (clock, takes) = (world.clock.clone(), crowd.takes);
    world.ledger.answers(move |event, _| {
        let (clock, is_slow) = (clock.clone(), event.tenant_id.as_str().starts_with("slow"));
        Box::pin(async move {
            if is_slow {
                clock.sleep_for(takes).await;
            }
            Answer::Done
        })
    });
    let begin = world.in_(ms(100));
    for tenant in 0..crowd.slow {
        let due_at = begin.saturating_add(crowd.apart * u32::try_from(tenant).unwrap());
        let backlog = (0..crowd.backlog_of_each).map(|n| {
            let key = key_of(&format!("slow-{tenant}"), &n.to_string());
            TimerRequest::at(key, due_at)
        });
        let backlog: Vec<_> = backlog.collect();
        for part in backlog.chunks(10_000) {
            world.timers.schedule(part.to_vec()).await.unwrap();
        }
    }
    if crowd.apart.is_zero() {
        world.advance(secs(1)).await;
    }
    let others = crowd.slow.max(10);
    let begin = world.in_(ms(50));
    let fresh = (0..1_000).map(|n: usize| {
        let tenant = format!("healthy-{}", n % others);
        let due_at = begin.saturating_add(ms(2 * n as u64));
        TimerRequest::at(key_of(&tenant, &n.to_string()), due_at)
    });
    world.timers.schedule(fresh.collect()).await.unwrap();
    world.advance(secs(4)).await;
    let seen = world.ledger.seen();
    let healthy = seen
        .iter()
        .filter(|s| s.event.tenant_id.as_str().starts_with("healthy"));
    healthy.map(|s| s.at.since(s.event.due_at)).collect()
}

async fn the_others_are_on_time_beside(crowd: Crowd) {
    let world = World::new().await;
    let mut late = lateness_of_the_others(&world, &crowd).await;
    assert_eq!(late.len(), 1_000, "all have fired");
    late.sort_unstable();
    let p99 = late[989];
    assert!(p99 <= ms(100), "p99 {p99:?}, latest {:?}", late[999]);
}

#[tokio::test]
async fn one_tenant_that_hangs_delays_no_other() {
    the_others_are_on_time_beside(Crowd {
        slow: 1,
        backlog_of_each: 2_000,
        takes: HOURS,
        apart: ms(0),
    })
    .await;
}

#[tokio::test]
async fn one_tenant_with_a_great_backlog_and_slow_handlers_delays_no_other() {
    the_others_are_on_time_beside(Crowd {
        slow: 1,
        backlog_of_each: 20_000,
        takes: secs(1),
        apart: ms(0),
    })
    .await;
}

#[tokio::test]
async fn half_of_all_tenants_make_the_other_half_not_late() {
    for (takes, backlog_of_each) in [(HOURS, 300), (secs(1), 1_000), (ms(200), 1_000)] {
        the_others_are_on_time_beside(Crowd {
            slow: 10,
            backlog_of_each,
            takes,
            apart: ms(0),
        })
        .await;
    }
}

#[tokio::test]
async fn a_hundred_tenants_that_hang_make_the_other_hundred_not_late() {
    the_others_are_on_time_beside(Crowd {
        slow: 100,
        backlog_of_each: 30,
        takes: HOURS,
        apart: ms(0),
    })
    .await;
}

#[tokio::test]
async fn tenants_that_begin_to_hang_one_after_the_other_delay_no_other() {
    the_others_are_on_time_beside(Crowd {
        slow: 10,
        backlog_of_each: 500,
        takes: HOURS,
        apart: ms(200),
    })
    .await;
}

#[tokio::test]
async fn three_tenants_whose_handlers_hang_hold_up_no_fourth() {
    let world = World::new().await;
    let clock = world.clock.clone();
    world.ledger.answers(move |event, _| {
        let (clock, hangs) = (clock.clone(), event.tenant_id.as_str().starts_with("hang"));
        Box::pin(async move {
            if hangs {
                clock.sleep_for(HOURS).await;
            }
            Answer::Done
        })
    });
    for tenant in ["hang-a", "hang-b", "hang-c"] {
        for n in 0..64 {
            world
                .schedule(&key_of(tenant, &n.to_string()), secs(1))
                .await;
        }
        world.advance(secs(2)).await;
    }
    world.schedule(&key_of("healthy", "x"), secs(1)).await;
    world.advance(secs(2)).await;
    assert_eq!(world.ledger.count(&key_of("healthy", "x")), 1);
}

#[tokio::test]
async fn a_hanging_handler_and_one_pause_stop_no_other() {
    let world = World::new().await;
    let clock = world.clock.clone();
    world.ledger.answers(move |event, earlier| {
        let (clock, tenant) = (clock.clone(), event.tenant_id.clone());
        Box::pin(async move {
            match tenant.as_str() {
                "hanging" => clock.sleep_for(HOURS).await,
                "b" if earlier == 0 => {
                    let reason = "the store is busy".to_owned();
                    return Answer::Pause { reason };
                }
                _ => {}
            }
            Answer::Done
        })
    });
    world.schedule(&key_of("hanging", "x"), secs(1)).await;
    world.advance(secs(2)).await;
    world.schedule(&key_of("b", "x"), secs(1)).await;
    world.advance(secs(2)).await;
    world.schedule(&key_of("c", "x"), secs(1)).await;
    world.advance(secs(10)).await;
    let count = |tenant: &str| world.ledger.count(&key_of(tenant, "x"));
    assert_eq!((count("b"), count("c")), (2, 1));
}

#[tokio::test]
async fn a_probe_that_hangs_is_not_waited_for() {
    let world = World::new().await;
    let clock = world.clock.clone();
    world.ledger.answers(move |event, earlier| {
        let (clock, name) = (clock.clone(), event.key());
        Box::pin(async move {
            if name == key_of("b", "x") && earlier == 0 {
                let reason = "the store is busy".to_owned();
                return Answer::Pause { reason };
            }
            if name == key_of("b", "x") {
                clock.sleep_for(HOURS).await;
            }
            Answer::Done
        })
    });
    world.schedule(&key_of("b", "x"), secs(1)).await;
    world.advance(secs(2)).await;
    world.schedule(&key_of("c", "x"), secs(1)).await;
    world.advance(secs(20)).await;
    assert_eq!(world.ledger.count(&key_of("c", "x")), 1);
}
