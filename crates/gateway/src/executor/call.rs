//! By which protocol the client asked, and so by which the nodes are asked.
//!
//! Owns: writing a statement to a node in the client's protocol, with the client's parameters.
//! Never: reads answers.

use tutti_sql::planner::names_current_time;
use tutti_wire::frontend::{Arguments, put_bind, put_execute, put_parse, put_query, put_sync};

use super::many::Origin;
use crate::session::Link;

/// How a statement came.
#[derive(Clone, Debug)]
pub enum Call {
    /// In a Query message: rows are described, values are text, no parameters.
    Simple,
    /// By Execute: rows were described before, formats as bound.
    Extended {
        /// Type of every parameter; 0 where the client left it open and nobody asked a node.
        types: Vec<u32>,
        /// Values and formats.
        arguments: Arguments,
    },
}

impl Call {
    /// Whether the client used the extended protocol.
    pub fn is_extended(&self) -> bool {
        matches!(self, Self::Extended { .. })
    }

    /// Whether a value may be read as the current time: `now` for a `timestamptz`, say. Each node would
    /// take its own.
    pub(super) fn may_say_now(&self) -> bool {
        /// bytea, int8, int2, int4, text, json, oid, float4, float8, bpchar, varchar, numeric, uuid, jsonb.
        const TIMELESS: [u32; 14] =
            [17, 20, 21, 23, 25, 114, 26, 700, 701, 1042, 1043, 1700, 2950, 3802];
        let Self::Extended { types, arguments } = self else { return false };
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
        link.begin();
        match self {
            Self::Simple => put_query(link.connection().outgoing(), sql),
            Self::Extended { types, arguments } => {
                let types = link.types_here(types);
                let out = link.connection().outgoing();
                put_parse(out, "", sql, &types);
                put_bind(out, "", "", arguments);
                put_execute(out, "", 0);
                put_sync(out);
            }
        }
    }

    /// Parameter types and arguments for a statement of this origin.
    pub(super) fn parts(&self, origin: Origin) -> (&[u32], Arguments) {
        match (self, origin) {
            (Self::Simple, _) => (&[], Arguments::default()),
            (Self::Extended { types, arguments }, Origin::Client) => (types, arguments.clone()),
            (Self::Extended { types, arguments }, Origin::Gateway) => {
                (types, Arguments { result_formats: Vec::new(), ..arguments.clone() })
            }
        }
    }

    /// Appends a query of the gateway's own that may contain the client's parameters; its rows come
    /// as text whatever the client asked for.
    pub(crate) fn put_internal(&self, link: &mut Link, sql: &str) {
        link.begin();
        match self {
            Self::Extended { types, arguments } if !arguments.values.is_empty() => {
                let types = link.types_here(types);
                let out = link.connection().outgoing();
                put_parse(out, "", sql, &types);
                let arguments = Arguments { result_formats: Vec::new(), ..arguments.clone() };
                put_bind(out, "", "", &arguments);
                put_execute(out, "", 0);
                put_sync(out);
            }
            Self::Simple | Self::Extended { .. } => {
                put_query(link.connection().outgoing(), sql);
            }
        }
    }
}
