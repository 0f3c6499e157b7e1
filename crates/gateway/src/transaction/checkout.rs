//! The session's connections to nodes: checked out for a transaction, released after it.
//!
//! Owns: when the session is admitted, when a link is released, and what binds one to the session
//! beyond its transaction.
//! Never: chooses among the pool's connections (`pool` does).
//! Start reading at [`TransactionContext::link`]; what is released is in `session::return_links`.
//!
//! What binds is asked of the server, not guessed: after a statement that may have left something
//! ([`tutti_sql::plan::Residue`]), the node says whether the connection holds session locks, temporary
//! objects, channels or cursors. As long as it does, it stays with the session, and the session stays
//! admitted. Connections to other nodes are released as usual.

use std::collections::BTreeSet;
use std::sync::Arc;

use tutti_link::Link;
use tutti_link::availability::OPEN_PATIENCE;
use tutti_link::connection::NodeError;
use tutti_link::pool::{CheckoutRequest, Permit};
use tutti_link::spool::{Means, Spool};
use tutti_link::translation::{Numbering, OidMaps};
use tutti_sql::catalog::{NodeId, quote_literal};
use tutti_sql::plan::{Plan, Planned, Residue, SchemaPlan};
use tutti_sql::statement::words;
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::sqlstate;

use super::settings::is_scope_setting;
use crate::client::failure::Failure;
use crate::transaction::TransactionContext;

/// Asks a server, outside of transactions, what it keeps for its session: one row, with words or
/// empty, and whether it has a schema of temporary objects. Operators are named in full, for the search path is
/// the client's.
const BINDINGS: &str = "SELECT pg_catalog.concat_ws(', ', \
    CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_locks WHERE locktype OPERATOR(pg_catalog.=) 'advisory' \
        AND pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()) THEN 'advisory locks' END, \
    CASE WHEN pg_catalog.pg_my_temp_schema() OPERATOR(pg_catalog.<>) 0::pg_catalog.oid AND ( \
        EXISTS (SELECT FROM pg_catalog.pg_type \
            WHERE typnamespace OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema()) \
        OR EXISTS (SELECT FROM pg_catalog.pg_proc \
            WHERE pronamespace OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema()) \
        OR EXISTS (SELECT FROM pg_catalog.pg_class \
            WHERE relnamespace OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema())) \
        THEN 'temporary objects' END, \
    CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_listening_channels()) THEN 'channels' END, \
    CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_cursors WHERE is_holdable) \
        THEN 'cursors' END, \
    CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_settings \
            WHERE context OPERATOR(pg_catalog.=) 'superuser' AND source OPERATOR(pg_catalog.=) 'session') \
        AND NOT (SELECT rolsuper FROM pg_catalog.pg_roles \
            WHERE rolname OPERATOR(pg_catalog.=) session_user) \
        THEN 'settings of superusers' END), \
    pg_catalog.pg_my_temp_schema() OPERATOR(pg_catalog.<>) 0::pg_catalog.oid";

/// What binds a connection that could not be asked.
pub(crate) const UNKNOWN: &str = "unknown state";

/// Of rows that wait on node 1, so many bytes are read at a time.
const PORTION_BYTES: usize = 1 << 20;

impl TransactionContext {
    /// This session's link to `node`, checked out if it has none.
    pub(crate) async fn link(&mut self, node: NodeId) -> Result<&mut Link, Failure> {
        // Nobody waits in a room; the connections that were opened before it are there.
        if !self.is_in_snapshot_room() {
            self.registry.cluster.availability.wait_until_open(node, OPEN_PATIENCE).await?;
        }
        if self.links.get(&node).is_none_or(|link| link.is_broken()) {
            self.end_if_misread();
            if let Some(why) = &self.ended_by {
                return Err(why.clone().into());
            }
            self.links.remove(&node);
            if self.transaction.nodes.contains_key(&node) {
                self.transaction.doomed = true;
                let message = format!("connection to node {node} lost during the transaction");
                return Err(ErrorFields::error(sqlstate::CONNECTION_FAILURE, message)
                    .with(b'H', "Roll back and retry: nothing of this transaction was committed.")
                    .into());
            }
            self.end_if_bound(node);
            if let Some(why) = &self.ended_by {
                return Err(why.clone().into());
            }
            self.borrow_link(node).await?;
        }
        Ok(self.links.get_mut(&node).expect("just made sure"))
    }

    /// A further connection to `node`, with the session's settings, beside its link there: to be closed, not released.
    /// `None`: there is no room for one now. (Nobody waits for one: they that have links would wait for each other.)
    pub(crate) async fn further_link(
        &mut self,
        node: NodeId,
    ) -> Result<Option<(Box<Link>, Permit)>, Failure> {
        // What the session has left on a connection is on its own.
        match self.links.get(&node) {
            None => drop(self.link(node).await?),
            // Whoever waits for its answer finds that it is lost.
            Some(link) if link.is_broken() => return Ok(None),
            Some(_) => (),
        }
        let Some(permit) = self.registry.pool.admit_at_once(&self.share) else { return Ok(None) };
        Ok(Some((self.check_out(node).await?, permit)))
    }

    /// Whether a connection that nothing binds may be another session's.
    pub(crate) fn may_be_released(&self, link: &Link) -> bool {
        let must_end = link.has_seen_parts || link.has_had_tables;
        !(link.is_broken() || link.is_spoiled() || must_end)
    }

    /// Gives a connection that nothing binds back to the pool, or closes it if it is in no state for that.
    pub(crate) async fn release_link(&self, node: NodeId, mut link: Box<Link>) {
        if !self.may_be_released(&link) {
            return;
        }
        // A refusal here means that the connection is not in the state that the gateway assumes.
        if !link.is_quiet() && !matches!(link.catch_up().await, Ok(None)) {
            return;
        }
        if !link.is_outside_transaction() || link.is_broken() {
            tracing::error!(%node, "a server was left in a transaction that nobody has begun");
            return;
        }
        if !link.stop_work() {
            link.wait_until_delivered().await;
        }
        self.registry.pool.release(self.role, link);
    }

    /// What keeps rows until they are wanted.
    pub(crate) fn spool(&self) -> Spool {
        let switches = self.registry.cluster.config.switches;
        // As of what is passed on.
        let (kept_bytes_max, portion_bytes) = match switches.any_way {
            // Many rows of the table.
            true => (0, 500),
            false => (switches.kept_bytes_max, PORTION_BYTES),
        };
        Spool::new(Means {
            connections: self.registry.cluster.connections.clone(),
            room: self.registry.pool.room(&self.share),
            kept_bytes_max,
            bytes_max: switches.travelling_bytes_max,
            portion_bytes,
        })
    }

    /// Whether a cursor may have a connection of its own until it is closed.
    pub(crate) fn may_wait_beside(&self) -> bool {
        self.registry.pool.room(&self.share).is_half_free()
    }

    async fn borrow_link(&mut self, node: NodeId) -> Result<(), Failure> {
        if self.permit.is_none() {
            let admitted = self.registry.pool.admit(&self.share).await;
            self.permit = Some(admitted.map_err(|full| Failure::from(full.to_fields()))?);
        }
        self.hold_what_it_began_with().await?;
        let link = self.check_out(node).await?;
        self.links.insert(node, link);
        self.checked_out.insert(node);
        Ok(())
    }

    async fn check_out(&self, node: NodeId) -> Result<Box<Link>, Failure> {
        let registry = &self.registry;
        let state = self.settings.state().clone();
        let request = CheckoutRequest {
            user: &self.user,
            role: self.role,
            credentials: &self.credentials,
            session: self.number,
            state: &state,
            has_placeholders: self.settings.has_placeholders,
        };
        let lent = registry.pool.checkout(node, &request).await;
        let mut link = match lent {
            // A role that was created when node 1 alone had roles, or behind the gateway's back.
            Err(NodeError::Refused(_))
                if node != NodeId::HOME && registry.cluster.lacks_a_role(node).await? =>
            {
                registry.cluster.bring_roles(node).await?;
                registry.pool.checkout(node, &request).await?
            }
            lent => lent?,
        };
        link.work_for(&self.workers);
        link.own = self.own_numbering();
        Ok(link)
    }

    /// From now on the session's nodes are understood by these OIDs; `None`: by those that are
    /// published.
    pub(crate) fn use_own_oids(&mut self, oids: Option<Arc<OidMaps>>) {
        self.transaction.own_oids = oids;
        let own = self.own_numbering();
        for link in self.links.values_mut() {
            link.own.clone_from(&own);
        }
    }

    fn own_numbering(&self) -> Option<Numbering> {
        let oids = self.transaction.own_oids.clone()?;
        Some(Numbering { oids, catalog: self.catalog.clone() })
    }

    /// How nodes number types and tables, as the session sees them.
    pub(crate) fn oids(&self) -> Arc<OidMaps> {
        self.transaction.own_oids.clone().unwrap_or_else(|| self.registry.cluster.oids())
    }

    /// The transaction has made or changed temporary objects, though no statement has said so.
    pub(crate) fn note_temporary(&mut self) {
        self.residue.anything = true;
        self.scope_state.is_stale = true;
        self.transaction.scope_changed = true;
    }

    /// A cursor is about to be declared on a connection of the session's, which it may bind.
    pub(crate) fn note_cursor(&mut self) {
        self.residue.anything = true;
    }

    /// A statement has changed more of the schema than its transaction can tell.
    pub(crate) fn note_schema(&mut self) {
        self.residue.schema = true;
    }

    /// A statement is about to run.
    pub(crate) fn note_residue(&mut self, planned: &Planned, text: &str) {
        let Residue { sequences, notifies, anything, values, settings, schema } = &planned.residue;
        self.residue.notifies |= notifies;
        self.residue.values |= values;
        self.residue.sequences |= sequences;
        self.residue.anything |= anything;
        // A transaction that changes the schema by a plan for it says itself what it has changed.
        let is_planned = matches!(
            planned.plan,
            Plan::Schema(SchemaPlan::Ddl(_) | SchemaPlan::CreateTableAs { .. })
        );
        if *schema && !is_planned {
            self.residue.schema = true;
            self.transaction.changed_alone |= self.transaction.is_open() && self.catalog.is_solo();
            self.renamed |= renames(text);
            self.scope_state.is_stale = true;
            self.changed_defaults |= changes_what_sessions_begin_with(text);
        }
        if !settings.is_empty() {
            self.residue.settings.extend_from_slice(settings);
        }
    }

    /// The session cannot go on if one of its servers reads texts differently from the gateway.
    pub(crate) fn end_if_misread(&mut self) {
        if self.ended_by.is_none() {
            self.ended_by = self.links.iter().find_map(|(_, link)| link.misread());
        }
    }

    /// Between messages: whether servers are as they must be. One that has left its transaction, or is
    /// in one that the gateway did not begin, has run something that the gateway does not know of.
    pub(crate) fn inspect_links(&mut self) {
        if self.transaction.failed || self.transaction.undone {
            return;
        }
        for (node, link) in self.links.iter_mut() {
            let is_in = self.transaction.nodes.contains_key(node);
            let must_be_in = is_in && self.transaction.is_open();
            // One that a cancelled COMMIT of ours has left in its transaction is mended when it is free.
            let is_strange = link.is_quiet()
                && link.is_outside_transaction() == must_be_in
                && (must_be_in || !link.is_spoiled());
            if is_strange && (must_be_in || self.bindings.contains_key(node)) {
                tracing::error!(%node, must_be_in, "a server is not in the transaction that it was in");
                link.connection().note_end();
                self.transaction.doomed |= must_be_in;
            }
        }
    }

    /// What statements left on a connection that was lost since, in the commit for example, can no longer
    /// be asked: the next use of that node ends the session.
    pub(crate) fn bind_to_what_was_lost(&mut self) {
        for node in std::mem::take(&mut self.checked_out) {
            if self.may_leave_on(node) && !self.links.contains_key(&node) {
                self.bindings.entry(node).or_insert_with(|| UNKNOWN.to_owned());
            }
        }
    }

    /// Whether statements may have left on a connection to `node`, since it was last asked, something that
    /// the session cannot go on without.
    pub(crate) fn may_leave_on(&self, node: NodeId) -> bool {
        let Residue { anything, values, settings, .. } = &self.residue;
        *anything || (node == NodeId::HOME && (*values || !settings.is_empty()))
    }

    /// Outside of transactions, a connection that stays with the session may still be in one: the
    /// statement that should have ended it, whose answer was not awaited, was cancelled.
    pub(crate) async fn mend_bound_links(&mut self) {
        let nodes: Vec<_> = self.bindings.keys().copied().collect();
        for node in nodes {
            let Some(link) = self.links.get_mut(&node) else { continue };
            if !link.is_broken() && link.be_in_none().await.is_err() {
                self.links.remove(&node);
            }
        }
    }

    /// Before further use of a connection on which code has seen a part of a table, because it is bound to
    /// the session or in a transaction that goes on. (Others are closed.)
    ///
    /// Requires: no transaction that has failed is open there.
    pub(crate) async fn forget_seen_tables(&mut self) -> Result<(), NodeError> {
        let is_over = !self.transaction.is_open();
        for (node, link) in self.links.iter_mut() {
            let is_kept = !is_over || self.bindings.contains_key(node);
            if link.has_seen_parts && is_kept && !link.is_broken() {
                link.query("DISCARD PLANS").await?;
                link.has_seen_parts = !is_over;
            }
        }
        Ok(())
    }

    /// Asks what statements have left behind that is not known.
    pub(crate) async fn learn_what_is_left(&mut self, left: &Residue, is_behind: bool) {
        // First: it concerns the connections that the statement has used, not their successors.
        self.learn_bindings().await;
        self.learn_settings(left, is_behind).await;
        // Those that stay with the session are not checked out again.
        let bound = self.bindings.keys().copied().collect();
        self.tell_what_was_learned(bound).await;
        if std::mem::take(&mut self.scope_state.is_stale_by_settings) {
            self.refresh_scope_if_possible().await;
        }
    }

    /// The same between a transaction and the one that it is chained to: the session keeps its connections.
    pub(crate) async fn learn_what_is_chained(&mut self) {
        if self.residue.settings.is_empty() && !self.residue.values {
            return;
        }
        let left = self.residue.clone();
        self.learn_what_is_left(&left, false).await;
        let kept = self.links.keys().copied().collect();
        self.tell_what_was_learned(kept).await;
    }

    /// Of these nodes' connections, those that do not have what node 1 has been asked for get it.
    async fn tell_what_was_learned(&mut self, nodes: Vec<NodeId>) {
        let known = self.settings.state().clone();
        let lacks = |node: &NodeId| {
            *node != NodeId::HOME
                && self.links.get(node).is_some_and(|link| !Arc::ptr_eq(&link.state, &known))
        };
        let late: Vec<_> = nodes.into_iter().filter(lacks).collect();
        self.set_anew(late).await;
    }

    /// Asks every server that the session has a connection to what binds it.
    pub(crate) async fn learn_bindings(&mut self) {
        let nodes: Vec<_> = self.links.keys().copied().collect();
        for node in nodes {
            let Some(link) = self.links.get_mut(&node) else { continue };
            let is_in_block = self.transaction.nodes.contains_key(&node);
            match link.ask_unhurried(BINDINGS, is_in_block).await {
                Ok(rows) => {
                    let said = |column| rows.first().and_then(|rows| rows.text(0, column));
                    link.has_temporary_schema |= said(1) == Some("t");
                    match said(0) {
                        Some(words) if !words.is_empty() => {
                            self.bindings.insert(node, words.to_owned());
                        }
                        _ => {
                            self.bindings.remove(&node);
                        }
                    }
                }
                // A timeout, for example: what bound it still does. If the connection is lost, what it held
                // is unknown, and the next use of it ends the session.
                Err(error) => {
                    tracing::debug!(%node, %error, "cannot ask what binds a connection");
                    self.bindings.entry(node).or_insert_with(|| UNKNOWN.to_owned());
                }
            }
        }
    }

    /// Names of settings with a dot that code may have set.
    pub(crate) fn note_settings(&mut self, names: &BTreeSet<String>) {
        let new = names.iter().filter(|name| !self.residue.settings.contains(name));
        let new: Vec<_> = new.cloned().collect();
        self.residue.settings.extend(new);
    }

    /// Settings whose values only node 1 knows become the session's.
    pub(crate) async fn learn_settings(&mut self, left: &Residue, is_behind: bool) {
        if left.settings.is_empty() && !left.values {
            return;
        }
        let mut names: BTreeSet<String> = left.settings.iter().cloned().collect();
        if left.values {
            names.extend(self.settings.names().map(str::to_owned));
            names.extend(self.catalog.code.setting_names());
        }
        let is_in_block = self.transaction.nodes.contains_key(&NodeId::HOME);
        let Some(home) = self.links.get_mut(&NodeId::HOME) else { return };
        let names: Vec<_> = names.iter().map(|name| quote_literal(name)).collect();
        let mut names = format!("ARRAY[{}]::pg_catalog.text[]", names.join(", "));
        if is_behind {
            // Only the server can tell which names such code mentions.
            names.push_str(" OPERATOR(pg_catalog.||) tutti.names_in_code()");
        }
        let sql = match left.values {
            true => format!(
                "pg_catalog.jsonb_each_text(tutti.settings_now({names})) AS s (name, value)"
            ),
            false => format!(
                "(SELECT n, pg_catalog.current_setting(n, true) FROM pg_catalog.unnest({names}) AS n) \
                 AS s (name, value)"
            ),
        };
        // What was refused or undone is not the session's; and what a superuser's function has set, the
        // session could not set elsewhere: it binds the connection.
        let sql = format!(
            "SELECT s.name, s.value, p.source OPERATOR(pg_catalog.=) 'session' AND \
                 (p.context OPERATOR(pg_catalog.<>) 'superuser' OR (SELECT r.rolsuper \
                     FROM pg_catalog.pg_roles AS r WHERE r.rolname OPERATOR(pg_catalog.=) session_user)) \
             FROM {sql} LEFT JOIN pg_catalog.pg_settings AS p ON p.name OPERATOR(pg_catalog.=) s.name"
        );
        let rows = match home.ask_unhurried(&sql, is_in_block).await {
            Ok(rows) => rows,
            // They are the session's nevertheless: no other connection has them until they are known.
            Err(error) => {
                tracing::debug!(%error, "cannot ask what a statement has set");
                self.bindings.entry(NodeId::HOME).or_insert_with(|| UNKNOWN.to_owned());
                let (settings, values) = (left.settings.clone(), left.values);
                self.residue.merge(Residue { settings, values, ..Residue::default() });
                return;
            }
        };
        let login = self.user.clone();
        let mut found: Vec<(String, String)> = Vec::new();
        let rows = rows.first();
        for row in 0..rows.map_or(0, |rows| rows.rows.len()) {
            let text = |column| rows.and_then(|rows| rows.text(row, column)).map(str::to_owned);
            if let (Some(name), Some(value)) = (text(0), text(1))
                && (text(2).as_deref() != Some("f") || self.settings.has_set(&name))
            {
                found.push((name, value));
            }
        }
        // The role depends on who the session is, so it comes after.
        found.sort_by_key(|(name, _)| match name.as_str() {
            "session_authorization" => 1,
            "role" => 2,
            _ => 0,
        });
        for (name, value) in found {
            // As every session begins.
            let is_untouched = !self.settings.has_set(&name)
                && matches!(
                    (&*name, &*value),
                    ("role", "none") | ("session_authorization", _) if name == "role" || value == login
                );
            if !is_untouched && self.settings.learn(&name, &value) {
                self.scope_state.is_stale_by_settings |= is_scope_setting(&name);
            }
        }
        // Other connections get it when they are next checked out; this one has it.
        if let Some(home) = self.links.get_mut(&NodeId::HOME) {
            home.state = self.settings.state().clone();
        }
    }

    /// The connection to `node` is lost. If something bound it, the session ends with it, as it does
    /// when it loses its server process on PostgreSQL: locks that have silently vanished protect
    /// nothing.
    pub(crate) fn end_if_bound(&mut self, node: NodeId) {
        if let Some(words) = self.bindings.remove(&node) {
            let message =
                format!("connection to node {node} lost, and with it the session's {words}");
            let why = ErrorFields::fatal(sqlstate::ADMIN_SHUTDOWN, message)
                .with(b'H', "Connect again; nothing of an open transaction was committed.");
            self.ended_by.get_or_insert(why);
        }
    }

    /// What binds which connection to this session, in words.
    pub(crate) fn bindings_text(&self) -> String {
        let of_node = |(node, words): (&NodeId, &String)| format!("node {node}: {words}");
        self.bindings.iter().map(of_node).collect::<Vec<_>>().join("; ")
    }
}

/// Whether a statement may change the settings or rights that new sessions begin with, such as
/// ALTER ROLE, or give a name to another role: connections know their role by its number, and a
/// login under a reused name must not get a connection of the old role's.
pub(crate) fn changes_what_sessions_begin_with(text: &str) -> bool {
    let words = || text.split(|c: char| !c.is_alphanumeric() && c != '_');
    let names = |wanted: &[&str]| {
        words().any(|word| wanted.iter().any(|wanted| word.eq_ignore_ascii_case(wanted)))
    };
    // Words in a comment or a column's name count too: new connections cost little.
    names(&["alter", "drop"]) && names(&["role", "user", "group", "database", "system"])
}

/// Whether a statement may change which schemas some role's search path has.
pub(crate) fn changes_search_paths(text: &str) -> bool {
    const WORDS: [&str; 8] =
        ["schema", "grant", "revoke", "role", "user", "group", "owned", "reassign"];
    let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.any(|word| WORDS.iter().any(|wanted| word.eq_ignore_ascii_case(wanted)))
}

/// Whether a statement may change which of the schemas that there are some role sees: what its names mean
/// among tables of the same name.
pub(crate) fn changes_sight(text: &str) -> bool {
    const WORDS: [&str; 7] = ["grant", "revoke", "role", "user", "group", "owned", "reassign"];
    let Some(words) = words(text) else { return true };
    let has = |wanted: &str| words.iter().any(|word| word.eq_ignore_ascii_case(wanted));
    WORDS.iter().any(|word| has(word)) || (has("alter") && has("schema"))
}

/// Whether a statement may change names by which other objects are known, or what types mean to the
/// tables that use them.
pub(crate) fn renames(text: &str) -> bool {
    // What no scanner can read was not planned either.
    let Some(words) = words(text) else { return true };
    let words: Vec<_> = words.into_iter().map(str::to_ascii_lowercase).collect();
    const KINDS: [&str; 5] = ["type", "domain", "schema", "extension", "operator"];
    // Words that are a column's name count too: more is read then.
    let has = |wanted: &str| words.iter().any(|word| word == wanted);
    has("alter") && (has("rename") || has("schema"))
        || words.windows(2).any(|pair| pair[0] == "alter" && KINDS.contains(&pair[1].as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_that_are_changed_or_dropped_count_wherever_the_words_stand() {
        for text in [
            "ALTER ROLE a RENAME TO b",
            "/* app */ drop user a",
            "DROP/**/GROUP a",
            "ALTER DATABASE d SET x = 1",
        ] {
            assert!(changes_what_sessions_begin_with(text), "{text}");
        }
        assert!(!changes_what_sessions_begin_with("CREATE TABLE t (role text)"));
        assert!(!changes_what_sessions_begin_with("DROP TABLE t"));
    }

    #[test]
    fn what_changes_names_of_others_is_told_from_what_changes_a_table() {
        for text in [
            "ALTER TABLE t RENAME TO u",
            "alter table t rename column a to b",
            "/* x */ ALTER TYPE mood ADD VALUE 'sad'",
            "ALTER VIEW v SET SCHEMA s",
            "ALTER /* our */ TYPE mood ADD VALUE 'sad'",
        ] {
            assert!(renames(text), "{text}");
        }
        for text in ["ALTER TABLE t ALTER a TYPE int8", "CREATE TYPE t AS (a int)", "DROP SCHEMA s"]
        {
            assert!(!renames(text), "{text}");
        }
    }
}
