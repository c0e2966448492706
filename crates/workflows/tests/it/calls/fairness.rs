//! Nobody takes all the places, and no limit is exceeded.

use std::time::Duration;

use punctual_domain::service_call::CallStatus;
use punctual_workflows::calls::CallSettings;

use super::http::Behaviour;
use super::world::{CallWorld, call_to};
use crate::world::{key_of, ms, secs};

#[tokio::test]
async fn ten_thousand_calls_to_a_host_that_never_answers_delay_nobody_else() {
    let world = CallWorld::new().await;
    world
        .outside
        .http
        .decides(|attempt| match attempt.request.url.host() {
            "dead.example" => Behaviour::Hang,
            _ => Behaviour::Answer(200, ms(100)),
        });
    let due_at = world.in_(secs(1));
    for n in 0..10_000 {
        let name = n.to_string();
        world
            .submit(call_to("crowd", "dead.example", &name, due_at))
            .await;
    }
    // Another tenant to the dead host, another to a good one, and the crowd itself to a good one.
    let others = [("other", "good.example"), ("crowd", "good.example")];
    for (tenant, host) in others {
        for n in 0..10 {
            let due_at = world.in_(secs(1 + n * 3));
            world
                .submit(call_to(tenant, host, &format!("{tenant}-{n}"), due_at))
                .await;
        }
    }
    world
        .submit(call_to("other", "dead.example", "unlucky", due_at))
        .await;
    world.advance(secs(40)).await;
    let requests = world.outside.http.requests();
    let good: Vec<_> = requests
        .iter()
        .filter(|it| it.attempt.request.url.host() == "good.example")
        .collect();
    assert_eq!(good.len(), 20);
    for request in good {
        let call = world.find(&request.attempt.key).await.unwrap();
        let late = request.at.since(call.details().due_at);
        assert_eq!(late, Duration::ZERO, "{}", request.attempt.key);
        assert_eq!(call.status(), CallStatus::Succeeded);
    }
    assert_eq!(world.outside.http.most("host dead.example"), 64);
    // The places at the dead host go round among the tenants.
    let unlucky = world.outside.http.count(&key_of("other", "unlucky"));
    assert_eq!(unlucky, 1, "among the first 128 of 10 001");
}

#[tokio::test]
async fn limits_are_used_to_the_full_and_never_exceeded() {
    let settings = CallSettings {
        attempts: 10,
        attempts_per_tenant: 6,
        attempts_per_host: 4,
        ..CallSettings::default()
    };
    let world = CallWorld::with(settings).await;
    world.outside.http.does(Behaviour::Answer(200, ms(700)));
    for n in 0..300 {
        let tenant = ["a", "b", "c"][n % 3];
        let host = ["x.example", "y.example", "z.example", "w.example"][n % 4];
        let due_at = world.in_(ms(10 * n as u64));
        world
            .submit(call_to(tenant, host, &n.to_string(), due_at))
            .await;
    }
    world.advance(Duration::from_mins(5)).await;
    assert_eq!(world.outside.wire.count("ServiceCallSucceeded"), 300);
    let http = &world.outside.http;
    assert_eq!(http.requests().len(), 300);
    assert_eq!(http.most("all"), 10);
    for tenant in ["a", "b", "c"] {
        assert!(http.most(&format!("tenant {tenant}")) <= 6);
    }
    for host in ["x", "y", "z", "w"] {
        assert!(http.most(&format!("host {host}.example")) <= 4);
    }
    // 300 attempts of 0.7 s on ten places take 21 s when no place is left empty.
    let last = http.requests().last().unwrap().at;
    let took = last.since(crate::world::START.parse().unwrap());
    assert!(took <= secs(24), "{took:?}");
}

#[tokio::test]
async fn a_tenant_alone_has_at_most_its_share_and_the_next_one_starts_at_once() {
    let settings = CallSettings {
        attempts: 8,
        attempts_per_tenant: 5,
        attempts_per_host: 8,
        ..CallSettings::default()
    };
    let world = CallWorld::with(settings).await;
    world.outside.http.does(Behaviour::Answer(200, secs(20)));
    for n in 0..50 {
        let name = n.to_string();
        world
            .submit(call_to("crowd", "x.example", &name, world.now()))
            .await;
    }
    world.advance(secs(5)).await;
    assert_eq!(world.outside.http.most("tenant crowd"), 5);
    world
        .submit(call_to("other", "x.example", "o", world.now()))
        .await;
    world.settle().await;
    let requests = world.outside.http.requests();
    let other = requests.last().unwrap();
    assert_eq!((requests.len(), other.at), (6, world.now()));
    assert_eq!(other.attempt.key, key_of("other", "o"));
}

#[tokio::test]
async fn a_burst_exceeds_no_limit_either() {
    let settings = CallSettings {
        attempts: 10,
        attempts_per_tenant: 6,
        attempts_per_host: 4,
        ..CallSettings::default()
    };
    // Three tenants at once to one host.
    let world = CallWorld::with(settings).await;
    world.outside.http.does(Behaviour::Answer(200, secs(20)));
    for n in 0..30 {
        let tenant = ["a", "b", "c"][n % 3];
        let asked = call_to(tenant, "x.example", &n.to_string(), world.now());
        world.submit(asked).await;
    }
    world.settle().await;
    assert_eq!(world.outside.http.most("host x.example"), 4);
    // One tenant to many hosts, when it has half of its places already.
    let world = CallWorld::with(settings).await;
    world.outside.http.does(Behaviour::Answer(200, secs(20)));
    for (burst, hosts) in [(1, 0..3), (2, 3..15)] {
        for n in hosts {
            let host = format!("h{n}.example");
            let asked = call_to("a", &host, &n.to_string(), world.now());
            world.submit(asked).await;
        }
        world.settle().await;
        assert_eq!(world.outside.http.most("tenant a"), 3 * burst);
    }
}
