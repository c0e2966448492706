//! Who has which timer in hand.
//!
//! Only one process fires the timers of a file, so claims need no column: they live here, and a
//! crash ends them all. What needs care is that a look at the file reads a snapshot on one
//! connection while the writer commits on another. Between the snapshot and the moment when its
//! rows are claimed, a row may have been deleted, moved or marked, and a claim of it would fire what
//! was answered to be gone. So the writer notes each row that it is about to change *before* it
//! commits, and a look claims none that was noted since it began.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_domain::{FiringId, Registration, TimerKey, Timestamp};
use punctual_ports::{ClaimRef, ClaimToken};

/// The place of a row in the table.
pub(crate) type RowId = i64;

/// A row in somebody's hand.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) key: TimerKey,
    pub(crate) registration: Registration,
    /// When it was ready. If the row says otherwise by now, it was moved, and the claim is void.
    pub(crate) ready_at: Timestamp,
    pub(crate) token: ClaimToken,
    until: Timestamp,
}

impl Held {
    fn is_for(&self, firing: &FiringId) -> bool {
        self.key == firing.key && self.registration == firing.registration
    }
}

/// The claims of a process. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct SharedClaims(Arc<Mutex<Claims>>);

impl SharedClaims {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Claims> {
        // A panic cannot leave the maps half-changed in a way that matters: a claim too many ends
        // with its lease, and one too few is a duplicate.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
pub(crate) struct Claims {
    held: HashMap<RowId, Held>,
    rows: HashMap<TimerKey, RowId>,
    ends: BTreeSet<(Timestamp, RowId)>,
    last_token: u64,
    /// Rows that the open transaction changes.
    changing: HashSet<RowId>,
    /// Rows that were changed since the look under way began.
    changed_since: Option<HashSet<RowId>>,
}

impl Claims {
    /// A look begins: leases end, and it is told what is in hand.
    pub(crate) fn begin_poll(&mut self, now: Timestamp) -> HashMap<RowId, Timestamp> {
        while let Some(&(until, row)) = self.ends.first() {
            if until > now {
                break;
            }
            self.remove(row);
        }
        self.changed_since = Some(HashSet::new());
        let in_flight = self.held.iter();
        in_flight.map(|(row, held)| (*row, held.ready_at)).collect()
    }

    /// A look has ended without a claim.
    pub(crate) fn abandon_poll(&mut self) {
        self.changed_since = None;
    }

    /// Whether a row must not be claimed by the look under way: what it saw may be out of date.
    pub(crate) fn is_out_of_date(&self, row: RowId) -> bool {
        let changed = self.changed_since.as_ref();
        self.changing.contains(&row) || changed.is_some_and(|rows| rows.contains(&row))
    }

    /// Puts a row into somebody's hand.
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
        self.ends.insert((until, row));
        let held = Held {
            key: firing.key,
            registration: firing.registration,
            ready_at,
            token,
            until,
        };
        self.held.insert(row, held);
        token
    }

    /// The row of a firing that is in hand.
    pub(crate) fn row_of(&self, firing: &FiringId) -> Option<(RowId, ClaimToken)> {
        let row = *self.rows.get(&firing.key)?;
        let held = self.held.get(&row)?;
        held.is_for(firing).then_some((row, held.token))
    }

    /// The row that a claim holds, if it still does.
    pub(crate) fn held_by(&self, claim: &ClaimRef) -> Option<RowId> {
        let (row, token) = self.row_of(&claim.firing_id)?;
        (token == claim.token).then_some(row)
    }

    /// The claim on a row, if there is one.
    pub(crate) fn on(&self, row: RowId) -> Option<&Held> {
        self.held.get(&row)
    }

    /// Whether a live claim holds a row.
    pub(crate) fn is_live(&self, row: RowId, now: Timestamp) -> bool {
        self.held.get(&row).is_some_and(|held| held.until > now)
    }

    pub(crate) fn release(&mut self, claim: &ClaimRef) -> bool {
        let row = self.held_by(claim);
        row.is_some_and(|row| self.remove(row))
    }

    pub(crate) fn renew(&mut self, claim: &ClaimRef, until: Timestamp) -> bool {
        let Some(row) = self.held_by(claim) else {
            return false;
        };
        let Some(held) = self.held.get_mut(&row) else {
            return false;
        };
        self.ends.remove(&(held.until, row));
        held.until = until;
        self.ends.insert((until, row));
        true
    }

    /// The open transaction changes a row. To be called before it commits.
    pub(crate) fn is_changing(&mut self, row: RowId) {
        self.changing.insert(row);
    }

    /// The open transaction has committed; these claims end with it.
    pub(crate) fn committed(&mut self, ended: impl IntoIterator<Item = (RowId, ClaimToken)>) {
        if let Some(changed) = &mut self.changed_since {
            changed.extend(self.changing.iter().copied());
        }
        self.changing.clear();
        for (row, token) in ended {
            // Somebody else may have claimed the row's new schedule by now.
            if self.held.get(&row).is_some_and(|held| held.token == token) {
                self.remove(row);
            }
        }
    }

    /// The open transaction was rolled back: nothing has changed.
    pub(crate) fn rolled_back(&mut self) {
        self.changing.clear();
    }

    fn remove(&mut self, row: RowId) -> bool {
        let Some(held) = self.held.remove(&row) else {
            return false;
        };
        self.ends.remove(&(held.until, row));
        if self.rows.get(&held.key) == Some(&row) {
            self.rows.remove(&held.key);
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
        claims.abandon_poll();
        let claim = ClaimRef {
            firing_id: firing(10),
            token,
        };
        (claims, claim)
    }

    #[test]
    fn a_row_that_changes_during_a_look_is_out_of_date_before_and_after_the_commit() {
        let mut claims = Claims::default();
        claims.is_changing(ROW);
        claims.begin_poll(at(0));
        assert!(
            claims.is_out_of_date(ROW),
            "the change began before the look"
        );
        claims.committed([]);
        assert!(
            claims.is_out_of_date(ROW),
            "the look's snapshot may be older"
        );
        claims.begin_poll(at(0));
        assert!(!claims.is_out_of_date(ROW), "a new look sees the change");
    }

    #[test]
    fn a_rolled_back_change_keeps_nothing_from_being_claimed() {
        let mut claims = Claims::default();
        claims.begin_poll(at(0));
        claims.is_changing(ROW);
        claims.rolled_back();
        assert!(!claims.is_out_of_date(ROW));
    }

    #[test]
    fn a_commit_ends_the_claim_it_was_made_with_and_no_newer_one() {
        let (mut claims, claim) = claimed();
        let newer = claims.claim(ROW, firing(20), at(20), at(1_000));
        claims.committed([(ROW, claim.token)]);
        assert_eq!(claims.on(ROW).unwrap().token, newer);
        claims.committed([(ROW, newer)]);
        assert!(claims.on(ROW).is_none() && claims.ends.is_empty() && claims.rows.is_empty());
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
    fn a_claim_of_an_old_schedule_holds_nothing() {
        let (claims, claim) = claimed();
        let moved = ClaimRef {
            firing_id: firing(11),
            token: claim.token,
        };
        assert_eq!(claims.held_by(&moved), None);
        assert_eq!(claims.held_by(&claim), Some(ROW));
    }
}
