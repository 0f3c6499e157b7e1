//! Texts of a plan's templates.
//!
//! Owns: what stands in their gaps: parameters for rows, literals for times. Never: has a row, or asks for the time.
//! Start reading at [`fill_template`].

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use tutti_sql::catalog::{Catalog, NodeId, quote_literal};
use tutti_sql::plan::{Piece, Template};
use tutti_sql::statement;

use crate::plans::request::Call;

/// Literals by the expressions that give them.
pub(super) type Times = BTreeMap<String, String>;

/// `template` with its gaps filled: rows are parameters after those of the client.
pub(super) fn fill_template(template: &Template, call: &Call, times: &Times) -> String {
    fill_template_with(template, call, times, |index| index)
}

/// The same where not all rows are sent: which of those that are each gap means.
pub(super) fn fill_template_with(
    template: &Template,
    call: &Call,
    times: &Times,
    place: impl Fn(usize) -> usize,
) -> String {
    let before = call.parameter_count();
    filled(template, times, |index| format!(" ${}", before + place(index) + 1))
}

/// The same with rows as literals, which PostgreSQL gives the types that parameters would have there.
pub(super) fn fill_template_with_literals(
    template: &Template,
    rows: &[Bytes],
    times: &Times,
) -> String {
    filled(template, times, |index| {
        let rows =
            rows.get(index).map_or(Cow::Borrowed("{}"), |rows| String::from_utf8_lossy(rows));
        quote_literal(&rows)
    })
}

fn filled(template: &Template, times: &Times, rows: impl Fn(usize) -> String) -> String {
    let mut text = String::new();
    for piece in &template.0 {
        match piece {
            Piece::Sql(sql) => text.push_str(sql),
            Piece::Rows(index) => text.push_str(&rows(*index)),
            Piece::Time(sql) => text.push_str(times.get(sql).unwrap_or(sql)),
            // Of no node: none.
            Piece::Buckets(_) => text.push_str("'{}'"),
        }
    }
    text
}

/// `template` as this node gets it.
pub(super) fn of_node(template: &Template, node: NodeId, catalog: &Catalog) -> Template {
    let own = |piece: &Piece| match piece {
        Piece::Buckets(map) => {
            let nodes = catalog.maps.get(map).map(|map| map.nodes.as_slice()).unwrap_or_default();
            let own = nodes.iter().enumerate().filter(|(_, of)| **of == node);
            let own: Vec<_> = own.map(|(bucket, _)| bucket.to_string()).collect();
            Piece::Sql(format!("'{{{}}}'", own.join(",")))
        }
        piece => piece.clone(),
    };
    Template(template.0.iter().map(own).collect())
}

/// Whether it is a command whose query may have none.
pub(super) fn takes_no_parameters(template: &Template) -> bool {
    matches!(template.0.first(), Some(Piece::Sql(sql)) if statement::first_word(sql).eq_ignore_ascii_case("copy"))
}
