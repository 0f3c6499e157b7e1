//! Text forms of the simple key types, read as the server's input functions read them.
//!
//! Owns: integers, oid, boolean, floating point, uuid and bytea. Never: reads a spelling that
//! differs between server versions or settings; that is [`CannotHash::NotCanonical`].
//!
//! Source: PostgreSQL `src/backend/utils/adt/{numutils,bool,float,uuid,varlena,encode}.c`.

use std::borrow::Cow;

use super::error::CannotHash;

/// Without the white space that C's `isspace` sees around a value.
pub(super) fn trim_space(text: &str) -> &str {
    text.trim_matches([' ', '\t', '\n', '\u{b}', '\u{c}', '\r'])
}

/// An integer in `min..=max`.
pub(super) fn integer(text: &str, min: i64, max: i64) -> Result<i64, CannotHash> {
    let text = trim_space(text);
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        // All digits, so the only failure left is one of size.
        let value: i64 = text.parse().map_err(|_| CannotHash::Malformed)?;
        return if (min..=max).contains(&value) { Ok(value) } else { Err(CannotHash::Malformed) };
    }
    // From PostgreSQL 16 on, 0x1F, 0o17, 0b1 and 1_000 are integers too.
    if !text.is_ascii() || digits.starts_with(|first: char| first.is_ascii_digit()) {
        return Err(CannotHash::NotCanonical);
    }
    Err(CannotHash::Malformed)
}

/// An oid written as plain decimal digits.
///
/// A sign or a leading zero (octal from PostgreSQL 16 on) is left to the server.
pub(super) fn oid(text: &str) -> Result<u32, CannotHash> {
    let text = trim_space(text);
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    if text.is_empty() || !plain || (text.starts_with('0') && text != "0") {
        return Err(CannotHash::NotCanonical);
    }
    text.parse().map_err(|_| CannotHash::Malformed)
}

/// A boolean: any unambiguous beginning of true, false, yes, no, on, off; or 1, 0.
pub(super) fn boolean(text: &str) -> Result<bool, CannotHash> {
    let text = trim_space(text);
    let begins = |word: &str, length_min: usize| {
        length_min <= text.len()
            && word.get(..text.len()).is_some_and(|start| start.eq_ignore_ascii_case(text))
    };
    if begins("true", 1) || begins("yes", 1) || begins("on", 2) || text == "1" {
        Ok(true)
    } else if begins("false", 1) || begins("no", 1) || begins("off", 2) || text == "0" {
        Ok(false)
    } else {
        Err(CannotHash::Malformed)
    }
}

/// A double precision number.
pub(super) fn float8(text: &str) -> Result<f64, CannotHash> {
    let text = trim_space(text);
    match float_word(text) {
        Some(value) => Ok(value),
        None => {
            let mantissa_zero = decimal_float_is_zero(text)?;
            let value: f64 = text.parse().map_err(|_| CannotHash::Malformed)?;
            // The server calls overflow and underflow "out of range".
            if value.is_infinite() || (value == 0.0 && !mantissa_zero) {
                return Err(CannotHash::Malformed);
            }
            Ok(value)
        }
    }
}

/// A real number, widened as the server does before it hashes.
pub(super) fn float4(text: &str) -> Result<f64, CannotHash> {
    let text = trim_space(text);
    match float_word(text) {
        Some(value) => Ok(value),
        None => {
            let mantissa_zero = decimal_float_is_zero(text)?;
            let value: f32 = text.parse().map_err(|_| CannotHash::Malformed)?;
            if value.is_infinite() || (value == 0.0 && !mantissa_zero) {
                return Err(CannotHash::Malformed);
            }
            Ok(f64::from(value))
        }
    }
}

fn float_word(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if text.eq_ignore_ascii_case("nan") {
        Some(f64::NAN)
    } else if unsigned.eq_ignore_ascii_case("inf") || unsigned.eq_ignore_ascii_case("infinity") {
        Some(if text.starts_with('-') { f64::NEG_INFINITY } else { f64::INFINITY })
    } else {
        None
    }
}

/// Checks the decimal syntax, and says whether every digit before the exponent is 0.
fn decimal_float_is_zero(text: &str) -> Result<bool, CannotHash> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if (whole.is_empty() && fraction.is_empty()) || exponent.is_empty() {
        return Err(CannotHash::Malformed);
    }
    if !whole.bytes().chain(fraction.bytes()).chain(exponent.bytes()).all(|b| b.is_ascii_digit()) {
        // Hexadecimal floats and what else the server's C library reads.
        return Err(CannotHash::NotCanonical);
    }
    Ok(whole.bytes().chain(fraction.bytes()).all(|byte| byte == b'0'))
}

/// A uuid: 32 hexadecimal digits, a hyphen allowed after every fourth, braces allowed around.
pub(super) fn uuid(text: &str) -> Result<[u8; 16], CannotHash> {
    let text = match text.strip_prefix('{') {
        Some(opened) => opened.strip_suffix('}').ok_or(CannotHash::Malformed)?,
        None => text,
    };
    let mut rest = text.as_bytes();
    let mut uuid = [0; 16];
    for (index, byte) in uuid.iter_mut().enumerate() {
        let [high, low, after @ ..] = rest else {
            return Err(CannotHash::Malformed);
        };
        *byte = hex_byte(*high, *low)?;
        rest = match after {
            [b'-', after @ ..] if index % 2 == 1 && index < 15 => after,
            after => after,
        };
    }
    if rest.is_empty() { Ok(uuid) } else { Err(CannotHash::Malformed) }
}

/// A bytea in hex format (`\x…`) or in escape format.
pub(super) fn bytea(text: &str) -> Result<Cow<'_, [u8]>, CannotHash> {
    if let Some(hex) = text.strip_prefix("\\x") {
        return bytea_hex(hex.as_bytes()).map(Cow::Owned);
    }
    if !text.contains('\\') {
        return Ok(Cow::Borrowed(text.as_bytes()));
    }
    let mut value = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    loop {
        let (byte, after) = match *rest {
            [] => return Ok(Cow::Owned(value)),
            [b'\\', b'\\', ref after @ ..] => (b'\\', after),
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ref after @ ..] => {
                (((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0'), after)
            }
            [b'\\', ..] => return Err(CannotHash::Malformed),
            [byte, ref after @ ..] => (byte, after),
        };
        value.push(byte);
        rest = after;
    }
}

fn bytea_hex(mut hex: &[u8]) -> Result<Vec<u8>, CannotHash> {
    let mut value = Vec::with_capacity(hex.len() / 2);
    loop {
        hex = match *hex {
            [] => return Ok(value),
            // White space may occur between bytes, not within one.
            [b' ' | b'\n' | b'\t' | b'\r', ref after @ ..] => after,
            [high, low, ref after @ ..] => {
                value.push(hex_byte(high, low)?);
                after
            }
            [_] => return Err(CannotHash::Malformed),
        };
    }
}

fn hex_byte(high: u8, low: u8) -> Result<u8, CannotHash> {
    let digit = |byte: u8| char::from(byte).to_digit(16).ok_or(CannotHash::Malformed);
    Ok((digit(high)? * 16 + digit(low)?) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_keep_to_their_range_and_to_decimal() {
        let read = |text| integer(text, i64::from(i16::MIN), i64::from(i16::MAX));
        for (text, value) in [("0", 0), (" -1\n", -1), ("+7", 7), ("000032767", 32767), ("-0", 0)] {
            assert_eq!(read(text), Ok(value), "{text:?}");
        }
        for text in ["", "-", "+-1", "32768", "99999999999999999999", "abc", "- 1"] {
            assert_eq!(read(text), Err(CannotHash::Malformed), "{text:?}");
        }
        for text in ["0x1F", "1_000", "\u{a0}1", "1.0"] {
            assert_eq!(read(text), Err(CannotHash::NotCanonical), "{text:?}");
        }
    }

    #[test]
    fn oids_are_plain_decimals() {
        assert_eq!(oid(" 4294967295 "), Ok(u32::MAX));
        assert_eq!(oid("4294967296"), Err(CannotHash::Malformed));
        for text in ["", "-1", "010", "0x1"] {
            assert_eq!(oid(text), Err(CannotHash::NotCanonical), "{text:?}");
        }
    }

    #[test]
    fn booleans_are_beginnings_of_words() {
        for text in ["t", " TRUE ", "tru", "y", "yes", "on", "1"] {
            assert_eq!(boolean(text), Ok(true), "{text:?}");
        }
        for text in ["f", "fAlse", "n", "no", "of", "off", "0"] {
            assert_eq!(boolean(text), Ok(false), "{text:?}");
        }
        for text in ["", "o", "2", "truee", "01", "é"] {
            assert_eq!(boolean(text), Err(CannotHash::Malformed), "{text:?}");
        }
    }

    #[test]
    fn floats_are_rounded_once_and_never_out_of_range() {
        assert_eq!(float8(" 1.5e3 "), Ok(1500.0));
        assert_eq!(float8("-.5"), Ok(-0.5));
        assert_eq!(float8("-Inf"), Ok(f64::NEG_INFINITY));
        assert_eq!(float8("0e999"), Ok(0.0));
        assert_eq!(float4("0.1"), Ok(f64::from(0.1_f32)));
        assert!(float8("NaN").expect("a float").is_nan());
        for text in ["", ".", "1e", "1e400", "1e-400", "-"] {
            assert_eq!(float8(text), Err(CannotHash::Malformed), "{text:?}");
        }
        assert_eq!(float4("1e39"), Err(CannotHash::Malformed));
        for text in ["0x1p3", "nan(1)", "1_0"] {
            assert_eq!(float8(text), Err(CannotHash::NotCanonical), "{text:?}");
        }
    }

    #[test]
    fn uuids_may_wear_hyphens_and_braces() {
        let plain = uuid("a0eebc999c0b4ef8bb6d6bb9bd380a11").expect("a uuid");
        for text in [
            "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
            "{a0eebc99-9c0b4ef8-bb6d6bb9-bd380a11}",
            "a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11",
        ] {
            assert_eq!(uuid(text), Ok(plain), "{text}");
        }
        for text in ["", "{a0eebc999c0b4ef8bb6d6bb9bd380a11", "a0eebc999c0b4ef8bb6d6bb9bd380a1-"] {
            assert_eq!(uuid(text), Err(CannotHash::Malformed), "{text}");
        }
    }

    #[test]
    fn bytea_has_two_formats() {
        assert_eq!(bytea("\\x de AD\nbeef").as_deref(), Ok(&[0xde, 0xad, 0xbe, 0xef][..]));
        assert_eq!(bytea("a\\\\b\\001\\377").as_deref(), Ok(&b"a\\b\x01\xff"[..]));
        assert_eq!(bytea("plain").as_deref(), Ok(&b"plain"[..]));
        for text in ["\\xd", "\\xd e", "\\400", "\\1", "a\\"] {
            assert_eq!(bytea(text), Err(CannotHash::Malformed), "{text:?}");
        }
    }
}
