//! Sharing places between tenants, so that whoever is slow leaves room for the others.

use std::collections::{BTreeSet, HashMap};

use punctual_domain::TenantId;

/// When half of what one tenant leaves to the others is gone, a tenant may hold this part of what it
/// could hold alone; and when three quarters are gone, one place.
const PART_WHEN_SCARCE: usize = 16;

/// A number of places, each for one publish, and how many of them have something of which tenant.
///
/// A place in which a handler hangs cannot be taken back. So the fewer are left, the fewer a tenant
/// may hold: whoever comes first gets much, and a great many may hang before a newcomer finds nothing.
#[derive(Debug)]
pub(super) struct Places {
    all: usize,
    /// What a tenant may hold while there is plenty.
    alone: usize,
    taken: usize,
    by_tenant: HashMap<TenantId, usize>,
}

impl Places {
    /// So many places, of which one tenant gets at most so many, and never the last eighth of all.
    pub(super) fn new(all: usize, of_a_tenant: usize) -> Self {
        Self {
            all,
            alone: of_a_tenant.min(all - all.div_ceil(8)).max(1),
            taken: 0,
            by_tenant: HashMap::new(),
        }
    }

    /// How many are free.
    pub(super) const fn left(&self) -> usize {
        self.all.saturating_sub(self.taken)
    }

    /// How many have something of a tenant.
    pub(super) fn held_by(&self, tenant: &TenantId) -> usize {
        self.by_tenant.get(tenant).copied().unwrap_or(0)
    }

    /// Whether a tenant may be in one more.
    pub(super) fn are_left_for(&self, tenant: &TenantId) -> bool {
        self.left() > 0 && self.held_by(tenant) < self.share()
    }

    /// What one tenant may hold, as things are.
    fn share(&self) -> usize {
        let for_others = self.all - self.alone;
        match self.left() {
            plenty if plenty > for_others / 2 => self.alone,
            scarce if scarce > for_others / 4 => (self.alone / PART_WHEN_SCARCE).max(1),
            _ => 1,
        }
    }

    /// Takes one place for something of these tenants.
    pub(super) fn take(&mut self, tenants: &BTreeSet<TenantId>) {
        self.taken += 1;
        for tenant in tenants {
            *self.by_tenant.entry(tenant.clone()).or_default() += 1;
        }
    }

    /// Gives that place back.
    pub(super) fn give_back(&mut self, tenants: &BTreeSet<TenantId>) {
        self.taken = self.taken.saturating_sub(1);
        for tenant in tenants {
            let Some(held) = self.by_tenant.get_mut(tenant) else {
                continue;
            };
            *held -= 1;
            if *held == 0 {
                self.by_tenant.remove(tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(tenant: &str) -> BTreeSet<TenantId> {
        [TenantId::new(tenant).unwrap()].into()
    }

    fn take_all(places: &mut Places, tenant: &str) -> usize {
        let tenants = only(tenant);
        let mut taken = 0;
        while places.are_left_for(&TenantId::new(tenant).unwrap()) {
            places.take(&tenants);
            taken += 1;
        }
        taken
    }

    #[test]
    fn a_tenant_alone_gets_what_it_may_and_never_all() {
        for (all, of_a_tenant, alone) in [
            (1_000, 64, 64),
            (64, 64, 56),
            (8, 64, 7),
            (4, 64, 3),
            (2, 64, 1),
            (1, 64, 1),
            (1_000, 1, 1),
        ] {
            let mut places = Places::new(all, of_a_tenant);
            assert_eq!(take_all(&mut places, "a"), alone, "of {all}");
        }
    }

    #[test]
    fn hundreds_of_tenants_may_hang_before_a_newcomer_finds_nothing() {
        let mut places = Places::new(1_000, 64);
        let taken: Vec<usize> = (0..250)
            .map(|n| take_all(&mut places, &format!("hanging-{n}")))
            .collect();
        assert_eq!(taken[..8], [64; 8]);
        assert!(taken.is_sorted_by(|one, next| one >= next), "{taken:?}");
        assert!(taken.iter().all(|taken| *taken >= 1));
        assert_eq!(take_all(&mut places, "newcomer"), 1);
    }

    #[test]
    fn of_a_few_places_some_are_left_as_well() {
        let mut places = Places::new(64, 64);
        let taken = ["a", "b", "c", "d", "e", "f"].map(|tenant| take_all(&mut places, tenant));
        assert_eq!(taken, [56, 4, 2, 1, 1, 0]);
    }

    #[test]
    fn a_place_that_is_given_back_can_be_taken_again() {
        let mut places = Places::new(1, 64);
        for _ in 0..3 {
            assert_eq!(take_all(&mut places, "default"), 1);
            places.give_back(&only("default"));
        }
        assert_eq!(places.left(), 1);
        assert_eq!(take_all(&mut places, "default"), 1);
    }

    #[test]
    fn a_place_is_one_however_many_tenants_share_it() {
        let mut places = Places::new(8, 64);
        let tenants: BTreeSet<_> = (0..100)
            .map(|n| TenantId::new(&format!("tenant-{n}")).unwrap())
            .collect();
        places.take(&tenants);
        assert_eq!(places.left(), 7);
        assert!(tenants.iter().all(|tenant| places.are_left_for(tenant)));
        places.give_back(&tenants);
        assert!(places.by_tenant.is_empty());
    }
}
