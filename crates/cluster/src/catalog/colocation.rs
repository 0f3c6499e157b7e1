//! Which tables foreign keys hold together, and by which column one may follow another.
//!
//! Owns: what node 1 says of foreign keys and of what a distribution key must fit, before anything is placed.
//! Never: places a table, or has the last word: [`super::verify()`] looks at what has become of all of it.
//! Start reading at [`ties_to`] and [`column_of_new`].

use tutti_link::connection::NodeConnection;
use tutti_sql::catalog::{MapId, quote_literal};
use tutti_sql::hash::{Bucketing, KeyType};
use tutti_sql::refusal::Refusal;

use super::keys::{check_key, check_range_key};
use super::maps::{SPLITS_SQL, map_by, read_bucketing};
use super::placement::PlacementKind;
use super::rows::Answer;
use super::verify::qualified;
use crate::error::GatewayError;

/// A foreign key, as far as placements can break it.
#[derive(Clone, Debug)]
pub struct Tie {
    /// Its name.
    pub name: String,
    /// The table that refers, by its OID on node 1.
    pub from: u32,
    /// That table's name, with its schema unless that is `public`.
    pub from_name: String,
    /// The table that is referred to.
    pub to: u32,
    /// Its name.
    pub to_name: String,
    /// The column of `from` that it pairs with the key of `to`, if it does.
    pub column: Option<String>,
    /// It would change that column where the row is (ON UPDATE CASCADE and the like).
    pub changes_column: bool,
    /// The placement of `to` is that of a table that is replicated at once.
    to_replicated: bool,
    /// The map of `to`, if it is distributed by hash.
    to_map: Option<MapId>,
}

/// Foreign keys `f` with what they pair with the column that `key` names of the table referred to. Those that partitions
/// have of their parents are left out.
fn ties_sql(key: &str, which: &str) -> String {
    format!(
        "SELECT f.conname, f.conrelid, n.nspname, c.relname, f.confrelid, rn.nspname, r.relname, a.attname,
    a.attnum OPERATOR(pg_catalog.=) ANY (f.conkey) AND (
        f.confupdtype OPERATOR(pg_catalog.=) ANY ('{{c,n,d}}'::pg_catalog.\"char\"[])
        OR (f.confdeltype OPERATOR(pg_catalog.=) ANY ('{{n,d}}'::pg_catalog.\"char\"[])
            AND (f.confdelsetcols IS NULL OR a.attnum OPERATOR(pg_catalog.=) ANY (f.confdelsetcols)))),
    coalesce(p.kind OPERATOR(pg_catalog.=) 'replicated', false),
    CASE WHEN p.kind OPERATOR(pg_catalog.=) 'hash' AND p.key_attnum IS NOT NULL THEN p.map END
FROM pg_catalog.pg_constraint f
JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) f.conrelid
JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
JOIN pg_catalog.pg_class r ON r.oid OPERATOR(pg_catalog.=) f.confrelid
JOIN pg_catalog.pg_namespace rn ON rn.oid OPERATOR(pg_catalog.=) r.relnamespace
LEFT JOIN tutti.placement p ON p.relation OPERATOR(pg_catalog.=) f.confrelid
LEFT JOIN pg_catalog.pg_attribute k ON k.attrelid OPERATOR(pg_catalog.=) f.confrelid AND NOT k.attisdropped
    AND k.attnum OPERATOR(pg_catalog.>) 0::pg_catalog.int2 AND {key}
LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid OPERATOR(pg_catalog.=) f.conrelid
    AND a.attnum OPERATOR(pg_catalog.=) f.conkey[pg_catalog.array_position(f.confkey, k.attnum)]
WHERE f.contype OPERATOR(pg_catalog.=) 'f' AND f.conparentid OPERATOR(pg_catalog.=) 0::pg_catalog.oid AND {which}
ORDER BY f.oid"
    )
}

async fn read(home: &mut NodeConnection, sql: &str) -> Result<Vec<Tie>, GatewayError> {
    let rows = home.rows(sql).await?;
    let answer = Answer { node: home.node(), what: "foreign keys", rows: &rows };
    let tie = |row| -> Result<Tie, GatewayError> {
        let to_map = answer.optional(row, 10).map(|_| answer.number(row, 10)).transpose()?;
        Ok(Tie {
            name: answer.text(row, 0)?.to_owned(),
            from: answer.number(row, 1)?,
            from_name: qualified(answer.text(row, 2)?, answer.text(row, 3)?),
            to: answer.number(row, 4)?,
            to_name: qualified(answer.text(row, 5)?, answer.text(row, 6)?),
            column: answer.optional(row, 7).map(str::to_owned),
            changes_column: answer.optional(row, 8) == Some("t"),
            to_replicated: answer.boolean(row, 9)?,
            to_map: to_map.map(MapId),
        })
    };
    (0..answer.len()).map(tie).collect()
}

/// The foreign keys by which tables refer to this one, `key` being what it is to be distributed by (empty: nothing).
pub async fn ties_to(
    home: &mut NodeConnection,
    table: u32,
    key: &str,
) -> Result<Vec<Tie>, GatewayError> {
    let key = format!("k.attname OPERATOR(pg_catalog.=) {}", quote_literal(key));
    let which = format!("f.confrelid OPERATOR(pg_catalog.=) {table}::pg_catalog.oid");
    read(home, &ties_sql(&key, &which)).await
}

/// What a key by this column cannot be, of a table that is there.
#[derive(Clone, Debug)]
pub struct Misfit {
    /// Why: a sentence.
    pub why: String,
    /// What to do: a sentence.
    pub hint: String,
}

/// Why this table cannot be distributed by the column with the map `map`, whose buckets follow so from keys; `None` if nothing of its own forbids it.
pub async fn misfit(
    home: &mut NodeConnection,
    table: u32,
    name: &str,
    column: &str,
    map: MapId,
    bucketing: &Bucketing,
) -> Result<Option<Misfit>, GatewayError> {
    let checked = match bucketing {
        Bucketing::Hash => check_key(home, table, column).await,
        Bucketing::Range(_) => check_range_key(home, table, column).await,
    };
    let key_type = match checked {
        Ok(key_type) => key_type,
        Err(GatewayError::Refused(refusal)) => return Ok(Some(as_misfit(column, refusal))),
        Err(error) => return Err(error),
    };
    if map_by(bucketing, key_type) != Some(map) {
        let why = format!(
            "Its column \"{column}\" is of another kind of type than the key that it refers to, and is placed differently."
        );
        let hint = "Give both columns the same type.".to_owned();
        return Ok(Some(Misfit { why, hint }));
    }
    let Some(unique) = without_column(home, table, column).await? else { return Ok(None) };
    Ok(Some(Misfit {
        why: format!(
            "Its {unique} does not contain \"{column}\": rows that differ in that column can be on different nodes, \
             where no node can check it."
        ),
        hint: format!("Include \"{column}\" in the {unique} of table \"{name}\"."),
    }))
}

/// What cannot be a key at all.
fn as_misfit(column: &str, refusal: Refusal) -> Misfit {
    let why = refusal.detail.unwrap_or(refusal.message);
    Misfit {
        why: format!("Its column \"{column}\" cannot be a distribution key. {why}"),
        hint: refusal.hint.unwrap_or_default(),
    }
}

/// A unique index or exclusion constraint that compares rows with different values of the column, in words.
async fn without_column(
    home: &mut NodeConnection,
    table: u32,
    column: &str,
) -> Result<Option<String>, GatewayError> {
    let sql = format!(
        "SELECT x.relname, i.indisprimary, i.indisexclusion FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_class x ON x.oid OPERATOR(pg_catalog.=) i.indexrelid
JOIN pg_catalog.pg_attribute a ON a.attrelid OPERATOR(pg_catalog.=) i.indrelid
    AND a.attname OPERATOR(pg_catalog.=) {} AND NOT a.attisdropped
LEFT JOIN pg_catalog.pg_constraint k ON k.conindid OPERATOR(pg_catalog.=) i.indexrelid
    AND k.contype OPERATOR(pg_catalog.=) 'x'
WHERE i.indrelid OPERATOR(pg_catalog.=) {table}::pg_catalog.oid AND (i.indisunique OR i.indisexclusion)
    AND NOT EXISTS (SELECT FROM tutti.unique_index u WHERE u.index OPERATOR(pg_catalog.=) i.indexrelid)
    AND NOT EXISTS (SELECT FROM pg_catalog.generate_series(0, i.indnkeyatts OPERATOR(pg_catalog.-) 1) AS place
        LEFT JOIN pg_catalog.pg_operator o ON o.oid OPERATOR(pg_catalog.=) k.conexclop[place OPERATOR(pg_catalog.+) 1]
        WHERE i.indkey[place] OPERATOR(pg_catalog.=) a.attnum
            AND (NOT i.indisexclusion OR coalesce(o.oprname OPERATOR(pg_catalog.=) '=', true)))
ORDER BY i.indisprimary DESC, x.relname LIMIT 1",
        quote_literal(column)
    );
    let rows = home.rows(&sql).await?;
    let answer = Answer { node: home.node(), what: "unique indexes", rows: &rows };
    if answer.is_empty() {
        return Ok(None);
    }
    let what = match (answer.boolean(0, 1)?, answer.boolean(0, 2)?) {
        (true, _) => "primary key",
        (_, true) => "exclusion constraint",
        _ => "unique constraint",
    };
    Ok(Some(format!("{what} \"{}\"", answer.text(0, 0)?)))
}

/// How the buckets of a map that a table has follow from keys.
async fn read_map(home: &mut NodeConnection, map: MapId) -> Result<Bucketing, GatewayError> {
    let sql = format!(
        "SELECT m.key_family, {SPLITS_SQL} FROM tutti.map m WHERE m.id OPERATOR(pg_catalog.=) {}",
        map.0
    );
    let rows = home.rows(&sql).await?;
    let answer = Answer { node: home.node(), what: "a bucket map", rows: &rows };
    let bucketing = read_bucketing(answer.text(0, 0)?, answer.optional(0, 1));
    bucketing.ok_or_else(|| answer.unreadable())
}

/// With which table a new one goes that says nothing of its placement.
#[derive(Clone, Debug)]
pub struct Followed {
    /// By which column: the new table's key.
    pub column: String,
    /// Its type.
    pub key_type: KeyType,
    /// The other table's map.
    pub map: MapId,
    /// How the map's buckets follow from keys.
    pub bucketing: Bucketing,
    /// The foreign key.
    pub foreign_key: String,
    /// The table that it refers to.
    pub to_name: String,
}

impl Followed {
    /// The placement.
    pub fn placement(&self) -> PlacementKind {
        let (key, key_type) = (self.column.clone(), self.key_type);
        PlacementKind::Hash { key, key_type, map: self.map, bucketing: self.bucketing.clone() }
    }
}

/// By which column a table that was just created goes with one that it refers to: the first in the statement's order by
/// which each of its foreign keys can be checked on the node of its row. `None`: it refers to none that is distributed by
/// hash.
///
/// Errors: [`GatewayError::Refused`] where it does, and cannot go with it.
pub async fn column_of_new(
    home: &mut NodeConnection,
    table: u32,
) -> Result<Option<Followed>, GatewayError> {
    let which = format!("f.conrelid OPERATOR(pg_catalog.=) {table}::pg_catalog.oid");
    let ties =
        read(home, &ties_sql("k.attnum OPERATOR(pg_catalog.=) p.key_attnum", &which)).await?;
    let mut refused = None;
    for tie in &ties {
        let Some(map) = tie.to_map else { continue };
        let problem = match &tie.column {
            None => Some(Misfit {
                why: format!("It does not name the column that \"{}\" is distributed by.", tie.to_name),
                hint: "Let it name that column, too.".to_owned(),
            }),
            Some(_) if tie.changes_column => Some(Misfit {
                why: "ON UPDATE CASCADE, SET NULL and SET DEFAULT change rows where they are, but a row with another \
                      distribution key belongs on another node."
                    .to_owned(),
                hint: "Use NO ACTION or RESTRICT (or ON DELETE CASCADE).".to_owned(),
            }),
            Some(column) => {
                let bucketing = read_map(home, map).await?;
                match misfit(home, table, &tie.from_name, column, map, &bucketing).await? {
                Some(problem) => Some(problem),
                None => match broken(home, table, &ties, column, map).await? {
                    Some(problem) => Some(problem),
                    None => {
                        let key_type = check_key(home, table, column).await?;
                        return Ok(Some(Followed {
                            column: column.clone(),
                            key_type,
                            map,
                            bucketing,
                            foreign_key: tie.name.clone(),
                            to_name: tie.to_name.clone(),
                        }));
                    }
                },
            }}
        };
        refused = refused.or_else(|| problem.map(|problem| refusal(tie, &problem)));
    }
    refused.map_or(Ok(None), |refusal| Err(refusal.into()))
}

/// Which of a new table's foreign keys could not be checked if it were distributed by the column.
async fn broken(
    home: &mut NodeConnection,
    table: u32,
    ties: &[Tie],
    column: &str,
    map: MapId,
) -> Result<Option<Misfit>, GatewayError> {
    let to_itself = ties_to(home, table, column).await?;
    for tie in ties {
        let (tie, is_there) = match to_itself.iter().find(|own| own.name == tie.name) {
            Some(own) => (own, true),
            None => (tie, tie.to_map == Some(map)),
        };
        let pairs = is_there && tie.column.as_deref() == Some(column);
        if !pairs && !tie.to_replicated {
            return Ok(Some(Misfit {
                why: format!(
                    "Were the table distributed by \"{column}\", its foreign key \"{}\" could not be checked: the rows of \
                     \"{}\" that it refers to can be on other nodes.",
                    tie.name, tie.to_name
                ),
                hint: format!(
                    "Make table \"{}\" REPLICATED, or distribute it by a column that is paired with \"{column}\".",
                    tie.to_name
                ),
            }));
        }
        if pairs && tie.changes_column {
            return Ok(Some(Misfit {
                why: format!("Foreign key \"{}\" would change the column \"{column}\".", tie.name),
                hint: "Use NO ACTION or RESTRICT (or ON DELETE CASCADE).".to_owned(),
            }));
        }
    }
    Ok(None)
}

/// What is said of a foreign key that cannot be checked, as [`super::verify()`] says it.
pub fn refusal(tie: &Tie, problem: &Misfit) -> Refusal {
    Refusal::unsupported(
        format!("foreign key \"{}\" of table \"{}\" cannot be enforced", tie.name, tie.from_name),
        format!(
            "A row and the row of \"{}\" that it refers to can be on different nodes. {}",
            tie.to_name, problem.why
        ),
        format!(
            "{} Then the table can go with \"{}\". Or make table \"{1}\" REPLICATED.",
            problem.hint, tie.to_name
        ),
    )
}
