//! Sharing publish slots between tenants, so that a slow tenant leaves slots for the others.

use std::collections::{BTreeSet, HashMap};

use punctual_domain::TenantId;

/// When half of the slots reserved for other tenants are acquired, a tenant may hold this fraction of
/// its usual maximum; when three quarters are, one slot.
const PART_WHEN_SCARCE: usize = 16;

/// A limit on concurrent publishes, in total and per tenant.
///
/// A slot with a hanging handler cannot be revoked. So the fewer slots are free, the fewer a tenant
/// may hold: the first tenants get many, and hundreds may hang before a new one finds none.
#[derive(Debug)]
pub(super) struct ConcurrencyLimiter {
    total: usize,
    /// Maximum number of slots of a tenant while most are free.
    per_tenant: usize,
    acquired: usize,
    by_tenant: HashMap<TenantId, usize>,
}

impl ConcurrencyLimiter {
    /// A limit of `total` slots, `per_tenant` for one tenant, which never gets the last eighth.
    pub(super) fn new(total: usize, per_tenant: usize) -> Self {
        Self {
            total,
            per_tenant: per_tenant.min(total - total.div_ceil(8)).max(1),
            acquired: 0,
            by_tenant: HashMap::new(),
        }
    }

    /// Number of free slots.
    pub(super) const fn available(&self) -> usize {
        self.total.saturating_sub(self.acquired)
    }

    /// Number of slots that a tenant holds or shares.
    pub(super) fn slots_of(&self, tenant: &TenantId) -> usize {
        self.by_tenant.get(tenant).copied().unwrap_or(0)
    }

    /// Whether a tenant may acquire one more slot.
    pub(super) fn has_slot_for(&self, tenant: &TenantId) -> bool {
        self.available() > 0 && self.slots_of(tenant) < self.share()
    }

    /// Maximum number of slots of one tenant at the present load.
    fn share(&self) -> usize {
        let for_others = self.total - self.per_tenant;
        match self.available() {
            plenty if plenty > for_others / 2 => self.per_tenant,
            scarce if scarce > for_others / 4 => (self.per_tenant / PART_WHEN_SCARCE).max(1),
            _ => 1,
        }
    }

    /// Acquires one slot for a batch of these tenants.
    pub(super) fn acquire(&mut self, tenants: &BTreeSet<TenantId>) {
        self.acquired += 1;
        for tenant in tenants {
            *self.by_tenant.entry(tenant.clone()).or_default() += 1;
        }
    }

    /// Releases the slot of a batch of these tenants.
    pub(super) fn release(&mut self, tenants: &BTreeSet<TenantId>) {
        self.acquired = self.acquired.saturating_sub(1);
        for tenant in tenants {
            let Some(slots) = self.by_tenant.get_mut(tenant) else {
                continue;
            };
            *slots -= 1;
            if *slots == 0 {
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

    fn acquire_all(limiter: &mut ConcurrencyLimiter, tenant: &str) -> usize {
        let tenants = only(tenant);
        let mut acquired = 0;
        while limiter.has_slot_for(&TenantId::new(tenant).unwrap()) {
            limiter.acquire(&tenants);
            acquired += 1;
        }
        acquired
    }

    #[test]
    fn a_tenant_alone_gets_its_maximum_and_never_all_slots() {
        for (all, of_a_tenant, alone) in [
            (1_000, 64, 64),
            (64, 64, 56),
            (8, 64, 7),
            (4, 64, 3),
            (2, 64, 1),
            (1, 64, 1),
            (1_000, 1, 1),
        ] {
            let mut limiter = ConcurrencyLimiter::new(all, of_a_tenant);
            assert_eq!(acquire_all(&mut limiter, "a"), alone, "of {all}");
        }
    }

    #[test]
    fn hundreds_of_tenants_may_hang_before_a_new_one_finds_no_slot() {
        let mut limiter = ConcurrencyLimiter::new(1_000, 64);
        let acquired: Vec<usize> = (0..250)
            .map(|n| acquire_all(&mut limiter, &format!("hanging-{n}")))
            .collect();
        assert_eq!(acquired[..8], [64; 8]);
        assert!(
            acquired.is_sorted_by(|one, next| one >= next),
            "{acquired:?}"
        );
        assert!(acquired.iter().all(|acquired| *acquired >= 1));
        assert_eq!(acquire_all(&mut limiter, "newcomer"), 1);
    }

    #[test]
    fn of_a_few_slots_some_are_left_as_well() {
        let mut limiter = ConcurrencyLimiter::new(64, 64);
        let acquired =
            ["a", "b", "c", "d", "e", "f"].map(|tenant| acquire_all(&mut limiter, tenant));
        assert_eq!(acquired, [56, 4, 2, 1, 1, 0]);
    }

    #[test]
    fn a_released_slot_can_be_acquired_again() {
        let mut limiter = ConcurrencyLimiter::new(1, 64);
        for _ in 0..3 {
            assert_eq!(acquire_all(&mut limiter, "default"), 1);
            limiter.release(&only("default"));
        }
        assert_eq!(limiter.available(), 1);
        assert_eq!(acquire_all(&mut limiter, "default"), 1);
    }

    #[test]
    fn a_batch_of_many_tenants_takes_one_slot() {
        let mut limiter = ConcurrencyLimiter::new(8, 64);
        let tenants: BTreeSet<_> = (0..100)
            .map(|n| TenantId::new(&format!("tenant-{n}")).unwrap())
            .collect();
        limiter.acquire(&tenants);
        assert_eq!(limiter.available(), 7);
        assert!(tenants.iter().all(|tenant| limiter.has_slot_for(tenant)));
        limiter.release(&tenants);
        assert!(limiter.by_tenant.is_empty());
    }
}
