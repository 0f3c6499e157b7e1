//! What a TPC-C transaction is asked to do, from its number alone.
//!
//! Owns: the mix, the standard's distributions and names. Never: runs a statement.
//! Source: TPC Benchmark C, revision 5.11: clauses 2.1.6 (NURand), 2.4.1 to 2.8.1 (input data), 4.3.2 (names),
//! 5.2.3 (the mix).
//! Start reading at [`Input::of`].

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Districts of each warehouse.
pub(super) const DISTRICTS: i64 = 10;
const ITEMS: i64 = 100_000;
const CUSTOMERS: i64 = 3_000;
/// Different last names.
const NAMES: i64 = 1_000;
/// The constants that the standard lets one choose, clause 2.1.6.1.
const C_NAME: i64 = 123;
const C_CUSTOMER: i64 = 259;
const C_ITEM: i64 = 7_911;

/// How much there is of everything.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Size {
    pub warehouses: i64,
    pub items: i64,
    /// Of each district.
    pub customers: i64,
}

impl Size {
    /// So many warehouses; `scale`: what part of the standard's items, customers and orders there is.
    pub(super) fn new(warehouses: i64, scale: f64) -> Self {
        let part = |of: i64, least: i64| ((of as f64 * scale).round() as i64).clamp(least, of);
        Self { warehouses, items: part(ITEMS, 100), customers: part(CUSTOMERS, 30) }
    }

    /// Orders of each district at first: one of each customer.
    pub(super) fn orders(self) -> i64 {
        self.customers
    }

    /// The first order of a district that is not yet delivered at first (clause 4.3.3.1: the last 900 of 3000).
    pub(super) fn first_new_order(self) -> i64 {
        self.orders() * 7 / 10 + 1
    }
}

/// A customer, as clients name one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Who {
    Id(i64),
    LastName(String),
}

/// A line of an order.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Line {
    /// Where it comes from. First, so that lines are sorted by it and none waits in a cycle.
    pub supply: i64,
    pub item: i64,
    pub quantity: i64,
}

/// What a transaction is asked to do.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Input {
    NewOrder {
        warehouse: i64,
        district: i64,
        customer: i64,
        lines: Vec<Line>,
        /// Asks for an item that does not exist at last, and is rolled back: 1 % (clause 2.4.1.4).
        is_wrong: bool,
    },
    Payment {
        warehouse: i64,
        district: i64,
        /// Where the customer is at home: elsewhere for 15 %.
        at_home: (i64, i64),
        who: Who,
        cents: i64,
    },
    OrderStatus {
        warehouse: i64,
        district: i64,
        who: Who,
    },
    Delivery {
        warehouse: i64,
        carrier: i64,
    },
    StockLevel {
        warehouse: i64,
        district: i64,
        threshold: i64,
    },
}

impl Input {
    /// Of the transaction with a number.
    pub(super) fn of(number: i64, size: Size) -> Self {
        let random = &mut StdRng::seed_from_u64(number.unsigned_abs());
        let warehouse = random.random_range(1..=size.warehouses);
        let district = random.random_range(1..=DISTRICTS);
        match random.random_range(0..100) {
            0..45 => Self::new_order(warehouse, district, size, random),
            45..88 => {
                let is_elsewhere = 1 < size.warehouses && random.random_ratio(15, 100);
                let at_home = match is_elsewhere {
                    true => (other(warehouse, size, random), random.random_range(1..=DISTRICTS)),
                    false => (warehouse, district),
                };
                let who = who(size, random);
                let cents = random.random_range(100..=500_000);
                Self::Payment { warehouse, district, at_home, who, cents }
            }
            88..92 => Self::OrderStatus { warehouse, district, who: who(size, random) },
            92..96 => Self::Delivery { warehouse, carrier: random.random_range(1..=10) },
            _ => {
                let threshold = random.random_range(10..=20);
                Self::StockLevel { warehouse, district, threshold }
            }
        }
    }

    fn new_order(warehouse: i64, district: i64, size: Size, random: &mut StdRng) -> Self {
        let customer = nu_rand(1_023, C_CUSTOMER, 1, size.customers, random);
        let is_wrong = random.random_ratio(1, 100);
        let count = random.random_range(5..=15);
        let mut lines: Vec<Line> = (0..count)
            .map(|_| {
                let is_remote = 1 < size.warehouses && random.random_ratio(1, 100);
                Line {
                    supply: if is_remote { other(warehouse, size, random) } else { warehouse },
                    item: nu_rand(8_191, C_ITEM, 1, size.items, random),
                    quantity: random.random_range(1..=10),
                }
            })
            .collect();
        lines.sort_unstable();
        Self::NewOrder { warehouse, district, customer, lines, is_wrong }
    }

    /// What it is called.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::NewOrder { .. } => "new-order",
            Self::Payment { .. } => "payment",
            Self::OrderStatus { .. } => "order-status",
            Self::Delivery { .. } => "delivery",
            Self::StockLevel { .. } => "stock-level",
        }
    }
}

fn other(than: i64, size: Size, random: &mut StdRng) -> i64 {
    let drawn = random.random_range(1..size.warehouses);
    if drawn < than { drawn } else { drawn + 1 }
}

/// 60 % by last name (clauses 2.5.1.2, 2.6.1.2).
fn who(size: Size, random: &mut StdRng) -> Who {
    match random.random_ratio(60, 100) {
        true => Who::LastName(last_name(drawn_name(size, random))),
        false => Who::Id(nu_rand(1_023, C_CUSTOMER, 1, size.customers, random)),
    }
}

/// The number of a last name that some customer of each district has.
pub(super) fn drawn_name(size: Size, random: &mut StdRng) -> i64 {
    nu_rand(255, C_NAME, 0, size.customers.min(NAMES) - 1, random)
}

/// The number of a customer's last name at the beginning: all names in turn, then drawn ones.
pub(super) fn first_name_number(customer: i64, size: Size, random: &mut StdRng) -> i64 {
    if customer <= NAMES { customer - 1 } else { drawn_name(size, random) }
}

/// Clause 2.1.6: not uniform, between `low` and `high`.
fn nu_rand(a: i64, c: i64, low: i64, high: i64, random: &mut StdRng) -> i64 {
    let drawn = random.random_range(0..=a) | random.random_range(low..=high);
    (drawn + c) % (high - low + 1) + low
}

/// Clause 4.3.2.3: three syllables for three digits.
pub(super) fn last_name(number: i64) -> String {
    const SYLLABLES: [&str; 10] =
        ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
    let syllable = |place: i64| SYLLABLES[(number / place % 10).unsigned_abs() as usize];
    [100, 10, 1].map(syllable).concat()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_mix_is_the_standards() {
        let size = Size::new(3, 1.0);
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        let (mut wrong, mut remote, mut lines_in_all, mut elsewhere) = (0, 0, 0, 0);
        for number in 1..=20_000 {
            let input = Input::of(number, size);
            *counts.entry(input.kind()).or_default() += 1;
            match input {
                Input::NewOrder { warehouse, lines, is_wrong, .. } => {
                    wrong += u32::from(is_wrong);
                    lines_in_all += lines.len();
                    remote += lines.iter().filter(|line| line.supply != warehouse).count();
                    let fits = |line: &Line| (1..=100_000).contains(&line.item);
                    assert!(lines.iter().all(fits) && lines.is_sorted(), "{lines:?}");
                }
                Input::Payment { warehouse, at_home, .. } => {
                    elsewhere += u32::from(at_home.0 != warehouse);
                }
                _ => (),
            }
        }
        let share = |kind: &str| f64::from(counts[kind]) / 200.0;
        for (kind, percent) in [
            ("new-order", 45.0),
            ("payment", 43.0),
            ("order-status", 4.0),
            ("delivery", 4.0),
            ("stock-level", 4.0),
        ] {
            assert!((share(kind) - percent).abs() < 1.5, "{kind}: {}", share(kind));
        }
        assert!((0.005..0.016).contains(&(f64::from(wrong) / f64::from(counts["new-order"]))));
        assert!((0.007..0.013).contains(&(remote as f64 / lines_in_all as f64)));
        assert!((0.13..0.17).contains(&(f64::from(elsewhere) / f64::from(counts["payment"]))));
    }

    #[test]
    fn last_names_have_three_syllables() {
        assert_eq!(last_name(371), "PRICALLYOUGHT");
        assert_eq!(last_name(0), "BARBARBAR");
    }

    #[test]
    fn a_small_scale_keeps_every_rule_possible() {
        let size = Size::new(1, 0.001);
        assert_eq!((size.items, size.customers, size.first_new_order()), (100, 30, 22));
        for number in 1..=2_000 {
            match Input::of(number, size) {
                Input::NewOrder { customer, lines, .. } => {
                    assert!((1..=30).contains(&customer));
                    assert!(lines.iter().all(|line| line.supply == 1 && line.item <= 100));
                }
                Input::Payment { at_home, .. } => assert_eq!(at_home.0, 1),
                _ => (),
            }
        }
    }
}
