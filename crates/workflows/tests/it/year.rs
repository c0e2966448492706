//! A year in a moment: ten thousand timers of fifty tenants, each once, in order, on time.

use std::time::Duration;

use punctual_workflows::{TimerRequest, WorkerSettings};

use crate::simulation::random::Random;
use crate::world::{World, key_of};

const YEAR: Duration = Duration::from_hours(365 * 24);

#[tokio::test]
async fn a_simulated_year_fires_each_timer_once_in_order_and_on_time() {
    let world = World::with(WorkerSettings {
        polling_interval: Duration::from_hours(6),
        ..WorkerSettings::default()
    })
    .await;
    let mut random = Random::new(2026);
    let start = world.now();
    let mut scheduled = 0_u32;
    // Two hundred at the start of each of fifty weeks, each due within the rest of the year.
    for week in 0..50_u32 {
        let left = start.saturating_add(YEAR).since(world.now());
        let batch = (0..200).map(|n| {
            let millis = random.below(u64::try_from(left.as_millis()).unwrap());
            let tenant = format!("tenant-{}", random.below(50));
            let key = key_of(&tenant, &format!("{week}-{n}"));
            TimerRequest::at(key, world.in_(Duration::from_millis(millis)))
        });
        let saved = world.timers.schedule(batch.collect()).await.unwrap();
        scheduled += u32::try_from(saved.iter().filter(|one| one.is_ok()).count()).unwrap();
        world.advance(YEAR / 52).await;
    }
    world
        .advance(YEAR / 52 * 2 + Duration::from_hours(24))
        .await;
    assert_eq!(scheduled, 10_000);
    let seen = world.ledger.seen();
    assert_eq!(seen.len(), 10_000, "each fires");
    assert_eq!(world.ledger.firings().len(), 10_000, "and fires once");
    assert!(seen.is_sorted_by_key(|seen| seen.event.due_at), "in order");
    assert!(
        seen.iter().all(|seen| seen.at == seen.event.due_at),
        "0 ms late"
    );
}
