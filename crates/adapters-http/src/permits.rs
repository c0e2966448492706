//! Concurrency limiter of lookups, of which each tenant has its fair share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_domain::{TenantId, fair_share};
use tokio::sync::Notify;

/// A limited number of permits. A tenant without any finds one free, even if those of others hang.
#[derive(Debug)]
pub(crate) struct Permits {
    limit: usize,
    in_use: Mutex<InUse>,
    released: Notify,
}

#[derive(Debug, Default)]
struct InUse {
    total: usize,
    by_tenant: HashMap<TenantId, usize>,
}

/// A permit, released when it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    permits: Arc<Permits>,
    tenant_id: TenantId,
}

impl Permits {
    /// `limit` permits, at least one.
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit: limit.max(1),
            in_use: Mutex::default(),
            released: Notify::new(),
        })
    }

    /// Waits for a permit.
    pub(crate) async fn acquire(self: &Arc<Self>, tenant_id: &TenantId) -> Permit {
        loop {
            let mut released = std::pin::pin!(self.released.notified());
            // Registered before the check, so that a release in between is not missed.
            released.as_mut().enable();
            if self.try_acquire(tenant_id) {
                return Permit {
                    permits: Arc::clone(self),
                    tenant_id: tenant_id.clone(),
                };
            }
            released.await;
        }
    }

    fn try_acquire(&self, tenant_id: &TenantId) -> bool {
        let mut in_use = self.in_use();
        let of_tenant = in_use.by_tenant.get(tenant_id).copied().unwrap_or_default();
        if of_tenant >= fair_share(self.limit, in_use.total) {
            return false;
        }
        in_use.total += 1;
        in_use.by_tenant.insert(tenant_id.clone(), of_tenant + 1);
        true
    }

    fn in_use(&self) -> MutexGuard<'_, InUse> {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut in_use = self.permits.in_use();
        in_use.total = in_use.total.saturating_sub(1);
        if let Some(of_tenant) = in_use.by_tenant.get_mut(&self.tenant_id) {
            *of_tenant -= 1;
            if *of_tenant == 0 {
                in_use.by_tenant.remove(&self.tenant_id);
            }
        }
        drop(in_use);
        self.permits.released.notify_waiters();
    }
}
