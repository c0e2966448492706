//! What a broker has lost is published again: all of it, under the same ids, and until it is taken.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use punctual_adapters_memory::faults::Fault;
use punctual_domain::{MessageEnvelope, TimerKey};
use punctual_ports::{
    BusPositionPort, DeadLetter, DeadLetterPort, FiredTimer, MarkOutcome, PortErrorKind,
    PublishOutcome, TimerPersistencePort, TimerStores,
};
use punctual_workflows::{RepublishLost, TimerPorts, TimerRequest, WorkerStopped};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::losing_bus::{LosingBus, accept, timer_of, trouble};
use crate::world::{World, key, key_of, ms, secs};

/// A world whose firings a second bus has lost, and whoever publishes them again.
struct Lossy {
    world: World,
    bus: Arc<LosingBus>,
}

struct Task {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), WorkerStopped>>,
}

impl Task {
    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap().unwrap();
    }
}

impl Lossy {
    async fn new() -> Self {
        let world = World::new().await;
        let bus = LosingBus::new(&world.clock);
        Self { world, bus }
    }

    fn ports(&self) -> TimerPorts {
        let mut ports = self.world.ports.clone();
        ports.bus = self.bus.clone();
        ports
    }

    fn start(&self) -> Task {
        let (stop, stopped) = oneshot::channel::<()>();
        let store = TimerStores::new(self.world.store.clone());
        let republish = RepublishLost::new(&self.ports(), &store);
        let task = tokio::spawn(republish.run(async move { _ = stopped.await }));
        Task { stop, task }
    }

    /// Fires timers of these names, a second apart, the first after one second.
    async fn fire(&self, names: &[&str]) {
        for name in names {
            self.world.schedule(&key(name), secs(1)).await;
            self.world.advance(secs(1)).await;
            assert!(self.world.is_reached(&key(name)).await);
        }
    }

    async fn dead_letters(&self) -> Vec<DeadLetter> {
        let dead_letters = self.world.store.list(None, 10_000).await.unwrap();
        dead_letters
            .into_iter()
            .map(|stored| stored.dead_letter)
            .collect()
    }

    /// Lets the task do what it can without time passing.
    async fn settle(&self) {
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn exactly_what_was_fired_since_is_published_again() {
    let lossy = Lossy::new().await;
    lossy.fire(&["a", "b", "c"]).await;
    let other = key_of("tenant-b", "d");
    lossy.world.schedule(&other, secs(1)).await;
    lossy.world.schedule(&key("waits"), secs(100)).await;
    lossy.world.advance(secs(1)).await;
    // "b" was reached two seconds ago, and to the instant.
    let since = lossy.world.now().saturating_sub(secs(2));
    let task = lossy.start();
    lossy.settle().await;
    assert!(lossy.bus.timers().is_empty(), "nothing is lost yet");
    lossy.bus.loses(1, since);
    lossy.settle().await;
    assert_eq!(lossy.bus.timers(), [key("b"), key("c"), other]);
    assert_eq!(lossy.bus.recovered(), [(1, 1)]);
    task.stop().await;
}

#[tokio::test]
async fn an_event_is_published_again_as_it_was_under_its_firing_id() {
    let lossy = Lossy::new().await;
    let data = punctual_domain::TimerData::from_json("{\"a\": 1}").unwrap();
    let request = TimerRequest {
        data: Some(data),
        ..TimerRequest::at(key("a"), lossy.world.in_(secs(1)))
    };
    lossy.world.timers.schedule(vec![request]).await.unwrap();
    lossy.world.advance(secs(5)).await;
    lossy
        .bus
        .loses(1, lossy.world.now().saturating_sub(secs(60)));
    let task = lossy.start();
    lossy.settle().await;
    let first = lossy.world.ledger.seen()[0].envelope.clone();
    let again = lossy.bus.envelopes();
    assert_eq!(again.len(), 1);
    assert_ne!(again[0].id, first.id, "another envelope");
    let expected = MessageEnvelope {
        id: again[0].id,
        timestamp: lossy.world.now(),
        ..first.clone()
    };
    assert_eq!(again[0], expected);
    let written = lossy.world.now().since(first.timestamp);
    assert_eq!(written, secs(4), "it was written again, later");
    task.stop().await;
}

#[tokio::test]
async fn what_the_bus_does_not_take_is_tried_again_by_itself() {
    let lossy = Lossy::new().await;
    let since = lossy.world.now();
    lossy.fire(&["a", "b", "c", "d", "e"]).await;
    let mut calls = 0;
    lossy.bus.answers(move |batch| {
        calls += 1;
        match calls {
            // One is taken, one was there, one fails by itself, one the bus cannot take, and of the
            // last it says nothing.
            1 => Some(Ok(vec![
                Ok(PublishOutcome::Accepted),
                Err(trouble(PortErrorKind::HandlerFailed)),
                Ok(PublishOutcome::Duplicate),
                Err(trouble(PortErrorKind::Unavailable)),
            ])),
            2 => Some(Err(trouble(PortErrorKind::Unavailable))),
            _ => accept(batch),
        }
    });
    lossy.bus.loses(1, since);
    let task = lossy.start();
    lossy.settle().await;
    assert_eq!(
        lossy.bus.batches().len(),
        1,
        "it waits before it tries again"
    );
    assert!(lossy.bus.recovered().is_empty());
    lossy.world.advance(secs(2)).await;
    let left = vec![key("d"), key("e")];
    let expected = [left.clone(), left, vec![key("b")]];
    assert_eq!(lossy.bus.batches()[1..], expected);
    assert_eq!(lossy.bus.recovered(), [(1, 4)], "not before all are taken");
    task.stop().await;
}

#[tokio::test]
async fn a_bus_that_is_away_is_tried_less_and_less_often_but_for_ever() {
    let lossy = Lossy::new().await;
    let since = lossy.world.now();
    lossy.fire(&["a"]).await;
    lossy
        .bus
        .answers(|_| Some(Err(trouble(PortErrorKind::Unavailable))));
    lossy.bus.loses(1, since);
    let task = lossy.start();
    lossy.settle().await;
    lossy.world.advance(secs(600)).await;
    let times = lossy.bus.times();
    let gaps: Vec<Duration> = times.windows(2).map(|two| two[1].since(two[0])).collect();
    assert!(gaps[0] >= ms(75) && gaps[0] <= ms(101), "{gaps:?}");
    assert!(gaps.iter().all(|gap| *gap <= ms(5_001)), "{gaps:?}");
    assert!(gaps[10..].iter().all(|gap| *gap >= ms(3_750)), "{gaps:?}");
    assert!(lossy.bus.recovered().is_empty());
    lossy.bus.answers(accept);
    lossy.world.advance(secs(6)).await;
    assert_eq!(lossy.bus.recovered().len(), 1);
    task.stop().await;
}

#[tokio::test]
async fn what_is_refused_for_ever_holds_up_nothing() {
    let lossy = Lossy::new().await;
    let since = lossy.world.now();
    lossy.fire(&["good", "poison"]).await;
    lossy.bus.answers(|batch| {
        let answer = |envelope| {
            Ok(if timer_of(envelope) == key("poison") {
                let reason = "too large".to_owned();
                PublishOutcome::Refused { reason }
            } else {
                PublishOutcome::Accepted
            })
        };
        Some(Ok(batch.iter().map(answer).collect()))
    });
    lossy.bus.loses(1, since);
    let task = lossy.start();
    lossy.settle().await;
    assert_eq!(lossy.bus.timers().len(), 2);
    assert_eq!(lossy.bus.recovered(), [(1, 1)]);
    assert_eq!(lossy.dead_letters().await.len(), 1);
    task.stop().await;
}

/// Stores timers as fired, without a worker.
async fn fired(world: &World, count: usize) -> Vec<TimerKey> {
    let due_at = world.now();
    let keys: Vec<TimerKey> = (0..count).map(|n| key(&n.to_string())).collect();
    let requests = keys.iter().map(|key| TimerRequest::at(key.clone(), due_at));
    world.timers.schedule(requests.collect()).await.unwrap();
    for (place, key) in keys.iter().enumerate() {
        let entry = world.store.find(key.clone()).await.unwrap().unwrap();
        let fired = FiredTimer {
            firing_id: entry.timer().firing_id(),
            // Three of them in each millisecond.
            reached_at: due_at.saturating_add(ms(place as u64 / 3)),
        };
        let marked = world.store.mark_fired(vec![fired]).await.unwrap();
        assert_eq!(*marked[0].as_ref().unwrap(), MarkOutcome::Marked);
    }
    keys
}

#[tokio::test]
async fn thousands_of_firings_are_never_in_memory_together() {
    let lossy = Lossy::new().await;
    let mut keys = fired(&lossy.world, 5_250).await;
    let mut calls = 0;
    // Every second page fails at first, and its firings are tried again.
    lossy.bus.answers(move |batch| {
        calls += 1;
        match calls % 3 {
            2 => Some(Err(trouble(PortErrorKind::Overloaded))),
            _ => accept(batch),
        }
    });
    lossy.bus.loses(1, lossy.world.now());
    let task = lossy.start();
    lossy.settle().await;
    lossy.world.advance(secs(60)).await;
    let batches = lossy.bus.batches();
    assert!(batches.iter().all(|batch| batch.len() <= 500));
    assert_eq!(batches.len(), 11 + 5);
    let mut seen = lossy.bus.timers();
    seen.sort_unstable();
    seen.dedup();
    keys.sort_unstable();
    assert_eq!(seen, keys);
    assert_eq!(lossy.bus.recovered(), [(1, 16)]);
    task.stop().await;
}

/// Acknowledged by the bus that has lost it since, and not marked yet: it is on no page before it is.
#[tokio::test]
async fn a_firing_that_is_not_marked_yet_is_waited_for() {
    let lossy = Lossy::new().await;
    let since = lossy.world.now();
    for call in 1..=5 {
        let fault = Fault::FailBefore(PortErrorKind::Busy);
        lossy.world.faults.at_call_of("mark_fired", call, fault);
    }
    lossy.world.schedule(&key("a"), secs(1)).await;
    lossy.world.advance(secs(1)).await;
    assert_eq!(lossy.world.ledger.count(&key("a")), 1);
    assert!(!lossy.world.is_reached(&key("a")).await);
    lossy.bus.loses(1, since);
    let task = lossy.start();
    lossy.settle().await;
    assert!(lossy.bus.recovered().is_empty());
    lossy.world.advance(secs(30)).await;
    assert_eq!(lossy.bus.timers(), [key("a")]);
    assert_eq!(lossy.bus.recovered(), [(1, 1)]);
    task.stop().await;
}

/// Others begin all the time.
#[tokio::test]
async fn a_firing_that_begins_after_the_loss_is_not_waited_for() {
    let lossy = Lossy::new().await;
    let since = lossy.world.now();
    lossy.fire(&["a"]).await;
    lossy
        .bus
        .answers(|_| Some(Err(trouble(PortErrorKind::Busy))));
    lossy.bus.loses(1, since);
    let task = lossy.start();
    lossy.settle().await;
    lossy.world.answers_after(secs(1_000));
    lossy.world.schedule(&key("slow"), secs(1)).await;
    lossy.world.advance(secs(10)).await;
    lossy.bus.answers(accept);
    lossy.world.advance(secs(10)).await;
    assert_eq!(lossy.bus.recovered().len(), 1);
    assert!(!lossy.world.is_reached(&key("slow")).await);
    task.stop().await;
}

#[tokio::test]
async fn a_process_that_ends_in_between_begins_again_from_the_start() {
    let lossy = Lossy::new().await;
    fired(&lossy.world, 700).await;
    let mut calls = 0;
    lossy.bus.answers(move |batch| {
        calls += 1;
        if calls == 2 { None } else { accept(batch) }
    });
    lossy.bus.loses(1, lossy.world.now());
    let task = lossy.start();
    lossy.settle().await;
    assert_eq!(lossy.bus.batches().len(), 2, "the second hangs");
    task.task.abort();
    assert!(lossy.bus.recovered().is_empty());
    let task = lossy.start();
    lossy.settle().await;
    let batches = lossy.bus.batches();
    let sizes: Vec<usize> = batches.iter().map(Vec::len).collect();
    assert_eq!(sizes, [500, 200, 500, 200]);
    assert_eq!(lossy.bus.recovered(), [(1, 4)]);
    task.stop().await;
}

#[tokio::test]
async fn that_all_is_published_is_said_until_it_is_heard() {
    let lossy = Lossy::new().await;
    let since = lossy.world.now();
    lossy.fire(&["a"]).await;
    lossy
        .bus
        .fails_to_take_note([PortErrorKind::Busy, PortErrorKind::Unavailable]);
    lossy.bus.loses(1, since);
    let task = lossy.start();
    lossy.settle().await;
    assert!(lossy.bus.recovered().is_empty());
    lossy.world.advance(secs(1)).await;
    assert_eq!(lossy.bus.recovered(), [(1, 1)], "and nothing is sent twice");
    task.stop().await;
}

#[tokio::test]
async fn a_loss_that_is_found_meanwhile_is_the_next() {
    let lossy = Lossy::new().await;
    let before = lossy.world.now();
    lossy.fire(&["a", "b"]).await;
    let late = lossy.world.now();
    let bus = Arc::downgrade(&lossy.bus);
    let mut calls = 0;
    lossy.bus.answers(move |batch| {
        calls += 1;
        if calls == 1 {
            bus.upgrade().unwrap().loses(2, before);
        }
        accept(batch)
    });
    lossy.bus.loses(1, late);
    let task = lossy.start();
    lossy.settle().await;
    let (a, b) = (key("a"), key("b"));
    assert_eq!(lossy.bus.batches(), [vec![b.clone()], vec![a, b]]);
    assert_eq!(lossy.bus.recovered(), [(1, 1), (2, 2)]);
    task.stop().await;
}

#[tokio::test]
async fn a_loss_without_firings_is_recovered_without_publishing() {
    let lossy = Lossy::new().await;
    lossy.bus.loses(1, lossy.world.now());
    let task = lossy.start();
    lossy.settle().await;
    assert_eq!(lossy.bus.recovered(), [(1, 0)]);
    task.stop().await;
}

#[tokio::test]
async fn a_store_that_fails_for_now_is_read_again() {
    let lossy = Lossy::new().await;
    let since = lossy.world.now();
    lossy.fire(&["a"]).await;
    for call in 1..=2 {
        let fault = Fault::FailBefore(PortErrorKind::Busy);
        lossy.world.faults.at_call_of("fired_since", call, fault);
    }
    lossy.bus.loses(1, since);
    let task = lossy.start();
    lossy.settle().await;
    assert!(lossy.bus.batches().is_empty());
    lossy.world.advance(secs(1)).await;
    assert_eq!(lossy.bus.recovered(), [(1, 1)]);
    task.stop().await;
}

#[tokio::test]
async fn a_broken_store_ends_it_with_the_cause() {
    for breaks_at in ["fired_since", "recovered"] {
        let lossy = Lossy::new().await;
        let fault = Fault::FailBefore(PortErrorKind::Broken);
        lossy.world.faults.at_call_of("fired_since", 1, fault);
        if breaks_at == "recovered" {
            lossy.world.faults.clear();
            lossy.bus.fails_to_take_note([PortErrorKind::Broken]);
        }
        lossy.bus.loses(1, lossy.world.now());
        let task = lossy.start();
        let stopped = task.task.await.unwrap().unwrap_err();
        assert_eq!(stopped.cause.kind(), PortErrorKind::Broken);
        assert!(lossy.bus.recovered().is_empty(), "{breaks_at}");
    }
}

#[tokio::test]
async fn it_stops_wherever_it_waits() {
    // For a loss.
    let lossy = Lossy::new().await;
    let since = lossy.world.now();
    let task = lossy.start();
    lossy.settle().await;
    task.stop().await;
    // For the store, which has not answered yet.
    lossy.fire(&["a"]).await;
    lossy.bus.loses(1, since);
    let fault = Fault::DelayBefore(secs(1_000));
    lossy.world.faults.at_call_of("fired_since", 1, fault);
    let task = lossy.start();
    lossy.settle().await;
    task.stop().await;
    assert!(lossy.bus.batches().is_empty());
    // For the bus.
    lossy.bus.answers(|_| None);
    let task = lossy.start();
    lossy.settle().await;
    task.stop().await;
    assert_eq!(lossy.bus.batches().len(), 1);
    // For the next try.
    lossy
        .bus
        .answers(|_| Some(Err(trouble(PortErrorKind::Unavailable))));
    let task = lossy.start();
    lossy.settle().await;
    task.stop().await;
    assert_eq!(lossy.bus.batches().len(), 2);
    assert!(lossy.bus.recovered().is_empty());
}

/// Accepts everything but the events of some timers, which are too long for the broker, now.
fn too_long(lossy: &Lossy, is_too_long: impl Fn(&TimerKey) -> bool + Send + 'static) {
    lossy.bus.answers(move |batch| {
        let answer = |envelope: &MessageEnvelope| {
            if is_too_long(&timer_of(envelope)) {
                Err(trouble(PortErrorKind::HandlerFailed))
            } else {
                Ok(PublishOutcome::Accepted)
            }
        };
        Some(Ok(batch.iter().map(answer).collect()))
    });
}

fn distinct(lossy: &Lossy) -> usize {
    let timers: BTreeSet<TimerKey> = lossy.bus.timers().into_iter().collect();
    timers.len()
}

#[tokio::test]
async fn one_event_that_never_can_be_published_keeps_no_other_from_it() {
    let lossy = Lossy::new().await;
    let since = lossy.world.now();
    let keys = fired(&lossy.world, 1_200).await;
    let first = keys[0].clone();
    too_long(&lossy, move |key| *key == first);
    lossy.bus.loses(1, since);
    let task = lossy.start();
    lossy.settle().await;
    assert_eq!(distinct(&lossy), 1_200, "without any time passing");
    lossy.world.advance(secs(60)).await;
    assert!(lossy.bus.recovered().is_empty(), "one is not dealt with");
    lossy.world.advance(secs(3_600)).await;
    assert_eq!(lossy.bus.recovered().len(), 1);
    let dead_letters = lossy.dead_letters().await;
    assert_eq!(dead_letters.len(), 1, "it is kept");
    assert!(dead_letters[0].reason.contains("not this time"));
    let tries = lossy.bus.timers();
    let tries = tries.iter().filter(|key| **key == keys[0]).count();
    assert_eq!(tries, 20);
    task.stop().await;
}

#[tokio::test]
async fn an_event_that_was_parked_is_published_once_it_can_be() {
    let lossy = Lossy::new().await;
    let since = lossy.world.now();
    lossy.fire(&["a", "long"]).await;
    too_long(&lossy, |timer| *timer == key("long"));
    lossy.bus.loses(1, since);
    let task = lossy.start();
    lossy.settle().await;
    lossy.world.advance(secs(100)).await;
    assert!(lossy.bus.recovered().is_empty());
    lossy.bus.answers(accept);
    lossy.world.advance(secs(60)).await;
    assert_eq!(lossy.bus.recovered().len(), 1);
    assert!(lossy.dead_letters().await.is_empty());
    task.stop().await;
}

#[tokio::test]
async fn more_unpublishable_events_than_can_be_parked_become_dead_letters_and_hold_up_nothing() {
    let lossy = Lossy::new().await;
    let since = lossy.world.now();
    let keys = fired(&lossy.world, 2_600).await;
    let long: BTreeSet<TimerKey> = keys[..1_500].iter().cloned().collect();
    too_long(&lossy, move |key| long.contains(key));
    lossy.bus.loses(1, since);
    let task = lossy.start();
    for _ in 0..20 {
        lossy.settle().await;
    }
    assert_eq!(distinct(&lossy), 2_600);
    assert_eq!(lossy.dead_letters().await.len(), 500);
    assert!(lossy.bus.recovered().is_empty());
    lossy.world.advance(secs(3_600)).await;
    assert_eq!(lossy.bus.recovered().len(), 1);
    assert_eq!(lossy.dead_letters().await.len(), 1_500, "none is lost");
    task.stop().await;
}

#[tokio::test]
async fn the_bus_hears_up_to_where_all_is_published_again() {
    for parks_one in [false, true] {
        let lossy = Lossy::new().await;
        let since = lossy.world.now();
        let keys = fired(&lossy.world, 1_200).await;
        if parks_one {
            let first = keys[300].clone();
            too_long(&lossy, move |key| *key == first);
        }
        lossy.bus.loses(1, since);
        let task = lossy.start();
        lossy.settle().await;
        // Three are reached in each millisecond, and 500 are a page.
        let reached = |place: u64| since.saturating_add(ms(place / 3));
        let expected = if parks_one {
            [reached(300), reached(300)]
        } else {
            [reached(499), reached(999)]
        };
        assert_eq!(lossy.bus.recovered_until(), expected);
        task.stop().await;
    }
}

/// Another instance that has detected the same loss does not publish the same at the same moment.
#[tokio::test]
async fn an_instance_waits_while_another_one_publishes_again() {
    let lossy = Lossy::new().await;
    lossy.fire(&["a"]).await;
    let other = lossy.world.store.another_instance();
    let now = lossy.world.now();
    let owned = other.own_republication("EVENTS".to_owned(), now, secs(15));
    assert!(owned.await.unwrap());
    lossy.bus.loses(1, now.saturating_sub(secs(60)));
    let task = lossy.start();
    lossy.world.advance(secs(14)).await;
    lossy.settle().await;
    assert!(lossy.bus.timers().is_empty());
    // The other one has ended, or is done.
    lossy.world.advance(secs(3)).await;
    lossy.settle().await;
    assert_eq!(lossy.bus.timers(), [key("a")]);
    assert_eq!(lossy.bus.recovered(), [(1, 1)]);
    let now = lossy.world.now();
    let owned = other.own_republication("EVENTS".to_owned(), now, secs(15));
    assert!(!owned.await.unwrap(), "it is owned now");
    task.stop().await;
}
