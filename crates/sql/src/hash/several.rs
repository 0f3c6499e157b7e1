//! The bucket of a key of several columns, from the buckets of each.
//!
//! Owns: how they are combined, by the gateway and by a node alike. Never: hashes a value.
//!
//! The buckets' numbers, each a digit, are one number, whose hash as a `bigint` says the bucket: columns that depend on
//! each other (a number and its double) still give rows to all buckets, and of each column only what the hashes of single
//! keys take ([`Bucketing`](super::Bucketing)) has to be known.

use super::{BUCKET_COUNT, Bucket, KeyType, hash_integer};

/// How many columns a key can have: their buckets' numbers must fit into a `bigint`.
pub const KEY_COLUMNS_MAX: usize = 6;

/// What stands for the family of a key's type ([`KeyType::family`]) where it is several columns'.
pub const SEVERAL: &str = "several";

/// The bucket of a row whose key columns have these buckets. Requires: at most [`KEY_COLUMNS_MAX`] of them.
pub fn bucket_of_several(buckets: impl IntoIterator<Item = Bucket>) -> Bucket {
    let digits = buckets.into_iter().map(|bucket| i64::from(bucket.0));
    let number = digits.fold(0, |number: i64, digit| number * i64::from(BUCKET_COUNT) + digit);
    Bucket::of_hash(hash_integer(number))
}

/// An SQL expression of type bigint that computes that on a node; never NULL. `columns`: for each column of the key its
/// type, and what [`KeyType::sql_hash_bucket`] takes.
pub fn sql_bucket_of_several<'a>(columns: impl IntoIterator<Item = (KeyType, &'a str)>) -> String {
    let buckets = columns.into_iter().map(|(key_type, column)| key_type.sql_hash_bucket(column));
    let number = buckets.reduce(|number, bucket| {
        format!(
            "(({number} OPERATOR(pg_catalog.*) {BUCKET_COUNT}::pg_catalog.int8) OPERATOR(pg_catalog.+) {bucket})"
        )
    });
    KeyType::Int8.sql_hash_bucket(&number.unwrap_or_else(|| "0::pg_catalog.int8".to_owned()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::hash::Bucketing;

    fn of_integers(integers: &[i64]) -> Bucket {
        bucket_of_several(integers.iter().map(|integer| {
            Bucketing::Hash.bucket_of_text(KeyType::Int8, &integer.to_string()).expect("integers")
        }))
    }

    #[test]
    fn columns_that_depend_on_each_other_give_rows_to_most_buckets() {
        for of in
            [|it: i64| [it, it], |it: i64| [it, 2 * it], |it: i64| [it % 7, it], |it: i64| [5, it]]
        {
            let buckets: BTreeSet<_> = (0..10_000).map(|it| of_integers(&of(it))).collect();
            // Of 1024 buckets 10,000 values drawn at random leave out less than one, on average.
            assert!(600 < buckets.len(), "{} buckets", buckets.len());
        }
    }

    #[test]
    fn the_order_of_columns_counts() {
        let differing =
            (0..100).filter(|it| of_integers(&[*it, 1000]) != of_integers(&[1000, *it]));
        assert!(90 < differing.count());
    }

    #[test]
    fn the_most_columns_have_a_bucket() {
        let last = Bucket(BUCKET_COUNT - 1);
        let bucket = bucket_of_several([last; KEY_COLUMNS_MAX]);
        assert!(bucket.0 < BUCKET_COUNT);
        assert_ne!(bucket, bucket_of_several([last; 2]));
    }
}
