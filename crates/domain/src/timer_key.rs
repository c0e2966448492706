//! The key of a timer: its tenant and its service call.

use std::fmt;

use uuid::Uuid;

use crate::{ServiceCallId, TenantId};

/// Key of a timer. There is at most one timer per key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerKey {
    /// The tenant.
    pub tenant_id: TenantId,
    /// The service call, or any other subject of the timer.
    pub service_call_id: ServiceCallId,
}

/// Namespace of ids derived from names. Changing it would lose every named timer.
const NAMES: Uuid = Uuid::from_u128(0x6f1c_3a52_9b0e_5d47_8a64_2f7e_c1d0_93b8);

impl TimerKey {
    /// The key of a service call.
    pub const fn new(tenant_id: TenantId, service_call_id: ServiceCallId) -> Self {
        Self {
            tenant_id,
            service_call_id,
        }
    }

    /// A key derived from a name, for callers whose keys are not UUIDs: the same tenant and name always give
    /// the same key (UUID version 5).
    ///
    /// ```
    /// use punctual_domain::{TenantId, TimerKey};
    /// let once = TimerKey::named(TenantId::default(), "order-123");
    /// assert_eq!(once, TimerKey::named(TenantId::default(), "order-123"));
    /// assert_ne!(once, TimerKey::named(TenantId::default(), "order-124"));
    /// ```
    pub fn named(tenant_id: TenantId, name: &str) -> Self {
        let id = Uuid::new_v5(&NAMES, name.as_bytes());
        Self::new(tenant_id, ServiceCallId::from_uuid(id))
    }
}

impl fmt::Display for TimerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.tenant_id, self.service_call_id)
    }
}

impl fmt::Debug for TimerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TimerKey({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_key_never_changes_between_releases() {
        let key = TimerKey::named(TenantId::default(), "order-123");
        assert_eq!(
            key.to_string(),
            "default:dd582381-5994-5664-9d51-8611fcf3601c"
        );
    }

    #[test]
    fn the_same_name_of_two_tenants_is_two_keys() {
        let a = TimerKey::named(TenantId::new("a").unwrap(), "order-123");
        let b = TimerKey::named(TenantId::new("b").unwrap(), "order-123");
        assert_ne!(a, b);
    }
}
