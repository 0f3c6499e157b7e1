//! Which columns can be distribution keys, and at which values ranges of them begin.
//!
//! Owns: what node 1 is asked of a column, and what is said of one that cannot be a key.
//! Never: registers a placement (`placement` does).
//! Start reading at [`check_key`] and [`check_range_key`].

use tutti_link::connection::NodeConnection;
use tutti_sql::catalog::quote_literal;
use tutti_sql::hash::{KeyType, Splits, WrongSplits};
use tutti_sql::refusal::Refusal;
use tutti_sql::statement::SplitValue;

use super::rows::Answer;
use crate::error::GatewayError;

/// The type of a key by this column.
///
/// Errors: [`GatewayError::Refused`] for a column that cannot be one.
pub async fn check_key(
    home: &mut NodeConnection,
    oid: u32,
    column: &str,
) -> Result<KeyType, GatewayError> {
    Ok(read_key(home, oid, column).await?.0)
}

/// The type of a key by this column, and whether the order of its values is that of their bytes, or they are no texts.
async fn read_key(
    home: &mut NodeConnection,
    oid: u32,
    column: &str,
) -> Result<(KeyType, bool), GatewayError> {
    let rows = home
        .rows(&format!(
            "SELECT c.relname, a.atttypid, pg_catalog.format_type(a.atttypid, NULL),
    coalesce(l.collisdeterministic, true),
    coalesce(l.collprovider OPERATOR(pg_catalog.=) 'c'
        AND l.collcollate OPERATOR(pg_catalog.=) ANY ('{{C,POSIX}}'::pg_catalog.text[]), true)
FROM pg_catalog.pg_class c
LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid OPERATOR(pg_catalog.=) c.oid AND a.attname OPERATOR(pg_catalog.=) {}
    AND a.attnum OPERATOR(pg_catalog.>) 0::pg_catalog.int2 AND NOT a.attisdropped
LEFT JOIN pg_catalog.pg_collation l ON l.oid OPERATOR(pg_catalog.=) a.attcollation
WHERE c.oid OPERATOR(pg_catalog.=) {oid}::pg_catalog.oid",
            quote_literal(column)
        ))
        .await?;
    let answer = Answer { node: home.node(), what: "a distribution key", rows: &rows };
    let table = answer.text(0, 0)?;
    if answer.optional(0, 1).is_none() {
        let message = format!("column \"{column}\" of relation \"{table}\" does not exist");
        return Err(Refusal::postgres("42703", message)
            .with_hint("DISTRIBUTE BY HASH names columns of the table, RANGE one of them.")
            .into());
    }
    let type_name = answer.text(0, 2)?;
    let Some(key_type) = KeyType::from_oid(answer.number(0, 1)?) else {
        return Err(Refusal::unsupported(
            format!("cannot distribute \"{table}\" by column \"{column}\" of type {type_name}"),
            "Rows are found again by a hash of their key, and values of this type do not hash \
             alike on all nodes, or not in a way that the gateway can compute.",
            format!("Types of a distribution key: {}.", key_type_names()),
        )
        .into());
    };
    if !answer.boolean(0, 3)? {
        return Err(Refusal::unsupported(
            format!("cannot distribute \"{table}\" by column \"{column}\""),
            "Its collation is nondeterministic: values that are equal can have different hashes.",
            "Distribute by another column, or give this one a deterministic collation.",
        )
        .into());
    }
    Ok((key_type, answer.boolean(0, 4)?))
}

fn key_type_names() -> String {
    let names: Vec<_> = KeyType::ALL.iter().map(|t| format!("{t:?}").to_lowercase()).collect();
    names.join(", ")
}

/// Split values as node 1 reads them in this session, in the spelling that all servers read alike.
///
/// Errors: the node's own (22P02 and the like), or [`GatewayError::Refused`]: 42804 for a number where the key is none,
/// 22023 for values that are not ascending or that no spelling is known for.
pub(super) async fn read_splits(
    home: &mut NodeConnection,
    column: &str,
    key_type: KeyType,
    values: &[SplitValue],
) -> Result<Splits, GatewayError> {
    let type_name = key_type.ordered_as().unwrap_or_default();
    if type_name != "int8"
        && let Some(SplitValue::Number(number)) =
            values.iter().find(|value| matches!(value, SplitValue::Number(_)))
    {
        let message = format!("split value {number} is not of the type of column \"{column}\"");
        let hint = format!("Write it as a string that the type {type_name} reads.");
        return Err(Refusal::postgres("42804", message).with_hint(hint).into());
    }
    let first = "'0001-01-01'";
    let last = "'9999-12-31'";
    let between = |value: &str, text: &str| {
        format!(
            "CASE WHEN {value} OPERATOR(pg_catalog.>=) {first} \
             AND {value} OPERATOR(pg_catalog.<=) {last} THEN {text} END"
        )
    };
    let typed = format!("u.value::pg_catalog.{type_name}");
    let canonical = match key_type {
        KeyType::Date => between(&typed, &format!("pg_catalog.to_char({typed}, 'YYYY-MM-DD')")),
        KeyType::Timestamp => {
            between(&typed, &format!("pg_catalog.to_char({typed}, 'YYYY-MM-DD HH24:MI:SS.US')"))
        }
        KeyType::Timestamptz => {
            let at = format!("pg_catalog.timezone('UTC', {typed})");
            let text = format!(
                "pg_catalog.concat(pg_catalog.to_char({at}, 'YYYY-MM-DD HH24:MI:SS.US'), '+00')"
            );
            between(&at, &text)
        }
        _ => format!("{typed}::pg_catalog.text"),
    };
    let texts: Vec<_> = values.iter().map(|value| quote_literal(value.text())).collect();
    let sql = format!(
        "SELECT {canonical} FROM pg_catalog.unnest(ARRAY[{}]::pg_catalog.text[]) WITH ORDINALITY AS u (value, place) \
         ORDER BY u.place",
        texts.join(", ")
    );
    let rows = home.rows(&sql).await?;
    let answer = Answer { node: home.node(), what: "split values", rows: &rows };
    let mut texts = Vec::with_capacity(values.len());
    for (row, value) in values.iter().enumerate() {
        let Some(text) = answer.optional(row, 0) else {
            let message = format!("a range cannot begin at \"{}\"", value.text());
            let detail = "Ranges of dates and times begin in the years 1 to 9999.";
            return Err(Refusal::postgres("22023", message).with_detail(detail).into());
        };
        texts.push(text.to_owned());
    }
    Splits::new(key_type.family(), texts).map_err(|wrong| match wrong {
        WrongSplits::Order(before, after) => {
            let message = format!("split value \"{after}\" does not come after \"{before}\"");
            let hint =
                "Write the values in ascending order, each once. Texts are ordered by their bytes.";
            Refusal::postgres("22023", message).with_hint(hint).into()
        }
        wrong => Refusal::postgres("22023", wrong.to_string()).into(),
    })
}

/// The type of a key by whose ranges a table is distributed.
///
/// Errors: as [`check_key`]; [`GatewayError::Refused`] also for one of a type, or of a collation, in whose order ranges
/// are not known.
pub async fn check_range_key(
    home: &mut NodeConnection,
    oid: u32,
    column: &str,
) -> Result<KeyType, GatewayError> {
    let (key_type, is_by_bytes) = read_key(home, oid, column).await?;
    if key_type.ordered_as().is_none() {
        return Err(Refusal::unsupported(
            format!("cannot distribute by ranges of column \"{column}\""),
            "Of values of its type the gateway does not know the order.",
            "Types of a key by range: smallint, integer, bigint, date, timestamp, timestamptz, uuid, text, varchar. Or \
             distribute BY HASH.",
        )
        .into());
    }
    if !is_by_bytes {
        return Err(Refusal::unsupported(
            format!("cannot distribute by ranges of column \"{column}\""),
            "Its collation may order texts otherwise than by their bytes, and not in the same way on every server.",
            format!(
                "Give it the collation \"C\" (ALTER COLUMN {} TYPE text COLLATE \"C\"), or distribute BY HASH.",
                tutti_sql::catalog::quote_identifier(column)
            ),
        )
        .into());
    }
    Ok(key_type)
}
