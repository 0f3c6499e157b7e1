//! COPY: data in, split by key; data out, concatenated.
//!
//! Owns: the concurrent copy streams to and from several nodes.
//! Never: parses a row itself (`tutti_wire::copy` does).
//! Start reading at [`Executor::copy_from`].

use bytes::{Bytes, BytesMut};
use tutti_link::Link;
use tutti_link::connection::told;
use tutti_sql::catalog::{KeyPart, NodeId, Placement, Relation};
use tutti_sql::hash::{Bucket, Bucketing, CannotHash, KEY_COLUMNS_MAX};
use tutti_sql::plan::{Access, CopiedColumns, CopyFrom, CopyTo, CopyToPlan, LockMode, TableLock};
use tutti_sql::planner::names_current_time;
use tutti_wire::backend::decode_command_complete;
use tutti_wire::copy::{
    BINARY_HEADER_LEN, BINARY_TRAILER, CopyError, CopyFormat, CopyPiece, RowSplitter,
};
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::frame::put_frame;
use tutti_wire::frontend::{put_copy_data, put_copy_done, put_copy_fail, put_query};
use tutti_wire::sqlstate;

use super::array_literal::composite;
use super::fan_out::Answers;
use super::relay::COPY_FLUSH_BYTES;
use super::tag_total::TagTotal;
use crate::client::ClientError;
use crate::client::failure::Failure;
use crate::executor::Executor;
use crate::plans::request::{Call, Done};
use crate::plans::route::bucket_of_value;
use crate::registry::activity::overtaken;

/// Rows whose missing values are drawn together.
const FILL_CHUNK_ROWS: usize = 5_000;

impl From<CopyError> for Failure {
    fn from(error: CopyError) -> Self {
        let fields = ErrorFields::error(error.sqlstate(), error.to_string());
        match error.hint() {
            Some(hint) => fields.with(b'H', hint).into(),
            None => fields.into(),
        }
    }
}

/// A COPY FROM under way.
struct CopyIn<'a> {
    plan: &'a CopyFrom,
    format: CopyFormat,
    header: Option<Bytes>,
    /// Nodes whose COPY has been opened.
    open: Vec<NodeId>,
    /// Rows are sent only when node 1 has said something of them: there are values to fill in, or keys that only a server
    /// can compute, or read.
    asks: bool,
    /// Those that wait for that.
    waiting: Vec<Bytes>,
    /// A row had a text that each node reads as its own time.
    says_now: bool,
    /// Types of the data's columns, if values say numbers of types in binary format.
    types: Vec<u32>,
    total: TagTotal,
}

impl CopyIn<'_> {
    fn note_times(&mut self, row: &[u8]) {
        if self.says_now || self.format == CopyFormat::Binary {
            return;
        }
        let says_now = |position: &usize| {
            let field = self.format.field(row, *position).ok().flatten();
            field.is_some_and(|text| names_current_time(&String::from_utf8_lossy(&text)))
        };
        self.says_now = self.plan.timed.iter().any(says_now);
    }
}

/// How the client ended its data.
enum DataEnd {
    Done,
    Failed(String),
}

impl Executor<'_> {
    pub(super) async fn copy_from(
        &mut self,
        plan: &CopyFrom,
        call: &Call,
    ) -> Result<Done, Failure> {
        let names: Vec<&str> =
            plan.columns.iter().map(|index| plan.relation.columns[*index].name.as_str()).collect();
        let format = CopyFormat::from_options(&plan.options, &names)?;
        self.need_transaction();
        if plan.relation.placement == Placement::Replicated {
            // All nodes receive the rows concurrently; two writing transactions must not meet on them
            // in different orders.
            let Relation { schema, name: table, .. } = &*plan.relation;
            let (schema, table) = (schema.clone(), table.clone());
            let lock = TableLock { schema, table, mode: LockMode::ShareRowExclusive };
            self.lock_at_home(&[lock]).await?;
            self.tx.wait_for_all_visible().await?;
        }
        let mut copy = CopyIn {
            plan,
            format,
            header: None,
            open: Vec::new(),
            asks: !plan.fill.is_empty() || !plan.relation.computed_keys.is_empty(),
            waiting: Vec::new(),
            says_now: false,
            types: Vec::new(),
            total: TagTotal::default(),
        };
        if copy.format == CopyFormat::Binary {
            let types = plan.columns.iter().map(|column| plan.relation.columns[*column].type_oid);
            copy.types = self.that_say_numbers(types.collect());
        }
        if !copy.asks {
            // Refusals of the nodes (no such column, no right to insert) come before any data.
            let opened = self.open_copies(&mut copy).await;
            if let Err(failure) = opened {
                self.fail_copies(&mut copy, &failure.to_string()).await;
                return Err(failure);
            }
        } else {
            self.try_copy(plan).await?;
        }
        self.put_copy_in_response(&copy);
        self.client.flush().await?;
        let mut splitter = RowSplitter::new(&copy.format);
        let taken = self.take_copy_data(&mut copy, &mut splitter).await;
        let ended = match taken {
            Ok(DataEnd::Done) => Ok(()),
            Ok(DataEnd::Failed(reason)) => {
                let message = format!("COPY from stdin failed: {reason}");
                Err(Failure::error(sqlstate::QUERY_CANCELED, message))
            }
            Err(failure) => Err(failure),
        };
        let closed = match &ended {
            Ok(()) => self.close_copies(&mut copy).await,
            Err(failure) => {
                self.fail_copies(&mut copy, &failure.to_string()).await;
                Ok(())
            }
        };
        // Data that is still on its way after an error is ignored by the session's main loop.
        ended.and(closed)?;
        if let Some(rows) = plan.rows.as_ref().filter(|_| copy.says_now) {
            self.lock_and_copy_tables_of(rows).await?;
        }
        let tag = copy.total.tag();
        let tag = if tag.is_empty() { "COPY 0".to_owned() } else { tag };
        // Entries of unique indexes that are still to be kept may refuse the rows.
        if call.is_extended() && self.tx.transaction.changing_entries == 0 {
            tutti_wire::backend::put_command_complete(self.client.out(), &tag);
            return Ok(Done::Told);
        }
        Ok(Done::Tag(tag))
    }

    /// With values to fill in, or keys to compute, COPYs are opened per chunk: errors of the statement itself are found
    /// by an empty one before.
    async fn try_copy(&mut self, plan: &CopyFrom) -> Result<(), Failure> {
        let link = self.tx.enlist(NodeId::HOME, Access::Write).await?;
        // Which line has to be there only the client knows.
        let wants_header = plan
            .options
            .iter()
            .any(|(name, value)| name == "header" && value.eq_ignore_ascii_case("match"));
        if !wants_header {
            open_copy(link, &plan.statement).await?;
        }
        if plan.options.iter().any(|(name, value)| name == "format" && value == "binary") {
            if !plan.relation.computed_keys.is_empty() {
                return Err(Failure::unsupported(
                    "binary COPY into a table whose distribution key is computed is not supported",
                    "Node 1 computes the keys, of values in text form.",
                    "Use text or CSV format.",
                ));
            }
            return Err(Failure::unsupported(
                "binary COPY without columns that have a default of their own value for each row is not supported",
                "Values of sequences, and of defaults such as now(), are made on one node, as text.",
                "Use text or CSV format, or give the columns.",
            ));
        }
        if !wants_header {
            put_copy_done(link.connection().outgoing());
            link.connection().flush().await?;
            finish_copy(link).await?;
        }
        if plan.fill_is_read_alike {
            return Ok(());
        }
        // Nodes read what is appended with the same settings as the client's data.
        const ASK: &str =
            "SELECT pg_catalog.current_setting('array_nulls') OPERATOR(pg_catalog.=) 'on'
            AND pg_catalog.current_setting('xmloption') OPERATOR(pg_catalog.=) 'content'";
        let rows = link.query(ASK).await?;
        match rows.first().and_then(|rows| rows.text(0, 0)) {
            Some("t") => Ok(()),
            _ => Err(Failure::unsupported(
                "COPY without columns whose defaults are arrays or XML is not supported with array_nulls = off or xmloption = document",
                "Node 1 computes the defaults, and others would read them as something else.",
                "SET array_nulls = on; SET xmloption = content; or give the columns.",
            )),
        }
    }

    async fn open_copies(&mut self, copy: &mut CopyIn<'_>) -> Result<(), Failure> {
        let nodes = self.tx.catalog.nodes.clone();
        self.tx.enlist_all(&nodes, Access::Write).await?;
        for node in &nodes {
            self.tx.wait_for_visible(*node).await?;
        }
        for node in nodes {
            let link = self.tx.links.at(&node);
            open_copy(link, &copy.plan.statement).await?;
            copy.open.push(node);
            if let Some(header) = &copy.header {
                put_copy_data(link.connection().outgoing(), header);
            }
        }
        Ok(())
    }

    fn put_copy_in_response(&mut self, copy: &CopyIn<'_>) {
        let format = u8::from(copy.format == CopyFormat::Binary);
        let columns = u16::try_from(copy.plan.columns.len()).unwrap_or(u16::MAX);
        put_frame(self.client.out(), b'G', |body| {
            body.extend_from_slice(&[format]);
            body.extend_from_slice(&columns.to_be_bytes());
            for _ in 0..columns {
                body.extend_from_slice(&[0, format]);
            }
        });
    }

    /// Reads the client's data to its end and distributes the rows.
    async fn take_copy_data(
        &mut self,
        copy: &mut CopyIn<'_>,
        splitter: &mut RowSplitter,
    ) -> Result<DataEnd, Failure> {
        let stops = self.client.stops();
        loop {
            let next = tokio::select! {
                biased;
                frame = self.client.next_frame() => frame?,
                // Its nodes, which wait for data, heed no cancel request.
                () = stops.notified() => return Err(overtaken().into()),
            };
            let Some(frame) = next else {
                let lost = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
                return Err(Failure::Client(ClientError::from(lost)));
            };
            match frame.tag() {
                b'd' => {
                    splitter.push(frame.body_bytes());
                    while let Some(piece) = splitter.next_piece()? {
                        self.take_piece(copy, piece).await?;
                    }
                }
                b'c' => {
                    if let Some(piece) = splitter.finish()? {
                        self.take_piece(copy, piece).await?;
                    }
                    self.send_waiting(copy).await?;
                    return Ok(DataEnd::Done);
                }
                b'f' => {
                    let reason = tutti_wire::frame::Fields::of(&frame).string()?;
                    return Ok(DataEnd::Failed(reason));
                }
                b'H' | b'S' => (),
                tag => {
                    let message =
                        format!("unexpected message type 0x{tag:02X} during COPY from stdin");
                    return Err(Failure::error("08P01", message));
                }
            }
        }
    }

    async fn take_piece(&mut self, copy: &mut CopyIn<'_>, piece: CopyPiece) -> Result<(), Failure> {
        match piece {
            CopyPiece::Header(header) => {
                let header = self.filled_header(copy, header)?;
                for node in &copy.open {
                    if let Some(link) = self.tx.links.get_mut(node) {
                        put_copy_data(link.connection().outgoing(), &header);
                    }
                }
                copy.header = Some(header);
                Ok(())
            }
            CopyPiece::Row(row) => {
                copy.note_times(&row);
                if !copy.asks {
                    match self.place_of_copied(copy, &row)? {
                        Some(place) => return self.send_row(copy, &row, place).await,
                        // Nodes that take data cannot be asked.
                        None => self.close_copies(copy).await?,
                    }
                    copy.asks = true;
                }
                copy.waiting.push(row);
                match copy.waiting.len() < FILL_CHUNK_ROWS {
                    true => Ok(()),
                    false => self.send_waiting(copy).await,
                }
            }
            CopyPiece::End(_) => Ok(()),
        }
    }

    /// A header line names the filled columns too (HEADER MATCH compares it).
    fn filled_header(&self, copy: &CopyIn<'_>, header: Bytes) -> Result<Bytes, Failure> {
        if copy.plan.fill.is_empty() || copy.format == CopyFormat::Binary {
            return Ok(header);
        }
        let columns = &copy.plan.relation.columns;
        let names: Vec<Option<&[u8]>> =
            copy.plan.fill.iter().map(|(index, _)| Some(columns[*index].name.as_bytes())).collect();
        Ok(copy.format.append_fields(&header, &names)?.into())
    }

    async fn send_row(
        &mut self,
        copy: &mut CopyIn<'_>,
        row: &[u8],
        place: CopiedTo,
    ) -> Result<(), Failure> {
        for node in &copy.open {
            if let CopiedTo::Node(only) = place
                && only != *node
            {
                continue;
            }
            let Some(link) = self.tx.links.get_mut(node) else { continue };
            let row = link.copied_here(&copy.types, row);
            put_copy_data(link.connection().outgoing(), &row);
            if COPY_FLUSH_BYTES < link.connection().outgoing().len() {
                link.connection().flush().await?;
            }
        }
        Ok(())
    }

    /// Where a row of the data belongs; `None`: only a server can read its key.
    fn place_of_copied(&self, copy: &CopyIn<'_>, row: &[u8]) -> Result<Option<CopiedTo>, Failure> {
        let CopyFrom { relation, key: places, .. } = copy.plan;
        let placement = &relation.placement;
        let map = match (placement, placement.key_map()) {
            (Placement::RoundRobin, _) => {
                return Ok(Some(CopiedTo::Node(self.deal_round_robin())));
            }
            (_, Some(map)) => map,
            (_, None) => return Ok(Some(CopiedTo::AllNodes)),
        };
        let Some(of) = self.tx.catalog.maps.get(&map) else {
            return Ok(Some(CopiedTo::Node(NodeId::HOME)));
        };
        let mut buckets = [Bucket::OF_NULL; KEY_COLUMNS_MAX];
        let mut count = 0;
        for (index, place) in places.iter().enumerate() {
            let Some(part) = placement.key_column(index) else { break };
            let bucket = match place {
                Some(place) => bucket_of_copied(copy, row, *place, part, &of.bucketing)?,
                // Its default, which is none: others are drawn before the row is sent.
                None => CopiedKey::In(Bucket::OF_NULL),
            };
            buckets[index] = match bucket {
                CopiedKey::In(bucket) => bucket,
                CopiedKey::ServerKnows => return Ok(None),
                // The node that gets it says what is wrong with it.
                CopiedKey::Wrong => return Ok(Some(CopiedTo::Node(NodeId::HOME))),
            };
            count = index + 1;
        }
        self.node_of(map, placement.bucket(&buckets[..count]))
            .map(|node| Some(CopiedTo::Node(node)))
    }

    /// Draws the missing values of the waiting rows on node 1, and has it compute keys, then sends them by a COPY of
    /// their own: a node that takes COPY data cannot answer queries meanwhile.
    async fn send_waiting(&mut self, copy: &mut CopyIn<'_>) -> Result<(), Failure> {
        if copy.waiting.is_empty() {
            return Ok(());
        }
        let mut rows = std::mem::take(&mut copy.waiting);
        if !copy.plan.fill.is_empty() {
            let expressions: Vec<_> =
                copy.plan.fill.iter().map(|(_, expression)| expression.as_str()).collect();
            let sql = format!(
                "SELECT {} FROM pg_catalog.generate_series(1, {})",
                expressions.join(", "),
                rows.len()
            );
            let values =
                self.internal_rows(NodeId::HOME, Access::Write, &sql, &Call::Simple).await?;
            for (row, values) in rows.iter_mut().zip(&values) {
                let values: Vec<Option<&[u8]>> =
                    values.iter().map(|value| value.as_deref()).collect();
                *row = copy.format.append_fields(row, &values)?.into();
            }
        }
        let mut places: Vec<Option<CopiedTo>> = Vec::with_capacity(rows.len());
        if copy.plan.relation.computed_keys.is_empty() {
            for row in &rows {
                places.push(self.place_of_copied(copy, row)?);
            }
        } else {
            places.resize(rows.len(), None);
        }
        let unknown = rows.iter().zip(&places).filter(|(_, place)| place.is_none());
        let unknown: Vec<_> = unknown.map(|(row, _)| sources_of(copy, row)).collect();
        let mut asked = match &copy.plan.bucket_question {
            Some(question) => {
                let unknown = unknown.iter().map(String::as_str);
                self.nodes_of_computed(&copy.plan.relation, question, unknown).await?
            }
            None => Vec::new(),
        }
        .into_iter();
        self.open_copies(copy).await?;
        for (row, place) in rows.iter().zip(places) {
            let place = place.or_else(|| asked.next().map(CopiedTo::Node));
            let place = place
                .ok_or_else(|| Failure::error("XX000", "it is not known where a row belongs"))?;
            self.send_row(copy, row, place).await?;
        }
        self.close_copies(copy).await
    }

    /// Ends the open COPYs and adds up what they did.
    async fn close_copies(&mut self, copy: &mut CopyIn<'_>) -> Result<(), Failure> {
        let open = std::mem::take(&mut copy.open);
        for node in &open {
            let link = self.tx.links.get_mut(node).expect("its COPY is open");
            if copy.format == CopyFormat::Binary {
                put_copy_data(link.connection().outgoing(), &BINARY_TRAILER);
            }
            put_copy_done(link.connection().outgoing());
            // A lost connection is noticed when its answer is read. The others must be told.
            let _ = link.connection().flush().await;
        }
        let replicated = copy.plan.relation.placement == Placement::Replicated;
        let mut awaited = Answers::of(&open);
        while let Some(node) = awaited.next(self).await {
            let link = self.tx.links.get_mut(&node).expect("its COPY is open");
            match finish_copy(link).await {
                Ok(tag) if !replicated || node == NodeId::HOME => copy.total.add(&tag),
                Ok(_) => (),
                Err(error) => awaited.note(self, error).await?,
            }
        }
        awaited.end()
    }

    /// Ends the open COPYs with a failure; an error that a node found before is the better reason.
    async fn fail_copies(&mut self, copy: &mut CopyIn<'_>, reason: &str) {
        for node in std::mem::take(&mut copy.open) {
            let Some(link) = self.tx.links.get_mut(&node) else { continue };
            put_copy_fail(link.connection().outgoing(), reason);
            // A connection that is lost has ended its COPY, and the others must be told.
            let _ = link.connection().flush().await;
            let _ = finish_copy(link).await;
        }
    }

    /// Types of columns, unless no value of theirs says numbers of types in binary format.
    fn that_say_numbers(&self, types: Vec<u32>) -> Vec<u32> {
        match types.iter().any(|oid| self.tx.catalog.code.says_numbers(*oid)) {
            true => types,
            false => Vec::new(),
        }
    }

    pub(super) async fn copy_to(
        &mut self,
        copy: &CopyTo,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        let types = match &copy.columns {
            CopiedColumns::OfTypes(types) => types.clone(),
            CopiedColumns::OfQuery(_) if self.tx.catalog.is_solo() => Vec::new(),
            CopiedColumns::OfQuery(query) => {
                let columns = self.describe_text(query, &[]).await?.1;
                columns.iter().flatten().map(|column| column.type_oid).collect()
            }
        };
        self.client.copied_types = self.that_say_numbers(types);
        let copied = self.copy_as_planned(copy, text, call).await;
        self.client.copied_types.clear();
        copied
    }

    async fn copy_as_planned(
        &mut self,
        copy: &CopyTo,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        match &copy.plan {
            CopyToPlan::One(choice, access) => {
                let node = self.choose(choice, call).unwrap_or(NodeId::HOME);
                self.run_on_one(node, *access, text, call).await
            }
            CopyToPlan::Gather(gather) => self.gather(gather, call).await,
            CopyToPlan::Scatter => self.copy_out_of_each(copy, text, call).await,
        }
    }

    async fn copy_out_of_each(
        &mut self,
        copy: &CopyTo,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        let nodes = self.tx.catalog.nodes.clone();
        for node in &nodes {
            let link = self.tx.enlist(*node, Access::Read).await?;
            link.connection().flush().await?;
            link.catch_up_early().await?;
        }
        // A COPY has a snapshot from its start; outside the room its exact start does not matter.
        let inside = match self.tx.has_snapshot_per_part() {
            true => {
                let registry = self.tx.registry.clone();
                let entering = registry.cluster.enter_snapshot_room(&nodes);
                Some(self.tx.unless_cancelled(entering).await??)
            }
            false => None,
        };
        for node in &nodes {
            let link = self.tx.links.at(node);
            link.begin();
            put_query(link.connection().outgoing(), text);
            link.connection().flush().await?;
        }
        if inside.is_some() {
            self.await_start(&nodes).await?;
        }
        drop(inside);
        let mut total = TagTotal::default();
        let mut failure = None;
        for (index, node) in nodes.iter().enumerate() {
            let part = Share {
                first: index == 0,
                last: index + 1 == nodes.len(),
                binary: copy.binary,
                header: copy.header,
                silent: failure.is_some(),
            };
            match self.copy_out_of(*node, &part).await {
                Ok(tag) => total.add(&tag),
                Err(Failure::Client(error)) => return Err(error.into()),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        let tag = total.tag();
        if call.is_extended() {
            tutti_wire::backend::put_command_complete(self.client.out(), &tag);
            return Ok(Done::Told);
        }
        Ok(Done::Tag(tag))
    }

    async fn copy_out_of(&mut self, node: NodeId, part: &Share) -> Result<String, Failure> {
        let link = self.tx.links.at(&node);
        let refused_before = link.catch_up().await?;
        let mut tag = String::new();
        let mut refused = None;
        let mut messages = 0;
        loop {
            let frame = link.connection().next_frame().await?;
            match frame.tag() {
                b'd' => {
                    let data = link.copied_to_home(&self.client.copied_types, frame.body())?;
                    part.forward(self.client.out(), &data, messages);
                    messages += 1;
                    self.client.flush_if_full().await?;
                }
                b'H' if part.first => self.client.out().extend_from_slice(frame.as_bytes()),
                b'c' if part.last && !part.silent => {
                    self.client.out().extend_from_slice(frame.as_bytes());
                }
                b'C' => tag = decode_command_complete(&frame)?,
                b'E' => refused = Some(told(&frame)?),
                b'Z' => {
                    link.answered();
                    break;
                }
                _ => (),
            }
        }
        refused_before.map_or(Ok(()), Err)?;
        refused.map_or(Ok(tag), |error| Err(error.into()))
    }
}

/// What a key is computed from, of a row of the data, in composite text form; all else of the row is NULL there, but for
/// domains, which may refuse that. What the data lacks, or is no text, is left out: whichever node gets the row refuses it.
fn sources_of(copy: &CopyIn<'_>, row: &[u8]) -> String {
    let CopyFrom { relation, columns, fill, .. } = copy.plan;
    let mut fields: Vec<Option<String>> = vec![None; relation.columns.len()];
    let sent = columns.iter().chain(fill.iter().map(|(column, _)| column)).enumerate();
    let key = relation.placement.key_columns();
    let decides = |column: usize| {
        relation.columns[column].domain
            || key.iter().any(|part| part.column == column)
            || relation.key_sources().any(|source| source == column)
    };
    for (place, column) in sent.filter(|(_, column)| decides(**column)) {
        let value = copy.format.field(row, place).ok().flatten();
        fields[*column] = value.and_then(|value| String::from_utf8(value.into_owned()).ok());
    }
    composite(fields.iter().map(Option::as_deref))
}

/// Which nodes get a row of the data.
#[derive(Clone, Copy, Debug)]
enum CopiedTo {
    Node(NodeId),
    AllNodes,
}

/// What the gateway knows of the value that a row brings for a column of the key.
enum CopiedKey {
    In(Bucket),
    /// Written in a way that only a server can read, such as a date in another DateStyle; or storing it would change it.
    ServerKnows,
    /// Whichever node gets the row refuses it.
    Wrong,
}

/// Errors: 0A000 for what only a server could read, in binary format.
fn bucket_of_copied(
    copy: &CopyIn<'_>,
    row: &[u8],
    place: usize,
    KeyPart { column, key_type }: KeyPart,
    bucketing: &Bucketing,
) -> Result<CopiedKey, Failure> {
    let modifier = copy.plan.relation.columns[column].type_modifier;
    // The row lacks the field or asks for its default: the node that gets it says so.
    let Ok(value) = copy.format.field(row, place) else { return Ok(CopiedKey::Wrong) };
    let hashed = match (&value, &copy.format) {
        (Some(value), CopyFormat::Binary) => {
            bucketing.bucket_of_stored_binary(key_type, value, key_type, modifier)
        }
        (Some(value), _) => match std::str::from_utf8(value) {
            Ok(text) => bucket_of_value(bucketing, key_type, modifier, Some(text)),
            Err(_) => return Ok(CopiedKey::Wrong),
        },
        (None, _) => bucket_of_value(bucketing, key_type, modifier, None),
    };
    match hashed {
        Ok(bucket) => Ok(CopiedKey::In(bucket)),
        // Not a value of the type: any node refuses it in PostgreSQL's words.
        Err(CannotHash::Malformed) => Ok(CopiedKey::Wrong),
        Err(CannotHash::NotCanonical) if copy.format == CopyFormat::Binary => {
            Err(Failure::unsupported(
                "a distribution key that storing changes cannot be placed by binary COPY",
                "Only the server knows what becomes of it, and is asked for values in text form.",
                "Use text or CSV format.",
            ))
        }
        Err(CannotHash::NotCanonical) => Ok(CopiedKey::ServerKnows),
    }
}

/// One node's share of a COPY TO, among others.
struct Share {
    first: bool,
    last: bool,
    binary: bool,
    header: bool,
    silent: bool,
}

impl Share {
    /// Passes a CopyData message on, without what must appear only once in the whole.
    fn forward(&self, out: &mut BytesMut, data: &[u8], index: usize) {
        let mut data = data;
        if self.silent || (self.header && !self.first && index == 0) {
            return;
        }
        if self.binary {
            if !self.first && index == 0 {
                data = data.get(BINARY_HEADER_LEN..).unwrap_or_default();
            }
            if !self.last {
                // PostgreSQL sends the trailer as a message of its own, or right after the header.
                data = match data.strip_suffix(&BINARY_TRAILER) {
                    Some(rest)
                        if rest.is_empty() || rest.len() == BINARY_HEADER_LEN && index == 0 =>
                    {
                        rest
                    }
                    _ => data,
                };
            }
            if data.is_empty() {
                return;
            }
        }
        put_copy_data(out, data);
    }
}

/// Sends a COPY … FROM STDIN and waits until the node takes data.
pub(super) async fn open_copy(link: &mut Link, sql: &str) -> Result<(), Failure> {
    link.begin();
    put_query(link.connection().outgoing(), sql);
    link.connection().flush().await?;
    let refused_before = link.catch_up().await?;
    let mut refused = None;
    loop {
        let frame = link.connection().next_frame().await?;
        match frame.tag() {
            b'G' => return Ok(refused_before.map_or(Ok(()), Err)?),
            b'E' => refused = Some(told(&frame)?),
            b'Z' => {
                link.answered();
                break;
            }
            _ => (),
        }
    }
    refused_before.map_or(Ok(()), Err)?;
    let refused =
        refused.unwrap_or_else(|| ErrorFields::error("08P01", "a node did not take COPY data"));
    Err(refused.into())
}

/// Reads the end of a COPY: its tag.
pub(super) async fn finish_copy(link: &mut Link) -> Result<String, Failure> {
    let finished = link.connection().finish_query().await;
    link.answered();
    Ok(finished?.pop().unwrap_or_default().tag)
}
