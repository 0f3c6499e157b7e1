//! TPC-W's tables and what is in them at first.
//!
//! Owns: definitions, how they are spread, and rows. Never: changes a row.
//! Source: TPC Benchmark W, revision 1.8, clauses 1.3 and 4.6; what differs is in docs/lab/workloads.md.
//! Start reading at [`load`].

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::super::dialect::Dialect;
use super::super::filling::{Rows, cents, digits, make_tables, text};
use super::super::session::Session;
use super::input::{SUBJECTS, Size};

/// Of each book at first, and what is ordered again where less than ten would be left (clause 2.7.3.3).
const STOCK: std::ops::RangeInclusive<i64> = 10..=30;

const AUTHOR: &str = "a_id bigint PRIMARY KEY, a_fname varchar(20) NOT NULL, a_lname varchar(20) NOT NULL, \
    a_bio varchar(500) NOT NULL";
const ITEM: &str = "i_id bigint PRIMARY KEY, i_title varchar(60) NOT NULL, i_a_id bigint NOT NULL, \
    i_pub_date date NOT NULL, i_subject bigint NOT NULL, i_desc varchar(500) NOT NULL, \
    i_related_1 bigint NOT NULL, i_related_2 bigint NOT NULL, i_related_3 bigint NOT NULL, \
    i_related_4 bigint NOT NULL, i_related_5 bigint NOT NULL, i_image varchar(40) NOT NULL, \
    i_srp numeric(8,2) NOT NULL, i_cost numeric(8,2) NOT NULL, i_stock bigint NOT NULL, \
    i_isbn char(13) NOT NULL, i_sold bigint NOT NULL, i_changes bigint NOT NULL";
const CUSTOMER: &str = "c_id bigint PRIMARY KEY, c_uname varchar(20) NOT NULL, c_passwd varchar(20) NOT NULL, \
    c_fname varchar(15) NOT NULL, c_lname varchar(15) NOT NULL, c_phone varchar(16) NOT NULL, \
    c_since date NOT NULL, c_discount bigint NOT NULL, c_ytd_pmt numeric(12,2) NOT NULL, \
    c_data varchar(400) NOT NULL";
const ADDRESS: &str = "addr_c_id bigint PRIMARY KEY, addr_street varchar(40) NOT NULL, \
    addr_city varchar(30) NOT NULL, addr_zip varchar(10) NOT NULL, addr_country varchar(50) NOT NULL";
const ORDERS: &str = "o_c_id bigint, o_id bigint, o_date timestamp NOT NULL, o_sub_total numeric(12,2) NOT NULL, \
    o_lines bigint NOT NULL, o_ship_type varchar(10) NOT NULL, o_status varchar(16) NOT NULL, \
    PRIMARY KEY (o_c_id, o_id)";
const ORDER_LINE: &str = "ol_c_id bigint, ol_o_id bigint, ol_id bigint, ol_i_id bigint NOT NULL, \
    ol_qty bigint NOT NULL, ol_cost numeric(8,2) NOT NULL, PRIMARY KEY (ol_c_id, ol_o_id, ol_id)";
const CC_XACTS: &str = "cx_c_id bigint, cx_o_id bigint, cx_type varchar(10) NOT NULL, cx_num varchar(16) NOT NULL, \
    cx_xact_amt numeric(12,2) NOT NULL, cx_xact_date timestamp NOT NULL, PRIMARY KEY (cx_c_id, cx_o_id)";
const CART_LINE: &str = "scl_c_id bigint, scl_i_id bigint, scl_qty bigint NOT NULL, \
    PRIMARY KEY (scl_c_id, scl_i_id)";

async fn make<S: Session>(session: &mut S, dialect: Dialect) -> anyhow::Result<()> {
    let everywhere = ("author", AUTHOR);
    let tables = [
        ("item", ITEM, "i_id"),
        ("customer", CUSTOMER, "c_id"),
        ("address", ADDRESS, "addr_c_id"),
        ("orders", ORDERS, "o_c_id"),
        ("order_line", ORDER_LINE, "ol_c_id"),
        ("cc_xacts", CC_XACTS, "cx_c_id"),
        ("shopping_cart_line", CART_LINE, "scl_c_id"),
    ];
    let indexes = [
        "CREATE INDEX item_by_subject ON item (i_subject, i_pub_date)",
        "CREATE INDEX item_by_author ON item (i_a_id)",
        "CREATE INDEX item_by_title ON item (i_title varchar_pattern_ops)",
        "CREATE INDEX order_line_by_item ON order_line (ol_i_id)",
    ];
    make_tables(session, dialect, &[everywhere], &tables, &indexes).await
}

/// A book's title: searches know how it begins.
pub(super) fn title(item: i64) -> String {
    format!("{:05} ", item * 7_919 % 100_000)
}

/// Makes the tables and fills them.
pub(super) async fn load<S: Session>(
    session: &mut S,
    size: Size,
    dialect: Dialect,
) -> anyhow::Result<()> {
    make(session, dialect).await?;
    let random = &mut StdRng::seed_from_u64(0);
    let mut rows = Rows::into("author");
    for author in 1..=size.authors() {
        let (first, last, bio) =
            (text(3..=20, random), text(1..=20, random), text(125..=500, random));
        rows.add(session, format!("{author}, '{first}', '{last}', '{bio}'")).await?;
    }
    rows.end(session).await?;
    load_items(session, size, random).await?;
    let (mut customers, mut addresses) = (Rows::into("customer"), Rows::into("address"));
    for customer in 1..=size.customers {
        let [row, address] = of_customer(customer, random);
        customers.add(session, row).await?;
        addresses.add(session, address).await?;
    }
    customers.end(session).await?;
    addresses.end(session).await?;
    load_orders(session, size, random).await
}

async fn load_items<S: Session>(
    session: &mut S,
    size: Size,
    random: &mut StdRng,
) -> anyhow::Result<()> {
    let mut rows = Rows::into("item");
    for item in 1..=size.items {
        let title = title(item) + &text(8..=50, random);
        let author = random.random_range(1..=size.authors());
        let days = random.random_range(0..=25_000);
        let subject = random.random_range(0..SUBJECTS);
        let about = text(100..=500, random);
        let related: Vec<String> =
            (0..5).map(|_| random.random_range(1..=size.items).to_string()).collect();
        let cost = random.random_range(100..=9_999);
        let (price, cost) = (cents(cost * 10 / 7), cents(cost));
        let (stock, isbn) = (random.random_range(STOCK), text(13..=13, random));
        let row = format!(
            "{item}, '{title}', {author}, '2000-01-01'::date - {days}, {subject}, '{about}', {}, 'image {item}', \
             {price}, {cost}, {stock}, '{isbn}', 0, 0",
            related.join(", ")
        );
        rows.add(session, row).await?;
    }
    rows.end(session).await
}

/// A customer's row, and that of the address.
pub(super) fn of_customer(customer: i64, random: &mut StdRng) -> [String; 2] {
    let (first, last) = (text(8..=15, random), text(8..=15, random));
    let (phone, about) = (digits(12, random), text(100..=400, random));
    let discount = random.random_range(0..=50);
    let row = format!(
        "{customer}, 'u{customer}', 'p{customer}', '{first}', '{last}', '{phone}', current_date, {discount}, 0, \
         '{about}'"
    );
    let (street, city, zip) = (text(15..=40, random), text(4..=30, random), digits(5, random));
    [row, format!("{customer}, '{street}', '{city}', '{zip}', 'Country'")]
}

/// Orders of the beginning have negative numbers, so that those of transactions have theirs.
async fn load_orders<S: Session>(
    session: &mut S,
    size: Size,
    random: &mut StdRng,
) -> anyhow::Result<()> {
    let (mut orders, mut lines) = (Rows::into("orders"), Rows::into("order_line"));
    for order in 1..=size.orders() {
        let customer = random.random_range(1..=size.customers);
        let count = random.random_range(1..=5);
        let mut sum = 0;
        for line in 1..=count {
            let (item, quantity) =
                (random.random_range(1..=size.items), random.random_range(1..=10));
            let cost = random.random_range(100..=9_999);
            sum += cost * quantity;
            let row = format!("{customer}, -{order}, {line}, {item}, {quantity}, {}", cents(cost));
            lines.add(session, row).await?;
        }
        let sum = cents(sum);
        let row = format!(
            "{customer}, -{order}, now()::timestamp - interval '1 day', {sum}, {count}, 'AIR', 'SHIPPED'"
        );
        orders.add(session, row).await?;
    }
    orders.end(session).await?;
    lines.end(session).await
}
