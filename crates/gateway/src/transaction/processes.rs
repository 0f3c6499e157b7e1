//! What a session fills into a statement's text, because no node knows it.
//!
//! Owns: the numbers of sessions in the place of nodes' process ids, both ways: `pg_backend_pid()`, views
//! that show processes, functions that take one, over all nodes; and the sessions that a query
//! over such views wants to cancel or end.
//! Never: finds the words (the planner does), decides who may signal whom.
//! Start reading at [`TransactionContext::with_own_names`].
//!
//! Clients are told session numbers; a node knows the processes of links, which serve one session after
//! another. When the statement runs it is known which session has which, and that is written into the
//! statement as a list. What other nodes show is asked over the session's own links, so that a client
//! sees no more than its role may, and written in as well; a cluster in which only node 1 has tables
//! needs none of that.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Write;

use tutti_sql::catalog::{NodeId, quote_literal};
use tutti_sql::plan::{Access, Planned, ProcessFunction, SessionName};

use crate::client::failure::Failure;
use crate::transaction::{Mode, TransactionContext};

/// Where a statement notes sessions that it wants to cancel or end: a setting that lasts as long as the
/// transaction. Whatever is written there, PostgreSQL's rights are checked before any session is
/// signalled.
pub(crate) const ASKED_SIGNALS: &str = "tutti.asked_signals";

/// What a view of one node's processes is made of.
struct Pieces {
    /// Relation `m (session, backend)`: a VALUES list.
    map: String,
    /// Condition on `p.pid` for processes that are the gateway's own.
    hidden: String,
}

/// Whether the statement may ask for signals that the gateway must send.
pub(crate) fn signals(planned: &Planned) -> bool {
    planned.session_names.iter().any(|name| {
        matches!(
            name.name,
            SessionName::Call(ProcessFunction::Cancel | ProcessFunction::Terminate { .. })
        )
    })
}

impl TransactionContext {
    /// `text` with the words that ask for what only the session and the gateway know replaced by the
    /// answer.
    pub(crate) async fn with_own_names<'t>(
        &mut self,
        planned: &Planned,
        text: &'t str,
    ) -> Result<Cow<'t, str>, Failure> {
        if planned.session_names.is_empty() {
            return Ok(Cow::Borrowed(text));
        }
        if signals(planned) && self.transaction.mode == Mode::None {
            // The signals that it asks for are noted in a transaction.
            self.open_transaction(Mode::Implicit);
        }
        let mut written = String::with_capacity(text.len());
        let mut from = 0;
        for found in &planned.session_names {
            written.push_str(text.get(from..found.range.start).unwrap_or_default());
            written.push_str(&self.session_words(found.name).await?);
            from = found.range.end;
        }
        written.push_str(text.get(from..).unwrap_or_default());
        Ok(Cow::Owned(written))
    }

    async fn session_words(&mut self, name: SessionName) -> Result<String, Failure> {
        let number = self.process_id;
        Ok(match name {
            SessionName::ProcessId { unnamed: true } => format!("{number} AS pg_backend_pid"),
            SessionName::ProcessId { unnamed: false } => number.to_string(),
            SessionName::PreparedStatements { aliased } => {
                let alias = if aliased { "" } else { " AS pg_prepared_statements" };
                format!("({}){alias}", self.prepared_statements_sql().await?)
            }
            SessionName::Processes { view, aliased } => {
                let alias = if aliased { String::new() } else { format!(" AS {view}") };
                format!("({}){alias}", self.processes_sql(view).await?)
            }
            SessionName::Call(function) => self.call_begin(function).await?,
            SessionName::CallEnd { function, unaliased } => {
                let alias = if unaliased { function.name() } else { "" };
                let arguments = match function {
                    ProcessFunction::IsBlocked => "pid, pids",
                    ProcessFunction::Terminate { waits: true } => "pid, timeout",
                    _ => "pid",
                };
                format!(") AS a ({arguments})) {alias}")
            }
        })
    }

    /// The text up to the arguments, which become the columns of `a`.
    async fn call_begin(&mut self, function: ProcessFunction) -> Result<String, Failure> {
        let name = function.name();
        let pid = "a.pid::pg_catalog.int4";
        let value = match function {
            ProcessFunction::Cancel | ProcessFunction::Terminate { .. } => {
                let sessions: Vec<_> = self
                    .registry
                    .backends
                    .users()
                    .iter()
                    .map(|(number, _)| number.to_string())
                    .collect();
                let sessions = sessions.join(",");
                let wait = match function {
                    ProcessFunction::Terminate { waits: true } => ", a.timeout::pg_catalog.int8",
                    _ => "",
                };
                let letter = if function == ProcessFunction::Cancel { 'c' } else { 't' };
                format!(
                    "CASE WHEN {pid} OPERATOR(pg_catalog.=) ANY ('{{{sessions}}}'::pg_catalog.int4[])
                     THEN pg_catalog.set_config('{ASKED_SIGNALS}', pg_catalog.concat_ws(' ',
                         pg_catalog.current_setting('{ASKED_SIGNALS}', true),
                         pg_catalog.concat('{letter}', a.pid)), true) IS NOT NULL
                     ELSE pg_catalog.{name}({pid}{wait}) END"
                )
            }
            ProcessFunction::Blocking | ProcessFunction::SafeSnapshotBlocking => {
                let edges = self.waits_elsewhere().await?;
                self.blockers(function, &edges)
            }
            ProcessFunction::IsBlocked => {
                let edges = self.waits_elsewhere().await?;
                let blocking = self.blockers(ProcessFunction::Blocking, &edges);
                let safe = self.blockers(ProcessFunction::SafeSnapshotBlocking, "");
                format!(
                    "{blocking} OPERATOR(pg_catalog.&&) a.pids::pg_catalog.int4[]
                     OR 0 OPERATOR(pg_catalog.<) pg_catalog.cardinality({safe})"
                )
            }
            ProcessFunction::LogMemory => {
                let map = self.pieces(NodeId::HOME).map;
                format!(
                    "pg_catalog.{name}(coalesce((SELECT m.backend FROM {map} WHERE m.session OPERATOR(pg_catalog.=) {pid}),
                         {pid}))"
                )
            }
        };
        Ok(format!("(SELECT {value} AS {name} FROM (SELECT "))
    }

    /// An array of the sessions that block session `a.pid`: on node 1, and by the `edges` of others.
    fn blockers(&self, function: ProcessFunction, edges: &str) -> String {
        let map = self.pieces(NodeId::HOME).map;
        let name = function.name();
        let elsewhere = if edges.is_empty() {
            String::new()
        } else {
            format!(
                " UNION SELECT e.blocker FROM (VALUES {edges}) AS e (waiter, blocker)
                  WHERE e.waiter OPERATOR(pg_catalog.=) a.pid::pg_catalog.int4"
            )
        };
        format!(
            "CASE WHEN a.pid IS NOT NULL THEN ARRAY(
                 SELECT coalesce((SELECT m.session FROM {map} WHERE m.backend OPERATOR(pg_catalog.=) b.pid), b.pid)
                 FROM pg_catalog.unnest(pg_catalog.{name}(coalesce(
                     (SELECT m.backend FROM {map} WHERE m.session OPERATOR(pg_catalog.=) a.pid::pg_catalog.int4),
                     a.pid::pg_catalog.int4))) AS b (pid){elsewhere}) END"
        )
    }

    /// Which session has which process of a node, and which are the gateway's own.
    fn pieces(&self, node: NodeId) -> Pieces {
        let mut map = String::from("(VALUES ");
        // The link that will run this may not be checked out yet.
        write!(map, "({}, pg_catalog.pg_backend_pid())", self.process_id)
            .expect("a String takes everything");
        for ((on, backend), session) in self.registry.backends.sessions_by_backend() {
            if on == node && session != self.process_id {
                write!(map, ", ({session}, {backend})").expect("a String takes everything");
            }
        }
        map.push_str(") AS m (session, backend)");
        let idle: Vec<_> =
            self.registry.backends.idle_on(node).iter().map(ToString::to_string).collect();
        let role = self.registry.cluster.config.nodes.iter().find(|place| NodeId(place.id) == node);
        let role = quote_literal(role.map_or("", |place| place.user.as_str()));
        let idle = idle.join(",");
        // The gateway's own connections call themselves so; a role that may not see names sees no
        // more of a superuser's process than that it exists.
        let hidden = format!(
            "p.pid OPERATOR(pg_catalog.=) ANY ('{{{idle}}}'::pg_catalog.int4[])
             OR p.pid OPERATOR(pg_catalog.=) ANY (
                 SELECT g.pid FROM pg_catalog.pg_stat_activity AS g
                 WHERE g.usename OPERATOR(pg_catalog.=) {role} AND coalesce(
                     g.application_name OPERATOR(pg_catalog.~~) 'tutti %', true))"
        );
        Pieces { map, hidden }
    }

    /// A query to replace a view that shows processes.
    async fn processes_sql(&mut self, view: &str) -> Result<String, Failure> {
        let own = self.node_processes_sql(view, NodeId::HOME, true);
        let mut sql = format!("SELECT r.* {own}");
        let elsewhere = self.processes_elsewhere(view).await?;
        let is_several = !elsewhere.is_empty();
        for rows in elsewhere {
            write!(
                sql,
                " UNION ALL SELECT r.* FROM pg_catalog.jsonb_populate_recordset(
                     NULL::pg_catalog.{view}, {}) AS r",
                quote_literal(&rows)
            )
            .expect("a String takes everything");
        }
        if view != "pg_stat_activity" {
            return Ok(sql);
        }
        if is_several {
            // A session on several nodes is shown where it is busy.
            sql = format!(
                "SELECT DISTINCT ON (s.pid) s.* FROM ({sql}) AS s
                 ORDER BY s.pid, s.state OPERATOR(pg_catalog.=) 'active' DESC NULLS LAST,
                     s.wait_event_type OPERATOR(pg_catalog.=) 'Lock' DESC NULLS LAST"
            );
        }
        Ok(format!("(SELECT s.* FROM ({sql}) AS s) UNION ALL {}", self.idle_sessions_sql()))
    }

    /// FROM and WHERE of a view's rows `r` on one node; with `outsiders`, those of no session too.
    fn node_processes_sql(&self, view: &str, node: NodeId, outsiders: bool) -> String {
        let Pieces { map, hidden } = self.pieces(node);
        let condition = if outsiders {
            format!("m.session IS NOT NULL OR p.pid IS NULL OR NOT ({hidden})")
        } else {
            "m.session IS NOT NULL".to_owned()
        };
        format!(
            "FROM pg_catalog.{view} AS p LEFT JOIN {map} ON m.backend OPERATOR(pg_catalog.=) p.pid
             CROSS JOIN LATERAL pg_catalog.jsonb_populate_record(p,
                 CASE WHEN m.session IS NULL THEN '{{}}'::pg_catalog.jsonb
                 ELSE pg_catalog.jsonb_build_object('pid', m.session) END) AS r
             WHERE {condition}"
        )
    }

    /// The rows that the other nodes have of sessions, as JSON.
    async fn processes_elsewhere(&mut self, view: &str) -> Result<Vec<String>, Failure> {
        let mut found = Vec::new();
        for node in self.nodes_asked_too() {
            let rows = self.node_processes_sql(view, node, false);
            let sql = format!(
                "SELECT coalesce(pg_catalog.jsonb_agg(x), '[]') FROM (SELECT r.* {rows}) x"
            );
            let rows = self.enlist(node, Access::Read).await?.query(&sql).await?;
            found.extend(rows.first().and_then(|rows| rows.text(0, 0)).map(str::to_owned));
        }
        Ok(found)
    }

    /// The rows of `pg_stat_activity` for sessions that have no process anywhere: they are idle.
    fn idle_sessions_sql(&self) -> String {
        let mut busy: HashSet<i32> =
            self.registry.backends.sessions_by_backend().into_values().collect();
        busy.insert(self.process_id);
        let mut rows = String::new();
        for (session, user) in self.registry.backends.users() {
            if !busy.contains(&session) {
                write!(rows, ", ({session}, {})", quote_literal(&user))
                    .expect("a String takes everything");
            }
        }
        format!(
            "SELECT r.* FROM (VALUES (NULL::pg_catalog.int4, NULL::pg_catalog.name){rows})
                 AS s (pid, usename)
             JOIN pg_catalog.pg_database AS d ON d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()
             LEFT JOIN pg_catalog.pg_roles AS u ON u.rolname OPERATOR(pg_catalog.=) s.usename
             CROSS JOIN LATERAL pg_catalog.jsonb_populate_record(NULL::pg_catalog.pg_stat_activity,
                 pg_catalog.jsonb_build_object('pid', s.pid, 'usename', s.usename,
                     'usesysid', u.oid, 'datid', d.oid, 'datname', d.datname, 'query', '',
                     'application_name', '', 'state', 'idle', 'wait_event_type', 'Client',
                     'wait_event', 'ClientRead', 'backend_type', 'client backend')) AS r
             WHERE s.pid IS NOT NULL"
        )
    }

    /// Which session waits for which on other nodes, as a VALUES list; empty: none.
    async fn waits_elsewhere(&mut self) -> Result<String, Failure> {
        let mut edges = String::new();
        for node in self.nodes_asked_too() {
            let map = self.pieces(node).map;
            let sql = format!(
                "SELECT pg_catalog.string_agg(DISTINCT pg_catalog.format('(%s, %s)', m.session, h.session), ', ')
                 FROM pg_catalog.pg_locks AS l
                 JOIN {map} ON m.backend OPERATOR(pg_catalog.=) l.pid
                 CROSS JOIN LATERAL pg_catalog.unnest(pg_catalog.pg_blocking_pids(l.pid)) AS b (pid)
                 JOIN {} ON h.backend OPERATOR(pg_catalog.=) b.pid
                 WHERE NOT l.granted",
                map.replace("AS m (", "AS h ("),
            );
            let rows = self.enlist(node, Access::Read).await?.query(&sql).await?;
            let there = rows.first().and_then(|rows| rows.text(0, 0)).unwrap_or_default();
            if !there.is_empty() {
                write!(edges, "{}{there}", if edges.is_empty() { "" } else { ", " })
                    .expect("a String takes everything");
            }
        }
        Ok(edges)
    }

    /// The nodes other than node 1 on which a session may be busy.
    fn nodes_asked_too(&self) -> Vec<NodeId> {
        if self.catalog.is_solo() {
            return Vec::new();
        }
        self.catalog.nodes.iter().copied().filter(|node| *node != NodeId::HOME).collect()
    }
}
