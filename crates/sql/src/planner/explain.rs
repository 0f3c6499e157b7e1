//! A plan in words, as EXPLAIN shows it and tests read it.
//!
//! Owns: the wording.
//! Never: knows what a plan costs.

use crate::plan::{
    Access, Brought, Collect, CollectFrom, CopyToPlan, DataPlan, Ddl, FirstRows, Gather, Insert,
    InsertSource, KeyValue, NodeChoice, Partial, Pin, Plan, Planned, RowsWrite, RunOn, SchemaPlan,
    TableLock,
};

const BY_THE_SESSION: &str = "Tutti: answered by the gateway's session";

/// The plan, one line per step, details indented by two spaces; the last line says why.
pub fn explain_lines(planned: &Planned) -> Vec<String> {
    let mut lines = Vec::new();
    describe(&planned.plan, &mut lines);
    lines.extend(entries_line(planned).map(|line| format!("  {line}")));
    lines.push(format!("  Why: {}", planned.why));
    if let Plan::Data(DataPlan::One { otherwise: Some(otherwise), .. }) = &planned.plan {
        lines.push("  If the values land on several nodes:".to_owned());
        lines.extend(explain_lines(otherwise).into_iter().map(|line| format!("    {line}")));
    }
    lines
}

/// What a statement costs beyond its own work for unique indexes and foreign keys that hold over all nodes.
pub fn entries_line(planned: &Planned) -> Option<&'static str> {
    planned.keeps_entries.then_some(
        "Then, in the same transaction: each node that was written is asked which values of globally unique indexes \
         and foreign keys have changed, and each node of such a value changes its entry (two more round trips or more; a commit of several nodes)",
    )
}

fn describe(plan: &Plan, lines: &mut Vec<String>) {
    match plan {
        Plan::Data(plan) => describe_data(plan, lines),
        Plan::Schema(plan) => describe_schema(plan, lines),
        Plan::Session(_) => lines.push(BY_THE_SESSION.to_owned()),
    }
}

fn describe_data(plan: &DataPlan, lines: &mut Vec<String>) {
    match plan {
        DataPlan::One { node, access, .. } => {
            lines.push(format!("Tutti: {} on {}", verb(*access), choice(node)));
        }
        DataPlan::Scatter { access } => {
            lines.push(format!("Tutti: {} on every node, answers concatenated", verb(*access)));
        }
        DataPlan::Replicas { locks, .. } => {
            lines.push("Tutti: write on every node, node 1 first".to_owned());
            describe_locks(locks, lines);
        }
        DataPlan::Rows(rows) => {
            lines.push("Tutti: write on node 1, then its rows on the other nodes".to_owned());
            describe_rows(rows, lines);
        }
        DataPlan::Gather(gather) => describe_gather(gather, lines),
        DataPlan::Insert(insert) => describe_insert(insert, lines),
        DataPlan::Move(of) => {
            lines.push(format!("Tutti: update {} on every node", of.relation.name));
            lines.push("  rows that belong to another node by their new key move there".to_owned());
        }
        DataPlan::CopyFrom(copy) => {
            lines.push(format!("Tutti: split the data of {}", copy.relation.name));
        }
        DataPlan::CopyTo(copy) => match &copy.plan {
            CopyToPlan::One(node, _) => lines.push(format!("Tutti: copy from {}", choice(node))),
            CopyToPlan::Scatter => lines.push("Tutti: copy from every node".to_owned()),
            CopyToPlan::Gather(gather) => describe_gather(gather, lines),
        },
        DataPlan::DeclareCursor { query, .. } => {
            lines.push("Tutti: a cursor on one node".to_owned());
            lines.extend(explain_lines(query).into_iter().map(|line| format!("  {line}")));
        }
        // Which node that is, the session knows.
        DataPlan::Cursor { .. } => lines.push(BY_THE_SESSION.to_owned()),
        DataPlan::Steps(steps) => {
            lines.push("Tutti: one part of the statement after the other".to_owned());
            for (index, step) in steps.all().enumerate() {
                lines.push(format!("  Step {}: {}", index + 1, step.text));
                let of_step = explain_lines(&step.planned);
                lines.extend(of_step.into_iter().map(|line| format!("    {line}")));
            }
        }
        DataPlan::Explain(explain) => lines.extend(explain_lines(&explain.of)),
        DataPlan::Refused(refusal) => lines.push(format!("Tutti: refused: {}", refusal.message)),
    }
}

fn describe_schema(plan: &SchemaPlan, lines: &mut Vec<String>) {
    lines.push(
        match plan {
            SchemaPlan::Ddl(Ddl { fills: Some(_), .. }) => {
                "Tutti: on node 1, over rows of every node"
            }
            SchemaPlan::Ddl(_) | SchemaPlan::LockEverywhere { .. } => {
                "Tutti: on every node, node 1 first, in one transaction"
            }
            SchemaPlan::TemporaryDdl { gather: Some(gather), .. } => {
                return describe_gather(gather, lines);
            }
            SchemaPlan::TemporaryDdl { gather: None, .. } => "Tutti: write on node 1",
            SchemaPlan::Concurrently(_) => "Tutti: on one node after the other, each by itself",
            SchemaPlan::CreateTableAs { .. } => {
                "Tutti: create on every node, then insert the query's rows"
            }
            SchemaPlan::EveryNodeAlone { .. } => "Tutti: on every node, each by itself",
        }
        .to_owned(),
    );
}

fn verb(access: Access) -> &'static str {
    match access {
        Access::Read => "read",
        Access::Write => "write",
    }
}

fn choice(node: &NodeChoice) -> String {
    match node {
        NodeChoice::Home | NodeChoice::Speaker => "node 1".to_owned(),
        NodeChoice::Any => "any one node".to_owned(),
        NodeChoice::Pinned(pins) => {
            let pins: Vec<_> = pins.iter().map(pin).collect();
            format!("the node of {}", pins.join(", "))
        }
    }
}

fn pin(pin: &Pin) -> String {
    match &pin.value {
        KeyValue::Bucket(bucket) => format!("bucket {}", bucket.0),
        KeyValue::Parameter(index) if pin.ends => format!("the bucket below ${}", index + 1),
        KeyValue::Parameter(index) => format!("the bucket of ${}", index + 1),
        KeyValue::Literal(hole) => format!("the bucket of literal {}", hole.index + 1),
        KeyValue::Several(parts) => {
            let parts: Vec<_> = parts.iter().map(self::pin).collect();
            format!("{} together", parts.join(" and "))
        }
    }
}

fn describe_gather(gather: &Gather, lines: &mut Vec<String>) {
    let verb = verb(gather.access);
    lines.push(match &gather.run_on {
        RunOn::One(node) => format!("Tutti: gather, then {verb} on {}", choice(node)),
        RunOn::EachNode => format!("Tutti: gather, then {verb} on every node"),
        RunOn::Replicas { .. } => format!("Tutti: gather, then {verb} on every node, node 1 first"),
        RunOn::Rows(_) => {
            format!("Tutti: gather, then {verb} on node 1, then its rows on the other nodes")
        }
    });
    match &gather.run_on {
        RunOn::Replicas { locks, .. } => describe_locks(locks, lines),
        RunOn::Rows(rows) => describe_rows(rows, lines),
        RunOn::One(_) | RunOn::EachNode => (),
    }
    if let Some(partial) = &gather.partial {
        describe_partial(partial, lines);
        return;
    }
    lines.extend(collect_lines(&gather.collects));
    lines.push(format!("  Finally: {}", gather.statement));
    if let Some(first) = &gather.first {
        for (index, subquery) in first.subqueries.iter().enumerate() {
            lines.push(format!("  Or first value {index}: {}", subquery.text));
            let of_it = explain_lines(&subquery.planned);
            lines.extend(of_it.into_iter().map(|line| format!("    {line}")));
        }
        lines.push(format!("    then what this is planned as: {}", first.rest));
    }
    if let Some(in_tables) = &gather.in_tables {
        lines.push(format!("  Or, of many rows, over temporary tables: {}", in_tables.statement));
        lines.push(format!("    with {}", in_tables.prepare.join("; ")));
    }
    for way in &gather.brought {
        lines.push(
            "  Or, if fewer rows travel so, with some tables brought to the nodes:".to_owned(),
        );
        let mut of_way = collect_lines(way.collects());
        match way {
            Brought::Rows { statement, .. } => {
                of_way.push(format!("  Then on every node: {statement}"));
            }
            Brought::Parts(partial) => describe_partial(partial, &mut of_way),
        }
        lines.extend(of_way.into_iter().map(|line| format!("  {line}")));
    }
}

fn describe_partial(partial: &Partial, lines: &mut Vec<String>) {
    lines.extend(partial.all().map(|parts| format!("  Parts of every node: {}", parts.select)));
    lines.push(format!("  Finally: {}", partial.statement));
}

fn describe_locks(locks: &[TableLock], lines: &mut Vec<String>) {
    lines.extend(locks.iter().map(|lock| format!("  Before, on node 1: {lock}")));
}

/// Where nothing is returned, the copies tell what has changed.
fn describe_rows(rows: &RowsWrite, lines: &mut Vec<String>) {
    if rows.returned.is_none() {
        let tables: Vec<_> =
            rows.tables.iter().chain(&rows.reached).map(|table| table.sql_name()).collect();
        lines.push(format!("  All rows are compared: {}", tables.join(", ")));
    }
}

fn collect_lines(collects: &[Collect]) -> Vec<String> {
    let mut lines = Vec::new();
    for collect in collects {
        lines.push(collect_line(collect));
        lines.extend(collect.reduced.iter().map(|reduced| {
            let by = &collects[reduced.by].relation.name;
            format!("    or, where {by} has few rows, after these: {}", reduced.select)
        }));
    }
    lines
}

fn collect_line(collect: &Collect) -> String {
    let from = match &collect.from {
        CollectFrom::AllNodes => "every node".to_owned(),
        CollectFrom::One(node) => choice(node),
        CollectFrom::Returned(step) => {
            return format!(
                "  Rows of {} that step {} has returned",
                collect.relation.name,
                step + 1
            );
        }
        CollectFrom::Moments => {
            let name = &collect.relation.name;
            return format!("  The moment, for rows of {name} that are there later alone: 40001");
        }
    };
    let from = match &collect.locks {
        Some(locks) => match &locks.first {
            Some(FirstRows { ranks: Some(_), .. }) => {
                format!("{from}, locking those that are the first of all")
            }
            Some(FirstRows { ranks: None, .. }) => {
                format!("{from}, one after another, locking until there are enough")
            }
            None => format!("{from}, locking"),
        },
        None => from,
    };
    let to = if collect.route.is_some() { ", each row for one node" } else { "" };
    format!("  Collect from {from}{to}: {}", collect.select)
}

fn describe_insert(insert: &Insert, lines: &mut Vec<String>) {
    match &insert.source {
        InsertSource::Values { rows, .. } => {
            lines.push(format!("Tutti: deal {} rows out to their nodes", rows.len()));
        }
        InsertSource::Select { plan, insert: per_node, .. } => {
            lines.push(match insert.rows {
                None => "Tutti: run a query, then insert its rows where they belong".to_owned(),
                Some(_) => {
                    "Tutti: run a query, insert its rows on node 1, then what comes of it on \
                            the other nodes"
                        .to_owned()
                }
            });
            lines.extend(explain_lines(plan).into_iter().map(|line| format!("  {line}")));
            lines.push(format!("  Finally: {}", per_node));
        }
    }
}
