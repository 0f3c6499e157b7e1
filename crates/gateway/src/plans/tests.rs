//! The caches keep what they should, and no more.

use tutti_sql::catalog::{Catalog, NameScope, NodeId};
use tutti_sql::planner::{self, Context};

use super::*;

const BASIS: Basis = Basis { number: 1, collects_replicated: false, collects_to_write: false };

fn plan(text: &str) -> (Arc<Statement>, Arc<Planned>) {
    let catalog = Catalog { nodes: vec![NodeId::HOME], ..Catalog::default() };
    let scope = NameScope::default();
    let context = Context::new(&catalog, &scope);
    let statement = statement::parse(text).expect("a statement").remove(0);
    let planned = planner::plan(&statement, &context).expect("a plan");
    (Arc::new(statement), Arc::new(planned))
}

#[test]
fn a_text_is_parsed_once_for_all() {
    let plans = Plans::default();
    let first = plans.parse("BEGIN; SELECT 1").expect("two statements");
    let second = plans.parse("BEGIN; SELECT 1").expect("two statements");
    assert!(Arc::ptr_eq(&first, &second));
    assert_eq!(plans.counts.parse_hits.load(Ordering::Relaxed), 1);
    assert_eq!(plans.counts.parse_misses.load(Ordering::Relaxed), 1);
    assert!(plans.parse("SELEC 1").is_err());
    assert!(plans.parse("SELEC 1").is_err(), "errors are found anew");
}

#[test]
fn secrets_and_definitions_are_not_kept() {
    let plans = Plans::default();
    for text in [
        "CREATE ROLE r PASSWORD 'secret'",
        "ALTER ROLE r PASSWORD 'secret'",
        "SELECT 1; ALTER USER r PASSWORD 'secret'",
        "CREATE TABLE t (a int)",
        "DO 'begin end'",
    ] {
        let first = plans.parse(text).expect("a statement");
        assert!(!Arc::ptr_eq(&first, &plans.parse(text).expect("a statement")), "{text}");
    }
    let (statement, planned) = plan("ALTER ROLE r PASSWORD 'secret'");
    plans.keep_text(BASIS, &statement, &planned);
    assert!(plans.of_text(BASIS, &statement).is_none());
}

#[test]
fn plans_are_found_by_text_and_basis() {
    let plans = Plans::default();
    let (statement, planned) = plan("SELECT 1");
    plans.keep_text(BASIS, &statement, &planned);
    assert!(plans.of_text(BASIS, &statement).is_some_and(|it| Arc::ptr_eq(&it, &planned)));
    assert!(plans.of_text(BASIS, &plan("SELECT 2").0).is_none());
    assert!(plans.of_text(Basis { number: 2, ..BASIS }, &statement).is_none());
    assert!(plans.of_text(Basis { collects_replicated: true, ..BASIS }, &statement).is_none());
}

#[test]
fn a_clause_that_is_not_in_the_text_does_not_mislead() {
    let plans = Plans::default();
    let with = plan("CREATE TABLE t (a int) DISTRIBUTE BY HASH (a)");
    let without = plan("CREATE TABLE t (a int)");
    plans.keep_text(BASIS, &without.0, &without.1);
    plans.keep_text(BASIS, &with.0, &with.1);
    assert!(plans.of_text(BASIS, &with.0).is_none());
    assert!(plans.of_text(BASIS, &without.0).is_none());
}

#[test]
fn shapes_and_texts_are_not_mixed() {
    let plans = Plans::default();
    let (statement, _) = plan("SELECT 1");
    plans.keep_shape(BASIS, statement.text.as_bytes(), ShapeEntry::Never);
    assert!(plans.of_text(BASIS, &statement).is_none());
    assert!(matches!(plans.of_shape(BASIS, b"SELECT 1"), Some(ShapeEntry::Never)));
    assert!(plans.of_shape(BASIS, b"SELECT 2").is_none());
}

#[test]
fn the_caches_are_bounded() {
    let plans = Plans::of_size(256 * 1024);
    for number in 0..10_000 {
        let text = format!("SELECT {number}");
        plans.parse(&text).expect("a statement");
        plans.keep_shape(BASIS, text.as_bytes(), ShapeEntry::Never);
    }
    assert!(plans.statements.weight() <= 256 * 1024);
    assert!(plans.shapes.weight() <= 256 * 1024);
    assert!(plans.shapes.len() < 2_000);
    let long = format!("SELECT '{}'", "x".repeat(TEXT_BYTES_MAX));
    plans.parse(&long).expect("a statement");
    assert!(plans.statements.get(long.as_str()).is_none());
}
