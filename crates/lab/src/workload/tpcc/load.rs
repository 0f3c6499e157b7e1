//! TPC-C's tables and what is in them at first.
//!
//! Owns: definitions, how they are spread, and rows as the standard wants them. Never: changes a row.
//! Source: TPC Benchmark C, revision 5.11, clauses 1.3 and 4.3.3; what differs is in docs/lab/workloads.md.
//! Start reading at [`load`].

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use super::super::dialect::Dialect;
use super::super::filling::{Rows, cents, digits, make_tables, text};
use super::super::session::Session;
use super::input::{DISTRICTS, Size, first_name_number, last_name};

/// What rows of the beginning have where a transaction's number would be.
pub(super) const NO_NUMBER: i64 = 0;
/// In cents, what each customer had paid at first (clause 4.3.3.1: 10.00).
pub(super) const FIRST_PAYMENT: i64 = 1_000;

const WAREHOUSE: &str = "w_id bigint PRIMARY KEY, w_name varchar(10) NOT NULL, w_street_1 varchar(20) NOT NULL, \
    w_street_2 varchar(20) NOT NULL, w_city varchar(20) NOT NULL, w_state char(2) NOT NULL, \
    w_zip char(9) NOT NULL, w_tax numeric(4,4) NOT NULL, w_ytd numeric(12,2) NOT NULL";
const DISTRICT: &str = "d_w_id bigint, d_id bigint, d_name varchar(10) NOT NULL, d_street_1 varchar(20) NOT NULL, \
    d_street_2 varchar(20) NOT NULL, d_city varchar(20) NOT NULL, d_state char(2) NOT NULL, \
    d_zip char(9) NOT NULL, d_tax numeric(4,4) NOT NULL, d_ytd numeric(12,2) NOT NULL, \
    d_next_o_id bigint NOT NULL, PRIMARY KEY (d_w_id, d_id)";
const CUSTOMER: &str = "c_w_id bigint, c_d_id bigint, c_id bigint, c_first varchar(16) NOT NULL, \
    c_middle char(2) NOT NULL, c_last varchar(16) NOT NULL, c_street_1 varchar(20) NOT NULL, \
    c_street_2 varchar(20) NOT NULL, c_city varchar(20) NOT NULL, c_state char(2) NOT NULL, \
    c_zip char(9) NOT NULL, c_phone char(16) NOT NULL, c_since timestamp NOT NULL, c_credit char(2) NOT NULL, \
    c_credit_lim numeric(12,2) NOT NULL, c_discount numeric(4,4) NOT NULL, c_balance numeric(12,2) NOT NULL, \
    c_ytd_payment numeric(12,2) NOT NULL, c_payment_cnt bigint NOT NULL, c_delivery_cnt bigint NOT NULL, \
    c_data varchar(500) NOT NULL, PRIMARY KEY (c_w_id, c_d_id, c_id)";
const HISTORY: &str = "h_c_id bigint NOT NULL, h_c_d_id bigint NOT NULL, h_c_w_id bigint NOT NULL, \
    h_d_id bigint NOT NULL, h_w_id bigint NOT NULL, h_date timestamp NOT NULL, h_amount numeric(6,2) NOT NULL, \
    h_data varchar(24) NOT NULL, h_number bigint NOT NULL";
const ORDERS: &str = "o_w_id bigint, o_d_id bigint, o_id bigint, o_c_id bigint NOT NULL, \
    o_entry_d timestamp NOT NULL, o_carrier_id bigint, o_ol_cnt bigint NOT NULL, o_all_local bigint NOT NULL, \
    o_number bigint NOT NULL, PRIMARY KEY (o_w_id, o_d_id, o_id)";
const NEW_ORDER: &str =
    "no_w_id bigint, no_d_id bigint, no_o_id bigint, PRIMARY KEY (no_w_id, no_d_id, no_o_id)";
const ORDER_LINE: &str = "ol_w_id bigint, ol_d_id bigint, ol_o_id bigint, ol_number bigint, \
    ol_i_id bigint NOT NULL, ol_supply_w_id bigint NOT NULL, ol_delivery_d timestamp, \
    ol_quantity bigint NOT NULL, ol_amount numeric(6,2) NOT NULL, ol_dist_info char(24) NOT NULL, \
    PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)";
const ITEM: &str = "i_id bigint PRIMARY KEY, i_im_id bigint NOT NULL, i_name varchar(24) NOT NULL, \
    i_price numeric(5,2) NOT NULL, i_data varchar(50) NOT NULL";
const STOCK: &str = "s_w_id bigint, s_i_id bigint, s_quantity bigint NOT NULL, s_dist_01 char(24) NOT NULL, \
    s_dist_02 char(24) NOT NULL, s_dist_03 char(24) NOT NULL, s_dist_04 char(24) NOT NULL, \
    s_dist_05 char(24) NOT NULL, s_dist_06 char(24) NOT NULL, s_dist_07 char(24) NOT NULL, \
    s_dist_08 char(24) NOT NULL, s_dist_09 char(24) NOT NULL, s_dist_10 char(24) NOT NULL, \
    s_ytd bigint NOT NULL, s_order_cnt bigint NOT NULL, s_remote_cnt bigint NOT NULL, \
    s_data varchar(50) NOT NULL, PRIMARY KEY (s_w_id, s_i_id)";

/// Makes the tables: by warehouse, and the items everywhere.
async fn make<S: Session>(session: &mut S, dialect: Dialect) -> anyhow::Result<()> {
    let everywhere = ("item", ITEM);
    let tables = [
        ("warehouse", WAREHOUSE, "w_id"),
        ("district", DISTRICT, "d_w_id"),
        ("customer", CUSTOMER, "c_w_id"),
        ("history", HISTORY, "h_w_id"),
        ("orders", ORDERS, "o_w_id"),
        ("new_order", NEW_ORDER, "no_w_id"),
        ("order_line", ORDER_LINE, "ol_w_id"),
        ("stock", STOCK, "s_w_id"),
    ];
    let indexes = [
        "CREATE INDEX customer_by_name ON customer (c_w_id, c_d_id, c_last, c_first)",
        "CREATE INDEX orders_by_customer ON orders (o_w_id, o_d_id, o_c_id, o_id)",
    ];
    make_tables(session, dialect, &[everywhere], &tables, &indexes).await
}

/// Makes the tables and fills them.
pub(super) async fn load<S: Session>(
    session: &mut S,
    size: Size,
    dialect: Dialect,
) -> anyhow::Result<()> {
    make(session, dialect).await?;
    let mut random = StdRng::seed_from_u64(0);
    let random = &mut random;
    let mut items = Rows::into("item");
    for item in 1..=size.items {
        let price = cents(random.random_range(100..=10_000));
        let image = random.random_range(1..=10_000);
        let (name, data) = (text(14..=24, random), data(random));
        items.add(session, format!("{item}, {image}, '{name}', {price}, '{data}'")).await?;
    }
    items.end(session).await?;
    for warehouse in 1..=size.warehouses {
        load_warehouse(session, warehouse, size, random).await?;
    }
    Ok(())
}

async fn load_warehouse<S: Session>(
    session: &mut S,
    warehouse: i64,
    size: Size,
    random: &mut StdRng,
) -> anyhow::Result<()> {
    let paid = DISTRICTS * size.customers * FIRST_PAYMENT;
    let mut rows = Rows::into("warehouse");
    let (place, tax) = (place(random), tax(random));
    rows.add(session, format!("{warehouse}, {place}, {tax}, {}", cents(paid))).await?;
    rows.end(session).await?;
    let mut stock = Rows::into("stock");
    for item in 1..=size.items {
        let quantity = random.random_range(10..=100);
        let districts: Vec<String> =
            (0..DISTRICTS).map(|_| format!("'{}'", text(24..=24, random))).collect();
        let (districts, data) = (districts.join(", "), data(random));
        let row = format!("{warehouse}, {item}, {quantity}, {districts}, 0, 0, 0, '{data}'");
        stock.add(session, row).await?;
    }
    stock.end(session).await?;
    for district in 1..=DISTRICTS {
        load_district(session, warehouse, district, size, random).await?;
    }
    Ok(())
}

async fn load_district<S: Session>(
    session: &mut S,
    warehouse: i64,
    district: i64,
    size: Size,
    random: &mut StdRng,
) -> anyhow::Result<()> {
    let at = format!("{warehouse}, {district}");
    let mut rows = Rows::into("district");
    let (place, tax, paid) = (place(random), tax(random), cents(size.customers * FIRST_PAYMENT));
    let next = size.orders() + 1;
    rows.add(session, format!("{at}, {place}, {tax}, {paid}, {next}")).await?;
    rows.end(session).await?;

    let (mut customers, mut history) = (Rows::into("customer"), Rows::into("history"));
    let payment = cents(FIRST_PAYMENT);
    for customer in 1..=size.customers {
        let last = last_name(first_name_number(customer, size, random));
        let (first, address) = (text(8..=16, random), address(random));
        let phone = digits(16, random);
        let credit = if random.random_ratio(1, 10) { "BC" } else { "GC" };
        let discount = f64::from(random.random_range(0..=5_000)) / 10_000.0;
        let about = text(300..=500, random);
        let row = format!(
            "{at}, {customer}, '{first}', 'OE', '{last}', {address}, '{phone}', now()::timestamp, '{credit}', \
             50000.00, {discount:.4}, -{payment}, {payment}, 1, 0, '{about}'"
        );
        customers.add(session, row).await?;
        let about = text(12..=24, random);
        let row = format!(
            "{customer}, {district}, {warehouse}, {district}, {warehouse}, now()::timestamp, {payment}, '{about}', \
             {NO_NUMBER}"
        );
        history.add(session, row).await?;
    }
    customers.end(session).await?;
    history.end(session).await?;

    let mut by_customer: Vec<i64> = (1..=size.customers).collect();
    by_customer.shuffle(random);
    let (mut orders, mut lines) = (Rows::into("orders"), Rows::into("order_line"));
    let mut new_orders = Rows::into("new_order");
    for (order, customer) in (1..).zip(by_customer) {
        let is_new = size.first_new_order() <= order;
        let count = random.random_range(5..=15);
        let carrier =
            if is_new { "NULL".to_owned() } else { random.random_range(1..=10).to_string() };
        let row = format!(
            "{at}, {order}, {customer}, now()::timestamp, {carrier}, {count}, 1, {NO_NUMBER}"
        );
        orders.add(session, row).await?;
        for line in 1..=count {
            let item = random.random_range(1..=size.items);
            let amount = if is_new { cents(random.random_range(1..=999_999)) } else { cents(0) };
            let delivered = if is_new { "NULL" } else { "now()::timestamp" };
            let about = text(24..=24, random);
            let row = format!(
                "{at}, {order}, {line}, {item}, {warehouse}, {delivered}, 5, {amount}, '{about}'"
            );
            lines.add(session, row).await?;
        }
        if is_new {
            new_orders.add(session, format!("{at}, {order}")).await?;
        }
    }
    orders.end(session).await?;
    lines.end(session).await?;
    new_orders.end(session).await
}

/// One in ten is an original (clause 4.3.3.1).
fn data(random: &mut StdRng) -> String {
    let mut data = text(26..=50, random);
    if random.random_ratio(1, 10) {
        let at = random.random_range(0..=data.len() - 8);
        data.replace_range(at..at + 8, "ORIGINAL");
    }
    data
}

fn tax(random: &mut StdRng) -> String {
    format!("{:.4}", f64::from(random.random_range(0..=2_000)) / 10_000.0)
}

/// A name and an address.
fn place(random: &mut StdRng) -> String {
    format!("'{}', {}", text(6..=10, random), address(random))
}

fn address(random: &mut StdRng) -> String {
    let mut word = || text(10..=20, random);
    let (street_1, street_2, city) = (word(), word(), word());
    let (state, zip) = (text(2..=2, random), digits(4, random));
    format!("'{street_1}', '{street_2}', '{city}', '{state}', '{zip}11111'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_is_original() {
        let random = &mut StdRng::seed_from_u64(1);
        let originals = (0..5_000).filter(|_| data(random).contains("ORIGINAL")).count();
        assert!((400..600).contains(&originals), "{originals}");
    }
}
