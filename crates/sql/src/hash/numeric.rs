//! Values of type numeric, as far as their hash needs them.
//!
//! Owns: reading numeric's text and binary forms into base-10000 digits without superfluous
//! zeros, and hashing those. Never: calculates.
//!
//! Source: PostgreSQL `src/backend/utils/adt/numeric.c` (`numeric_in`, `numeric_recv`,
//! `hash_numeric_extended`).

use super::error::CannotHash;
use super::lookup3::hash_bytes;
use super::scalar::trim_space;

/// Longer spellings are left to the server, whose limits then need not be known here.
const TEXT_BYTES_MAX: usize = 4_000;
const EXPONENT_ABS_MAX: i32 = 1_000;

const SIGN_POSITIVE: u16 = 0x0000;
const SIGN_NEGATIVE: u16 = 0x4000;
const SIGN_NAN: u16 = 0xC000;
const SIGN_INFINITY: u16 = 0xD000;
const SIGN_MINUS_INFINITY: u16 = 0xF000;

/// A numeric without its sign, which PostgreSQL's hash leaves out.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Numeric {
    /// NaN or an infinity.
    Special,
    /// The value is the sum over i of `digits[i] * 10000^(weight - i)`.
    ///
    /// Invariant: neither the first nor the last digit is 0; zero has no digits at all.
    Finite { weight: i32, digits: Vec<i16> },
}

impl Numeric {
    /// `hash_numeric_extended(self, 0)`.
    pub(super) fn hash(&self) -> u64 {
        match self {
            Self::Special => 0,
            Self::Finite { digits, .. } if digits.is_empty() => u64::MAX,
            Self::Finite { weight, digits } => {
                let bytes: Vec<u8> = digits.iter().flat_map(|digit| digit.to_le_bytes()).collect();
                // A C int widened to 64 bits: the sign is extended.
                hash_bytes(&bytes) ^ (i64::from(*weight) as u64)
            }
        }
    }

    /// Whether the value has no digit beyond `scale` decimals, so that rounding keeps it.
    pub(super) fn fits_scale(&self, scale: i32) -> bool {
        match self {
            Self::Special => true,
            Self::Finite { weight, digits } => match digits.last() {
                None => true,
                Some(last) => {
                    let zeros_trailing = [10, 100, 1000].iter().filter(|p| last % **p == 0).count();
                    let last_weight = weight - (digits.len() as i32 - 1);
                    -(4 * last_weight + zeros_trailing as i32) <= scale
                }
            },
        }
    }

    fn finite(mut weight: i32, digits: &[i16]) -> Self {
        let zeros_leading = digits.iter().take_while(|digit| **digit == 0).count();
        let digits = &digits[zeros_leading..];
        weight -= zeros_leading as i32;
        let zeros_trailing = digits.iter().rev().take_while(|digit| **digit == 0).count();
        Self::Finite { weight, digits: digits[..digits.len() - zeros_trailing].to_vec() }
    }

    pub(super) fn from_text(text: &str) -> Result<Self, CannotHash> {
        let text = trim_space(text);
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        if text.eq_ignore_ascii_case("nan")
            || unsigned.eq_ignore_ascii_case("inf")
            || unsigned.eq_ignore_ascii_case("infinity")
        {
            return Ok(Self::Special);
        }
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            None => (unsigned, 0),
            Some((mantissa, exponent)) => (mantissa, exponent_of(exponent)?),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        if whole.is_empty() && fraction.is_empty() {
            return Err(CannotHash::Malformed);
        }
        if !whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit()) {
            // Newer servers read 0x1F and 1_000 too.
            return Err(CannotHash::NotCanonical);
        }
        if TEXT_BYTES_MAX < text.len() || EXPONENT_ABS_MAX < exponent.abs() {
            return Err(CannotHash::NotCanonical);
        }

        // The value is `decimals * 10^ten_power`; zeros bring the power to a multiple of 4.
        let ten_power = exponent - fraction.len() as i32;
        let zeros_appended = ten_power.rem_euclid(4);
        let mut decimals: Vec<u8> =
            whole.bytes().chain(fraction.bytes()).map(|byte| byte - b'0').collect();
        decimals.extend(std::iter::repeat_n(0, zeros_appended as usize));
        let digits: Vec<i16> = decimals
            .rchunks(4)
            .rev()
            .map(|group| group.iter().fold(0, |digit, decimal| 10 * digit + i16::from(*decimal)))
            .collect();
        let last_weight = (ten_power - zeros_appended) / 4;
        Ok(Self::finite(last_weight + digits.len() as i32 - 1, &digits))
    }

    pub(super) fn from_binary(bytes: &[u8]) -> Result<Self, CannotHash> {
        let words: Vec<u16> =
            bytes.chunks_exact(2).map(|word| u16::from_be_bytes([word[0], word[1]])).collect();
        let [digit_count, weight, sign, display_scale, ref digits @ ..] = words[..] else {
            return Err(CannotHash::Malformed);
        };
        if !bytes.len().is_multiple_of(2) || digits.len() != usize::from(digit_count) {
            return Err(CannotHash::Malformed);
        }
        if digits.iter().any(|digit| 9_999 < *digit) {
            return Err(CannotHash::Malformed);
        }
        match sign {
            SIGN_NAN | SIGN_INFINITY | SIGN_MINUS_INFINITY => return Ok(Self::Special),
            SIGN_POSITIVE | SIGN_NEGATIVE => {}
            _ => return Err(CannotHash::Malformed),
        }
        let digits: Vec<i16> = digits.iter().map(|digit| *digit as i16).collect();
        let value = Self::finite(i32::from(weight as i16), &digits);
        // The server cuts off what its display scale would hide.
        if !value.fits_scale(i32::from(display_scale)) {
            return Err(CannotHash::NotCanonical);
        }
        Ok(value)
    }
}

fn exponent_of(text: &str) -> Result<i32, CannotHash> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() {
        return Err(CannotHash::Malformed);
    }
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(CannotHash::NotCanonical);
    }
    // Too large for an i32 is beyond what is handled here, and perhaps 0 times something.
    text.parse().map_err(|_| CannotHash::NotCanonical)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finite(weight: i32, digits: &[i16]) -> Numeric {
        Numeric::Finite { weight, digits: digits.to_vec() }
    }

    #[test]
    fn text_becomes_digits_without_superfluous_zeros() {
        let cases = [
            ("0", finite(0, &[])),
            ("1", finite(0, &[1])),
            ("-001.500", finite(0, &[1, 5000])),
            ("10000", finite(1, &[1])),
            ("123456.789", finite(1, &[12, 3456, 7890])),
            (".0001", finite(-1, &[1])),
            ("1e5", finite(1, &[10])),
            ("1.5E-6", finite(-2, &[150])),
            (" +12. ", finite(0, &[12])),
            ("nAn", Numeric::Special),
            ("-Infinity", Numeric::Special),
        ];
        for (text, expected) in cases {
            match (Numeric::from_text(text), expected) {
                // The weight of zero means nothing.
                (Ok(Numeric::Finite { digits, .. }), Numeric::Finite { digits: none, .. })
                    if none.is_empty() =>
                {
                    assert_eq!(digits, none);
                }
                (found, expected) => assert_eq!(found, Ok(expected), "{text:?}"),
            }
        }
    }

    #[test]
    fn what_is_no_decimal_number_is_refused() {
        let cases = [
            ("", CannotHash::Malformed),
            (".", CannotHash::Malformed),
            ("1e", CannotHash::Malformed),
            ("1_000", CannotHash::NotCanonical),
            ("0x1F", CannotHash::NotCanonical),
            ("1e99999999999", CannotHash::NotCanonical),
        ];
        for (text, expected) in cases {
            assert_eq!(Numeric::from_text(text), Err(expected), "{text:?}");
        }
    }

    #[test]
    fn scale_counts_the_decimals_that_are_there() {
        for (text, scale) in [("1.50", 1), ("1.05", 2), ("1", 0), ("1200", -2), ("0.00010", 4)] {
            let value = Numeric::from_text(text).expect("a number");
            assert!(value.fits_scale(scale), "{text}");
            assert!(!value.fits_scale(scale - 1), "{text}");
        }
    }

    #[test]
    fn binary_must_agree_with_its_own_count_and_scale() {
        let words = |words: &[u16]| -> Vec<u8> {
            words.iter().flat_map(|word| word.to_be_bytes()).collect()
        };
        assert_eq!(
            Numeric::from_binary(&words(&[2, 0, 0x4000, 1, 1, 5000])),
            Ok(finite(0, &[1, 5000]))
        );
        assert_eq!(Numeric::from_binary(&words(&[0, 0, 0xC000, 0])), Ok(Numeric::Special));
        for malformed in [&[2, 0, 0, 0, 1][..], &[1, 0, 7, 0, 1], &[1, 0, 0, 0, 10_000], &[0, 0]] {
            assert_eq!(Numeric::from_binary(&words(malformed)), Err(CannotHash::Malformed));
        }
        assert_eq!(
            Numeric::from_binary(&words(&[2, 0, 0, 0, 1, 5000])),
            Err(CannotHash::NotCanonical)
        );
    }
}
