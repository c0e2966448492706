//! Leases on timers, in memory.
//!
//! Only one process fires the timers of a file, so leases need no column, and a crash ends them all.
//! A poll reads a snapshot on one connection while the writer commits on another. Between the
//! snapshot and the claim, a row may be deleted, rescheduled or marked, and a claim of it would fire
//! a timer whose deletion was acknowledged. So the writer records each row that it is about to change
//! *before* it commits, and a poll claims no row that was recorded since it started.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_domain::{FiringId, Registration, TimerKey, Timestamp};
use punctual_ports::{ClaimRef, ClaimToken};

/// The rowid of a timer.
pub(crate) type RowId = i64;

/// A lease on a timer.
#[derive(Debug, Clone)]
pub(crate) struct Lease {
    pub(crate) key: TimerKey,
    pub(crate) registration: Registration,
    /// When the timer was ready. If its row differs by now, it was rescheduled and the lease is void.
    pub(crate) ready_at: Timestamp,
    pub(crate) token: ClaimToken,
    until: Timestamp,
}

impl Lease {
    fn is_for(&self, firing: &FiringId) -> bool {
        self.key == firing.key && self.registration == firing.registration
    }
}

/// The leases of a process. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct SharedClaims(Arc<Mutex<Claims>>);

impl SharedClaims {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Claims> {
        // A panic cannot leave the maps inconsistent in a way that matters: a surplus lease expires,
        // and a missing one causes a duplicate.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
pub(crate) struct Claims {
    leases: HashMap<RowId, Lease>,
    rows: HashMap<TimerKey, RowId>,
    expirations: BTreeSet<(Timestamp, RowId)>,
    last_token: u64,
    /// Rows that the open transaction changes.
    changing: HashSet<RowId>,
    /// Rows that were changed since the current poll started.
    changed_since: Option<HashSet<RowId>>,
}

impl Claims {
    /// Starts a poll: removes expired leases and returns the rows in flight.
    pub(crate) fn begin_poll(&mut self, now: Timestamp) -> HashMap<RowId, Timestamp> {
        while let Some(&(until, row)) = self.expirations.first() {
            if until > now {
                break;
            }
            self.remove(row);
        }
        self.changed_since = Some(HashSet::new());
        let leases = self.leases.iter();
        leases.map(|(row, lease)| (*row, lease.ready_at)).collect()
    }

    /// Ends a poll.
    pub(crate) fn end_poll(&mut self) {
        self.changed_since = None;
    }

    /// Whether the current poll must not claim a row because its snapshot may be out of date.
    pub(crate) fn is_out_of_date(&self, row: RowId) -> bool {
        let changed = self.changed_since.as_ref();
        self.changing.contains(&row) || changed.is_some_and(|rows| rows.contains(&row))
    }

    /// Leases a row.
    pub(crate) fn claim(
        &mut self,
        row: RowId,
        firing: FiringId,
        ready_at: Timestamp,
        until: Timestamp,
    ) -> ClaimToken {
        self.remove(row);
        self.last_token += 1;
        let token = ClaimToken(self.last_token);
        self.rows.insert(firing.key.clone(), row);
        self.expirations.insert((until, row));
        let lease = Lease {
            key: firing.key,
            registration: firing.registration,
            ready_at,
            token,
            until,
        };
        self.leases.insert(row, lease);
        token
    }

    /// The row of a firing that is in flight.
    pub(crate) fn row_of(&self, firing: &FiringId) -> Option<(RowId, ClaimToken)> {
        let row = *self.rows.get(&firing.key)?;
        let lease = self.leases.get(&row)?;
        lease.is_for(firing).then_some((row, lease.token))
    }

    /// The row of a claim whose lease is still valid.
    pub(crate) fn row_of_claim(&self, claim: &ClaimRef) -> Option<RowId> {
        let (row, token) = self.row_of(&claim.firing_id)?;
        (token == claim.token).then_some(row)
    }

    /// The lease on a row.
    pub(crate) fn lease_on(&self, row: RowId) -> Option<&Lease> {
        self.leases.get(&row)
    }

    /// Whether a row has a lease that has not expired.
    pub(crate) fn is_leased(&self, row: RowId, now: Timestamp) -> bool {
        self.leases.get(&row).is_some_and(|lease| lease.until > now)
    }

    pub(crate) fn release(&mut self, claim: &ClaimRef) -> bool {
        let row = self.row_of_claim(claim);
        row.is_some_and(|row| self.remove(row))
    }

    pub(crate) fn renew(&mut self, claim: &ClaimRef, until: Timestamp) -> bool {
        let Some(row) = self.row_of_claim(claim) else {
            return false;
        };
        let Some(lease) = self.leases.get_mut(&row) else {
            return false;
        };
        self.expirations.remove(&(lease.until, row));
        lease.until = until;
        self.expirations.insert((until, row));
        true
    }

    /// Records that the open transaction changes a row. Must be called before it commits.
    pub(crate) fn record_change(&mut self, row: RowId) {
        self.changing.insert(row);
    }

    /// Records that the open transaction has committed, which ends these leases.
    pub(crate) fn committed(&mut self, ended: impl IntoIterator<Item = (RowId, ClaimToken)>) {
        if let Some(changed) = &mut self.changed_since {
            changed.extend(self.changing.iter().copied());
        }
        self.changing.clear();
        for (row, token) in ended {
            // The row's new schedule may have been claimed by now.
            if self
                .leases
                .get(&row)
                .is_some_and(|lease| lease.token == token)
            {
                self.remove(row);
            }
        }
    }

    /// Records that the open transaction was rolled back.
    pub(crate) fn rolled_back(&mut self) {
        self.changing.clear();
    }

    fn remove(&mut self, row: RowId) -> bool {
        let Some(lease) = self.leases.remove(&row) else {
            return false;
        };
        self.expirations.remove(&(lease.until, row));
        if self.rows.get(&lease.key) == Some(&row) {
            self.rows.remove(&lease.key);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_domain::TenantId;
    use std::time::Duration;

    const ROW: RowId = 7;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis).unwrap()
    }

    fn firing(due_at: i64) -> FiringId {
        FiringId {
            key: TimerKey::named(TenantId::default(), "a"),
            registration: Registration {
                registered_at: at(0),
                due_at: at(due_at),
            },
        }
    }

    fn claimed() -> (Claims, ClaimRef) {
        let mut claims = Claims::default();
        claims.begin_poll(at(10));
        let token = claims.claim(ROW, firing(10), at(10), at(1_000));
        claims.end_poll();
        let claim = ClaimRef {
            firing_id: firing(10),
            token,
        };
        (claims, claim)
    }

    #[test]
    fn a_row_that_changes_during_a_poll_is_out_of_date_before_and_after_the_commit() {
        let mut claims = Claims::default();
        claims.record_change(ROW);
        claims.begin_poll(at(0));
        assert!(
            claims.is_out_of_date(ROW),
            "the change started before the poll"
        );
        claims.committed([]);
        assert!(
            claims.is_out_of_date(ROW),
            "the poll's snapshot may be older"
        );
        claims.begin_poll(at(0));
        assert!(!claims.is_out_of_date(ROW), "a new poll sees the change");
    }

    #[test]
    fn a_rolled_back_change_does_not_prevent_a_claim() {
        let mut claims = Claims::default();
        claims.begin_poll(at(0));
        claims.record_change(ROW);
        claims.rolled_back();
        assert!(!claims.is_out_of_date(ROW));
    }

    #[test]
    fn a_commit_ends_the_lease_it_settled_and_no_newer_one() {
        let (mut claims, claim) = claimed();
        let newer = claims.claim(ROW, firing(20), at(20), at(1_000));
        claims.committed([(ROW, claim.token)]);
        assert_eq!(claims.lease_on(ROW).unwrap().token, newer);
        claims.committed([(ROW, newer)]);
        assert!(
            claims.lease_on(ROW).is_none()
                && claims.expirations.is_empty()
                && claims.rows.is_empty()
        );
    }

    #[test]
    fn a_lease_ends_on_time_unless_it_is_renewed() {
        let (mut claims, claim) = claimed();
        let until = at(1_000).saturating_add(Duration::from_secs(1));
        assert!(claims.renew(&claim, until));
        assert_eq!(claims.begin_poll(at(1_999)).len(), 1);
        assert_eq!(claims.begin_poll(at(2_000)).len(), 0);
        assert!(!claims.renew(&claim, until) && !claims.release(&claim));
    }

    #[test]
    fn a_claim_of_an_old_schedule_has_no_lease() {
        let (claims, claim) = claimed();
        let moved = ClaimRef {
            firing_id: firing(11),
            token: claim.token,
        };
        assert_eq!(claims.row_of_claim(&moved), None);
        assert_eq!(claims.row_of_claim(&claim), Some(ROW));
    }
}
