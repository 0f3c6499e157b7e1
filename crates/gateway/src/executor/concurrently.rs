//! CREATE INDEX CONCURRENTLY and DROP INDEX CONCURRENTLY on several nodes.
//!
//! Owns: the order of nodes, the name of an index that has none, and what the client is told where only some nodes have
//! done it.
//! Never: is part of a transaction.
//! Start reading at [`Executor::concurrently`].
//!
//! Node after node, for each waits for transactions that are open there, and one that waits on two nodes could wait in a
//! circle. An index is made on node 1 first and dropped there last: node 1 sees every write of a replicated table before
//! the others do, so what a unique index refuses or skips there, they are never sent. No answer depends on an index, and a
//! unique one is nothing that a plan relies on; so that only some nodes have it is no damage, and it is up to the client
//! what becomes of that.

use tutti_link::seals::Warranted;
use tutti_sql::catalog::{NodeId, quote_identifier, quote_literal};
use tutti_sql::plan::{Access, AddedIndex, ConcurrentIndex, DroppedIndex, IndexName};
use tutti_sql::planner::index_name;
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::sqlstate;

use super::ddl::is_unknown_name;
use super::relay::{Filter, relay};
use crate::client::failure::Failure;
use crate::executor::Executor;
use crate::plans::request::{Call, Done};

/// How many names are asked for at once, when one is chosen.
const NAMES: usize = 20;

/// What a node says of an index.
struct Found {
    is_valid: bool,
    /// `CREATE INDEX …` as the node writes it.
    definition: String,
}

impl Executor<'_> {
    pub(super) async fn concurrently(
        &mut self,
        index: &ConcurrentIndex,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        if self.tx.transaction.is_open() {
            // Node 1 words the refusal.
            return self.run_on_one(NodeId::HOME, Access::Write, text, call).await;
        }
        // It cannot be run again, for it commits on its way: so it depends on nothing that others change, but on locks.
        self.tx.activity.plan.end();
        // Whether it ends well or not.
        self.tx.note_schema();
        match index {
            ConcurrentIndex::Added(added) => self.add_index(added, text).await,
            ConcurrentIndex::Dropped(dropped) => self.drop_index(dropped, text, call).await,
        }
    }

    async fn add_index(&mut self, added: &AddedIndex, text: &str) -> Result<Done, Failure> {
        let (name, text) = match &added.name {
            IndexName::Written(name) => (name.clone(), text.to_owned()),
            IndexName::Unnamed(unnamed) => {
                let name = self.free_name(added, &unnamed.table, &unnamed.columns).await?;
                let text =
                    format!("{}{}{}", unnamed.before, quote_identifier(&name), unnamed.behind);
                (name, text)
            }
        };
        let was_there = self.index_on(NodeId::HOME, added, &name).await?.is_some();
        let answer = self.forward(NodeId::HOME, Access::Write, &text, &Call::Simple, false).await;
        let answer = match &added.name {
            IndexName::Written(_) => answer?,
            IndexName::Unnamed(_) => answer.map_err(Failure::without_position)?,
        };
        let found = self.index_on(NodeId::HOME, added, &name).await?;
        let Some(found) = found else {
            return match added.if_not_exists {
                // Something else is called so.
                true => Ok(Done::Tag(answer.tag)),
                false => Err(gone_meanwhile(&name, true)),
            };
        };
        if !found.is_valid {
            let warning = format!("index \"{name}\" is invalid on node {}", NodeId::HOME);
            let warning = ErrorFields::with_severity("WARNING", "01000", warning)
                .with(b'D', "Nothing was done on other nodes.")
                .with(b'H', format!("{} Then create it again.", drops_everywhere(added, &name)));
            self.client.put_notice(&warning);
            return Ok(Done::Tag(answer.tag));
        }
        let (schema, table) = (quote_identifier(&added.schema), quote_identifier(&added.table));
        let is_held = self.hold_table(&format!("{schema}.{table}")).await.map_err(|failure| {
            let next = self.other_nodes().first().copied().unwrap_or(NodeId::HOME);
            half_made(failure, added, &name, &[NodeId::HOME], next)
        })?;
        // It may have been dropped, or called otherwise, before the table was held.
        let mut done = vec![NodeId::HOME];
        let mut failed = None;
        if let Some(found) = self.index_on(NodeId::HOME, added, &name).await? {
            for node in self.other_nodes() {
                match self.add_index_on(node, added, &name, &found.definition).await {
                    Ok(()) => done.push(node),
                    Err(failure) => {
                        failed = Some((node, failure));
                        break;
                    }
                }
            }
        }
        let is_kept = self.index_on(NodeId::HOME, added, &name).await?.is_some();
        self.let_table_go(is_held).await?;
        match failed {
            None if is_kept => Ok(Done::Tag(answer.tag)),
            None => Err(gone_meanwhile(&name, done.len() == 1)),
            Some((_, Failure::Statement(error)))
                if !was_there && is_unknown_name(error.sqlstate()) =>
            {
                let lacks = error.message().to_owned();
                Err(self.undo_for_lack(added, &name, &done, &lacks).await?)
            }
            Some((node, failure)) => Err(half_made(failure, added, &name, &done, node)),
        }
    }

    /// Until [`Self::let_table_go`] no index of the table is made or dropped, for all that would begins on node 1. False:
    /// it cannot be held.
    async fn hold_table(&mut self, table: &str) -> Result<bool, Failure> {
        let sql = format!(
            "BEGIN; SET LOCAL idle_in_transaction_session_timeout = 0; \
             LOCK TABLE {table} IN SHARE UPDATE EXCLUSIVE MODE"
        );
        let link = self.tx.enlist(NodeId::HOME, Access::Write).await?;
        let Err(error) = link.query(&sql).await else { return Ok(true) };
        if !link.is_broken() {
            link.query("ROLLBACK").await?;
        }
        match Failure::from(error).without_position() {
            // A view's rows that are stored; or an owner who may neither change nor empty the table.
            Failure::Statement(error) if matches!(error.sqlstate(), "42809" | "42501") => Ok(false),
            failure => Err(failure),
        }
    }

    async fn let_table_go(&mut self, is_held: bool) -> Result<(), Failure> {
        if is_held {
            self.tx.enlist(NodeId::HOME, Access::Write).await?.query("COMMIT").await?;
        }
        Ok(())
    }

    /// On a node that may have it already, or what is left of an attempt.
    async fn add_index_on(
        &mut self,
        node: NodeId,
        added: &AddedIndex,
        name: &str,
        definition: &str,
    ) -> Result<(), Failure> {
        let found = self.index_on(node, added, name).await?;
        if added.if_not_exists {
            match found {
                Some(Found { is_valid: true, definition: there }) if there == definition => {
                    return Ok(());
                }
                Some(Found { is_valid: true, .. }) => {
                    return Err(ErrorFields::error(
                        "42P07",
                        format!("relation \"{name}\" is another index on node {node}"),
                    )
                    .into());
                }
                Some(Found { is_valid: false, .. }) => {
                    let drop = drop_sql(&added.schema, name);
                    self.alone_on(node, Warranted::DropIndex, &drop).await?;
                }
                None => (),
            }
        }
        let (kind, rest) = match definition.strip_prefix("CREATE UNIQUE INDEX ") {
            Some(rest) => ("CREATE UNIQUE INDEX", rest),
            None => ("CREATE INDEX", definition.strip_prefix("CREATE INDEX ").unwrap_or_default()),
        };
        let create = format!("{kind} CONCURRENTLY {rest}");
        self.alone_on(node, Warranted::CreateIndex, &create).await
    }

    /// What other nodes lack of it would have to be made there first, in a transaction: the index goes again.
    async fn undo_for_lack(
        &mut self,
        added: &AddedIndex,
        name: &str,
        done: &[NodeId],
        lacks: &str,
    ) -> Result<Failure, Failure> {
        for node in done {
            self.alone_on(*node, Warranted::DropIndex, &drop_sql(&added.schema, name)).await?;
        }
        Ok(Failure::unsupported(
            format!("index \"{name}\" cannot be made concurrently"),
            format!(
                "Other nodes lack what it needs ({lacks}), which would have to be brought there in one \
                 transaction with it."
            ),
            "Leave CONCURRENTLY out.",
        ))
    }

    /// What PostgreSQL would call it, if that is free on all nodes.
    async fn free_name(
        &mut self,
        added: &AddedIndex,
        table: &str,
        columns: &str,
    ) -> Result<String, Failure> {
        let mut numbers = 0_usize..;
        loop {
            let label = |number| match number {
                0 => "idx".to_owned(),
                number => format!("idx{number}"),
            };
            let mut names: Vec<_> = numbers
                .by_ref()
                .take(NAMES)
                .map(|number| index_name(table, columns, &label(number)))
                .collect();
            let literals: Vec<_> = names.iter().map(|name| quote_literal(name)).collect();
            let sql = format!(
                "SELECT c.relname FROM pg_catalog.pg_class c
                 JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
                 WHERE n.nspname OPERATOR(pg_catalog.=) {}::pg_catalog.name
                     AND c.relname OPERATOR(pg_catalog.=) ANY (ARRAY[{}]::pg_catalog.name[])",
                quote_literal(&added.schema),
                literals.join(", ")
            );
            for node in self.tx.catalog.nodes.clone() {
                let rows = self.tx.enlist(node, Access::Read).await?.query(&sql).await?;
                let taken = rows.first().map_or(0, |rows| rows.rows.len());
                let taken: Vec<_> = (0..taken).filter_map(|row| rows[0].text(row, 0)).collect();
                names.retain(|name| !taken.contains(&name.as_str()));
            }
            if let Some(name) = names.into_iter().next() {
                return Ok(name);
            }
        }
    }

    /// An index of this table, if the node has it.
    async fn index_on(
        &mut self,
        node: NodeId,
        added: &AddedIndex,
        name: &str,
    ) -> Result<Option<Found>, Failure> {
        let sql = format!(
            "SELECT i.indisvalid, pg_catalog.pg_get_indexdef(i.indexrelid) FROM pg_catalog.pg_index i
             JOIN pg_catalog.pg_class x ON x.oid OPERATOR(pg_catalog.=) i.indexrelid
             JOIN pg_catalog.pg_class t ON t.oid OPERATOR(pg_catalog.=) i.indrelid
             JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) t.relnamespace
             WHERE n.nspname OPERATOR(pg_catalog.=) {}::pg_catalog.name
                 AND t.relname OPERATOR(pg_catalog.=) {}::pg_catalog.name
                 AND x.relname OPERATOR(pg_catalog.=) {}::pg_catalog.name",
            quote_literal(&added.schema),
            quote_literal(&added.table),
            quote_literal(name)
        );
        let rows = self.tx.enlist(node, Access::Read).await?.query(&sql).await?;
        let Some(rows) = rows.first() else { return Ok(None) };
        Ok(match (rows.text(0, 0), rows.text(0, 1)) {
            (Some(is_valid), Some(definition)) => {
                Some(Found { is_valid: is_valid == "t", definition: definition.to_owned() })
            }
            _ => None,
        })
    }

    async fn drop_index(
        &mut self,
        dropped: &DroppedIndex,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        let Some(name) = &dropped.name else {
            return self.run_on_one(NodeId::HOME, Access::Write, text, call).await;
        };
        let sql = format!(
            "SELECT n.nspname, c.relname, coalesce(p.kind, 'home'), i.indrelid::pg_catalog.regclass,
                 c.relpersistence
             FROM pg_catalog.pg_class c
             JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
             LEFT JOIN pg_catalog.pg_index i ON i.indexrelid OPERATOR(pg_catalog.=) c.oid
             LEFT JOIN tutti.placements p ON p.relation OPERATOR(pg_catalog.=) i.indrelid
                 AND p.kind OPERATOR(pg_catalog.<>) 'home'
             WHERE c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass({})",
            quote_literal(name)
        );
        let home_by_default = self.tx.catalog.home_by_default;
        let rows = self.tx.enlist(NodeId::HOME, Access::Read).await?.query(&sql).await?;
        let row = rows.first().filter(|rows| !rows.rows.is_empty());
        let spread = match row {
            // It may be that a node has what is left of it.
            None if dropped.if_exists => Some(name.clone()),
            None => None,
            Some(row) => match (row.text(0, 0), row.text(0, 1), row.text(0, 2)) {
                _ if row.text(0, 4) == Some("t") => None,
                (_, _, Some("home")) if home_by_default => None,
                (Some(schema), Some(index), Some(kind)) => {
                    if self.is_global_unique(name).await? {
                        return Err(Failure::unsupported(
                            format!("index {index} cannot be dropped CONCURRENTLY"),
                            "It is unique over all nodes: what keeps it is dropped with it, in one transaction.",
                            "Leave CONCURRENTLY out.",
                        ));
                    }
                    if kind.starts_with("async") {
                        return Err(Failure::unsupported(
                            format!(
                                "DROP INDEX CONCURRENTLY is not supported for indexes of {}",
                                row.text(0, 3).unwrap_or_default()
                            ),
                            "The table is replicated asynchronously.",
                            "Leave CONCURRENTLY out.",
                        ));
                    }
                    Some(format!("{}.{}", quote_identifier(schema), quote_identifier(index)))
                }
                _ => None,
            },
        };
        let table = row.and_then(|row| row.text(0, 3)).map(str::to_owned);
        let Some(index) = spread else {
            return self.run_on_one(NodeId::HOME, Access::Write, text, call).await;
        };
        let is_held = match table {
            Some(table) => self.hold_table(&table).await?,
            None => false,
        };
        let dropped = self.drop_on_others(&index).await;
        self.let_table_go(is_held).await?;
        dropped?;
        let done = self.run_on_one(NodeId::HOME, Access::Write, text, call).await?;
        // Who was making it meanwhile may have gone on from node 1 to the others.
        self.drop_on_others(&index).await?;
        Ok(done)
    }

    /// Whether an index that is there holds over all nodes by entries of its own.
    async fn is_global_unique(&mut self, name: &str) -> Result<bool, Failure> {
        if !self.tx.catalog.has_kept {
            return Ok(false);
        }
        let sql = format!(
            "SELECT FROM tutti.unique_index u WHERE u.index OPERATOR(pg_catalog.=) pg_catalog.to_regclass({})::pg_catalog.oid",
            quote_literal(name)
        );
        let rows = self.tx.enlist(NodeId::HOME, Access::Read).await?.query(&sql).await?;
        Ok(rows.first().is_some_and(|rows| !rows.rows.is_empty()))
    }

    async fn drop_on_others(&mut self, index: &str) -> Result<(), Failure> {
        let sql = format!("DROP INDEX CONCURRENTLY IF EXISTS {index}");
        let mut done = Vec::new();
        for node in self.other_nodes() {
            if let Err(failure) = self.alone_on(node, Warranted::DropIndex, &sql).await {
                return Err(half_dropped(failure, &done, node));
            }
            done.push(node);
        }
        Ok(())
    }

    /// A statement that commits by itself, of whose answer the client sees nothing but an error.
    async fn alone_on(
        &mut self,
        node: NodeId,
        command: Warranted,
        text: &str,
    ) -> Result<(), Failure> {
        let link = self.tx.enlist(node, Access::Write).await?;
        link.put_lone_warrant(command);
        Call::Simple.put(link, text);
        link.connection().flush().await?;
        let link = self.tx.links.at(&node);
        let ran = relay(self.client, link, Filter::discard(&Call::Simple)).await;
        let ran = ran.map_err(Failure::without_position);
        if node != NodeId::HOME && !link.is_broken() {
            let ended = link.query("SELECT tutti.end_warrants()").await;
            ran?;
            ended?;
            return Ok(());
        }
        ran.map(drop)
    }
}

fn drop_sql(schema: &str, index: &str) -> String {
    let (schema, index) = (quote_identifier(schema), quote_identifier(index));
    format!("DROP INDEX CONCURRENTLY IF EXISTS {schema}.{index}")
}

fn drops_everywhere(added: &AddedIndex, name: &str) -> String {
    format!("{} removes it from all nodes.", drop_sql(&added.schema, name))
}

/// Another session has dropped the index of node 1, or given it another name.
fn gone_meanwhile(name: &str, on_node_1_alone: bool) -> Failure {
    let detail = match on_node_1_alone {
        true => "Nothing was done on other nodes.",
        false => "Other nodes have it by the name that it had.",
    };
    ErrorFields::error(
        sqlstate::SERIALIZATION_FAILURE,
        format!("index \"{name}\" was dropped or renamed while it was made"),
    )
    .with(b'D', detail)
    .with(b'H', "Drop it on all nodes, by each of its names, and create it again.")
    .into()
}

/// A failure on one node after others have made the index.
fn half_made(
    failure: Failure,
    added: &AddedIndex,
    name: &str,
    done: &[NodeId],
    node: NodeId,
) -> Failure {
    let is = format!(
        "Index \"{name}\" is complete on {}; on {node} it is missing or invalid.",
        listed(done)
    );
    let hint = format!(
        "CREATE INDEX CONCURRENTLY IF NOT EXISTS of this name completes it; {}",
        drops_everywhere(added, name)
    );
    with_state(failure, &is, &hint)
}

fn half_dropped(failure: Failure, done: &[NodeId], node: NodeId) -> Failure {
    let gone = match done {
        // Of these, nothing has been done.
        [] if matches!(&failure, Failure::Statement(error)
            if ["42", "2B", "0A"].iter().any(|class| error.sqlstate().starts_with(class))) =>
        {
            return failure;
        }
        [] => "No node has dropped the index".to_owned(),
        done => format!("The index is gone on {}", listed(done)),
    };
    let is = format!("{gone}; on {node} it may be there still, perhaps invalid.");
    with_state(failure, &is, "The same statement once more completes it.")
}

fn listed(nodes: &[NodeId]) -> String {
    nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The same error, which also says what is where.
fn with_state(failure: Failure, is: &str, hint: &str) -> Failure {
    let Failure::Statement(mut error) = failure else { return failure };
    let mut detail = None;
    error.fields.retain(|(code, text)| {
        if *code == b'D' {
            detail = Some(text.clone());
        }
        !b"DH".contains(code)
    });
    let detail = detail.map_or_else(|| is.to_owned(), |first| format!("{first}\n{is}"));
    Failure::Statement(Box::new(error.with(b'D', detail).with(b'H', hint)))
}
