//! TPC-H's tables, how they are spread and filled, and whether they are as they were filled.
//!
//! Owns: definitions and sums. Never: draws a value.
//! Source: TPC Benchmark H, revision 3.0, clause 1.4; what differs is in docs/lab/workloads.md.
//! Start reading at [`load`], then [`made`].

use super::super::dialect::Dialect;
use super::super::filling::{fill, make_tables};
use super::super::session::Session;
use super::super::totals::{Summed, Totals};
use super::rows::{self, Row, Size};

const REGION: &str =
    "r_regionkey bigint PRIMARY KEY, r_name char(25) NOT NULL, r_comment varchar(152) NOT NULL";
const NATION: &str = "n_nationkey bigint PRIMARY KEY, n_name char(25) NOT NULL, n_regionkey bigint NOT NULL, \
    n_comment varchar(152) NOT NULL";
const SUPPLIER: &str = "s_suppkey bigint PRIMARY KEY, s_name char(25) NOT NULL, s_address varchar(40) NOT NULL, \
    s_nationkey bigint NOT NULL, s_phone char(15) NOT NULL, s_acctbal numeric(15,2) NOT NULL, \
    s_comment varchar(101) NOT NULL";
const PART: &str = "p_partkey bigint PRIMARY KEY, p_name varchar(55) NOT NULL, p_mfgr char(25) NOT NULL, \
    p_brand char(10) NOT NULL, p_type varchar(25) NOT NULL, p_size bigint NOT NULL, p_container char(10) NOT NULL, \
    p_retailprice numeric(15,2) NOT NULL, p_comment varchar(23) NOT NULL";
const PARTSUPP: &str = "ps_partkey bigint, ps_suppkey bigint, ps_availqty bigint NOT NULL, \
    ps_supplycost numeric(15,2) NOT NULL, ps_comment varchar(300) NOT NULL, PRIMARY KEY (ps_partkey, ps_suppkey)";
const CUSTOMER: &str = "c_custkey bigint PRIMARY KEY, c_name varchar(25) NOT NULL, c_address varchar(40) NOT NULL, \
    c_nationkey bigint NOT NULL, c_phone char(15) NOT NULL, c_acctbal numeric(15,2) NOT NULL, \
    c_mktsegment char(10) NOT NULL, c_comment varchar(160) NOT NULL";
const ORDERS: &str = "o_orderkey bigint PRIMARY KEY, o_custkey bigint NOT NULL, o_orderstatus char(1) NOT NULL, \
    o_totalprice numeric(15,2) NOT NULL, o_orderdate date NOT NULL, o_orderpriority char(15) NOT NULL, \
    o_clerk char(15) NOT NULL, o_shippriority bigint NOT NULL, o_comment varchar(150) NOT NULL";
const LINEITEM: &str = "l_orderkey bigint, l_partkey bigint NOT NULL, l_suppkey bigint NOT NULL, \
    l_linenumber bigint, l_quantity numeric(15,2) NOT NULL, l_extendedprice numeric(15,2) NOT NULL, \
    l_discount numeric(15,2) NOT NULL, l_tax numeric(15,2) NOT NULL, l_returnflag char(1) NOT NULL, \
    l_linestatus char(1) NOT NULL, l_shipdate date NOT NULL, l_commitdate date NOT NULL, \
    l_receiptdate date NOT NULL, l_shipinstruct char(25) NOT NULL, l_shipmode char(10) NOT NULL, \
    l_comment varchar(80) NOT NULL, PRIMARY KEY (l_orderkey, l_linenumber)";

/// What is checked of each table.
pub(super) const TABLES: [Summed; 8] = [
    ("region", true, ["r_regionkey", "0", "0", "0"]),
    ("nation", true, ["n_nationkey", "n_regionkey", "0", "0"]),
    ("supplier", true, ["s_suppkey", "s_nationkey", "100 * s_acctbal", "0"]),
    ("part", false, ["p_partkey", "substr(p_brand, 7)::bigint", "p_size", "100 * p_retailprice"]),
    ("partsupp", false, ["ps_partkey", "ps_suppkey", "ps_availqty", "100 * ps_supplycost"]),
    ("customer", false, ["c_custkey", "c_nationkey", "100 * c_acctbal", "0"]),
    (
        "orders",
        false,
        ["o_orderkey", "o_custkey", "o_orderdate - '1992-01-01'::date", "100 * o_totalprice"],
    ),
    ("lineitem", false, ["l_orderkey", "l_partkey", "l_quantity", "100 * l_extendedprice"]),
];

async fn make<S: Session>(session: &mut S, dialect: Dialect) -> anyhow::Result<()> {
    let everywhere = [("region", REGION), ("nation", NATION), ("supplier", SUPPLIER)];
    let by_hash = [
        ("part", PART, "p_partkey"),
        ("partsupp", PARTSUPP, "ps_partkey"),
        ("customer", CUSTOMER, "c_custkey"),
        ("orders", ORDERS, "o_orderkey"),
        ("lineitem", LINEITEM, "l_orderkey"),
    ];
    // What joins ask for: the standard allows indexes on its keys.
    let indexes = [
        "CREATE INDEX partsupp_by_supplier ON partsupp (ps_suppkey)",
        "CREATE INDEX orders_by_customer ON orders (o_custkey)",
        "CREATE INDEX lineitem_by_part ON lineitem (l_partkey, l_suppkey)",
    ];
    make_tables(session, dialect, &everywhere, &by_hash, &indexes).await
}

/// Gives all rows, table by table; of orders and their lines in turn.
fn all(size: Size) -> impl Iterator<Item = (&'static str, Row)> {
    let regions = (0..5).map(|number| ("region", rows::region(number)));
    let nations = (0..25).map(|number| ("nation", rows::nation(number)));
    let suppliers = (1..=size.suppliers).map(|key| ("supplier", rows::supplier(key)));
    let parts = (1..=size.parts).map(|key| ("part", rows::part(key)));
    let supplied = (1..=size.parts).flat_map(move |part| {
        (0..4).map(move |place| ("partsupp", rows::supplied(part, place, size)))
    });
    let customers = (1..=size.customers).map(|key| ("customer", rows::customer(key)));
    let orders = (0..size.orders).flat_map(move |place| {
        let (order, lines) = rows::order(place, size);
        std::iter::once(("orders", order)).chain(lines.into_iter().map(|row| ("lineitem", row)))
    });
    regions
        .chain(nations)
        .chain(suppliers)
        .chain(parts)
        .chain(supplied)
        .chain(customers)
        .chain(orders)
}

/// Makes the tables and fills them.
pub(super) async fn load<S: Session>(
    session: &mut S,
    size: Size,
    dialect: Dialect,
) -> anyhow::Result<()> {
    make(session, dialect).await?;
    let tables = TABLES.iter().map(|(table, ..)| *table);
    fill(session, tables, all(size).map(|(table, (row, _))| (table, row))).await
}

/// What the tables have when they are filled.
pub(super) fn made(size: Size) -> Totals {
    let rows = all(size).map(|(table, (_, figures))| (table, figures));
    Totals::made(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_has_four_suppliers() {
        let made = made(Size::of_scale(0.001));
        assert_eq!(made.rows("partsupp"), 4 * made.rows("part"));
    }
}
