//! Conversions from date libraries, each behind a feature of its name.
//!
//! All round up to the millisecond, because a timer may fire late but never early, and clamp times
//! before 1970 or after 9998, as `From<SystemTime>` does.

use crate::Timestamp;

const NANOS_PER_MILLI: i128 = 1_000_000;

/// The instant at this many nanoseconds since the Unix epoch.
fn from_unix_nanos(nanos: i128) -> Timestamp {
    let up = i128::from(nanos.rem_euclid(NANOS_PER_MILLI) != 0);
    let millis = nanos.div_euclid(NANOS_PER_MILLI) + up;
    let (min, max) = (Timestamp::MIN, Timestamp::MAX);
    let nearest = millis.clamp(min.as_millis().into(), max.as_millis().into());
    // The clamped value fits.
    i64::try_from(nearest)
        .ok()
        .and_then(|millis| Timestamp::from_millis(millis).ok())
        .unwrap_or(max)
}

#[cfg(feature = "time")]
impl From<time::OffsetDateTime> for Timestamp {
    /// Rounds up to the millisecond.
    fn from(instant: time::OffsetDateTime) -> Self {
        from_unix_nanos(instant.unix_timestamp_nanos())
    }
}

#[cfg(feature = "jiff")]
impl From<jiff::Timestamp> for Timestamp {
    /// Rounds up to the millisecond.
    fn from(instant: jiff::Timestamp) -> Self {
        from_unix_nanos(instant.as_nanosecond())
    }
}

#[cfg(feature = "jiff")]
impl From<&jiff::Zoned> for Timestamp {
    /// Rounds up to the millisecond.
    fn from(zoned: &jiff::Zoned) -> Self {
        zoned.timestamp().into()
    }
}

#[cfg(feature = "chrono")]
impl<Tz: chrono::TimeZone> From<chrono::DateTime<Tz>> for Timestamp {
    /// Rounds up to the millisecond.
    fn from(instant: chrono::DateTime<Tz>) -> Self {
        // A leap second is the second before it with more than 10^9 nanoseconds, and so becomes an
        // instant of the second after it: late, not early.
        let seconds = i128::from(instant.timestamp()) * 1_000_000_000;
        from_unix_nanos(seconds + i128::from(instant.timestamp_subsec_nanos()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nanoseconds_round_up_and_are_kept_in_range() {
        for (nanos, millis) in [
            (0, 0),
            (1, 1),
            (1_000_000, 1),
            (1_000_001, 2),
            (-1, 0),
            (i128::MIN / 2, 0),
            (i128::MAX / 2, Timestamp::MAX.as_millis()),
        ] {
            assert_eq!(from_unix_nanos(nanos).as_millis(), millis, "{nanos} ns");
        }
    }

    #[cfg(all(feature = "time", feature = "jiff", feature = "chrono"))]
    #[test]
    fn the_date_libraries_agree_and_nothing_becomes_early() {
        let text = "2026-12-24T18:00:00.000000001+01:00";
        let expected: Timestamp = text.parse().unwrap();
        assert_eq!(expected.to_string(), "2026-12-24T17:00:00.001Z");
        let rfc3339 = time::format_description::well_known::Rfc3339;
        let of_time = time::OffsetDateTime::parse(text, &rfc3339).unwrap();
        let of_jiff: jiff::Timestamp = text.parse().unwrap();
        let of_chrono = chrono::DateTime::parse_from_rfc3339(text).unwrap();
        assert_eq!(Timestamp::from(of_time), expected);
        assert_eq!(Timestamp::from(of_jiff), expected);
        let utc = jiff::tz::TimeZone::UTC;
        assert_eq!(Timestamp::from(&of_jiff.to_zoned(utc)), expected);
        assert_eq!(Timestamp::from(of_chrono), expected);
        assert_eq!(Timestamp::from(of_chrono.to_utc()), expected);
        let leap = chrono::DateTime::parse_from_rfc3339("2016-12-31T23:59:60.5Z").unwrap();
        assert_eq!(
            Timestamp::from(leap).to_string(),
            "2017-01-01T00:00:00.500Z"
        );
    }
}
