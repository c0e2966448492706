//! Targets that never answer: whoever calls them holds up nobody else, however the modules are wired.

use std::process::Command;
use std::time::Duration;

use punctual_adapters_system::SystemClock;
use punctual_domain::Timestamp;
use punctual_ports::ClockPort;
use serde_json::json;

use crate::api_client::{Api, calls_command, serve_calls};
use crate::broker::Broker;
use crate::running::{Home, PATIENCE};
use crate::target::Target;

/// So many calls of a tenant go to each target: more than it may have under way there.
const CALLS: usize = 70;

fn submit(api: Api, tenant: &str, url: &str, due_at: Timestamp) {
    let path = format!("/api/tenants/{tenant}/service-calls");
    let request = json!({"method": "GET", "url": url});
    let call = json!({"name": "hang", "dueAt": due_at, "requestSpec": request});
    let answer = api.ask("POST", &path, Some(&call));
    assert_eq!(answer.status, 202, "{answer:?}");
}

/// Looks until a number does not grow for a while any more.
fn settled(number: impl Fn() -> usize) -> usize {
    let (mut before, mut unchanged) = (0, 0);
    while unchanged < 20 {
        std::thread::park_timeout(Duration::from_millis(50));
        let now = number();
        unchanged = if now == before && now > 0 {
            unchanged + 1
        } else {
            0
        };
        before = now;
    }
    before
}

/// Two tenants hang on every slot that they may have, and a third one's calls are made in time: to a
/// target of its own, and to one that the others hang on.
fn a_third_tenant_is_not_late(command: &mut Command) {
    let targets = [(); 4].map(|()| Target::start());
    let own = Target::start();
    let (_serving, api) = serve_calls(command);
    let clock = SystemClock::start().unwrap();
    let now = clock.now();
    std::thread::scope(|scope| {
        for tenant in ["first", "second"] {
            for target in &targets {
                scope.spawn(move || {
                    for _ in 0..CALLS {
                        submit(api, tenant, &target.url("/slow/600000"), now);
                    }
                });
            }
        }
    });
    let hanging = settled(|| targets.iter().map(|target| target.seen().len()).sum());
    assert!((60..=256).contains(&hanging), "{hanging} hang");
    let soon = clock.now().saturating_add(Duration::from_secs(1));
    let due = |n: u64| soon.saturating_add(Duration::from_millis(100 * n));
    for n in 0..10 {
        for target in [&own, &targets[0]] {
            submit(api, "third", &target.url(&format!("/third/{n}")), due(n));
        }
    }
    let give_up = clock
        .now()
        .saturating_add(PATIENCE.min(Duration::from_secs(20)));
    let mut late = Vec::new();
    while late.len() < 20 {
        assert!(
            clock.now() < give_up,
            "after 20 s only {late:?} of 20 were made"
        );
        std::thread::park_timeout(Duration::from_millis(50));
        let seen = [&own, &targets[0]].map(Target::seen).concat();
        let third = seen.iter().filter_map(|request| {
            let n = request.path.strip_prefix("/third/")?;
            Some(request.at.since(due(n.parse().ok()?)))
        });
        late = third.collect();
    }
    late.sort_unstable();
    // A busy machine may hold up one or the other.
    assert!(late[10] <= Duration::from_millis(250), "{late:?}");
    assert!(late[19] <= Duration::from_secs(3), "{late:?}");
}

#[test]
fn two_tenants_that_hang_delay_no_third_one_with_the_default_modules() {
    a_third_tenant_is_not_late(&mut calls_command(&Home::new()));
}

#[test]
fn two_tenants_that_hang_delay_no_third_one_with_timers_in_a_file_of_their_own() {
    let home = Home::new();
    let mut command = calls_command(&home);
    a_third_tenant_is_not_late(command.env("TIMER_DB_PATH", home.path("timer.db")));
}

#[test]
fn two_tenants_that_hang_delay_no_third_one_over_a_broker() {
    let Some(broker) = Broker::shared() else {
        return;
    };
    let home = Home::new();
    let mut command = broker.command(&home, "serve --listen 127.0.0.1:0 --allow-nets 127.0.0.0/8");
    command
        .env_remove("MODULES")
        .env_remove("TIMER_DB_PATH")
        .env("DB_PATH", home.path("calls.db"));
    a_third_tenant_is_not_late(&mut command);
}
