//! How far a broker has acknowledged, kept where the broker cannot lose it.

use punctual_ports::{BusPosition, PortErrorKind};
use uuid::Uuid;

use crate::TimerStoreFixture;
use crate::instances::{Other, other_or_return};
use crate::store::{LEASE, Store, at};

suite! { $ bus_position_suite, bus_position =>
    a_stream_without_a_position_has_none,
    a_position_comes_back_as_it_was,
    another_position_replaces_the_one_before_whatever_it_says,
    each_stream_has_a_position_of_its_own,
    the_greatest_sequence_is_kept_or_refused_and_changes_nothing_then,
    a_position_survives_a_crash,
    each_instance_has_a_position_of_its_own,
    a_new_instance_loads_the_positions_of_all_as_one,
    one_instance_at_a_time_republishes,
    a_database_keeps_the_first_id_that_it_is_given,
    all_instances_have_the_id_of_their_database,
}

fn position(stream: &str, last_sequence: u64) -> BusPosition {
    BusPosition {
        stream: stream.to_owned(),
        stream_created_at: "2026-01-02T03:04:05.678901234Z".to_owned(),
        last_sequence,
        last_message_id: "tenant-a:00000000-0000-0000-0000-000000000001:5:7".to_owned(),
        acknowledged_at: at(123_450),
        covers_until: at(123_456),
    }
}

async fn keep(fixture: &dyn TimerStoreFixture, position: &BusPosition) {
    let kept = fixture.positions().save(position.clone()).await;
    kept.expect("keep answers");
}

async fn load(fixture: &dyn TimerStoreFixture, stream: &str) -> Option<BusPosition> {
    let loaded = fixture.positions().load(stream.to_owned()).await;
    loaded.expect("load answers")
}

/// Nothing was published to it yet, and that is no error.
pub async fn a_stream_without_a_position_has_none(fixture: Box<dyn TimerStoreFixture>) {
    assert_eq!(load(&fixture, "TIMER").await, None);
    keep(&fixture, &position("TIMER", 1)).await;
    assert_eq!(load(&fixture, "timer").await, None);
    assert_eq!(load(&fixture, "").await, None);
}

/// Also at the ends of what can be kept, and whatever words the broker uses.
pub async fn a_position_comes_back_as_it_was(fixture: Box<dyn TimerStoreFixture>) {
    let odd = BusPosition {
        stream_created_at: String::new(),
        last_message_id: "'; DROP TABLE bus_positions; --\u{1f552}\n".to_owned(),
        ..position("TIMER", u64::MAX >> 1)
    };
    for position in [position("TIMER", 0), position("TIMER", 42), odd] {
        keep(&fixture, &position).await;
        assert_eq!(load(&fixture, "TIMER").await, Some(position));
    }
}

/// A broker that was restored goes back.
pub async fn another_position_replaces_the_one_before_whatever_it_says(
    fixture: Box<dyn TimerStoreFixture>,
) {
    keep(&fixture, &position("TIMER", 9)).await;
    let earlier = BusPosition {
        stream_created_at: "another".to_owned(),
        last_message_id: "other".to_owned(),
        acknowledged_at: at(2),
        covers_until: at(1),
        ..position("TIMER", 3)
    };
    keep(&fixture, &earlier).await;
    assert_eq!(load(&fixture, "TIMER").await, Some(earlier));
}

/// One is not touched by the other.
pub async fn each_stream_has_a_position_of_its_own(fixture: Box<dyn TimerStoreFixture>) {
    let (one, other) = (position("EVENTS", 1), position("COMMANDS", 2));
    keep(&fixture, &one).await;
    keep(&fixture, &other).await;
    assert_eq!(load(&fixture, "EVENTS").await, Some(one));
    assert_eq!(load(&fixture, "COMMANDS").await, Some(other));
}

/// It never is another one.
pub async fn the_greatest_sequence_is_kept_or_refused_and_changes_nothing_then(
    fixture: Box<dyn TimerStoreFixture>,
) {
    let (before, greatest) = (position("TIMER", 7), position("TIMER", u64::MAX));
    keep(&fixture, &before).await;
    let now = match fixture.positions().save(greatest.clone()).await {
        Ok(()) => greatest,
        Err(error) => {
            assert_eq!(error.kind(), PortErrorKind::Rejected);
            before
        }
    };
    assert_eq!(load(&fixture, "TIMER").await, Some(now));
}

/// Kept means durable.
pub async fn a_position_survives_a_crash(mut fixture: Box<dyn TimerStoreFixture>) {
    let kept = position("TIMER", 5);
    keep(&fixture, &kept).await;
    fixture.crash_and_reopen().await;
    assert_eq!(load(&fixture, "TIMER").await, Some(kept));
}

/// No instance overwrites what another has noted.
pub async fn each_instance_has_a_position_of_its_own(fixture: Box<dyn TimerStoreFixture>) {
    let other = other_or_return!(second of fixture);
    let (mine, others) = (position("TIMER", 5), position("TIMER", 3));
    keep(&fixture, &mine).await;
    keep(&other, &others).await;
    assert_eq!(load(&fixture, "TIMER").await, Some(mine));
    assert_eq!(load(&other, "TIMER").await, Some(others));
}

/// What is in doubt for any of them is in doubt for it, until it has saved a position of its own. Those of
/// instances that run count on.
pub async fn a_new_instance_loads_the_positions_of_all_as_one(fixture: Box<dyn TimerStoreFixture>) {
    let other = other_or_return!(second of fixture);
    let highest = BusPosition {
        last_message_id: "the highest".to_owned(),
        ..position("TIMER", 9)
    };
    let in_doubt = BusPosition {
        covers_until: at(100_000),
        ..position("TIMER", 7)
    };
    keep(&fixture, &highest).await;
    keep(&other, &in_doubt).await;
    let merged = BusPosition {
        covers_until: at(100_000),
        ..highest.clone()
    };
    let third = other_or_return!(second of fixture);
    assert_eq!(load(&third, "TIMER").await, Some(merged.clone()));
    assert_eq!(load(&third, "OTHER").await, None);
    let own = position("TIMER", 8);
    keep(&third, &own).await;
    assert_eq!(load(&third, "TIMER").await, Some(own));
    assert_eq!(load(&fixture, "TIMER").await, Some(highest));
    let fourth = other_or_return!(second of fixture);
    assert_eq!(load(&fourth, "TIMER").await, Some(merged));
}

/// Until it has not said for a lease that it still does.
pub async fn one_instance_at_a_time_republishes(fixture: Box<dyn TimerStoreFixture>) {
    let other = other_or_return!(second of fixture);
    let (first, second) = (fixture.positions(), other.positions());
    let stream = || "TIMER".to_owned();
    for (positions, now, expected) in [
        (&first, 1_000, true),
        (&second, 1_000, false),
        (&first, 11_000, true),
        (&second, 40_999, false),
        (&second, 41_000, true),
        (&first, 41_001, false),
    ] {
        let owns = positions.own_republication(stream(), at(now), LEASE).await;
        assert_eq!(owns.expect("own_republication answers"), expected, "{now}");
    }
    let another = second.own_republication("OTHER".to_owned(), at(41_001), LEASE);
    assert!(another.await.expect("own_republication answers"));
}

async fn owner(fixture: &dyn TimerStoreFixture, new: u128) -> Option<Uuid> {
    let owner = fixture.positions().owner(Uuid::from_u128(new)).await;
    owner.expect("owner answers")
}

/// Through a crash, too. One that keeps none never has one.
pub async fn a_database_keeps_the_first_id_that_it_is_given(
    mut fixture: Box<dyn TimerStoreFixture>,
) {
    let Some(first) = owner(&fixture, 1).await else {
        assert_eq!(owner(&fixture, 2).await, None);
        return;
    };
    assert_eq!(first, Uuid::from_u128(1));
    assert_eq!(owner(&fixture, 2).await, Some(first));
    fixture.crash_and_reopen().await;
    assert_eq!(owner(&fixture, 3).await, Some(first));
}

/// Whichever asks first, and at once.
pub async fn all_instances_have_the_id_of_their_database(fixture: Box<dyn TimerStoreFixture>) {
    let other = other_or_return!(second of fixture);
    let (first, second) = tokio::join!(owner(&fixture, 1), owner(&other, 2));
    assert_eq!(first, second);
    assert_eq!(owner(&fixture, 3).await, first);
}
