//! Dates and times in their one unambiguous spelling, as PostgreSQL counts them.
//!
//! Owns: ISO 8601 as the server itself writes it under `DateStyle = ISO`, years 1 to 9999.
//! Never: guesses. PostgreSQL reads many more spellings, several of which depend on session
//! settings; all of them are [`CannotHash::NotCanonical`].
//!
//! Source: PostgreSQL `src/backend/utils/adt/{date,timestamp,datetime}.c`; days from dates by the
//! proleptic Gregorian calendar, as `date2j` there.

use super::error::CannotHash;

const DAY_US: i64 = 86_400_000_000;
/// Days from 0001-01-01 to 2000-01-01, where PostgreSQL starts to count.
const EPOCH_DAYS: i32 = 730_119;

/// Days since 2000-01-01.
pub(super) fn date_days(text: &str) -> Result<i32, CannotHash> {
    match text {
        "infinity" => Ok(i32::MAX),
        "-infinity" => Ok(i32::MIN),
        _ => date_of(text.as_bytes()),
    }
}

/// Microseconds since midnight.
pub(super) fn time_us(text: &str) -> Result<i64, CannotHash> {
    time_of(text.as_bytes())
}

/// Microseconds since 2000-01-01 00:00:00; a date alone means its midnight.
pub(super) fn timestamp_us(text: &str) -> Result<i64, CannotHash> {
    if let Some(infinity) = infinity_us(text) {
        return Ok(infinity);
    }
    let (date, time) = split_date(text.as_bytes())?;
    let time_us = time.map(time_of).transpose()?.unwrap_or(0);
    Ok(i64::from(date_of(date)?) * DAY_US + time_us)
}

/// Microseconds since 2000-01-01 00:00:00 UTC.
///
/// Only with a numeric offset: without one the answer depends on the session's TimeZone, and what
/// a zone's name means depends on the server's files.
pub(super) fn timestamptz_us(text: &str) -> Result<i64, CannotHash> {
    if let Some(infinity) = infinity_us(text) {
        return Ok(infinity);
    }
    let (date, time) = split_date(text.as_bytes())?;
    let time = time.ok_or(CannotHash::NotCanonical)?;
    let sign_at =
        time.iter().position(|byte| matches!(byte, b'+' | b'-')).ok_or(CannotHash::NotCanonical)?;
    let (time, offset) = time.split_at(sign_at);
    let local_us = i64::from(date_of(date)?) * DAY_US + time_of(time)?;
    Ok(local_us - offset_us(offset)?)
}

fn infinity_us(text: &str) -> Option<i64> {
    match text {
        "infinity" => Some(i64::MAX),
        "-infinity" => Some(i64::MIN),
        _ => None,
    }
}

fn split_date(text: &[u8]) -> Result<(&[u8], Option<&[u8]>), CannotHash> {
    match text.split_at_checked(10) {
        None => Err(CannotHash::NotCanonical),
        Some((date, [])) => Ok((date, None)),
        Some((date, [b' ' | b'T', time @ ..])) => Ok((date, Some(time))),
        Some(_) => Err(CannotHash::NotCanonical),
    }
}

fn date_of(text: &[u8]) -> Result<i32, CannotHash> {
    let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = *text else {
        return Err(CannotHash::NotCanonical);
    };
    let year = 100 * two_digits(y1, y2)? + two_digits(y3, y4)?;
    let month = two_digits(m1, m2)?;
    let day = two_digits(d1, d2)?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let month_days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => return Err(CannotHash::NotCanonical),
    };
    if year == 0 || !(1..=month_days).contains(&day) {
        return Err(CannotHash::NotCanonical);
    }
    let years_before = year - 1;
    let days_before_year =
        365 * years_before + years_before / 4 - years_before / 100 + years_before / 400;
    let days_before_month = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334]
        [month as usize - 1]
        + i32::from(leap && 2 < month);
    Ok(days_before_year + days_before_month + day - 1 - EPOCH_DAYS)
}

/// `HH:MM`, `HH:MM:SS` or `HH:MM:SS.f` with one to six decimals; more would be rounded.
fn time_of(text: &[u8]) -> Result<i64, CannotHash> {
    let [h1, h2, b':', m1, m2, ref rest @ ..] = *text else {
        return Err(CannotHash::NotCanonical);
    };
    let (second, decimals) = match *rest {
        [] => (0, &[][..]),
        [b':', s1, s2] => (two_digits(s1, s2)?, &[][..]),
        [b':', s1, s2, b'.', ref decimals @ ..] if (1..=6).contains(&decimals.len()) => {
            (two_digits(s1, s2)?, decimals)
        }
        _ => return Err(CannotHash::NotCanonical),
    };
    let (hour, minute) = (two_digits(h1, h2)?, two_digits(m1, m2)?);
    // The server also reads 24:00:00 and second 60.
    if 23 < hour || 59 < minute || 59 < second {
        return Err(CannotHash::NotCanonical);
    }
    let mut fraction_us = 0;
    for index in 0..6 {
        let digit = decimals.get(index).copied().unwrap_or(b'0');
        fraction_us = 10 * fraction_us + i64::from(decimal(digit)?);
    }
    Ok(i64::from(3_600 * hour + 60 * minute + second) * 1_000_000 + fraction_us)
}

/// `±HH`, `±HHMM` or `±HH:MM`.
fn offset_us(text: &[u8]) -> Result<i64, CannotHash> {
    let (sign, hour, minute) = match *text {
        [sign, h1, h2] => (sign, two_digits(h1, h2)?, 0),
        [sign, h1, h2, b':', m1, m2] | [sign, h1, h2, m1, m2] => {
            (sign, two_digits(h1, h2)?, two_digits(m1, m2)?)
        }
        _ => return Err(CannotHash::NotCanonical),
    };
    if 14 < hour || 59 < minute {
        return Err(CannotHash::NotCanonical);
    }
    let offset_us = i64::from(60 * hour + minute) * 60_000_000;
    Ok(if sign == b'-' { -offset_us } else { offset_us })
}

fn two_digits(tens: u8, ones: u8) -> Result<i32, CannotHash> {
    Ok(10 * decimal(tens)? + decimal(ones)?)
}

fn decimal(byte: u8) -> Result<i32, CannotHash> {
    if byte.is_ascii_digit() { Ok(i32::from(byte - b'0')) } else { Err(CannotHash::NotCanonical) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_count_from_the_year_2000() {
        let cases = [
            ("2000-01-01", 0),
            ("2000-03-01", 60),
            ("1999-12-31", -1),
            ("2020-01-31", 7_335),
            ("0001-01-01", -730_119),
            ("9999-12-31", 2_921_939),
        ];
        for (text, days) in cases {
            assert_eq!(date_days(text), Ok(days), "{text}");
        }
    }

    #[test]
    fn times_count_microseconds() {
        assert_eq!(time_us("00:00"), Ok(0));
        assert_eq!(time_us("10:00:00.5"), Ok(36_000_500_000));
        assert_eq!(timestamp_us("2000-01-02"), Ok(DAY_US));
        assert_eq!(timestamp_us("1999-12-31T23:59:59.999999"), Ok(-1));
        assert_eq!(timestamptz_us("2000-01-01 02:00:00+02"), Ok(0));
        assert_eq!(timestamptz_us("1999-12-31 18:30:00-05:30"), Ok(0));
        assert_eq!(timestamptz_us("2000-01-01 00:00:00.25+0000"), Ok(250_000));
    }

    #[test]
    fn everything_else_is_left_to_the_server() {
        for text in ["", "now", "2020-1-31", "31.01.2020", "2021-02-29", "0000-01-01", "today", "é"]
        {
            assert_eq!(date_days(text), Err(CannotHash::NotCanonical), "{text}");
        }
        for text in ["2020-01-31 10", "2020-01-31 10:00+02", "2020-01-31 24:00", "2020-01-31é10:00"]
        {
            assert_eq!(timestamp_us(text), Err(CannotHash::NotCanonical), "{text}");
        }
        for text in ["2020-01-31 10:00", "2020-01-31", "2020-01-31 10:00Z", "2020-01-31 10:00+99"] {
            assert_eq!(timestamptz_us(text), Err(CannotHash::NotCanonical), "{text}");
        }
        assert_eq!(time_us("10:00:00.1234567"), Err(CannotHash::NotCanonical));
    }
}
