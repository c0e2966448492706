//! Values as PostgreSQL has them.

use std::error::Error;
use std::time::Duration;

use punctual_domain::Timestamp;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

/// Milliseconds from 1970 to 2000, where PostgreSQL begins to count.
const EPOCH_2000_MILLIS: i64 = 946_684_800_000;

/// An instant as a `timestamptz`.
///
/// All our instants are whole milliseconds, so nothing is rounded on the way in; on the way out, what is
/// finer is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instant(pub(crate) Timestamp);

impl ToSql for Instant {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let micros = (self.0.as_millis() - EPOCH_2000_MILLIS) * 1_000;
        out.extend_from_slice(&micros.to_be_bytes());
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TIMESTAMPTZ
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Instant {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        let micros = i64::from_be_bytes(raw.try_into()?);
        let millis = micros
            .div_euclid(1_000)
            .checked_add(EPOCH_2000_MILLIS)
            .ok_or("an instant out of range")?;
        Ok(Self(Timestamp::from_millis(millis)?))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TIMESTAMPTZ
    }
}

/// A text that PostgreSQL can store: it has no NUL.
pub(crate) fn storable(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// A limit as a `bigint`.
pub(crate) fn sql_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// A duration in milliseconds, as a `double precision`.
pub(crate) fn sql_millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_comes_back_as_it_went_in_and_what_is_finer_is_cut_off() {
        for millis in [
            0,
            1,
            946_684_800_000,
            1_800_000_000_123,
            Timestamp::MAX.as_millis(),
        ] {
            let mut bytes = BytesMut::new();
            let instant = Instant(Timestamp::from_millis(millis).unwrap());
            let _ = instant.to_sql(&Type::TIMESTAMPTZ, &mut bytes).unwrap();
            assert_eq!(
                Instant::from_sql(&Type::TIMESTAMPTZ, &bytes).unwrap(),
                instant
            );
        }
        let finer = (1_999_i64 - EPOCH_2000_MILLIS * 1_000).to_be_bytes();
        let read = Instant::from_sql(&Type::TIMESTAMPTZ, &finer).unwrap();
        assert_eq!(read.0.as_millis(), 1);
    }
}
