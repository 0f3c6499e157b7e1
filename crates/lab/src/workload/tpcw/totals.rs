//! What must hold of TPC-W's tables at rest.
//!
//! Owns: that every order is whole, and was taken from the stock. Never: changes a row.
//! The standard's own conditions are of transactions (clause 3.3); these find one of which one server has its part
//! and another does not.
//! Start reading at [`Totals::read`].

use std::collections::{BTreeMap, BTreeSet};

use anyhow::ensure;

use super::super::session::Session;
use super::super::transfers::integers;
use super::super::{Asked, Believed};
use super::input::Size;

/// Of each order of a transaction's: customer, order, cents, lines.
const ORDERS: &str =
    "SELECT o_c_id, o_id, (o_sub_total * 100)::bigint, o_lines FROM orders WHERE 0 < o_id";
const LINES: &str = "SELECT ol_c_id, ol_o_id, (sum(ol_qty * ol_cost) * 100)::bigint, count(*) FROM order_line \
                     WHERE 0 < ol_o_id GROUP BY ol_c_id, ol_o_id";
const PAID: &str = "SELECT cx_c_id, cx_o_id, (cx_xact_amt * 100)::bigint FROM cc_xacts";
const BOUGHT: &str =
    "SELECT ol_i_id, sum(ol_qty)::bigint FROM order_line WHERE 0 < ol_o_id GROUP BY ol_i_id";
const SOLD: &str = "SELECT i_id, i_sold, i_changes FROM item WHERE i_sold <> 0 OR i_changes <> 0";
/// Of customers who have paid: cents.
const SPENT: &str = "SELECT c_id, (c_ytd_pmt * 100)::bigint FROM customer WHERE c_ytd_pmt <> 0";

/// A customer and an order.
type Key = (i64, i64);

/// What the tables say.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Totals {
    orders: BTreeMap<Key, [i64; 2]>,
    lines: BTreeMap<Key, [i64; 2]>,
    paid: BTreeMap<Key, i64>,
    /// Of each book, by the lines of orders and by the book.
    bought: BTreeMap<i64, i64>,
    sold: BTreeMap<i64, i64>,
    changes: i64,
    spent: BTreeMap<i64, i64>,
    /// Numbers of the transactions whose customers are there, and whose addresses are.
    pub(super) registered: BTreeSet<i64>,
    addresses: BTreeSet<i64>,
}

impl Totals {
    /// Reads all servers that together have all rows.
    pub(super) async fn read<S: Session>(parts: &mut [S], size: Size) -> anyhow::Result<Self> {
        let of_new = |column: &str, table: &str| {
            let first = size.customers;
            format!("SELECT {column} - {first} FROM {table} WHERE {first} < {column}")
        };
        let mut all = Self::default();
        for part in parts {
            for row in integers(part, ORDERS).await? {
                let is_new = all.orders.insert((row[0], row[1]), [row[2], row[3]]).is_none();
                ensure!(is_new, "order {}, {} is there twice", row[0], row[1]);
            }
            for row in integers(part, LINES).await? {
                all.lines.insert((row[0], row[1]), [row[2], row[3]]);
            }
            for row in integers(part, PAID).await? {
                all.paid.insert((row[0], row[1]), row[2]);
            }
            for row in integers(part, BOUGHT).await? {
                *all.bought.entry(row[0]).or_default() += row[1];
            }
            for row in integers(part, SOLD).await? {
                if row[1] != 0 {
                    *all.sold.entry(row[0]).or_default() += row[1];
                }
                all.changes += row[2];
            }
            for row in integers(part, SPENT).await? {
                *all.spent.entry(row[0]).or_default() += row[1];
            }
            let customers = integers(part, &of_new("c_id", "customer")).await?;
            all.registered.extend(customers.iter().map(|row| row[0]));
            let addresses = integers(part, &of_new("addr_c_id", "address")).await?;
            all.addresses.extend(addresses.iter().map(|row| row[0]));
        }
        Ok(all)
    }

    /// The numbers of the transactions whose orders are there.
    pub(super) fn orders(&self) -> BTreeSet<i64> {
        self.orders.keys().map(|(_, order)| *order).collect()
    }

    /// Whether all of it fits together, and with the changes of books that were asked for.
    pub(super) fn check(&self, changes: &Asked) -> anyhow::Result<()> {
        for (key, [sum, count]) in &self.orders {
            let lines = self.lines.get(key).copied().unwrap_or_default();
            ensure!(
                lines == [*sum, *count],
                "order {key:?} is {sum} cents in {count} lines, its lines {lines:?}"
            );
            let paid = self.paid.get(key);
            ensure!(paid == Some(sum), "order {key:?} is {sum} cents, paid were {paid:?}");
        }
        let of_none = |key: &&Key| !self.orders.contains_key(key);
        let stray = self.lines.keys().chain(self.paid.keys()).find(of_none);
        ensure!(stray.is_none(), "there is a part of order {stray:?}, and no order");
        ensure!(
            self.bought == self.sold,
            "lines of orders have {:?} of the books, the books {:?}",
            self.bought,
            self.sold
        );
        let mut spent: BTreeMap<i64, i64> = BTreeMap::new();
        for ((customer, _), [sum, _]) in &self.orders {
            *spent.entry(*customer).or_default() += sum;
        }
        ensure!(
            spent == self.spent,
            "customers have spent {:?}, their orders are {spent:?}",
            self.spent
        );
        ensure!(
            self.registered == self.addresses,
            "some customers have no address, or the reverse"
        );
        let count = |is: fn(&Believed) -> bool| changes.values().filter(|it| is(it)).count() as i64;
        let told = count(|it| *it == Believed::Acknowledged);
        let unknown = count(|it| matches!(it, Believed::Unknown(_)));
        ensure!(
            (told..=told + unknown).contains(&self.changes),
            "{} changes of books are there, {told} were acknowledged, {unknown} are unknown",
            self.changes
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thing_that_does_not_fit_is_named() {
        let whole = Totals {
            orders: [((1, 7), [500, 2])].into(),
            lines: [((1, 7), [500, 2])].into(),
            paid: [((1, 7), 500)].into(),
            bought: [(3, 2)].into(),
            sold: [(3, 2)].into(),
            changes: 1,
            spent: [(1, 500)].into(),
            registered: [9].into(),
            addresses: [9].into(),
        };
        let changes = Asked::from([(8, Believed::Acknowledged)]);
        whole.check(&changes).unwrap();
        for (said, change) in [
            (
                "its lines",
                &(|it: &mut Totals| it.lines.get_mut(&(1, 7)).unwrap()[1] -= 1)
                    as &dyn Fn(&mut Totals),
            ),
            ("paid were", &|it| it.paid.clear()),
            ("no order", &|it| *it.lines.entry((2, 8)).or_default() = [1, 1]),
            ("of the books", &|it| *it.sold.get_mut(&3).unwrap() += 1),
            ("have spent", &|it| it.spent.clear()),
            ("no address", &|it| it.addresses.clear()),
            ("changes of books", &|it| it.changes = 2),
        ] {
            let mut totals = whole.clone();
            change(&mut totals);
            let is = totals.check(&changes).unwrap_err().to_string();
            assert!(is.contains(said), "{said}: {is}");
        }
    }
}
