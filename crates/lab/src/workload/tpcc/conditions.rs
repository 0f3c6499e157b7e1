//! What must hold of TPC-C's tables at rest.
//!
//! Owns: consistency conditions 1 to 4 of the standard, and that what crosses warehouses adds up. Never: changes
//! a row.
//! Source: TPC Benchmark C, revision 5.11, clauses 3.3.2.1 to 3.3.2.4. The two sums are ours: they find a
//! transaction of which one server has its part and another does not.
//! Start reading at [`Totals::read`].

use std::collections::{BTreeMap, BTreeSet};

use anyhow::ensure;

use super::super::session::Session;
use super::super::transfers::integers;
use super::input::{DISTRICTS, Size};
use super::load::NO_NUMBER;

/// Of each district: `D_NEXT_O_ID`, and what its year has brought, in cents.
const DISTRICT: &str = "SELECT d_w_id, d_id, d_next_o_id, (d_ytd * 100)::bigint FROM district";
const WAREHOUSE: &str = "SELECT w_id, (w_ytd * 100)::bigint FROM warehouse";
const ORDERS: &str = "SELECT o_w_id, o_d_id, max(o_id), count(*), sum(o_ol_cnt)::bigint FROM orders \
                      GROUP BY o_w_id, o_d_id";
const NEW_ORDER: &str = "SELECT no_w_id, no_d_id, max(no_o_id), min(no_o_id), count(*) FROM new_order \
                         GROUP BY no_w_id, no_d_id";
const ORDER_LINE: &str =
    "SELECT ol_w_id, ol_d_id, count(*) FROM order_line GROUP BY ol_w_id, ol_d_id";
const STOCK: &str = "SELECT s_w_id, sum(s_ytd)::bigint FROM stock GROUP BY s_w_id";
const CUSTOMER: &str =
    "SELECT c_w_id, (sum(c_ytd_payment) * 100)::bigint FROM customer GROUP BY c_w_id";
const HISTORY: &str =
    "SELECT h_c_w_id, (sum(h_amount) * 100)::bigint FROM history GROUP BY h_c_w_id";
const HISTORY_HERE: &str =
    "SELECT h_w_id, (sum(h_amount) * 100)::bigint FROM history GROUP BY h_w_id";

/// A warehouse and a district.
type Place = (i64, i64);

/// What the tables add up to.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Totals {
    warehouses: BTreeMap<i64, i64>,
    districts: BTreeMap<Place, [i64; 2]>,
    orders: BTreeMap<Place, [i64; 3]>,
    new_orders: BTreeMap<Place, [i64; 3]>,
    lines: BTreeMap<Place, i64>,
    /// Taken from each warehouse's stock, as the stock says and as the lines of new orders say.
    taken: BTreeMap<i64, i64>,
    taken_by_lines: BTreeMap<i64, i64>,
    /// Paid by each warehouse's customers, as these say and as the history says.
    paid: BTreeMap<i64, i64>,
    paid_by_history: BTreeMap<i64, i64>,
    /// Paid in each warehouse, as the history says.
    paid_here: BTreeMap<i64, i64>,
}

impl Totals {
    /// Reads all servers that together have all rows.
    pub(super) async fn read<S: Session>(parts: &mut [S], size: Size) -> anyhow::Result<Self> {
        let taken_by_lines = format!(
            "SELECT ol_supply_w_id, sum(ol_quantity)::bigint FROM order_line WHERE ol_o_id > {} \
             GROUP BY ol_supply_w_id",
            size.orders()
        );
        let mut all = Self::default();
        for part in parts {
            add(&mut all.warehouses, integers(part, WAREHOUSE).await?);
            for row in integers(part, DISTRICT).await? {
                let is_new = all.districts.insert((row[0], row[1]), [row[2], row[3]]).is_none();
                ensure!(is_new, "district {}, {} is there twice", row[0], row[1]);
            }
            for row in integers(part, ORDERS).await? {
                all.orders.insert((row[0], row[1]), [row[2], row[3], row[4]]);
            }
            for row in integers(part, NEW_ORDER).await? {
                all.new_orders.insert((row[0], row[1]), [row[2], row[3], row[4]]);
            }
            for row in integers(part, ORDER_LINE).await? {
                all.lines.insert((row[0], row[1]), row[2]);
            }
            add(&mut all.taken, integers(part, STOCK).await?);
            add(&mut all.taken_by_lines, integers(part, &taken_by_lines).await?);
            add(&mut all.paid, integers(part, CUSTOMER).await?);
            add(&mut all.paid_by_history, integers(part, HISTORY).await?);
            add(&mut all.paid_here, integers(part, HISTORY_HERE).await?);
        }
        Ok(all)
    }

    /// Whether all of it fits together.
    pub(super) fn check(&self, size: Size) -> anyhow::Result<()> {
        let warehouses = self.warehouses.len() as i64;
        ensure!(warehouses == size.warehouses, "{warehouses} of {} warehouses", size.warehouses);
        let districts = self.districts.len() as i64;
        ensure!(districts == DISTRICTS * warehouses, "{districts} districts");
        for (warehouse, ytd) in &self.warehouses {
            self.check_warehouse(*warehouse, *ytd)?;
        }
        for (place, [next, _]) in &self.districts {
            self.check_district(*place, *next)?;
        }
        Ok(())
    }

    fn check_warehouse(&self, warehouse: i64, ytd: i64) -> anyhow::Result<()> {
        let here = self.districts.range((warehouse, 0)..(warehouse + 1, 0));
        let of_districts: i64 = here.map(|(_, [_, ytd])| ytd).sum();
        ensure!(
            ytd == of_districts,
            "condition 1: warehouse {warehouse} has {ytd} cents, its districts {of_districts}"
        );
        let of = |sums: &BTreeMap<i64, i64>| sums.get(&warehouse).copied().unwrap_or_default();
        let here = of(&self.paid_here);
        ensure!(ytd == here, "warehouse {warehouse} has {ytd} cents, its history {here}");
        let (taken, by_lines) = (of(&self.taken), of(&self.taken_by_lines));
        ensure!(
            taken == by_lines,
            "{taken} were taken from the stock of warehouse {warehouse}, {by_lines} are in orders"
        );
        let (paid, by_history) = (of(&self.paid), of(&self.paid_by_history));
        ensure!(
            paid == by_history,
            "customers of warehouse {warehouse} have paid {paid} cents, the history says {by_history}"
        );
        Ok(())
    }

    fn check_district(&self, place: Place, next: i64) -> anyhow::Result<()> {
        let [last, count, lines_meant] = self.orders.get(&place).copied().unwrap_or_default();
        ensure!(
            next - 1 == last,
            "condition 2: the next order of district {place:?} is {next}, its last is {last}"
        );
        ensure!(count == last, "district {place:?} has {count} orders of {last}");
        if let Some([last_new, first_new, count]) = self.new_orders.get(&place).copied() {
            ensure!(
                last_new == last,
                "condition 2: the last new order of district {place:?} is {last_new}, not {last}"
            );
            ensure!(
                last_new - first_new + 1 == count,
                "condition 3: new orders of district {place:?} are {first_new} to {last_new}, {count}"
            );
        }
        let lines = self.lines.get(&place).copied().unwrap_or_default();
        ensure!(
            lines == lines_meant,
            "condition 4: orders of district {place:?} have {lines_meant} lines, {lines} are there"
        );
        Ok(())
    }
}

fn add(sums: &mut BTreeMap<i64, i64>, rows: Vec<Vec<i64>>) {
    for row in rows {
        *sums.entry(row[0]).or_default() += row[1];
    }
}

/// The numbers of the transactions that have left a row each, of New-Orders and of Payments.
///
/// Errors: two rows have one number.
pub(super) async fn numbers<S: Session>(parts: &mut [S]) -> anyhow::Result<[BTreeSet<i64>; 2]> {
    let mut all = [BTreeSet::new(), BTreeSet::new()];
    for part in parts {
        for (numbers, table, column) in [(0, "orders", "o_number"), (1, "history", "h_number")] {
            let sql = format!("SELECT {column} FROM {table} WHERE {column} <> {NO_NUMBER}");
            for row in integers(part, &sql).await? {
                let is_new = all[numbers].insert(row[0]);
                ensure!(is_new, "transaction {} was done twice: {table}", row[0]);
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::super::load::FIRST_PAYMENT;
    use super::*;

    /// A warehouse at the beginning, as it is loaded.
    fn loaded(size: Size) -> Totals {
        let district_ytd = size.customers * FIRST_PAYMENT;
        let ytd = DISTRICTS * district_ytd;
        let (orders, first) = (size.orders(), size.first_new_order());
        let each = |district| (1, district);
        let all = || (1..=DISTRICTS).map(each);
        Totals {
            warehouses: [(1, ytd)].into(),
            districts: all().map(|place| (place, [orders + 1, district_ytd])).collect(),
            orders: all().map(|place| (place, [orders, orders, 10 * orders])).collect(),
            new_orders: all().map(|place| (place, [orders, first, orders - first + 1])).collect(),
            lines: all().map(|place| (place, 10 * orders)).collect(),
            taken: [(1, 0)].into(),
            taken_by_lines: BTreeMap::new(),
            paid: [(1, ytd)].into(),
            paid_by_history: [(1, ytd)].into(),
            paid_here: [(1, ytd)].into(),
        }
    }

    #[test]
    fn each_condition_that_does_not_hold_is_named() {
        let size = Size::new(1, 0.01);
        loaded(size).check(size).unwrap();
        let refusal = |change: &dyn Fn(&mut Totals)| {
            let mut totals = loaded(size);
            change(&mut totals);
            totals.check(size).unwrap_err().to_string()
        };
        let place = (1, 3);
        for (said, change) in [
            (
                "condition 1",
                &(|it: &mut Totals| it.districts.get_mut(&place).unwrap()[1] += 1)
                    as &dyn Fn(&mut Totals),
            ),
            ("condition 2: the next", &|it| it.districts.get_mut(&place).unwrap()[0] += 1),
            ("condition 2: the last new", &|it| it.new_orders.get_mut(&place).unwrap()[0] -= 1),
            ("condition 3", &|it| it.new_orders.get_mut(&place).unwrap()[2] -= 1),
            ("condition 4", &|it| *it.lines.get_mut(&place).unwrap() -= 1),
            ("from the stock", &|it| *it.taken.get_mut(&1).unwrap() += 5),
            ("have paid", &|it| *it.paid.get_mut(&1).unwrap() += 5),
            ("its history", &|it| *it.paid_here.get_mut(&1).unwrap() -= 5),
        ] {
            let is = refusal(change);
            assert!(is.contains(said), "{said}: {is}");
        }
    }
}
