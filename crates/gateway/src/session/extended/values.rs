//! Values that the gateway knows, without asking, that a server accepts.
//!
//! Owns: a cautious judgement for the most used types.
//! Never: refuses a value: what it does not know is left to a node.

use tutti_wire::frontend::Arguments;

const BOOL: u32 = 16;
const INT8: u32 = 20;
const INT2: u32 = 21;
const INT4: u32 = 23;
const TEXT: u32 = 25;
const FLOAT4: u32 = 700;
const FLOAT8: u32 = 701;
const BPCHAR: u32 = 1042;
const VARCHAR: u32 = 1043;
const NUMERIC: u32 = 1700;

/// Whether every value is certainly a value of its type.
pub(super) fn are_surely_valid(types: &[u32], arguments: &Arguments) -> bool {
    arguments.values.iter().enumerate().all(|(index, value)| {
        let Some(value) = value else {
            // A domain may be NOT NULL; built-in types never are.
            return types.get(index).is_some_and(|oid| is_known(*oid));
        };
        let Some(oid) = types.get(index) else { return false };
        match arguments.format(index) {
            0 => text_is_valid(*oid, value),
            1 => binary_is_valid(*oid, value),
            _ => false,
        }
    })
}

fn is_known(oid: u32) -> bool {
    matches!(oid, BOOL | INT8 | INT2 | INT4 | TEXT | FLOAT4 | FLOAT8 | BPCHAR | VARCHAR | NUMERIC)
}

fn text_is_valid(oid: u32, value: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(value) else { return false };
    match oid {
        BOOL => matches!(text, "t" | "f" | "true" | "false"),
        INT2 => is_decimal(text) && text.parse::<i16>().is_ok(),
        INT4 => is_decimal(text) && text.parse::<i32>().is_ok(),
        INT8 => is_decimal(text) && text.parse::<i64>().is_ok(),
        FLOAT4 | FLOAT8 | NUMERIC => text.len() <= 15 && is_decimal(text),
        TEXT | BPCHAR | VARCHAR => !text.contains('\0'),
        _ => false,
    }
}

fn binary_is_valid(oid: u32, value: &[u8]) -> bool {
    match oid {
        BOOL => value.len() == 1,
        INT2 => value.len() == 2,
        INT4 | FLOAT4 => value.len() == 4,
        INT8 | FLOAT8 => value.len() == 8,
        TEXT | BPCHAR | VARCHAR => text_is_valid(oid, value),
        _ => false,
    }
}

/// Digits, perhaps after a minus sign.
fn is_decimal(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn valid(oid: u32, format: i16, value: &'static [u8]) -> bool {
        let arguments = Arguments {
            formats: vec![format],
            values: vec![Some(Bytes::from_static(value))],
            result_formats: Vec::new(),
        };
        are_surely_valid(&[oid], &arguments)
    }

    #[test]
    fn plain_values_need_no_node() {
        assert!(valid(INT4, 0, b"-12"));
        assert!(valid(INT4, 1, b"\0\0\0\x0c"));
        assert!(valid(TEXT, 0, "né".as_bytes()));
        assert!(valid(NUMERIC, 0, b"1200"));
    }

    #[test]
    fn whatever_is_odd_is_left_to_a_node() {
        assert!(!valid(INT4, 0, b"x"));
        assert!(!valid(INT4, 0, b"3000000000"));
        assert!(!valid(INT4, 0, b" 1 "));
        assert!(!valid(INT4, 1, b"\0\x0c"));
        assert!(!valid(TEXT, 0, b"\xff"));
        assert!(!valid(1082, 0, b"2026-11-21"));
        assert!(!valid(INT4, 7, b"1"));
    }
}
