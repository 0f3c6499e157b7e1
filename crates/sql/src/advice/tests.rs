//! Proposals for small shops.

use super::*;
use crate::catalog::{Column, Function, Volatility};

const INT4: u32 = 23;
const TEXT: u32 = 25;

fn table(oid: u32, name: &str, columns: &[&str]) -> Relation {
    let column = |name: &&str| Column {
        name: (*name).to_owned(),
        type_oid: if name.ends_with("name") { TEXT } else { INT4 },
        type_name: "pg_catalog.int4".to_owned(),
        declared_type: "integer".to_owned(),
        type_modifier: -1,
        not_null: false,
        default: None,
        generated: false,
        identity: None,
        domain: false,
        nondeterministic: false,
        collation: None,
    };
    Relation {
        schema: "public".to_owned(),
        name: name.to_owned(),
        oid,
        kind: RelationKind::Table,
        placement: Placement::Home,
        columns: columns.iter().map(column).collect(),
        primary_key: vec![0],
        has_triggers: false,
        row_security: false,
        returned_by: None,
        kept: Vec::new(),
        referred: Vec::new(),
        computed_keys: Vec::new(),
    }
}

fn shop() -> (Catalog, HashMap<u32, TableFacts>) {
    let tables = [
        table(1, "customers", &["id", "name", "country_id"]),
        table(2, "orders", &["id", "customer_id", "total"]),
        table(3, "lines", &["id", "order_id", "item_id"]),
        table(4, "countries", &["id", "name"]),
    ];
    let references = [(2, 1, 1), (3, 1, 2), (1, 2, 4)];
    let facts = tables.iter().map(|table| {
        let of = references.iter().filter(|(child, ..)| *child == table.oid);
        let of = of.map(|(_, column, parent)| Reference {
            name: format!("{}_fkey", table.columns[*column].name),
            columns: vec![*column],
            parent: *parent,
            parent_columns: vec![0],
        });
        let facts = TableFacts {
            rows: if table.name == "countries" { 200.0 } else { 1e7 },
            uniques: vec![(format!("{}_pkey", table.name), vec![0])],
            references: of.collect(),
        };
        (table.oid, facts)
    });
    let facts = facts.collect();
    let count = Function {
        volatility: Volatility::Immutable,
        aggregate: true,
        window: false,
        returns_set: false,
    };
    let mut catalog = Catalog {
        nodes: vec![NodeId::HOME],
        home_by_default: true,
        builtin_functions: Arc::new(HashMap::from([("count".to_owned(), count)])),
        ..Catalog::default()
    };
    let of_schema = tables.into_iter().map(|table| (table.name.clone(), Arc::new(table)));
    catalog.relations.insert("public".to_owned(), of_schema.collect());
    (catalog, facts)
}

fn advised(statements: &[(&str, f64)]) -> (Vec<String>, Advice, Vec<Asked>) {
    let (catalog, facts) = shop();
    let asked = |(text, calls): &(&str, f64)| Asked { text: (*text).to_owned(), calls: *calls };
    let asked: Vec<_> = statements.iter().map(asked).collect();
    let advice = advise(&catalog, &NameScope::public(), &facts, &asked, 3);
    let shown = advice.tables.iter().map(|of| {
        let choice = match of.choice {
            Choice::Replicated => "everywhere".to_owned(),
            Choice::Key(key) => of.relation.columns[key].name.clone(),
        };
        format!("{} {choice} {:?}", of.relation.name, of.needs)
    });
    (shown.collect(), advice, asked)
}

#[test]
fn what_is_asked_by_customer_is_spread_by_customer() {
    let (shown, advice, asked) = advised(&[
        ("SELECT name FROM customers WHERE id = $1", 1000.0),
        ("SELECT * FROM orders WHERE customer_id = $1", 5000.0),
        (
            "SELECT c.name, o.total FROM customers c JOIN orders o ON o.customer_id = c.id WHERE c.id = $1",
            5000.0,
        ),
        ("SELECT name FROM countries WHERE id = $1", 9000.0),
        ("SELECT count(*) FROM orders", 3.0),
    ]);
    assert_eq!(
        shown,
        [
            "orders customer_id [\"orders_pkey to contain customer_id, or to be a unique index WITH (tutti.global_unique)\"]",
            "customers id []",
            "lines id [\"order_id_fkey to be dropped, for no node alone could check it\"]",
            "countries everywhere []",
        ]
    );
    assert!(0.99 < advice.share(&asked, Way::OneNode));
    assert_eq!(advice.statements.last(), Some(&(4, Way::EachNode)));
    assert_eq!(advice.share(&asked, Way::Refused), 0.0);
}

#[test]
fn what_is_asked_by_its_own_number_stays_with_it() {
    let (shown, advice, asked) = advised(&[
        ("SELECT * FROM orders WHERE id = $1", 5000.0),
        ("UPDATE orders SET total = $2 WHERE id = $1", 5000.0),
        ("SELECT * FROM lines WHERE order_id = $1", 5000.0),
        ("INSERT INTO lines (id, order_id) VALUES ($1, $2)", 5000.0),
        ("this is no SQL", 1.0),
    ]);
    assert!(
        shown.contains(
            &"orders id [\"customer_id_fkey to be dropped, for no node alone could check it\"]"
                .to_owned()
        ) || shown.contains(&"orders id []".to_owned()),
        "{shown:?}"
    );
    assert!(shown.iter().any(|line| line.starts_with("lines order_id")), "{shown:?}");
    assert_eq!(advice.unread, 1);
    assert_eq!(advice.share(&asked, Way::OneNode), 1.0);
}
