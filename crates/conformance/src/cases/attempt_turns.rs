//! Which attempt is next: tenants take turns, and so do the hosts of one tenant.

use std::collections::BTreeSet;

use punctual_domain::TimerKey;
use punctual_ports::{Execution, WaitingQuery};

use crate::CallStoreFixture;
use crate::calls::{Calls, details, execution, waiting_up_to as query};
use crate::store::{LEASE, at, key_of, outcomes};

suite! { $ attempt_turns_suite, attempt_turns =>
    the_oldest_of_a_tenant_and_host_come_first,
    tenants_take_turns_beginning_after_the_last,
    hosts_take_turns_within_a_tenant,
    a_query_returns_no_more_than_its_limits,
    saturated_tenants_and_hosts_are_left_out,
    a_tenant_saturated_at_one_host_is_left_out_there_only,
    two_ports_of_a_host_are_two_hosts,
    a_tenant_whose_hosts_are_all_left_out_hides_no_other,
    continuing_after_the_last_answer_reaches_every_tenant_and_host,
    ten_thousand_for_one_host_hide_no_other,
    a_claim_starts_what_was_chosen_and_leaves_the_rest_in_turn,
}

/// A host as queries name it: fixtures send by https.
fn target(host: &str) -> String {
    format!("{host}:443")
}

/// A waiting attempt: its tenant, its host and when it was dispatched.
type Wait = (&'static str, &'static str, i64);

/// Three tenants at two hosts.
const FIVE: [Wait; 5] = [
    ("a", "x", 1_000),
    ("a", "y", 1_000),
    ("b", "x", 1_000),
    ("b", "y", 1_000),
    ("c", "x", 1_000),
];

/// The calls and their attempts, numbered from one.
async fn fill(store: &dyn CallStoreFixture, waits: &[Wait]) {
    for (number, (tenant, host, accepted_at)) in waits.iter().enumerate() {
        let key = key_of(tenant, number as u128 + 1);
        store.waiting(key, host, *accepted_at).await;
    }
}

/// A claim that starts none, so that each sees the same.
async fn given(store: &dyn CallStoreFixture, query: WaitingQuery) -> Vec<Execution> {
    store.asked(query).await
}

fn numbers(given: &[Execution]) -> Vec<u128> {
    let number = |key: &TimerKey| key.service_call_id.as_uuid().as_u128();
    given.iter().map(|it| number(&it.key.call)).collect()
}

fn sorted(given: &[Execution]) -> Vec<u128> {
    let mut numbers = numbers(given);
    numbers.sort_unstable();
    numbers
}

/// By dispatch time, and then in the order of arrival.
pub async fn the_oldest_of_a_tenant_and_host_come_first(store: Box<dyn CallStoreFixture>) {
    let waits = [
        ("a", "h", 3_000),
        ("a", "h", 1_000),
        ("a", "h", 2_000),
        ("a", "h", 1_000),
    ];
    fill(&store, &waits).await;
    assert_eq!(numbers(&given(&store, query(10)).await), [2, 4, 3, 1]);
    assert_eq!(numbers(&given(&store, query(2)).await), [2, 4]);
}

/// One each, and then another, for as long as there are any.
pub async fn tenants_take_turns_beginning_after_the_last(store: Box<dyn CallStoreFixture>) {
    let waits = [
        ("a", "h", 1_000),
        ("a", "h", 1_000),
        ("a", "h", 1_000),
        ("b", "h", 2_000),
        ("c", "h", 3_000),
        ("c", "h", 3_000),
    ];
    fill(&store, &waits).await;
    for (after, expected) in [
        (None, [1, 4, 5, 2, 6, 3]),
        (Some("a"), [4, 5, 1, 6, 2, 3]),
        (Some("b"), [5, 1, 4, 6, 2, 3]),
        (Some("bb"), [5, 1, 4, 6, 2, 3]),
        (Some("z"), [1, 4, 5, 2, 6, 3]),
    ] {
        let query = WaitingQuery {
            after_tenant: after.map(|tenant| key_of(tenant, 0).tenant_id),
            ..query(10)
        };
        assert_eq!(numbers(&given(&store, query).await), expected, "{after:?}");
    }
}

/// Beginning after the last one.
pub async fn hosts_take_turns_within_a_tenant(store: Box<dyn CallStoreFixture>) {
    let waits = [
        ("a", "x", 1_000),
        ("a", "x", 1_000),
        ("a", "x", 1_000),
        ("a", "y", 2_000),
        ("a", "z", 3_000),
        ("a", "z", 3_000),
    ];
    fill(&store, &waits).await;
    for (after, expected) in [
        (None, [1, 4, 5, 2, 6, 3]),
        (Some("x"), [4, 5, 1, 6, 2, 3]),
        (Some("y"), [5, 1, 4, 6, 2, 3]),
    ] {
        let query = WaitingQuery {
            after_tenant: Some(key_of("a", 0).tenant_id),
            after_host: after.map(target),
            ..query(10)
        };
        assert_eq!(numbers(&given(&store, query).await), expected, "{after:?}");
    }
}

/// Altogether, of one tenant, and of one tenant to one host.
pub async fn a_query_returns_no_more_than_its_limits(store: Box<dyn CallStoreFixture>) {
    let mut waits = Vec::new();
    for tenant in ["a", "b", "c"] {
        for host in ["x", "y", "z"] {
            waits.extend([(tenant, host, 1_000); 4]);
        }
    }
    fill(&store, &waits).await;
    for (limit, per_tenant, per_host, expected) in [
        (100, 100, 100, 36),
        (10, 100, 100, 10),
        (100, 5, 100, 15),
        (100, 100, 2, 18),
        (100, 5, 1, 9),
        (4, 2, 1, 4),
        (0, 100, 100, 0),
        (100, 0, 100, 0),
        (100, 100, 0, 0),
    ] {
        let query = WaitingQuery {
            per_tenant,
            per_host,
            ..query(limit)
        };
        let given = given(&store, query).await;
        let limits = (limit, per_tenant, per_host);
        assert_eq!(given.len(), expected, "{limits:?}");
        let count = |is_it: &dyn Fn(&&Execution) -> bool| given.iter().filter(is_it).count();
        for one in &given {
            let tenant = &one.key.call.tenant_id;
            let host = one.request.url.host_and_port();
            let of_tenant = |it: &&Execution| it.key.call.tenant_id == *tenant;
            let of_host = |it: &&Execution| of_tenant(it) && it.request.url.host_and_port() == host;
            assert!(count(&of_tenant) <= per_tenant && count(&of_host) <= per_host);
        }
        let keys: BTreeSet<_> = given.iter().map(|it| &it.key).collect();
        assert_eq!(keys.len(), given.len(), "none is given twice");
    }
}

/// Wherever the turn would be.
pub async fn saturated_tenants_and_hosts_are_left_out(store: Box<dyn CallStoreFixture>) {
    fill(&store, &FIVE).await;
    for (tenants, hosts, expected) in [
        (vec!["a"], vec![], vec![3, 5, 4]),
        (vec![], vec!["x"], vec![2, 4]),
        (vec!["b"], vec!["y"], vec![1, 5]),
        (vec!["a", "b", "c"], vec![], vec![]),
        (vec![], vec!["x", "y"], vec![]),
    ] {
        let query = WaitingQuery {
            without_tenants: tenants.iter().map(|it| key_of(it, 0).tenant_id).collect(),
            without_hosts: hosts.iter().map(|&host| target(host)).collect(),
            // What was given before says where hosts go on; here, from the beginning.
            after_tenant: Some(key_of("z", 0).tenant_id),
            ..query(10)
        };
        let given = sorted(&given(&store, query).await);
        let mut expected = expected;
        expected.sort_unstable();
        assert_eq!(given, expected, "without {tenants:?} and {hosts:?}");
    }
}

/// Neither its other hosts nor other tenants at that host are.
pub async fn a_tenant_saturated_at_one_host_is_left_out_there_only(
    store: Box<dyn CallStoreFixture>,
) {
    fill(&store, &FIVE).await;
    for (without, expected) in [
        (vec![("a", "x")], vec![2, 3, 4, 5]),
        (vec![("a", "x"), ("b", "y")], vec![2, 3, 5]),
        (vec![("a", "x"), ("a", "y")], vec![3, 4, 5]),
        (vec![("c", "x"), ("c", "z"), ("d", "x")], vec![1, 2, 3, 4]),
    ] {
        let pair = |(tenant, host): &(&str, &str)| (key_of(tenant, 0).tenant_id, target(host));
        for limit in [10, expected.len()] {
            let query = WaitingQuery {
                without: without.iter().map(pair).collect(),
                ..query(limit)
            };
            let given = sorted(&given(&store, query).await);
            assert_eq!(given, expected, "without {without:?}, limit {limit}");
        }
    }
}

/// Each has its turn, and is left out by itself.
pub async fn two_ports_of_a_host_are_two_hosts(store: Box<dyn CallStoreFixture>) {
    let waits = [
        ("a", "x:1", 1_000),
        ("a", "x:1", 1_000),
        ("a", "x:1", 1_000),
        ("a", "x:2", 2_000),
        ("a", "x", 3_000),
    ];
    fill(&store, &waits).await;
    let first = sorted(&given(&store, query(3)).await);
    assert_eq!(first, [1, 4, 5]);
    let query = WaitingQuery {
        without_hosts: vec!["x:1".to_owned()],
        ..query(10)
    };
    let others = sorted(&given(&store, query).await);
    assert_eq!(others, [4, 5]);
}

/// Its turn is passed over.
pub async fn a_tenant_whose_hosts_are_all_left_out_hides_no_other(
    store: Box<dyn CallStoreFixture>,
) {
    let waits = [
        ("a", "x", 1_000),
        ("b", "x", 1_000),
        ("c", "y", 1_000),
        ("c", "y", 1_000),
    ];
    fill(&store, &waits).await;
    for (limit, expected) in [(1, vec![3]), (2, vec![3, 4]), (3, vec![3, 4])] {
        let query = WaitingQuery {
            without_hosts: vec![target("x")],
            ..query(limit)
        };
        assert_eq!(numbers(&given(&store, query).await), expected, "{limit}");
    }
}

/// Also one at a time, and if none of them ever starts.
pub async fn continuing_after_the_last_answer_reaches_every_tenant_and_host(
    mut store: Box<dyn CallStoreFixture>,
) {
    let mut waits = Vec::new();
    for tenant in ["a", "b", "c", "d"] {
        for host in ["w", "x", "y", "z"] {
            waits.extend([(tenant, host, 1_000); 3]);
        }
    }
    waits.push(("e", "w", 1_000));
    fill(&store, &waits).await;
    for limit in [1, 2, 3, 5] {
        let mut seen = BTreeSet::new();
        let mut next = query(limit);
        // Each of the five tenants comes every fifth time, and each of its hosts every fourth.
        for _ in 0..20 {
            let given = given(&store, next.clone()).await;
            let last = given.last().expect("something waits");
            next.after_tenant = Some(last.key.call.tenant_id.clone());
            next.after_host = Some(last.request.url.host_and_port());
            for one in given {
                let host = one.request.url.host_and_port();
                seen.insert((one.key.call.tenant_id, host));
            }
        }
        assert_eq!(seen.len(), 17, "limit {limit}");
        store.crash_and_reopen().await;
    }
}

/// Neither another host of the same tenant nor another tenant.
pub async fn ten_thousand_for_one_host_hide_no_other(store: Box<dyn CallStoreFixture>) {
    let keys = (1..=10_000).map(|n| key_of("m", n));
    let calls = keys.clone().map(|key| details(key, 5_000)).collect();
    store.prepare(calls).await;
    let attempts = keys.map(|key| execution(key, "h", 1_000)).collect();
    store.attempts().accept(attempts).await.unwrap();
    for (number, (tenant, host)) in [("m", "a"), ("m", "z"), ("b", "h"), ("z", "h")]
        .into_iter()
        .enumerate()
    {
        store
            .waiting(key_of(tenant, 20_000 + number as u128), host, 9_000)
            .await;
    }
    let query = WaitingQuery {
        per_tenant: 4,
        per_host: 2,
        ..query(8)
    };
    let given = given(&store, query).await;
    assert_eq!(sorted(&given), [1, 2, 20_000, 20_001, 20_002, 20_003]);
}

/// Each is asked about once, and no other is started in place of one that was left.
pub async fn a_claim_starts_what_was_chosen_and_leaves_the_rest_in_turn(
    store: Box<dyn CallStoreFixture>,
) {
    fill(&store, &FIVE).await;
    let mut asked = Vec::new();
    let mut start = |execution: &Execution| {
        asked.push(execution.clone());
        let is_odd = asked.len() % 2 == 1;
        is_odd.then(Vec::new)
    };
    let attempts = store.attempts();
    let claimed = attempts.claim(query(4), at(2_000), LEASE, &mut start);
    let claimed: Vec<Execution> = outcomes(claimed.await)
        .into_iter()
        .map(|claimed| claimed.execution)
        .collect();
    assert_eq!(asked.len(), 4);
    assert_eq!(claimed, [asked[0].clone(), asked[2].clone()]);
    let left = sorted(&given(&store, query(10)).await);
    assert_eq!(left.len(), 3);
    assert!(
        numbers(&claimed)
            .iter()
            .all(|number| !left.contains(number))
    );
}
