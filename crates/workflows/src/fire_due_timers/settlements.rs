//! What the store has yet to hear: marks, retries, burials and releases.

use std::sync::Arc;

use punctual_ports::{
    BatchResult, Burial, ClaimRef, FiredTimer, MarkOutcome, PortError, PortErrorKind, RetryLater,
    TimerPersistencePort, TimerQueuePort,
};

use super::in_hand::{InHand, Told};

/// Things to tell the store. Each firing is in at most one of the lists.
#[derive(Debug, Default)]
pub(super) struct Settlements {
    pub(super) marks: Vec<FiredTimer>,
    pub(super) retries: Vec<RetryLater>,
    pub(super) burials: Vec<Burial>,
    pub(super) releases: Vec<ClaimRef>,
    /// Claims that go back because their tenant has too much in hand: unlike other releases, they
    /// are no reason to look at the store again.
    pub(super) held_back: Vec<ClaimRef>,
}

/// At most so many of each kind are told at once.
const AT_ONCE: usize = 1_000;

impl Settlements {
    pub(super) fn is_empty(&self) -> bool {
        self.marks.is_empty()
            && self.retries.is_empty()
            && self.burials.is_empty()
            && self.releases.is_empty()
            && self.held_back.is_empty()
    }

    /// Takes out what is to be told now, the oldest first.
    pub(super) fn take(&mut self) -> Self {
        Self {
            marks: take_first(&mut self.marks),
            retries: take_first(&mut self.retries),
            burials: take_first(&mut self.burials),
            releases: take_first(&mut self.releases),
            held_back: take_first(&mut self.held_back),
        }
    }

    /// A lease that ended under us and was ours again has another token by now.
    pub(super) fn refresh_claims(&mut self, in_hand: &InHand) {
        let retries = self.retries.iter_mut().map(|retry| &mut retry.claim);
        let burials = self.burials.iter_mut().map(|burial| &mut burial.claim);
        let releases = self.releases.iter_mut().chain(&mut self.held_back);
        for claim in retries.chain(burials).chain(releases) {
            if let Some(current) = in_hand.reference(&claim.firing_id) {
                *claim = current;
            }
        }
    }

    /// Puts back what the store did not take.
    pub(super) fn put_back(&mut self, failed: Self) {
        self.marks.extend(failed.marks);
        self.retries.extend(failed.retries);
        self.burials.extend(failed.burials);
        self.releases.extend(failed.releases);
        self.held_back.extend(failed.held_back);
    }
}

fn take_first<T>(list: &mut Vec<T>) -> Vec<T> {
    let rest = list.split_off(list.len().min(AT_ONCE));
    std::mem::replace(list, rest)
}

/// What telling the store brought.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// What the store has heard.
    pub(super) done: Vec<Told>,
    /// How many timers are now reached.
    pub(super) marked: u64,
    /// Retries that were taken, so that the worker comes back for them.
    pub(super) retries: Vec<RetryLater>,
    /// Whether claims were given back that somebody should look for again.
    pub(super) released: bool,
    /// Whether claims are back that had to go because their tenant had too much in hand.
    pub(super) has_held_back: bool,
    /// Whether something was finished, so that there is room for more of its tenant's.
    pub(super) has_made_room: bool,
    /// What has to be told again.
    pub(super) failed: Settlements,
    /// The last error there was.
    pub(super) error: Option<PortError>,
}

/// Tells the store. Marks go first: what was published and is not yet marked is what a crash would
/// repeat.
pub(super) async fn settle(
    persistence: Arc<dyn TimerPersistencePort>,
    queue: Arc<dyn TimerQueuePort>,
    batch: Settlements,
) -> Settled {
    let mut settled = Settled::default();
    if !batch.marks.is_empty() {
        let answer = persistence.mark_fired(batch.marks.clone()).await;
        let told = settled.hear(batch.marks, answer, Told::of_firing);
        let is_marked = |(_, outcome): &&(FiredTimer, MarkOutcome)| *outcome == MarkOutcome::Marked;
        settled.marked = told.done.iter().filter(is_marked).count() as u64;
        settled.failed.marks = told.again;
    }
    if !batch.retries.is_empty() {
        let answer = queue.retry_later(batch.retries.clone()).await;
        let told = settled.hear(batch.retries, answer, |retry| Told::of_claim(&retry.claim));
        settled.retries = told.done.into_iter().map(|(retry, _)| retry).collect();
        settled.failed.retries = told.again;
    }
    if !batch.burials.is_empty() {
        let answer = queue.bury(batch.burials.clone()).await;
        let told = settled.hear(batch.burials, answer, |burial| {
            Told::of_claim(&burial.claim)
        });
        settled.failed.burials = told.again;
    }
    settled.has_made_room = !settled.done.is_empty();
    if !batch.releases.is_empty() {
        let answer = queue.release(batch.releases.clone()).await;
        let told = settled.hear(batch.releases, answer, Told::of_claim);
        settled.released = !told.done.is_empty();
        settled.failed.releases = told.again;
    }
    if !batch.held_back.is_empty() {
        let answer = queue.release(batch.held_back.clone()).await;
        let told = settled.hear(batch.held_back, answer, Told::of_claim);
        settled.has_held_back = !told.done.is_empty();
        settled.failed.held_back = told.again;
    }
    settled
}

struct Heard<I, O> {
    done: Vec<(I, O)>,
    again: Vec<I>,
}

impl Settled {
    /// Sorts items into those the store has answered for and those that have to be told again: an
    /// item without an answer is one of them, since to forget it would be to pretend that it was
    /// written. What the store will never take is let go: its timer stays scheduled and fires again
    /// after its lease, which is better than to hold up everything else for ever.
    fn hear<I, O>(
        &mut self,
        items: Vec<I>,
        answer: BatchResult<O>,
        what: impl Fn(&I) -> Told,
    ) -> Heard<I, O> {
        let mut told = Heard {
            done: Vec::new(),
            again: Vec::new(),
        };
        let mut answers = match answer {
            Ok(answers) => answers.into_iter(),
            Err(outer) => {
                remember(&mut self.error, outer);
                told.again = items;
                return told;
            }
        };
        for item in items {
            match answers.next() {
                Some(Ok(outcome)) => {
                    self.done.push(what(&item));
                    told.done.push((item, outcome));
                }
                Some(Err(inner)) if inner.kind() == PortErrorKind::Rejected => {
                    tracing::error!(error = %inner, "the store refuses to hear of a firing");
                    self.done.push(what(&item));
                }
                Some(Err(inner)) => {
                    remember(&mut self.error, inner);
                    told.again.push(item);
                }
                None => told.again.push(item),
            }
        }
        told
    }
}

/// A critical error is what matters most.
fn remember(error: &mut Option<PortError>, new: PortError) {
    let keeps = error.as_ref().is_some_and(|old| old.kind().is_critical());
    if !keeps {
        *error = Some(new);
    }
}
