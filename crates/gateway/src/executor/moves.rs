//! Rows that may move to another node because their distribution key changes.
//!
//! Owns: which rows stay, leave and come, and that the client is answered as one UPDATE would.
//! Never: evaluates an expression: a node does.
//! Start reading at [`Executor::move_rows`].

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tutti_sql::catalog::{NodeId, Relation, quote_literal};
use tutti_sql::plan::{Access, Move, Template};

use super::array_literal::{ArrayText, split_composite};
use super::fan_out::SnapshotNeed;
use super::filled::{Times, fill_template};
use super::insert::not_utf8;
use super::relay::{Filter, relay};
use crate::client::failure::Failure;
use crate::executor::Executor;
use crate::plans::request::{Call, Done, IssuedBy, Rows};

/// Rows of a node, by where they are.
#[derive(Default)]
struct Places {
    places: ArrayText,
    tables: ArrayText,
    rows: ArrayText,
}

impl Places {
    fn push(&mut self, place: &str, table: &str) {
        self.places.push_composite(place);
        self.tables.push_composite(table);
    }

    /// With the rows' new values, if they stay.
    fn into_parameters(self, with_rows: bool) -> Vec<Bytes> {
        let rows = with_rows.then_some(self.rows);
        [Some(self.places), Some(self.tables), rows]
            .into_iter()
            .flatten()
            .map(ArrayText::into_bytes)
            .collect()
    }
}

/// What becomes of the rows of one UPDATE.
#[derive(Default)]
struct Moved {
    staying: BTreeMap<NodeId, Places>,
    leaving: BTreeMap<NodeId, Places>,
    coming: BTreeMap<NodeId, ArrayText>,
    count: usize,
}

impl Executor<'_> {
    /// UPDATE that may change distribution keys: the nodes lock the rows and compute their new values;
    /// then each row is updated in place, or deleted and inserted where it belongs.
    pub(super) async fn move_rows(
        &mut self,
        of: &Move,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        if !call.is_extended() && self.tx.returned.is_none() {
            // Parts of it would report less than the whole.
            self.describe_text(text, &[]).await?;
        }
        self.refuse_if_read_only("UPDATE")?;
        let relation = &of.relation;
        let objection = self.objection_to_moves(relation, &of.assigned).await?;
        self.need_transaction();
        let moved = self.lock_moved(of, call).await?;
        if !moved.leaving.is_empty() {
            if let Some(objection) = objection {
                return Err(objection);
            }
            self.tx.note_moved(relation);
        }
        let count = moved.count;
        match of.returns {
            true => self.change_returning(of, moved, call).await?,
            false => self.change(of, moved).await?,
        }
        Ok(Done::Tag(format!("UPDATE {count}")))
    }

    /// Locks the rows, and finds out where each belongs.
    async fn lock_moved(&mut self, of: &Move, call: &Call) -> Result<Moved, Failure> {
        let relation = &of.relation;
        let key = relation.placement.key_columns();
        let mut moved = Moved::default();
        let nodes = self.tx.catalog.nodes.clone();
        let texts: Vec<_> = nodes.iter().map(|node| (*node, of.select.as_str())).collect();
        let found = self.internal_rows_of_each(&texts, Access::Write, call).await?;
        let unreadable = || Failure::error("XX000", "a node returned an unreadable row");
        let mut computed = match &of.bucket_question {
            Some(question) => {
                let becomes = found.iter().flatten().map(|row| {
                    let value = row.get(2).and_then(Option::as_ref).ok_or_else(unreadable)?;
                    std::str::from_utf8(value).map_err(not_utf8)
                });
                let becomes = becomes.collect::<Result<Vec<_>, Failure>>()?;
                self.nodes_of_computed(relation, question, becomes.into_iter()).await?
            }
            None => Vec::new(),
        }
        .into_iter();
        for (node, rows) in nodes.into_iter().zip(found) {
            let mut seen = BTreeSet::new();
            for row in &rows {
                // Of each row, whether it counts or not.
                let computed = computed.next();
                let text = |column: usize| {
                    let value = row.get(column).and_then(Option::as_ref).ok_or_else(unreadable)?;
                    std::str::from_utf8(value).map_err(not_utf8)
                };
                let (place, table, becomes) = (text(0)?, text(1)?, text(2)?);
                if !seen.insert((place, table)) {
                    // FROM has several rows for it: as on PostgreSQL one of them counts.
                    continue;
                }
                let target = match computed {
                    Some(node) => node,
                    None => {
                        let fields = split_composite(becomes).ok_or_else(unreadable)?;
                        let key = key.iter();
                        let key =
                            key.map(|part| fields.get(part.column).and_then(Option::as_deref));
                        let key: Vec<_> = key.collect();
                        self.node_of_row(relation, &key).await?
                    }
                };
                moved.count += 1;
                if target == node {
                    let places = moved.staying.entry(node).or_default();
                    places.push(place, table);
                    places.rows.push_composite(becomes);
                } else {
                    moved.leaving.entry(node).or_default().push(place, table);
                    moved.coming.entry(target).or_default().push_composite(becomes);
                }
            }
        }
        Ok(moved)
    }

    async fn change(&mut self, of: &Move, moved: Moved) -> Result<(), Failure> {
        self.delete_leaving(of, moved.leaving).await?;
        for (node, places) in moved.staying {
            self.change_silently(node, &of.update, places.into_parameters(true)).await?;
        }
        for (node, rows) in moved.coming {
            self.change_silently(node, &of.insert, vec![rows.into_bytes()]).await?;
        }
        Ok(())
    }

    async fn delete_leaving(
        &mut self,
        of: &Move,
        leaving: BTreeMap<NodeId, Places>,
    ) -> Result<(), Failure> {
        for (node, places) in leaving {
            self.change_silently(node, &of.delete, places.into_parameters(false)).await?;
        }
        Ok(())
    }

    async fn change_silently(
        &mut self,
        node: NodeId,
        template: &Template,
        rows: Vec<Bytes>,
    ) -> Result<(), Failure> {
        let text = fill_template(template, &Call::Simple, &Times::new());
        let rows = Rows::Everywhere(rows);
        let call = Call::Simple.carrying(rows, self.travelling_bytes_max())?;
        self.internal_rows(node, Access::Write, &text, &call).await.map(drop)
    }

    /// The same where the client gets the new rows.
    async fn change_returning(
        &mut self,
        of: &Move,
        mut moved: Moved,
        call: &Call,
    ) -> Result<(), Failure> {
        self.delete_leaving(of, moved.leaving).await?;
        if moved.count == 0 {
            // The client must still be answered as the statement would.
            moved.staying.entry(NodeId::HOME).or_default();
        }
        let staying = moved.staying.into_iter();
        let staying = staying.map(|(node, at)| (node, &of.update, at.into_parameters(true)));
        let coming = moved.coming.into_iter();
        let coming = coming.map(|(node, rows)| (node, &of.insert, vec![rows.into_bytes()]));
        let steps: Vec<_> = staying.chain(coming).collect();
        for (index, (node, template, rows)) in steps.into_iter().enumerate() {
            let call = &*call.with_room(template, rows.len())?;
            let text = fill_template(template, call, &Times::new());
            let call = &call.carrying(Rows::Everywhere(rows), self.travelling_bytes_max())?;
            let filter = match index {
                0 => Filter::rows(call, false),
                _ => Filter::more_rows(call),
            };
            let texts = [(node, text.as_str())];
            let need = SnapshotNeed::Nothing;
            self.send_to_many(&texts, Access::Write, need, IssuedBy::Client, call).await?;
            let link = self.tx.links.at(&node);
            relay(self.client, link, filter).await?;
        }
        Ok(())
    }

    /// Why no row may leave its node: deleting and inserting it would run the actions of foreign keys
    /// that point to it, would fire no UPDATE triggers, and needs other privileges than an UPDATE,
    /// under other policies.
    ///
    /// Errors: a column may not be updated at all.
    async fn objection_to_moves(
        &mut self,
        relation: &Relation,
        assigned: &[String],
    ) -> Result<Option<Failure>, Failure> {
        let Relation { oid, name, .. } = relation;
        let may_update = assigned.iter().map(|column| {
            let column = quote_literal(column);
            format!("pg_catalog.has_column_privilege({oid}::pg_catalog.oid, {column}, 'UPDATE')")
        });
        let may_update = may_update.collect::<Vec<_>>().join(" AND ");
        let sql = format!(
            "SELECT EXISTS (SELECT FROM pg_catalog.pg_constraint k \
                            WHERE k.contype OPERATOR(pg_catalog.=) 'f' AND k.confrelid OPERATOR(pg_catalog.=) {oid}::pg_catalog.oid \
                            AND k.connamespace OPERATOR(pg_catalog.<>) 'tutti'::pg_catalog.regnamespace::pg_catalog.oid \
                            AND (k.confdeltype OPERATOR(pg_catalog.=) ANY ('{{c,n}}'::pg_catalog.\"char\"[]) \
                                OR NOT EXISTS (SELECT FROM tutti.reference r WHERE r.foreign_key OPERATOR(pg_catalog.=) k.oid))), \
             {may_update}, \
             pg_catalog.has_table_privilege({oid}::pg_catalog.oid, 'INSERT') \
                AND pg_catalog.has_table_privilege({oid}::pg_catalog.oid, 'DELETE'), \
             pg_catalog.row_security_active({oid}::pg_catalog.oid), \
             EXISTS (SELECT FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c \
                     ON c.oid OPERATOR(pg_catalog.=) i.inhparent WHERE c.oid OPERATOR(pg_catalog.=) {oid}::pg_catalog.oid AND c.relkind OPERATOR(pg_catalog.=) 'r')"
        );
        let rows = self.internal_rows(NodeId::HOME, Access::Read, &sql, &Call::Simple).await?;
        let is = |column: usize| {
            let value = rows.first().and_then(|row| row.get(column)).cloned().flatten();
            value.as_deref() == Some(b"t".as_slice())
        };
        let refuse = |detail: &str, hint: &str| {
            let message = format!("changing the distribution key of \"{name}\" is not supported");
            Ok(Some(Failure::unsupported(message, detail, hint)))
        };
        if !is(1) {
            return Err(Failure::error("42501", format!("permission denied for table {name}")));
        }
        if relation.has_triggers {
            return refuse(
                "Rows that move to another node are taken out and put in again: triggers for UPDATE \
                 would not fire.",
                "Delete the rows and insert them with their new key, in one transaction.",
            );
        }
        if is(0) {
            return refuse(
                "Foreign keys point to the table, and its rows would leave their node.",
                "Insert a new row, repoint the references, then delete the old one.",
            );
        }
        if is(4) {
            return refuse(
                "Other tables inherit from it: their rows would become rows of this one.",
                "Delete the rows and insert them with their new key, in one transaction.",
            );
        }
        if !is(2) {
            return refuse(
                "Rows that move to another node are deleted and inserted, and the role has no right \
                 to do that.",
                "GRANT INSERT, DELETE on the table, or let its owner change the key.",
            );
        }
        if is(3) {
            return refuse(
                "Rows that move to another node are deleted and inserted, and row security has other \
                 policies for that than for UPDATE.",
                "Delete the rows and insert them with their new key, in one transaction.",
            );
        }
        Ok(None)
    }
}
