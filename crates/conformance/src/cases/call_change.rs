//! A change applies to the version that its caller read, together with its messages, or not at all.

use punctual_domain::messages::Listeners;
use punctual_domain::service_call::{CallStep, ServiceCall};
use punctual_ports::{CallChange, ChangeOutcome};

use ChangeOutcome::{Changed, Outdated};

use crate::CallStoreFixture;
use crate::calls::{
    CANARY, Calls, details, envelope_id, failed, finished, new_call, running, scheduled, start,
    succeeded, tagged,
};
use crate::store::{at, key, key_of, outcomes};

suite! { $ call_change_suite, call_change =>
    a_change_raises_the_version_by_one,
    every_state_comes_back_as_it_was_given,
    a_change_of_another_version_is_outdated_and_publishes_nothing,
    a_finished_call_does_not_change_any_more,
    a_call_that_is_not_there_cannot_be_changed,
    the_messages_of_changes_are_in_the_order_of_the_changes,
    a_finished_call_is_kept_without_its_secrets,
    a_change_touches_no_other_call,
    changes_of_one_batch_apply_in_their_order,
}

/// Whatever it is.
pub async fn a_change_raises_the_version_by_one(store: Box<dyn CallStoreFixture>) {
    let first = store.submitted(details(key(1), 5_000)).await;
    let second = store.started(key(1)).await;
    assert_eq!(second.version, first.version + 1);
    let step = running(&second).redispatch(at(70_000));
    assert_eq!(store.change(second.version, step, 70_000).await, Changed);
    assert_eq!(store.found(key(1)).await.version, first.version + 2);
}

/// Scheduled, running, with and without its beginning, succeeded and failed.
pub async fn every_state_comes_back_as_it_was_given(mut store: Box<dyn CallStoreFixture>) {
    for (n, outcome) in [(1, succeeded()), (2, failed())] {
        let call = tagged(key(n), 5_000, &["a", "b"]);
        let mut stored = store.submitted(call.clone()).await;
        assert_eq!(scheduled(&stored).details, call);
        let step = scheduled(&stored).start(start(at(5_001))).unwrap();
        let ServiceCall::Running(started) = step.call.clone() else {
            panic!("a call that was started is running");
        };
        let began = started.clone().attempt_started(at(6_000));
        let ended = began.clone().finish(outcome, at(7_000), envelope_id());
        for call in [step.call, ServiceCall::Running(began), ended.call] {
            let step = CallStep {
                call: call.clone(),
                outgoing: Vec::new(),
            };
            assert_eq!(store.change(stored.version, step, 5_000).await, Changed);
            stored = store.found(key(n)).await;
            assert_eq!(stored.call, call);
            store.crash_and_reopen().await;
            assert_eq!(store.found(key(n)).await, stored);
        }
    }
}

/// Another writer was faster.
pub async fn a_change_of_another_version_is_outdated_and_publishes_nothing(
    store: Box<dyn CallStoreFixture>,
) {
    let seen = store.submitted(details(key(1), 5_000)).await;
    let now = store.started(key(1)).await;
    let messages = store.messages().await;
    for version in [seen.version, now.version + 1, 0, u64::MAX] {
        let step = running(&now).finish(succeeded(), at(9_000), envelope_id());
        let changed = store.change(version, step, 9_000).await;
        assert_eq!(changed, Outdated, "{version}");
    }
    assert_eq!(store.found(key(1)).await, now);
    assert_eq!(store.messages().await, messages);
}

/// Whatever version its caller read.
pub async fn a_finished_call_does_not_change_any_more(store: Box<dyn CallStoreFixture>) {
    store.submitted(details(key(1), 5_000)).await;
    let before = store.started(key(1)).await;
    let step = running(&before).finish(failed(), at(9_000), envelope_id());
    store.change(before.version, step, 9_000).await;
    let ended = store.found(key(1)).await;
    let again = running(&before).finish(succeeded(), at(9_500), envelope_id());
    assert_eq!(store.change(ended.version, again, 9_500).await, Outdated);
    assert_eq!(store.found(key(1)).await, ended);
}

/// It changes nothing and stores no message.
pub async fn a_call_that_is_not_there_cannot_be_changed(store: Box<dyn CallStoreFixture>) {
    let step = details(key(1), 5_000).schedule();
    assert_eq!(store.change(1, step, 5_000).await, Outdated);
    assert_eq!(store.find(key(1)).await, None);
    assert_eq!(store.messages().await, []);
}

/// And those of one change keep their own.
pub async fn the_messages_of_changes_are_in_the_order_of_the_changes(
    store: Box<dyn CallStoreFixture>,
) {
    let new = new_call(details(key(1), 5_000));
    store.submit(new).await;
    store.ended(key(1), 9_000).await;
    let about = store.outbox().about(key(1), 10).await;
    let about = about.expect("about answers");
    let types: Vec<&str> = about
        .iter()
        .map(|it| it.envelope.message.type_name())
        .collect();
    assert_eq!(
        types,
        [
            "ServiceCallSubmitted",
            "ScheduleTimer",
            "ServiceCallScheduled",
            "ServiceCallRunning",
            "StartExecution",
            "ServiceCallSucceeded",
        ]
    );
}

/// Until then they are needed.
pub async fn a_finished_call_is_kept_without_its_secrets(store: Box<dyn CallStoreFixture>) {
    store.submitted(details(key(1), 5_000)).await;
    let before = store.started(key(1)).await;
    let headers = &before.call.details().request.headers;
    assert_eq!(headers.get("Authorization"), Some(CANARY));
    let step = running(&before).finish(succeeded(), at(9_000), envelope_id());
    store.change(before.version, step, 9_000).await;
    let kept = finished(&store.found(key(1)).await);
    let request = &kept.details().request;
    assert_ne!(request.headers.get("Authorization"), Some(CANARY));
    assert_eq!(request.headers.get("Accept"), Some("text/plain"));
}

/// Of the same id in another tenant least of all.
pub async fn a_change_touches_no_other_call(store: Box<dyn CallStoreFixture>) {
    let theirs = store.submitted(details(key_of("tenant-b", 1), 5_000)).await;
    let beside = store.submitted(details(key(2), 5_000)).await;
    store.submitted(details(key(1), 5_000)).await;
    store.ended(key(1), 9_000).await;
    assert_eq!(store.found(key_of("tenant-b", 1)).await, theirs);
    assert_eq!(store.found(key(2)).await, beside);
}

/// The second sees what the first has done.
pub async fn changes_of_one_batch_apply_in_their_order(store: Box<dyn CallStoreFixture>) {
    let seen = store.submitted(details(key(1), 5_000)).await;
    let change = |expected_version: u64| CallChange {
        call: details(key(1), 5_000).schedule().call,
        expected_version,
        outbox: Vec::new(),
        listeners: Listeners::Anyone,
    };
    let batch = [seen.version, seen.version, seen.version + 1].map(change);
    let answers = store.calls().change(batch.to_vec()).await;
    assert_eq!(outcomes(answers), [Changed, Outdated, Changed]);
    assert_eq!(store.found(key(1)).await.version, seen.version + 2);
}
