//! Tables that get another placement: `tutti_distribute`, `tutti_replicate`, `tutti_round_robin`, `tutti_home`.
//!
//! Owns: from which placement to which a table may go, and the transaction in which its rows move.
//! Never: decides what a row's node is.
//! Start reading at [`Executor::redistribute`].

use std::collections::BTreeSet;
use std::sync::Arc;

use tutti_cluster::catalog::redistribute::{Phase, Progress};
use tutti_cluster::catalog::{self, Redistribution};
use tutti_sql::catalog::{Catalog, NodeId, Placement, Relation, Stage, quote_literal};
use tutti_sql::plan::Access;
use tutti_sql::planner;
use tutti_sql::statement::DistributeBy;
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::sqlstate;

use crate::client::failure::Failure;
use crate::executor::Executor;
use crate::transaction::state::Isolation;
use crate::transaction::{Level, Mode};

/// What was done, or was so already.
fn words(relation: &Relation, by: &DistributeBy) -> String {
    match by {
        DistributeBy::Hash(column) => format!("{} is distributed by {column}", relation.name),
        DistributeBy::HashOfSeveral(columns) => {
            format!("{} is distributed by {}", relation.name, columns.join(", "))
        }
        DistributeBy::Range { column, .. } => {
            format!("{} is distributed by ranges of {column}", relation.name)
        }
        DistributeBy::RoundRobin => format!("{} is distributed round robin", relation.name),
        DistributeBy::Replicated => format!("{} is replicated", relation.name),
        DistributeBy::ReplicatedAsync | DistributeBy::Carried | DistributeBy::Ending => {
            format!("{} is replicated asynchronously", relation.name)
        }
        DistributeBy::Home => format!("{} is on node 1", relation.name),
    }
}

/// Whose change of a placement it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Step {
    /// A client's: what is asynchronously replicated neither before nor after it.
    OfClient,
    /// One of those by which a table becomes asynchronously replicated, or such a one something else.
    OfAsync,
}

/// Whether a table may go from one placement to another now. Who asked for it has looked before; another session may
/// have changed it since.
fn may_become(from: &Placement, to: &DistributeBy, step: Step) -> bool {
    use DistributeBy::{Carried, Ending, Hash, Replicated, ReplicatedAsync};
    let is_async = matches!(to, ReplicatedAsync | Carried | Ending);
    match (step, from) {
        (Step::OfClient, Placement::Async { .. }) => false,
        (Step::OfClient, _) => !is_async,
        (Step::OfAsync, Placement::Async { stage, .. }) => match stage {
            Stage::Carried => matches!(to, ReplicatedAsync | Ending),
            Stage::Pending => matches!(to, Carried | Replicated | Ending),
            Stage::Ending => matches!(to, Hash(_)),
        },
        (Step::OfAsync, _) => *to == ReplicatedAsync,
    }
}

/// As `tutti_tables()` names it.
fn name_of(relation: &Relation) -> String {
    format!("{}.{}", relation.schema, relation.name)
}

fn is_at_home_already(relation: &Relation, wanted: &DistributeBy) -> bool {
    relation.placement == Placement::Home && *wanted == DistributeBy::Home
}

/// The catalog for code that runs while rows of these tables travel: code that reads them must not
/// run, for it cannot be said which of their rows it would find.
fn as_if_home<'a>(catalog: &Catalog, moving: impl Iterator<Item = &'a Redistribution>) -> Catalog {
    let mut catalog = catalog.clone();
    for (schema, table) in moving.flat_map(Redistribution::tables) {
        let relations = catalog.relations.get_mut(schema);
        if let Some(relation) = relations.and_then(|relations| relations.get_mut(table)) {
            let placement = Placement::Home;
            *relation = Arc::new(Relation { placement, ..Relation::clone(relation) });
        }
    }
    catalog
}

impl Executor<'_> {
    /// Moves rows of tables to the wanted placements, in a transaction over all nodes. Returns what was
    /// done, in words. What forbids a placement is checked with all of them in view.
    pub(crate) async fn redistribute(
        &mut self,
        wanted: &[(String, DistributeBy)],
        step: Step,
    ) -> Result<String, Failure> {
        self.begin_redistribution().await?;
        self.redistribute_known(wanted, step).await
    }

    /// The transaction sees the newest rows, and the session the newest catalog.
    pub(super) async fn begin_redistribution(&mut self) -> Result<(), Failure> {
        self.need_newest_rows()?;
        self.tx.transaction.changes_more = true;
        self.tx.transaction.changes_elsewhere = true;
        self.know_all_changes().await;
        // What the transaction has done on node 1 alone is not known yet.
        self.tx.enlist(NodeId::HOME, Access::Write).await?.query("SELECT 1").await?;
        self.reload_own_catalog().await
    }

    /// The same after [`Self::begin_redistribution`].
    pub(super) async fn redistribute_known(
        &mut self,
        wanted: &[(String, DistributeBy)],
        step: Step,
    ) -> Result<String, Failure> {
        let mut done = Vec::new();
        let mut known = BTreeSet::new();
        let mut tables = Vec::new();
        for (table, by) in wanted {
            let relation = self.table_named(table).await?;
            if !known.insert(relation.oid) {
                let message = format!("table \"{}\" is named twice", relation.name);
                return Err(Failure::error("42712", message));
            }
            done.push(words(&relation, by));
            tables.push((table, by, relation));
        }
        tables.retain(|(_, by, relation)| !is_at_home_already(relation, by));
        let process_id = self.tx.process_id;
        let role = self.tx.registry.backends.user_of(process_id).unwrap_or_default();
        let shown = self.tx.registry.redistributions.begin(process_id, role);
        let progress = shown.progress();
        if let Some((.., first)) = tables.first() {
            progress.begin(&name_of(first), tables.len());
        }
        // Refuses the impossible before any session has to wait.
        let mut moving = Vec::new();
        for (table, by, relation) in tables {
            let planned = self.plan_redistribution(&relation, by, step).await?;
            moving.push((table, by, planned, relation));
        }
        let on_their_way = as_if_home(&self.tx.catalog, moving.iter().map(|(.., moved, _)| moved));
        for (_, by, redistribution, relation) in &moving {
            progress.begin_table(&name_of(relation));
            if **by != DistributeBy::Home || redistribution.writes_rows() {
                planner::refuse_moving(relation, &self.tx.scope, &on_their_way)?;
            }
            if **by != DistributeBy::Home {
                self.warn_of_objections(relation).await?;
            }
            let home = self.tx.link(NodeId::HOME).await?;
            home.query(&redistribution.lock_sql()).await?;
        }
        let moving: Vec<_> = moving.into_iter().map(|(table, by, ..)| (table, by)).collect();
        if !moving.is_empty() {
            self.move_tables(&moving, step, progress).await?;
        }
        Ok(done.join("; "))
    }

    /// Until the transaction's end, GRANT and REVOKE of these tables wait: other nodes get the rights that node 1
    /// has now, and those statements lock no table.
    async fn keep_rights(&mut self, tables: impl Iterator<Item = u32>) -> Result<(), Failure> {
        let tables: Vec<_> = tables.map(|oid| oid.to_string()).collect();
        let (tables, registry) = (tables.join(","), self.tx.registry.clone());
        let home = self.tx.link(NodeId::HOME).await?;
        home.learn_moment().await?;
        let message = format!("keep rights {tables}");
        let seal = registry.cluster.seals.seal_now(home.connection(), &message);
        let sql = format!("SELECT tutti.keep_rights('{tables}', $1)");
        home.query_with(&sql, vec![seal]).await?;
        // What had changed them has ended now.
        self.reload_own_catalog().await
    }

    /// Requires: they are locked on node 1.
    async fn move_tables(
        &mut self,
        wanted: &[(&String, &DistributeBy)],
        step: Step,
        progress: &Progress,
    ) -> Result<(), Failure> {
        // The previous holder of the lock may have changed the table.
        self.reload_own_catalog().await?;
        let mut tables = Vec::new();
        for (table, by) in wanted {
            tables.push((self.table_named(table).await?, *by));
        }
        tables.retain(|(relation, by)| !is_at_home_already(relation, by));
        if tables.is_empty() {
            return Ok(());
        }
        self.keep_rights(tables.iter().map(|(table, _)| table.oid)).await?;
        progress.enter(Phase::Preparing);
        let at_home = tables
            .iter()
            .filter(|(table, by)| table.placement == Placement::Home && **by != DistributeBy::Home);
        let shared: Vec<u32> = at_home.map(|(table, _)| table.oid).collect();
        if !shared.is_empty() {
            // Before anything that other sessions spreading the first table wait for.
            self.spreads_first().await?;
        }
        self.refuse_broken_rules(&tables, step).await?;
        if !shared.is_empty() {
            self.share_tables(&shared).await?;
        }
        for node in self.tx.catalog.nodes.clone() {
            self.tx.enlist(node, Access::Write).await?.query("SELECT 1").await?;
        }
        let catalog = self.tx.catalog.clone();
        for (relation, by) in &tables {
            let redistribution = self.plan_redistribution(relation, by, step).await?;
            let registry = self.tx.registry.clone();
            let links = self.tx.links.iter_mut();
            let mut connections = links.map(|(node, link)| (*node, link.connection())).collect();
            progress.begin_table(&name_of(relation));
            redistribution.perform(&mut connections, progress, &registry.cluster.seals).await?;
            progress.end_table();
        }
        progress.enter(Phase::Checking);
        for (relation, by) in &tables {
            if **by != DistributeBy::Home || !catalog.home_by_default {
                continue;
            }
            for node in self.other_nodes() {
                let sql = format!("DROP TABLE {} CASCADE", relation.sql_name());
                let link = self.tx.link(node).await?;
                link.put_warrant(false);
                link.query(&sql).await?;
                catalog::unregister_dropped(link.connection()).await?;
            }
        }
        for node in catalog.nodes.clone() {
            catalog::note_change(self.tx.link(node).await?.connection()).await?;
        }
        self.verify_schema().await?;
        self.reload_own_catalog().await
    }

    /// Says what forbids the new placements before any row travels, which may take long.
    async fn refuse_broken_rules(
        &mut self,
        tables: &[(Arc<Relation>, &DistributeBy)],
        step: Step,
    ) -> Result<(), Failure> {
        for (relation, by) in tables {
            let redistribution = self.plan_redistribution(relation, by, step).await?;
            let registry = self.tx.registry.clone();
            let home = self.tx.link(NodeId::HOME).await?.connection();
            redistribution.register_at_home(home, &registry.cluster.seals).await?;
        }
        self.verify_schema().await
    }

    pub(super) async fn plan_redistribution(
        &mut self,
        relation: &Relation,
        wanted: &DistributeBy,
        step: Step,
    ) -> Result<Redistribution, Failure> {
        if !may_become(&relation.placement, wanted, step) {
            let message = format!("table \"{}\" was changed meanwhile", relation.name);
            return Err(Failure::error(sqlstate::SERIALIZATION_FAILURE, message));
        }
        if relation.kept.iter().any(tutti_sql::catalog::Kept::is_unique) {
            return Err(Failure::unsupported(
                format!("cannot redistribute \"{}\"", relation.name),
                "It has an index that is unique over all nodes, whose entries know its rows by their distribution key.",
                "DROP INDEX first, and make it again WITH (tutti.global_unique) when the table is distributed BY HASH.",
            ));
        }
        if !relation.kept.is_empty() || !relation.referred.is_empty() {
            return Err(Failure::unsupported(
                format!("cannot redistribute \"{}\"", relation.name),
                "It has, or is referred to by, a foreign key that holds over all nodes by entries, which are where the rows are that are referred to.",
                "ALTER TABLE … DROP CONSTRAINT first, and add it again with tutti.foreign_keys = 'global'.",
            ));
        }
        let (catalog, registry) = (self.tx.catalog.clone(), self.tx.registry.clone());
        let home = self.tx.link(NodeId::HOME).await?.connection();
        Ok(Redistribution::plan(home, &catalog, relation, wanted, &registry.cluster.seals).await?)
    }

    /// Rows that the transaction's snapshot does not see would not be moved.
    ///
    /// Errors: 0A000 where it has one snapshot for all its statements.
    fn need_newest_rows(&mut self) -> Result<(), Failure> {
        if self.tx.transaction.mode != Mode::Explicit {
            self.need_transaction();
            self.tx.transaction.characteristics.isolation = Some(Isolation::ReadCommitted);
        }
        if self.tx.level() == Level::ReadCommitted {
            return Ok(());
        }
        Err(Failure::unsupported(
            "a table cannot be redistributed at this isolation level",
            "Rows that others have committed since the transaction's snapshot would stay behind.",
            "Use a transaction at READ COMMITTED, or none.",
        ))
    }

    /// Warns of code that sees the table, by name, before it is discovered one statement at a time.
    async fn warn_of_objections(&mut self, relation: &Relation) -> Result<(), Failure> {
        let home = self.tx.link(NodeId::HOME).await?.connection();
        let found = catalog::share::objections(home, relation.oid).await?;
        if !found.is_empty() {
            let message = format!(
                "code on the nodes uses table \"{}\", and a node sees its own rows only",
                relation.name
            );
            let warning = ErrorFields::with_severity("WARNING", "01000", message)
                .with(b'D', format!("{}.", found.join("; ")))
                .with(
                    b'H',
                    "Statements that reach such code are refused where they would see or write a \
                     part of the table. Say by tutti_function what is right, or send its statements \
                     from the client.",
                );
            self.client.put_notice(&warning);
        }
        Ok(())
    }

    /// The table that `name` means, read as PostgreSQL reads a regclass.
    pub(crate) async fn table_named(&mut self, name: &str) -> Result<Arc<Relation>, Failure> {
        let sql = format!(
            "SELECT n.nspname, c.relname FROM pg_catalog.pg_class c \
             JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace \
             WHERE c.oid OPERATOR(pg_catalog.=) {}::pg_catalog.regclass::pg_catalog.oid",
            quote_literal(name)
        );
        let rows = self.tx.enlist(NodeId::HOME, Access::Read).await?.query(&sql).await?;
        let rows = rows.first().cloned().unwrap_or_default();
        let (schema, table) =
            (rows.text(0, 0).unwrap_or_default(), rows.text(0, 1).unwrap_or_default());
        self.tx.catalog.resolve(&self.tx.scope, Some(schema), table).cloned().ok_or_else(|| {
            Failure::unsupported(
                format!("\"{table}\" cannot be distributed"),
                "It is a system table, a temporary table, or one that was created past the gateway.",
                "Create it through the gateway.",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use tutti_sql::catalog::MapId;
    use tutti_sql::hash::KeyType;

    use super::*;

    #[test]
    fn a_table_goes_the_ways_that_lose_no_row() {
        use DistributeBy::{Carried, Ending, Hash, Home, Replicated, ReplicatedAsync};
        let of = |stage| Placement::Async { key: 0, key_type: KeyType::Int4, map: MapId(1), stage };
        let all =
            [Carried, Ending, Hash("id".to_owned()), Home, Replicated, ReplicatedAsync].to_vec();
        let ways = |from: Placement, step| -> Vec<DistributeBy> {
            all.iter().filter(|to| may_become(&from, to, step)).cloned().collect()
        };
        let hash = Hash("id".to_owned());
        // A client's own is neither what others are in the middle of, nor a step of these.
        assert_eq!(ways(Placement::Replicated, Step::OfClient), [hash.clone(), Home, Replicated]);
        for stage in Stage::ALL {
            assert_eq!(ways(of(stage), Step::OfClient), []);
        }
        assert_eq!(ways(Placement::Replicated, Step::OfAsync), [ReplicatedAsync]);
        assert_eq!(ways(of(Stage::Pending), Step::OfAsync), [Carried, Ending, Replicated]);
        assert_eq!(ways(of(Stage::Carried), Step::OfAsync), [Ending, ReplicatedAsync]);
        assert_eq!(ways(of(Stage::Ending), Step::OfAsync), [hash]);
    }
}
