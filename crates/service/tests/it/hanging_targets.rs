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

/// Number of calls of a tenant to each target: more than it may have in flight there.
const CALLS: usize = 70;

fn submit(api: Api, tenant: &str, url: &str, due_at: Timestamp) {
    let path = format!("/api/tenants/{tenant}/service-calls");
    let request = json!({"method": "GET", "url": url});
    let call = json!({"name": "hang", "dueAt": due_at, "requestSpec": request});
    let answer = api.ask("POST", &path, Some(&call));
    assert_eq!(answer.status, 202, "{answer:?}");
}

/// Polls a number until it has not grown for a while.
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
    is_not_late(api, "third", &[&own, &targets[0]]);
}

/// Twenty calls of a tenant, to whichever of these targets, are made in time.
pub(crate) fn is_not_late(api: Api, tenant: &str, targets: &[&Target]) {
    let clock = SystemClock::start().unwrap();
    let soon = clock.now().saturating_add(Duration::from_secs(1));
    let due = |n: u64| soon.saturating_add(Duration::from_millis(50 * n));
    for (n, target) in (0..20).zip(targets.iter().cycle()) {
        submit(api, tenant, &target.url(&format!("/{tenant}/{n}")), due(n));
    }
    let begun = clock.monotonic();
    let mut late = Vec::new();
    while late.len() < 20 {
        let waited = clock.monotonic().saturating_sub(begun);
        assert!(
            waited < PATIENCE,
            "after {waited:?} only {late:?} of 20 were made"
        );
        std::thread::park_timeout(Duration::from_millis(50));
        let seen = targets.iter().flat_map(|target| target.seen());
        let own = seen.filter_map(|request| {
            let n = request.path.strip_prefix(&format!("/{tenant}/"))?;
            Some(request.at.since(due(n.parse().ok()?)))
        });
        late = own.collect();
    }
    late.sort_unstable();
    // A busy machine may hold up one or the other.
    assert!(late[10] <= Duration::from_millis(250), "{late:?}");
    assert!(late[19] <= Duration::from_secs(3), "{late:?}");
}

/// Its timers all fire into the store, and far more attempts wait than it may have under way.
#[test]
fn thousands_of_due_calls_that_hang_make_no_other_tenant_late_with_the_default_modules() {
    const DUE: usize = 2_000;
    let (home, hanging, own) = (Home::new(), Target::start(), Target::start());
    let (_serving, api) = serve_calls(&mut calls_command(&home));
    let now = SystemClock::start().unwrap().now();
    let url = hanging.url("/slow/600000");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..DUE / 8).for_each(|_| submit(api, "hanging", &url, now)));
        }
    });
    is_not_late(api, "other", &[&own, &hanging]);
    let under_way = hanging.seen().len();
    assert!((32..DUE / 2).contains(&under_way), "{under_way} hang");
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
