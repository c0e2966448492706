//! No id is issued twice.

use std::collections::BTreeSet;
use std::sync::Arc;

use uuid::Uuid;

use crate::IdFixture;

suite! { $ id_suite, ids =>
    no_two_ids_are_the_same_from_whatever_threads,
    ids_of_one_caller_grow,
    ids_are_version_seven,
}

/// Four threads, a thousand ids each.
pub async fn no_two_ids_are_the_same_from_whatever_threads(fixture: Box<dyn IdFixture>) {
    let ids = fixture.ids();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let ids = Arc::clone(&ids);
            std::thread::spawn(move || (0..1_000).map(|_| ids.next_id()).collect::<Vec<Uuid>>())
        })
        .collect();
    let mut all = BTreeSet::new();
    for thread in threads {
        all.extend(thread.join().expect("no panic"));
    }
    assert_eq!(all.len(), 4_000);
}

/// So that they sort by when they were made.
pub async fn ids_of_one_caller_grow(fixture: Box<dyn IdFixture>) {
    let ids = fixture.ids();
    let made: Vec<Uuid> = (0..1_000).map(|_| ids.next_id()).collect();
    assert!(made.is_sorted());
}

/// As the contract says.
pub async fn ids_are_version_seven(fixture: Box<dyn IdFixture>) {
    assert_eq!(fixture.ids().next_id().get_version_num(), 7);
}
