//! Nobody takes all the places, and no limit is exceeded.

use std::time::Duration;

use punctual_domain::service_call::CallStatus;
use punctual_workflows::calls::CallSettings;

use super::http::{Behaviour, OK};
use super::world::{CallWorld, call_to};
use crate::world::{key_of, ms, secs};

#[tokio::test]
async fn ten_thousand_calls_to_a_host_that_never_answers_delay_no_other() {
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
    // Another tenant to a good host, and the crowd itself to a good one.
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
    // Of the dead host's 256 places the crowd has a quarter, and others find one at once.
    assert_eq!(world.outside.http.most("host dead.example"), 64 + 1);
    let unlucky = key_of("other", "unlucky");
    let found = requests.iter().find(|it| it.attempt.key == unlucky);
    assert_eq!(found.unwrap().at, due_at);
}

#[tokio::test]
async fn the_half_that_is_not_kept_free_is_used_to_the_full_and_no_limit_exceeded() {
    let settings = CallSettings {
        attempts: 24,
        attempts_per_tenant: 4,
        attempts_per_host: 24,
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
    // Three tenants hold three each: no fourth while only three beyond the half are free.
    assert_eq!(http.most("all"), 9);
    for tenant in ["a", "b", "c"] {
        assert!(http.most(&format!("tenant {tenant}")) <= 4);
    }
    // 300 attempts of 0.7 s on nine places take 23.3 s when no place is left empty.
    let last = http.requests().last().unwrap().at;
    let took = last.since(crate::world::START.parse().unwrap());
    assert!(took <= secs(26), "{took:?}");
}

#[tokio::test]
async fn a_tenant_alone_has_at_most_its_share_and_the_next_one_starts_at_once() {
    let settings = CallSettings {
        attempts: 40,
        attempts_per_tenant: 5,
        attempts_per_host: 40,
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
        attempts: 40,
        attempts_per_tenant: 6,
        attempts_per_host: 4,
        ..CallSettings::default()
    };
    // Three tenants at once to one host: one each, and one place for whoever comes next.
    let world = CallWorld::with(settings).await;
    world.outside.http.does(Behaviour::Answer(200, secs(20)));
    for n in 0..30 {
        let tenant = ["a", "b", "c"][n % 3];
        let asked = call_to(tenant, "x.example", &n.to_string(), world.now());
        world.submit(asked).await;
    }
    world.settle().await;
    assert_eq!(world.outside.http.most("host x.example"), 3);
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

/// How late the requests of a tenant were made, at most.
async fn most_late(world: &CallWorld, tenant: &str) -> Duration {
    let mut most = Duration::ZERO;
    for request in world.outside.http.requests() {
        if request.attempt.key.tenant_id.as_str() == tenant {
            let call = world.find(&request.attempt.key).await.unwrap();
            most = most.max(request.at.since(call.details().due_at));
        }
    }
    most
}

/// Tenants whose targets never answer, as many calls of each as could ever be under way, one tenant
/// after the other. Then one more tenant, whose target answers: at the same host if its path does.
async fn is_late_beside(hanging: usize, hosts: usize) -> Duration {
    let world = CallWorld::new().await;
    world.outside.http.decides(|attempt| {
        if attempt.key.tenant_id.as_str().starts_with("hangs") {
            Behaviour::Hang
        } else {
            Behaviour::Answer(200, ms(100))
        }
    });
    for tenant in 0..hanging {
        for n in 0..300 {
            let (tenant, host) = (format!("hangs-{tenant}"), format!("h{}.example", n % hosts));
            let asked = call_to(&tenant, &host, &n.to_string(), world.now());
            world.submit(asked).await;
        }
        world.advance(ms(50)).await;
    }
    for n in 0..100 {
        let due_at = world.in_(ms(200 * n));
        let asked = call_to("answers", "h0.example", &n.to_string(), due_at);
        world.submit(asked).await;
    }
    world.advance(secs(25)).await;
    let answered = world.outside.wire.count("ServiceCallSucceeded");
    assert_eq!(answered, 100, "{hanging} tenants hang on {hosts} hosts");
    most_late(&world, "answers").await
}

#[tokio::test]
async fn tenants_that_hang_on_all_they_may_have_delay_no_other_tenant() {
    for (hanging, hosts) in [(1, 1), (2, 1), (2, 8), (3, 8), (20, 1), (20, 8), (40, 4)] {
        let late = is_late_beside(hanging, hosts).await;
        assert!(late <= ms(250), "{hanging} hang on {hosts} hosts: {late:?}");
    }
}

#[tokio::test]
async fn ports_of_one_host_are_targets_of_their_own() {
    let world = CallWorld::new().await;
    world
        .outside
        .http
        .decides(|attempt| match attempt.request.url.port() {
            8_081 => Behaviour::Hang,
            _ => OK,
        });
    for n in 0..300 {
        let name = format!("hangs-{n}");
        let asked = call_to("a", "h.example:8081", &name, world.now());
        world.submit(asked).await;
    }
    world.settle().await;
    for n in 0..100 {
        let asked = call_to("a", "h.example:8082", &n.to_string(), world.now());
        world.submit(asked).await;
    }
    world.advance(secs(1)).await;
    assert_eq!(world.outside.wire.count("ServiceCallSucceeded"), 100);
}
