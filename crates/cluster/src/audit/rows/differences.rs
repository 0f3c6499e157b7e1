//! Which rows of two copies differ; and reading a table without planning it.
//!
//! Owns: COPY … TO STDOUT, line by line, and what is made of the lines.
//! Never: keeps more than some sums, and the lines of a few groups.
//! Start reading at [`Comparison::tell_difference`].

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hasher};
use std::time::Duration;

use tokio::time::Instant;
use tutti_link::connection::{NodeConnection, NodeError};
use tutti_sql::catalog::NodeId;
use tutti_sql::hash::{Bucket, Bucketing, bucket_of_several};
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::frame::Frame;
use tutti_wire::frontend::put_query;

use super::{Comparison, KeyColumn, NAMED, Question, Sums, Table, Uncounted, shown, sql_name};
use crate::audit::moment::Name;
use crate::audit::{Finding, Kind, Report};
use crate::error::in_full;

/// How often it is checked whether a session waits for what is being read.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

impl Comparison<'_> {
    pub(super) async fn tell_difference(
        &mut self,
        name: &Name,
        node: NodeId,
        here: Sums,
        expected: Sums,
        report: &mut Report,
        again: &mut BTreeMap<Name, String>,
    ) {
        let message = format!(
            "its copy has {} rows here and {} on {}, and they are not the same",
            here.rows, expected.rows, self.reference
        );
        let mut finding = Finding::new(Kind::CopiesDiffer, Some(node), shown(name), message);
        match self.differences(name, node).await {
            Ok(keys) => finding.keys = keys,
            Err(error) => {
                let error = in_full(&error);
                if let Uncounted::Changed(why) = self.reopened(error).await {
                    again.insert(name.clone(), why);
                    return;
                }
            }
        }
        report.find(finding);
    }

    async fn reopened(&mut self, why: String) -> Uncounted {
        self.moment.workers.ask_all("ROLLBACK").await;
        Uncounted::Failed(why)
    }

    /// Some rows that are not on both, by their primary key if there is one. Reads both copies twice.
    async fn differences(&mut self, name: &Name, node: NodeId) -> Result<Vec<String>, NodeError> {
        const GROUPS: usize = 1 << 16;
        let table = &self.tables[&self.reference][name];
        let keys = table.primary_key.clone();
        let columns = self.common_columns(name);
        let key_count = keys.as_ref().map_or(0, |keys| keys.split(", ").count());
        let listed = match &keys {
            Some(keys) => format!("{keys}, {}", without(&columns, keys)),
            None => columns,
        };
        let listed = listed.trim_end_matches(", ").to_owned();
        let key_of = |line: &[u8]| -> Vec<u8> {
            match key_count {
                0 => line.to_vec(),
                _ => line
                    .split(|byte| *byte == b'\t')
                    .take(key_count)
                    .collect::<Vec<_>>()
                    .join(&b"\t"[..]),
            }
        };
        let group_of = |line: &[u8]| hash(&key_of(line), 2) as usize % GROUPS;
        let mut groups = vec![(0_u64, 0_u64); GROUPS];
        let mut other = groups.clone();
        for (which, groups) in [(self.reference, &mut groups), (node, &mut other)] {
            self.copy(name, which, &listed, |line| {
                let group = &mut groups[group_of(line)];
                group.0 = group.0.wrapping_add(hash(line, 0));
                group.1 = group.1.wrapping_add(hash(line, 1));
            })
            .await?;
        }
        let parted: BTreeSet<usize> =
            (0..GROUPS).filter(|group| groups[*group] != other[*group]).take(NAMED).collect();
        let mut lines: [BTreeMap<Vec<u8>, Vec<u64>>; 2] = Default::default();
        for (lines, which) in lines.iter_mut().zip([self.reference, node]) {
            self.copy(name, which, &listed, |line| {
                if parted.contains(&group_of(line)) {
                    lines.entry(key_of(line)).or_default().push(hash(line, 0));
                }
            })
            .await?;
        }
        let [expected, found] = &mut lines;
        expected.values_mut().chain(found.values_mut()).for_each(|hashes| hashes.sort_unstable());
        let all: BTreeSet<_> = expected.keys().chain(found.keys()).collect();
        let named = all.into_iter().filter_map(|key| {
            let how = match (expected.get(key), found.get(key)) {
                (Some(one), Some(other)) if one == other => return None,
                (Some(_), Some(_)) => "differs".to_owned(),
                (Some(_), None) => format!("missing on {node}"),
                (None, _) => format!("on {node} only"),
            };
            let text = String::from_utf8_lossy(key).replace('\t', ", ");
            let text: String = text.chars().take(200).collect();
            Some(match &keys {
                Some(keys) => format!("({keys}) = ({text}) {how}"),
                None => format!("row ({text}) {how}"),
            })
        });
        Ok(named.take(NAMED).collect())
    }

    /// Every line of a table as COPY writes it, which plans nothing and runs output functions only.
    async fn copy(
        &mut self,
        name: &Name,
        node: NodeId,
        columns: &str,
        mut line: impl FnMut(&[u8]),
    ) -> Result<bool, NodeError> {
        let lost = || NodeError::not_connected(node);
        let begin = self.moment.begin(node).ok_or_else(lost)?;
        let file = self.file_sql(name, node);
        let oid = self.tables[&node][name].oid;
        let (connection, exporter) = self.moment.worker_and_exporter(node).ok_or_else(lost)?;
        connection.query(&begin).await?;
        let columns = if columns.is_empty() { String::new() } else { format!("({columns})") };
        let copy = format!("COPY {} {columns} TO STDOUT", sql_name(name));
        let yields = Yields { exporter, oid, reader: connection.backend_key().0 };
        copy_out(connection, &copy, yields, &mut line).await?;
        let rows = connection.rows(&file).await?;
        connection.query("COMMIT").await?;
        Ok(rows.text(0, 0) == Some("t"))
    }

    /// Some keys of rows that are on the wrong node, with the nodes to which they belong.
    pub(super) async fn stray_keys(
        &mut self,
        name: &Name,
        node: NodeId,
    ) -> Result<Vec<(String, Option<u16>)>, NodeError> {
        let table = self.tables[&node][name].clone();
        let owners = self.owners(&table);
        let key = table.key_list();
        let mut keys = Vec::new();
        self.copy(name, node, &key, |line| {
            let Some(bucket) =
                bucket_of_line(&table, &owners.bucketing, line).filter(|_| keys.len() < NAMED)
            else {
                return;
            };
            let owner = owners.nodes.get(bucket).copied();
            if owner != Some(node.0) {
                let text = match line {
                    b"\\N" => "NULL".into(),
                    line => String::from_utf8_lossy(&unescape(line)).into_owned(),
                };
                keys.push((text, owner));
            }
        })
        .await?;
        Ok(keys)
    }

    /// Where planning may run code: all rows come here, one at a time.
    pub(super) async fn count_by_copy(
        &mut self,
        name: &Name,
    ) -> Result<BTreeMap<NodeId, Sums>, Uncounted> {
        let mut counted = BTreeMap::new();
        for node in self.moment.workers.nodes() {
            let Some(question) = self.question(name, node) else { continue };
            let table = self.tables[&node][name].clone();
            let owners = self.owners(&table);
            let columns = match question {
                Question::Copy | Question::Any => self.common_columns(name),
                Question::Strays => table.key_list(),
            };
            let mut sums = Sums::default();
            let mut unreadable = 0_u64;
            let read = self
                .copy(name, node, &columns, |line| {
                    sums.rows += 1;
                    match question {
                        Question::Copy => {
                            sums.first += i128::from(hash(line, 0));
                            sums.second += i128::from(hash(line, 1));
                        }
                        Question::Strays => match bucket_of_line(&table, &owners.bucketing, line) {
                            Some(bucket) => {
                                sums.first += i128::from(owners.nodes.get(bucket) != Some(&node.0));
                            }
                            None => unreadable += 1,
                        },
                        Question::Any => (),
                    }
                })
                .await;
            match read {
                Err(error) => return Err(self.failed(node, error).await),
                Ok(false) => {
                    return Err(Uncounted::Changed("it was rewritten meanwhile".to_owned()));
                }
                Ok(true) if unreadable > 0 => {
                    let why = format!(
                        "{node}: it is not read by queries, so its nodes are reckoned here, which cannot \
                         be done for {unreadable} keys"
                    );
                    return Err(Uncounted::Failed(why));
                }
                Ok(true) => drop(counted.insert(node, sums)),
            }
        }
        Ok(counted)
    }
}

fn without(columns: &str, keys: &str) -> String {
    let keys: BTreeSet<_> = keys.split(", ").collect();
    columns.split(", ").filter(|column| !keys.contains(column)).collect::<Vec<_>>().join(", ")
}

fn hash(bytes: &[u8], seed: u64) -> u64 {
    // Of this process alone; both copies are hashed by it.
    let mut hasher = DefaultHasher::new();
    hasher.write_u64(seed);
    hasher.write(bytes);
    hasher.finish()
}

/// NULL has bucket 0, as for the gateway. `None` for a text that only a node can read.
fn bucket_of_line(table: &Table, bucketing: &Bucketing, line: &[u8]) -> Option<usize> {
    // A tab in a value is written with a backslash.
    let fields: Vec<_> = line.split(|byte| *byte == b'\t').collect();
    if fields.len() != table.key.len() {
        return None;
    }
    let bucket = |(key, field): (&KeyColumn, &&[u8])| {
        if *field == b"\\N" {
            return Some(Bucket::OF_NULL);
        }
        let text = String::from_utf8(unescape(field)).ok()?;
        let key_type = key.key_type?;
        bucketing.bucket_of_stored_text(key_type, &text, key_type, key.modifier).ok()
    };
    let buckets = table.key.iter().zip(&fields).map(bucket).collect::<Option<Vec<_>>>()?;
    let bucket = match buckets[..] {
        [bucket] => bucket,
        _ => bucket_of_several(buckets),
    };
    Some(usize::from(bucket.0))
}

/// A field as COPY's text format writes it.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(field.len());
    let mut bytes = field.iter().copied();
    while let Some(byte) = bytes.next() {
        text.push(match (byte, byte == b'\\') {
            (_, true) => match bytes.next() {
                Some(b'n') => b'\n',
                Some(b't') => b'\t',
                Some(b'r') => b'\r',
                Some(b'b') => 8,
                Some(b'f') => 12,
                Some(b'v') => 11,
                Some(other) => other,
                None => b'\\',
            },
            _ => byte,
        });
    }
    text
}

/// A long reading of a table yields to a session that waits for a lock on it: others queue after that one.
struct Yields<'a> {
    exporter: &'a mut NodeConnection,
    oid: u32,
    /// Process of the backend that reads.
    reader: i32,
}

impl Yields<'_> {
    async fn poll(&mut self) -> Result<(), NodeError> {
        let Self { oid, reader, .. } = self;
        let sql = format!(
            "SELECT pg_catalog.pg_cancel_backend({reader}) WHERE EXISTS (SELECT FROM pg_catalog.pg_locks
    WHERE NOT granted AND locktype = 'relation' AND relation = {oid}
        AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()))"
        );
        self.exporter.rows(&sql).await.map(drop)
    }
}

/// Runs a COPY … TO STDOUT and yields its lines as they arrive.
async fn copy_out(
    connection: &mut NodeConnection,
    sql: &str,
    mut yields: Yields<'_>,
    line: &mut impl FnMut(&[u8]),
) -> Result<(), NodeError> {
    put_query(connection.outgoing(), sql);
    connection.flush().await?;
    let mut refused = None;
    let mut looked = Instant::now();
    loop {
        if POLL_INTERVAL < looked.elapsed() {
            yields.poll().await?;
            looked = Instant::now();
        }
        let frame: Frame = connection.next_frame().await?;
        match frame.tag() {
            b'd' => {
                let body = frame.body();
                line(body.strip_suffix(b"\n").unwrap_or(body));
            }
            b'E' => {
                refused.get_or_insert(ErrorFields::decode(&frame)?);
            }
            b'Z' => break,
            _ => (),
        }
    }
    refused.map_or(Ok(()), |fields| Err(NodeError::Refused(Box::new(fields))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_copy_writes_them() {
        assert_eq!(unescape(b"a\\tb\\\\c\\nd"), b"a\tb\\c\nd");
        assert_eq!(unescape(b""), b"");
    }

    #[test]
    fn keys_come_first_and_once() {
        assert_eq!(without("a, \"b c\", d", "\"b c\""), "a, d");
    }
}
