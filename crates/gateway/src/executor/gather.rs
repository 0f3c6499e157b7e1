//! Bringing rows of several nodes to one.
//!
//! Owns: passing collected rows to the final statement, as parameters.
//! Never: looks into a client's row; of what nodes have aggregated it reads the types, for only some may travel.

use std::borrow::Cow;
use std::time::Instant;

use bytes::Bytes;
use tutti_sql::catalog::NodeId;
use tutti_sql::plan::{
    Access, Brought, Collect, Gather, InTables, Partial, Piece, RowsTable, RunOn, Template,
};
use tutti_sql::planner::{is_read_alike, refuse_types};

use super::array_literal::ArrayText;
use super::collect::{Collected, Overflow};
use super::estimate::{Sizes, Way};
use super::fan_out::{Answers, SnapshotNeed, read_rows};
use super::filled::{
    Times, fill_template, fill_template_with_literals, of_node, takes_no_parameters,
};
use super::plan_tree::Measured;
use super::receiver::{Receiver, Reception};
use crate::client::failure::Failure;
use crate::executor::Executor;
use crate::plans::request::{Call, Done, IssuedBy, Rows, too_large};

/// From how many bytes of rows on tables with indexes are made of them: that costs a few milliseconds.
const TABLES_BYTES_MIN: usize = 64 << 10;
/// More bytes of rows are not brought to every node, where they can be passed on to one as they come.
const BROUGHT_BYTES_MAX: usize = 48 << 20;
/// More bytes of what nodes have computed are not put together, likewise: each value takes several times its size.
const PARTS_BYTES_MAX: usize = 16 << 20;
/// Prefix of the settings that hold rows for a command without parameters.
const ROWS_SETTING: &str = "tutti.rows_";

/// Rows of one node, as text.
type SaidRows = Vec<Vec<Option<Bytes>>>;

/// A statement with the call that has the rows it needs.
pub(super) enum Filled<'p> {
    /// Every node runs it, and answers are concatenated.
    OnEach(String, Call),
    /// The same with a text for each node.
    OfNodes(Vec<(NodeId, String)>, Call),
    /// It runs where the plan says.
    Finally(String, Call),
    /// It runs where the rows are already.
    Received(Receiver<'p>, String, Call),
}

impl Executor<'_> {
    /// An error's position is left out: it would count in a text that the client does not know.
    pub(super) async fn gather(&mut self, gather: &Gather, call: &Call) -> Result<Done, Failure> {
        self.run_gather(gather, call).await.map_err(Failure::without_position)
    }

    async fn run_gather(&mut self, gather: &Gather, call: &Call) -> Result<Done, Failure> {
        if let Some(first) = &gather.first
            && let Some(done) = self.run_computed_first(first, call).await?
        {
            return Ok(done);
        }
        match self.fill_way(gather, call).await? {
            Filled::OnEach(text, call) => self.run_on_each(gather.access, &text, &call).await,
            Filled::OfNodes(texts, call) => {
                let texts: Vec<_> =
                    texts.iter().map(|(node, text)| (*node, text.as_str())).collect();
                self.run_texts(&texts, gather.access, SnapshotNeed::Rows, &call).await
            }
            Filled::Received(receiver, text, call) => {
                self.run_on_receiver(receiver, &text, &call).await
            }
            Filled::Finally(text, call) => match &gather.run_on {
                RunOn::One(choice) => {
                    let node = self.choose(choice, &call).unwrap_or(NodeId::HOME);
                    self.run_on_one(node, gather.access, &text, &call).await
                }
                RunOn::EachNode => self.run_on_each(gather.access, &text, &call).await,
                RunOn::Replicas { locks, rows } => {
                    self.write_replicas(locks, rows, &text, &call).await
                }
                RunOn::Rows(rows) => self.write_by_row(rows, &text, &call).await,
            },
        }
    }

    /// Brings together what the way that is taken asks for.
    pub(super) async fn fill_way<'p>(
        &mut self,
        gather: &'p Gather,
        call: &Call,
    ) -> Result<Filled<'p>, Failure> {
        let mut way = match &gather.partial {
            Some(_) => Way::gathering(),
            None => self.least_moving(gather, call).await?,
        };
        // Where the rest can be passed on as it comes, no more is kept than this.
        // What is explained is explained with all its rows.
        let reception = self.reception_of(gather).filter(|_| self.exchanges.is_none());
        let gives_up = self.drawn("gives up", &gather.statement, 6) == Some(0);
        let most_kept = if gives_up { 1 } else { self.travelling_bytes_max() };
        let most = |bytes: usize| reception.map(|_| bytes.min(most_kept));
        let (most_brought, most_of_parts) = (most(BROUGHT_BYTES_MAX), most(PARTS_BYTES_MAX));
        if let Some(Brought::Rows { collects, statement }) = way.brought
            && call.can_carry(collects.len())
        {
            let times = self.times_for(templates(collects, [statement])).await?;
            let mut overflow = Overflow::giving_up(most_brought);
            let sizes = way.sizes.take();
            let rows = self.collect(collects, sizes, &times, call, &mut overflow).await?;
            if !overflow.has_given_up {
                let text = fill_template(statement, call, &times);
                let call = call.carrying(self.rows_of(&rows), self.travelling_bytes_max())?;
                return Ok(Filled::OnEach(text, call));
            }
        }
        if gather.statement.is_of_node() {
            return self.fill_for_nodes(gather, call).await;
        }
        let (partial, of_partial, of_gather) = match way.brought {
            Some(Brought::Parts(partial)) => (Some(partial), way.sizes, None),
            Some(Brought::Rows { .. }) => (None, None, None),
            None => {
                let passed_over = self.drawn("parts", &gather.statement, 5) == Some(0);
                (gather.partial.as_ref().filter(|_| !passed_over), None, way.sizes)
            }
        };
        if let Some(partial) = partial
            && let Some((text, call)) =
                self.fill_partial(partial, of_partial, (most_brought, most_of_parts), call).await?
        {
            return Ok(Filled::Finally(text, call));
        }
        self.fill_sized(gather, of_gather, reception, call).await
    }

    /// Collects what `gather` asks for and returns the final statement, and the call that has the rows, or where they are.
    pub(super) async fn fill<'p>(
        &mut self,
        gather: &'p Gather,
        reception: Option<Reception<'p>>,
        call: &Call,
    ) -> Result<Filled<'p>, Failure> {
        self.fill_sized(gather, None, reception, call).await
    }

    /// The same where it is known how many rows each collect is expected to give.
    async fn fill_sized<'p>(
        &mut self,
        gather: &'p Gather,
        sizes: Option<Vec<Sizes>>,
        reception: Option<Reception<'p>>,
        call: &Call,
    ) -> Result<Filled<'p>, Failure> {
        let writes_on_several =
            gather.access == Access::Write && !matches!(gather.run_on, RunOn::One(_));
        if writes_on_several || gather.locks_rows() {
            self.need_transaction();
        }
        let times = self.times_for(templates(&gather.collects, [&gather.statement])).await?;
        let mut overflow = Overflow::to(reception);
        let collected = self.collect(&gather.collects, sizes, &times, call, &mut overflow).await?;
        if let (Some(mut receiver), Some(in_tables)) = (overflow.receiver, &gather.in_tables) {
            for (table, rows) in collected.into_iter().enumerate() {
                if let Collected::Same(rows) = rows {
                    receiver.take_kept(table, &rows).await?;
                }
            }
            receiver.finish().await?;
            let text = fill_template(&in_tables.statement, call, &times);
            let call = self.with_age_check(gather, call)?;
            return Ok(Filled::Received(receiver, text, call));
        }
        if let (Some(in_tables), RunOn::One(choice)) = (&gather.in_tables, &gather.run_on)
            && in_tables.looks_up
            && self.tx.transaction.is_of_one_read
        {
            let node = self.choose(choice, call).unwrap_or(NodeId::HOME);
            let rows = all_of(&collected, node);
            if self.are_worth_tables(in_tables, &rows)
                && let Some(text) = self.fill_tables(node, in_tables, &rows, &times, call).await?
            {
                return Ok(Filled::Finally(text, self.with_age_check(gather, call)?));
            }
        }
        let is_settled = takes_no_parameters(&gather.statement)
            || (!call.can_carry(collected.len()) && matches!(gather.run_on, RunOn::One(_)));
        if is_settled {
            let (text, call) = self.fill_settings(gather, &collected, &times, call).await?;
            return Ok(Filled::Finally(text, call));
        }
        let call = &*call.with_room(&gather.statement, collected.len())?;
        let text = fill_template(&gather.statement, call, &times);
        let bytes_max = self.travelling_bytes_max();
        Ok(Filled::Finally(text, call.carrying(self.rows_of(&collected), bytes_max)?))
    }

    /// The call for a final statement that has its rows already: by the extended protocol, if it can be, for only there a
    /// check of how old its snapshot is goes before it.
    fn with_age_check(&self, gather: &Gather, call: &Call) -> Result<Call, Failure> {
        match takes_no_parameters(&gather.statement) {
            true => Ok(call.clone()),
            false => call.carrying(Rows::Everywhere(Vec::new()), self.travelling_bytes_max()),
        }
    }

    /// The same where each node gets a statement of its own.
    async fn fill_for_nodes<'p>(
        &mut self,
        gather: &Gather,
        call: &Call,
    ) -> Result<Filled<'p>, Failure> {
        if gather.access == Access::Write {
            self.need_transaction();
        }
        let times = self.times_for(templates(&gather.collects, [&gather.statement])).await?;
        let mut overflow = Overflow::refused();
        let collected = self.collect(&gather.collects, None, &times, call, &mut overflow).await?;
        let call = &*call.with_room(&gather.statement, collected.len())?;
        let nodes = self.tx.catalog.nodes.clone();
        let text = |node| {
            let template = of_node(&gather.statement, node, &self.tx.catalog);
            (node, fill_template(&template, call, &times))
        };
        let texts = nodes.into_iter().map(text).collect();
        let bytes_max = self.travelling_bytes_max();
        Ok(Filled::OfNodes(texts, call.carrying(self.rows_of(&collected), bytes_max)?))
    }

    fn are_worth_tables(&self, in_tables: &InTables, collected: &[Bytes]) -> bool {
        let bytes_min = match self.drawn("tables", &in_tables.statement, 3) {
            Some(0 | 1) => 0,
            _ => TABLES_BYTES_MIN,
        };
        bytes_min <= collected.iter().map(Bytes::len).sum()
    }

    /// Puts the rows into temporary tables of the transaction's on `node`, and returns the statement over them; `None`
    /// if the session may have none.
    async fn fill_tables(
        &mut self,
        node: NodeId,
        in_tables: &InTables,
        collected: &[Bytes],
        times: &Times,
        call: &Call,
    ) -> Result<Option<String>, Failure> {
        if self.tx.bindings.contains_key(&node) {
            // The session keeps this connection, and would see its schema of temporary objects.
            return Ok(None);
        }
        // A trigger would take them for something of the client's.
        const MAY: &str = "SELECT pg_catalog.has_database_privilege(pg_catalog.current_database(), 'TEMPORARY') \
             AND pg_catalog.current_setting('transaction_read_only') OPERATOR(pg_catalog.=) 'off' \
             AND NOT EXISTS (SELECT FROM pg_catalog.pg_event_trigger \
                 WHERE evtenabled OPERATOR(pg_catalog.<>) 'D')";
        let may = self.internal_rows(node, Access::Read, MAY, &Call::Simple).await?;
        if may.first().and_then(|row| row.first()?.as_deref()) != Some(b"t") {
            return Ok(None);
        }
        self.tx.links.at(&node).has_had_tables = true;
        let bytes_max = self.travelling_bytes_max();
        for (RowsTable { create, .. }, rows) in in_tables.tables.iter().zip(collected) {
            let call = Call::Simple.carrying(Rows::Everywhere(vec![rows.clone()]), bytes_max)?;
            let sql = fill_template(create, &Call::Simple, times);
            self.internal_rows(node, Access::Read, &sql, &call).await?;
        }
        for sql in &in_tables.prepare {
            self.internal_rows(node, Access::Read, sql, &Call::Simple).await?;
        }
        Ok(Some(fill_template(&in_tables.statement, call, times)))
    }

    /// The final statement over what each node has aggregated, and the call that has the values; `None` if these may
    /// not travel, for their types' sake, or if there is no room for them.
    async fn fill_partial(
        &mut self,
        partial: &Partial,
        sizes: Option<Vec<Sizes>>,
        (most_brought, most_of_parts): (Option<usize>, Option<usize>),
        call: &Call,
    ) -> Result<Option<(String, Call)>, Failure> {
        let (width, brought) = (partial.width(), partial.collects.len());
        let is_zero = |limit| call.is_zero(limit);
        if !call.can_carry(brought + width)
            || partial.all().filter_map(|parts| parts.limit).any(is_zero)
        {
            return Ok(None);
        }
        let all: Vec<&Partial> = partial.all().collect();
        let mut of_parts: Vec<_> = all.iter().map(|parts| &parts.select).collect();
        of_parts.push(&partial.statement);
        let times = self.times_for(templates(&partial.collects, of_parts)).await?;
        let bytes_max = self.travelling_bytes_max();
        let asking = match brought {
            0 => Cow::Borrowed(call),
            _ => {
                let mut overflow = Overflow::giving_up(most_brought);
                let rows =
                    self.collect(&partial.collects, sizes, &times, call, &mut overflow).await?;
                if overflow.has_given_up {
                    return Ok(None);
                }
                Cow::Owned(call.carrying(self.rows_of(&rows), bytes_max)?)
            }
        };
        // The final statement has the nodes' queries for their types alone.
        let mut arrays: Vec<_> = std::iter::repeat_with(ArrayText::default).take(brought).collect();
        for parts in all {
            let said = self.said_in_parts(parts, &times, most_of_parts, &asking).await?;
            let Some(said) = said.and_then(|said| values_of(parts, &said)) else { return Ok(None) };
            arrays.extend(said);
        }
        drop(asking);
        let values: Vec<Bytes> = arrays.into_iter().map(ArrayText::into_bytes).collect();
        if takes_no_parameters(&partial.statement) {
            let text = fill_template_with_literals(&partial.statement, &values, &times);
            return Ok(Some((text, call.clone())));
        }
        let text = fill_template(&partial.statement, call, &times);
        Ok(Some((text, call.carrying(Rows::Everywhere(values), bytes_max)?)))
    }

    /// The final statement over what nodes can say in parts, and its call, for what is not carried out as a query is; `None`
    /// where its rows are to be gathered.
    pub(super) async fn fill_parts(
        &mut self,
        gather: &Gather,
        call: &Call,
    ) -> Result<Option<(String, Call)>, Failure> {
        match &gather.partial {
            Some(partial) => {
                let most = (None, Some(PARTS_BYTES_MAX));
                self.fill_partial(partial, None, most, call).await
            }
            None => Ok(None),
        }
    }

    /// What each node says of its own rows; `None` if it is more than so many bytes.
    async fn said_in_parts(
        &mut self,
        parts: &Partial,
        times: &Times,
        bytes_max: Option<usize>,
        call: &Call,
    ) -> Result<Option<Vec<SaidRows>>, Failure> {
        let nodes = self.tx.catalog.nodes.clone();
        let select = fill_template(&parts.select, call, times);
        let texts: Vec<_> = nodes.iter().map(|node| (*node, select.as_str())).collect();
        let (begun, need) = (Instant::now(), SnapshotNeed::Rows);
        let said = self.rows_up_to(&texts, Access::Read, need, call, bytes_max).await?;
        let Some(said) = said else { return Ok(None) };
        if self.exchanges.is_some() {
            let bytes = said.iter().flatten().flatten().flatten().map(|value| value.len() as u64);
            let rows = said.iter().map(|rows| rows.len() as u64);
            let (rows, bytes) = (Some(rows.sum()), Some(bytes.sum()));
            let measured = Measured { rows, bytes, elapsed: begun.elapsed() };
            self.note_parts(measured, &texts, call).await?;
        }
        Ok(Some(said))
    }

    /// The same for COPY, which takes no parameters, and for a statement that has used up all of
    /// them: the rows are values of settings of the transaction, which no other session sees.
    async fn fill_settings(
        &mut self,
        gather: &Gather,
        collected: &[Collected],
        times: &Times,
        call: &Call,
    ) -> Result<(String, Call), Failure> {
        let RunOn::One(choice) = &gather.run_on else {
            return Err(Failure::error("XX000", "rows for COPY are brought to several nodes"));
        };
        let node = self.choose(choice, call).unwrap_or(NodeId::HOME);
        self.need_transaction();
        for (index, rows) in all_of(collected, node).into_iter().enumerate() {
            let sql = format!("SELECT pg_catalog.set_config('{ROWS_SETTING}{index}', $1, true)");
            let bytes_max = self.travelling_bytes_max();
            let call = Call::Simple.carrying(Rows::Everywhere(vec![rows]), bytes_max)?;
            self.internal_rows(node, gather.access, &sql, &call).await?;
        }
        Ok((template_of_settings(&gather.statement, times)?, call.clone()))
    }

    /// Most bytes of rows that travel with one statement.
    pub(crate) fn travelling_bytes_max(&self) -> usize {
        self.tx.registry.cluster.config.switches.travelling_bytes_max
    }

    /// What the expressions in the templates that give the current time give on node 1.
    pub(super) async fn times_for(
        &mut self,
        templates: impl IntoIterator<Item = &Template>,
    ) -> Result<Times, Failure> {
        let mut times = Times::new();
        for piece in templates.into_iter().flat_map(|template| &template.0) {
            if let Piece::Time(sql) = piece {
                times.entry(sql.clone()).or_default();
            }
        }
        if times.is_empty() {
            return Ok(times);
        }
        // As ISO 8601, which is read the same under any session settings.
        let literal = |sql: &String| format!("pg_catalog.quote_literal(tutti.value_output({sql}))");
        let asked: Vec<_> = times.keys().map(literal).collect();
        let rows = self.tx.ask_in_block(&format!("SELECT {}", asked.join(", "))).await?;
        for (column, literal) in times.values_mut().enumerate() {
            let said = rows.first().and_then(|rows| rows.text(0, column));
            said.ok_or_else(|| Failure::error("XX000", "node 1 did not say the time"))?
                .clone_into(literal);
        }
        Ok(times)
    }

    /// A node reads all parameters that come with a part of a statement, and would run the code of their types:
    /// beside other rows than node 1's, and unasked.
    ///
    /// Errors: 0A000.
    pub(super) fn refuse_parameters_elsewhere(
        &self,
        mut nodes: impl Iterator<Item = NodeId>,
        call: &Call,
    ) -> Result<(), Failure> {
        if nodes.any(|node| node != NodeId::HOME) {
            refuse_types(call.client_types(), &self.tx.catalog, &self.tx.scope)?;
        }
        Ok(())
    }

    /// Runs a query of the gateway's own on one node, with the client's parameters, and returns its
    /// rows as text.
    pub(super) async fn internal_rows(
        &mut self,
        node: NodeId,
        access: Access,
        sql: &str,
        call: &Call,
    ) -> Result<Vec<Vec<Option<Bytes>>>, Failure> {
        let mut rows = self.internal_rows_of_each(&[(node, sql)], access, call).await?;
        Ok(rows.pop().unwrap_or_default())
    }

    /// The same on several nodes concurrently, on one snapshot; one list of rows per node, in
    /// order.
    pub(super) async fn internal_rows_of_each(
        &mut self,
        texts: &[(NodeId, &str)],
        access: Access,
        call: &Call,
    ) -> Result<Vec<Vec<Vec<Option<Bytes>>>>, Failure> {
        self.internal_rows_with(texts, access, SnapshotNeed::Rows, call).await
    }

    /// The same where rows may be needed otherwise.
    pub(super) async fn internal_rows_with(
        &mut self,
        texts: &[(NodeId, &str)],
        access: Access,
        need: SnapshotNeed,
        call: &Call,
    ) -> Result<Vec<Vec<Vec<Option<Bytes>>>>, Failure> {
        Ok(self.rows_up_to(texts, access, need, call, None).await?.unwrap_or_default())
    }

    /// The same; `None`: they are more than this many bytes.
    async fn rows_up_to(
        &mut self,
        texts: &[(NodeId, &str)],
        access: Access,
        need: SnapshotNeed,
        call: &Call,
        most: Option<usize>,
    ) -> Result<Option<Vec<SaidRows>>, Failure> {
        self.refuse_parameters_elsewhere(texts.iter().map(|(node, _)| *node), call)?;
        if let [(node, _)] = texts {
            self.mark(*node).await?;
        }
        self.send_to_many(texts, access, need, IssuedBy::Gateway, call).await?;
        let nodes: Vec<_> = texts.iter().map(|(node, _)| *node).collect();
        let mut all = Vec::with_capacity(texts.len());
        let (mut gathered, bytes_max) = (0, self.travelling_bytes_max());
        let mut awaited = Answers::of(&nodes);
        while let Some(node) = awaited.next(self).await {
            let link = self.tx.links.at(&node);
            let mut rows = Vec::new();
            let read = read_rows(link, |row| {
                gathered += row.iter().flatten().map(|value| value.len()).sum::<usize>();
                if most.is_some_and(|most| most < gathered) {
                    rows = Vec::new();
                    return Ok(());
                }
                if bytes_max < gathered {
                    return Err(too_large(bytes_max));
                }
                rows.push(row.to_vec());
                Ok(())
            });
            if let Err(error) = read.await {
                awaited.note(self, error).await?;
            }
            all.push(rows);
        }
        awaited.end()?;
        Ok(most.is_none_or(|most| gathered <= most).then_some(all))
    }
}

/// What this node needs of all that was collected.
fn all_of(collected: &[Collected], node: NodeId) -> Vec<Bytes> {
    collected.iter().map(|of| of.of_node(node)).collect()
}

/// The values of each column of what nodes say in parts; `None` where they may not travel, for their types' sake.
fn values_of(parts: &Partial, said: &[SaidRows]) -> Option<Vec<ArrayText>> {
    if said.iter().all(Vec::is_empty) && !parts.are_plain {
        // Nothing says of which types they would be.
        return None;
    }
    let width = parts.expected.len();
    let mut arrays: Vec<_> = parts.expected.iter().map(|_| ArrayText::default()).collect();
    for row in said.iter().flatten() {
        let (values, types) = row.split_at(width.min(row.len()));
        if types.last().and_then(|nulls| nulls.as_deref()) != Some(b"on") {
            return None;
        }
        let mut types = types.iter();
        for ((array, value), (is_asked, expected)) in
            arrays.iter_mut().zip(values).zip(parts.asked_types.iter().zip(&parts.expected))
        {
            let oid = if *is_asked { types.next() } else { None };
            let oid = oid.and_then(|oid| std::str::from_utf8(oid.as_deref()?).ok()?.parse().ok());
            let may_travel = !is_asked
                || oid.is_some_and(|oid: u32| match expected {
                    Some(expected) => oid == *expected,
                    None => is_read_alike(oid),
                });
            if !may_travel {
                return None;
            }
            match value.as_ref() {
                None => array.push_null(),
                Some(value) => drop(array.push_composite(std::str::from_utf8(value).ok()?)),
            }
        }
    }
    Some(arrays)
}

/// All texts of a plan that collects.
fn templates<'t>(
    collects: &'t [Collect],
    others: impl IntoIterator<Item = &'t Template>,
) -> impl Iterator<Item = &'t Template> {
    collects.iter().map(|collect| &collect.select).chain(others)
}

/// `template` with rows out of settings. They are texts there, so a function reads them: a cast of a text could
/// be user-defined.
fn template_of_settings(template: &Template, times: &Times) -> Result<String, Failure> {
    let mut text = String::new();
    let mut pieces = template.0.iter().peekable();
    while let Some(piece) = pieces.next() {
        match piece {
            Piece::Sql(sql) => text.push_str(sql),
            Piece::Time(sql) => text.push_str(times.get(sql).unwrap_or(sql)),
            Piece::Buckets(_) => {
                return Err(Failure::error("XX000", "a command for one node asks for its buckets"));
            }
            Piece::Rows(index) => {
                let setting = format!("pg_catalog.current_setting('{ROWS_SETTING}{index}')");
                let cast = match pieces.peek() {
                    Some(Piece::Sql(sql)) => sql.strip_prefix("::"),
                    _ => None,
                };
                let Some(cast) = cast else {
                    text.push_str(&setting);
                    continue;
                };
                let (name, rest) = cast
                    .split_once("[]")
                    .ok_or_else(|| Failure::error("XX000", "rows for COPY have no type"))?;
                text.push_str(&format!("tutti.rows_input({setting}, NULL::{name}[]){rest}"));
                pieces.next();
            }
        }
    }
    Ok(text)
}
