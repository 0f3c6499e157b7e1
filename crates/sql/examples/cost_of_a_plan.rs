//! What it costs to come from a text to a plan: parsing and planning, and by the text's shape.
//!
//! `cargo run -p tutti-sql --example cost_of_a_plan`: the median of some rounds, in nanoseconds.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use tutti_sql::catalog::{
    BucketMap, Catalog, Column, MapId, NameScope, NodeId, Placement, Relation, RelationKind,
};
use tutti_sql::hash::{BUCKET_COUNT, KeyType};
use tutti_sql::planner::{Context, ShapePlan, plan, plan_shape};
use tutti_sql::shape::Scanner;
use tutti_sql::statement::parse;

const STATEMENTS: [&str; 5] = [
    "SELECT abalance FROM pgbench_accounts WHERE aid = 12345;",
    "UPDATE pgbench_accounts SET abalance = abalance + -2741 WHERE aid = 88123;",
    "UPDATE pgbench_tellers SET tbalance = tbalance + -2741 WHERE tid = 7;",
    "UPDATE pgbench_branches SET bbalance = bbalance + -2741 WHERE bid = 1;",
    "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (7, 1, 88123, -2741, CURRENT_TIMESTAMP);",
];

const ROUNDS: usize = 31;
const TIMES_PER_ROUND: u32 = 300;

fn main() {
    let catalog = pgbench();
    let scope = NameScope::public();
    let context = Context::new(&catalog, &scope);
    println!("{:>10} {:>10} {:>10} {:>8}  statement", "parse+plan", "scan", "by shape", "ratio");
    for text in STATEMENTS {
        let mut scanner = Scanner::default();
        let (key, made) = learn(text, &context);
        // Stands for the gateway's cache, without its lock.
        let known: HashMap<Vec<u8>, ShapePlan> = HashMap::from([(key, made)]);
        let anew = nanoseconds(|| {
            let statements = parse(black_box(text)).expect("a statement");
            plan(&statements[0], &context).expect("a plan");
        });
        let scan = nanoseconds(|| {
            black_box(scanner.scan(black_box(text)));
        });
        let by_shape = nanoseconds(|| {
            let shape = scanner.scan(black_box(text)).expect("a shape");
            let made = known.get(shape.key).expect("it is known");
            black_box(made.resolve(text, shape.literals, &catalog)).expect("a plan");
        });
        println!("{anew:>10} {scan:>10} {by_shape:>10} {:>8}  {text}", anew / by_shape.max(1));
    }
}

fn learn(text: &str, context: &Context<'_>) -> (Vec<u8>, ShapePlan) {
    let mut scanner = Scanner::default();
    let shape = scanner.scan(text).expect("a shape");
    let statement = parse(text).expect("a statement").remove(0);
    let planned = plan(&statement, context).expect("a plan");
    let made = plan_shape(&statement, text, &shape, &planned, context).expect("one plan for all");
    (shape.key.to_vec(), made)
}

fn nanoseconds(mut run: impl FnMut()) -> u128 {
    let mut rounds: Vec<u128> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..TIMES_PER_ROUND {
                run();
            }
            start.elapsed().as_nanos() / u128::from(TIMES_PER_ROUND)
        })
        .collect();
    rounds.sort_unstable();
    rounds[ROUNDS / 2]
}

/// The tables of pgbench, distributed by their branches' and accounts' own keys over three nodes.
fn pgbench() -> Catalog {
    let table = |name: &str, key: usize, columns: &[&str]| {
        let column = |name: &&str| Column {
            name: (*name).to_owned(),
            type_oid: 23,
            type_name: "pg_catalog.int4".to_owned(),
            declared_type: "pg_catalog.int4".to_owned(),
            type_modifier: -1,
            not_null: false,
            default: None,
            generated: false,
            identity: None,
            domain: false,
            nondeterministic: false,
            collation: None,
        };
        let relation = Relation {
            schema: "public".to_owned(),
            name: name.to_owned(),
            oid: 0,
            kind: RelationKind::Table,
            placement: Placement::Hash { key, key_type: KeyType::Int4, map: MapId(1) },
            columns: columns.iter().map(column).collect(),
            primary_key: Vec::new(),
            has_triggers: false,
            row_security: false,
            returned_by: None,
            kept: Vec::new(),
            referred: Vec::new(),
            computed_keys: Vec::new(),
        };
        (name.to_owned(), Arc::new(relation))
    };
    let tables = [
        table("pgbench_accounts", 0, &["aid", "bid", "abalance"]),
        table("pgbench_tellers", 0, &["tid", "bid", "tbalance"]),
        table("pgbench_branches", 0, &["bid", "bbalance"]),
        table("pgbench_history", 2, &["tid", "bid", "aid", "delta", "mtime"]),
    ];
    let map = BucketMap::by_hash((0..BUCKET_COUNT).map(|bucket| NodeId(bucket % 3 + 1)).collect());
    Catalog {
        version: 1,
        nodes: vec![NodeId(1), NodeId(2), NodeId(3)],
        maps: [(MapId(1), map)].into(),
        relations: HashMap::from([("public".to_owned(), HashMap::from(tables))]),
        ..Catalog::default()
    }
}
