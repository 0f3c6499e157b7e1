//! By which protocol level the client asked, and so by which the nodes are asked.
//!
//! Owns: writing a statement to a node in the client's protocol, with the client's parameters, and with rows
//! that travel after them: parameters, never part of a text, which servers show to others and write to logs.
//! Never: reads answers.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tutti_link::Link;
use tutti_link::connection::put_statement;
use tutti_sql::catalog::NodeId;
use tutti_sql::plan::{Piece, Template};
use tutti_sql::planner::names_current_time;
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::frame::FRAME_LEN_MAX;
use tutti_wire::frontend::{
    Arguments, Target, put_bind, put_describe, put_execute, put_parse, put_query, put_sync,
};

use crate::client::failure::Failure;

/// Most bytes of a message's values: the rest of the message is small.
const MESSAGE_BYTES_MAX: usize = FRAME_LEN_MAX - (16 << 20);

/// Whose statement it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum IssuedBy {
    /// The client's: described and formatted as the client asked.
    Client,
    /// The gateway's own, with the client's parameters; rows come as text.
    Gateway,
}

/// How a statement came.
#[derive(Clone, Debug)]
pub enum Call {
    /// In a Query message: rows are described, values are text, no parameters.
    Simple,
    /// By Execute: rows were described before, formats as bound.
    Extended {
        /// Type of every parameter; 0 where the client left it open and no node was asked.
        types: Vec<u32>,
        /// Values and formats.
        arguments: Arguments,
    },
    /// Either, of a text that the gateway has made, with rows as further parameters.
    Carrying(Arc<Carrying>),
}

/// A client's call, and rows that travel with it.
#[derive(Debug)]
pub struct Carrying {
    client: Call,
    rows: Rows,
}

/// Rows as texts of arrays of a table's rows, one parameter each.
#[derive(Debug)]
pub(crate) enum Rows {
    /// The same for every node.
    Everywhere(Vec<Bytes>),
    /// Others for each node.
    OfNode(BTreeMap<NodeId, Vec<Bytes>>),
}

/// How a statement ended, as far as the client has not been told.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Done {
    /// CommandComplete has been written already.
    Told,
    /// CommandComplete with this tag is to be written, once a commit that depends on it succeeded.
    Tag(String),
    /// EmptyQueryResponse is to be written.
    Empty,
}

impl Carrying {
    /// All parameters for a node, their types left open for it to infer, results as the client
    /// wants them.
    fn parameters(&self, node: NodeId) -> (Vec<u32>, Arguments) {
        let (mut types, mut arguments) = match &self.client {
            Call::Extended { types, arguments } => (types.clone(), arguments.clone()),
            Call::Simple | Call::Carrying(_) => (Vec::new(), Arguments::default()),
        };
        let count = arguments.values.len();
        types.resize(count, 0);
        // A single format would apply to all.
        arguments.formats = (0..count).map(|index| arguments.format(index)).collect();
        let rows = match &self.rows {
            Rows::Everywhere(rows) => rows.clone(),
            Rows::OfNode(rows) => rows.get(&node).cloned().unwrap_or_default(),
        };
        arguments.formats.resize(count + rows.len(), 0);
        arguments.values.extend(rows.into_iter().map(Some));
        (types, arguments)
    }
}

impl Call {
    /// Types of the client's own parameters.
    pub(crate) fn client_types(&self) -> &[u32] {
        match self.client() {
            Self::Extended { types, .. } => types,
            _ => &[],
        }
    }

    /// Whether the client used the extended protocol.
    pub fn is_extended(&self) -> bool {
        matches!(self.client(), Self::Extended { .. })
    }

    /// As the client has made it.
    pub(crate) fn client(&self) -> &Self {
        match self {
            Self::Carrying(carrying) => &carrying.client,
            call => call,
        }
    }

    /// The same with rows as further parameters, of at most `bytes_max` bytes for each node.
    ///
    /// Errors: 54000 if they are more, or more than a message can have together with the client's values.
    pub(crate) fn carrying(&self, rows: Rows, bytes_max: usize) -> Result<Self, Failure> {
        let bytes = match &rows {
            Rows::Everywhere(rows) => rows.iter().map(Bytes::len).sum(),
            Rows::OfNode(rows) => {
                let of_node = |rows: &Vec<Bytes>| rows.iter().map(Bytes::len).sum();
                rows.values().map(of_node).max().unwrap_or_default()
            }
        };
        let given: usize = match self.client() {
            Self::Extended { arguments, .. } => {
                arguments.values.iter().flatten().map(Bytes::len).sum()
            }
            _ => 0,
        };
        if bytes_max < bytes || MESSAGE_BYTES_MAX < bytes + given {
            return Err(too_large(bytes_max));
        }
        Ok(self.with_rows(rows))
    }

    fn with_rows(&self, rows: Rows) -> Self {
        Self::Carrying(Arc::new(Carrying { client: self.client().clone(), rows }))
    }

    /// Whether `more` further parameters are within what the protocol can count.
    pub(crate) fn can_carry(&self, more: usize) -> bool {
        self.parameter_count() + more <= usize::from(u16::MAX)
    }

    /// The call for a statement made by this template, with room for `more` further parameters: without
    /// the client's where there are too many of them and the template uses none.
    ///
    /// Errors: 54000.
    pub(crate) fn with_room(
        &self,
        template: &Template,
        more: usize,
    ) -> Result<Cow<'_, Self>, Failure> {
        if self.can_carry(more) {
            return Ok(Cow::Borrowed(self));
        }
        let mut call = self.clone();
        let has_parameters = |piece: &Piece| matches!(piece, Piece::Sql(sql) if sql.contains('$'));
        match &mut call {
            Self::Extended { types, arguments } if !template.0.iter().any(has_parameters) => {
                types.clear();
                arguments.values.clear();
                arguments.formats.clear();
                Ok(Cow::Owned(call))
            }
            _ => Err(ErrorFields::error("54000", "the statement has too many parameters")
                .with(b'D', format!("Rows that travel need {more} of the {}.", u16::MAX))
                .with(b'H', "Send fewer rows at a time.")
                .into()),
        }
    }

    /// Whether this parameter of the client's, counted from 0, is the number 0, or may be.
    pub(crate) fn is_zero(&self, parameter: u16) -> bool {
        let Self::Extended { arguments, .. } = self.client() else { return true };
        let at = usize::from(parameter);
        match (arguments.values.get(at), arguments.formats.get(at).or(arguments.formats.first())) {
            (Some(None), _) => false,
            (Some(Some(value)), Some(1)) => value.iter().all(|byte| *byte == 0),
            // As int8: no other digit.
            (Some(Some(value)), _) => !value.iter().any(|byte| (b'1'..=b'9').contains(byte)),
            (None, _) => true,
        }
    }

    /// How many parameters are the client's: rows are numbered after them.
    pub(crate) fn parameter_count(&self) -> usize {
        match self.client() {
            Self::Extended { arguments, .. } => arguments.values.len(),
            _ => 0,
        }
    }

    /// The same for a statement that returns one column more than the client's, in text format.
    pub(crate) fn with_a_text_more(&self) -> Self {
        let mut call = self.client().clone();
        if let Self::Extended { arguments: Arguments { result_formats, .. }, .. } = &mut call
            // One format is for all columns, and text is the same in both.
            && 1 < result_formats.len()
        {
            result_formats.push(0);
        }
        match self {
            Self::Carrying(carrying) => call.with_rows(match &carrying.rows {
                Rows::Everywhere(rows) => Rows::Everywhere(rows.clone()),
                Rows::OfNode(rows) => Rows::OfNode(rows.clone()),
            }),
            _ => call,
        }
    }

    /// The same for a statement whose rows the gateway reads: they come as text.
    pub(crate) fn returning_text(&self) -> Self {
        let mut call = self.client().clone();
        if let Self::Extended { arguments, .. } = &mut call {
            arguments.result_formats.clear();
        }
        call
    }

    /// Whether a value may mean the current time, such as `now` for a `timestamptz`: each node would
    /// take its own.
    pub(crate) fn may_say_now(&self) -> bool {
        /// bytea, int8, int2, int4, text, json, oid, float4, float8, bpchar, varchar, numeric, uuid, jsonb.
        const TIMELESS: [u32; 14] =
            [17, 20, 21, 23, 25, 114, 26, 700, 701, 1042, 1043, 1700, 2950, 3802];
        let Self::Extended { types, arguments } = self.client() else { return false };
        arguments.values.iter().enumerate().any(|(index, value)| {
            let is_text = arguments.format(index) == 0;
            let is_timeless = types.get(index).is_some_and(|oid| TIMELESS.contains(oid));
            let text = value.as_ref().and_then(|value| std::str::from_utf8(value).ok());
            is_text && !is_timeless && text.is_some_and(names_current_time)
        })
    }

    /// Appends `sql` to the link, so that the answer is what the client asked for. Ends with a
    /// message that makes the node say ReadyForQuery.
    pub(crate) fn put(&self, link: &mut Link, sql: &str) {
        self.hide_rows(link);
        link.begin();
        match self {
            Self::Simple => put_query(link.connection().outgoing(), sql),
            Self::Extended { types, arguments } => {
                put_flight(link, sql, types, arguments, false);
            }
            Self::Carrying(carrying) => {
                let (types, arguments) = carrying.parameters(link.node());
                put_flight(link, sql, &types, &arguments, !self.is_extended());
            }
        }
    }

    /// Rows that travel must not be seen by the statement's code. A look, which comes first, has
    /// ensured that.
    fn hide_rows(&self, link: &mut Link) {
        if matches!(self, Self::Carrying(_)) && !link.has_age_check() {
            link.put_hidden();
        }
    }

    /// Before [`Self::put`] or [`Self::put_internal`], see [`Link::put_age_check`].
    pub(crate) fn put_age_check(&self, link: &mut Link, sql: &str, relations: &[u32]) {
        self.hide_rows(link);
        let types = match self {
            Self::Simple => Vec::new(),
            Self::Extended { types, .. } => types.clone(),
            Self::Carrying(carrying) => carrying.parameters(link.node()).0,
        };
        let types = link.types_here(&types);
        link.put_age_check(sql, &types, relations);
    }

    /// Parameter types and arguments for a statement so issued to a node.
    pub(crate) fn parts(&self, issued_by: IssuedBy, node: NodeId) -> (Vec<u32>, Arguments) {
        let (types, mut arguments) = match self {
            Self::Simple => (Vec::new(), Arguments::default()),
            Self::Extended { types, arguments } => (types.clone(), arguments.clone()),
            Self::Carrying(carrying) => carrying.parameters(node),
        };
        if issued_by == IssuedBy::Gateway {
            arguments.result_formats = Vec::new();
        }
        (types, arguments)
    }

    /// Appends a query of the gateway's own that may contain the client's parameters; its rows come
    /// as text, whatever format the client asked for.
    pub(crate) fn put_internal(&self, link: &mut Link, sql: &str) {
        self.hide_rows(link);
        let has_age_check = link.has_age_check();
        link.begin();
        match self {
            Self::Extended { types, arguments } if !arguments.values.is_empty() => {
                let arguments = Arguments { result_formats: Vec::new(), ..arguments.clone() };
                put_flight(link, sql, types, &arguments, false);
            }
            Self::Carrying(carrying) => {
                let (types, arguments) = carrying.parameters(link.node());
                let arguments = Arguments { result_formats: Vec::new(), ..arguments };
                put_flight(link, sql, &types, &arguments, false);
            }
            Self::Simple | Self::Extended { .. } if has_age_check => {
                put_statement(link.connection().outgoing(), sql, Vec::new());
            }
            Self::Simple | Self::Extended { .. } => {
                put_query(link.connection().outgoing(), sql);
            }
        }
    }
}

/// Appends one statement with its parameters, up to a Sync. `described`: its columns are asked for as well.
fn put_flight(link: &mut Link, sql: &str, types: &[u32], arguments: &Arguments, described: bool) {
    let described = described || link.must_describe(arguments);
    let arguments = link.arguments_here(types, arguments);
    let types = link.types_here(types);
    let out = link.connection().outgoing();
    put_parse(out, "", sql, &types);
    put_bind(out, "", "", &arguments);
    if described {
        put_describe(out, Target::Portal, "");
    }
    put_execute(out, "", 0);
    put_sync(out);
}

/// The error where more bytes than this would have to travel.
pub(crate) fn too_large(bytes_max: usize) -> Failure {
    ErrorFields::error("54000", "the statement would gather too many rows on one node")
        .with(b'D', format!("More than {} MiB would have to travel.", bytes_max >> 20))
        .with(b'H', "Restrict the tables by conditions, or join them by their distribution keys.")
        .into()
}
