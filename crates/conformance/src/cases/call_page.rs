//! Lists of a tenant's calls: their filters, their order, and pages that neither lose nor repeat a call.

use punctual_domain::service_call::{CallStatus, ServiceCall};
use punctual_ports::{CallPageQuery, PageCursor, PortErrorKind};

use crate::CallStoreFixture;
use crate::calls::{Calls, all_of, details, number, tag, tagged};
use crate::store::{at, key, key_of};

suite! { $ call_page_suite, call_page =>
    the_latest_due_comes_first_and_then_the_greatest_id,
    a_tenant_sees_its_own_calls_only,
    a_list_can_be_of_one_status,
    several_tags_mean_all_of_them,
    a_list_can_be_of_a_range_of_due_times,
    all_filters_combine,
    pages_cover_the_complete_list,
    pages_neither_lose_nor_repeat_what_stays_while_others_come_and_go,
    tags_with_one_call_in_common_are_paged_to_the_end,
    a_cursor_that_no_page_gave_is_rejected,
}

async fn listed(store: &dyn CallStoreFixture, query: CallPageQuery) -> Vec<u128> {
    let page = store.page(query).await;
    assert_eq!(page.next, None, "it is the only page");
    page.calls.iter().map(number).collect()
}

/// Follows the cursors to the end.
async fn all_pages(store: &dyn CallStoreFixture, mut query: CallPageQuery) -> Vec<u128> {
    let mut seen = Vec::new();
    loop {
        let page = store.page(query.clone()).await;
        assert!(page.calls.len() <= query.limit);
        seen.extend(page.calls.iter().map(number));
        query.after = match page.next {
            Some(next) => Some(next),
            None => return seen,
        };
    }
}

/// Calls of one instant have an order too.
pub async fn the_latest_due_comes_first_and_then_the_greatest_id(store: Box<dyn CallStoreFixture>) {
    let calls = [(1, 5_000), (2, 7_000), (3, 5_000), (4, 6_000), (5, 5_000)];
    let calls = calls.map(|(n, due_at)| details(key(n), due_at));
    store.submit_all(calls.to_vec()).await;
    assert_eq!(
        listed(&store, all_of("tenant-a", 10)).await,
        [2, 4, 5, 3, 1]
    );
    let stored = store.found(key(2)).await.call;
    let page = store.page(all_of("tenant-a", 1)).await;
    assert_eq!(page.calls, [stored], "it is complete");
}

/// Whatever the filter.
pub async fn a_tenant_sees_its_own_calls_only(store: Box<dyn CallStoreFixture>) {
    store.submitted(tagged(key(1), 5_000, &["a"])).await;
    store
        .submitted(tagged(key_of("tenant-b", 2), 5_000, &["a"]))
        .await;
    for tags in [vec![], vec![tag("a")]] {
        for status in [None, Some(CallStatus::Scheduled)] {
            let query = CallPageQuery {
                tags: tags.clone(),
                status,
                ..all_of("tenant-b", 10)
            };
            assert_eq!(listed(&store, query).await, [2]);
        }
    }
    assert_eq!(listed(&store, all_of("tenant-c", 10)).await, []);
}

/// Each of the four.
pub async fn a_list_can_be_of_one_status(store: Box<dyn CallStoreFixture>) {
    let calls = (1..=4).map(|n| details(key(n), 5_000)).collect();
    store.submit_all(calls).await;
    store.started(key(2)).await;
    store.ended(key(3), 9_000).await;
    for (status, expected) in [
        (CallStatus::Scheduled, vec![4, 1]),
        (CallStatus::Running, vec![2]),
        (CallStatus::Succeeded, vec![3]),
        (CallStatus::Failed, vec![]),
    ] {
        let query = CallPageQuery {
            status: Some(status),
            ..all_of("tenant-a", 10)
        };
        assert_eq!(listed(&store, query).await, expected, "{status}");
    }
}

/// A tag matches as a complete word.
pub async fn several_tags_mean_all_of_them(store: Box<dyn CallStoreFixture>) {
    let calls = [
        tagged(key(1), 1_000, &["a", "b", "c"]),
        tagged(key(2), 2_000, &["a", "b"]),
        tagged(key(3), 3_000, &["b", "c"]),
        tagged(key(4), 4_000, &["ab", "A"]),
        tagged(key(5), 5_000, &[]),
    ];
    store.submit_all(calls.to_vec()).await;
    for (tags, expected) in [
        (vec!["a"], vec![2, 1]),
        (vec!["b", "a"], vec![2, 1]),
        (vec!["b", "c"], vec![3, 1]),
        (vec!["a", "b", "c"], vec![1]),
        (vec!["a", "a"], vec![2, 1]),
        (vec!["a", "none"], vec![]),
        (vec!["A"], vec![4]),
    ] {
        let query = CallPageQuery {
            tags: tags.iter().map(|text| tag(text)).collect(),
            ..all_of("tenant-a", 10)
        };
        assert_eq!(listed(&store, query).await, expected, "{tags:?}");
    }
}

/// The first instant is in it, the last is not.
pub async fn a_list_can_be_of_a_range_of_due_times(store: Box<dyn CallStoreFixture>) {
    let calls = (1..=4_u32).map(|n| tagged(key(n.into()), i64::from(n) * 1_000, &["a"]));
    store.submit_all(calls.collect()).await;
    for (from, to, expected) in [
        (Some(2_000), None, vec![4, 3, 2]),
        (None, Some(3_000), vec![2, 1]),
        (Some(2_000), Some(3_000), vec![2]),
        (Some(2_001), Some(3_000), vec![]),
        (Some(3_000), Some(2_000), vec![]),
    ] {
        for tags in [vec![], vec![tag("a")]] {
            let query = CallPageQuery {
                from: from.map(at),
                to: to.map(at),
                tags,
                ..all_of("tenant-a", 10)
            };
            assert_eq!(listed(&store, query).await, expected, "{from:?} {to:?}");
        }
    }
}

/// Tags, a status and an interval, page by page.
pub async fn all_filters_combine(store: Box<dyn CallStoreFixture>) {
    let mut expected = Vec::new();
    for n in 1..=40_u32 {
        let tags: &[&str] = match n % 4 {
            0 => &["a", "b"],
            1 => &["a"],
            2 => &["b"],
            _ => &[],
        };
        let call = tagged(key(n.into()), i64::from(n / 2) * 1_000, tags);
        store.submitted(call).await;
        if n % 8 == 0 {
            store.started(key(n.into())).await;
            if (10..36).contains(&n) {
                expected.push(u128::from(n));
            }
        }
    }
    expected.reverse();
    let query = CallPageQuery {
        status: Some(CallStatus::Running),
        tags: vec![tag("a"), tag("b")],
        from: Some(at(5_000)),
        to: Some(at(18_000)),
        ..all_of("tenant-a", 2)
    };
    assert_eq!(all_pages(&store, query).await, expected);
}

/// Whatever their size; and the last one has no cursor.
pub async fn pages_cover_the_complete_list(store: Box<dyn CallStoreFixture>) {
    let calls = (1..=12_u32).map(|n| tagged(key(n.into()), i64::from(n / 5) * 1_000, &["a"]));
    store.submit_all(calls.collect()).await;
    let expected = listed(&store, all_of("tenant-a", 100)).await;
    assert_eq!(expected.len(), 12);
    for limit in [1, 2, 5, 6, 11, 12, 13] {
        let query = all_of("tenant-a", limit);
        assert_eq!(all_pages(&store, query.clone()).await, expected, "{limit}");
        let tags = vec![tag("a")];
        let query = CallPageQuery { tags, ..query };
        assert_eq!(all_pages(&store, query).await, expected, "{limit}");
    }
    let page = store.page(all_of("tenant-a", 12)).await;
    assert_eq!((page.calls.len(), page.next), (12, None));
}

/// Between two pages, calls are added, deleted and changed, the last of a page among them.
pub async fn pages_neither_lose_nor_repeat_what_stays_while_others_come_and_go(
    store: Box<dyn CallStoreFixture>,
) {
    let call = |n: u32| tagged(key(n.into()), i64::from(n % 7) * 1_000, &["a"]);
    store.submit_all((1..=60).map(call).collect()).await;
    let stays = |n: &u128| !n.is_multiple_of(3) && *n <= 60;
    let mut expected = listed(&store, all_of("tenant-a", 100)).await;
    expected.retain(stays);
    let mut new = 100;
    for tags in [vec![], vec![tag("a")]] {
        let mut query = CallPageQuery {
            tags,
            ..all_of("tenant-a", 4)
        };
        let mut seen = Vec::new();
        loop {
            let page = store.page(query.clone()).await;
            let numbers: Vec<u128> = page.calls.iter().map(number).collect();
            for n in numbers.iter().filter(|n| !stays(n)) {
                let stored = store.found(key(*n)).await;
                store.delete(key(*n), stored.version, 9_000).await;
            }
            for n in numbers.iter().filter(|n| stays(n) && **n % 2 == 0) {
                if matches!(store.found(key(*n)).await.call, ServiceCall::Scheduled(_)) {
                    store.started(key(*n)).await;
                }
            }
            // Some of them before the position where the page ended, and some after it.
            for _ in 0..3 {
                new += 3;
                let call = tagged(key_of("tenant-a", new), 3_000, &["a"]);
                store.submit_all(vec![call]).await;
            }
            seen.extend(numbers);
            // New calls after that position would go on without an end.
            match page.next {
                Some(next) if new < 1_000 => query.after = Some(next),
                Some(_) => panic!("the list grows faster than it is read"),
                None => break,
            }
        }
        seen.retain(stays);
        assert_eq!(seen, expected);
        // The next round begins with what this one has left of the calls that come and go.
        for n in 101..=new {
            if let Some(stored) = store.find(key(n)).await {
                store.delete(key(n), stored.version, 9_000).await;
            }
        }
        let back: Vec<_> = (61..=63).map(call).collect();
        if query.tags.is_empty() {
            store.submit_all(back).await;
        }
    }
}

/// Thousands have one tag, thousands the other, and one has both.
pub async fn tags_with_one_call_in_common_are_paged_to_the_end(store: Box<dyn CallStoreFixture>) {
    let call = |n: u32| {
        let tags: &[&str] = match n {
            7 => &["a", "b"],
            n if n % 2 == 0 => &["a"],
            _ => &["b"],
        };
        tagged(key(n.into()), i64::from(n) * 1_000, tags)
    };
    store.submit_all((1..=3_000).map(call).collect()).await;
    let query = CallPageQuery {
        tags: vec![tag("a"), tag("b")],
        ..all_of("tenant-a", 10)
    };
    assert_eq!(all_pages(&store, query).await, [7]);
}

/// And not taken for the beginning.
pub async fn a_cursor_that_no_page_gave_is_rejected(store: Box<dyn CallStoreFixture>) {
    store.submitted(details(key(1), 5_000)).await;
    for text in [
        "",
        "7",
        "a.b",
        "5000.",
        ".",
        "99999999999999999999.x",
        "' OR 1=1",
    ] {
        let query = CallPageQuery {
            after: Some(PageCursor(text.to_owned())),
            ..all_of("tenant-a", 10)
        };
        let cursor = PageCursor(text.to_owned());
        let checked = store.calls().check_cursor(&cursor).unwrap_err();
        assert_eq!(checked.kind(), PortErrorKind::Rejected, "{text:?}");
        let refused = store.calls().page(query).await.unwrap_err();
        assert_eq!(refused.kind(), PortErrorKind::Rejected, "{text:?}");
    }
}
