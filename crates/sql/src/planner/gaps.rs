//! Gaps in a statement's text, and expressions of our own in its tree.
//!
//! Owns: what marks a gap until the text is cut there, and that nothing of our own is taken for the client's.
//! Never: decides what a gap is for.
//! Start reading at [`gap`] and [`cut`].

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, ResTarget, SelectStmt};

use super::analysis::NOWHERE;
use super::output_names;
use super::sql_text::deparse;
use crate::catalog::MapId;
use crate::plan::{Piece, Template};
use crate::refusal::Refusal;
use crate::walk;

/// Stands for a gap until the final statement is text. No statement that holds it is gathered.
const MARKER: &str = "tutti:gap:";

/// The expression that marks where rows go, until [`cut`]: a literal, in what [`refuse_marked`] has let pass.
pub(super) fn gap(index: usize) -> String {
    format!("'{MARKER}{index}'")
}

/// The same for an expression that gives the current time.
pub(super) fn gap_of_time(sql: &str) -> String {
    // In digits, so that it does not say what means the current time, and another one everywhere.
    let digits: String = sql.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("'{MARKER}time:{digits}'")
}

/// The same for the buckets of this map that a node has.
pub(super) fn gap_of_buckets(map: MapId) -> String {
    format!("'{MARKER}buckets:{}'", map.0)
}

/// A client's statement that says itself what marks gaps could not be cut.
///
/// Errors: 0A000 if it does.
pub(super) fn refuse_marked(tree: &NodeEnum) -> Result<(), Refusal> {
    if deparse(tree)?.contains(MARKER) { Err(refuse_marker()) } else { Ok(()) }
}

fn refuse_marker() -> Refusal {
    Refusal::unsupported(
        "this statement contains text that Tutti uses itself",
        "It marks places in rewritten statements.",
        "Send the text as a parameter.",
    )
}

/// How many gaps are marked in a text.
pub(super) fn gap_count(text: &str) -> usize {
    text.matches(MARKER).count()
}

/// Cuts the text at its markers.
pub(super) fn cut(text: &str) -> Result<Template, Refusal> {
    let mut pieces = Vec::new();
    let mut rest = text;
    let quoted = format!("'{MARKER}");
    while let Some(at) = rest.find(&quoted) {
        pieces.push(Piece::Sql(rest[..at].to_owned()));
        let tail = &rest[at + quoted.len()..];
        let end = tail
            .find('\'')
            .ok_or_else(|| Refusal::postgres("XX000", "a gathered statement cannot be cut"))?;
        let gap = &tail[..end];
        let piece = match (gap.strip_prefix("time:"), gap.strip_prefix("buckets:")) {
            (Some(digits), _) => of_digits(digits).map(Piece::Time),
            (_, Some(map)) => map.parse().ok().map(|map| Piece::Buckets(MapId(map))),
            (None, None) => gap.parse().ok().map(Piece::Rows),
        };
        pieces.push(piece.ok_or_else(refuse_marker)?);
        rest = &tail[end + 1..];
    }
    pieces.push(Piece::Sql(rest.to_owned()));
    Ok(Template(pieces))
}

/// What [`gap_of_time`] has written.
fn of_digits(digits: &str) -> Option<String> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    String::from_utf8(pairs.map(byte).collect::<Option<_>>()?).ok()
}

/// A query of our own.
pub(super) fn parse_select(text: &str) -> Result<Box<SelectStmt>, Refusal> {
    let statement = crate::statement::parse(text)?.pop();
    match statement.map(|statement| statement.tree) {
        Some(NodeEnum::SelectStmt(select)) => Ok(select),
        _ => Err(Refusal::postgres("XX000", format!("cannot read our own SQL: {text}"))),
    }
}

/// An expression of our own, which stands nowhere in the client's statement.
pub(super) fn expression(sql: &str) -> Result<Node, Refusal> {
    let select = parse_select(&format!("SELECT {sql}"))?;
    let target = select.target_list.into_iter().next().and_then(|target| target.node);
    match target {
        Some(NodeEnum::ResTarget(target)) if target.val.is_some() => {
            let mut value = *target.val.expect("just looked");
            leave_nowhere(&mut value);
            Ok(value)
        }
        _ => Err(Refusal::postgres("XX000", format!("cannot read our own SQL: {sql}"))),
    }
}

/// Takes away the locations of references, which would be taken for those of the client's.
fn leave_nowhere(node: &mut Node) {
    let Some(of) = &mut node.node else { return };
    if let NodeEnum::ColumnRef(reference) = of {
        reference.location = NOWHERE;
    }
    walk::write::children(of, &mut leave_nowhere);
}

/// The name that an output without AS takes from its expression.
pub(super) fn output_name(target: &ResTarget) -> Option<String> {
    let value = target.val.as_ref()?.node.as_ref()?;
    target.name.is_empty().then(|| output_names::figure(value).to_owned())
}
