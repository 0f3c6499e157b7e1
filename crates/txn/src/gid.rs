//! Names of nodes and of global transactions.
//!
//! Owns: [`NodeId`], and the [`Gid`] with its one spelling.
//! Never: assigns anything. The caller that starts a transaction takes the next number of its incarnation.
//! Start reading at [`Gid`].

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A PostgreSQL server of the cluster. Counted from 1, stable for the life of the cluster.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct NodeId(pub u16);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

/// The short name that tells our prepared transactions from those of another cluster on the same
/// servers: 1 to 16 characters of `[a-z0-9]`.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ClusterTag(Arc<str>);

/// Bounds the gid, whose limit is PostgreSQL's (`GIDSIZE`, 200 bytes with the final zero).
const CLUSTER_TAG_LEN_MAX: usize = 16;

impl ClusterTag {
    /// The tag as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ClusterTag {
    type Err = GidError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let length_fits = (1..=CLUSTER_TAG_LEN_MAX).contains(&text.len());
        let alphabet_fits = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        if length_fits && alphabet_fits {
            Ok(Self(text.into()))
        } else {
            Err(GidError::BadClusterTag { found: text.to_owned() })
        }
    }
}

impl fmt::Display for ClusterTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The identifier of a global transaction, made only of durable facts: found prepared on a node, it says
/// where its decision is recorded and whose it was.
///
/// Its one spelling is `tutti_<cluster>_<incarnation>_<number>_<anchor>`, all numbers decimal
/// without leading zeros: `tutti_shop_4_17_1`. At most 70 bytes, all of them `[a-z0-9_]`, so it can
/// stand in an SQL literal as it is. Parsing accepts exactly what [`fmt::Display`] writes: a
/// prepared transaction that someone else made is never taken for ours.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Gid {
    /// The cluster that it belongs to.
    pub cluster: ClusterTag,
    /// The gateway's incarnation: durably taken at every start, never taken twice.
    pub incarnation: u64,
    /// The transaction's number within the incarnation, never used twice.
    pub number: u64,
    /// The writer whose local commit is the decision and whose `tutti.decision` records it.
    pub anchor: NodeId,
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cluster, incarnation, number, anchor } = self;
        write!(f, "tutti_{cluster}_{incarnation}_{number}_{}", anchor.0)
    }
}

impl FromStr for Gid {
    type Err = GidError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let foreign = || GidError::Foreign { found: text.to_owned() };
        let mut fields = text.strip_prefix("tutti_").ok_or_else(foreign)?.split('_');
        let mut field = || fields.next().ok_or_else(foreign);
        let gid = Self {
            cluster: field()?.parse()?,
            incarnation: field()?.parse().map_err(|_| foreign())?,
            number: field()?.parse().map_err(|_| foreign())?,
            anchor: NodeId(field()?.parse().map_err(|_| foreign())?),
        };
        // One spelling only: no sign, no leading zero, nothing after, and nodes count from 1.
        if gid.anchor.0 == 0 || gid.to_string() != text { Err(foreign()) } else { Ok(gid) }
    }
}

/// Why a text does not name a global transaction of ours.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum GidError {
    /// Not spelled like a gid of Tutti: someone else's prepared transaction, to be left alone.
    #[error("\"{found}\" is not a transaction identifier of Tutti")]
    Foreign {
        /// The text.
        found: String,
    },
    /// The cluster's tag is empty, too long, or has characters outside `[a-z0-9]`.
    #[error("cluster tag \"{found}\" is not 1 to 16 characters of a-z and 0-9")]
    BadClusterTag {
        /// The text.
        found: String,
    },
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_gid_reads_back_and_fits(
            tag in "[a-z0-9]{1,16}", incarnation: u64, number: u64, anchor in 1u16..
        ) {
            let cluster = tag.parse().expect("the tag fits");
            let gid = Gid { cluster, incarnation, number, anchor: NodeId(anchor) };
            let text = gid.to_string();
            prop_assert!(text.len() <= 70);
            prop_assert!(
                text.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_'))
            );
            prop_assert_eq!(text.parse(), Ok(gid));
        }

        #[test]
        fn what_is_accepted_is_the_one_spelling(text in "tutti_[a-z0-9_+]{1,24}") {
            if let Ok(gid) = text.parse::<Gid>() {
                prop_assert_eq!(gid.to_string(), text);
            }
        }
    }

    #[test]
    fn spelling() {
        let gid: Gid = "tutti_shop_4_17_1".parse().expect("ours");
        assert_eq!((gid.incarnation, gid.number, gid.anchor), (4, 17, NodeId(1)));
        assert_eq!(gid.anchor.to_string(), "n1");
    }

    #[test]
    fn foreign_gids_are_refused() {
        for text in [
            "",
            "tutti",
            "tutti_",
            "tutti_shop_4_17",
            "tutti_shop_4_17_1_",
            "tutti_shop_4_17_1_9",
            "tutti_shop_4_17_0",
            "tutti_shop_4_17_65536",
            "tutti_shop_04_17_1",
            "tutti_shop_+4_17_1",
            "tutti_shop_4_17_n1",
            "tutti_shop_4__1",
            "tutti__4_17_1",
            "tutti_Shop_4_17_1",
            "tutti_seventeenletters1_4_17_1",
            "tutti_sh'op_4_17_1",
            " tutti_shop_4_17_1",
            "tutti_shop_4_17_1\n",
            "pgjdbc_4_17_1",
        ] {
            assert!(text.parse::<Gid>().is_err(), "{text:?} was taken for ours");
        }
    }
}
