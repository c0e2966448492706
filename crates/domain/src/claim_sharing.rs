//! How a claim is shared between tenants if more is due than it may take.
//!
//! Up to a quarter of a claim is for fresh timers, so that they do not wait for a backlog; up to a quarter
//! for the tenants in turn, so that none waits for another's backlog; the rest for the oldest.
//!
//! A store says what is due ([`DueTimers`]), step by step, and the rules choose. A timer is free if it is
//! neither claimed nor of a tenant that the claim excludes.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Timestamp;
use crate::round_robin::Cycle;

/// Minimum number of tenants that a shared claim visits; the next claim continues there.
const TENANTS_VISITED: usize = 256;
/// Maximum number of tenants that a claim from tenant to tenant visits, due or not: each is two steps in
/// an index, and all other claims wait. The next claim continues there.
const MAX_VISITED: usize = 1_024;
/// Delay of the next poll if this one has not visited all tenants.
const CONTINUE_AFTER: Duration = Duration::from_millis(20);

/// The free timers of a store at one instant.
pub trait DueTimers {
    /// Identifies a timer.
    type Id: Ord;
    /// Identifies a tenant.
    type Tenant: Ord + Clone;
    /// Why a store cannot be read.
    type Error;

    /// The instant.
    fn now(&self) -> Timestamp;

    /// The newest free timer that is ready, and further ones as far as they are fresh, with their ready
    /// times.
    fn newest(&self, limit: usize) -> Result<BTreeMap<Self::Id, Timestamp>, Self::Error>;

    /// The first tenant with scheduled timers after another one, or the first of all.
    fn tenant_after(
        &mut self,
        tenant: Option<&Self::Tenant>,
    ) -> Result<Option<Self::Tenant>, Self::Error>;

    /// Passes the free timers of a tenant that are ready to `takes_more`, oldest first, until it returns
    /// false. Returns when the next one is ready, if all were passed.
    fn of_tenant(
        &self,
        tenant: &Self::Tenant,
        takes_more: impl FnMut(Self::Id, Timestamp) -> bool,
    ) -> Result<Option<Timestamp>, Self::Error>;

    /// When the next free timer is ready that is not ready now.
    fn next_due_at(&self) -> Result<Option<Timestamp>, Self::Error>;
}

/// The timers to claim.
#[derive(Debug, PartialEq, Eq)]
pub struct Chosen<Id> {
    /// The timers, with their ready times.
    pub timers: BTreeMap<Id, Timestamp>,
    /// Whether free timers that are ready are left.
    pub more_due: bool,
    /// When the next timer is ready.
    pub next_due_at: Option<Timestamp>,
}

/// A tenant's next free timer.
enum Next<Id> {
    /// Ready now.
    Ready(Id, Timestamp),
    /// Ready later.
    At(Timestamp),
    Nothing,
}

/// The earlier one of two instants, as far as there are any.
pub fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}

/// The oldest free timer of a tenant that is not chosen yet.
fn next_of_tenant<D: DueTimers>(
    due: &D,
    tenant: &D::Tenant,
    chosen: &BTreeMap<D::Id, Timestamp>,
) -> Result<Next<D::Id>, D::Error> {
    let mut next = Next::Nothing;
    let later = due.of_tenant(tenant, |id, ready_at| {
        let is_chosen = chosen.contains_key(&id);
        if !is_chosen {
            next = Next::Ready(id, ready_at);
        }
        is_chosen
    })?;
    Ok(match (next, later) {
        (Next::Nothing, Some(at)) => Next::At(at),
        (next, _) => next,
    })
}

/// Chooses all of the `first` timers, which are the oldest up to one more than the limit, if they fit, and
/// otherwise shares the claim. `last_served` is the tenant that a shared claim served last.
pub fn share<D: DueTimers>(
    due: &mut D,
    first: Chosen<D::Id>,
    limit: usize,
    last_served: &mut Option<D::Tenant>,
) -> Result<Chosen<D::Id>, D::Error> {
    if first.timers.len() <= limit {
        return Ok(first);
    }
    let quarter = limit / 4;
    let mut chosen = due.newest(quarter)?;
    let slots = quarter.max(1).min(limit);
    serve_tenants_in_turn(due, slots, last_served, &mut chosen)?;
    let oldest = first.timers.into_iter();
    let mut oldest: Vec<_> = oldest.map(|(id, ready_at)| (ready_at, id)).collect();
    oldest.sort_unstable();
    for (ready_at, id) in oldest {
        if chosen.len() >= limit {
            break;
        }
        chosen.insert(id, ready_at);
    }
    Ok(Chosen {
        timers: chosen,
        more_due: true,
        next_due_at: due.next_due_at()?,
    })
}

/// Chooses the oldest free timer of each tenant, starting after the one that was served last.
fn serve_tenants_in_turn<D: DueTimers>(
    due: &mut D,
    slots: usize,
    last_served: &mut Option<D::Tenant>,
    chosen: &mut BTreeMap<D::Id, Timestamp>,
) -> Result<(), D::Error> {
    let mut tenants = Cycle::after(last_served.clone());
    let mut served = 0;
    for _ in 0..TENANTS_VISITED.max(slots * 2) {
        if served >= slots {
            break;
        }
        let Some(tenant) = tenants.next(|after| due.tenant_after(after))? else {
            break;
        };
        if let Next::Ready(id, ready_at) = next_of_tenant(due, &tenant, chosen)? {
            chosen.insert(id, ready_at);
            served += 1;
        }
        *last_served = Some(tenant);
    }
    Ok(())
}

/// Chooses ready timers tenant by tenant: fresh ones, then the oldest of each tenant in turn, then their
/// others. No timer of an excluded tenant is read, however large its backlog is.
///
/// With very many tenants, a claim visits some of them and requests another poll soon.
pub fn tenant_by_tenant<D: DueTimers>(
    due: &mut D,
    limit: usize,
    last_served: &mut Option<D::Tenant>,
) -> Result<Chosen<D::Id>, D::Error> {
    let mut timers = due.newest(limit / 4)?;
    let (mut next_due_at, mut more_due) = (None, false);
    let mut with_more = Vec::new();
    let mut tenants = Cycle::after(last_served.clone());
    let mut to_visit = MAX_VISITED.max(limit);
    let (mut last_visited, mut has_unvisited) = (None, false);
    while let Some(tenant) = tenants.next(|after| due.tenant_after(after))? {
        if to_visit == 0 {
            has_unvisited = true;
            break;
        }
        to_visit -= 1;
        match next_of_tenant(due, &tenant, &timers)? {
            Next::Ready(..) if timers.len() >= limit => {
                more_due = true;
                break;
            }
            Next::Ready(id, ready_at) => {
                timers.insert(id, ready_at);
                *last_served = Some(tenant.clone());
                with_more.push(tenant.clone());
            }
            Next::At(at) => next_due_at = earlier(next_due_at, Some(at)),
            Next::Nothing => {}
        }
        last_visited = Some(tenant);
    }
    if has_unvisited {
        *last_served = last_visited;
    }
    for tenant in with_more {
        if more_due {
            break;
        }
        let later = due.of_tenant(&tenant, |id, ready_at| {
            let has_room = timers.len() < limit || timers.contains_key(&id);
            if has_room {
                timers.insert(id, ready_at);
            }
            more_due |= !has_room;
            has_room
        })?;
        next_due_at = earlier(next_due_at, later);
    }
    if more_due || has_unvisited {
        next_due_at = due.next_due_at()?;
    }
    if has_unvisited {
        // Whether one of them has something due is unknown until the next poll.
        more_due = true;
        let soon = due.now().saturating_add(CONTINUE_AFTER);
        next_due_at = earlier(next_due_at, Some(soon));
    }
    Ok(Chosen {
        timers,
        more_due,
        next_due_at,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::convert::Infallible;
    use std::ops::Bound::{Excluded, Unbounded};

    /// A timer: its tenant and when it is ready, which is its id too.
    type Timer = (u32, i64);

    const NOW: i64 = 10_000;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis).unwrap()
    }

    /// Timers without any claim.
    struct Timers(BTreeSet<Timer>);

    impl Timers {
        fn ready(&self) -> Vec<Timer> {
            let mut ready: Vec<_> = self.0.iter().copied().filter(|it| it.1 <= NOW).collect();
            ready.sort_by_key(|it| it.1);
            ready
        }

        fn claim(&mut self, limit: usize, last: &mut Option<u32>) -> Vec<Timer> {
            let oldest = self.ready().into_iter().take(limit + 1);
            let first = Chosen {
                timers: oldest.map(|it| (it, at(it.1))).collect(),
                more_due: false,
                next_due_at: self.next_due_at().unwrap(),
            };
            let Ok(chosen) = share(self, first, limit, last);
            self.taken(chosen)
        }

        /// Claims what was chosen.
        fn taken(&mut self, chosen: Chosen<Timer>) -> Vec<Timer> {
            let timers: Vec<Timer> = chosen.timers.into_keys().collect();
            assert!(timers.iter().all(|it| self.0.remove(it) && it.1 <= NOW));
            assert!(chosen.more_due || self.ready().is_empty());
            timers
        }
    }

    impl DueTimers for Timers {
        type Id = Timer;
        type Tenant = u32;
        type Error = Infallible;

        fn now(&self) -> Timestamp {
            at(NOW)
        }

        fn newest(&self, limit: usize) -> Result<BTreeMap<Timer, Timestamp>, Infallible> {
            let newest = self.ready().into_iter().rev().take(limit);
            Ok(newest.map(|it| (it, at(it.1))).collect())
        }

        fn tenant_after(&mut self, tenant: Option<&u32>) -> Result<Option<u32>, Infallible> {
            let from = tenant.map_or(Unbounded, |tenant| Excluded((*tenant, i64::MAX)));
            Ok(self.0.range((from, Unbounded)).next().map(|it| it.0))
        }

        fn of_tenant(
            &self,
            tenant: &u32,
            mut takes_more: impl FnMut(Timer, Timestamp) -> bool,
        ) -> Result<Option<Timestamp>, Infallible> {
            for timer in self.0.range((*tenant, 0)..(*tenant + 1, 0)) {
                if timer.1 > NOW {
                    return Ok(Some(at(timer.1)));
                }
                if !takes_more(*timer, at(timer.1)) {
                    return Ok(None);
                }
            }
            Ok(None)
        }

        fn next_due_at(&self) -> Result<Option<Timestamp>, Infallible> {
            let later = self.0.iter().map(|it| it.1).filter(|it| *it > NOW);
            Ok(later.min().map(at))
        }
    }

    /// A backlog of tenant 0, and one later timer each of tenants 1 to 20.
    fn backlog() -> Timers {
        let backlog = (0..1_000).map(|n| (0, n));
        let others = (1..=20).map(|n| (n, 2_000 + i64::from(n)));
        Timers(backlog.chain(others).collect())
    }

    #[test]
    fn what_fits_is_claimed_completely() {
        let mut timers = Timers([(1, 5), (2, 7), (2, NOW), (3, NOW + 1)].into());
        assert_eq!(timers.claim(3, &mut None), [(1, 5), (2, 7), (2, NOW)]);
        assert!(timers.claim(3, &mut None).is_empty());
    }

    #[test]
    fn a_shared_claim_is_full_and_has_the_newest_the_oldest_and_tenants_in_turn() {
        let mut timers = backlog();
        let mut last = None;
        let claimed = timers.claim(16, &mut last);
        assert_eq!(claimed.len(), 16);
        // Four of the newest, four in turn from tenant 0 on, and the oldest.
        let expected = [
            (1, 2_001),
            (2, 2_002),
            (3, 2_003),
            (17, 2_017),
            (20, 2_020),
            (0, 8),
        ];
        assert!(
            expected.iter().all(|it| claimed.contains(it)),
            "{claimed:?}"
        );
        assert_eq!(last, Some(3));
    }

    #[test]
    fn every_tenant_has_its_turn_within_a_bounded_number_of_claims() {
        for limit in [1, 2, 3, 4, 8, 16] {
            let (mut timers, mut last) = (backlog(), None);
            let claims = 21 / (limit / 8).max(1) + 1;
            for _ in 0..claims {
                assert_eq!(timers.claim(limit, &mut last).len(), limit);
            }
            let left = timers.ready();
            assert!(left.iter().all(|it| it.0 == 0), "limit {limit}: {left:?}");
        }
    }

    #[test]
    fn from_tenant_to_tenant_each_gets_its_oldest_before_any_gets_another() {
        let mut timers = backlog();
        let Ok(chosen) = tenant_by_tenant(&mut timers, 40, &mut None);
        assert!(chosen.more_due && chosen.next_due_at.is_none());
        let claimed = timers.taken(chosen);
        assert_eq!(claimed.len(), 40);
        assert!(timers.ready().iter().all(|it| it.0 == 0));
    }

    #[test]
    fn a_claim_that_has_not_visited_all_tenants_continues_soon_where_it_ended() {
        let later = (1..=2_000).map(|tenant| (tenant, NOW + 9_000));
        let mut timers = Timers(later.chain([(1_500, 5)]).collect());
        let mut last = None;
        let Ok(chosen) = tenant_by_tenant(&mut timers, 3, &mut last);
        let soon = at(NOW).saturating_add(CONTINUE_AFTER);
        assert!(chosen.timers.is_empty() && chosen.more_due);
        assert_eq!((chosen.next_due_at, last), (Some(soon), Some(1_024)));
        let Ok(chosen) = tenant_by_tenant(&mut timers, 3, &mut last);
        assert_eq!(timers.taken(chosen), [(1_500, 5)]);
    }
}
