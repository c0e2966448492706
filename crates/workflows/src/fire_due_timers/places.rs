//! Sharing places between tenants, so that whoever is slow leaves room for the others.

use std::collections::HashMap;

use punctual_domain::TenantId;

/// So many times the room that is left may one tenant hold. Alone it gets seven eighths of all
/// places; a second one that is as slow gets seven eighths of the rest; and so on.
const TIMES_WHAT_IS_LEFT: usize = 7;

/// A number of places, and who holds how many of them.
#[derive(Debug)]
pub(super) struct Places {
    all: usize,
    taken: usize,
    by_tenant: HashMap<TenantId, usize>,
}

impl Places {
    pub(super) fn new(all: usize) -> Self {
        Self {
            all,
            taken: 0,
            by_tenant: HashMap::new(),
        }
    }

    /// Whether a tenant may take one more.
    pub(super) fn are_left_for(&self, tenant: &TenantId) -> bool {
        let left = self.all.saturating_sub(self.taken);
        let held = self.by_tenant.get(tenant).copied().unwrap_or(0);
        held < left.saturating_mul(TIMES_WHAT_IS_LEFT)
    }

    pub(super) fn take(&mut self, tenant: &TenantId) {
        self.taken += 1;
        *self.by_tenant.entry(tenant.clone()).or_default() += 1;
    }

    pub(super) fn give_back(&mut self, tenant: &TenantId) {
        let Some(held) = self.by_tenant.get_mut(tenant) else {
            return;
        };
        *held -= 1;
        if *held == 0 {
            self.by_tenant.remove(tenant);
        }
        self.taken -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_all(places: &mut Places, tenant: &str) -> usize {
        let tenant = TenantId::new(tenant).unwrap();
        let mut taken = 0;
        while places.are_left_for(&tenant) {
            places.take(&tenant);
            taken += 1;
        }
        taken
    }

    #[test]
    fn each_tenant_leaves_an_eighth_of_what_it_found() {
        let mut places = Places::new(64);
        assert_eq!(take_all(&mut places, "a"), 56);
        assert_eq!(take_all(&mut places, "b"), 7);
        assert_eq!(take_all(&mut places, "c"), 1);
        assert_eq!(take_all(&mut places, "d"), 0);
    }

    #[test]
    fn a_place_that_is_given_back_can_be_taken_again() {
        let mut places = Places::new(1);
        let tenant = TenantId::default();
        for _ in 0..3 {
            assert_eq!(take_all(&mut places, "default"), 1);
            places.give_back(&tenant);
        }
        places.give_back(&tenant);
        assert_eq!(take_all(&mut places, "default"), 1);
    }
}
