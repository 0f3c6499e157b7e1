//! Requests that are executed once, however often they are sent: what their keepers are told.
//!
//! Owns: which node keeps a family of instances, and the statements by which one begins, is decided, or is looked
//! up there.
//! Never: decides which instance may commit ([`tutti_txn::request_family`] says it, and `tutti.request` does it), or
//! ends an earlier one (the gateway's sessions do).
//! Start reading at [`Instance`] and [`keeper_of`]. `docs/protocol/exactly-once.md` is the protocol.

use std::time::Duration;

use tutti_link::connection::{NodeError, Rows};
use tutti_sql::catalog::{NodeId, quote_literal};
use tutti_sql::hash::{Bucketing, KeyType};
use tutti_txn::gid::Gid;
use tutti_wire::sqlstate;

use crate::catalog::maps::even_node;
use crate::cluster::Cluster;
use crate::error::GatewayError;

/// Longest name of a family, in bytes.
pub const FAMILY_BYTES_MAX: usize = 1024;
/// How long the keeper of a family may take to answer.
const KEEPER_PATIENCE: Duration = Duration::from_secs(10);
/// How often it is looked whether a commit is over.
const COMMIT_PAUSE: Duration = Duration::from_millis(2);

/// One attempt at a request.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Instance {
    /// The number, on node 1, of the role whose request it is: others' families of the same name are others.
    pub owner: String,
    /// The name that all attempts have in common.
    pub family: String,
    /// Which attempt it is, from 1 on.
    pub number: i64,
}

/// What is kept of an instance that commits.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Record {
    /// Which one.
    pub instance: Instance,
    /// What was asked for, if the client has said so.
    pub request: Option<String>,
    /// What the client was to be told, if it has said so.
    pub result: Option<String>,
}

/// What a keeper has of a family.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Kept {
    /// The latest instance that has begun; 0: none that the keeper was told of.
    pub fence: i64,
    /// The one that has committed.
    pub committed: Option<i64>,
    /// What that was asked for.
    pub request: Option<String>,
    /// What it has led to.
    pub result: Option<String>,
    /// The transaction that has committed it, where it was on several nodes.
    gid: Option<Gid>,
}

/// Which of these nodes keeps a family, and so decides about transactions of its instances.
///
/// The nodes' buckets, in the same ranges as the maps of tables: of the family's name, as a text; or where part of
/// it stands in braces (`{42}/order-7`), of that part, as an integer if it is one. So a request for rows of one key can
/// be kept where these are, and is then committed on one node.
pub fn keeper_of(family: &str, nodes: &[NodeId]) -> NodeId {
    let tag = family.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    let tag = tag.filter(|tag| !tag.is_empty()).unwrap_or(family);
    let is_integer = tag.parse::<i64>().is_ok_and(|number| number.to_string() == tag);
    let key_type = if is_integer { KeyType::Int8 } else { KeyType::Text };
    let bucket = Bucketing::Hash
        .bucket_of_text(key_type, tag)
        .expect("a text, or the text of an integer, has a hash");
    even_node(nodes, bucket)
}

impl Cluster {
    /// The node that keeps this instance's family.
    pub fn keeper_of(&self, family: &str) -> NodeId {
        keeper_of(family, &self.catalog().nodes)
    }

    /// An instance begins that may not be the first: none before it can commit from now on, unless one has. Returns
    /// what is kept of the family; what has committed is visible everywhere. `None`: one is being committed by its
    /// keeper alone, and takes long.
    ///
    /// Errors: its keeper's, or that it does not answer.
    pub async fn begin_request(&self, instance: &Instance) -> Result<Option<Kept>, GatewayError> {
        let Instance { owner, family, number } = instance;
        let sql = format!(
            "SELECT fence, instance, request, result, gid FROM tutti.begin_request({}, {}, {number})",
            quote_literal(owner),
            quote_literal(family),
        );
        match self.ask_keeper(family, &sql).await {
            Ok(kept) => Ok(Some(kept)),
            Err(NodeError::Refused(fields))
                if fields.sqlstate() == sqlstate::LOCK_NOT_AVAILABLE =>
            {
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// What is kept of a family. What has committed is visible everywhere.
    ///
    /// Errors: as [`Self::begin_request`].
    pub async fn look_up_request(&self, owner: &str, family: &str) -> Result<Kept, GatewayError> {
        let sql = format!(
            "SELECT r.fence, r.instance, r.request, r.result, r.gid FROM tutti.request r
             WHERE r.owner OPERATOR(pg_catalog.=) {} AND r.family OPERATOR(pg_catalog.=) {}",
            quote_literal(owner),
            quote_literal(family),
        );
        Ok(self.ask_keeper(family, &sql).await?)
    }

    async fn ask_keeper(&self, family: &str, sql: &str) -> Result<Kept, NodeError> {
        let keeper = self.keeper_of(family);
        let asked = async {
            let mut connection = self.connections.checkout(keeper).await?;
            let rows = connection.rows(sql).await;
            if matches!(rows, Ok(_) | Err(NodeError::Refused(_))) {
                self.connections.release(connection);
            }
            rows
        };
        let silent =
            || NodeError::Lost { node: keeper, source: std::io::ErrorKind::TimedOut.into() };
        let rows =
            tokio::time::timeout(KEEPER_PATIENCE, asked).await.unwrap_or_else(|_| Err(silent()))?;
        let kept = kept(&rows);
        if let Some(gid) = &kept.gid {
            // Who is told of a commit must see it.
            while self.coordinators.contains(gid) {
                tokio::time::sleep(COMMIT_PAUSE).await;
            }
        }
        Ok(kept)
    }
}

fn kept(rows: &Rows) -> Kept {
    let text = |column| rows.text(0, column).map(str::to_owned);
    let number = |column: usize| rows.text(0, column).and_then(|number| number.parse().ok());
    Kept {
        fence: number(0).unwrap_or_default(),
        committed: number(1),
        request: text(2),
        result: text(3),
        gid: rows.text(0, 4).and_then(|gid| gid.parse().ok()),
    }
}

impl Record {
    /// On a connection of the gateway's own to the keeper: records that the transaction of this identifier is
    /// committed, and this with it. An ERROR: neither is recorded, nor will be.
    pub(crate) fn decision_sql(&self, gid: &Gid) -> String {
        let gid = quote_literal(&gid.to_string());
        format!("SELECT tutti.decide_request({gid}, {})", self.arguments())
    }

    /// The same, of a transaction that has used no node.
    pub fn sql(&self) -> String {
        format!("SELECT tutti.keep_request({}, NULL)", self.arguments())
    }

    fn arguments(&self) -> String {
        let Instance { owner, family, number } = &self.instance;
        let [owner, family] = [owner, family].map(|text| quote_literal(text));
        let [request, result] = [&self.request, &self.result]
            .map(|text| text.as_deref().map_or("NULL".to_owned(), quote_literal));
        format!("{owner}, {family}, {number}, {request}, {result}")
    }

    /// What a gateway seals, before a transaction of a client's keeps it itself.
    pub fn sealed_message(&self) -> String {
        let Instance { owner, family, number } = &self.instance;
        let number = number.to_string();
        let parts =
            [Some(owner), Some(family), Some(&number), self.request.as_ref(), self.result.as_ref()];
        let part = |part: Option<&String>| match part {
            Some(part) => format!("{}:{part}", part.len()),
            None => "-".to_owned(),
        };
        format!("request {}", parts.map(part).concat())
    }

    /// On the connection of a client's transaction that has written on the keeper alone: the statement that keeps this
    /// in it, and its values. `seal`: of [`Self::sealed_message`].
    pub fn own_sql(&self, seal: String) -> (String, Vec<Option<String>>) {
        let Instance { owner, family, number } = &self.instance;
        let values = vec![
            Some(owner.clone()),
            Some(family.clone()),
            Some(number.to_string()),
            self.request.clone(),
            self.result.clone(),
            Some(seal),
        ];
        ("SELECT tutti.keep_own_request($1, $2, $3, $4, $5, $6)".to_owned(), values)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::catalog::maps::even_map;

    #[test]
    fn families_are_kept_by_all_nodes_and_each_by_one() {
        let nodes: Vec<_> = (1..=3).map(NodeId).collect();
        let keepers: BTreeSet<_> =
            (0..100).map(|number| keeper_of(&format!("request {number}"), &nodes)).collect();
        assert_eq!(keepers.len(), nodes.len());
        assert_eq!(keeper_of("", &nodes), keeper_of("", &nodes));
    }

    #[test]
    fn what_stands_in_braces_says_where() {
        let nodes: Vec<_> = (1..=3).map(NodeId).collect();
        for key in -40_i64..40 {
            let bucket = Bucketing::Hash
                .bucket_of_text(KeyType::Int8, &key.to_string())
                .expect("an integer");
            let node = even_map(&nodes).node(bucket);
            assert_eq!(keeper_of(&format!("{{{key}}}/order"), &nodes), node);
            assert_eq!(keeper_of(&format!("of {{{key}}} {{other}}"), &nodes), node);
        }
        let bucket = Bucketing::Hash.bucket_of_text(KeyType::Text, "007").expect("a text");
        assert_eq!(keeper_of("{007}", &nodes), even_map(&nodes).node(bucket), "no integer's text");
        let bucket = Bucketing::Hash.bucket_of_text(KeyType::Text, "{}x").expect("a text");
        assert_eq!(keeper_of("{}x", &nodes), even_map(&nodes).node(bucket));
        let bucket = Bucketing::Hash.bucket_of_text(KeyType::Text, "{open").expect("a text");
        assert_eq!(keeper_of("{open", &nodes), even_map(&nodes).node(bucket));
    }
}
