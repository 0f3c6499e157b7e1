//! Rows that are on a node which does not own them, by their keys; and keys that exist twice.
//!
//! Owns: what is reported of them. Never: plans a query over a table whose planning may run code of users'.
//! Start reading at [`Comparison::tell_strays`].

use std::collections::BTreeMap;

use tutti_sql::catalog::{NodeId, quote_literal};

use super::{Comparison, NAMED, Uncounted, bucket_sql, shown, sql_name};
use crate::audit::moment::Name;
use crate::audit::{Finding, Kind, Report};
use crate::catalog::Answer;
use crate::error::GatewayError;

impl Comparison<'_> {
    pub(super) async fn tell_strays(
        &mut self,
        name: &Name,
        node: NodeId,
        count: i128,
        report: &mut Report,
        again: &mut BTreeMap<Name, String>,
    ) -> Result<(), GatewayError> {
        let table = self.tables[&node][name].clone();
        let message = format!("{count} rows here belong to other nodes by their key");
        let mut finding = Finding::new(Kind::StrayRows, Some(node), shown(name), message);
        let key = table.key_list();
        if table.runs_code {
            // No query may be planned over it.
            match self.stray_keys(name, node).await {
                Ok(keys) => {
                    finding.keys.extend(keys.into_iter().map(|(text, owner)| {
                        let owner = owner.map_or("no node".to_owned(), |owner| format!("n{owner}"));
                        format!("({key}) = ({text}) belongs to {owner}")
                    }));
                }
                Err(error) => {
                    if let Uncounted::Changed(why) = self.failed(node, error).await {
                        again.insert(name.clone(), why);
                        return Ok(());
                    }
                }
            }
            report.find(finding);
            return Ok(());
        }
        let mut wanted = vec![key];
        wanted.extend(table.unique.iter().cloned());
        let texts: Vec<_> = wanted
            .iter()
            .map(|columns| {
                format!(
                    "CASE WHEN pg_catalog.num_nulls({columns}) OPERATOR(pg_catalog.=) 0 \
                     THEN ROW({columns})::pg_catalog.text END"
                )
            })
            .collect();
        let owners = self.owners(&table);
        let sql = format!(
            "SELECT tutti_bucket, {} FROM (SELECT *, {} AS tutti_bucket FROM ONLY {} OFFSET 0) AS rows \
             WHERE {} LIMIT 100;",
            texts.join(", "),
            bucket_sql(&table, &owners.bucketing),
            sql_name(name),
            self.is_stray(&table, node)
        );
        let rows = match self.ask_at_moment(node, &sql).await {
            Ok(rows) => rows,
            Err(error) => {
                if let Uncounted::Changed(why) = self.failed(node, error).await {
                    again.insert(name.clone(), why);
                } else {
                    report.find(finding);
                }
                return Ok(());
            }
        };
        let answer = Answer { node, what: "rows that belong elsewhere", rows: &rows };
        for row in 0..answer.len().min(NAMED) {
            let bucket: usize = answer.number(row, 0)?;
            let owner =
                owners.nodes.get(bucket).map_or("no node".to_owned(), |owner| format!("n{owner}"));
            let key = answer.optional(row, 1).unwrap_or("(NULL)");
            finding.keys.push(format!("({}) = {key} belongs to {owner}", wanted[0]));
        }
        report.find(finding);
        for (position, columns) in table.unique.iter().enumerate() {
            let keys: Vec<&str> =
                (0..answer.len()).filter_map(|row| answer.optional(row, position + 2)).collect();
            self.tell_duplicates(name, node, columns, &keys, report).await;
        }
        Ok(())
    }

    /// Keys of rows that are on the wrong node and, where uniqueness is promised, on another too.
    async fn tell_duplicates(
        &mut self,
        name: &Name,
        node: NodeId,
        columns: &str,
        keys: &[&str],
        report: &mut Report,
    ) {
        let list: Vec<_> = keys.iter().map(|key| quote_literal(key)).collect();
        if list.is_empty() {
            return;
        }
        for other in self.moment.workers.nodes() {
            let there = self.tables.get(&other).and_then(|tables| tables.get(name));
            if other == node || there.is_none_or(|table| table.runs_code) {
                continue;
            }
            let sql = format!(
                "SELECT key FROM (SELECT ROW({columns})::pg_catalog.text AS key FROM ONLY {} OFFSET 0) \
                 AS rows WHERE key OPERATOR(pg_catalog.=) ANY (ARRAY[{}]::pg_catalog.text[]);",
                sql_name(name),
                list.join(", ")
            );
            let rows = match self.ask_at_moment(other, &sql).await {
                Ok(rows) => rows,
                Err(error) => {
                    let (Uncounted::Changed(why) | Uncounted::Failed(why)) =
                        self.failed(other, error).await;
                    report.unchecked(format!("duplicate keys of table {}", shown(name)), why);
                    continue;
                }
            };
            let found: Vec<_> = (0..rows.rows.len()).filter_map(|row| rows.text(row, 0)).collect();
            if !found.is_empty() {
                let message =
                    format!("keys of ({columns}), which is unique, are here and on {node} too");
                let mut finding =
                    Finding::new(Kind::DuplicateKeys, Some(other), shown(name), message);
                finding.keys =
                    found.iter().take(NAMED).map(|key| format!("({columns}) = {key}")).collect();
                report.find(finding);
            }
        }
    }
}
