//! Giving a table that holds rows another placement.
//!
//! Owns: which rows travel from which node to which, and the SQL that moves them.
//! Never: begins or ends a transaction. The caller has one open on every node, commits all of them
//! as one global transaction, and checks the schema with [`super::verify()`] before.
//! Start reading at [`Redistribution::plan`], then [`Redistribution::perform`].
//!
//! Rows travel as texts of anonymous rows, which no one can give a cast, and as parameters, which no one is
//! shown. What reads, deletes and stores them runs as the table's owner (`tutti.as_owner`): planning it
//! computes, and storing a row runs, code of the owner's (checks, generated columns, indexes, statistics,
//! domains), which has no more rights than the owner. Cursors are opened on all sources
//! before anything changes, so each row is read once, as it was; then every node deletes what
//! leaves it; then the rows are dealt out. Nothing of the table is held in memory but one batch.

use std::collections::BTreeMap;

use tutti_link::connection::{NodeConnection, NodeError};
use tutti_link::seals::{Seals, digest};
use tutti_sql::catalog::{
    Catalog, NodeId, Relation, RelationKind, quote_identifier, quote_literal,
};
use tutti_sql::refusal::Refusal;
use tutti_sql::statement::DistributeBy;

use super::placement::{
    PlacementKind, Registration, message_of_parts, note_change, placement_in_catalog, placement_of,
    register,
};
use super::rows::Answer;
use crate::error::GatewayError;

/// The open connections, each inside a transaction.
pub type Connections<'a> = BTreeMap<NodeId, &'a mut NodeConnection>;

/// Rows that are fetched from a node at a time.
const BATCH_ROWS: usize = 500;
/// What is stored by one statement on one node, in bytes of their texts, or a row more.
const BATCH_BYTES: usize = 16 << 20;

/// Settings that decide how values are written as text: alike on all nodes, and exact. Triggers and
/// foreign keys do not fire for rows that only travel.
const TRAVEL_SETTINGS: [(&str, &str); 9] = [
    ("session_replication_role", "replica"),
    ("datestyle", "ISO, YMD"),
    ("intervalstyle", "postgres"),
    ("extra_float_digits", "1"),
    ("bytea_output", "hex"),
    ("row_security", "off"),
    ("array_nulls", "on"),
    ("xmloption", "content"),
    ("lc_monetary", "C"),
];

/// One table (not partitioned) whose rows move.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Leaf {
    /// Qualified and quoted.
    name: String,
    schema: String,
    table: String,
}

/// How the rows of all leaves move.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Travel {
    /// Every row is where it belongs already.
    Nothing,
    /// Rows of these nodes are copied to all nodes that are not their own. Nodes other than node 1
    /// are emptied first if they hold nothing that counts.
    CopyEverywhere { sources: Vec<NodeId>, empty_copies: bool },
    /// Each node deletes what the map gives to others: they have it.
    DropForeign { target: PlacementKind },
    /// Each source sends away what the map gives to others.
    SendForeign { sources: Vec<NodeId>, target: PlacementKind, empty_copies: bool },
    /// Rows of node 1, which has them all, are dealt out; the others are emptied.
    DealOut,
    /// Rows of the other nodes go to node 1, which they leave.
    BringHome { sources: Vec<NodeId> },
    /// Node 1 has all rows; the others lose theirs.
    EmptyCopies,
}

/// A table's move to another placement, with everything that belongs to it: partitions and children.
#[derive(Clone, Debug)]
pub struct Redistribution {
    /// Qualified and quoted name of the table that was named.
    root: String,
    nodes: Vec<NodeId>,
    leaves: Vec<Leaf>,
    registrations: Vec<Registration>,
    travel: Travel,
}

impl Redistribution {
    /// Determines what has to move. `home` is in the transaction on node 1; `catalog` is what that
    /// transaction sees.
    ///
    /// Errors: [`GatewayError::Refused`] for what is no table, for tables of others (the rights are
    /// those of ALTER TABLE), for partitions (their root must be named), and for a column that cannot
    /// be a key.
    pub async fn plan(
        home: &mut NodeConnection,
        catalog: &Catalog,
        relation: &Relation,
        wanted: &DistributeBy,
        seals: &Seals,
    ) -> Result<Self, GatewayError> {
        if relation.kind != RelationKind::Table {
            let message = format!("\"{}\" is not a table", relation.name);
            return Err(Refusal::postgres("42809", message).into());
        }
        let family = read_family(home, relation).await?;
        let from = placement_in_catalog(relation);
        let to = placement_of(home, relation.oid, wanted).await?;
        let mut leaves = Vec::new();
        let mut forced = None;
        let mut registrations = Vec::new();
        for member in family {
            let Some(table) =
                catalog.relations.get(&member.schema).and_then(|tables| tables.get(&member.name))
            else {
                let message = format!("relation \"{}\" does not exist", member.name);
                return Err(Refusal::postgres("42P01", message).into());
            };
            if !member.partitioned {
                let (schema, name) = (member.schema.clone(), member.name.clone());
                leaves.push(Leaf { name: table.sql_name(), schema, table: name });
                forced = forced.or_else(|| member.forced.then(|| member.name.clone()));
            }
            registrations.push(Registration {
                schema: member.schema,
                table: member.name,
                placement: to.clone(),
            });
        }
        let nodes = catalog.nodes.clone();
        let travel = travel(&from, &to, &nodes);
        if writes_rows(&travel)
            && let Some(table) = forced
            && !(matches!(from, PlacementKind::Home) && has_no_pages(home, &leaves).await?)
        {
            return Err(Refusal::unsupported(
                format!("cannot redistribute \"{}\"", relation.name),
                format!(
                    "Its rows are stored by its owner, and row security of \"{table}\" is forced on the \
                     owner too: rows could be left behind."
                ),
                "ALTER TABLE … NO FORCE ROW LEVEL SECURITY, redistribute the table, and force it again, \
                 in one transaction.",
            )
            .into());
        }
        if travel != Travel::Nothing
            && let Some(refusal) = what_fires(home, relation, &registrations).await?
        {
            // Where there are no rows, none fires anything; node 1 knows this of its own tables.
            home.rows(&lock_sql(&relation.sql_name())).await?;
            if !matches!(from, PlacementKind::Home) || has_rows(home, &leaves, seals).await? {
                return Err(refusal.into());
            }
        }
        Ok(Self { root: relation.sql_name(), nodes, leaves, registrations, travel })
    }

    /// Locks the table on all nodes, registers the new placement and moves the rows.
    ///
    /// Errors: a node's own, or [`GatewayError::Refused`]; the caller must then roll back on all
    /// nodes.
    pub async fn perform(
        &self,
        connections: &mut Connections<'_>,
        seals: &Seals,
    ) -> Result<(), GatewayError> {
        // Node 1 first, as by every statement that concerns all nodes.
        for connection in connections.values_mut() {
            connection.rows(&self.lock_sql()).await?;
        }
        // Rows are compared with the bucket map, so a new one must be there before they move.
        for connection in connections.values_mut() {
            for registration in &self.registrations {
                register(connection, registration, seals).await?;
            }
            note_change(connection).await?;
        }
        if self.travel == Travel::Nothing {
            return Ok(());
        }
        // Owners of tables do not see it while row security may not hide rows.
        let map = match &self.travel {
            Travel::DropForeign { target } | Travel::SendForeign { target, .. } => {
                read_map(at(connections, NodeId::HOME), target).await?
            }
            _ => String::new(),
        };
        for connection in connections.values_mut() {
            set_for_travel(connection, &self.root).await?;
        }
        for leaf in &self.leaves {
            self.move_rows(connections, leaf, &map, seals).await?;
        }
        for connection in connections.values_mut() {
            connection.query(&restore_settings()).await?;
        }
        Ok(())
    }

    /// The tables whose rows move: schema and name.
    pub fn tables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.registrations.iter().map(|it| (it.schema.as_str(), it.table.as_str()))
    }

    /// Whether rows are written where they were not, which runs what computes and checks them.
    pub fn writes_rows(&self) -> bool {
        writes_rows(&self.travel)
    }

    /// Takes the table for this transaction alone: no other changes what it is or where its rows
    /// are.
    pub fn lock_sql(&self) -> String {
        lock_sql(&self.root)
    }

    async fn move_rows(
        &self,
        connections: &mut Connections<'_>,
        leaf: &Leaf,
        map: &str,
        seals: &Seals,
    ) -> Result<(), GatewayError> {
        let Steps { first, sources, then } = leaf.steps(&self.travel, &self.nodes, map);
        for (node, sql) in first {
            leaf.as_owner(at(connections, node), &sql, "", seals).await?;
        }
        for (node, select) in &sources {
            let sql = format!("DECLARE {CURSOR} NO SCROLL CURSOR FOR {select}");
            leaf.as_owner(at(connections, *node), &sql, "", seals).await?;
        }
        for (node, sql) in then {
            leaf.as_owner(at(connections, node), &sql, "", seals).await?;
        }
        let insert = match sources.is_empty() {
            true => String::new(),
            false => leaf.insert(at(connections, NodeId::HOME)).await?,
        };
        let mut dealt = 0;
        let mut batches: BTreeMap<NodeId, Batch> = BTreeMap::new();
        for (source, _) in &sources {
            loop {
                let fetch = format!("FETCH {BATCH_ROWS} FROM {CURSOR}");
                let rows = at(connections, *source).rows(&fetch).await?;
                let answer = Answer { node: *source, what: "rows that move", rows: &rows };
                for row in 0..answer.len() {
                    let text = answer.text(row, 1)?;
                    for target in self.targets(*source, &answer, row, &mut dealt)? {
                        let batch = batches.entry(target).or_default();
                        batch.push(text);
                        if BATCH_BYTES <= batch.bytes() {
                            let rows = std::mem::take(batch).finish();
                            leaf.as_owner(at(connections, target), &insert, &rows, seals).await?;
                        }
                    }
                }
                if answer.len() < BATCH_ROWS {
                    break;
                }
            }
            at(connections, *source).rows(&format!("CLOSE {CURSOR}")).await?;
        }
        for (target, batch) in batches {
            if 0 < batch.bytes() {
                let rows = batch.finish();
                leaf.as_owner(at(connections, target), &insert, &rows, seals).await?;
            }
        }
        Ok(())
    }

    /// Where one row goes.
    fn targets(
        &self,
        source: NodeId,
        answer: &Answer<'_>,
        row: usize,
        dealt: &mut usize,
    ) -> Result<Vec<NodeId>, GatewayError> {
        match &self.travel {
            Travel::CopyEverywhere { .. } => {
                Ok(self.nodes.iter().copied().filter(|node| *node != source).collect())
            }
            Travel::DealOut => {
                *dealt += 1;
                Ok(vec![self.nodes[*dealt % self.nodes.len()]])
            }
            Travel::SendForeign { .. } => {
                let target = NodeId(answer.number(row, 0)?);
                if self.nodes.contains(&target) {
                    Ok(vec![target])
                } else {
                    Err(answer.unreadable())
                }
            }
            Travel::BringHome { .. } => Ok(vec![NodeId::HOME]),
            Travel::Nothing | Travel::DropForeign { .. } | Travel::EmptyCopies => Ok(Vec::new()),
        }
    }
}

/// Name of the cursor that is open on each source; no client is called so.
const CURSOR: &str = "tutti_moving_rows";
/// Name of the row in our statements; hides no column unless one has this name.
const ROW: &str = "tutti_moved_row";

/// What happens on which node, in this order.
#[derive(Debug, Default, PartialEq)]
struct Steps {
    /// Statements before any row is read.
    first: Vec<(NodeId, String)>,
    /// Queries that yield target node and row text.
    sources: Vec<(NodeId, String)>,
    /// Statements after the cursors are open.
    then: Vec<(NodeId, String)>,
}

impl Leaf {
    fn steps(&self, travel: &Travel, nodes: &[NodeId], map: &str) -> Steps {
        let name = &self.name;
        let mut steps = Steps::default();
        let delete_all = |node: NodeId| (node, format!("DELETE FROM ONLY {name}"));
        let copies = || nodes.iter().copied().filter(|node| *node != NodeId::HOME);
        let all_rows =
            format!("SELECT NULL, ROW({ROW}.*)::pg_catalog.text FROM ONLY {name} AS {ROW}");
        match travel {
            Travel::Nothing => (),
            Travel::CopyEverywhere { sources, empty_copies } => {
                if *empty_copies {
                    steps.first.extend(copies().map(delete_all));
                }
                steps.sources.extend(sources.iter().map(|node| (*node, all_rows.clone())));
            }
            Travel::DealOut => {
                steps.sources.push((NodeId::HOME, all_rows));
                steps.then.extend(nodes.iter().copied().map(delete_all));
            }
            Travel::BringHome { sources } => {
                steps.sources.extend(sources.iter().map(|node| (*node, all_rows.clone())));
                steps.then.extend(sources.iter().copied().map(delete_all));
            }
            Travel::EmptyCopies => steps.then.extend(copies().map(delete_all)),
            Travel::DropForeign { target } => {
                steps.then.extend(
                    nodes.iter().map(|node| (*node, self.delete_foreign(*node, target, map))),
                );
            }
            Travel::SendForeign { sources, target, empty_copies } => {
                if *empty_copies {
                    steps.first.extend(copies().map(delete_all));
                }
                for node in sources {
                    let owner = owner(target, map);
                    let select = format!(
                        "SELECT {owner}, ROW({ROW}.*)::pg_catalog.text FROM ONLY {name} AS {ROW} \
                         WHERE {owner} OPERATOR(pg_catalog.<>) {}",
                        node.0
                    );
                    steps.sources.push((*node, select));
                    steps.then.push((*node, self.delete_foreign(*node, target, map)));
                }
            }
        }
        steps
    }

    fn delete_foreign(&self, node: NodeId, target: &PlacementKind, map: &str) -> String {
        format!(
            "DELETE FROM ONLY {} AS {ROW} WHERE {} OPERATOR(pg_catalog.<>) {}",
            self.name,
            owner(target, map),
            node.0
        )
    }

    /// The rows are its `$1`.
    async fn insert(&self, home: &mut NodeConnection) -> Result<String, GatewayError> {
        let sql = format!(
            "SELECT pg_catalog.string_agg(pg_catalog.quote_ident(a.attname), ', ' ORDER BY a.attnum),
    pg_catalog.string_agg(pg_catalog.concat('u.', pg_catalog.quote_ident(a.attname)), ', ' ORDER BY a.attnum)
FROM pg_catalog.pg_attribute a
WHERE a.attrelid OPERATOR(pg_catalog.=) {}::pg_catalog.regclass::pg_catalog.oid AND a.attnum OPERATOR(pg_catalog.>) 0
    AND NOT a.attisdropped AND a.attgenerated OPERATOR(pg_catalog.=) ''",
            quote_literal(&self.name)
        );
        let rows = home.rows(&sql).await?;
        let answer = Answer { node: home.node(), what: "a table's columns", rows: &rows };
        // A table without columns has rows, too.
        let into = match rows.text(0, 0) {
            Some(columns) => {
                format!("({columns}) OVERRIDING SYSTEM VALUE SELECT {}", answer.text(0, 1)?)
            }
            None => String::from(" SELECT"),
        };
        Ok(format!("INSERT INTO {} {into} FROM pg_catalog.unnest($1) AS u", self.name))
    }

    /// Runs a statement on a node as the owner of this table. `rows` are its `$1`, unless they are empty.
    async fn as_owner(
        &self,
        connection: &mut NodeConnection,
        statement: &str,
        rows: &str,
        seals: &Seals,
    ) -> Result<(), GatewayError> {
        let Self { schema, table, .. } = self;
        let message = message_of_parts("as owner", &[schema, table, statement, &digest(rows)]);
        let seal = seals.seal(connection, &message).await?;
        // The code of the table has the search path of the session.
        let sql = format!(
            "SELECT tutti.as_owner({}, {}, $1, $2, pg_catalog.current_setting('search_path'), $3)",
            quote_literal(schema),
            quote_literal(table)
        );
        let values = [statement.to_owned(), rows.to_owned(), seal].map(|value| Some(value.into()));
        connection.query_with(&sql, values.into()).await?;
        Ok(())
    }
}

/// SQL for the node that a row belongs to. `map`: of [`read_map`].
fn owner(target: &PlacementKind, map: &str) -> String {
    let PlacementKind::Hash { key, key_type, .. } = target else {
        unreachable!("only hash placements give rows an owner");
    };
    let bucket = key_type.sql_bucket(&format!("{ROW}.{}", quote_identifier(key)));
    format!("(({}::pg_catalog.int4[])[({bucket})::pg_catalog.int4])", quote_literal(map))
}

/// The nodes of a placement's buckets, as the text of an array whose indexes are the buckets.
async fn read_map(
    home: &mut NodeConnection,
    target: &PlacementKind,
) -> Result<String, GatewayError> {
    let PlacementKind::Hash { map, .. } = target else {
        unreachable!("only hash placements have a map");
    };
    let sql = format!(
        "SELECT pg_catalog.concat('[0:', pg_catalog.max(b.bucket), ']=',
    pg_catalog.array_agg(b.node ORDER BY b.bucket)) FROM tutti.bucket b
WHERE b.map OPERATOR(pg_catalog.=) {}",
        map.0
    );
    let rows = home.rows(&sql).await?;
    Ok(Answer { node: home.node(), what: "a map of buckets", rows: &rows }.text(0, 0)?.to_owned())
}

/// An array of texts as PostgreSQL reads it, each element quoted.
#[derive(Debug, Default)]
struct Batch(String);

impl Batch {
    fn push(&mut self, element: &str) {
        self.0.push_str(if self.0.is_empty() { "{\"" } else { ",\"" });
        for character in element.chars() {
            if matches!(character, '"' | '\\') {
                self.0.push('\\');
            }
            self.0.push(character);
        }
        self.0.push('"');
    }

    fn bytes(&self) -> usize {
        self.0.len()
    }

    fn finish(mut self) -> String {
        self.0.push_str(if self.0.is_empty() { "{}" } else { "}" });
        self.0
    }
}

fn at<'a>(connections: &'a mut Connections<'_>, node: NodeId) -> &'a mut NodeConnection {
    connections.get_mut(&node).expect("the caller gives a connection to every node")
}

fn writes_rows(travel: &Travel) -> bool {
    !matches!(travel, Travel::Nothing | Travel::EmptyCopies | Travel::DropForeign { .. })
}

/// Which rows travel for a change from one placement to another.
fn travel(from: &PlacementKind, to: &PlacementKind, nodes: &[NodeId]) -> Travel {
    use PlacementKind::{Hash, Home, Replicated, RoundRobin};
    let spread = matches!(from, Hash { .. } | RoundRobin);
    let sources = if spread { nodes.to_vec() } else { vec![NodeId::HOME] };
    let empty_copies = *from == Home;
    match (from, to) {
        _ if from == to => Travel::Nothing,
        (Hash { .. } | RoundRobin, Home) => Travel::BringHome {
            sources: nodes.iter().copied().filter(|node| *node != NodeId::HOME).collect(),
        },
        (Replicated, Home) => Travel::EmptyCopies,
        (_, Home) | (Hash { .. }, RoundRobin) | (RoundRobin, RoundRobin) => Travel::Nothing,
        (Replicated, Hash { .. }) => Travel::DropForeign { target: to.clone() },
        (_, Hash { .. }) => Travel::SendForeign { sources, target: to.clone(), empty_copies },
        (_, Replicated) => Travel::CopyEverywhere { sources, empty_copies },
        (Home | Replicated, RoundRobin) => Travel::DealOut,
    }
}

/// A table that belongs to the one that was named.
struct Member {
    schema: String,
    name: String,
    partitioned: bool,
    /// Row security holds for its owner too.
    forced: bool,
}

/// The table with all its partitions and children; other sessions' temporary ones are not seen through it.
async fn read_family(
    home: &mut NodeConnection,
    relation: &Relation,
) -> Result<Vec<Member>, GatewayError> {
    let sql = format!(
        "WITH RECURSIVE family (oid) AS (
    SELECT {0}::pg_catalog.oid
    UNION SELECT h.inhrelid FROM family f JOIN pg_catalog.pg_inherits h ON h.inhparent OPERATOR(pg_catalog.=) f.oid
    JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) h.inhrelid AND (
        c.relpersistence OPERATOR(pg_catalog.<>) 't' OR c.relnamespace OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema())
)
SELECT n.nspname, c.relname, c.relkind,
    EXISTS (SELECT FROM pg_catalog.pg_inherits h WHERE h.inhrelid OPERATOR(pg_catalog.=) {0}::pg_catalog.oid),
    pg_catalog.pg_has_role(c.relowner, 'USAGE'), c.relpersistence OPERATOR(pg_catalog.=) 't',
    c.relrowsecurity AND c.relforcerowsecurity
FROM family f JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) f.oid
JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
ORDER BY c.oid OPERATOR(pg_catalog.=) {0}::pg_catalog.oid DESC, n.nspname, c.relname",
        relation.oid
    );
    let rows = home.rows(&sql).await?;
    let answer = Answer { node: home.node(), what: "a table's partitions", rows: &rows };
    let mut family = Vec::with_capacity(answer.len());
    for row in 0..answer.len() {
        let name = answer.text(row, 1)?.to_owned();
        if !answer.boolean(row, 4)? {
            return Err(Refusal::postgres("42501", format!("must be owner of table {name}")).into());
        }
        if answer.boolean(row, 3)? {
            return Err(Refusal::unsupported(
                format!("cannot redistribute \"{}\" alone", relation.name),
                "It is a partition or child of another table, whose rows must be on the same nodes.",
                "Name the topmost table; its partitions and children follow.",
            )
            .into());
        }
        let kind = answer.text(row, 2)?;
        if !matches!(kind, "r" | "p") {
            return Err(Refusal::unsupported(
                format!("cannot redistribute \"{}\"", relation.name),
                format!("Its partition \"{name}\" is a foreign table: its rows are on no node."),
                "Detach the foreign table first.",
            )
            .into());
        }
        if answer.boolean(row, 5)? {
            return Err(Refusal::unsupported(
                format!("cannot redistribute \"{}\"", relation.name),
                format!("Its child \"{name}\" is a temporary table, which is on node 1 alone."),
                "Drop the temporary table first.",
            )
            .into());
        }
        family.push(Member {
            schema: answer.text(row, 0)?.to_owned(),
            name,
            partitioned: kind == "p",
            forced: answer.boolean(row, 6)?,
        });
    }
    Ok(family)
}

fn lock_sql(table: &str) -> String {
    format!("LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
}

/// Whether any of these tables has rows on node 1. Requires: they are locked.
async fn has_rows(
    home: &mut NodeConnection,
    tables: &[Leaf],
    seals: &Seals,
) -> Result<bool, GatewayError> {
    for table in tables {
        let sql =
            format!("DECLARE {CURSOR} NO SCROLL CURSOR FOR SELECT NULL FROM ONLY {}", table.name);
        table.as_owner(home, &sql, "", seals).await?;
        let rows = home.rows(&format!("FETCH 1 FROM {CURSOR}")).await?;
        home.rows(&format!("CLOSE {CURSOR}")).await?;
        if !rows.rows.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether none of these tables has ever had a row since it was made or emptied, on node 1: for tables that
/// hide rows from the role that asks.
async fn has_no_pages(home: &mut NodeConnection, tables: &[Leaf]) -> Result<bool, GatewayError> {
    let names = tables.iter().map(|table| format!("({})", quote_literal(&table.name)));
    let sql = format!(
        "SELECT pg_catalog.bool_and(pg_catalog.pg_relation_size(t.name::pg_catalog.regclass)
    OPERATOR(pg_catalog.=) 0) FROM (VALUES {}) AS t (name)",
        names.collect::<Vec<_>>().join(", ")
    );
    let rows = home.rows(&sql).await?;
    Answer { node: home.node(), what: "whether a table has pages", rows: &rows }.boolean(0, 0)
}

/// Triggers and rules that fire in replicas too would fire for rows that only travel.
async fn what_fires(
    home: &mut NodeConnection,
    relation: &Relation,
    family: &[Registration],
) -> Result<Option<Refusal>, GatewayError> {
    let name = |table: &Registration| {
        let (schema, table) = (quote_identifier(&table.schema), quote_identifier(&table.table));
        quote_literal(&format!("{schema}.{table}"))
    };
    let family: Vec<_> = family.iter().map(name).collect();
    let sql = format!(
        "WITH family (oid) AS (SELECT pg_catalog.unnest(ARRAY[{}])::pg_catalog.regclass::pg_catalog.oid)
SELECT pg_catalog.format('trigger \"%s\"', t.tgname), t.tgrelid::pg_catalog.regclass::pg_catalog.text,
    CASE WHEN t.tgenabled OPERATOR(pg_catalog.=) 'A' THEN 'ALWAYS' ELSE 'REPLICA' END
FROM family f JOIN pg_catalog.pg_trigger t ON t.tgrelid OPERATOR(pg_catalog.=) f.oid
WHERE NOT t.tgisinternal AND t.tgenabled OPERATOR(pg_catalog.=) ANY ('{{A,R}}')
UNION ALL SELECT pg_catalog.format('rule \"%s\"', r.rulename),
    r.ev_class::pg_catalog.regclass::pg_catalog.text,
    CASE WHEN r.ev_enabled OPERATOR(pg_catalog.=) 'A' THEN 'ALWAYS' ELSE 'REPLICA' END
FROM family f JOIN pg_catalog.pg_rewrite r ON r.ev_class OPERATOR(pg_catalog.=) f.oid
WHERE r.ev_type OPERATOR(pg_catalog.<>) '1' AND r.ev_enabled OPERATOR(pg_catalog.=) ANY ('{{A,R}}') ORDER BY 2, 1",
        family.join(", ")
    );
    let rows = home.rows(&sql).await?;
    let answer = Answer { node: home.node(), what: "triggers that fire always", rows: &rows };
    if answer.is_empty() {
        return Ok(None);
    }
    let (what, of, when) = (answer.text(0, 0)?, answer.text(0, 1)?, answer.text(0, 2)?);
    Ok(Some(Refusal::unsupported(
        format!("cannot redistribute \"{}\"", relation.name),
        format!("The {what} of {of} is ENABLE {when}: it would fire for rows that only travel."),
        "ALTER TABLE … DISABLE it, redistribute the table, and ENABLE it as it was, in one transaction.",
    )))
}

async fn set_for_travel(connection: &mut NodeConnection, table: &str) -> Result<(), GatewayError> {
    let set = TRAVEL_SETTINGS.iter().map(|(name, value)| {
        format!(
            "SELECT pg_catalog.set_config('tutti.saved_{name}', \
             pg_catalog.current_setting('{name}'), true), \
             pg_catalog.set_config('{name}', '{value}', true);\n"
        )
    });
    match connection.query(&set.collect::<String>()).await {
        Ok(_) => Ok(()),
        Err(NodeError::Refused(fields)) if fields.sqlstate() == "42501" => {
            Err(Refusal::unsupported(
                format!("only a superuser can redistribute table {table}"),
                "Rows move between nodes with triggers and foreign keys off, which takes the right \
                 to set session_replication_role.",
                "Connect as a superuser, or GRANT SET ON PARAMETER session_replication_role on every \
                 node.",
            )
            .into())
        }
        Err(error) => Err(error.into()),
    }
}

fn restore_settings() -> String {
    let restore = TRAVEL_SETTINGS.iter().map(|(name, _)| {
        format!(
            "SELECT pg_catalog.set_config('{name}', \
             pg_catalog.current_setting('tutti.saved_{name}'), true);\n"
        )
    });
    restore.collect()
}

#[cfg(test)]
mod tests {
    use tutti_sql::hash::KeyType;

    use super::*;

    #[test]
    fn array_elements_are_quoted_as_postgresql_reads_them() {
        let mut batch = Batch::default();
        assert_eq!(std::mem::take(&mut batch).finish(), "{}");
        batch.push("(1,\"a\\b\")");
        batch.push("()");
        assert_eq!(batch.finish(), r#"{"(1,\"a\\b\")","()"}"#);
    }

    #[test]
    fn rows_travel_only_as_far_as_they_must() {
        let nodes = [NodeId(1), NodeId(2)];
        let by_a = PlacementKind::hash("a".to_owned(), KeyType::Int4);
        let by_b = PlacementKind::hash("b".to_owned(), KeyType::Int4);
        let way = |from: &PlacementKind, to: &PlacementKind| travel(from, to, &nodes);
        assert_eq!(way(&by_a, &by_a), Travel::Nothing);
        assert_eq!(way(&by_a, &PlacementKind::RoundRobin), Travel::Nothing);
        assert_eq!(way(&PlacementKind::Replicated, &PlacementKind::RoundRobin), Travel::DealOut);
        assert_eq!(
            way(&PlacementKind::Replicated, &by_a),
            Travel::DropForeign { target: by_a.clone() }
        );
        assert_eq!(
            way(&by_a, &by_b),
            Travel::SendForeign { sources: nodes.to_vec(), target: by_b, empty_copies: false }
        );
        assert_eq!(
            way(&PlacementKind::Home, &PlacementKind::Replicated),
            Travel::CopyEverywhere { sources: vec![NodeId(1)], empty_copies: true }
        );
    }
}
