//! Where a row belongs whose table is distributed by ranges: the range of its distribution key.
//!
//! Owns: split values, their order, the bucket of a key by them, and which of the two ways a map's buckets follow from
//! keys. Never: reads a key's text (`mod` does), or decides which node has which range.
//!
//! Range i is bucket i: keys below the first split value, and NULL, are in range 0. A key is compared as PostgreSQL
//! compares values of its type; texts by their bytes, as the collation "C" does.
//! Start reading at [`Bucketing`].

use std::sync::Arc;

use super::error::CannotHash;
use super::lookup3::hash_bytes;
use super::{BUCKET_COUNT, Bucket, Key, KeyType, stored};

/// How the buckets of a map follow from keys.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Bucketing {
    /// By PostgreSQL's hash of the key.
    #[default]
    Hash,
    /// By the range that the key is in.
    Range(Arc<Splits>),
}

/// Values at which ranges begin: strictly ascending, at least one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Splits {
    /// Of the keys' types: [`KeyType::family`].
    family: &'static str,
    /// Each as [`Bucketing`] reads it, and every server.
    texts: Vec<String>,
    keys: Vec<Point>,
}

/// A key in the order of its type.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Point {
    Integer(i64),
    Bytes(Vec<u8>),
}

/// What is wrong with split values.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum WrongSplits {
    /// There are none, or more than there are buckets for.
    #[error("there must be 1 to {} split values", BUCKET_COUNT - 1)]
    Count,
    /// Values of this type have no order that is known here.
    #[error("values of this type have no ranges")]
    Type,
    /// One that only a server could read.
    #[error("split value \"{0}\" is not spelled in the one way that all servers read alike")]
    Unreadable(String),
    /// One that does not come after the one before it.
    #[error("split value \"{1}\" does not come after \"{0}\"")]
    Order(String, String),
}

impl KeyType {
    /// The types whose values have ranges; all types of one family are compared by the type that is called here, as SQL
    /// names it.
    pub fn ordered_as(self) -> Option<&'static str> {
        match self {
            Self::Int2 | Self::Int4 | Self::Int8 => Some("int8"),
            Self::Text | Self::Varchar => Some("text"),
            Self::Uuid => Some("uuid"),
            Self::Date => Some("date"),
            Self::Timestamp => Some("timestamp"),
            Self::Timestamptz => Some("timestamptz"),
            _ => None,
        }
    }

    /// The type by which the keys of a family are compared.
    fn of_family(family: &str) -> Option<Self> {
        // The widest of each.
        let widest =
            [Self::Int8, Self::Text, Self::Uuid, Self::Date, Self::Timestamp, Self::Timestamptz];
        widest.into_iter().find(|key_type| key_type.family() == family)
    }
}

impl Splits {
    /// Splits of the keys of a family ([`KeyType::family`]).
    pub fn new(family: &str, texts: Vec<String>) -> Result<Self, WrongSplits> {
        let key_type = KeyType::of_family(family).ok_or(WrongSplits::Type)?;
        if !(1..usize::from(BUCKET_COUNT)).contains(&texts.len()) {
            return Err(WrongSplits::Count);
        }
        let read = |text: &String| {
            let key = key_type.key_of_text(text).ok().and_then(|key| key.point(key_type));
            key.ok_or_else(|| WrongSplits::Unreadable(text.clone()))
        };
        let keys: Vec<_> = texts.iter().map(read).collect::<Result<_, _>>()?;
        if let Some(index) = keys.windows(2).position(|pair| pair[1] <= pair[0]) {
            return Err(WrongSplits::Order(texts[index].clone(), texts[index + 1].clone()));
        }
        Ok(Self { family: key_type.family(), texts, keys })
    }

    /// Of the keys' types.
    pub fn family(&self) -> &'static str {
        self.family
    }

    /// How many ranges there are: one more than values.
    pub fn range_count(&self) -> u16 {
        u16::try_from(self.keys.len()).expect("fewer than there are buckets") + 1
    }

    /// 64 bits that say which splits they are, on all clusters.
    pub fn fingerprint(&self) -> u64 {
        let parts = [self.family].into_iter().chain(self.texts.iter().map(String::as_str));
        let parts: String = parts.map(|part| format!("{}:{part}", part.len())).collect();
        hash_bytes(parts.as_bytes())
    }

    /// The values as the text of an array of texts.
    pub fn array(&self) -> String {
        let quoted =
            |text: &String| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
        format!("{{{}}}", self.texts.iter().map(quoted).collect::<Vec<_>>().join(","))
    }

    /// `ends`: the range of the keys that come just before it.
    fn bucket(&self, key: &Key<'_>, key_type: KeyType, ends: bool) -> Result<Bucket, CannotHash> {
        // Keys of another family are not compared with these, and never guessed at.
        let point = key.point(key_type).filter(|_| key_type.family() == self.family);
        let point = point.ok_or(CannotHash::NotCanonical)?;
        let is_passed = |split: &Point| *split < point || !ends && *split == point;
        let range = self.keys.partition_point(is_passed);
        Ok(Bucket(u16::try_from(range).expect("fewer than there are buckets")))
    }

    fn sql_bucket(&self, key_type: KeyType, column: &str) -> String {
        let family = KeyType::of_family(self.family).unwrap_or(key_type);
        let type_name = family.ordered_as().unwrap_or("text");
        let collation = if type_name == "text" { " COLLATE pg_catalog.\"C\"" } else { "" };
        let array = self.array().replace('\'', "''");
        // A backslash means itself in every session.
        let escaped = match array.contains('\\') {
            true => format!(" E'{}'", array.replace('\\', "\\\\")),
            false => format!("'{array}'"),
        };
        format!(
            "COALESCE(pg_catalog.width_bucket((({column})::pg_catalog.{type_name}){collation}, \
             {escaped}::pg_catalog.{type_name}[]), 0)::pg_catalog.int8"
        )
    }
}

impl Key<'_> {
    /// `None`: of a type whose values have no ranges.
    fn point(&self, key_type: KeyType) -> Option<Point> {
        match (self, key_type) {
            (Key::Word(days), KeyType::Date) => Some(Point::Integer(i64::from(*days as i32))),
            (
                Key::Integer(integer),
                KeyType::Int2
                | KeyType::Int4
                | KeyType::Int8
                | KeyType::Timestamp
                | KeyType::Timestamptz,
            ) => Some(Point::Integer(*integer)),
            (
                Key::Bytes(bytes),
                KeyType::Text | KeyType::Varchar | KeyType::Name | KeyType::Uuid,
            ) => Some(Point::Bytes(bytes.to_vec())),
            _ => None,
        }
    }
}

impl Bucketing {
    /// For people.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::Range(_) => "range",
        }
    }

    /// The split values, of a map of ranges.
    pub fn splits(&self) -> Option<&Splits> {
        match self {
            Self::Hash => None,
            Self::Range(splits) => Some(splits),
        }
    }

    fn of_key(&self, key: &Key<'_>, key_type: KeyType) -> Result<Bucket, CannotHash> {
        match self {
            Self::Hash => Ok(key.bucket()),
            Self::Range(splits) => splits.bucket(key, key_type, false),
        }
    }

    fn before_key(&self, key: &Key<'_>, key_type: KeyType) -> Result<Bucket, CannotHash> {
        match self {
            // Hashes have no order.
            Self::Hash => Err(CannotHash::NotCanonical),
            Self::Range(splits) => splits.bucket(key, key_type, true),
        }
    }

    /// The bucket of a value that is compared with a key, from its text form as a value of this type.
    ///
    /// `text` is what a client may send for a parameter of this type in text format, or write
    /// between quotes as `'…'::type`, decoded to UTF-8. For a value that is *stored* into a column
    /// use [`Self::bucket_of_stored_text`]: storing may change it.
    ///
    /// Errors: see [`CannotHash`]; both mean that a node must be asked.
    pub fn bucket_of_text(&self, key_type: KeyType, text: &str) -> Result<Bucket, CannotHash> {
        self.of_key(&key_type.key_of_text(text)?, key_type)
    }

    /// The bucket of a value that is compared with a key, from the type's binary send format.
    ///
    /// Errors: as [`Self::bucket_of_text`].
    pub fn bucket_of_binary(&self, key_type: KeyType, bytes: &[u8]) -> Result<Bucket, CannotHash> {
        self.of_key(&key_type.key_of_binary(bytes)?, key_type)
    }

    /// The last bucket of keys that are less than a value, from its text form.
    ///
    /// Errors: as [`Self::bucket_of_text`], and always by hash.
    pub fn bucket_before_text(&self, key_type: KeyType, text: &str) -> Result<Bucket, CannotHash> {
        self.before_key(&key_type.key_of_text(text)?, key_type)
    }

    /// The same from the type's binary send format.
    pub fn bucket_before_binary(
        &self,
        key_type: KeyType,
        bytes: &[u8],
    ) -> Result<Bucket, CannotHash> {
        self.before_key(&key_type.key_of_binary(bytes)?, key_type)
    }

    /// The bucket of a row whose key column of type `column`, with type modifier `typmod`, is given this text
    /// of type `given`, of the same family, by INSERT, UPDATE or COPY.
    ///
    /// `typmod` is the column's `atttypmod`, -1 for none. Storing into `varchar(3)` may cut
    /// trailing spaces, into `name` what is too long, into `numeric(8,2)` rounds, into `timestamp(0)` and
    /// `float4` too.
    ///
    /// Errors: as [`Self::bucket_of_text`]; `NotCanonical` also where storing would change the key.
    pub fn bucket_of_stored_text(
        &self,
        given: KeyType,
        text: &str,
        column: KeyType,
        typmod: i32,
    ) -> Result<Bucket, CannotHash> {
        let key = given.key_of_text(text)?;
        stored(&key, column, typmod)?;
        self.of_key(&key, given)
    }

    /// As [`Self::bucket_of_stored_text`], from the type's binary send format.
    pub fn bucket_of_stored_binary(
        &self,
        given: KeyType,
        bytes: &[u8],
        column: KeyType,
        typmod: i32,
    ) -> Result<Bucket, CannotHash> {
        let key = given.key_of_binary(bytes)?;
        stored(&key, column, typmod)?;
        self.of_key(&key, given)
    }

    /// An SQL expression of type bigint that computes the bucket on a node; never NULL.
    ///
    /// `column` is a quoted column or another expression of exactly this type, or of a domain over
    /// it. Everything in the result is qualified, so that no search_path changes its meaning.
    pub fn sql_bucket(&self, key_type: KeyType, column: &str) -> String {
        match self {
            Self::Hash => key_type.sql_hash_bucket(column),
            Self::Range(splits) => splits.sql_bucket(key_type, column),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn splits(key_type: KeyType, texts: &[&str]) -> Result<Splits, WrongSplits> {
        let texts = texts.iter().map(|text| (*text).to_owned()).collect();
        Splits::new(key_type.family(), texts)
    }

    fn ranges(key_type: KeyType, texts: &[&str]) -> Bucketing {
        Bucketing::Range(Arc::new(splits(key_type, texts).expect("splits")))
    }

    #[test]
    fn a_split_value_begins_its_range() {
        let by = ranges(KeyType::Int4, &["-5", "0", "10"]);
        let cases = [("-6", 0), ("-5", 1), ("-1", 1), ("0", 2), ("9", 2), ("10", 3), ("99", 3)];
        for (text, range) in cases {
            for key_type in [KeyType::Int2, KeyType::Int4, KeyType::Int8] {
                assert_eq!(by.bucket_of_text(key_type, text), Ok(Bucket(range)), "{text}");
            }
        }
        for (text, range) in [("-5", 0), ("-4", 1), ("0", 1), ("10", 2), ("11", 3)] {
            assert_eq!(by.bucket_before_text(KeyType::Int4, text), Ok(Bucket(range)), "{text}");
        }
        assert!(Bucketing::Hash.bucket_before_text(KeyType::Int4, "1").is_err());
        assert_eq!(by.bucket_of_binary(KeyType::Int2, &[0xff, 0xfb]), Ok(Bucket(1)));
        assert_eq!(by.bucket_of_text(KeyType::Int4, "1e3"), Err(CannotHash::NotCanonical));
        assert_eq!(by.bucket_of_text(KeyType::Oid, "1"), Err(CannotHash::NotCanonical));
    }

    /// Those before the year 2000 are negative, and words to their hash.
    #[test]
    fn days_and_times_are_in_their_order() {
        let by = ranges(KeyType::Date, &["1999-12-31", "2000-01-01"]);
        let cases = [
            ("-infinity", 0),
            ("1999-12-30", 0),
            ("1999-12-31", 1),
            ("2000-01-01", 2),
            ("infinity", 2),
        ];
        for (text, range) in cases {
            assert_eq!(by.bucket_of_text(KeyType::Date, text), Ok(Bucket(range)), "{text}");
        }
        let by = ranges(KeyType::Timestamptz, &["2020-01-01 00:00:00+00"]);
        let at = |text| by.bucket_of_text(KeyType::Timestamptz, text);
        assert_eq!(at("2020-01-01 01:00:00+02"), Ok(Bucket(0)));
        assert_eq!(at("2019-12-31 23:00:00-01"), Ok(Bucket(1)));
        assert_eq!(at("2020-01-01 00:00:00"), Err(CannotHash::NotCanonical));
    }

    #[test]
    fn texts_are_in_the_order_of_their_bytes() {
        let by = ranges(KeyType::Text, &["", "B", "a", "é"]);
        let cases =
            [("", 1), ("A", 1), ("B", 2), ("Z", 2), ("a", 3), ("z", 3), ("é", 4), ("日", 4)];
        for (text, range) in cases {
            assert_eq!(by.bucket_of_text(KeyType::Varchar, text), Ok(Bucket(range)), "{text}");
        }
        let stored = |text| by.bucket_of_stored_text(KeyType::Text, text, KeyType::Varchar, 4 + 2);
        assert_eq!(stored("az"), Ok(Bucket(3)));
        assert_eq!(stored("a  "), Err(CannotHash::NotCanonical), "cut where it is stored");
    }

    #[test]
    fn wrong_splits_are_told() {
        let order = |a: &str, b: &str| Err(WrongSplits::Order(a.to_owned(), b.to_owned()));
        assert_eq!(splits(KeyType::Int4, &["1", "1"]), order("1", "1"));
        assert_eq!(splits(KeyType::Int8, &["9", "10", "2"]), order("10", "2"));
        assert_eq!(splits(KeyType::Text, &["9", "10"]), order("9", "10"));
        assert_eq!(splits(KeyType::Int4, &[]), Err(WrongSplits::Count));
        let many: Vec<_> = (0..1024).map(|n| n.to_string()).collect();
        assert_eq!(Splits::new("integer", many[1..].to_vec()).map(|it| it.range_count()), Ok(1024));
        assert_eq!(Splits::new("integer", many), Err(WrongSplits::Count));
        assert_eq!(splits(KeyType::Numeric, &["1"]), Err(WrongSplits::Type));
        let unreadable = Err(WrongSplits::Unreadable("now".to_owned()));
        assert_eq!(splits(KeyType::Date, &["now"]), unreadable);
    }

    #[test]
    fn an_array_says_each_text_as_it_is() {
        let by = splits(KeyType::Text, &["", "a\"b\\c", "it's"]).expect("splits");
        assert_eq!(by.array(), r#"{"","a\"b\\c","it's"}"#);
        let sql = by.sql_bucket(KeyType::Text, "k");
        assert!(sql.contains(r#" E'{"","a\\"b\\\\c","it''s"}'::pg_catalog.text[]"#), "{sql}");
        let other = splits(KeyType::Text, &["", "a\"b\\c", "its"]).expect("splits");
        assert_ne!(by.fingerprint(), other.fingerprint());
    }

    proptest! {
        #[test]
        fn a_key_is_where_counting_says(key: i32, mut at: Vec<i16>) {
            at.sort_unstable();
            at.dedup();
            prop_assume!(!at.is_empty());
            let key = key >> 8;
            let texts = at.iter().map(i16::to_string).collect();
            let by = Bucketing::Range(Arc::new(Splits::new("integer", texts).expect("splits")));
            let counted = at.iter().filter(|split| i32::from(**split) <= key).count();
            let bucket = by.bucket_of_text(KeyType::Int4, &key.to_string()).expect("a bucket");
            prop_assert_eq!(usize::from(bucket.0), counted);
        }
    }
}
