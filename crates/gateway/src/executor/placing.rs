//! ALTER TABLE … DISTRIBUTE BY: as Tutti's functions, for one table and, with CASCADE, what refers to it.
//!
//! Owns: which tables go along, and what the client is told where one would have to and cannot.
//! Never: moves a row (`distribute` does).
//! Start reading at [`Executor::place`].

use std::sync::Arc;

use tutti_cluster::catalog::colocation::{self, Misfit, Tie};
use tutti_cluster::catalog::placement::{PlacementKind, placement_in_catalog, placement_of};
use tutti_sql::catalog::{NodeId, Placement, Relation, quote_identifier, quote_literal};
use tutti_sql::plan::{Access, Placing};
use tutti_sql::refusal::Refusal;
use tutti_sql::statement::{DistributeBy, SplitValue};
use tutti_wire::error_fields::ErrorFields;

use super::distribute::Step;
use crate::client::failure::Failure;
use crate::executor::Executor;
use crate::plans::request::Done;

const TAG: &str = "ALTER TABLE";

/// A table that is to have another placement.
struct Going {
    relation: Arc<Relation>,
    by: DistributeBy,
    /// The foreign key for which it goes, and the table that this refers to; `None`: it was named.
    because: Option<(String, String)>,
}

impl Executor<'_> {
    /// Carries out ALTER TABLE … DISTRIBUTE BY, unless the table is, or is to be, replicated asynchronously.
    pub(super) async fn place(&mut self, placing: &Placing) -> Result<Done, Failure> {
        if self.is_skipped(placing).await? {
            return Ok(self.skip_placing(placing));
        }
        self.begin_redistribution().await?;
        let going = self.with_referring(placing).await?;
        let along: Vec<_> = going.iter().skip(1).collect();
        if let (false, Some(first)) = (placing.cascades, along.first()) {
            return Err(needs_cascade(&going, first).into());
        }
        let mut wanted = vec![(placing.table.clone(), placing.distribute_by.clone())];
        wanted.extend(along.iter().map(|it| (it.relation.sql_name(), it.by.clone())));
        self.redistribute_known(&wanted, Step::OfClient).await?;
        for going in along {
            let Some((foreign_key, to)) = &going.because else { continue };
            let name = &going.relation.name;
            let message = match &going.by {
                DistributeBy::Hash(column) | DistributeBy::Range { column, .. } => {
                    format!("distribution cascades to table \"{name}\", by its column \"{column}\"")
                }
                _ => format!("distribution cascades to table \"{name}\""),
            };
            let detail = format!("Its foreign key \"{foreign_key}\" refers to \"{to}\".");
            self.client.put_notice(
                &ErrorFields::with_severity("NOTICE", "00000", message).with(b'D', detail),
            );
        }
        Ok(Done::Tag(TAG.to_owned()))
    }

    /// Whether there is no such table, and none need be (IF EXISTS).
    pub(crate) async fn is_skipped(&mut self, placing: &Placing) -> Result<bool, Failure> {
        if !placing.if_exists {
            return Ok(false);
        }
        let table = quote_literal(&placing.table);
        let sql = format!("SELECT pg_catalog.to_regclass({table}) IS NULL");
        let rows = self.tx.enlist(NodeId::HOME, Access::Read).await?.query(&sql).await?;
        Ok(rows.first().and_then(|rows| rows.text(0, 0)) == Some("t"))
    }

    fn skip_placing(&mut self, placing: &Placing) -> Done {
        let message = format!("relation {} does not exist, skipping", placing.table);
        self.client.put_notice(&ErrorFields::with_severity("NOTICE", "00000", message));
        Done::Tag(TAG.to_owned())
    }

    /// The table, and all that refer to it, and to those, for which it is the same that they would not be with it any
    /// more: by which column each would go.
    ///
    /// Errors: 0A000, with the first foreign key that could not be kept whatever goes along.
    async fn with_referring(&mut self, placing: &Placing) -> Result<Vec<Going>, Failure> {
        let relation = self.table_named(&placing.table).await?;
        let by = placing.distribute_by.clone();
        // What is wrong with itself comes before what refers to it.
        self.plan_redistribution(&relation, &by, Step::OfClient).await?;
        let mut all = vec![Going { relation, by, because: None }];
        let mut next = 0;
        while next < all.len() {
            let (oid, by) = (all[next].relation.oid, all[next].by.clone());
            next += 1;
            let key = match (&by, by.key()) {
                (_, Some(column)) => column,
                (DistributeBy::Home, _) => "",
                _ => return Ok(all),
            };
            let home = self.tx.link(NodeId::HOME).await?.connection();
            for tie in colocation::ties_to(home, oid, key).await? {
                let Some(from) = self.relation_of(tie.from) else { continue };
                let its = match key {
                    "" if from.placement == Placement::Home => continue,
                    "" => DistributeBy::Home,
                    _ => {
                        let home = self.tx.link(NodeId::HOME).await?.connection();
                        let PlacementKind::Hash { map, bucketing, .. } =
                            placement_of(home, oid, &by).await?
                        else {
                            continue;
                        };
                        let column = match by_which_column(&tie, &all) {
                            Ok(column) => column,
                            Err(problem) => return Err(colocation::refusal(&tie, &problem).into()),
                        };
                        let name = tie.from_name.as_str();
                        let problem =
                            colocation::misfit(home, tie.from, name, &column, map, &bucketing)
                                .await?;
                        if let Some(problem) = problem {
                            return Err(colocation::refusal(&tie, &problem).into());
                        }
                        match placement_in_catalog(&from, &self.tx.catalog.maps) {
                            PlacementKind::Hash { key, map: its, .. }
                                if key == column && its == map =>
                            {
                                continue;
                            }
                            _ => by.by(column),
                        }
                    }
                };
                if !all.iter().any(|going| going.relation.oid == from.oid) {
                    let because = Some((tie.name, tie.to_name));
                    all.push(Going { relation: from, by: its, because });
                }
            }
        }
        Ok(all)
    }

    fn relation_of(&self, oid: u32) -> Option<Arc<Relation>> {
        let mut relations = self.tx.catalog.relations.values().flat_map(|it| it.values());
        relations.find(|relation| relation.oid == oid).cloned()
    }
}

/// By which column the table that refers must go.
fn by_which_column(tie: &Tie, all: &[Going]) -> Result<String, Misfit> {
    let Some(column) = &tie.column else {
        return Err(Misfit {
            why: format!(
                "The foreign key does not name the column by which \"{}\" is to be distributed.",
                tie.to_name
            ),
            hint: "Let it name that column, too.".to_owned(),
        });
    };
    if tie.changes_column {
        return Err(Misfit {
            why: "ON UPDATE CASCADE, SET NULL and SET DEFAULT change rows where they are, but a row with another \
                  distribution key belongs on another node."
                .to_owned(),
            hint: "Use NO ACTION or RESTRICT (or ON DELETE CASCADE).".to_owned(),
        });
    }
    let decided = all.iter().find(|going| going.relation.oid == tie.from);
    match decided.and_then(|going| going.by.key()) {
        Some(other) if other != column => Err(Misfit {
            why: format!(
                "Table \"{}\" would have to be distributed by \"{column}\", and is to be by \"{other}\".",
                tie.from_name
            ),
            hint: format!("Drop the foreign key, or let it name \"{other}\"."),
        }),
        _ => Ok(column.clone()),
    }
}

/// What stands behind DISTRIBUTE BY, of a placement that takes others along.
fn clause(by: &DistributeBy) -> String {
    match by {
        DistributeBy::Hash(column) => format!("HASH ({})", quote_identifier(column)),
        DistributeBy::Range { column, splits } => {
            let values = splits.iter().map(|value| match value {
                SplitValue::Number(number) => number.clone(),
                SplitValue::Text(text) => quote_literal(text),
            });
            let values: Vec<_> = values.collect();
            let column = quote_identifier(column);
            format!("RANGE ({column}) SPLIT AT VALUES ({})", values.join(", "))
        }
        _ => "HOME".to_owned(),
    }
}

/// What is said where tables would have to go along that the statement does not take along.
fn needs_cascade(going: &[Going], first: &Going) -> Refusal {
    let named = &going[0];
    let (foreign_key, to) = first.because.clone().unwrap_or_default();
    let name = named.relation.sql_name();
    let (clause, call) = match &named.by {
        DistributeBy::Range { .. } => (clause(&named.by), String::new()),
        DistributeBy::Hash(_) => {
            let tables = going.iter().filter_map(|it| match &it.by {
                DistributeBy::Hash(column) => {
                    Some([quote_literal(&it.relation.sql_name()), quote_literal(column)])
                }
                _ => None,
            });
            let arguments: Vec<_> = tables.flatten().collect();
            (clause(&named.by), format!("tutti_distribute({})", arguments.join(", ")))
        }
        _ => {
            let arguments: Vec<_> =
                going.iter().map(|it| quote_literal(&it.relation.sql_name())).collect();
            (clause(&named.by), format!("tutti_home({})", arguments.join(", ")))
        }
    };
    Refusal::unsupported(
        format!(
            "foreign key \"{foreign_key}\" of table \"{}\" cannot be enforced",
            first.relation.name
        ),
        format!("A row and the row of \"{to}\" that it refers to can be on different nodes."),
        format!(
            "Take along the tables that refer to it: ALTER TABLE {name} DISTRIBUTE BY {clause} CASCADE{}.",
            if call.is_empty() { call } else { format!(", or SELECT {call}") }
        ),
    )
}
