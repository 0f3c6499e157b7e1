//! What the session's names mean now, and which node to ask.
//!
//! Owns: refreshing the name scope when something may have changed it.
//! Never: plans.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tutti_link::Rows;
use tutti_sql::catalog::{Catalog, NameScope, NodeId};
use tutti_sql::plan::Access;
use tutti_wire::error_fields::ErrorFields;

use crate::client::failure::Failure;
use crate::transaction::settings::{CommitMode, IdleTimeouts};
use crate::transaction::state::Isolation;
use crate::transaction::{Characteristics, Level, Mode, TransactionContext};

/// Makes a server look, within a transaction too, which names and functions others have changed: it does so when it
/// gets a lock that it does not have, and otherwise keeps its search path, and calls what it has read before. This is
/// the lock of the TOAST table of pg_seclabel, which no statement has.
pub(crate) const REFRESH_CACHES: &str =
    "SELECT pg_catalog.pg_relation_size('3598'::pg_catalog.regclass, 'main'::pg_catalog.text)";

impl TransactionContext {
    /// From here on what is open on this node began with what is published now.
    pub(crate) fn note_refreshed(&mut self, node: NodeId) {
        let published = self.published_of_plans().clone();
        self.set_refreshed(node, Some(published));
    }

    /// It is not known whether this node was told to refresh its caches.
    pub(crate) fn doubt_refreshed(&mut self, node: NodeId) {
        self.set_refreshed(node, None);
    }

    fn set_refreshed(&mut self, node: NodeId, published: Option<Arc<Catalog>>) {
        match self.refreshed.iter_mut().find(|(known, _)| *known == node) {
            Some((_, catalog)) => *catalog = published,
            None => self.refreshed.push((node, published)),
        }
    }

    /// Whether a statement that is planned by what is published now might call, on this node, what was there before:
    /// a transaction is open that began then, or refreshed its caches then.
    pub(crate) fn must_refresh(&self, node: NodeId) -> bool {
        let is_older = |(known, catalog): &(NodeId, Option<Arc<Catalog>>)| {
            let is_that = |catalog| Arc::ptr_eq(catalog, self.published_of_plans());
            *known == node && !catalog.as_ref().is_some_and(is_that)
        };
        self.refreshed.iter().any(is_older)
            && !self.catalog.is_solo()
            && !self.transaction.failed
            // It takes a snapshot, which may be still to be imported.
            && (!self.transaction.is_open()
                || self.transaction.used.contains(&node) || self.level() == Level::ReadCommitted)
    }

    /// What others have published, by which statements are planned; of what the transaction has changed itself its
    /// backends know.
    fn published_of_plans(&self) -> &Arc<Catalog> {
        let of_own = self.transaction.own_catalog_of.as_ref();
        of_own.filter(|_| self.transaction.catalog_changed).unwrap_or(&self.catalog)
    }

    /// Nothing is open any more.
    pub(crate) fn forget_refreshed(&mut self) {
        self.refreshed.clear();
    }

    /// Which node this session prefers where any will do: one it has used in this transaction, else
    /// one that spreads sessions over nodes, of those that may be read.
    pub(crate) fn any_node(&self) -> NodeId {
        if let Some((node, _)) = self.transaction.nodes.first_key_value() {
            return *node;
        }
        let nodes = &self.catalog.nodes;
        let index = usize::try_from(self.number).unwrap_or(0) % nodes.len();
        let is_open = |node: &NodeId| self.registry.cluster.availability.is_open(*node);
        let mut in_turn = nodes[index..].iter().chain(&nodes[..index]).copied();
        in_turn.find(is_open).unwrap_or(nodes[index])
    }

    /// The node that says what every node could: node 1; while that is away, and this transaction has not used it,
    /// another.
    pub(crate) fn speaker(&self) -> NodeId {
        let has_home = self.transaction.nodes.contains_key(&NodeId::HOME)
            || self.links.contains_key(&NodeId::HOME);
        match has_home || self.registry.cluster.availability.is_there(NodeId::HOME) {
            true => NodeId::HOME,
            false => self.any_node(),
        }
    }

    /// Asks node 1 which schemas names are looked up in, which temporary relations exist, and what
    /// modes transactions have by default. While it is away another node is asked, and asked again before each
    /// statement, for a node may lack what node 1 alone has.
    ///
    /// Errors: the node's; node 1 is away, and has a schema of the search path that the other lacks, so that names might
    /// mean others there.
    pub(crate) async fn refresh_scope(&mut self) -> Result<(), Failure> {
        // Operators are named in full: an operator of another role's would run with the rights of
        // the role that logs in.
        let sql = "SELECT s FROM pg_catalog.unnest(pg_catalog.current_schemas(true)) WITH ORDINALITY AS u(s, n) \
                   WHERE s OPERATOR(pg_catalog.!~) '^pg_temp_'::pg_catalog.text ORDER BY n; \
                   SELECT relname FROM pg_catalog.pg_class \
                       WHERE relnamespace OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema() \
                       AND pg_catalog.pg_table_is_visible(oid); \
                   SELECT pg_catalog.current_setting('default_transaction_isolation'), \
                          pg_catalog.current_setting('default_transaction_read_only'), \
                          pg_catalog.date_part('epoch', pg_catalog.current_setting('idle_in_transaction_session_timeout')::pg_catalog.interval), \
                          pg_catalog.date_part('epoch', pg_catalog.current_setting('idle_session_timeout')::pg_catalog.interval), \
                          pg_catalog.current_setting('tutti.commit', true), \
                          pg_catalog.current_setting('tutti.foreign_keys', true); \
                   SELECT * FROM tutti.temporary_code(); \
                   SELECT * FROM tutti.temporary_types()";
        const OF_ANOTHER: &str = "; SELECT pg_catalog.current_setting('search_path'), session_user, current_user; \
                   SELECT n.nspname FROM pg_catalog.pg_namespace AS n";
        let speaker = self.speaker();
        let sql = match speaker {
            NodeId::HOME => sql.to_owned(),
            _ => format!("{sql}{OF_ANOTHER}"),
        };
        // A transaction that has not reached any node need not be begun for this: SET TRANSACTION and LOCK
        // may still be its first statement.
        let is_in_block = !self.transaction.nodes.is_empty();
        let link = match is_in_block {
            false => self.link(speaker).await?,
            true => {
                self.takes_snapshot = true;
                self.enlist(speaker, Access::Read).await?
            }
        };
        let mut rows = link.ask_unhurried(&format!("{REFRESH_CACHES}; {sql}"), is_in_block).await?;
        if !rows.is_empty() {
            rows.remove(0);
        }
        if speaker != NodeId::HOME {
            self.check_path_of_another(rows.get(5), rows.get(6))?;
        }
        if let Some(defaults) = rows.get(2) {
            self.settings.characteristics = Characteristics {
                isolation: defaults.text(0, 0).and_then(Isolation::named),
                read_only: defaults.text(0, 1).map(|value| value == "on"),
                deferrable: None,
            };
            self.settings.commit =
                defaults.text(0, 4).map_or_else(CommitMode::default, CommitMode::named);
            self.settings.global_foreign_keys =
                defaults.text(0, 5).is_some_and(|value| value.eq_ignore_ascii_case("global"));
            let timeout = |column| {
                let s = defaults.text(0, column)?.parse().ok().filter(|s| 0.0 < *s)?;
                Duration::try_from_secs_f64(s).ok()
            };
            self.settings.idle = IdleTimeouts { in_transaction: timeout(2), outside: timeout(3) };
        }
        let names = |index: usize| -> Vec<String> {
            rows.get(index).map_or_else(Vec::new, |result| {
                (0..result.rows.len())
                    .filter_map(|row| result.text(row, 0).map(str::to_owned))
                    .collect()
            })
        };
        let typed = |column: String| {
            let (oid, relation) = column.split_once(' ')?;
            Some((relation.to_owned(), oid.parse().ok()?))
        };
        let scope = NameScope {
            search_path: names(0),
            temporary: names(1),
            temporary_code: names(3),
            temporary_types: names(4).into_iter().filter_map(typed).collect(),
        };
        self.scope_state.is_stale = speaker != NodeId::HOME;
        self.scope_state.settings_are_stale = false;
        self.scope_state.is_due = false;
        if scope != self.scope {
            // Undoing part of the transaction, or ending it, may undo this.
            self.transaction.scope_changed |= self.transaction.is_open();
            self.scope_state.sight_changes += u64::from(self.hides_otherwise(&scope));
            let mut path = DefaultHasher::new();
            scope.search_path.hash(&mut path);
            self.scope_state.path = path.finish();
            self.scope = scope;
            self.scope_state.changes += 1;
            // What is sent to nodes where the transaction has been is to mean the same there.
            let nodes: Vec<_> = self.transaction.nodes.keys().copied().collect();
            for node in nodes.into_iter().filter(|node| *node != speaker) {
                self.enlist(node, Access::Read).await?.query(REFRESH_CACHES).await?;
            }
        }
        Ok(())
    }

    /// Refuses a search path with a schema of node 1's, which is away, that the node which was asked instead lacks.
    /// `path`: the setting, and the role; `there`: the node's schemas.
    fn check_path_of_another(
        &self,
        path: Option<&Rows>,
        there: Option<&Rows>,
    ) -> Result<(), Failure> {
        let said = |column| path.and_then(|path| path.text(0, column)).unwrap_or_default();
        let (path, roles) = (said(0).to_lowercase(), [said(1), said(2)]);
        let is_there = |schema: &str| {
            there.is_some_and(|there| {
                (0..there.rows.len()).any(|row| there.text(row, 0) == Some(schema))
            })
        };
        let may_mean = |schema: &str| {
            let written = schema.to_lowercase().replace('"', "\"\"");
            path.contains(&written) || (path.contains("$user") && roles.contains(&schema))
        };
        let mut schemas = self.catalog.relations.keys();
        match schemas.find(|schema| !is_there(schema) && may_mean(schema)) {
            None => Ok(()),
            Some(schema) => {
                let message = format!("node {} is away", NodeId::HOME);
                let detail =
                    format!("Names may mean what is in schema \"{schema}\", which it alone has.");
                Err(ErrorFields::error("57P03", message)
                    .with(b'D', detail)
                    .with(b'H', "Retrying is safe: nothing was sent to any node.")
                    .into())
            }
        }
    }

    /// Whether names that code says may mean others by this scope: a temporary table of a name of its own hides none.
    fn hides_otherwise(&self, scope: &NameScope) -> bool {
        let is_taken = |name: &&String| {
            let relations = self.catalog.relations.values();
            relations.into_iter().any(|of| of.contains_key(name.as_str()))
        };
        let is_other = |of: &Vec<String>, than: &Vec<String>| {
            of.iter().filter(|name| !than.contains(name)).any(|name| is_taken(&name))
        };
        scope.search_path != self.scope.search_path
            || is_other(&scope.temporary, &self.scope.temporary)
            || is_other(&self.scope.temporary, &scope.temporary)
            || is_other(&scope.temporary_code, &self.scope.temporary_code)
            || is_other(&self.scope.temporary_code, &scope.temporary_code)
    }

    /// The last statement may have changed how names are looked up, and how long the session may be
    /// idle. Outside of transactions it is already committed, and a failed refresh is not its error: the
    /// next statement tries again.
    pub(crate) async fn renew_scope(&mut self) -> Result<(), Failure> {
        if self.transaction.is_open() {
            return self.refresh_scope().await;
        }
        self.refresh_scope_if_possible().await;
        Ok(())
    }

    /// The same, but not before something uses names where the transaction has no snapshot yet: its modes may
    /// still be set.
    pub(crate) async fn renew_scope_in_time(&mut self) -> Result<(), Failure> {
        if !self.transaction.is_open() || self.transaction.queried {
            return self.renew_scope().await;
        }
        self.scope_state.is_stale = true;
        self.scope_state.settings_are_stale = true;
        self.scope_state.is_due = true;
        Ok(())
    }

    /// Asks immediately how names are resolved now, if node 1 answers; else before the next
    /// statement.
    pub(crate) async fn refresh_scope_if_possible(&mut self) {
        self.scope_state.is_stale = true;
        self.scope_state.settings_are_stale = true;
        if !self.registry.cluster.availability.is_open(NodeId::HOME) {
            return;
        }
        if let Err(failure) = self.refresh_scope().await {
            tracing::info!(?failure, "node 1 cannot say yet how a session sees names");
        }
    }

    /// Whether how names are looked up must be asked before the next statement.
    pub(crate) fn must_refresh_scope(&self) -> bool {
        self.scope_state.settings_are_stale
            || (self.scope_state.is_stale && !self.catalog.is_solo())
    }

    /// Takes the newest catalog, unless the transaction has one of its own.
    pub(crate) fn refresh_catalog(&mut self) {
        if !self.transaction.catalog_changed {
            let was_solo = self.catalog.is_solo();
            self.registry.cluster.publisher.refresh(&mut self.catalog);
            let path_changes = self.registry.path_changes.load(Ordering::SeqCst);
            // A schema of the path may have been created, or become usable.
            self.scope_state.is_stale |= self.scope_state.seen_path_changes != path_changes
                || was_solo != self.catalog.is_solo();
            self.scope_state.seen_path_changes = path_changes;
        }
    }

    /// A statement failed inside a transaction.
    pub(crate) fn fail_transaction(&mut self) {
        self.end_if_misread();
        if self.transaction.mode == Mode::Explicit {
            self.transaction.failed = true;
        }
        let broken: Vec<_> =
            self.links.iter().filter(|(_, link)| link.is_broken()).map(|(node, _)| *node).collect();
        for node in broken {
            self.links.remove(&node);
            self.end_if_bound(node);
            self.transaction.doomed |= self.transaction.nodes.contains_key(&node);
        }
    }
}
