//! What the store has yet to hear: marks, retries, burials and releases.

use std::collections::BTreeSet;
use std::sync::Arc;

use punctual_domain::TenantId;
use punctual_ports::{
    BatchResult, ClaimOutcome, ClaimRef, FiredTimer, MarkOutcome, PortError, PortErrorKind,
    TimerPersistencePort, TimerQueuePort,
};

use super::failures::{DeadLettered, Retry};
use super::in_flight::{InFlight, Told};

/// Things to tell the store. Each firing is in at most one of the lists.
#[derive(Debug, Default)]
pub(super) struct Settlements {
    pub(super) marks: Vec<FiredTimer>,
    pub(super) retries: Vec<Retry>,
    pub(super) dead: Vec<DeadLettered>,
    pub(super) releases: Vec<ClaimRef>,
    /// Claims that go back because their tenant may not begin them: unlike other releases, they are
    /// no reason to look at the store again before it may.
    pub(super) held_back: Vec<ClaimRef>,
}

/// At most so many of each kind are told at once.
const AT_ONCE: usize = 1_000;

impl Settlements {
    pub(super) fn is_empty(&self) -> bool {
        self.marks.is_empty()
            && self.retries.is_empty()
            && self.dead.is_empty()
            && self.releases.is_empty()
            && self.held_back.is_empty()
    }

    /// Takes out what is to be told now, the oldest first.
    pub(super) fn take(&mut self) -> Self {
        Self {
            marks: take_first(&mut self.marks),
            retries: take_first(&mut self.retries),
            dead: take_first(&mut self.dead),
            releases: take_first(&mut self.releases),
            held_back: take_first(&mut self.held_back),
        }
    }

    /// A lease that ended under us and was ours again has another token by now.
    pub(super) fn refresh_claims(&mut self, in_flight: &InFlight) {
        let retries = self.retries.iter_mut();
        let retries = retries.map(|retry| &mut retry.request.claim);
        let dead = self.dead.iter_mut();
        let dead = dead.map(|dead| &mut dead.request.claim);
        let releases = self.releases.iter_mut().chain(&mut self.held_back);
        for claim in retries.chain(dead).chain(releases) {
            if let Some(current) = in_flight.reference(&claim.firing_id) {
                *claim = current;
            }
        }
    }

    /// Puts back what the store did not take.
    pub(super) fn put_back(&mut self, failed: Self) {
        self.marks.extend(failed.marks);
        self.retries.extend(failed.retries);
        self.dead.extend(failed.dead);
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
    /// How many firings are over and done with.
    pub(super) processed: u64,
    /// What became of the failed firings.
    pub(super) retries: Vec<(Retry, ClaimOutcome)>,
    pub(super) dead: Vec<(DeadLettered, ClaimOutcome)>,
    /// Whether claims were given back that somebody should look for again.
    pub(super) released: bool,
    /// Whose claims are back because they might not be begun.
    pub(super) held_back: BTreeSet<TenantId>,
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
        // A timer that was rescheduled while it fired, by its handler for example, has fired too.
        let is_processed = |(_, outcome): &&(FiredTimer, MarkOutcome)| {
            matches!(outcome, MarkOutcome::Marked | MarkOutcome::Moved)
        };
        settled.processed = told.done.iter().filter(is_processed).count() as u64;
        settled.failed.marks = told.again;
    }
    if !batch.retries.is_empty() {
        let requests = batch.retries.iter().map(|retry| retry.request.clone());
        let answer = queue.retry_later(requests.collect()).await;
        let told = settled.hear(batch.retries, answer, |retry| {
            Told::of_claim(&retry.request.claim)
        });
        settled.retries = told.done;
        settled.failed.retries = told.again;
    }
    if !batch.dead.is_empty() {
        let requests = batch.dead.iter().map(|dead| dead.request.clone());
        let answer = queue.dead_letter(requests.collect()).await;
        let told = settled.hear(batch.dead, answer, |dead| {
            Told::of_claim(&dead.request.claim)
        });
        settled.dead = told.done;
        settled.failed.dead = told.again;
    }
    if !batch.releases.is_empty() {
        let answer = queue.release(batch.releases.clone()).await;
        let told = settled.hear(batch.releases, answer, Told::of_claim);
        settled.released = !told.done.is_empty();
        settled.failed.releases = told.again;
    }
    if !batch.held_back.is_empty() {
        let answer = queue.release(batch.held_back.clone()).await;
        let told = settled.hear(batch.held_back, answer, Told::of_claim);
        let tenants = told
            .done
            .into_iter()
            .map(|(claim, _)| claim.firing_id.key.tenant_id);
        settled.held_back = tenants.collect();
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
