//! Permits for look-ups: a limited number, of which each tenant holds its fair share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_domain::{TenantId, fair_share};
use tokio::sync::Notify;

/// A limited number of permits. Whoever holds none finds one free, although others hang on theirs.
#[derive(Debug)]
pub(crate) struct Permits {
    limit: usize,
    held: Mutex<Held>,
    given_back: Notify,
}

#[derive(Debug, Default)]
struct Held {
    taken: usize,
    by_tenant: HashMap<TenantId, usize>,
}

/// A permit, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    permits: Arc<Permits>,
    tenant_id: TenantId,
}

impl Permits {
    /// So many, and at least one.
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit: limit.max(1),
            held: Mutex::default(),
            given_back: Notify::new(),
        })
    }

    /// Waits for a permit.
    pub(crate) async fn acquire(self: &Arc<Self>, tenant_id: &TenantId) -> Permit {
        loop {
            let mut given_back = std::pin::pin!(self.given_back.notified());
            // Before the look, or what is given back in between would be missed.
            given_back.as_mut().enable();
            if self.take(tenant_id) {
                return Permit {
                    permits: Arc::clone(self),
                    tenant_id: tenant_id.clone(),
                };
            }
            given_back.await;
        }
    }

    fn take(&self, tenant_id: &TenantId) -> bool {
        let mut held = self.held();
        let of_tenant = held.by_tenant.get(tenant_id).copied().unwrap_or_default();
        if of_tenant >= fair_share(self.limit, held.taken) {
            return false;
        }
        held.taken += 1;
        held.by_tenant.insert(tenant_id.clone(), of_tenant + 1);
        true
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut held = self.permits.held();
        held.taken = held.taken.saturating_sub(1);
        if let Some(of_tenant) = held.by_tenant.get_mut(&self.tenant_id) {
            *of_tenant -= 1;
            if *of_tenant == 0 {
                held.by_tenant.remove(&self.tenant_id);
            }
        }
        drop(held);
        self.permits.given_back.notify_waiters();
    }
}
