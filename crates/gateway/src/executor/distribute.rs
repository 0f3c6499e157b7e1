//! Functions of Tutti itself, called like any function of PostgreSQL.
//!
//! Owns: `tutti_distribute`, `tutti_replicate`, `tutti_round_robin`, `tutti_outcome` and the
//! informational ones.
//! Never: decides what a row's node is, or what became of a transaction.

use std::sync::Arc;

use tutti_sql::catalog::{NodeId, Placement, Relation, RelationKind, quote_literal};
use tutti_sql::plan::{Access, TuttiCall};
use tutti_sql::statement::DistributeBy;
use tutti_wire::backend::ColumnDescription;

use super::Done;
use super::call::Call;
use crate::catalog::{self, Redistribution};
use crate::failure::Failure;
use crate::recovery::{self, InDoubt};
use crate::session::Session;

/// The columns of a function's answer.
pub(super) fn columns_of(function: &TuttiCall) -> Vec<ColumnDescription> {
    match function {
        TuttiCall::Distribute { function, .. } => vec![ColumnDescription::text(function)],
        TuttiCall::Signal { function, .. } => {
            // bool
            let (type_oid, type_len) = (16, 1);
            vec![ColumnDescription { type_oid, type_len, ..ColumnDescription::text(function) }]
        }
        TuttiCall::Outcome { .. } => vec![ColumnDescription::text("tutti_outcome")],
        TuttiCall::Show { function } => match function.as_str() {
            "tutti_nodes" => {
                vec![ColumnDescription::text("node"), ColumnDescription::text("address")]
            }
            "tutti_in_doubt" => {
                ["gid", "nodes", "since", "decision"].map(ColumnDescription::text).into()
            }
            "tutti_tables" => vec![
                ColumnDescription::text("table"),
                ColumnDescription::text("placement"),
                ColumnDescription::text("key"),
            ],
            name => vec![ColumnDescription::text(name)],
        },
    }
}

impl Session {
    pub(super) async fn tutti_function(
        &mut self,
        function: &TuttiCall,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        let rows = match function {
            TuttiCall::Signal { function, target } => {
                let target = self.signal_target(*target, call);
                let terminates = function == "pg_terminate_backend";
                let Some(sent) = self.signal(target, terminates).await? else {
                    return self.run_on_one(NodeId::HOME, Access::Read, text, call).await;
                };
                vec![vec![Some(if sent { "t" } else { "f" }.to_owned())]]
            }
            TuttiCall::Distribute { table, distribute_by, .. } => {
                vec![vec![Some(self.redistribute(table, distribute_by).await?)]]
            }
            TuttiCall::Outcome { gid } => {
                vec![vec![Some(recovery::outcome(&self.shared, gid).await?.to_string())]]
            }
            TuttiCall::Show { function } if function == "tutti_in_doubt" => self.in_doubt().await?,
            TuttiCall::Show { function } => self.information(function),
        };
        let tag = format!("SELECT {}", rows.len());
        self.put_rows(&columns_of(function), &rows, call);
        Ok(Done::Tag(tag))
    }

    /// Moves a table's rows to where `wanted` says, in a transaction over all nodes. Returns what was
    /// done, in words.
    async fn redistribute(
        &mut self,
        table: &str,
        wanted: &DistributeBy,
    ) -> Result<String, Failure> {
        self.need_transaction();
        // What concerns node 1 alone is not always known at once.
        self.enlist(NodeId::HOME, Access::Write).await?.query("SELECT 1").await?;
        self.reload_own_catalog().await?;
        let relation = self.table_named(table).await?;
        let was_home = relation.placement == Placement::Home;
        if was_home && *wanted == DistributeBy::Home {
            return Ok(format!("{} is on node 1", relation.name));
        }
        if was_home {
            self.share_tables(&[relation.oid]).await?;
        }
        for node in self.catalog.nodes.clone() {
            self.enlist(node, Access::Write).await?.query("SELECT 1").await?;
        }
        let catalog = self.catalog.clone();
        let home = self.link(NodeId::HOME).await?.connection();
        let redistribution = Redistribution::plan(home, &catalog, &relation, wanted).await?;
        let shared = self.shared.clone();
        let links = self.links.iter_mut();
        let mut connections = links.map(|(node, link)| (*node, link.connection())).collect();
        let performed = redistribution.perform(&mut connections, &shared.seals).await;
        performed?;
        if *wanted == DistributeBy::Home && catalog.home_by_default {
            for node in self.other_nodes() {
                let sql = format!("DROP TABLE {} CASCADE", relation.sql_name());
                self.link(node).await?.query(&sql).await?;
                catalog::unregister_dropped(self.link(node).await?.connection()).await?;
            }
        }
        for node in catalog.nodes.clone() {
            catalog::note_change(self.link(node).await?.connection()).await?;
        }
        self.verify_schema().await?;
        self.reload_own_catalog().await?;
        Ok(match wanted {
            DistributeBy::Hash(column) => format!("{} is distributed by {column}", relation.name),
            DistributeBy::RoundRobin => format!("{} is distributed round robin", relation.name),
            DistributeBy::Replicated => format!("{} is replicated", relation.name),
            DistributeBy::Home => format!("{} is on node 1", relation.name),
        })
    }

    /// The table that `name` means, read as PostgreSQL reads a regclass.
    async fn table_named(&mut self, name: &str) -> Result<Arc<Relation>, Failure> {
        let sql = format!(
            "SELECT n.nspname, c.relname FROM pg_catalog.pg_class c \
             JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
             WHERE c.oid = {}::pg_catalog.regclass",
            quote_literal(name)
        );
        let rows = self.enlist(NodeId::HOME, Access::Read).await?.query(&sql).await?;
        let rows = rows.first().cloned().unwrap_or_default();
        let (schema, table) =
            (rows.text(0, 0).unwrap_or_default(), rows.text(0, 1).unwrap_or_default());
        self.catalog.resolve(&self.scope, Some(schema), table).cloned().ok_or_else(|| {
            Failure::unsupported(
                format!("\"{table}\" cannot be distributed"),
                "It is a system table, a temporary table, or one that was created past the gateway.",
                "Create it through the gateway.",
            )
        })
    }

    /// What is prepared somewhere and not being committed here at this moment.
    async fn in_doubt(&self) -> Result<Vec<Vec<Option<String>>>, Failure> {
        let found = recovery::list_in_doubt(&self.shared.config).await;
        let found = found.map_err(|error| error.to_fields())?;
        let left = found.into_iter().filter(|doubt| !self.shared.live.contains(&doubt.gid));
        let row = |doubt: InDoubt| {
            let nodes = doubt.nodes_text();
            let decision = doubt.decision.map(|decision| decision.to_string());
            vec![Some(doubt.gid.to_string()), Some(nodes), Some(doubt.since), decision]
        };
        Ok(left.map(row).collect())
    }

    fn information(&self, function: &str) -> Vec<Vec<Option<String>>> {
        match function {
            "tutti_nodes" => self
                .shared
                .config
                .nodes
                .iter()
                .map(|node| vec![Some(format!("n{}", node.id)), Some(node.address().to_string())])
                .collect(),
            "tutti_tables" => self.table_rows(),
            _ => vec![vec![Some(format!("Tutti {}", env!("CARGO_PKG_VERSION")))]],
        }
    }

    fn table_rows(&self) -> Vec<Vec<Option<String>>> {
        let mut rows: Vec<_> = self
            .catalog
            .relations
            .values()
            .flat_map(|relations| relations.values())
            .filter(|relation| relation.kind == RelationKind::Table)
            .map(|relation| {
                let (placement, key) = match &relation.placement {
                    Placement::Hash { key, .. } => ("hash", Some(&relation.columns[*key].name)),
                    Placement::RoundRobin => ("round robin", None),
                    Placement::Replicated => ("replicated", None),
                    Placement::Home => ("node 1 only", None),
                };
                let name = format!("{}.{}", relation.schema, relation.name);
                vec![Some(name), Some(placement.to_owned()), key.cloned()]
            })
            .collect();
        rows.sort();
        rows
    }
}
