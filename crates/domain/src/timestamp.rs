//! Instants in milliseconds, and their canonical text form.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use thiserror::Error;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::excerpt;
use crate::text_forms::json_as_text;

/// A UTC instant with millisecond precision, from 1970 to the end of 9998.
///
/// Its text is always the 24 bytes `YYYY-MM-DDTHH:MM:SS.sssZ`, so that the order of the texts is
/// the order of the instants. Input of finer precision is rounded **up** to the millisecond, because a
/// timer may fire late but never early.
///
/// ```
/// use punctual_domain::Timestamp;
/// let due: Timestamp = "2026-12-24T18:00:00.0001+01:00".parse()?;
/// assert_eq!(due.to_string(), "2026-12-24T17:00:00.001Z");
/// # Ok::<(), punctual_domain::TimestampError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// Error for a text or number that is not a supported instant.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TimestampError {
    /// The text is not RFC 3339.
    #[error(
        "\"{given}\" is not an RFC 3339 date and time{}: write it like 2026-12-24T18:00:00Z",
        in_brackets(*.flaw)
    )]
    Malformed {
        /// The text, shortened.
        given: String,
        /// What is wrong with it, if that is clear.
        flaw: Option<&'static str>,
    },
    /// The instant lies outside the years 1970 to 9998.
    #[error("{given} is outside the years 1970 to 9998")]
    OutOfRange {
        /// The text, shortened, or the number of milliseconds.
        given: String,
    },
}

const MILLIS_PER_DAY: i64 = 86_400_000;
const NANOS_PER_MILLI: i128 = 1_000_000;

impl Timestamp {
    /// The earliest instant, 1970-01-01T00:00:00.000Z.
    pub const MIN: Self = Self(0);
    /// The latest instant, 9998-12-31T23:59:59.999Z.
    pub const MAX: Self = Self(253_370_764_799_999);

    /// The instant at this many milliseconds since the Unix epoch.
    pub fn from_millis(millis: i64) -> Result<Self, TimestampError> {
        if (Self::MIN.0..=Self::MAX.0).contains(&millis) {
            Ok(Self(millis))
        } else {
            Err(TimestampError::OutOfRange {
                given: format!("{millis} ms since 1970"),
            })
        }
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// The instant `duration` later, rounded up to the millisecond; `None` past
    /// [`Timestamp::MAX`].
    pub fn checked_add(self, duration: Duration) -> Option<Self> {
        let millis = i64::try_from(duration.as_nanos().div_ceil(1_000_000)).ok()?;
        Self::from_millis(self.0.checked_add(millis)?).ok()
    }

    /// The instant `duration` later, or [`Timestamp::MAX`].
    pub fn saturating_add(self, duration: Duration) -> Self {
        self.checked_add(duration).unwrap_or(Self::MAX)
    }

    /// The instant `duration` earlier, or [`Timestamp::MIN`].
    pub fn saturating_sub(self, duration: Duration) -> Self {
        let millis = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        Self(self.0.saturating_sub(millis).max(Self::MIN.0))
    }

    /// The very next instant, or [`Timestamp::MAX`].
    pub fn next(self) -> Self {
        self.saturating_add(Duration::from_millis(1))
    }

    /// Duration since `earlier`; zero if this is not after it.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0 - earlier.0).unwrap_or(0))
    }

    /// The 24 bytes of the text form, without allocating.
    fn to_ascii(self) -> [u8; 24] {
        let (year, month, day) = civil_from_days(self.0.div_euclid(MILLIS_PER_DAY));
        let rest = self.0.rem_euclid(MILLIS_PER_DAY);
        let mut text = *b"0000-00-00T00:00:00.000Z";
        put(&mut text[0..4], year);
        put(&mut text[5..7], month);
        put(&mut text[8..10], day);
        put(&mut text[11..13], rest / 3_600_000);
        put(&mut text[14..16], rest / 60_000 % 60);
        put(&mut text[17..19], rest / 1_000 % 60);
        put(&mut text[20..23], rest % 1_000);
        text
    }
}

/// Writes a number with leading zeros over all of `digits`.
fn put(digits: &mut [u8], mut number: i64) {
    for digit in digits.iter_mut().rev() {
        // A remainder of ten always fits.
        *digit = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
    }
}

/// The Gregorian date of a day counted from 1970-01-01, after Howard Hinnant's `civil_from_days`:
/// years begin in March, so that the leap day is the last of its year.
const fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

impl FromStr for Timestamp {
    type Err = TimestampError;

    /// Parses any RFC 3339 date and time, rounded up to the millisecond.
    ///
    /// A leap second (`23:59:60` UTC at the end of a month) becomes the instant after it.
    fn from_str(text: &str) -> Result<Self, TimestampError> {
        let parsed = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| refusal(text))?;
        let nanos = parsed.unix_timestamp_nanos();
        let mut millis = nanos.div_euclid(NANOS_PER_MILLI);
        if nanos.rem_euclid(NANOS_PER_MILLI) != 0 || has_digits_past_nanoseconds(text) {
            millis += 1;
        }
        i64::try_from(millis)
            .ok()
            .and_then(|millis| Self::from_millis(millis).ok())
            .ok_or_else(|| TimestampError::OutOfRange {
                given: excerpt(text),
            })
    }
}

fn in_brackets(flaw: Option<&'static str>) -> String {
    flaw.map_or_else(String::new, |flaw| format!(" ({flaw})"))
}

/// Explains what is wrong with a date and time that is nearly right.
fn refusal(text: &str) -> TimestampError {
    let given = excerpt(text);
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    if digits > 4 && text.as_bytes().get(digits) == Some(&b'-') {
        return TimestampError::OutOfRange { given };
    }
    let flaw = flaw(text);
    TimestampError::Malformed { given, flaw }
}

fn flaw(text: &str) -> Option<&'static str> {
    let would_be_right = |text: &str| OffsetDateTime::parse(text, &Rfc3339).is_ok();
    let (date, rest) = text.split_at_checked(10)?;
    if !has_digits_like("0000-00-00", date) {
        return None;
    }
    if !would_be_right(&format!("{date}T00:00:00Z")) {
        return Some("there is no such day");
    }
    if rest.is_empty() {
        return Some("the time of day is missing");
    }
    if would_be_right(&format!("{text}Z")) {
        return Some("the time zone is missing: add Z or an offset such as +01:00");
    }
    let (time, zone) = rest.split_at_checked(6)?;
    if !has_digits_like("T00:00", &time.to_ascii_uppercase()) {
        return None;
    }
    let Some((seconds, _)) = zone.split_at_checked(3).filter(|_| zone.starts_with(':')) else {
        return Some("the seconds are missing");
    };
    let is_a_time = would_be_right(&format!("{date}{time}{seconds}Z"));
    (has_digits_like(":00", seconds) && !is_a_time).then_some("there is no such time of day")
}

/// Whether a text has digits where the pattern has a 0, and else what the pattern has.
fn has_digits_like(pattern: &str, text: &str) -> bool {
    let same = |(of_pattern, of_text): (u8, u8)| match of_pattern {
        b'0' => of_text.is_ascii_digit(),
        other => of_text == other,
    };
    pattern.len() == text.len() && pattern.bytes().zip(text.bytes()).all(same)
}

/// The parser drops digits beyond nanoseconds; such a time still has to be rounded up.
fn has_digits_past_nanoseconds(text: &str) -> bool {
    text.split_once('.').is_some_and(|(_, fraction)| {
        fraction
            .bytes()
            .take_while(u8::is_ascii_digit)
            .skip(9)
            .any(|digit| digit != b'0')
    })
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ascii = self.to_ascii();
        f.pad(std::str::from_utf8(&ascii).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<SystemTime> for Timestamp {
    /// Rounds up to the millisecond. Times before 1970 or after 9998 are clamped.
    fn from(time: SystemTime) -> Self {
        time.duration_since(UNIX_EPOCH)
            .map_or(Self::MIN, |since| Self::MIN.saturating_add(since))
    }
}

impl From<Timestamp> for SystemTime {
    fn from(timestamp: Timestamp) -> Self {
        UNIX_EPOCH + timestamp.since(Timestamp::MIN)
    }
}

json_as_text!(Timestamp);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use time::macros::format_description;

    fn parsed(text: &str) -> String {
        text.parse::<Timestamp>().unwrap().to_string()
    }

    #[test]
    fn what_is_finer_than_a_millisecond_rounds_up() {
        for (text, expected) in [
            ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.000Z"),
            ("2026-01-01T00:00:00.1Z", "2026-01-01T00:00:00.100Z"),
            ("2026-01-01T00:00:00.0001Z", "2026-01-01T00:00:00.001Z"),
            ("2026-01-01T00:00:00.000000001Z", "2026-01-01T00:00:00.001Z"),
            (
                "2026-01-01T00:00:00.0000000000001Z",
                "2026-01-01T00:00:00.001Z",
            ),
            (
                "2026-01-01T00:00:00.0010000000000Z",
                "2026-01-01T00:00:00.001Z",
            ),
            ("2026-12-31T23:59:59.9991Z", "2027-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(parsed(text), expected);
        }
    }

    #[test]
    fn offsets_become_utc() {
        for (text, expected) in [
            ("2026-03-29T02:30:00+02:00", "2026-03-29T00:30:00.000Z"),
            ("2026-01-01T00:00:00-23:59", "2026-01-01T23:59:00.000Z"),
        ] {
            assert_eq!(parsed(text), expected);
        }
    }

    #[test]
    fn a_leap_second_becomes_the_instant_after_it() {
        assert_eq!(parsed("2016-12-31T23:59:60Z"), "2017-01-01T00:00:00.000Z");
        assert!("2016-12-30T12:00:60Z".parse::<Timestamp>().is_err());
    }

    #[test]
    fn the_range_is_exact() {
        assert_eq!(parsed("1970-01-01T00:00:00Z"), Timestamp::MIN.to_string());
        assert_eq!(
            parsed("9998-12-31T23:59:59.999Z"),
            Timestamp::MAX.to_string()
        );
        for outside in [
            "1969-12-31T23:59:59.999Z",
            "1970-01-01T00:00:00+00:01",
            "9998-12-31T23:59:59.9991Z",
            "9999-01-01T00:00:00Z",
            "0000-01-01T00:00:00Z",
            "12026-01-01T00:00:00Z",
        ] {
            let error = outside.parse::<Timestamp>().unwrap_err();
            assert!(
                matches!(error, TimestampError::OutOfRange { .. }),
                "{outside}"
            );
        }
        assert!(Timestamp::from_millis(-1).is_err());
        assert!(Timestamp::from_millis(Timestamp::MAX.as_millis() + 1).is_err());
        assert!(Timestamp::from_millis(i64::MIN).is_err());
    }

    #[test]
    fn nonsense_is_refused_with_an_example_of_what_is_right() {
        for bad in [
            "",
            "now",
            "2026-12-24",
            "2026-12-24T18:00:00",
            "2026-13-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "1767225600000",
        ] {
            let error = bad.parse::<Timestamp>().unwrap_err();
            assert!(error.to_string().contains("2026-12-24T18:00:00Z"), "{bad}");
        }
    }

    #[test]
    fn the_error_for_a_nearly_right_time_says_what_is_missing() {
        for (text, expected) in [
            ("2026-12-24", "the time of day is missing"),
            ("2026-12-24T18:00:00", "add Z or an offset such as +01:00"),
            ("2026-12-24T18:00:00.5", "add Z or an offset such as +01:00"),
            ("2026-12-24T18:00Z", "the seconds are missing"),
            ("2026-12-24T18:00", "the seconds are missing"),
            ("2026-02-30T00:00:00Z", "there is no such day"),
            ("2026-13-01", "there is no such day"),
            ("2026-12-24T24:00:00Z", "there is no such time of day"),
            ("2026-12-24T18:61:00+01:00", "there is no such time of day"),
        ] {
            let error = text.parse::<Timestamp>().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        for text in [
            "",
            "tomorrow",
            "24.12.2026",
            "2026-12-24T18:00:00 CET",
            "2026-12-24ä",
        ] {
            let error = text.parse::<Timestamp>().unwrap_err().to_string();
            assert!(error.contains("date and time: write it like"), "{error}");
        }
    }

    #[test]
    fn adding_rounds_up_and_stops_at_the_end() {
        let start = Timestamp::MIN;
        assert_eq!(start.saturating_add(Duration::from_nanos(1)), start.next());
        assert_eq!(start.checked_add(Duration::MAX), None);
        assert_eq!(start.saturating_add(Duration::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::MAX.next(), Timestamp::MAX);
        assert_eq!(start.saturating_sub(Duration::MAX), Timestamp::MIN);
        assert_eq!(Timestamp::MAX.since(start).as_millis(), 253_370_764_799_999);
        assert_eq!(start.since(Timestamp::MAX), Duration::ZERO);
    }

    #[test]
    fn leap_days_are_where_they_belong() {
        for day in [
            "2000-02-29",
            "2024-02-29",
            "2400-02-29",
            "2100-03-01",
            "9996-02-29",
        ] {
            let text = format!("{day}T12:34:56.789Z");
            assert_eq!(parsed(&text), text);
        }
    }

    #[test]
    fn an_instant_is_the_same_as_a_system_time() {
        let instant: Timestamp = "2026-12-24T18:00:00.123Z".parse().unwrap();
        assert_eq!(Timestamp::from(SystemTime::from(instant)), instant);
        assert_eq!(SystemTime::from(Timestamp::MIN), UNIX_EPOCH);
    }

    #[test]
    fn system_times_round_up_and_saturate() {
        let at = |nanos| Timestamp::from(UNIX_EPOCH + Duration::from_nanos(nanos)).as_millis();
        assert_eq!((at(0), at(1), at(1_000_000), at(1_000_001)), (0, 1, 1, 2));
        assert_eq!(
            Timestamp::from(UNIX_EPOCH - Duration::from_secs(1)),
            Timestamp::MIN
        );
        let far = UNIX_EPOCH + Duration::from_secs(400_000_000_000);
        assert_eq!(Timestamp::from(far), Timestamp::MAX);
    }

    proptest! {
        #[test]
        fn the_text_is_what_the_time_crate_writes(millis in 0..=Timestamp::MAX.as_millis()) {
            let ours = Timestamp::from_millis(millis).unwrap().to_string();
            let theirs = OffsetDateTime::from_unix_timestamp_nanos(i128::from(millis) * 1_000_000)
                .unwrap()
                .format(format_description!(
                    "[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z"
                ))
                .unwrap();
            prop_assert_eq!(ours, theirs);
        }

        #[test]
        fn text_and_json_lead_back_to_the_instant(millis in 0..=Timestamp::MAX.as_millis()) {
            let instant = Timestamp::from_millis(millis).unwrap();
            prop_assert_eq!(instant.to_string().parse::<Timestamp>().unwrap(), instant);
            let json = serde_json::to_string(&instant).unwrap();
            prop_assert_eq!(serde_json::from_str::<Timestamp>(&json).unwrap(), instant);
        }

        #[test]
        fn text_order_is_time_order(a in 0..=Timestamp::MAX.as_millis(), b in 0..=Timestamp::MAX.as_millis()) {
            let (a, b) = (Timestamp::from_millis(a).unwrap(), Timestamp::from_millis(b).unwrap());
            prop_assert_eq!(a.to_string().cmp(&b.to_string()), a.cmp(&b));
        }

        #[test]
        fn a_parsed_time_is_never_before_the_one_that_was_written(
            seconds in 0..253_370_764_799_i64, nanos in 0..1_000_000_000_u32,
        ) {
            let written = OffsetDateTime::from_unix_timestamp_nanos(
                i128::from(seconds) * 1_000_000_000 + i128::from(nanos),
            ).unwrap();
            let read: Timestamp = written.format(&Rfc3339).unwrap().parse().unwrap();
            let early = written.unix_timestamp_nanos() - i128::from(read.as_millis()) * 1_000_000;
            prop_assert!((-999_999..=0).contains(&early));
        }

        #[test]
        fn no_text_makes_it_panic(text in any::<String>()) {
            let _ = text.parse::<Timestamp>();
        }
    }
}
