//! A shape's plan against the plan of each of its statements.
//!
//! Every statement that the planner's other tests plan comes here too: see [`check_all_values`].

use super::*;
use crate::planner::fixture::{shop, shop_scope};
use crate::shape::Scanner;
use crate::statement::parse;

/// Values to put where a literal of the same kind was.
fn values(kind: LiteralKind) -> &'static [&'static str] {
    match kind {
        LiteralKind::Integer => &["1", "2", "3", "7", "0", "007", "2147483647"],
        LiteralKind::Number => {
            &["1.5", "7.0", "1e3", ".5", "5.", "3000000000", "99999999999999999999"]
        }
        LiteralKind::String => &[
            "'1'",
            "'2'",
            "'x'",
            "''",
            "' 7 '",
            "'-7'",
            "'now'",
            "'it''s Today'",
            "'t'",
            "'maybe'",
            r"'a\b'",
            "'2020-01-01'",
            "'1e3'",
            "'7.5 '",
            "'customers'",
            "'known'",
        ],
    }
}

/// The text with other literals: `turn` says which.
fn with_other_literals(text: &str, shape: &Shape<'_>, turn: usize) -> String {
    let mut changed = String::new();
    let mut copied = 0;
    for (index, literal) in shape.literals.iter().enumerate() {
        changed.push_str(&text[copied..literal.start]);
        let pool = values(literal.kind);
        // Literals move through their values at different speeds, and together when turn is small.
        changed.push_str(pool[(turn + index * (turn / pool.len())) % pool.len()]);
        copied = literal.end;
    }
    changed.push_str(&text[copied..]);
    changed
}

/// What is known of a text that has a shape: its own plan, and the plan of its shape.
fn learn(text: &str, context: &Context<'_>) -> Option<(Planned, Result<ShapePlan, Unfit>)> {
    let mut scanner = Scanner::default();
    let shape = scanner.scan(text)?;
    let mut statements = parse(text).ok()?;
    let statement = statements.pop().filter(|_| statements.is_empty())?;
    let fresh = plan(&statement, context).ok()?;
    let made = plan_shape(&statement, text, &shape, &fresh, context);
    Some((fresh, made))
}

/// Plans `text` by its shape with many other literals: each time the plan must be what it would be
/// without the shape.
pub(in crate::planner) fn check_all_values(text: &str, context: &Context<'_>) {
    let Some((_, Ok(made))) = learn(text, context) else { return };
    let (mut scanner, mut again) = (Scanner::default(), Scanner::default());
    let shape = scanner.scan(text).expect("it was learnt");
    for turn in 0..48 {
        let other = with_other_literals(text, &shape, turn);
        let found = again.scan(&other).expect("literals of the same kinds");
        assert_eq!(found.key, shape.key, "{other}");
        let quick = made.one_node(&other, found.literals, context.catalog);
        let resolved = made.resolve(&other, found.literals, context.catalog);
        assert_eq!(quick, resolved.as_deref().and_then(|it| one_node(it, context)), "{other}");
        if let Some(resolved) = resolved {
            let statement = parse(&other).expect("of the same tree").remove(0);
            let fresh = plan(&statement, context);
            let is_right = fresh.as_ref().is_ok_and(|it| are_alike(&resolved, it));
            assert!(is_right, "{other}\n{resolved:?}\n{fresh:?}");
        }
    }
}

/// The one node that a plan runs on, if it is one and nothing is left behind.
fn one_node(planned: &Planned, context: &Context<'_>) -> Option<(OneNode, Access)> {
    let Plan::Data(DataPlan::One { node, access, otherwise: None }) = &planned.plan else {
        return None;
    };
    let leaves_nothing = planned.residue == Residue::default() && planned.session_names.is_empty();
    let node = match node {
        NodeChoice::Home => OneNode::At(NodeId::HOME),
        NodeChoice::Speaker => OneNode::Speaker,
        NodeChoice::Any => OneNode::Any,
        NodeChoice::Pinned(pins) => {
            let nodes: Vec<_> = pins
                .iter()
                .map(|pin| match pin.value {
                    KeyValue::Bucket(bucket) => context.catalog.maps[&pin.map].node(bucket),
                    _ => panic!("{pin:?} is not resolved"),
                })
                .collect();
            nodes.first().map_or(OneNode::Any, |node| OneNode::At(*node))
        }
    };
    leaves_nothing.then_some((node, *access))
}

/// Whether texts of this shape are planned once.
fn is_shared(text: &str, nodes: u16) -> bool {
    let catalog = shop(nodes);
    let scope = shop_scope();
    let context = Context::new(&catalog, &scope);
    check_all_values(text, &context);
    let (_, made) = learn(text, &context).unwrap_or_else(|| panic!("{text} has no plan"));
    made.is_ok()
}

#[test]
fn statements_by_key_are_planned_once() {
    for text in [
        "SELECT name FROM customers WHERE id = 5",
        "SELECT name FROM customers WHERE id = -5",
        "SELECT name FROM customers WHERE id = '5'",
        "SELECT name FROM customers WHERE id = 5::bigint AND name = 'x'",
        "SELECT name FROM customers WHERE 5 = id LIMIT 10",
        "SELECT name FROM customers WHERE id = 5 ORDER BY 1 LIMIT 3 OFFSET 2",
        "UPDATE customers SET name = 'y' WHERE id = 5",
        "DELETE FROM customers WHERE id = 5 RETURNING name, 7",
        "INSERT INTO customers (id, name) VALUES (5, 'x')",
        "INSERT INTO customers VALUES (-5, NULL)",
        "SELECT c.name FROM customers c JOIN orders o ON o.customer_id = c.id WHERE c.id = 5",
        "SELECT 1",
        "SELECT count(*) FROM rates WHERE rate > 1.5",
        "UPDATE rates SET rate = 2 WHERE code = 'EUR'",
        "SELECT name FROM customers WHERE name = 'x'",
        "WITH w AS (SELECT 7) SELECT name FROM customers WHERE id = 5",
        "SELECT name, interval '1 day' FROM customers WHERE id = 5",
    ] {
        assert!(is_shared(text, 3), "{text}");
    }
}

#[test]
fn what_a_literal_may_decide_is_planned_anew() {
    for text in [
        // Its text is in the plan.
        "SELECT count(*) FROM customers WHERE name = 'x'",
        "INSERT INTO customers VALUES (1, 'a'), (2, 'b')",
        // The key may or may not change.
        "UPDATE customers SET id = 5 WHERE id = 5",
        // The gateway reads these itself.
        "SELECT set_config('a.b', 'c', 'maybe')",
        "SELECT pg_cancel_backend(1)",
        "SELECT pg_cancel_backend('1')",
        // What is left behind is a setting of this name.
        "SELECT pg_catalog.set_config('a.b', code, false) FROM rates WHERE rate = 5",
        // The session answers what is at this place in the text.
        "SELECT 'x', pg_backend_pid() FROM customers WHERE id = 5",
        // The literal is part of a type.
        "SELECT name::varchar(10) FROM customers WHERE id = 5",
        "SELECT 1::float(24)",
        "SELECT current_timestamp(3)",
        // A constant that is not the literal after the minus sign.
        "SELECT name FROM customers WHERE id = -(5)",
        "SELECT name FROM customers WHERE id = - - 5",
    ] {
        assert!(!is_shared(text, 3), "{text}");
    }
}

/// How `second` is planned by the shape that `first` has made; `None`: not by it.
fn by_shape_of(first: &str, second: &str) -> Option<Plan> {
    let catalog = shop(3);
    let scope = shop_scope();
    let context = Context::new(&catalog, &scope);
    let made = learn(first, &context)?.1.expect("it can be learnt");
    let (mut one, mut other) = (Scanner::default(), Scanner::default());
    let shape = other.scan(second)?;
    if one.scan(first)?.key != shape.key {
        return None;
    }
    Some(made.resolve(second, shape.literals, &catalog)?.plan.clone())
}

fn bucket_of(plan: Option<Plan>) -> Option<Bucket> {
    match plan? {
        Plan::Data(DataPlan::One { node: NodeChoice::Pinned(pins), .. }) => match pins.as_slice() {
            [Pin { value: KeyValue::Bucket(bucket), .. }] => Some(*bucket),
            _ => None,
        },
        _ => None,
    }
}

#[test]
fn each_value_lands_where_it_belongs() {
    let of = |value: &str| {
        let text = |value: &str| format!("SELECT name FROM customers WHERE id = {value}");
        bucket_of(by_shape_of(&text(if value.starts_with('-') { "-1" } else { "1" }), &text(value)))
    };
    let key = |text: &str| {
        crate::hash::Bucketing::Hash.bucket_of_text(crate::hash::KeyType::Int4, text).ok()
    };
    assert_eq!(of("12345"), key("12345"));
    assert_eq!(of("-12345"), key("-12345"));
    assert_eq!(of("- /* minus */ 12345"), None, "another shape: a space behind the minus sign");
    assert_eq!(of("007"), key("7"));
}

#[test]
fn strings_are_read_without_their_quotes() {
    let text = |value: &str| format!("SELECT name FROM customers WHERE id = '{value}'");
    let key = |text: &str| {
        crate::hash::Bucketing::Hash.bucket_of_text(crate::hash::KeyType::Int4, text).ok()
    };
    assert_eq!(bucket_of(by_shape_of(&text("1"), &text("42"))), key("42"));
    assert_eq!(by_shape_of(&text("1"), &text("it''s")), None, "nodes say what is wrong with it");
}

#[test]
fn lists_that_spread_have_a_plan_of_their_own() {
    let text = |values: &str| format!("SELECT name FROM customers WHERE id IN ({values})");
    let together = by_shape_of(&text("1, 2"), &text("7, 7"));
    assert!(matches!(
        together,
        Some(Plan::Data(DataPlan::One { node: NodeChoice::Pinned(_), .. }))
    ));
    let apart = by_shape_of(&text("7, 7"), &text("1, 2"));
    assert!(matches!(apart, Some(Plan::Data(DataPlan::Scatter { .. }))), "{apart:?}");
    assert_eq!(by_shape_of(&text("1, 2"), &text("1, 2, 3")), None, "the number is in the shape");
}

#[test]
fn a_time_that_is_now_is_planned_by_itself() {
    let text = |value: &str| format!("INSERT INTO rates (code, rate) VALUES ('{value}', 2)");
    assert!(by_shape_of(&text("EUR"), &text("USD")).is_some());
    assert_eq!(by_shape_of(&text("EUR"), &text("NOW")), None);
    assert_eq!(by_shape_of(&text("EUR"), &text("until tomorrow")), None);
}

#[test]
fn stored_values_that_storing_may_change_are_planned_by_themselves() {
    let text = |value: &str| format!("INSERT INTO tickets (id, title) VALUES ('{value}', 'x')");
    assert!(by_shape_of(&text("1"), &text("2")).is_some());
    assert_eq!(by_shape_of(&text("1"), &text("2.5")), None);
}

#[test]
fn one_node_takes_everything() {
    assert!(is_shared("SELECT count(*) FROM customers WHERE name = 'x' LIMIT 5", 1));
    assert!(is_shared("INSERT INTO customers VALUES (1, 'a'), (2, 'b')", 1));
}
