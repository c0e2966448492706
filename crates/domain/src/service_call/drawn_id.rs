//! Ids of calls that are submitted by a command without one: drawn from the command, so that the same
//! command is the same call, however often it is delivered.

use uuid::Uuid;

use super::IdempotencyKey;
use crate::{EnvelopeId, ServiceCallId, TenantId};

/// Namespace of drawn ids. Others may compute them, so changing it would break a contract.
const DRAWN: Uuid = Uuid::from_u128(0x2d9c_7e14_06b3_5f8a_9c41_b7a5_58e0_3f62);

impl ServiceCallId {
    /// The id drawn from an idempotency key: the UUID version 5 of `<tenant>:key:<key>`.
    pub fn drawn_from_key(tenant_id: &TenantId, key: &IdempotencyKey) -> Self {
        drawn(&format!("{tenant_id}:key:{}", key.as_str()))
    }

    /// The id drawn from the command itself: the UUID version 5 of `<tenant>:message:<envelope id>`.
    pub fn drawn_from_message(tenant_id: &TenantId, id: EnvelopeId) -> Self {
        drawn(&format!("{tenant_id}:message:{id}"))
    }
}

fn drawn(name: &str) -> ServiceCallId {
    ServiceCallId::from_uuid(Uuid::new_v5(&DRAWN, name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_key(tenant: &str, key: &str) -> ServiceCallId {
        let key = IdempotencyKey::new(key).unwrap();
        ServiceCallId::drawn_from_key(&TenantId::new(tenant).unwrap(), &key)
    }

    fn from_message(tenant: &str, id: u128) -> ServiceCallId {
        let id = EnvelopeId::from_uuid(Uuid::from_u128(id));
        ServiceCallId::drawn_from_message(&TenantId::new(tenant).unwrap(), id)
    }

    #[test]
    fn a_drawn_id_never_changes_between_releases() {
        let drawn = [
            from_key("tenant-a", "dinner").to_string(),
            from_message("tenant-a", 7).to_string(),
        ];
        assert_eq!(
            drawn,
            [
                "7d53d503-7ce3-5101-8de3-3a811d91f23e",
                "ffd206a4-1917-5a46-b5c4-061a2f5cc5f8",
            ]
        );
    }

    #[test]
    fn another_tenant_key_or_message_has_another_id() {
        let all = [
            from_key("a", "k"),
            from_key("b", "k"),
            from_key("a", "k2"),
            from_message("a", 1),
            from_message("b", 1),
            from_message("a", 2),
            // A key that reads like a message.
            from_key("a", "00000000-0000-0000-0000-000000000001"),
        ];
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
        assert_eq!(from_key("a", "k"), from_key("a", "k"));
    }
}
