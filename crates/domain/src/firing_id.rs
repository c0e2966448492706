//! The identity of a firing, by which repetitions are deduplicated.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::text_forms::json_as_text;
use crate::{Registration, TimerKey, Timestamp, excerpt};

/// The identity of one firing: `tenant:serviceCallId:registeredAtMs:dueAtMs`.
///
/// A firing that is published again, after a crash or a lost acknowledgement, has the same id. Two
/// firings of one timer never share one, because every accepted schedule of a key has a later
/// registration than all before it (see [`crate::schedule_order`]).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FiringId {
    /// The timer that fires.
    pub key: TimerKey,
    /// The schedule that fires.
    pub registration: Registration,
}

/// Error for a text that is not a firing id.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("\"{given}\" is not a firing id: it reads tenant:serviceCallId:registeredAtMs:dueAtMs")]
pub struct FiringIdError {
    given: String,
}

impl fmt::Display for FiringId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}:{}",
            self.key,
            self.registration.registered_at.as_millis(),
            self.registration.due_at.as_millis()
        )
    }
}

impl FromStr for FiringId {
    type Err = FiringIdError;

    fn from_str(text: &str) -> Result<Self, FiringIdError> {
        parse(text).ok_or_else(|| FiringIdError {
            given: excerpt(text),
        })
    }
}

fn parse(text: &str) -> Option<FiringId> {
    let mut parts = text.split(':');
    let key = TimerKey::new(parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let registered_at = millis(parts.next()?)?;
    let due_at = millis(parts.next()?)?;
    parts.next().is_none().then_some(FiringId {
        key,
        registration: Registration {
            registered_at,
            due_at,
        },
    })
}

/// Accepts the canonical form only, so that equal ids have equal texts.
fn millis(text: &str) -> Option<Timestamp> {
    let number: i64 = text.parse().ok()?;
    let timestamp = Timestamp::from_millis(number).ok()?;
    (number.to_string() == text).then_some(timestamp)
}

json_as_text!(FiringId);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ServiceCallId, TenantId};
    use proptest::prelude::*;
    use uuid::Uuid;

    #[test]
    fn it_reads_as_the_contract_says() {
        let text = "tenant-a:0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8e:1000:2000";
        let id: FiringId = text.parse().unwrap();
        assert_eq!(id.key.tenant_id.as_str(), "tenant-a");
        assert_eq!(id.registration.registered_at.as_millis(), 1000);
        assert_eq!(id.registration.due_at.as_millis(), 2000);
        assert_eq!(id.to_string(), text);
    }

    #[test]
    fn other_texts_are_refused() {
        let good = "a:0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8e:1000:2000";
        for bad in [
            "",
            ":::",
            &good.replace(":1000", ":+1000"),
            &good.replace(":1000", ":01000"),
            &good.replace(":1000", ":-1"),
            &format!("{good}:1"),
            good.trim_end_matches(":2000"),
        ] {
            assert!(bad.parse::<FiringId>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn text_leads_back_to_the_id(
            tenant in "[A-Za-z0-9_-]{1,20}", call in any::<u128>(),
            registered in 0..=Timestamp::MAX.as_millis(), due in 0..=Timestamp::MAX.as_millis(),
        ) {
            let id = FiringId {
                key: TimerKey::new(
                    TenantId::new(&tenant).unwrap(),
                    ServiceCallId::from_uuid(Uuid::from_u128(call)),
                ),
                registration: Registration {
                    registered_at: Timestamp::from_millis(registered).unwrap(),
                    due_at: Timestamp::from_millis(due).unwrap(),
                },
            };
            prop_assert_eq!(id.to_string().parse::<FiringId>().unwrap(), id);
        }
    }
}
