//! The shop's catalog, and plans as texts, for the planner's tests.
//!
//! Three nodes; node `n` has the buckets with `bucket % 3 == n - 1`.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;

use super::context::Context;
use super::plan;
use crate::catalog::{
    BucketMap, Catalog, Column, Function, Identity, MapId, NameScope, NodeId, Placement, Relation,
    RelationKind, Volatility,
};
use crate::closure::{
    Attached, AttachedKind, Body, BuiltInCode, Code, FunctionCode, Use, classify, events,
};
use crate::hash::{BUCKET_COUNT, KeyType};
use crate::plan::{
    Brought, Collect, CopyTo, CopyToPlan, DataPlan, Explain, Gather, InsertSource, KeyValue,
    NodeChoice, Piece, Plan, Planned, RowsTable, SchemaPlan, Template,
};

const INT4: (u32, &str) = (23, "pg_catalog.int4");
const BOOL: (u32, &str) = (16, "pg_catalog.bool");
const NAME: (u32, &str) = (19, "pg_catalog.name");
const INT8: (u32, &str) = (20, "pg_catalog.int8");
const FLOAT4: (u32, &str) = (700, "pg_catalog.float4");
const TEXT: (u32, &str) = (25, "pg_catalog.text");
const NUMERIC: (u32, &str) = (1700, "pg_catalog.numeric");
const TIMESTAMPTZ: (u32, &str) = (1184, "pg_catalog.timestamptz");

fn column(name: &str, of: (u32, &str), default: Option<&str>) -> Column {
    Column {
        name: name.to_owned(),
        type_oid: of.0,
        type_name: of.1.to_owned(),
        declared_type: of.1.to_owned(),
        type_modifier: -1,
        not_null: false,
        default: default.map(str::to_owned),
        generated: false,
        identity: None,
        domain: false,
        nondeterministic: false,
        collation: None,
    }
}

fn hash(key: usize, key_type: KeyType) -> Placement {
    Placement::Hash { key, key_type, map: MapId(1) }
}

/// The shop: `customers`, `orders`, `lines` hash-distributed and colocated, `tickets` by a serial,
/// `items` and `rates` replicated, `events` round robin, `home` on node 1, views over them.
pub(super) fn shop(node_count: u16) -> Catalog {
    let nodes: Vec<NodeId> = (1..=node_count).map(NodeId).collect();
    let map = (0..BUCKET_COUNT).map(|bucket| NodeId(bucket % node_count + 1)).collect();
    let table = |name: &str, placement: Placement, columns: Vec<Column>| Relation {
        schema: "public".to_owned(),
        name: name.to_owned(),
        oid: 0,
        kind: RelationKind::Table,
        placement,
        columns,
        primary_key: Vec::new(),
        has_triggers: false,
        row_security: false,
        returned_by: None,
        kept: Vec::new(),
        referred: Vec::new(),
        computed_keys: Vec::new(),
    };
    let view = |name: &str, definition: &str, columns: Vec<Column>| Relation {
        kind: RelationKind::View { definition: definition.to_owned() },
        ..table(name, Placement::Home, columns)
    };
    let identity = Column {
        identity: Some(Identity::Always),
        ..column("id", INT4, Some("nextval('public.items_id_seq'::regclass)"))
    };
    let relations = [
        table(
            "customers",
            hash(0, KeyType::Int4),
            vec![column("id", INT4, None), column("name", TEXT, None)],
        ),
        table(
            "orders",
            hash(1, KeyType::Int4),
            vec![
                column("id", INT4, Some("nextval('public.orders_id_seq'::regclass)")),
                column("customer_id", INT4, None),
                column("total", NUMERIC, Some("0")),
                column("placed", TIMESTAMPTZ, Some("now()")),
            ],
        ),
        table(
            "lines",
            hash(0, KeyType::Int4),
            vec![
                column("customer_id", INT4, None),
                column("item", TEXT, None),
                column("number", INT4, Some("1")),
            ],
        ),
        table(
            "tickets",
            hash(0, KeyType::Int4),
            vec![
                column("id", INT4, Some("nextval('public.tickets_id_seq'::regclass)")),
                column("title", TEXT, None),
            ],
        ),
        Relation {
            primary_key: vec![0],
            ..table(
                "items",
                Placement::Replicated,
                vec![
                    identity,
                    column("name", TEXT, None),
                    column("added", TIMESTAMPTZ, Some("now()")),
                ],
            )
        },
        table(
            "rates",
            Placement::Replicated,
            vec![column("code", TEXT, None), column("rate", NUMERIC, Some("1"))],
        ),
        table(
            "events",
            Placement::RoundRobin,
            vec![column("at", TIMESTAMPTZ, Some("now()")), column("what", TEXT, None)],
        ),
        table("home", Placement::Home, vec![column("a", INT4, None)]),
        Relation {
            oid: AUDITED,
            has_triggers: true,
            row_security: false,
            returned_by: None,
            kept: Vec::new(),
            referred: Vec::new(),
            computed_keys: Vec::new(),
            ..table("audited", hash(0, KeyType::Int4), vec![column("id", INT4, None)])
        },
        view("big_orders", "SELECT orders.id FROM public.orders", vec![column("id", INT4, None)]),
        view(
            "pairs",
            "SELECT o.id FROM public.orders o JOIN public.orders p ON o.id = p.customer_id",
            vec![column("id", INT4, None)],
        ),
        view("rate_codes", "SELECT rates.code FROM public.rates", vec![column("code", TEXT, None)]),
        view(
            "paid_lines",
            "SELECT lines.item, lines.customer_id AS customer FROM public.lines WHERE lines.number > 0",
            vec![column("item", TEXT, None), column("customer", INT4, None)],
        ),
        view(
            "paid_by_first",
            "SELECT paid_lines.customer FROM public.paid_lines WHERE paid_lines.customer < 9",
            vec![column("customer", INT4, None)],
        ),
        view(
            "placed_orders",
            "SELECT orders.customer_id, orders.total, orders.id FROM public.orders",
            vec![
                column("customer_id", INT4, None),
                column("total", NUMERIC, None),
                column("id", INT4, None),
            ],
        ),
    ];
    let numbered = (AUDITED + 1..).zip(relations).map(|(number, table)| match table.oid {
        0 => Relation { oid: number, ..table },
        _ => table,
    });
    let public = numbered.map(|table| (table.name.clone(), Arc::new(table))).collect();
    // What nodes say of themselves, as the planner sees it.
    let of_nodes = |name: &str, columns: Vec<Column>| Relation {
        schema: "tutti".to_owned(),
        kind: RelationKind::Other,
        ..table(name, Placement::RoundRobin, columns)
    };
    let sizes = ["main_bytes", "table_bytes", "index_bytes", "total_bytes", "pages"];
    let mut columns = vec![
        column("node", INT4, None),
        column("schemaname", NAME, None),
        column("relname", NAME, None),
        column("is_toast", BOOL, None),
    ];
    columns.extend(sizes.map(|name| column(name, INT8, None)));
    columns.push(column("tuples", FLOAT4, None));
    let cluster_views = [
        of_nodes("relation_sizes", columns),
        of_nodes("database_sizes", vec![column("node", INT4, None), column("bytes", INT8, None)]),
    ];
    let cluster_views =
        cluster_views.map(|view| (view.name.clone(), Arc::new(view))).into_iter().collect();
    let function =
        |volatility| Function { volatility, aggregate: false, window: false, returns_set: false };
    let built_in = [
        ("now", Volatility::Stable),
        ("random", Volatility::Volatile),
        ("nextval", Volatility::Volatile),
        ("upper", Volatility::Immutable),
        ("clock_timestamp", Volatility::Volatile),
        ("unnest", Volatility::Immutable),
        ("pg_total_relation_size", Volatility::Volatile),
        ("pg_database_size", Volatility::Volatile),
        ("pg_size_pretty", Volatility::Immutable),
        ("array_to_string", Volatility::Stable),
    ];
    let mut built_in: HashMap<String, Function> =
        built_in.map(|(name, of)| (name.to_owned(), function(of))).into();
    for name in ["count", "sum", "max", "string_agg"] {
        let of = Function { aggregate: true, ..function(Volatility::Immutable) };
        built_in.insert(name.to_owned(), of);
    }
    let window = Function { window: true, ..function(Volatility::Immutable) };
    built_in.insert("row_number".to_owned(), window);
    let series = Function { returns_set: true, ..function(Volatility::Immutable) };
    built_in.insert("generate_series".to_owned(), series);
    let own = HashMap::from([
        ("place_order".to_owned(), function(Volatility::Volatile)),
        ("tidy".to_owned(), function(Volatility::Volatile)),
    ]);
    Catalog {
        home_by_default: false,
        is_spread: true,
        version: 1,
        nodes,
        maps: BTreeMap::from([(MapId(1), BucketMap::by_hash(map))]),
        relations: HashMap::from([
            ("public".to_owned(), public),
            ("tutti".to_owned(), cluster_views),
        ]),
        functions: HashMap::from([("public".to_owned(), own)]),
        builtin_functions: Arc::new(built_in),
        code: Arc::new(code()),
        ..Catalog::default()
    }
}

/// The table `audited`.
const AUDITED: u32 = 20_001;

/// `place_order` and `audit` (a trigger function) write; `tidy` does nothing.
fn code() -> Code {
    let mut built_in = BuiltInCode::default();
    for (oid, name) in [(1574, "nextval"), (2078, "set_config"), (2923, "query_to_xml")] {
        built_in.add(oid, name, classify(name, Volatility::Volatile));
    }
    let mut code = Code::new(Arc::new(built_in));
    for (oid, name, language, body) in [
        (20_002, "place_order", "sql", "INSERT INTO orders (id) VALUES (1)"),
        (20_003, "tidy", "plpgsql", "BEGIN RETURN; END"),
        (20_004, "audit", "plpgsql", "BEGIN INSERT INTO items DEFAULT VALUES; RETURN NEW; END"),
    ] {
        let function = FunctionCode {
            schema: "public".to_owned(),
            name: name.to_owned(),
            path: None,
            is_definer: false,
            types: Vec::new(),
            takes_one: false,
            body: Arc::new(Body::of_function(language, body, false, None)),
            uses: Vec::new(),
            hides: false,
            declared: None,
        };
        code.add_function(oid, function);
    }
    let audit = Attached {
        kind: AttachedKind::Trigger,
        name: "audit".to_owned(),
        events: events::ALL,
        changes_row: false,
        uses: vec![Use::Function(20_004)],
        is_folded: false,
    };
    code.attach(AUDITED, audit);
    code
}

/// How a session of the shop sees names: it has a temporary table `scratch`.
pub(super) fn shop_scope() -> NameScope {
    NameScope { temporary: vec!["scratch".to_owned()], ..NameScope::public() }
}

/// The plan of a single statement against the shop, as text; a temporary table `scratch` exists.
pub(super) fn planned(sql: &str, node_count: u16) -> String {
    let catalog = shop(node_count);
    let scope = shop_scope();
    let context = Context::new(&catalog, &scope);
    let statements = match crate::statement::parse(sql) {
        Ok(statements) => statements,
        Err(refusal) => return format!("{} {}\n", refusal.sqlstate, refusal.message),
    };
    super::by_shape::tests::check_all_values(sql, &context);
    let mut shown = String::new();
    for statement in &statements {
        match plan(statement, &context) {
            Ok(planned) => show(&planned, &mut shown, 0),
            Err(refusal) => {
                writeln!(shown, "{} {}", refusal.sqlstate, refusal.message).unwrap();
                if let Some(detail) = refusal.detail {
                    writeln!(shown, "  {detail}").unwrap();
                }
                if let Some(hint) = refusal.hint {
                    writeln!(shown, "  {hint}").unwrap();
                }
            }
        }
    }
    shown
}

/// Every SQL text in a plan that nodes will be sent, with arrays in the gaps.
pub(super) fn texts_of(planned: &Planned) -> Vec<String> {
    let filled = |template: &Template| -> String {
        let pieces = template.0.iter().map(|piece| match piece {
            Piece::Sql(text) => text.as_str(),
            Piece::Rows(_) => "'{}'",
            Piece::Time(_) => "'2026-01-01'",
            Piece::Buckets(_) => "'{0}'",
        });
        pieces.collect()
    };
    fn selects(collect: &Collect) -> impl Iterator<Item = &Template> {
        let reduced = collect.reduced.iter().flat_map(|of| [&of.select, &of.expected]);
        [&collect.select].into_iter().chain(reduced)
    }
    let gathered = |gather: &Gather| -> Vec<String> {
        let of_brought = gather.brought.iter().flat_map(|way| {
            let then = match way {
                Brought::Rows { statement, .. } => vec![statement],
                Brought::Parts(partial) => vec![&partial.select, &partial.statement],
            };
            way.collects().iter().flat_map(selects).chain(then)
        });
        let of_parts = gather.partial.iter().flat_map(|it| it.all());
        let of_parts = of_parts.flat_map(|it| [&it.select, &it.statement]);
        let of_tables = gather
            .in_tables
            .iter()
            .flat_map(|it| it.tables.iter().map(|table| &table.create).chain([&it.statement]));
        let collects = gather.collects.iter().flat_map(selects);
        let firsts = gather.collects.iter().filter_map(|it| it.locks.as_ref()?.first.as_ref());
        let of_firsts = firsts.flat_map(|first| {
            let by_key = first.by_key.iter().flat_map(|by_key| [&by_key.unlocked, &by_key.lock]);
            first.ranks.iter().chain(by_key)
        });
        let all = collects.chain([&gather.statement]).chain(of_parts).chain(of_tables);
        let all = all.chain(of_firsts);
        all.chain(of_brought).map(filled).collect()
    };
    match &planned.plan {
        Plan::Data(
            DataPlan::One { otherwise: Some(planned), .. }
            | DataPlan::DeclareCursor { query: planned, .. }
            | DataPlan::Explain(Explain { of: planned, .. }),
        ) => texts_of(planned),
        Plan::Data(DataPlan::Gather(gather))
        | Plan::Schema(SchemaPlan::TemporaryDdl { gather: Some(gather), .. }) => gathered(gather),
        Plan::Data(DataPlan::CopyTo(CopyTo { plan: CopyToPlan::Gather(gather), .. })) => {
            gathered(gather)
        }
        Plan::Data(DataPlan::Insert(insert)) => match &insert.source {
            InsertSource::Values { prefix, rows, suffix } => {
                rows.iter().map(|row| format!("{prefix}{}{suffix}", row.sql)).collect()
            }
            InsertSource::Select { query, plan, insert, .. } => {
                let mut texts = texts_of(plan);
                texts.extend([query.clone(), filled(insert)]);
                texts
            }
        },
        Plan::Data(DataPlan::Steps(steps)) => {
            let of_step = |step: &crate::plan::Step| {
                let mut texts = texts_of(&step.planned);
                texts.push(step.text.clone());
                texts
            };
            steps.before.iter().flat_map(of_step).chain(texts_of(&steps.rest.planned)).collect()
        }
        Plan::Data(DataPlan::Move(of)) => {
            vec![of.select.clone(), filled(&of.update), filled(&of.delete), filled(&of.insert)]
        }
        _ => Vec::new(),
    }
}

fn show(planned: &Planned, out: &mut String, depth: usize) {
    let pad = "  ".repeat(depth);
    match &planned.plan {
        Plan::Data(DataPlan::One { node, access, otherwise }) => {
            writeln!(out, "{pad}one {} {access:?}", show_node(node)).unwrap();
            if let Some(otherwise) = otherwise {
                writeln!(out, "{pad}otherwise").unwrap();
                show(otherwise, out, depth + 1);
            }
        }
        Plan::Data(DataPlan::Insert(insert)) => {
            let flags = [("returning", insert.returning), ("one row each", insert.one_row_each)];
            let flags: Vec<&str> =
                flags.iter().filter(|(_, on)| *on).map(|(name, _)| *name).collect();
            writeln!(out, "{pad}insert {} [{}]", insert.relation.name, flags.join(", ")).unwrap();
            match &insert.source {
                InsertSource::Values { prefix, rows, suffix } => {
                    writeln!(out, "{pad}  {prefix:?}").unwrap();
                    for row in rows {
                        let key = row.key.as_ref().map(|pin| show_key(&pin.value));
                        let key = key.unwrap_or_else(|| "anywhere".to_owned());
                        writeln!(out, "{pad}  {} -> {key}", row.sql).unwrap();
                    }
                    writeln!(out, "{pad}  {suffix:?}").unwrap();
                }
                InsertSource::Select { query, plan, columns, key, insert } => {
                    writeln!(out, "{pad}  {query}").unwrap();
                    show(plan, out, depth + 2);
                    writeln!(out, "{pad}  columns {columns:?} key {key:?}").unwrap();
                    writeln!(out, "{pad}  {}", insert).unwrap();
                }
            }
        }
        Plan::Data(DataPlan::Gather(gather)) => show_gather(gather, out, &pad),
        Plan::Data(DataPlan::CopyTo(copy)) => {
            writeln!(out, "{pad}copy to, binary {}, header {}", copy.binary, copy.header).unwrap();
            match &copy.plan {
                CopyToPlan::One(node, _) => {
                    writeln!(out, "{pad}  one {}", show_node(node)).unwrap()
                }
                CopyToPlan::Scatter => writeln!(out, "{pad}  scatter").unwrap(),
                CopyToPlan::Gather(gather) => show_gather(gather, out, &format!("{pad}  ")),
            }
        }
        Plan::Data(DataPlan::CopyFrom(copy)) => {
            writeln!(out, "{pad}copy from {}", copy.statement).unwrap();
            writeln!(out, "{pad}  columns {:?} key {:?}", copy.columns, copy.key).unwrap();
            writeln!(out, "{pad}  fill {:?} options {:?}", copy.fill, copy.options).unwrap();
        }
        Plan::Data(DataPlan::Steps(steps)) => {
            for step in steps.all() {
                writeln!(out, "{pad}step {}", step.text).unwrap();
                show(&step.planned, out, depth + 1);
            }
        }
        Plan::Data(DataPlan::Move(of)) => {
            writeln!(out, "{pad}move rows of {}", of.relation.name).unwrap();
            writeln!(out, "{pad}  {}", of.select).unwrap();
            for template in [&of.update, &of.delete, &of.insert] {
                writeln!(out, "{pad}  {}", template).unwrap();
            }
        }
        Plan::Schema(SchemaPlan::TemporaryDdl { gather, .. }) => {
            writeln!(out, "{pad}temporary").unwrap();
            if let Some(gather) = gather {
                show_gather(gather, out, &format!("{pad}  "));
            }
        }
        Plan::Data(DataPlan::DeclareCursor { name, query, .. }) => {
            writeln!(out, "{pad}declare {name}").unwrap();
            show(query, out, depth + 1);
        }
        Plan::Data(DataPlan::Explain(explain)) => {
            let Explain { of, statement, prefix, estimate_prefix, analyze, format, .. } = explain;
            writeln!(out, "{pad}explain {prefix:?} {statement:?} analyze {analyze} {format:?}")
                .unwrap();
            if prefix != estimate_prefix {
                writeln!(out, "{pad}  running nothing: {estimate_prefix:?}").unwrap();
            }
            show(of, out, depth + 1);
        }
        Plan::Data(other) => writeln!(out, "{pad}{other:?}").unwrap(),
        Plan::Schema(other) => writeln!(out, "{pad}{other:?}").unwrap(),
        Plan::Session(other) => writeln!(out, "{pad}{other:?}").unwrap(),
    }
}

fn show_gather(gather: &Gather, out: &mut String, pad: &str) {
    writeln!(out, "{pad}gather on {:?} {:?}", gather.run_on, gather.access).unwrap();
    if let Some(partial) = &gather.partial {
        for parts in partial.all() {
            writeln!(out, "{pad}  parts {}", parts.select).unwrap();
        }
        writeln!(out, "{pad}  {}", partial.statement).unwrap();
        return;
    }
    for collect in &gather.collects {
        writeln!(out, "{pad}  {} from {:?}", collect.select, collect.from).unwrap();
        show_reduced(collect, out, pad);
        let Some(first) = collect.locks.as_ref().and_then(|it| it.first.as_ref()) else { continue };
        let offset = first.offset.as_deref().unwrap_or("0");
        let waits = if first.waits { ", in turn" } else { "" };
        writeln!(out, "{pad}    the first {} after {offset}{waits}", first.limit).unwrap();
        if let Some(ranks) = &first.ranks {
            writeln!(out, "{pad}    ranks: {ranks}").unwrap();
        }
        if let Some(by_key) = &first.by_key {
            writeln!(out, "{pad}    by key: {}", by_key.unlocked).unwrap();
            writeln!(out, "{pad}      then {}", by_key.lock).unwrap();
        }
    }
    writeln!(out, "{pad}  {}", gather.statement).unwrap();
    if let Some(first) = &gather.first {
        for subquery in &first.subqueries {
            writeln!(out, "{pad}  first {}", subquery.query).unwrap();
            show(&subquery.planned, out, pad.len() / 2 + 2);
        }
        writeln!(out, "{pad}    then {}", first.rest).unwrap();
    }
    if let Some(in_tables) = &gather.in_tables {
        for RowsTable { create, .. } in &in_tables.tables {
            writeln!(out, "{pad}  or {create}").unwrap();
        }
        writeln!(out, "{pad}    {}", in_tables.prepare.join("; ")).unwrap();
        writeln!(out, "{pad}    {}", in_tables.statement).unwrap();
    }
    for way in &gather.brought {
        for collect in way.collects() {
            let to = if collect.route.is_some() { " to its node" } else { "" };
            writeln!(out, "{pad}  or bring{to} {} from {:?}", collect.select, collect.from)
                .unwrap();
            show_reduced(collect, out, pad);
        }
        match way {
            Brought::Rows { statement, .. } => writeln!(out, "{pad}    {statement}").unwrap(),
            Brought::Parts(partial) => {
                writeln!(out, "{pad}    parts {}", partial.select).unwrap();
                writeln!(out, "{pad}    {}", partial.statement).unwrap();
            }
        }
    }
}

fn show_reduced(collect: &Collect, out: &mut String, pad: &str) {
    for reduced in &collect.reduced {
        writeln!(out, "{pad}    or, after {}: {}", reduced.by, reduced.select).unwrap();
    }
}

fn show_node(node: &NodeChoice) -> String {
    match node {
        NodeChoice::Home => "home".to_owned(),
        NodeChoice::Speaker => "speaker".to_owned(),
        NodeChoice::Any => "any".to_owned(),
        NodeChoice::Pinned(pins) => {
            let keys: Vec<String> = pins.iter().map(|pin| show_key(&pin.value)).collect();
            format!("pinned {}", keys.join(" "))
        }
    }
}

fn show_key(key: &KeyValue) -> String {
    match key {
        KeyValue::Bucket(bucket) => format!("bucket {}", bucket.0),
        KeyValue::Parameter(index) => format!("${}", index + 1),
        KeyValue::Literal(hole) => format!("literal {}", hole.index + 1),
        KeyValue::Several(parts) => {
            parts.iter().map(|part| show_key(&part.value)).collect::<Vec<_>>().join(" and ")
        }
    }
}
