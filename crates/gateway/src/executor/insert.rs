//! INSERTs that go to several nodes or need values first.
//!
//! Owns: distributing rows over nodes, and putting RETURNING rows back into the source's order.
//! Never: evaluates an expression: a node does.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use tutti_sql::catalog::{KeyPart, MapId, NodeId, Placement, Relation, quote_literal};
use tutti_sql::hash::{Bucket, Bucketing, KeyType};
use tutti_sql::plan::{Access, Insert, InsertSource, KeyValue, Piece, Pin, Template, ValuesRow};
use tutti_wire::frame::{frame_len, take_frame};

use super::array_literal::{ArrayText, composite};
use super::fan_out::{Answers, SnapshotNeed};
use super::filled::fill_template;
use super::relay::{Filter, relay};
use super::source_rows::SourceRows;
use super::tag_total::TagTotal;
use crate::client::failure::Failure;
use crate::executor::Executor;
use crate::plans::request::{Call, Done, IssuedBy, Rows, too_large};
use crate::plans::route::{self, bucket_of_value, node_of_bucket, node_of_pin};

/// A row's values in text form.
type Row = Vec<Option<Bytes>>;

impl Executor<'_> {
    pub(super) async fn insert(
        &mut self,
        insert: &Insert,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        match &insert.source {
            InsertSource::Values { prefix, rows, suffix } => {
                self.insert_values(insert, (prefix, rows, suffix), text, call).await
            }
            InsertSource::Select { query, plan, columns, key, insert: template } => {
                let unseen = plan.unseen.as_deref().filter(|_| !self.tx.catalog.is_solo());
                if let Some(unseen) = unseen {
                    // What code the analysis runs (constants are read by it) is that of the query, too.
                    self.begin_accounting(unseen, &plan.plan, text, call);
                }
                // The parts that run below would report less than the whole: errors of analysis
                // must be those of the client's own statement.
                let mut described = match call.is_extended() || self.tx.returned.is_some() {
                    true => Ok(()),
                    false => self.describe_text(text, &[]).await.map(drop),
                };
                if unseen.is_none() {
                    described = Ok(described?);
                }
                // The rows and what is returned have one time, which is that of a transaction.
                if template.0.iter().any(|piece| matches!(piece, Piece::Time(_))) {
                    self.need_transaction();
                }
                let deal = Deal { relation: &insert.relation, columns, key };
                let inserted = async {
                    let rows = match described {
                        Ok(()) => {
                            // Temporary tables may be written.
                            if insert.relation.placement != Placement::Home {
                                self.refuse_if_read_only("INSERT")?;
                            }
                            self.source_rows(plan, query, insert, call).await
                        }
                        Err(error) => Err(error),
                    };
                    match self.finish_accounting(rows).await? {
                        SourceRows::All(rows) => {
                            self.insert_rows(&deal, template, &rows, insert, call).await
                        }
                        mut source => {
                            let is_whole = self.may_refer_to_itself(&insert.relation).await?;
                            if let SourceRows::Received(receiver, text, of_source) = &mut source {
                                self.read_from_receiver(receiver, text, of_source).await?;
                            }
                            if is_whole {
                                let rows = source.all_rows(self.travelling_bytes_max()).await?;
                                return self
                                    .insert_rows(&deal, template, &rows, insert, call)
                                    .await;
                            }
                            self.insert_portions(&deal, template, source, insert, call).await
                        }
                    }
                };
                inserted.await.map_err(Failure::without_position)
            }
        }
    }

    async fn insert_values(
        &mut self,
        insert: &Insert,
        (prefix, rows, suffix): (&str, &[ValuesRow], &str),
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        let mut dealt: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
        for (index, row) in rows.iter().enumerate() {
            let node = match &row.key {
                None => self.deal_round_robin(),
                Some(pin) => {
                    match node_of_pin(&self.tx.catalog, pin, |at| route::parameter(call, at)) {
                        Some(node) => node,
                        None => self.ask_for_node(pin, &insert.relation, call).await?,
                    }
                }
            };
            dealt.entry(node).or_default().push(index);
        }
        if let (1, Some((node, _))) = (dealt.len(), dealt.first_key_value()) {
            return self.run_on_one(*node, Access::Write, text, call).await;
        }
        let texts: Vec<(NodeId, String)> = dealt
            .iter()
            .map(|(node, indexes)| {
                let lists: Vec<_> = indexes.iter().map(|index| rows[*index].sql.as_str()).collect();
                (*node, format!("{prefix}{}{suffix}", lists.join(", ")))
            })
            .collect();
        let order = dealt.into_values().collect();
        let inserted = self.insert_texts(&texts, order, insert, call).await;
        inserted.map_err(Failure::without_position)
    }

    /// Runs the INSERTs of several nodes; returned rows come in the order of the source if each
    /// source row gives one.
    async fn insert_texts(
        &mut self,
        texts: &[(NodeId, String)],
        order: Vec<Vec<usize>>,
        insert: &Insert,
        call: &Call,
    ) -> Result<Done, Failure> {
        let borrowed: Vec<_> = texts.iter().map(|(node, text)| (*node, text.as_str())).collect();
        if !(insert.returning && insert.one_row_each && 1 < texts.len()) {
            return self.run_texts(&borrowed, Access::Write, SnapshotNeed::Nothing, call).await;
        }
        self.need_transaction();
        let need = SnapshotNeed::Nothing;
        self.send_to_many(&borrowed, Access::Write, need, IssuedBy::Client, call).await?;
        let nodes: Vec<_> = texts.iter().map(|(node, _)| *node).collect();
        let (mut answers, mut left) = (Vec::new(), self.travelling_bytes_max());
        let mut total = TagTotal::default();
        let mut awaited = Answers::of(&nodes);
        while let Some(node) = awaited.next(self).await {
            let filter = match node == nodes[0] {
                true => Filter::rows(call, false),
                false => Filter::more_rows(call),
            };
            let link = self.tx.links.at(&node);
            let around = self.client.take_capture();
            self.client.begin_capture(left);
            let relayed = relay(self.client, link, filter).await;
            let kept = self.client.end_capture().ok_or_else(|| too_large(left));
            self.client.resume_capture(around);
            match relayed.and_then(|answer| Ok((answer, kept?))) {
                Ok((answer, kept)) => {
                    total.add(&answer.tag);
                    left -= kept.len();
                    answers.push(kept);
                }
                Err(error) => awaited.note(self, error).await?,
            }
        }
        awaited.end()?;
        merge_in_order(self.client.out(), &answers, &order)?;
        Ok(Done::Tag(total.tag()))
    }

    /// Whether a row may have a foreign key to another row of the same statement, which may come later.
    async fn may_refer_to_itself(&mut self, relation: &Relation) -> Result<bool, Failure> {
        let key = |column: &str| {
            format!(
                "EXISTS (SELECT FROM pg_catalog.pg_constraint WHERE contype OPERATOR(pg_catalog.=) 'f' \
                 AND {column} OPERATOR(pg_catalog.=) {}::pg_catalog.oid)",
                relation.oid
            )
        };
        let sql = format!("SELECT {} AND {}", key("conrelid"), key("confrelid"));
        let rows = self.internal_rows(NodeId::HOME, Access::Read, &sql, &Call::Simple).await?;
        Ok(rows.first().and_then(|row| row.first()?.as_deref()) != Some(b"f"))
    }

    /// Inserts rows as they come.
    async fn insert_portions(
        &mut self,
        deal: &Deal<'_>,
        template: &Template,
        mut source: SourceRows<'_>,
        insert: &Insert,
        call: &Call,
    ) -> Result<Done, Failure> {
        self.need_transaction();
        let mut total = TagTotal::default();
        while let Some(rows) = source.next_rows().await? {
            match self.insert_rows(deal, template, &rows, insert, call).await? {
                Done::Tag(tag) => total.add(&tag),
                Done::Told | Done::Empty => {
                    return Err(Failure::error("XX000", "a portion was taken for the whole"));
                }
            }
        }
        match total.tag() {
            // As the statement is answered that has nothing to insert.
            tag if tag.is_empty() => self.insert_rows(deal, template, &[], insert, call).await,
            tag => Ok(Done::Tag(tag)),
        }
    }

    async fn insert_rows(
        &mut self,
        deal: &Deal<'_>,
        template: &Template,
        rows: &[Row],
        insert: &Insert,
        call: &Call,
    ) -> Result<Done, Failure> {
        let times = self.times_for([template]).await?;
        let call = &*call.with_room(template, 1)?;
        let text = fill_template(template, call, &times);
        let bytes_max = self.travelling_bytes_max();
        if deal.relation.placement == Placement::Replicated {
            let mut all = ArrayText::default();
            for row in rows {
                all.push_composite(&deal.composite(row));
            }
            let call = &call.carrying(Rows::Everywhere(vec![all.into_bytes()]), bytes_max)?;
            return match &insert.rows {
                None => self.run_on_replicas(&[], &text, call).await,
                Some(rows) => self.write_by_row(rows, &text, call).await,
            };
        }
        let mut dealt: BTreeMap<NodeId, (ArrayText, Vec<usize>)> = BTreeMap::new();
        let nodes = match &insert.bucket_question {
            Some(question) => {
                let rows: Vec<_> = rows.iter().map(|row| deal.composite(row)).collect();
                let rows = rows.iter().map(String::as_str);
                self.nodes_of_computed(deal.relation, question, rows).await?
            }
            None => Vec::new(),
        };
        for (index, row) in rows.iter().enumerate() {
            let node = match nodes.get(index) {
                Some(node) => *node,
                None => {
                    let key = deal.key.iter().map(|place| {
                        let value = place.and_then(|place| row.get(place)?.as_ref());
                        value.map(|value| std::str::from_utf8(value)).transpose().map_err(not_utf8)
                    });
                    let key = key.collect::<Result<Vec<_>, _>>()?;
                    self.node_of_row(deal.relation, &key).await?
                }
            };
            let (array, indexes) = dealt.entry(node).or_default();
            array.push_composite(&deal.composite(row));
            indexes.push(index);
        }
        if dealt.is_empty() {
            // Nothing to insert, but the client must still be answered as the statement would.
            dealt.entry(NodeId::HOME).or_default();
        }
        let mut texts = Vec::new();
        let mut order = Vec::new();
        let mut of_node = BTreeMap::new();
        for (node, (array, indexes)) in dealt {
            texts.push((node, text.clone()));
            of_node.insert(node, vec![array.into_bytes()]);
            order.push(indexes);
        }
        let call = &call.carrying(Rows::OfNode(of_node), bytes_max)?;
        self.insert_texts(&texts, order, insert, call).await
    }

    /// The node for a row of `relation` whose key columns have these values, in text form and in the key's order.
    pub(super) async fn node_of_row(
        &mut self,
        relation: &Relation,
        key: &[Option<&str>],
    ) -> Result<NodeId, Failure> {
        let Some(map) = relation.placement.key_map() else {
            return Ok(match relation.placement {
                Placement::Home => NodeId::HOME,
                _ => self.deal_round_robin(),
            });
        };
        let bucketing = self.bucketing(map)?;
        let mut buckets = Vec::new();
        for (place, value) in key.iter().enumerate() {
            let Some(KeyPart { column, key_type }) = relation.placement.key_column(place) else {
                break;
            };
            let of = &relation.columns[column];
            buckets.push(match bucket_of_value(&bucketing, key_type, of.type_modifier, *value) {
                Ok(bucket) => bucket,
                // Spelled in a way that only the server can read (such as a date in another DateStyle).
                Err(_) => {
                    let type_name = &of.declared_type;
                    let literal = quote_literal(value.unwrap_or_default());
                    let value = format!("({literal}::{type_name})");
                    self.ask_for_bucket(&bucketing, key_type, &value, &Call::Simple).await?
                }
            });
        }
        self.node_of(map, relation.placement.bucket(&buckets))
    }

    async fn ask_for_node(
        &mut self,
        pin: &Pin,
        relation: &Relation,
        call: &Call,
    ) -> Result<NodeId, Failure> {
        let KeyValue::Several(parts) = &pin.value else {
            let key = relation.placement.key_columns().first().copied();
            return match self.bucket_of_part(pin, key, relation, call).await? {
                Some(bucket) => self.node_of(pin.map, bucket),
                None => Ok(self.deal_round_robin()),
            };
        };
        let key = relation.placement.key_columns();
        let mut buckets = Vec::new();
        for (part, key) in parts.iter().zip(key) {
            buckets.extend(self.bucket_of_part(part, Some(key), relation, call).await?);
        }
        self.node_of(pin.map, relation.placement.bucket(&buckets))
    }

    /// The bucket of the value of one key column; `None`: the table has no key.
    async fn bucket_of_part(
        &mut self,
        pin: &Pin,
        key: Option<KeyPart>,
        relation: &Relation,
        call: &Call,
    ) -> Result<Option<Bucket>, Failure> {
        match (&pin.value, key) {
            (KeyValue::Bucket(bucket), _) => Ok(Some(*bucket)),
            (KeyValue::Parameter(index), Some(KeyPart { column, key_type })) => {
                let type_name = &relation.columns[column].declared_type;
                let value = format!("(${}::{type_name})", index + 1);
                let bucketing = self.bucketing(pin.map)?;
                Ok(Some(self.ask_for_bucket(&bucketing, key_type, &value, call).await?))
            }
            (KeyValue::Parameter(_), None) => Ok(None),
            (KeyValue::Literal(_) | KeyValue::Several(_), _) => {
                let message = "the plan of a shape was executed without its literals";
                Err(Failure::error("XX000", message))
            }
        }
    }

    async fn ask_for_bucket(
        &mut self,
        bucketing: &Bucketing,
        key_type: KeyType,
        value: &str,
        call: &Call,
    ) -> Result<Bucket, Failure> {
        let sql = format!("SELECT {}", bucketing.sql_bucket(key_type, value));
        let rows = self.internal_rows(NodeId::HOME, Access::Read, &sql, call).await?;
        let bucket = rows
            .first()
            .and_then(|row| std::str::from_utf8(row.first()?.as_ref()?).ok()?.parse().ok());
        bucket
            .map(Bucket)
            .ok_or_else(|| Failure::error("XX000", "node 1 did not say which bucket a key has"))
    }

    pub(super) fn node_of(&self, map: MapId, bucket: Bucket) -> Result<NodeId, Failure> {
        node_of_bucket(&self.tx.catalog, map, bucket).ok_or_else(|| missing(map))
    }

    /// How the map's buckets follow from keys.
    fn bucketing(&self, map: MapId) -> Result<Bucketing, Failure> {
        let map_of = self.tx.catalog.maps.get(&map).ok_or_else(|| missing(map))?;
        Ok(map_of.bucketing.clone())
    }

    /// The next node for a row that may be on any.
    pub(super) fn deal_round_robin(&self) -> NodeId {
        let nodes = &self.tx.catalog.nodes;
        let index = usize::try_from(self.tx.registry.deal_row()).unwrap_or(0) % nodes.len();
        nodes[index]
    }
}

fn missing(map: MapId) -> Failure {
    Failure::error("XX000", format!("bucket map {} is missing", map.0))
}

pub(super) fn not_utf8(_: std::str::Utf8Error) -> Failure {
    Failure::error("22021", "invalid byte sequence for encoding \"UTF8\"")
}

/// How rows of a source become rows of a table.
struct Deal<'a> {
    relation: &'a Relation,
    /// For each value of a source row its column.
    columns: &'a [usize],
    /// For each column of the distribution key its value's place in a row.
    key: &'a [Option<usize>],
}

impl Deal<'_> {
    fn composite(&self, row: &[Option<Bytes>]) -> String {
        let mut fields: Vec<Option<&str>> = vec![None; self.relation.columns.len()];
        for (column, value) in self.columns.iter().zip(row) {
            fields[*column] = value.as_ref().and_then(|value| std::str::from_utf8(value).ok());
        }
        composite(fields.into_iter())
    }
}

/// Writes the answers of several nodes as one: `order[i][j]` is the place of the j-th row of answer
/// i among all rows. Falls back to one after the other if a node returned another number of rows.
fn merge_in_order(
    out: &mut BytesMut,
    answers: &[Bytes],
    order: &[Vec<usize>],
) -> Result<(), Failure> {
    let mut rows = BTreeMap::new();
    let mut others = BytesMut::new();
    let mut regular = true;
    for (answer, places) in answers.iter().zip(order) {
        let mut places = places.iter();
        let mut rest = BytesMut::from(&answer[..]);
        while frame_len(&rest)?.is_some() {
            let Some(frame) = take_frame(&mut rest)? else { break };
            match (frame.tag(), places.len()) {
                (b'D', 0) => regular = false,
                (b'D', _) => {
                    rows.insert(*places.next().expect("just counted"), frame);
                }
                _ => others.extend_from_slice(frame.as_bytes()),
            }
        }
        regular &= places.len() == 0;
    }
    if regular {
        out.extend_from_slice(&others);
        for frame in rows.values() {
            out.extend_from_slice(frame.as_bytes());
        }
    } else {
        for answer in answers {
            out.extend_from_slice(answer);
        }
    }
    Ok(())
}
