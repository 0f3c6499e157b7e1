//! Schema changes: on node 1 alone, or on all nodes in one global transaction, as the plan's scope says.
//!
//! Owns: the order of nodes, registering placements, checking the rules of distribution, and the
//! session's own catalog until the transaction ends.
//! Never: leaves DDL half done: any failure here fails the transaction.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tutti_cluster::catalog::changes::{self, RelationChanges};
use tutti_cluster::catalog::colocation::Followed;
use tutti_cluster::catalog::oids::with_own;
use tutti_cluster::catalog::publisher::{AsOf, OwnChanges, OwnOids};
use tutti_cluster::catalog::share::{Wanted, make_definitions};
use tutti_cluster::catalog::{self, Chosen, NodeOids, PlacementKind, Registration};
use tutti_cluster::error::GatewayError;
use tutti_link::Link;
use tutti_link::connection::NodeError;
use tutti_sql::catalog::{Catalog, NodeId, quote_identifier, quote_literal};
use tutti_sql::closure::{Ended, ended};
use tutti_sql::plan::{Access, Ddl, DdlNodes, Gather};
use tutti_sql::planner;
use tutti_sql::refusal::Refusal;
use tutti_sql::statement::{self, first_word};
use tutti_wire::error_fields::ErrorFields;

use crate::client::failure::Failure;
use crate::executor::Executor;
use crate::plans::request::{Call, Done};
use crate::transaction::checkout::{
    changes_search_paths, changes_sight, changes_what_sessions_begin_with,
};

/// How long node 1 may take to say who uses temporary code.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

/// A permanent object that depends on a temporary function or type, if there is one. A type stands for its domain's
/// constraints and its casts.
const TEMPORARY_CODE_IN_USE: &str = "
SELECT pg_catalog.pg_describe_object(d.classid, d.objid, d.objsubid)
FROM pg_catalog.pg_namespace AS n
CROSS JOIN LATERAL (
    SELECT 'pg_catalog.pg_proc'::pg_catalog.regclass::pg_catalog.oid AS class, p.oid AS object
    FROM pg_catalog.pg_proc AS p WHERE p.pronamespace OPERATOR(pg_catalog.=) n.oid
    UNION ALL SELECT 'pg_catalog.pg_operator'::pg_catalog.regclass::pg_catalog.oid, o.oid
    FROM pg_catalog.pg_operator AS o WHERE o.oprnamespace OPERATOR(pg_catalog.=) n.oid
    UNION ALL SELECT 'pg_catalog.pg_type'::pg_catalog.regclass::pg_catalog.oid, y.oid
    FROM pg_catalog.pg_type AS y WHERE y.typnamespace OPERATOR(pg_catalog.=) n.oid
    ) AS c
JOIN pg_catalog.pg_depend AS d ON d.refclassid OPERATOR(pg_catalog.=) c.class
    AND d.refobjid OPERATOR(pg_catalog.=) c.object
CROSS JOIN LATERAL pg_catalog.pg_identify_object(d.classid, d.objid, d.objsubid) AS i
WHERE pg_catalog.starts_with(n.nspname::pg_catalog.text, 'pg_temp_')
    AND d.deptype OPERATOR(pg_catalog.=) 'n'
    AND pg_catalog.strpos(i.identity, 'pg_temp') OPERATOR(pg_catalog.=) 0
LIMIT 1";

impl Executor<'_> {
    /// `call`: the parameters of the query that a table is made of. Other statements have none, and
    /// run by the simple protocol, whichever the client used.
    pub(super) async fn ddl(
        &mut self,
        ddl: &Ddl,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        let unvalidated = ddl.foreign_keys.as_ref().and_then(|keys| keys.unvalidated.as_deref());
        let unvalidated = unvalidated.filter(|_| self.adds_global_references(ddl));
        if ddl.global_unique.is_some() || unvalidated.is_some() {
            self.need_all_rows()?;
        }
        let text = unvalidated.unwrap_or(text);
        if let Some(truncated) = &ddl.truncates {
            self.free_references(truncated).await?;
        }
        let done = self.change_schema(ddl, text, call).await?;
        if let Some(rows) = &ddl.rows {
            self.copy_tables_of(rows).await?;
        }
        if let Some(text) = ddl.computed.as_ref().and_then(|it| it.afterwards.as_deref()) {
            let after = Ddl { rows: None, computed: None, ..ddl.clone() };
            self.change_schema(&after, text, &Call::Simple).await?;
        }
        Ok(done)
    }

    async fn change_schema(&mut self, ddl: &Ddl, text: &str, call: &Call) -> Result<Done, Failure> {
        self.need_transaction();
        self.tx.transaction.changed_paths |= changes_search_paths(text);
        self.tx.transaction.changed_sight |= changes_sight(text);
        if self.tx.catalog.is_solo() && ddl.scope != DdlNodes::AllNodes {
            // What was made meanwhile is not known yet.
            self.reload_own_catalog().await?;
        }
        if let Some(template) = ddl.computed.as_ref().and_then(|it| it.text.as_ref()) {
            let text = self.with_values_of_home(template).await?;
            let changed = self.change_schema_by(ddl, &text, call).await;
            return changed.map_err(Failure::without_position);
        }
        self.change_schema_by(ddl, text, call).await
    }

    async fn change_schema_by(
        &mut self,
        ddl: &Ddl,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        match &ddl.scope {
            DdlNodes::AllNodes => self.ddl_on_all_nodes(ddl, text, call).await,
            DdlNodes::Home => {
                if let Some(fills) = &ddl.fills {
                    return self.fill_view(ddl, fills, text, call).await;
                }
                let answer = self.forward(NodeId::HOME, Access::Write, text, call, false).await?;
                // Before the gateway's own reading of the schema locks tables.
                self.finish_accounting(Ok(())).await?;
                self.after_ddl(ddl, &[]).await?;
                Ok(Done::Tag(answer.tag))
            }
            DdlNodes::HomeAsItIs => {
                let answer = self.forward(NodeId::HOME, Access::Write, text, call, false).await?;
                // Read when needed, at the commit at the latest.
                self.tx.transaction.own_is_stale = true;
                self.tx.transaction.changes_more |= !ddl.of_relations;
                // Dropping relations may drop more than relations.
                if ddl.may_drop {
                    self.tx.note_schema();
                }
                Ok(Done::Tag(answer.tag))
            }
            DdlNodes::Shared { .. } => self.shared_ddl(ddl, text, call).await,
        }
    }

    /// Node 1 first; whether other nodes have the objects then decides what they are sent.
    async fn shared_ddl(&mut self, ddl: &Ddl, text: &str, call: &Call) -> Result<Done, Failure> {
        let DdlNodes::Shared { relations, brings, others: text_of_others, each } = &ddl.scope
        else {
            unreachable!("called for these only");
        };
        let text_of_others = text_of_others.as_deref().unwrap_or(text);
        let answer = self.forward(NodeId::HOME, Access::Write, text, call, false).await?;
        self.tx.transaction.changed_defaults |= changes_what_sessions_begin_with(text);
        let others = self.other_nodes();
        if ddl.creates.is_some() {
            let made = self.register_created(ddl).await?;
            let others = if made { others } else { Vec::new() };
            self.after_ddl(&Ddl { creates: None, ..ddl.clone() }, &others).await?;
            return Ok(Done::Tag(answer.tag));
        }
        if *brings && !relations.is_empty() && self.need_more(relations).await? {
            self.share(Wanted::Relations(relations)).await?;
        }
        if let Some(role) = &ddl.names_role {
            // Node 1 had none: no one can be using it, and another session that takes the name
            // waits there.
            let drop = format!("DROP ROLE IF EXISTS {}", quote_identifier(role));
            self.on_each_of(&others, &drop).await?;
        }
        for node in &others {
            self.rearm_sequences_for(ddl, text, *node).await?;
            if relations.is_empty() {
                self.run_where_it_means_something(*node, text_of_others).await?;
            }
        }
        if !relations.is_empty() {
            self.run_elsewhere(&others, text_of_others, call).await?;
        }
        self.part_draws(ddl, &others).await?;
        if *brings && statement::parse(text)?.iter().any(planner::leaves_index_unnamed) {
            self.refuse_other_names(relations, &others).await?;
        }
        for node in &others {
            for text in each {
                self.run_where_it_means_something(*node, text).await?;
            }
        }
        self.after_ddl(ddl, &others).await?;
        Ok(Done::Tag(answer.tag))
    }

    /// An index that a statement leaves without a name is named by each server after the names that it has, and node 1 has
    /// more of them: what one name means must be the same everywhere.
    ///
    /// Errors: 0A000 where indexes of these tables, by OID on node 1, are called otherwise on another node.
    async fn refuse_other_names(
        &mut self,
        relations: &[u32],
        others: &[NodeId],
    ) -> Result<(), Failure> {
        for relation in relations {
            let mut known = self.tx.catalog.relations.values().flat_map(HashMap::values);
            let Some(relation) = known.find(|it| it.oid == *relation).cloned() else {
                continue;
            };
            let table = format!("{}::pg_catalog.regclass", quote_literal(&relation.sql_name()));
            let sql = format!(
                "SELECT pg_catalog.string_agg((SELECT pg_catalog.string_agg(c.relname::pg_catalog.text, ', '
                     ORDER BY c.relname) FROM pg_catalog.pg_index i
                     JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) i.indexrelid
                     WHERE i.indrelid OPERATOR(pg_catalog.=) t.oid), '; ' ORDER BY t.name)
                 FROM (SELECT {table}::pg_catalog.oid, {table}::pg_catalog.text
                     UNION SELECT p.relid::pg_catalog.oid, p.relid::pg_catalog.text
                     FROM pg_catalog.pg_partition_tree({table}) p) AS t (oid, name)"
            );
            let mut names = Vec::new();
            for node in [NodeId::HOME].iter().chain(others) {
                let rows = self.tx.link(*node).await?.query(&sql).await?;
                names.push(rows.first().and_then(|rows| rows.text(0, 0)).map(str::to_owned));
            }
            if names.iter().any(|of_node| *of_node != names[0]) {
                return Err(Failure::unsupported(
                    format!(
                        "an index of {} would not have the same name on all nodes",
                        relation.sql_name()
                    ),
                    "Servers choose names that they do not have yet, and node 1 has tables that others have not.",
                    "Give the index, or the constraint, a name.",
                ));
            }
        }
        Ok(())
    }

    /// Whether tables on several nodes may need more than before.
    async fn need_more(&mut self, relations: &[u32]) -> Result<bool, Failure> {
        let connection = self.tx.link(NodeId::HOME).await?.connection();
        Ok(catalog::share::need_more(connection, relations).await?)
    }

    /// On these nodes concurrently; node 1, where other changes of the same tables wait, has done
    /// it.
    async fn run_elsewhere(
        &mut self,
        nodes: &[NodeId],
        text: &str,
        call: &Call,
    ) -> Result<(), Failure> {
        for node in nodes {
            put_warrant_for(self.tx.enlist_begun(*node, Access::Write).await?, text)?;
        }
        match call {
            Call::Simple => self.tx.on_each_link(nodes, text).await,
            call => {
                for node in nodes {
                    self.internal_rows(*node, Access::Write, text, call).await?;
                }
                Ok(())
            }
        }
    }

    /// Statements of the gateway's own, or that it repeats, on these nodes concurrently.
    async fn on_each_of(&mut self, nodes: &[NodeId], text: &str) -> Result<(), Failure> {
        for node in nodes {
            self.tx.enlist(*node, Access::Write).await?;
        }
        self.tx.on_each_link(nodes, text).await
    }

    /// Runs `text` on a node that may lack what it names: in that case nothing happens there.
    async fn run_where_it_means_something(
        &mut self,
        node: NodeId,
        text: &str,
    ) -> Result<(), Failure> {
        let link = self.tx.enlist_begun(node, Access::Write).await?;
        // A function whose text names what this node lacks is created nevertheless: calls of it must
        // find it here as on node 1, and not another of its name.
        put_warrant_for(link, text)?;
        link.query("SET LOCAL check_function_bodies = off; SAVEPOINT tutti_elsewhere").await?;
        match link.query(text).await {
            Ok(_) => link.query("RELEASE SAVEPOINT tutti_elsewhere").await?,
            Err(NodeError::Refused(fields)) if is_unknown_name(fields.sqlstate()) => {
                tracing::debug!(%node, error = fields.message(), "stays on node 1");
                link.query(
                    "ROLLBACK TO SAVEPOINT tutti_elsewhere; RELEASE SAVEPOINT tutti_elsewhere",
                )
                .await?
            }
            Err(error) => return Err(error.into()),
        };
        Ok(())
    }

    /// Creates on the other nodes whatever they lack of what is wanted. In the client's
    /// transaction.
    pub(super) async fn share(&mut self, wanted: Wanted<'_>) -> Result<(), Failure> {
        self.tx.transaction.brings_more |= !matches!(wanted, Wanted::Relations(_));
        let registry = self.tx.registry.clone();
        let home = self.tx.enlist(NodeId::HOME, Access::Write).await?;
        home.query("SELECT 1").await?;
        let definitions =
            catalog::share::read_definitions(home.connection(), wanted, &registry.cluster.seals)
                .await?;
        let roles = match self.tx.transaction.sets_anything() {
            true => {
                let home = self.tx.link(NodeId::HOME).await?.connection();
                Some(
                    catalog::share::read_definitions(home, Wanted::ROLES, &registry.cluster.seals)
                        .await?,
                )
            }
            false => None,
        };
        // One after another: two sessions that bring the same must not wait for each other in a
        // cycle.
        for node in self.other_nodes() {
            let seals = &registry.cluster.seals;
            // It may have set a role that it created itself, so roles come before settings.
            let roles = roles.as_ref().filter(|_| !self.tx.transaction.nodes.contains_key(&node));
            self.tx.transaction.steps_come_later = roles.is_some();
            let enlisted = self.tx.enlist(node, Access::Write).await.map(|_| ());
            self.tx.transaction.steps_come_later = false;
            enlisted?;
            let steps = self.tx.transaction.steps_sql();
            let link = self.tx.link(node).await?;
            link.learn_moment().await?;
            let other = link.connection();
            if let Some(roles) = roles {
                make_definitions(other, roles, Wanted::ROLES, seals).await?;
                link.query(&steps).await?;
            }
            let made = make_definitions(link.connection(), &definitions, wanted, seals).await;
            self.tx.transaction.brings_more |=
                made.map_err(|error| without_context(error.into()))?;
        }
        Ok(())
    }

    /// The same for tables that are about to be spread, perhaps the first ever.
    pub(super) async fn share_tables(&mut self, relations: &[u32]) -> Result<(), Failure> {
        if !self.tx.catalog.home_by_default {
            return Ok(());
        }
        if self.spreads_first().await? {
            self.share(Wanted::Definitions).await?;
        }
        self.share(Wanted::Relations(relations)).await
    }

    /// Whether nothing is spread yet. Then the others get the roles, without which no one could log in
    /// there, and the committed definitions are remembered, for they must be unchanged at the commit.
    pub(super) async fn spreads_first(&mut self) -> Result<bool, Failure> {
        if !self.tx.catalog.home_by_default || self.tx.catalog.is_spread {
            return Ok(false);
        }
        if self.tx.transaction.shared_definitions.is_some() {
            return Ok(true);
        }
        let registry = self.tx.registry.clone();
        let home = self.tx.enlist(NodeId::HOME, Access::Write).await?;
        home.query("SELECT 1").await?;
        if !catalog::share::spread_first(home.connection(), &registry.cluster.seals).await? {
            return Ok(false);
        }
        self.tx.transaction.shared_definitions =
            Some(registry.cluster.committed_definitions().await?);
        for node in self.other_nodes() {
            registry.cluster.bring_roles(node).await?;
        }
        Ok(true)
    }

    pub(super) fn other_nodes(&self) -> Vec<NodeId> {
        self.tx.catalog.nodes.iter().copied().filter(|node| *node != NodeId::HOME).collect()
    }

    /// A copy of a sequence stands at the end of its old bounds, which new bounds may exclude.
    async fn rearm_sequences_for(
        &mut self,
        ddl: &Ddl,
        text: &str,
        node: NodeId,
    ) -> Result<(), Failure> {
        let alters = first_word(text).eq_ignore_ascii_case("alter");
        if ddl.touches_sequences && alters {
            let link = self.tx.enlist_begun(node, Access::Write).await?;
            link.put_warrant(true);
            link.query("SELECT 1").await?;
            catalog::rearm_sequences(link.connection()).await?;
            link.query(END_WARRANT).await?;
        }
        Ok(())
    }

    async fn ddl_on_all_nodes(
        &mut self,
        ddl: &Ddl,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        // A refusal can still replace the answer, so it is held back.
        let answer = self.forward(NodeId::HOME, Access::Write, text, call, false).await?;
        let others = self.other_nodes();
        self.tx.transaction.changed_defaults |= changes_what_sessions_begin_with(text);
        for node in &others {
            self.rearm_sequences_for(ddl, text, *node).await?;
        }
        self.run_elsewhere(&others, text, call).await?;
        self.part_draws(ddl, &others).await?;
        self.after_ddl(ddl, &others).await?;
        Ok(Done::Tag(answer.tag))
    }

    /// Temporary objects: node 1 has them, and from now on must be the anchor of this transaction,
    /// for they can be neither prepared nor told apart by name.
    pub(super) async fn temporary_ddl(
        &mut self,
        gather: Option<&Gather>,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        let done = match gather {
            Some(gather) => self.gather(gather, call).await?,
            None => self.run_on_one(NodeId::HOME, Access::Write, text, call).await?,
        };
        self.tx.must_anchor(NodeId::HOME)?;
        self.tx.transaction.scope_changed |= self.tx.transaction.is_open();
        self.tx.renew_scope().await?;
        Ok(done)
    }

    /// Temporary code is one session's, and no change of the schema that others wait for. What permanent objects
    /// use of it others run too.
    ///
    /// Errors: 0A000 if there is such an object.
    pub(super) async fn refuse_temporary_code_in_use(&self) -> Result<(), Failure> {
        let cluster = &self.tx.registry.cluster;
        let rows = cluster.ask_within(ANSWER_PATIENCE, NodeId::HOME, TEMPORARY_CODE_IN_USE).await?;
        match rows.text(0, 0) {
            None => Ok(()),
            Some(user) => Err(Refusal::unsupported(
                "temporary code cannot be changed while permanent objects use some",
                format!("Other sessions may be running it: it is used by {user}."),
                "Let permanent objects use functions and types of permanent schemas.",
            )
            .into()),
        }
    }

    /// Registers what was created, forgets what was dropped, checks the rules, and gives this
    /// session the resulting catalog.
    pub(super) async fn after_ddl(&mut self, ddl: &Ddl, others: &[NodeId]) -> Result<(), Failure> {
        self.tx.transaction.changes_more |= !ddl.of_relations;
        self.tx.transaction.changes_elsewhere = true;
        self.register_created(ddl).await?;
        if let Some(index) = &ddl.global_unique {
            self.make_global_unique(index, others).await?;
        }
        if self.adds_global_references(ddl) {
            self.make_global_references().await?;
        }
        if ddl.truncates.is_some() {
            self.bind_references().await?;
        }
        let forget = match (ddl.may_drop, ddl.of_relations) {
            (false, _) => "",
            (true, true) => "SELECT tutti.forget_changed();",
            (true, false) => "SELECT tutti.forget_dropped();",
        };
        let forget_entries = match self.tx.catalog.has_kept {
            true => "SELECT tutti.forget_entries();",
            false => "",
        };
        let note = format!("{forget} {forget_entries} SELECT tutti.note_change(); {END_WARRANT}");
        if ddl.of_relations {
            self.on_each_of(&[&[NodeId::HOME], others].concat(), &note).await?;
        } else {
            // It may forget what others forget too: the second one waits on node 1.
            self.on_each_of(&[NodeId::HOME], &note).await?;
            self.on_each_of(others, &note).await?;
        }
        for node in others.iter().filter(|_| ddl.touches_sequences) {
            let link = self.tx.link(*node).await?;
            link.put_warrant(true);
            link.query("SELECT 1").await?;
            catalog::disarm_sequences(link.connection()).await?;
            link.query(END_WARRANT).await?;
        }
        self.verify_schema().await?;
        self.reload_own_catalog().await?;
        match self.tx.transaction.may_change_scope() {
            true => self.tx.refresh_scope().await,
            false => Ok(()),
        }
    }

    /// Whether foreign keys that a statement adds may have to hold over all nodes by entries. One node checks all by itself.
    fn adds_global_references(&self, ddl: &Ddl) -> bool {
        ddl.foreign_keys.is_some()
            && self.tx.settings.global_foreign_keys
            && 1 < self.tx.catalog.nodes.len()
    }

    /// Registers a new table on all nodes that have it; where it was made on node 1 only, it is
    /// first brought to the others if it belongs there. Returns whether other nodes have it.
    async fn register_created(&mut self, ddl: &Ddl) -> Result<bool, Failure> {
        let Some(created) = &ddl.creates else { return Ok(false) };
        let default = self.tx.registry.cluster.config.default_distribution;
        let catalog = self.tx.catalog.clone();
        let home = self.tx.link(NodeId::HOME).await?.connection();
        let Some(Chosen { registration, followed }) =
            catalog::choose_placement(home, default, created, &catalog).await?
        else {
            return Ok(false);
        };
        let registry = self.tx.registry.clone();
        let is_at_home_first = ddl.scope != DdlNodes::AllNodes;
        if is_at_home_first {
            if registration.placement == PlacementKind::Home {
                return Ok(false);
            }
            // Before anything that other sessions spreading the first table wait for.
            self.spreads_first().await?;
            let home = self.tx.link(NodeId::HOME).await?.connection();
            catalog::register(home, &registration, &registry.cluster.seals).await?;
            if !self.adds_global_references(ddl) {
                self.verify_schema().await?;
            }
            let relation = self.oid_of(&registration).await?;
            self.share_tables(&[relation]).await?;
        }
        if !is_at_home_first {
            // Sessions that need the same bucket map wait here, and not in a cycle over the others.
            let home = self.tx.link(NodeId::HOME).await?.connection();
            catalog::register(home, &registration, &registry.cluster.seals).await?;
        }
        for node in self.other_nodes() {
            let connection = self.tx.enlist(node, Access::Write).await?.connection();
            catalog::register(connection, &registration, &registry.cluster.seals).await?;
        }
        if let Some(followed) = followed {
            self.client.put_notice(&goes_with(&registration, &followed));
        }
        Ok(true)
    }

    async fn oid_of(&mut self, table: &Registration) -> Result<u32, Failure> {
        let name =
            format!("{}.{}", quote_identifier(&table.schema), quote_identifier(&table.table));
        let sql = format!("SELECT {}::pg_catalog.regclass::pg_catalog.oid", quote_literal(&name));
        let rows = self.tx.link(NodeId::HOME).await?.query(&sql).await?;
        let oid = rows.first().and_then(|rows| rows.text(0, 0)?.parse().ok());
        oid.ok_or_else(|| Failure::error("42P01", format!("relation {name} does not exist")))
    }

    /// The rules of distribution, checked on node 1 inside the transaction.
    pub(super) async fn verify_schema(&mut self) -> Result<(), Failure> {
        Ok(catalog::verify(self.tx.link(NodeId::HOME).await?.connection()).await?)
    }

    /// Reads the catalog as this transaction sees it: what is published, and what it has changed.
    pub(crate) async fn reload_own_catalog(&mut self) -> Result<(), Failure> {
        let before = self.tx.catalog.clone();
        let mut last = before.clone();
        loop {
            self.read_own_catalog().await?;
            if !self.end_declarations(&last).await? {
                break;
            }
            self.tx.transaction.changes_more = true;
            last = self.tx.catalog.clone();
        }
        planner::check_policies(&self.tx.catalog)?;
        planner::check_event_triggers(&before, &self.tx.catalog, &self.tx.scope)?;
        planner::check_unchanged(&before, &self.tx.catalog)?;
        Ok(())
    }

    async fn read_own_catalog(&mut self) -> Result<(), Failure> {
        if self.tx.registry.cluster.catalog().is_solo() {
            // What was made meanwhile has not been read.
            self.know_all_changes().await;
        }
        let as_of = self.tx.registry.cluster.publisher.as_of();
        let published = self.tx.registry.cluster.catalog();
        let renames = self.tx.transaction.renames;
        let is_more = self.tx.transaction.changes_more || renames;
        // These are queries even where the statement is none, such as LOCK TABLE before the transaction has
        // a snapshot.
        self.tx.takes_snapshot = true;
        let link = self.tx.enlist(NodeId::HOME, Access::Read).await?;
        link.connection().flush().await?;
        link.catch_up().await?.map_or(Ok(()), Err)?;
        if is_more {
            let own = catalog::reload_own(link.connection(), &published, renames).await?;
            self.tx.transaction.own_changes = Some(OwnChanges::of_more(&own, renames, as_of));
            self.tx.catalog = Arc::new(own.catalog.of_open_change(&published));
            self.learn_own_oids().await?;
        } else {
            let read = changes::read(link.connection(), &published).await?;
            self.learn_changes(read, &published, as_of).await?;
        }
        self.tx.transaction.catalog_changed = true;
        self.tx.scope_state.own_schemas += 1;
        self.tx.transaction.own_is_stale = false;
        self.tx.transaction.own_catalog_of = Some(published);
        Ok(())
    }

    /// Ends declarations of functions (`tutti_function`) that no longer hold. Returns whether there were
    /// any.
    async fn end_declarations(&mut self, before: &Catalog) -> Result<bool, Failure> {
        let ended = ended(before, &self.tx.catalog);
        let registry = self.tx.registry.clone();
        for Ended { function, name, because } in &ended {
            let connection = self.tx.link(NodeId::HOME).await?.connection();
            let message = format!("end declaration {function}");
            let seal = registry.cluster.seals.seal(connection, &message).await?;
            let sql = format!("SELECT tutti.end_declaration({function}, $1)");
            connection.query_with(&sql, vec![Some(seal.into())]).await?;
            let message = format!("what was declared of function {name} does not hold any more");
            let warning = ErrorFields::with_severity("WARNING", "01000", message)
                .with(b'D', format!("Its text names {because}, which is not what it was."))
                .with(b'H', "If it still holds, declare it again: SELECT tutti_function(…).");
            self.client.put_notice(&warning);
        }
        Ok(!ended.is_empty())
    }

    /// The session sees relations as the transaction has changed them.
    async fn learn_changes(
        &mut self,
        mut read: RelationChanges,
        published: &Catalog,
        as_of: AsOf,
    ) -> Result<(), Failure> {
        if read.has_temporary {
            // No other session may have the connection, and their names hide others.
            self.tx.note_temporary();
            self.tx.transaction.must_anchor.get_or_insert(NodeId::HOME);
        }
        let home = std::mem::take(&mut read.oids);
        let mut own = OwnChanges::of_relations(published, read, as_of);
        self.tx.catalog = Arc::new(own.apply(published).of_open_change(published));
        if self.tx.transaction.brings_more {
            self.learn_own_oids().await?;
        } else {
            let others = self.changed_oids_of_others().await?;
            let oids = OwnOids { home, others };
            let seen = match oids.others.is_empty() {
                true => None,
                false => Some(Arc::new(with_own(
                    &self.tx.registry.cluster.oids(),
                    &oids.home,
                    &oids.others,
                ))),
            };
            self.tx.use_own_oids(seen);
            own.know_oids(oids);
        }
        self.tx.transaction.own_changes = Some(own);
        Ok(())
    }

    async fn changed_oids_of_others(&mut self) -> Result<Vec<(NodeId, NodeOids)>, Failure> {
        let mut others = Vec::new();
        for node in self.tx.transaction.writers().collect::<Vec<_>>() {
            if node != NodeId::HOME {
                let link = self.tx.link(node).await?;
                link.connection().flush().await?;
                link.catch_up().await?.map_or(Ok(()), Err)?;
                others.push((node, changes::read_oids(link.connection()).await?));
            }
        }
        Ok(others)
    }

    /// Reads the OIDs that the nodes have given to what this transaction created.
    async fn learn_own_oids(&mut self) -> Result<(), Failure> {
        let mut home = NodeOids::default();
        let mut others = Vec::new();
        for node in self.tx.transaction.writers().collect::<Vec<_>>() {
            let link = self.tx.link(node).await?;
            link.connection().flush().await?;
            link.catch_up().await?.map_or(Ok(()), Err)?;
            let oids = NodeOids::load_own(link.connection()).await?;
            match node {
                NodeId::HOME => home = oids,
                node => others.push((node, oids)),
            }
        }
        let own = with_own(&self.tx.registry.cluster.oids(), &home, &others);
        self.tx.use_own_oids(Some(Arc::new(own)));
        Ok(())
    }

    /// The newest catalog, with what other sessions' plans need not know.
    pub(super) async fn know_all_changes(&mut self) {
        let publisher = self.tx.registry.cluster.publisher.clone();
        let change = publisher.want_all();
        // Locks, and the catalog as the transaction sees it after them, decide.
        publisher.wait_for(change, Instant::now() + CATALOG_PATIENCE).await;
        self.tx.refresh_catalog();
    }
}

/// How long a transaction waits for changes that have been committed before.
const CATALOG_PATIENCE: Duration = Duration::from_secs(10);

/// Revokes what [`Link::put_warrant`](tutti_link::Link::put_warrant) has granted, where nothing has used it.
const END_WARRANT: &str = "SELECT tutti.end_warrants()";

/// Lets a statement change the schema of a node other than node 1. One that fires no event trigger would leave its
/// warrant to code that it runs: the triggers of TRUNCATE.
pub(super) fn put_warrant_for(link: &mut Link, text: &str) -> Result<(), Failure> {
    for statement in statement::parse(text)? {
        if planner::fires_event_triggers(&statement) {
            // The servers' administrators have put the scripts of extensions there.
            link.put_warrant(planner::runs_script(&statement));
        }
    }
    Ok(())
}

impl From<GatewayError> for Failure {
    fn from(error: GatewayError) -> Self {
        error.to_fields().into()
    }
}

/// Whether an error says that a name is unknown there.
pub(super) fn is_unknown_name(sqlstate: &str) -> bool {
    const UNKNOWN: [&str; 5] = ["42P01", "42704", "42883", "3F000", "42703"];
    UNKNOWN.contains(&sqlstate)
}

/// That a new table has a placement that its statement does not name.
fn goes_with(table: &Registration, followed: &Followed) -> ErrorFields {
    let Followed { column, foreign_key, to_name, .. } = followed;
    let message = format!(
        "table \"{}\" is distributed by \"{column}\", to be with \"{to_name}\"",
        table.table
    );
    ErrorFields::with_severity("NOTICE", "00000", message)
        .with(b'D', format!("Elsewhere its foreign key \"{foreign_key}\" could not be enforced."))
}

/// Where in the gateway's own function it happened does not concern the client.
fn without_context(error: GatewayError) -> Failure {
    let mut fields = error.to_fields();
    fields.fields.retain(|(code, _)| !b"Wpq".contains(code));
    fields.into()
}
