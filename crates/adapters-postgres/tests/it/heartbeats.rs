//! Who lives: what each instance says of itself, and what is seen of one that ended or died.

use std::time::Duration;

use punctual_adapters_postgres::{InstanceLabel, PostgresSettings, PostgresTimerStore, SchemaSet};
use punctual_domain::Timestamp;
use punctual_ports::{Backend, Instance, TimerPersistencePort, TimerQueuePort};

use crate::scratch::{key, timer_of};
use crate::store::{InSchema, open};

async fn named(store: &InSchema, name: &str) -> PostgresTimerStore {
    let label = InstanceLabel {
        name: name.to_owned(),
        modules: "api,timer".to_owned(),
    };
    let settings = PostgresSettings {
        label,
        ..store.settings.clone()
    };
    open(&settings).await
}

async fn living(store: &PostgresTimerStore, now: Timestamp) -> Vec<Instance> {
    store.instances(now).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_is_listed_until_it_is_closed_or_its_heartbeat_is_old() {
    for set in SchemaSet::ALL {
        let Some(store) = InSchema::new(set).await else {
            return;
        };
        let (one, two) = (named(&store, "one").await, named(&store, "two").await);
        let begun = Timestamp::from_millis(1_800_000_000_000).unwrap();
        let later = begun.saturating_add(Duration::from_secs(10));
        for store in [&one, &two] {
            assert!(store.record_heartbeat(begun).await.is_ok());
        }
        let names = async |now| -> Vec<String> {
            let living = living(&store.store, now).await;
            assert!(living.is_sorted_by_key(|it| it.id));
            let mut names: Vec<String> = living.into_iter().map(|it| it.name).collect();
            names.sort();
            names
        };
        assert_eq!(names(later).await, ["one", "two"]);
        one.record_heartbeat(later).await.unwrap();
        // The other has died without a word.
        let dead = begun.saturating_add(Instance::LIVES_FOR);
        assert_eq!(names(dead).await, ["one"]);
        let [instance] = living(&store.store, dead).await.try_into().unwrap();
        assert_eq!((instance.started_at, instance.heartbeat_at), (begun, later));
        assert_eq!(instance.modules, "api,timer");
        assert_eq!(instance.version, env!("CARGO_PKG_VERSION"));
        one.close().await;
        assert!(names(dead).await.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_seen_how_many_timers_an_instance_is_firing() {
    let Some(store) = InSchema::new(SchemaSet::TimersOnly).await else {
        return;
    };
    let now = Timestamp::from_millis(1_800_000_000_000).unwrap();
    let lease = Duration::from_secs(8);
    let timers = (0..3).map(|number| timer_of(key(number), now)).collect();
    store.store.save(timers, now).await.unwrap();
    store.store.record_heartbeat(now).await.unwrap();
    let claimed = store.store.claim_due(now, 2, lease).await.unwrap();
    assert_eq!(claimed.claims.len(), 2);
    let other = store.another().await;
    other.record_heartbeat(now).await.unwrap();
    let timers = async |now| -> Vec<u64> {
        let living = living(&other, now).await;
        let mut timers: Vec<u64> = living.iter().map(|it| it.claimed.unwrap().timers).collect();
        timers.sort_unstable();
        timers
    };
    assert_eq!(timers(now).await, [0, 2]);
    assert_eq!(timers(now.saturating_add(lease)).await, [0, 0]);
}
