//! The Star Schema Benchmark's tables, how they are spread and filled.
//!
//! Owns: definitions, and what is summed of them. Never: draws a value.
//! Source: the paper's section 2; what differs is in docs/lab/workloads.md.
//! Start reading at [`load`], then [`made`].

use super::super::dialect::Dialect;
use super::super::filling::{fill, make_tables};
use super::super::session::Session;
use super::super::totals::{Summed, Totals};
use super::rows::{self, Row, Size};

const DAYS: &str = "d_datekey bigint PRIMARY KEY, d_date varchar(18) NOT NULL, d_dayofweek varchar(9) NOT NULL, \
    d_month varchar(9) NOT NULL, d_year bigint NOT NULL, d_yearmonthnum bigint NOT NULL, d_yearmonth char(7) NOT NULL, \
    d_daynuminweek bigint NOT NULL, d_daynuminmonth bigint NOT NULL, d_daynuminyear bigint NOT NULL, \
    d_monthnuminyear bigint NOT NULL, d_weeknuminyear bigint NOT NULL";
const SUPPLIER: &str = "s_suppkey bigint PRIMARY KEY, s_name char(18) NOT NULL, s_address varchar(25) NOT NULL, \
    s_city char(10) NOT NULL, s_nation varchar(15) NOT NULL, s_region varchar(12) NOT NULL, s_phone char(15) NOT NULL";
const CUSTOMER: &str = "c_custkey bigint PRIMARY KEY, c_name varchar(25) NOT NULL, c_address varchar(25) NOT NULL, \
    c_city char(10) NOT NULL, c_nation varchar(15) NOT NULL, c_region varchar(12) NOT NULL, c_phone char(15) NOT NULL, \
    c_mktsegment char(10) NOT NULL";
const PART: &str = "p_partkey bigint PRIMARY KEY, p_name varchar(22) NOT NULL, p_mfgr char(6) NOT NULL, \
    p_category char(7) NOT NULL, p_brand1 varchar(9) NOT NULL, p_color varchar(11) NOT NULL, p_type varchar(25) NOT NULL, \
    p_size bigint NOT NULL, p_container char(10) NOT NULL";
const LINEORDER: &str = "lo_orderkey bigint, lo_linenumber bigint, lo_custkey bigint NOT NULL, lo_partkey bigint NOT NULL, \
    lo_suppkey bigint NOT NULL, lo_orderdate bigint NOT NULL, lo_orderpriority char(15) NOT NULL, \
    lo_shippriority char(1) NOT NULL, lo_quantity bigint NOT NULL, lo_extendedprice bigint NOT NULL, \
    lo_ordtotalprice bigint NOT NULL, lo_discount bigint NOT NULL, lo_revenue bigint NOT NULL, \
    lo_supplycost bigint NOT NULL, lo_tax bigint NOT NULL, lo_commitdate bigint NOT NULL, lo_shipmode char(10) NOT NULL, \
    PRIMARY KEY (lo_orderkey, lo_linenumber)";

/// What is checked of each table.
pub(super) const TABLES: [Summed; 5] = [
    ("days", true, ["d_datekey", "d_year", "d_weeknuminyear", "d_daynuminyear"]),
    ("supplier", true, ["s_suppkey", "split_part(s_address, ' ', 1)::bigint", "0", "0"]),
    ("customer", true, ["c_custkey", "split_part(c_address, ' ', 1)::bigint", "0", "0"]),
    (
        "part",
        true,
        ["p_partkey", "p_size", "substr(p_brand1, 8)::bigint", "substr(p_mfgr, 6)::bigint"],
    ),
    ("lineorder", false, ["lo_orderkey", "lo_partkey", "lo_quantity", "lo_revenue"]),
];

/// Gives all rows, table by table.
fn all(size: Size) -> impl Iterator<Item = (&'static str, Row)> {
    let days = (0..rows::DAYS).map(|number| ("days", rows::day(number)));
    let suppliers = (1..=size.suppliers).map(|key| ("supplier", rows::supplier(key)));
    let customers = (1..=size.customers).map(|key| ("customer", rows::customer(key)));
    let parts = (1..=size.parts).map(|key| ("part", rows::part(key)));
    let orders = (1..=size.orders)
        .flat_map(move |key| rows::order(key, size).into_iter().map(|row| ("lineorder", row)));
    days.chain(suppliers).chain(customers).chain(parts).chain(orders)
}

/// Makes the tables and fills them. The star's points are on every server; its middle is spread by order.
pub(super) async fn load<S: Session>(
    session: &mut S,
    size: Size,
    dialect: Dialect,
) -> anyhow::Result<()> {
    let everywhere =
        [("days", DAYS), ("supplier", SUPPLIER), ("customer", CUSTOMER), ("part", PART)];
    let by_hash = [("lineorder", LINEORDER, "lo_orderkey")];
    make_tables(session, dialect, &everywhere, &by_hash, &[]).await?;
    let tables = TABLES.iter().map(|(table, ..)| *table);
    fill(session, tables, all(size).map(|(table, (row, _))| (table, row))).await
}

/// What the tables have when they are filled.
pub(super) fn made(size: Size) -> Totals {
    Totals::made(all(size).map(|(table, (_, figures))| (table, figures)))
}
