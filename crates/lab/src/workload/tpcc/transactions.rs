//! TPC-C's five transactions, up to their COMMIT.
//!
//! Owns: their statements. Never: begins or ends a transaction, nor chooses what it is about.
//! Source: TPC Benchmark C, revision 5.11, clauses 2.4.2, 2.5.2, 2.6.2, 2.7.4 and 2.8.2. Each statement names the
//! warehouse, so that it is one server's; which SQL is avoided for that is in docs/lab/workloads.md.
//! Start reading at [`work`].

use anyhow::anyhow;

use super::super::session::{Failure, Session};
use super::input::{DISTRICTS, Input, Line, Who};
use super::load::cents;

/// Orders that Stock-Level looks back (clause 2.8.2.2).
const ORDERS_BACK: i64 = 20;
/// How often another delivery may be faster before this one gives up.
const FASTER_MAX: u32 = 20;

/// Why a transaction does not come to its COMMIT.
#[derive(Debug)]
pub(super) enum Stop {
    /// It was asked for something that does not exist, as one in a hundred is, and is to be rolled back.
    Wrong,
    Refused(Failure),
    /// An answer that cannot be.
    Impossible(anyhow::Error),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Refused(failure)
    }
}

impl From<anyhow::Error> for Stop {
    fn from(error: anyhow::Error) -> Self {
        Self::Impossible(error)
    }
}

/// Does what a transaction is asked to do.
pub(super) async fn work<S: Session>(
    session: &mut S,
    number: i64,
    input: &Input,
) -> Result<(), Stop> {
    match input {
        Input::NewOrder { warehouse, district, customer, lines, is_wrong } => {
            let order = Order { at: (*warehouse, *district), customer: *customer, lines, number };
            order.place(session, *is_wrong).await
        }
        Input::Payment { warehouse, district, at_home, who, cents } => {
            pay(session, number, (*warehouse, *district), *at_home, who, *cents).await
        }
        Input::OrderStatus { warehouse, district, who } => {
            order_status(session, (*warehouse, *district), who).await
        }
        Input::Delivery { warehouse, carrier } => deliver(session, *warehouse, *carrier).await,
        Input::StockLevel { warehouse, district, threshold } => {
            stock_level(session, (*warehouse, *district), *threshold).await
        }
    }
}

/// A New-Order.
struct Order<'a> {
    at: (i64, i64),
    customer: i64,
    lines: &'a [Line],
    number: i64,
}

impl Order<'_> {
    async fn place<S: Session>(&self, session: &mut S, is_wrong: bool) -> Result<(), Stop> {
        let ((w, d), c) = (self.at, self.customer);
        let sql = format!(
            "SELECT c_discount, c_last, c_credit FROM customer \
             WHERE c_w_id = {w} AND c_d_id = {d} AND c_id = {c}"
        );
        one(session, &sql).await?;
        one(session, &format!("SELECT w_tax FROM warehouse WHERE w_id = {w}")).await?;
        // What the standard's example reads and then updates, in one statement.
        let sql = format!(
            "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = {w} AND d_id = {d} \
             RETURNING d_next_o_id - 1, d_tax"
        );
        let order = integer(&one(session, &sql).await?, 0)?;
        let (count, number) = (self.lines.len(), self.number);
        let is_local = i64::from(self.lines.iter().all(|line| line.supply == w));
        let sql = format!(
            "INSERT INTO orders VALUES ({w}, {d}, {order}, {c}, now()::timestamp, NULL, {count}, {is_local}, \
             {number})"
        );
        session.query(&sql).await?;
        session.query(&format!("INSERT INTO new_order VALUES ({w}, {d}, {order})")).await?;
        let mut rows = Vec::new();
        for (place, line) in (1..).zip(self.lines) {
            let is_last = place == count;
            // No item has the number 0.
            let item = if is_wrong && is_last { 0 } else { line.item };
            let sql = format!(
                "SELECT (i_price * 100)::bigint, i_name, i_data FROM item WHERE i_id = {item}"
            );
            let price = match &*session.query(&sql).await? {
                [] if item == 0 => return Err(Stop::Wrong),
                [row] => integer(row, 0)?,
                rows => bail_impossible(format!("item {item} is {} rows", rows.len()))?,
            };
            let about = self.take(session, line).await?;
            let (supply, quantity) = (line.supply, line.quantity);
            let amount = cents(price * quantity);
            rows.push(format!(
                "({w}, {d}, {order}, {place}, {item}, {supply}, NULL, {quantity}, {amount}, '{about}')"
            ));
        }
        session.query(&format!("INSERT INTO order_line VALUES {}", rows.join(", "))).await?;
        Ok(())
    }

    /// Takes a line's items from the stock; gives what the stock says of the district.
    async fn take<S: Session>(&self, session: &mut S, line: &Line) -> Result<String, Stop> {
        let (w, d) = self.at;
        let Line { supply, item, quantity } = line;
        let remote = i64::from(*supply != w);
        let sql = format!(
            "UPDATE stock SET s_quantity = CASE WHEN s_quantity >= {quantity} + 10 \
             THEN s_quantity - {quantity} ELSE s_quantity - {quantity} + 91 END, \
             s_ytd = s_ytd + {quantity}, s_order_cnt = s_order_cnt + 1, \
             s_remote_cnt = s_remote_cnt + {remote} WHERE s_w_id = {supply} AND s_i_id = {item} \
             RETURNING s_dist_{d:02}, s_quantity, s_data"
        );
        Ok(one(session, &sql).await?[0].clone().unwrap_or_default())
    }
}

async fn pay<S: Session>(
    session: &mut S,
    number: i64,
    (w, d): (i64, i64),
    (home_w, home_d): (i64, i64),
    who: &Who,
    amount: i64,
) -> Result<(), Stop> {
    let paid = cents(amount);
    let sql = format!(
        "UPDATE warehouse SET w_ytd = w_ytd + {paid} WHERE w_id = {w} \
         RETURNING w_name, w_street_1, w_street_2, w_city, w_state, w_zip"
    );
    let warehouse = one(session, &sql).await?[0].clone().unwrap_or_default();
    let sql = format!(
        "UPDATE district SET d_ytd = d_ytd + {paid} WHERE d_w_id = {w} AND d_id = {d} \
         RETURNING d_name, d_street_1, d_street_2, d_city, d_state, d_zip"
    );
    let district = one(session, &sql).await?[0].clone().unwrap_or_default();
    let c = find(session, (home_w, home_d), who).await?;
    // Of a customer with bad credit, what was paid is written down (clause 2.5.2.2).
    let sql = format!(
        "UPDATE customer SET c_balance = c_balance - {paid}, c_ytd_payment = c_ytd_payment + {paid}, \
         c_payment_cnt = c_payment_cnt + 1, c_data = CASE WHEN c_credit = 'BC' \
         THEN left('{c} {home_d} {home_w} {d} {w} {paid} ' || c_data, 500) ELSE c_data END \
         WHERE c_w_id = {home_w} AND c_d_id = {home_d} AND c_id = {c} \
         RETURNING c_first, c_middle, c_last, c_credit, c_discount, c_balance, c_data"
    );
    one(session, &sql).await?;
    let sql = format!(
        "INSERT INTO history VALUES ({c}, {home_d}, {home_w}, {d}, {w}, now()::timestamp, {paid}, \
         '{warehouse}    {district}', {number})"
    );
    session.query(&sql).await?;
    Ok(())
}

/// A customer's number; of several with one name the one in the middle, by first name.
async fn find<S: Session>(session: &mut S, (w, d): (i64, i64), who: &Who) -> Result<i64, Stop> {
    let name = match who {
        Who::Id(id) => return Ok(*id),
        Who::LastName(name) => name,
    };
    let sql = format!(
        "SELECT c_id FROM customer WHERE c_w_id = {w} AND c_d_id = {d} AND c_last = '{name}' ORDER BY c_first"
    );
    let rows = session.query(&sql).await?;
    match rows.get(rows.len().div_ceil(2).saturating_sub(1)) {
        Some(row) => Ok(integer(row, 0)?),
        None => bail_impossible(format!("nobody in {w}, {d} is called {name}")),
    }
}

async fn order_status<S: Session>(
    session: &mut S,
    (w, d): (i64, i64),
    who: &Who,
) -> Result<(), Stop> {
    let c = find(session, (w, d), who).await?;
    let sql = format!(
        "SELECT c_balance, c_first, c_middle, c_last FROM customer \
         WHERE c_w_id = {w} AND c_d_id = {d} AND c_id = {c}"
    );
    one(session, &sql).await?;
    let sql = format!(
        "SELECT o_id, o_ol_cnt, o_entry_d, o_carrier_id FROM orders \
         WHERE o_w_id = {w} AND o_d_id = {d} AND o_c_id = {c} ORDER BY o_id DESC LIMIT 1"
    );
    let last = one(session, &sql).await?;
    let (order, count) = (integer(&last, 0)?, integer(&last, 1)?);
    let sql = format!(
        "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line \
         WHERE ol_w_id = {w} AND ol_d_id = {d} AND ol_o_id = {order}"
    );
    let lines = session.query(&sql).await?.len() as i64;
    if lines != count {
        return bail_impossible(format!("order {w}, {d}, {order} has {lines} of {count} lines"));
    }
    Ok(())
}

/// The oldest order of each district that is not yet delivered; at once, where the standard lets it be later.
async fn deliver<S: Session>(session: &mut S, w: i64, carrier: i64) -> Result<(), Stop> {
    for d in 1..=DISTRICTS {
        let Some(order) = take_oldest(session, w, d).await? else { continue };
        let sql = format!(
            "UPDATE orders SET o_carrier_id = {carrier} \
             WHERE o_w_id = {w} AND o_d_id = {d} AND o_id = {order} RETURNING o_c_id"
        );
        let c = integer(&one(session, &sql).await?, 0)?;
        let sql = format!(
            "UPDATE order_line SET ol_delivery_d = now()::timestamp \
             WHERE ol_w_id = {w} AND ol_d_id = {d} AND ol_o_id = {order} \
             RETURNING (ol_amount * 100)::bigint"
        );
        let mut sum = 0;
        for row in session.query(&sql).await? {
            sum += integer(&row, 0)?;
        }
        let sum = cents(sum);
        let sql = format!(
            "UPDATE customer SET c_balance = c_balance + {sum}, c_delivery_cnt = c_delivery_cnt + 1 \
             WHERE c_w_id = {w} AND c_d_id = {d} AND c_id = {c} RETURNING c_id"
        );
        one(session, &sql).await?;
    }
    Ok(())
}

/// Takes the oldest order out of those that are not yet delivered, if there is one. Where another delivery was
/// faster, the next oldest.
async fn take_oldest<S: Session>(session: &mut S, w: i64, d: i64) -> Result<Option<i64>, Stop> {
    for _ in 0..FASTER_MAX {
        let sql = format!(
            "SELECT no_o_id FROM new_order WHERE no_w_id = {w} AND no_d_id = {d} ORDER BY no_o_id LIMIT 1"
        );
        let order = match &*session.query(&sql).await? {
            [] => return Ok(None),
            [row, ..] => integer(row, 0)?,
        };
        let sql = format!(
            "DELETE FROM new_order WHERE no_w_id = {w} AND no_d_id = {d} AND no_o_id = {order} RETURNING no_o_id"
        );
        if !session.query(&sql).await?.is_empty() {
            return Ok(Some(order));
        }
    }
    bail_impossible(format!("other deliveries of {w}, {d} were faster {FASTER_MAX} times"))
}

async fn stock_level<S: Session>(
    session: &mut S,
    (w, d): (i64, i64),
    threshold: i64,
) -> Result<(), Stop> {
    let sql = format!("SELECT d_next_o_id FROM district WHERE d_w_id = {w} AND d_id = {d}");
    let next = integer(&one(session, &sql).await?, 0)?;
    let from = next - ORDERS_BACK;
    let sql = format!(
        "SELECT count(DISTINCT s_i_id) FROM order_line, stock WHERE ol_w_id = {w} AND ol_d_id = {d} \
         AND ol_o_id < {next} AND ol_o_id >= {from} AND s_w_id = {w} AND s_i_id = ol_i_id \
         AND s_quantity < {threshold}"
    );
    integer(&one(session, &sql).await?, 0)?;
    Ok(())
}

async fn one<S: Session>(session: &mut S, sql: &str) -> Result<Vec<Option<String>>, Stop> {
    let mut rows = session.query(sql).await?;
    match (rows.pop(), rows.len()) {
        (Some(row), 0) => Ok(row),
        (_, more) => bail_impossible(format!("not one row but {more} more: {sql}")),
    }
}

fn bail_impossible<T>(what: String) -> Result<T, Stop> {
    Err(Stop::Impossible(anyhow!(what)))
}

fn integer(row: &[Option<String>], column: usize) -> anyhow::Result<i64> {
    let text = row.get(column).and_then(Option::as_deref).unwrap_or_default();
    text.parse().map_err(|_| anyhow!("column {column} is no integer: {text:?}"))
}
