//! The memory budget of bodies, limited in total and for each tenant.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A budget of bytes, of which each tenant may hold a share.
pub(crate) struct Budget {
    total: usize,
    share: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    used: usize,
    /// A tenant without bytes has no entry, so there are never more entries than requests.
    tenants: HashMap<String, usize>,
}

/// The limit that refuses more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exhausted {
    /// The tenant holds its share.
    Share,
    /// All of it is taken.
    Total,
}

/// The bytes of one request. They are released on drop.
pub(crate) struct Reservation<'a> {
    budget: &'a Budget,
    tenant: String,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new(total: usize, share: usize) -> Self {
        Self {
            total,
            share,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A reservation of no bytes yet.
    pub(crate) fn reserve(&self, tenant: &str) -> Reservation<'_> {
        Reservation {
            budget: self,
            tenant: tenant.to_owned(),
            bytes: 0,
        }
    }
}

impl Reservation<'_> {
    /// Adds all of these bytes, or none.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), Exhausted> {
        if bytes == 0 {
            return Ok(());
        }
        let mut state = self.budget.state();
        let held = state.tenants.get(&self.tenant).copied().unwrap_or(0);
        if held.saturating_add(bytes) > self.budget.share {
            return Err(Exhausted::Share);
        }
        if state.used.saturating_add(bytes) > self.budget.total {
            return Err(Exhausted::Total);
        }
        state.used += bytes;
        state.tenants.insert(self.tenant.clone(), held + bytes);
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut state = self.budget.state();
        state.used -= self.bytes;
        if let Some(held) = state.tenants.get_mut(&self.tenant) {
            *held -= self.bytes;
            if *held == 0 {
                state.tenants.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_has_its_share_and_all_have_the_total() {
        let budget = Budget::new(10, 4);
        let (mut a, mut also_a) = (budget.reserve("a"), budget.reserve("a"));
        assert_eq!(a.grow(3), Ok(()));
        assert_eq!(also_a.grow(2), Err(Exhausted::Share));
        assert_eq!(also_a.grow(1), Ok(()));
        let (mut b, mut c) = (budget.reserve("b"), budget.reserve("c"));
        assert_eq!(b.grow(4), Ok(()));
        assert_eq!(c.grow(3), Err(Exhausted::Total));
        assert_eq!(c.grow(2), Ok(()));
        drop(a);
        assert_eq!(also_a.grow(2), Ok(()), "released bytes can be reserved");
    }

    #[test]
    fn a_tenant_without_bytes_leaves_no_entry() {
        let budget = Budget::new(10, 4);
        for tenant in ["a", "b"] {
            let mut reservation = budget.reserve(tenant);
            assert_eq!(reservation.grow(0), Ok(()));
            assert_eq!(reservation.grow(5), Err(Exhausted::Share));
            assert_eq!(reservation.grow(4), Ok(()));
        }
        assert!(budget.state().tenants.is_empty());
        assert_eq!(budget.state().used, 0);
    }
}
