//! A broker that is unavailable, comes back, and has lost messages.

use std::time::Duration;

use punctual_adapters_nats::async_nats::jetstream;
use punctual_adapters_nats::{NatsError, NatsEventBus};
use punctual_ports::{BusPositionPort, ClockPort, EventBusPort, PortErrorKind, PublishOutcome};
use punctual_test_servers::NatsServer;

use crate::fixture::{Recorder, World, command, commands, event, events};

/// Publishes until it is accepted, as the worker does.
async fn publish(world: &World, bus: &NatsEventBus, n: u128) {
    let message = event(n, world.clock.now());
    loop {
        match bus.publish(vec![message.clone()]).await {
            Ok(answers) if answers[0].is_ok() => return,
            Ok(answers) => assert!(answers[0].as_ref().unwrap_err().is_retryable()),
            Err(error) => assert!(error.is_retryable()),
        }
        world.pass(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_broker_it_starts_says_so_and_catches_up() {
    let Some(mut server) = NatsServer::start() else {
        return;
    };
    server.kill();
    let world = World::at(&server.url());
    let bus = world.bus().await;
    let handler = Recorder::content();
    let _subscription = bus.subscribe(commands(handler.clone())).await.unwrap();
    assert!(bus.readiness().is_err());
    let error = bus.publish(vec![command(1)]).await.unwrap_err();
    assert_eq!(error.kind(), PortErrorKind::Unavailable);
    server.restart();
    world
        .until("the broker is ready", || bus.readiness().is_ok())
        .await;
    bus.publish(vec![command(1)]).await.unwrap();
    world
        .until("it arrives", || handler.count(command(1).id) == 1)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_comes_and_goes_loses_nothing_and_nothing_piles_up() {
    let Some(mut server) = NatsServer::start() else {
        return;
    };
    let world = World::at(&server.url());
    let bus = world.bus().await;
    let handler = Recorder::content();
    let _subscription = bus.subscribe(events(handler.clone())).await.unwrap();
    for round in 0..4_u128 {
        publish(&world, &bus, round * 2).await;
        if round % 2 == 0 {
            server.kill();
        } else {
            server.stop();
        }
        world
            .until("it is noticed", || bus.readiness().is_err())
            .await;
        let error = bus.publish(vec![command(1)]).await.unwrap_err();
        assert!(error.is_retryable(), "{error}");
        server.restart();
        publish(&world, &bus, round * 2 + 1).await;
    }
    let all = || (0..8).all(|n| handler.count(command(n).id) >= 1);
    world.until("all arrive", all).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_hangs_is_an_answer_in_bounded_time_and_the_message_is_stored_once() {
    let Some(server) = NatsServer::start() else {
        return;
    };
    let mut world = World::at(&server.url());
    world.settings.ack_timeout = Duration::from_millis(300);
    let bus = world.bus().await;
    server.pause();
    let message = event(1, world.clock.now());
    let others = (2..=100).map(|n| event(n, world.clock.now()));
    let batch = std::iter::once(message.clone()).chain(others).collect();
    let begun = world.monotonic();
    let answers = bus.publish(batch).await.unwrap();
    let took = world.monotonic().saturating_sub(begun);
    assert_eq!(answers.len(), 100);
    for answer in answers {
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), PortErrorKind::Unavailable, "{error}");
    }
    // One patience for all of them: a hundred would be half a minute.
    assert!(took < Duration::from_secs(15), "{took:?}");
    server.resume();
    world
        .until("it is ready again", || bus.readiness().is_ok())
        .await;
    let answers = bus.publish(vec![message]).await.unwrap();
    // The first one was on its way all the time.
    assert_eq!(*answers[0].as_ref().unwrap(), PublishOutcome::Duplicate);
}

/// Restores a broker to its state after the first of two messages.
async fn went_back(world: &World, server: &mut NatsServer, bus: &NatsEventBus) {
    let copy = tempfile::tempdir().unwrap();
    publish(world, bus, 1).await;
    server.stop();
    server.copy_store_to(copy.path());
    server.restart();
    publish(world, bus, 2).await;
    publish(world, bus, 3).await;
    server.kill();
    server.replace_store_from(copy.path());
    server.restart();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_put_back_to_an_older_copy_is_found_out_while_we_run() {
    let Some(mut server) = NatsServer::start() else {
        return;
    };
    let world = World::at(&server.url());
    let bus = world.bus().await;
    let begun = world.clock.now();
    went_back(&world, &mut server, &bus).await;
    let loss = bus.lost().await;
    assert_eq!(loss.reason, "the stream of events went back");
    assert!(loss.since < begun);
    assert_eq!(bus.lost().await, loss, "until it is recovered");
    let handler = Recorder::content();
    let _subscription = bus.subscribe(events(handler.clone())).await.unwrap();
    for n in 2..4 {
        publish(&world, &bus, n).await;
    }
    let all = || (1..4).all(|n| handler.count(command(n).id) == 1);
    world.until("what was lost arrives", all).await;
    bus.recovered(&loss).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_put_back_to_an_older_copy_is_found_out_by_the_next_process() {
    let Some(mut server) = NatsServer::start() else {
        return;
    };
    let world = World::at(&server.url());
    let bus = world.bus().await;
    publish(&world, &bus, 1).await;
    bus.close().await;
    let copy = tempfile::tempdir().unwrap();
    server.stop();
    server.copy_store_to(copy.path());
    server.restart();
    publish(&world, &bus, 2).await;
    bus.close().await;
    drop(bus);
    server.kill();
    server.replace_store_from(copy.path());
    server.restart();
    // Another publisher advances the sequence past ours before the check.
    let other = World::at(&server.url()).bus().await;
    for n in 100..110 {
        publish(&world, &other, n).await;
    }
    let bus = world.bus().await;
    let loss = bus.lost().await;
    assert_eq!(
        loss.reason,
        "the stream of events has another message in place of ours"
    );
    drop(bus);
    let bus = world.bus().await;
    assert_eq!(bus.lost().await.since, loss.since, "until it is recovered");
    bus.recovered(&bus.lost().await).await.unwrap();
    publish(&world, &bus, 3).await;
    bus.close().await;
    let next = world.bus().await;
    let since = next.lost().await.since;
    assert!(
        since > loss.since,
        "only the time since the last word is in doubt"
    );
}

/// The stream keeps events for seven days, so as much is lost with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_recreated_stream_has_lost_a_week_and_an_interrupted_recovery_continues() {
    let Some(world) = World::shared() else { return };
    let bus = world.bus().await;
    publish(&world, &bus, 1).await;
    let broker = jetstream::new(world.client().await);
    broker.delete_stream(world.stream("EVENTS")).await.unwrap();
    let days = |days: u64| Duration::from_hours(days * 24);
    let now = world.clock.now();
    let loss = bus.lost().await;
    let week = now.saturating_sub(days(7));
    assert!(loss.since >= week && loss.since <= week.saturating_add(Duration::from_mins(1)));
    publish(&world, &bus, 2).await;
    let until = now.saturating_sub(days(3));
    bus.recovered_until(&loss, until);
    assert_eq!(bus.lost().await, loss, "in this process it is the same");
    bus.close().await;
    drop(bus);

    let bus = world.bus().await;
    let rest = bus.lost().await;
    assert_eq!(rest.since, until, "the next one goes on there");
    bus.recovered(&rest).await.unwrap();
    bus.close().await;
    drop(bus);

    let bus = world.bus().await;
    let rest = bus.lost().await;
    assert!(rest.since >= now, "and then only the last word is in doubt");
    // Republished events are lost again, and are older than their messages.
    broker.delete_stream(world.stream("EVENTS")).await.unwrap();
    bus.publish(vec![event(3, now)]).await.unwrap();
    while bus.lost().await.since >= now {
        world.pass(Duration::from_millis(10)).await;
    }
    assert!(bus.lost().await.since <= loss.since);
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_access_is_an_error_at_once() {
    let Some(server) = NatsServer::start_with("authorization { user: me, password: hunter2 }")
    else {
        return;
    };
    let world = World::at(&server.url());
    let refused = NatsEventBus::connect(world.settings.clone(), world.parts()).await;
    let error = refused.unwrap_err();
    assert!(matches!(error, NatsError::Denied { .. }), "{error:?}");
    assert!(!error.to_string().contains("hunter2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_before_the_first_saved_position_are_in_doubt_too() {
    let Some(mut server) = NatsServer::start() else {
        return;
    };
    let mut world = World::at(&server.url());
    let copy = tempfile::tempdir().unwrap();
    let bus = world.bus().await;
    let noted = world.positions.all();
    server.stop();
    server.copy_store_to(copy.path());
    server.restart();
    publish(&world, &bus, 1).await;
    drop(bus);
    // Both are cut off, before a second has passed.
    world.positions = noted;
    server.kill();
    server.replace_store_from(copy.path());
    server.restart();
    let bus = world.bus().await;
    world
        .until("the broker is ready", || bus.readiness().is_ok())
        .await;
    assert!(bus.lost().await.since < world.clock.now());
}

#[tokio::test(flavor = "multi_thread")]
async fn publishing_during_a_check_of_the_broker_is_not_taken_for_a_loss() {
    let Some(world) = World::shared() else { return };
    let bus = world.bus().await;
    let now = world.clock.now();
    // On this clock the broker is checked nearly twice a second.
    let until = world.monotonic() + Duration::from_secs(3);
    let publish_all = async |from: u128| {
        let mut n = from;
        while world.monotonic() < until {
            let batch = (n..n + 50).map(|n| event(n, now)).collect();
            n += 50;
            bus.publish(batch).await.unwrap();
        }
    };
    tokio::select! {
        loss = bus.lost() => panic!("{loss:?}"),
        _ = async { tokio::join!(publish_all(0), publish_all(1 << 40), publish_all(1 << 50)) } => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_age_of_a_backup_does_not_depend_on_what_others_publish_after_it() {
    let Some(mut server) = NatsServer::start() else {
        return;
    };
    let world = World::at(&server.url());
    let bus = world.bus().await;
    went_back(&world, &mut server, &bus).await;
    drop(bus);
    let copy_is_older_than = world.clock.now();
    world.pass(Duration::from_millis(10)).await;
    let other = World::at(&server.url()).bus().await;
    publish(&world, &other, 100).await;
    // As if our last message had been acknowledged more than ten minutes after the copy's.
    let kept = world.positions.load("EVENTS".to_owned()).await;
    let mut kept = kept.unwrap().unwrap();
    kept.acknowledged_at = copy_is_older_than.saturating_add(Duration::from_mins(10));
    kept.last_sequence = 1_000;
    world.positions.save(kept).await.unwrap();
    let loss = world.bus().await.lost().await;
    assert_eq!(loss.reason, "the stream of events went back");
    let margin = Duration::from_mins(1);
    assert!(loss.since <= copy_is_older_than.saturating_sub(margin));
}
