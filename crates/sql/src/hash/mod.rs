//! Where a row belongs: the bucket of its distribution key.
//!
//! Owns: PostgreSQL's extended hash functions with seed 0, for the types a distribution key can
//! have, ranges of keys, and reading a key from the forms clients send. Never: guesses. A wrong bucket loses rows,
//! so a value that is not certainly read as the server reads it is an error ([`CannotHash`]), and
//! the caller lets a node compute [`Bucketing::sql_bucket`] instead.
//!
//! Holds for databases in encoding UTF8. A text key's column must have a deterministic collation
//! (equal means equal bytes); the catalog ensures that. Enums are no key types: their hash is that
//! of an oid, which differs between nodes; neither are domains, arrays and other composed types.
//!
//! Start reading at [`Bucketing`]. Sources: PostgreSQL `src/common/hashfn.c`,
//! `src/backend/access/hash/hashfunc.c`, and the types' files in `src/backend/utils/adt`.

mod datetime;
mod error;
mod lookup3;
mod numeric;
mod ranges;
mod scalar;
mod several;

use std::borrow::Cow;

pub use self::error::CannotHash;
use self::lookup3::{hash_bytes, hash_word};
use self::numeric::Numeric;
pub use self::ranges::{Bucketing, Splits, WrongSplits};
pub use self::several::{KEY_COLUMNS_MAX, SEVERAL, bucket_of_several, sql_bucket_of_several};

/// How many slices the hash space has. Fixed for the life of every cluster.
pub const BUCKET_COUNT: u16 = 1024;

/// Longest value of type name, in bytes.
const NAME_BYTES_MAX: usize = 63;
/// What PostgreSQL adds to a length or precision to make a type modifier of it.
const TYPMOD_OFFSET: i32 = 4;
const MIDNIGHT_US: i64 = 86_400_000_000;

/// One slice of the hash space; always below [`BUCKET_COUNT`] when made by this module.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Bucket(pub u16);

impl Bucket {
    /// Where rows live whose key is NULL.
    pub const OF_NULL: Self = Self(0);

    /// The bucket of a 64-bit hash: its lowest ten bits.
    pub fn of_hash(hash: u64) -> Self {
        Self((hash % u64::from(BUCKET_COUNT)) as u16)
    }
}

/// A type that a distribution key can have.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[expect(missing_docs, reason = "the variants are PostgreSQL's own type names")]
pub enum KeyType {
    Bool,
    Int2,
    Int4,
    Int8,
    Oid,
    Text,
    Varchar,
    Bpchar,
    Name,
    Bytea,
    Uuid,
    Date,
    Time,
    Timestamp,
    Timestamptz,
    Numeric,
    Float4,
    Float8,
}

/// A key as its hash function sees it: equal keys are equal here, however they were spelled.
#[derive(Debug, PartialEq)]
enum Key<'a> {
    /// Boolean, oid, date.
    Word(u32),
    /// The integers, and times in microseconds.
    Integer(i64),
    Float(f64),
    Bytes(Cow<'a, [u8]>),
    Numeric(Numeric),
}

impl KeyType {
    /// Every key type.
    pub const ALL: [Self; 18] = [
        Self::Bool,
        Self::Int2,
        Self::Int4,
        Self::Int8,
        Self::Oid,
        Self::Text,
        Self::Varchar,
        Self::Bpchar,
        Self::Name,
        Self::Bytea,
        Self::Uuid,
        Self::Date,
        Self::Time,
        Self::Timestamp,
        Self::Timestamptz,
        Self::Numeric,
        Self::Float4,
        Self::Float8,
    ];

    /// The key type of a built-in type, or `None` if rows cannot be distributed by that type.
    pub fn from_oid(type_oid: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|key_type| key_type.oid() == type_oid)
    }

    /// The type's oid (PostgreSQL `src/include/catalog/pg_type.dat`).
    pub fn oid(self) -> u32 {
        match self {
            Self::Bool => 16,
            Self::Int2 => 21,
            Self::Int4 => 23,
            Self::Int8 => 20,
            Self::Oid => 26,
            Self::Text => 25,
            Self::Varchar => 1043,
            Self::Bpchar => 1042,
            Self::Name => 19,
            Self::Bytea => 17,
            Self::Uuid => 2950,
            Self::Date => 1082,
            Self::Time => 1083,
            Self::Timestamp => 1114,
            Self::Timestamptz => 1184,
            Self::Numeric => 1700,
            Self::Float4 => 700,
            Self::Float8 => 701,
        }
    }

    /// The types whose equal values hash equally, by the name of the first of them.
    ///
    /// Tables whose key types are of one family may share a bucket map and be joined on the key
    /// node by node. The families are PostgreSQL's hash operator families. Two families never
    /// agree: char(n) compares without trailing spaces, and numeric 1 hashes unlike integer 1.
    pub fn family(self) -> &'static str {
        match self {
            Self::Int2 | Self::Int4 | Self::Int8 => "integer",
            Self::Text | Self::Varchar | Self::Name => "text",
            Self::Float4 | Self::Float8 => "float",
            Self::Bool => "boolean",
            Self::Oid => "oid",
            Self::Bpchar => "character",
            Self::Bytea => "bytea",
            Self::Uuid => "uuid",
            Self::Date => "date",
            Self::Time => "time",
            Self::Timestamp => "timestamp",
            Self::Timestamptz => "timestamptz",
            Self::Numeric => "numeric",
        }
    }

    /// An SQL expression of type bigint that computes the bucket by hash on a node; never NULL. Of a table's key use
    /// [`Bucketing::sql_bucket`]: its map may be one of ranges.
    ///
    /// `column` is a quoted column or another expression of exactly this type, or of a domain over
    /// it. Everything in the result is qualified, so that no search_path changes its meaning.
    pub fn sql_hash_bucket(self, column: &str) -> String {
        let (function, suffix) = match self {
            Self::Int2 => ("hashint2extended", ""),
            Self::Int4 => ("hashint4extended", ""),
            Self::Int8 => ("hashint8extended", ""),
            Self::Oid => ("hashoidextended", ""),
            // The bytes count, whatever the column's collation.
            Self::Text | Self::Varchar => ("hashtextextended", " COLLATE pg_catalog.\"C\""),
            Self::Bpchar => ("hashbpcharextended", " COLLATE pg_catalog.\"C\""),
            Self::Name => ("hashnameextended", ""),
            Self::Uuid => ("uuid_hash_extended", ""),
            Self::Time => ("time_hash_extended", ""),
            Self::Timestamp => ("timestamp_hash_extended", ""),
            Self::Numeric => ("hash_numeric_extended", ""),
            Self::Float4 => ("hashfloat4extended", ""),
            Self::Float8 => ("hashfloat8extended", ""),
            // Their hash functions cannot be called with them from SQL. A record of one column
            // hashes as the column, and as 0 if that is NULL.
            Self::Bool | Self::Bytea | Self::Date | Self::Timestamptz => {
                return format!(
                    "(pg_catalog.hash_record_extended(ROW({column}), 0) OPERATOR(pg_catalog.&) \
                     1023::pg_catalog.int8)"
                );
            }
        };
        format!(
            "COALESCE(pg_catalog.{function}(({column}){suffix}, 0) OPERATOR(pg_catalog.&) \
             1023::pg_catalog.int8, 0::pg_catalog.int8)"
        )
    }

    fn key_of_text(self, text: &str) -> Result<Key<'_>, CannotHash> {
        if text.contains('\0') {
            return Err(CannotHash::Malformed);
        }
        Ok(match self {
            Self::Bool => Key::Word(u32::from(scalar::boolean(text)?)),
            Self::Int2 => Key::Integer(scalar::integer(text, i16::MIN.into(), i16::MAX.into())?),
            Self::Int4 => Key::Integer(scalar::integer(text, i32::MIN.into(), i32::MAX.into())?),
            Self::Int8 => Key::Integer(scalar::integer(text, i64::MIN, i64::MAX)?),
            Self::Oid => Key::Word(scalar::oid(text)?),
            Self::Text | Self::Varchar => Key::Bytes(Cow::Borrowed(text.as_bytes())),
            Self::Bpchar => Key::Bytes(Cow::Borrowed(text.trim_end_matches(' ').as_bytes())),
            // The server cuts longer names.
            Self::Name if NAME_BYTES_MAX < text.len() => return Err(CannotHash::NotCanonical),
            Self::Name => Key::Bytes(Cow::Borrowed(text.as_bytes())),
            Self::Bytea => Key::Bytes(scalar::bytea(text)?),
            Self::Uuid => Key::Bytes(Cow::Owned(scalar::uuid(text)?.to_vec())),
            Self::Date => Key::Word(datetime::date_days(text)? as u32),
            Self::Time => Key::Integer(datetime::time_us(text)?),
            Self::Timestamp => Key::Integer(datetime::timestamp_us(text)?),
            Self::Timestamptz => Key::Integer(datetime::timestamptz_us(text)?),
            Self::Numeric => Key::Numeric(Numeric::from_text(text)?),
            Self::Float4 => Key::Float(scalar::float4(text)?),
            Self::Float8 => Key::Float(scalar::float8(text)?),
        })
    }

    fn key_of_binary(self, bytes: &[u8]) -> Result<Key<'_>, CannotHash> {
        Ok(match self {
            Self::Bool => Key::Word(u32::from(fixed(bytes).map(u8::from_be_bytes)? != 0)),
            Self::Int2 => Key::Integer(fixed(bytes).map(i16::from_be_bytes)?.into()),
            Self::Int4 => Key::Integer(fixed(bytes).map(i32::from_be_bytes)?.into()),
            Self::Int8 => Key::Integer(fixed(bytes).map(i64::from_be_bytes)?),
            // A date out of range hashes to something; the server then refuses the value.
            Self::Oid | Self::Date => Key::Word(fixed(bytes).map(u32::from_be_bytes)?),
            Self::Text | Self::Varchar | Self::Bpchar => {
                let text = str::from_utf8(bytes).map_err(|_| CannotHash::Malformed)?;
                return self.key_of_text(text);
            }
            Self::Name => {
                let text = str::from_utf8(bytes).map_err(|_| CannotHash::Malformed)?;
                return self.key_of_text(text).map_err(|_| CannotHash::Malformed);
            }
            Self::Bytea => Key::Bytes(Cow::Borrowed(bytes)),
            Self::Uuid => Key::Bytes(Cow::Owned(fixed::<16>(bytes)?.to_vec())),
            Self::Time => {
                let time_us = fixed(bytes).map(i64::from_be_bytes)?;
                if !(0..=MIDNIGHT_US).contains(&time_us) {
                    return Err(CannotHash::Malformed);
                }
                Key::Integer(time_us)
            }
            Self::Timestamp | Self::Timestamptz => {
                Key::Integer(fixed(bytes).map(i64::from_be_bytes)?)
            }
            Self::Numeric => Key::Numeric(Numeric::from_binary(bytes)?),
            Self::Float4 => Key::Float(fixed(bytes).map(f32::from_be_bytes)?.into()),
            Self::Float8 => Key::Float(fixed(bytes).map(f64::from_be_bytes)?),
        })
    }

    /// Whether a column of this type with this type modifier stores the key as it is.
    fn keeps(self, key: &Key<'_>, typmod: i32) -> bool {
        match (self, key) {
            // A value that arrives with another type of the family.
            (Self::Name, Key::Bytes(bytes)) => bytes.len() <= NAME_BYTES_MAX,
            (Self::Float4, Key::Float(float)) => {
                float.is_nan() || f64::from(*float as f32) == *float
            }
            (_, _) if typmod < 0 => true,
            (Self::Varchar | Self::Bpchar, Key::Bytes(bytes)) => {
                // Text keys are UTF-8, where each character has one byte that is no continuation.
                let char_count = bytes.iter().filter(|byte| **byte & 0xC0 != 0x80).count();
                i64::try_from(char_count).is_ok_and(|n| n <= i64::from(typmod - TYPMOD_OFFSET))
            }
            (Self::Numeric, Key::Numeric(numeric)) => {
                // Eleven bits with sign (PostgreSQL `numeric_typmod_scale`).
                let scale = (((typmod - TYPMOD_OFFSET) & 0x7ff) ^ 1024) - 1024;
                numeric.fits_scale(scale)
            }
            (Self::Time | Self::Timestamp | Self::Timestamptz, Key::Integer(time_us)) => {
                let infinite = matches!(*time_us, i64::MIN | i64::MAX);
                let decimals_cut = 6_u32.saturating_sub(typmod as u32);
                infinite || time_us % 10_i64.pow(decimals_cut) == 0
            }
            // The other types have no modifiers.
            (_, _) => true,
        }
    }
}

/// That a column keeps the key as it is.
fn stored(key: &Key<'_>, column: KeyType, typmod: i32) -> Result<(), CannotHash> {
    if column.keeps(key, typmod) { Ok(()) } else { Err(CannotHash::NotCanonical) }
}

impl Key<'_> {
    fn bucket(&self) -> Bucket {
        Bucket::of_hash(match self {
            Self::Word(word) => hash_word(*word),
            Self::Integer(integer) => hash_integer(*integer),
            Self::Float(float) => hash_float(*float),
            Self::Bytes(bytes) => hash_bytes(bytes),
            Self::Numeric(numeric) => numeric.hash(),
        })
    }
}

/// `hashint8extended`; equal to `hashint4extended` and `hashint2extended` of equal values.
fn hash_integer(integer: i64) -> u64 {
    let low = integer as u32;
    let high = (integer >> 32) as u32;
    hash_word(low ^ if integer < 0 { !high } else { high })
}

/// `hashfloat8extended`: both zeros are one value, and so are all NaNs.
fn hash_float(float: f64) -> u64 {
    if float == 0.0 {
        return 0;
    }
    let bits = if float.is_nan() { 0x7ff8_0000_0000_0000 } else { float.to_bits() };
    hash_bytes(&bits.to_le_bytes())
}

fn fixed<const LEN: usize>(bytes: &[u8]) -> Result<[u8; LEN], CannotHash> {
    bytes.try_into().map_err(|_| CannotHash::Malformed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Hashes computed by PostgreSQL 15, `hash…extended('value', 0)`.
    #[test]
    fn buckets_are_the_servers() {
        let on_server: [(KeyType, &str, i64); 22] = [
            (KeyType::Int8, "42", 8_010_225_493_015_854_792),
            (KeyType::Int4, "-1", -1_888_257_769_727_981_238),
            (KeyType::Text, "tutti", -2_314_567_019_312_674_967),
            (KeyType::Text, "", -6_939_563_903_564_495_251),
            (KeyType::Numeric, "1.50", -8_828_336_294_488_843_818),
            (KeyType::Numeric, "-123456.789", -8_005_024_120_056_899_057),
            (KeyType::Numeric, "0.000", -1),
            (KeyType::Numeric, "1e-4", 7_507_508_252_608_306_359),
            (KeyType::Numeric, "NaN", 0),
            (KeyType::Float8, "1.5", 6_158_159_405_676_898_674),
            (KeyType::Float8, "nan", 4_719_788_943_832_604_568),
            (KeyType::Float8, "-0", 0),
            (KeyType::Uuid, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", 7_543_054_272_012_930_821),
            (KeyType::Timestamp, "2020-01-31 10:00:00.5", 7_484_285_892_733_134_092),
            (KeyType::Time, "10:00", -2_655_787_056_096_405_770),
            (KeyType::Date, "2020-01-31", 5_533_262_569_296_682_226),
            (KeyType::Bytea, "\\xdeadbeef", 5_555_239_932_434_991_430),
            (KeyType::Bool, "true", -3_670_598_878_359_251_130),
            (KeyType::Timestamptz, "2020-01-31 10:00:00+02", -8_992_583_949_044_236_905),
            (KeyType::Oid, "4294967295", -1_888_257_769_727_981_238),
            (KeyType::Bpchar, "ab   ", 2_833_316_173_711_343_549),
            (KeyType::Name, "ab", 2_833_316_173_711_343_549),
        ];
        for (key_type, text, hash) in on_server {
            let expected = Bucket::of_hash(hash as u64);
            assert_eq!(
                Bucketing::Hash.bucket_of_text(key_type, text),
                Ok(expected),
                "{key_type:?} {text:?}"
            );
        }
    }

    #[test]
    fn every_type_is_found_by_its_oid() {
        for key_type in KeyType::ALL {
            assert_eq!(KeyType::from_oid(key_type.oid()), Some(key_type));
        }
        assert_eq!(KeyType::from_oid(114), None, "json cannot be hashed");
    }

    #[test]
    fn what_storing_would_change_is_left_to_the_server() {
        let numeric_8_2 = ((8 << 16) | 2) + TYPMOD_OFFSET;
        let numeric_3_minus_2 = ((3 << 16) | (-2 & 0x7ff)) + TYPMOD_OFFSET;
        let cases = [
            (KeyType::Varchar, 3 + TYPMOD_OFFSET, "äöü", "ab  "),
            (KeyType::Bpchar, 3 + TYPMOD_OFFSET, "abc     ", "abcd"),
            (KeyType::Numeric, numeric_8_2, "1.2300", "1.234"),
            (KeyType::Numeric, numeric_3_minus_2, "1200", "1250"),
            (KeyType::Time, 0, "10:00:00.000", "10:00:00.1"),
            (KeyType::Timestamp, 3, "2020-01-31 10:00:00.123", "2020-01-31 10:00:00.1234"),
            (KeyType::Timestamptz, 0, "infinity", "2020-01-31 10:00:00.5+00"),
        ];
        for (key_type, typmod, kept, changed) in cases {
            let compared = Bucketing::Hash.bucket_of_text(key_type, kept);
            assert!(compared.is_ok(), "{key_type:?}");
            assert_eq!(
                Bucketing::Hash.bucket_of_stored_text(key_type, kept, key_type, typmod),
                compared,
                "{key_type:?}"
            );
            assert_eq!(
                Bucketing::Hash.bucket_of_stored_text(key_type, changed, key_type, typmod),
                Err(CannotHash::NotCanonical),
                "{key_type:?}"
            );
            assert!(
                Bucketing::Hash.bucket_of_stored_text(key_type, changed, key_type, -1).is_ok(),
                "{key_type:?}"
            );
        }
    }

    /// The column's type and modifier count, whatever type the value has before it is stored.
    #[test]
    fn what_comes_as_another_type_is_as_it_will_be_stored() {
        let long = "n".repeat(64);
        let cases = [
            (KeyType::Text, KeyType::Varchar, 3 + TYPMOD_OFFSET, "abc", "abc "),
            (KeyType::Name, KeyType::Varchar, 3 + TYPMOD_OFFSET, "abc", "abc "),
            (KeyType::Varchar, KeyType::Name, -1, &long[..63], &long),
            (KeyType::Text, KeyType::Name, -1, &long[..63], &long),
            (KeyType::Float8, KeyType::Float4, -1, "0.5", "0.1"),
        ];
        for (given, column, typmod, kept, changed) in cases {
            let case = format!("{given:?} in {column:?}");
            let kept_bucket = Bucketing::Hash.bucket_of_text(column, kept);
            assert!(kept_bucket.is_ok(), "{case}");
            assert_eq!(
                Bucketing::Hash.bucket_of_stored_text(given, kept, column, typmod),
                kept_bucket,
                "{case}"
            );
            let changed = Bucketing::Hash.bucket_of_stored_text(given, changed, column, typmod);
            assert_eq!(changed, Err(CannotHash::NotCanonical), "{case}");
        }
        let nan =
            Bucketing::Hash.bucket_of_stored_text(KeyType::Float8, "nan", KeyType::Float4, -1);
        assert_eq!(nan, Bucketing::Hash.bucket_of_text(KeyType::Float4, "nan"));
    }

    #[test]
    fn binary_of_the_wrong_shape_is_malformed() {
        let cases: [(KeyType, &[u8]); 7] = [
            (KeyType::Int4, &[0; 8]),
            (KeyType::Bool, &[]),
            (KeyType::Uuid, &[0; 15]),
            (KeyType::Text, &[0xff]),
            (KeyType::Text, &[0]),
            (KeyType::Name, &[b'a'; 64]),
            (KeyType::Time, &[0xff; 8]),
        ];
        for (key_type, bytes) in cases {
            assert_eq!(
                Bucketing::Hash.bucket_of_binary(key_type, bytes),
                Err(CannotHash::Malformed)
            );
        }
    }

    #[test]
    fn sql_is_qualified() {
        assert_eq!(
            KeyType::Text.sql_hash_bucket("\"k\""),
            "COALESCE(pg_catalog.hashtextextended((\"k\") COLLATE pg_catalog.\"C\", 0) \
             OPERATOR(pg_catalog.&) 1023::pg_catalog.int8, 0::pg_catalog.int8)"
        );
    }

    fn any_key_type() -> impl Strategy<Value = KeyType> {
        (0..KeyType::ALL.len()).prop_map(|index| KeyType::ALL[index])
    }

    proptest! {
        #[test]
        fn no_text_panics(key_type in any_key_type(), text in ".{0,40}", typmod in -1..40_i32) {
            let _ = Bucketing::Hash.bucket_of_stored_text(key_type, &text, key_type, typmod);
        }

        #[test]
        fn no_nearly_right_text_panics(
            key_type in any_key_type(),
            text in "[-+0-9eExX.:_ Tnaif{}\\\\]{0,30}",
            typmod in any::<i32>(),
        ) {
            let _ = Bucketing::Hash.bucket_of_stored_text(key_type, &text, key_type, typmod);
        }

        #[test]
        fn no_bytes_panic(
            key_type in any_key_type(),
            bytes in prop::collection::vec(any::<u8>(), 0..24),
            typmod in any::<i32>(),
        ) {
            let _ = Bucketing::Hash.bucket_of_stored_binary(key_type, &bytes, key_type, typmod);
        }

        #[test]
        fn text_and_binary_agree(number in any::<i64>()) {
            let text = number.to_string();
            prop_assert_eq!(
                Bucketing::Hash.bucket_of_text(KeyType::Int8, &text),
                Bucketing::Hash.bucket_of_binary(KeyType::Int8, &number.to_be_bytes())
            );
        }

        #[test]
        fn a_family_hashes_equal_values_equally(number in any::<i16>()) {
            let text = number.to_string();
            let bucket = Bucketing::Hash.bucket_of_text(KeyType::Int2, &text);
            prop_assert_eq!(Bucketing::Hash.bucket_of_text(KeyType::Int4, &text), bucket);
            prop_assert_eq!(Bucketing::Hash.bucket_of_text(KeyType::Int8, &text), bucket);
            prop_assert_eq!(
                Bucketing::Hash.bucket_of_text(KeyType::Float4, &text),
                Bucketing::Hash.bucket_of_text(KeyType::Float8, &text)
            );
        }
    }
}
