//! What the store has yet to hear: marks, retries, burials and releases.

use std::sync::Arc;

use punctual_domain::FiringId;
use punctual_ports::{
    BatchResult, Burial, ClaimRef, FiredTimer, MarkOutcome, PortError, PortErrorKind, RetryLater,
    TimerPersistencePort, TimerQueuePort,
};

use super::in_hand::InHand;

/// Things to tell the store. Each firing is in at most one of the lists.
#[derive(Debug, Default)]
pub(super) struct Settlements {
    pub(super) marks: Vec<FiredTimer>,
    pub(super) retries: Vec<RetryLater>,
    pub(super) burials: Vec<Burial>,
    pub(super) releases: Vec<ClaimRef>,
}

/// At most so many of each kind are told at once.
const AT_ONCE: usize = 1_000;

impl Settlements {
    pub(super) fn is_empty(&self) -> bool {
        self.marks.is_empty()
            && self.retries.is_empty()
            && self.burials.is_empty()
            && self.releases.is_empty()
    }

    /// Takes out what is to be told now, the oldest first.
    pub(super) fn take(&mut self) -> Self {
        Self {
            marks: take_first(&mut self.marks),
            retries: take_first(&mut self.retries),
            burials: take_first(&mut self.burials),
            releases: take_first(&mut self.releases),
        }
    }

    /// A lease that ended under us and was ours again has another token by now.
    pub(super) fn refresh_claims(&mut self, in_hand: &InHand) {
        let retries = self.retries.iter_mut().map(|retry| &mut retry.claim);
        let burials = self.burials.iter_mut().map(|burial| &mut burial.claim);
        for claim in retries.chain(burials).chain(&mut self.releases) {
            if let Some(held) = in_hand.get(&claim.firing_id) {
                claim.token = held.token;
            }
        }
    }

    /// Puts back what the store did not take.
    pub(super) fn put_back(&mut self, failed: Self) {
        self.marks.extend(failed.marks);
        self.retries.extend(failed.retries);
        self.burials.extend(failed.burials);
        self.releases.extend(failed.releases);
    }
}

fn take_first<T>(list: &mut Vec<T>) -> Vec<T> {
    let rest = list.split_off(list.len().min(AT_ONCE));
    std::mem::replace(list, rest)
}

/// What telling the store brought.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// Firings that are off our hands.
    pub(super) done: Vec<FiringId>,
    /// How many timers are now reached.
    pub(super) marked: u64,
    /// Retries that were taken, so that the worker comes back for them.
    pub(super) retries: Vec<RetryLater>,
    /// Whether claims were given back.
    pub(super) released: bool,
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
        let told = sort(batch.marks, answer, &mut settled.error);
        let is_marked = |(_, outcome): &&(FiredTimer, MarkOutcome)| *outcome == MarkOutcome::Marked;
        settled.marked = told.done.iter().filter(is_marked).count() as u64;
        settled
            .done
            .extend(told.done.into_iter().map(|(mark, _)| mark.firing_id));
        settled.failed.marks = told.again;
        settled
            .done
            .extend(told.refused.into_iter().map(|mark| mark.firing_id));
    }
    if !batch.retries.is_empty() {
        let answer = queue.retry_later(batch.retries.clone()).await;
        let told = sort(batch.retries, answer, &mut settled.error);
        for (retry, _) in told.done {
            settled.done.push(retry.claim.firing_id.clone());
            settled.retries.push(retry);
        }
        settled.failed.retries = told.again;
        settled
            .done
            .extend(told.refused.into_iter().map(|retry| retry.claim.firing_id));
    }
    if !batch.burials.is_empty() {
        let answer = queue.bury(batch.burials.clone()).await;
        let told = sort(batch.burials, answer, &mut settled.error);
        settled.done.extend(
            told.done
                .into_iter()
                .map(|(burial, _)| burial.claim.firing_id),
        );
        settled.failed.burials = told.again;
        settled.done.extend(
            told.refused
                .into_iter()
                .map(|burial| burial.claim.firing_id),
        );
    }
    if !batch.releases.is_empty() {
        let answer = queue.release(batch.releases.clone()).await;
        let told = sort(batch.releases, answer, &mut settled.error);
        settled.released = !told.done.is_empty();
        settled
            .done
            .extend(told.done.into_iter().map(|(claim, _)| claim.firing_id));
        settled.failed.releases = told.again;
        settled
            .done
            .extend(told.refused.into_iter().map(|claim| claim.firing_id));
    }
    settled
}

struct Told<I, O> {
    done: Vec<(I, O)>,
    again: Vec<I>,
    refused: Vec<I>,
}

/// Sorts items into those the store has answered for and those that have to be told again: an item
/// without an answer is one of them, since to forget it would be to pretend that it was written.
/// What the store will never take is let go: its timer stays scheduled and fires again after its
/// lease, which is better than to hold up everything else for ever.
fn sort<I, O>(items: Vec<I>, answer: BatchResult<O>, error: &mut Option<PortError>) -> Told<I, O> {
    let mut told = Told {
        done: Vec::new(),
        again: Vec::new(),
        refused: Vec::new(),
    };
    let mut answers = match answer {
        Ok(answers) => answers.into_iter(),
        Err(outer) => {
            remember(error, outer);
            told.again = items;
            return told;
        }
    };
    for item in items {
        match answers.next() {
            Some(Ok(outcome)) => told.done.push((item, outcome)),
            Some(Err(inner)) if inner.kind() == PortErrorKind::Rejected => {
                tracing::error!(error = %inner, "the store refuses to hear of a firing");
                told.refused.push(item);
            }
            Some(Err(inner)) => {
                remember(error, inner);
                told.again.push(item);
            }
            None => told.again.push(item),
        }
    }
    told
}

/// A critical error is what matters most.
fn remember(error: &mut Option<PortError>, new: PortError) {
    let keeps = error.as_ref().is_some_and(|old| old.kind().is_critical());
    if !keeps {
        *error = Some(new);
    }
}
