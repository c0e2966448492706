//! Outcomes that the store has yet to settle: marks, retries, dead letters and releases.

use std::collections::BTreeSet;
use std::sync::Arc;

use punctual_domain::TenantId;
use punctual_ports::{
    BatchResult, ClaimOutcome, ClaimRef, FiredTimer, MarkOutcome, PortError, PortErrorKind,
    TimerPersistencePort, TimerQueuePort,
};

use super::failures::{DeadLettered, Retry};
use super::in_flight::{InFlight, SettledClaim};

/// Outcomes to settle. Each firing is in at most one of the lists.
#[derive(Debug, Default)]
pub(super) struct Settlements {
    pub(super) marks: Vec<FiredTimer>,
    pub(super) retries: Vec<Retry>,
    pub(super) dead: Vec<DeadLettered>,
    pub(super) releases: Vec<ClaimRef>,
    /// Claims released because their tenant is saturated: unlike other releases, they cause no poll
    /// before the tenant has a free slot.
    pub(super) saturated: Vec<ClaimRef>,
}

/// Maximum number of outcomes of each kind in one settlement.
const BATCH: usize = 1_000;

impl Settlements {
    pub(super) fn is_empty(&self) -> bool {
        self.marks.is_empty()
            && self.retries.is_empty()
            && self.dead.is_empty()
            && self.releases.is_empty()
            && self.saturated.is_empty()
    }

    /// Removes the next batch, the oldest first.
    pub(super) fn take(&mut self) -> Self {
        Self {
            marks: take_first(&mut self.marks),
            retries: take_first(&mut self.retries),
            dead: take_first(&mut self.dead),
            releases: take_first(&mut self.releases),
            saturated: take_first(&mut self.saturated),
        }
    }

    /// A lease that expired and was claimed again by this worker has another token by now.
    pub(super) fn refresh_claims(&mut self, in_flight: &InFlight) {
        let retries = self.retries.iter_mut();
        let retries = retries.map(|retry| &mut retry.request.claim);
        let dead = self.dead.iter_mut();
        let dead = dead.map(|dead| &mut dead.request.claim);
        let releases = self.releases.iter_mut().chain(&mut self.saturated);
        for claim in retries.chain(dead).chain(releases) {
            if let Some(current) = in_flight.claim_of(&claim.firing_id) {
                *claim = current;
            }
        }
    }

    /// Puts back what the store did not settle.
    pub(super) fn put_back(&mut self, failed: Self) {
        self.marks.extend(failed.marks);
        self.retries.extend(failed.retries);
        self.dead.extend(failed.dead);
        self.releases.extend(failed.releases);
        self.saturated.extend(failed.saturated);
    }
}

fn take_first<T>(list: &mut Vec<T>) -> Vec<T> {
    let rest = list.split_off(list.len().min(BATCH));
    std::mem::replace(list, rest)
}

/// The result of a settlement.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// What the store has settled.
    pub(super) done: Vec<SettledClaim>,
    /// Number of firings that are acknowledged and marked.
    pub(super) processed: u64,
    /// The failed firings, each with what the store did.
    pub(super) retries: Vec<(Retry, ClaimOutcome)>,
    pub(super) dead: Vec<(DeadLettered, ClaimOutcome)>,
    /// Whether claims were released that the next poll should find again.
    pub(super) released: bool,
    /// The tenants whose claims were released because they were saturated.
    pub(super) saturated: BTreeSet<TenantId>,
    /// What has to be settled again.
    pub(super) failed: Settlements,
    /// The last error, or a critical one.
    pub(super) error: Option<PortError>,
}

/// Writes outcomes to the store. Marks go first: what is published and not marked is what a crash
/// would repeat.
pub(super) async fn settle(
    persistence: Arc<dyn TimerPersistencePort>,
    queue: Arc<dyn TimerQueuePort>,
    batch: Settlements,
) -> Settled {
    let mut settled = Settled::default();
    if !batch.marks.is_empty() {
        let answer = persistence.mark_fired(batch.marks.clone()).await;
        let (done, failed) = settled.record(batch.marks, answer, SettledClaim::of_firing);
        // A timer that was rescheduled while it fired, by its handler for example, has fired too.
        let is_processed = |(_, outcome): &&(FiredTimer, MarkOutcome)| {
            matches!(outcome, MarkOutcome::Marked | MarkOutcome::Moved)
        };
        settled.processed = done.iter().filter(is_processed).count() as u64;
        settled.failed.marks = failed;
    }
    if !batch.retries.is_empty() {
        let requests = batch.retries.iter().map(|retry| retry.request.clone());
        let answer = queue.retry_later(requests.collect()).await;
        (settled.retries, settled.failed.retries) =
            settled.record(batch.retries, answer, |retry| {
                SettledClaim::of_claim(&retry.request.claim)
            });
    }
    if !batch.dead.is_empty() {
        let requests = batch.dead.iter().map(|dead| dead.request.clone());
        let answer = queue.dead_letter(requests.collect()).await;
        (settled.dead, settled.failed.dead) = settled.record(batch.dead, answer, |dead| {
            SettledClaim::of_claim(&dead.request.claim)
        });
    }
    if !batch.releases.is_empty() {
        let answer = queue.release(batch.releases.clone()).await;
        let (done, failed) = settled.record(batch.releases, answer, SettledClaim::of_claim);
        settled.released = !done.is_empty();
        settled.failed.releases = failed;
    }
    if !batch.saturated.is_empty() {
        let answer = queue.release(batch.saturated.clone()).await;
        let (done, failed) = settled.record(batch.saturated, answer, SettledClaim::of_claim);
        let tenants = done.into_iter().map(|(it, _)| it.firing_id.key.tenant_id);
        settled.saturated = tenants.collect();
        settled.failed.saturated = failed;
    }
    settled
}

/// Items that the store has settled, each with its outcome, and those to settle again.
type DoneAndFailed<I, O> = (Vec<(I, O)>, Vec<I>);

impl Settled {
    /// Splits items into settled ones and those to settle again. An item without an answer is
    /// settled again, since it may not have been written. An item that the store rejects is dropped:
    /// its timer stays scheduled and fires again after its lease, and holds up nothing else.
    fn record<I, O>(
        &mut self,
        items: Vec<I>,
        answer: BatchResult<O>,
        claim_of: impl Fn(&I) -> SettledClaim,
    ) -> DoneAndFailed<I, O> {
        let mut answers = match answer {
            Ok(answers) => answers.into_iter(),
            Err(outer) => {
                self.keep_error(outer);
                return (Vec::new(), items);
            }
        };
        let (mut done, mut failed) = (Vec::new(), Vec::new());
        for item in items {
            match answers.next() {
                Some(Ok(outcome)) => {
                    self.done.push(claim_of(&item));
                    done.push((item, outcome));
                }
                Some(Err(inner)) if inner.kind() == PortErrorKind::Rejected => {
                    tracing::error!(error = %inner, "the store refuses to settle a firing");
                    self.done.push(claim_of(&item));
                }
                Some(Err(inner)) => {
                    self.keep_error(inner);
                    failed.push(item);
                }
                None => failed.push(item),
            }
        }
        (done, failed)
    }

    /// Keeps the last error; a critical one is never replaced.
    fn keep_error(&mut self, new: PortError) {
        let is_critical = |old: &PortError| old.kind().is_critical();
        if !self.error.as_ref().is_some_and(is_critical) {
            self.error = Some(new);
        }
    }
}
