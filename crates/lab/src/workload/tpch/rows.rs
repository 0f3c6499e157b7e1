//! What is in TPC-H's tables: a row by its number, always the same one.
//!
//! Owns: how values are distributed, and which rows belong together. Never: asks a server.
//! Source: TPC Benchmark H, revision 3.0, clauses 4.2.3 and 4.2.5; what differs is in docs/lab/workloads.md.
//! Start reading at [`Size`], then [`order`].

use super::super::draws::Draws;
use super::super::filling::cents;
use super::super::words::{
    COLOURS, COMMENT, CONTAINERS, INSTRUCTIONS, MODES, NATIONS, PRIORITIES, REGIONS, SEGMENTS,
    TYPES,
};

/// Days of orders, counted from 1992-01-01: the last one is 151 days before 1998-12-31.
const ORDERED: std::ops::RangeInclusive<i64> = 0..=2_405;
/// 1995-06-17, which the standard takes for today.
const TODAY: i64 = 1_263;
/// One supplier in so many is complained of, and another one recommended, as the standard's five in 10,000.
const REMARKED: i64 = 2_000;

/// How many rows there are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Size {
    pub scale: f64,
    pub suppliers: i64,
    pub parts: i64,
    pub customers: i64,
    pub orders: i64,
}

impl Size {
    /// Of each of the standard's rows this part; at least as many as belong together.
    pub(super) fn of_scale(scale: f64) -> Self {
        let of = |all: f64, least: i64| ((all * scale) as i64).max(least);
        let customers = of(150_000.0, 30);
        Self {
            scale,
            // Of fewer, four of a part need not be four.
            suppliers: of(10_000.0, 100),
            parts: of(200_000.0, 200),
            customers,
            orders: 10 * customers,
        }
    }
}

/// A row as VALUES has it, and four figures of it whose sums are checked.
pub(super) type Row = (String, [i64; 4]);

fn day(day: i64) -> String {
    format!("'1992-01-01'::date + {day}")
}

fn words(draws: &mut Draws, count: std::ops::RangeInclusive<i64>) -> String {
    let count = draws.within(count);
    (0..count).map(|_| draws.one_of(&COMMENT)).collect::<Vec<_>>().join(" ")
}

fn syllables(draws: &mut Draws, lists: &[&[&'static str]]) -> String {
    lists.iter().map(|list| draws.one_of(list)).collect::<Vec<_>>().join(" ")
}

/// Its country's code comes first: query 22 asks for it.
pub(in super::super) fn phone(draws: &mut Draws, nation: i64) -> String {
    let [area, exchange] = [(); 2].map(|()| draws.within(100..=999));
    format!("{}-{area}-{exchange}-{}", nation + 10, draws.within(1_000..=9_999))
}

/// Where a supplier or customer is, and what it has: four columns, its nation and its cents.
fn account(draws: &mut Draws) -> (String, i64, i64) {
    let nation = draws.within(0..=24);
    let (house, street) = (draws.within(1..=9_999), words(draws, 1..=2));
    let (phone, balance) = (phone(draws, nation), draws.within(-99_999..=999_999));
    let columns = format!("'{house} {street}', {nation}, '{phone}', {}", cents(balance));
    (columns, nation, balance)
}

pub(super) fn region(number: i64) -> Row {
    let name = REGIONS[number as usize];
    let comment = words(&mut Draws::of("region", number), 4..=11);
    (format!("{number}, '{name}', '{comment}'"), [number, 0, 0, 0])
}

pub(super) fn nation(number: i64) -> Row {
    let (name, region) = NATIONS[number as usize];
    let comment = words(&mut Draws::of("nation", number), 4..=11);
    (format!("{number}, '{name}', {region}, '{comment}'"), [number, region, 0, 0])
}

pub(super) fn supplier(key: i64) -> Row {
    let draws = &mut Draws::of("supplier", key);
    let (account, nation, balance) = account(draws);
    let (before, after) = (words(draws, 1..=3), words(draws, 1..=3));
    let remark = match key % REMARKED {
        7 => "Customer Complaints ",
        9 => "Customer Recommends ",
        _ => "",
    };
    let row = format!("{key}, 'Supplier#{key:09}', {account}, '{before} {remark}{after}'");
    (row, [key, nation, balance, 0])
}

/// In cents (clause 4.2.3).
pub(in super::super) fn retail_price(part: i64) -> i64 {
    90_000 + (part / 10) % 20_001 + 100 * (part % 1_000)
}

pub(super) fn part(key: i64) -> Row {
    let draws = &mut Draws::of("part", key);
    let mut name: Vec<&str> = Vec::new();
    while name.len() < 5 {
        let colour = draws.one_of(&COLOURS);
        if !name.contains(&colour) {
            name.push(colour);
        }
    }
    let maker = draws.within(1..=5);
    let brand = 10 * maker + draws.within(1..=5);
    let (kind, size) = (syllables(draws, &TYPES), draws.within(1..=50));
    let (container, price) = (syllables(draws, &CONTAINERS), retail_price(key));
    let row = format!(
        "{key}, '{}', 'Manufacturer#{maker}', 'Brand#{brand}', '{kind}', {size}, '{container}', {}, '{}'",
        name.join(" "),
        cents(price),
        words(draws, 1..=1)
    );
    (row, [key, brand, size, price])
}

/// Which supplier is the part's so-and-so-many-th, of four (clause 4.2.3).
fn supplier_of(part: i64, place: i64, size: Size) -> i64 {
    let all = size.suppliers;
    (part + place * (all / 4 + (part - 1) / all)) % all + 1
}

pub(super) fn supplied(part: i64, place: i64, size: Size) -> Row {
    let draws = &mut Draws::of("partsupp", 4 * part + place);
    let supplier = supplier_of(part, place, size);
    let (there, cost) = (draws.within(1..=9_999), draws.within(100..=100_000));
    let row = format!("{part}, {supplier}, {there}, {}, '{}'", cents(cost), words(draws, 7..=20));
    (row, [part, supplier, there, cost])
}

pub(super) fn customer(key: i64) -> Row {
    let draws = &mut Draws::of("customer", key);
    let (account, nation, balance) = account(draws);
    let (segment, comment) = (draws.one_of(&SEGMENTS), words(draws, 4..=12));
    let row = format!("{key}, 'Customer#{key:09}', {account}, '{segment}', '{comment}'");
    (row, [key, nation, balance, 0])
}

/// The order of a place from 0, and its lines. Of 32 keys in a row eight are there; a third of the customers orders
/// nothing.
pub(super) fn order(place: i64, size: Size) -> (Row, Vec<Row>) {
    let draws = &mut Draws::of("orders", place);
    let key = place / 8 * 32 + place % 8 + 1;
    let buyer = draws.within(0..=size.customers / 3 * 2 - 1);
    let customer = buyer / 2 * 3 + buyer % 2 + 1;
    let ordered = draws.within(ORDERED);
    let (mut total, mut lines, mut shipped) = (0, Vec::new(), 0);
    let count = draws.within(1..=7);
    for number in 1..=count {
        let part = draws.within(1..=size.parts);
        let supplier = supplier_of(part, draws.within(0..=3), size);
        let quantity = draws.within(1..=50);
        let (discount, tax) = (draws.within(0..=10), draws.within(0..=8));
        let price = quantity * retail_price(part);
        total += (price * (100 + tax) * (100 - discount) + 5_000) / 10_000;
        let ship = ordered + draws.within(1..=121);
        let commit = ordered + draws.within(30..=90);
        let receipt = ship + draws.within(1..=30);
        let returned = if receipt <= TODAY { draws.one_of(&["R", "A"]) } else { "N" };
        let status = if TODAY < ship { "O" } else { "F" };
        shipped += i64::from(ship <= TODAY);
        let row = format!(
            "{key}, {part}, {supplier}, {number}, {quantity}, {}, {}, {}, '{returned}', '{status}', {}, {}, {}, \
             '{}', '{}', '{}'",
            cents(price),
            cents(discount),
            cents(tax),
            day(ship),
            day(commit),
            day(receipt),
            draws.one_of(&INSTRUCTIONS),
            draws.one_of(&MODES),
            words(draws, 2..=6)
        );
        lines.push((row, [key, part, quantity, price]));
    }
    let status = match shipped {
        0 => "O",
        all if all == count => "F",
        _ => "P",
    };
    let clerks = ((1_000.0 * size.scale) as i64).max(1);
    let row = format!(
        "{key}, {customer}, '{status}', {}, {}, '{}', 'Clerk#{:09}', 0, '{}'",
        cents(total),
        day(ordered),
        draws.one_of(&PRIORITIES),
        draws.within(1..=clerks),
        words(draws, 4..=11)
    );
    ((row, [key, customer, ordered, total]), lines)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn four_suppliers_of_a_part_are_four() {
        for size in [Size::of_scale(0.001), Size::of_scale(0.01), Size::of_scale(1.0)] {
            for part in (1..=size.parts).step_by(37) {
                let all: BTreeSet<i64> =
                    (0..4).map(|place| supplier_of(part, place, size)).collect();
                assert_eq!(all.len(), 4, "part {part} of {size:?}");
                assert!(all.iter().all(|key| (1..=size.suppliers).contains(key)));
            }
        }
    }

    #[test]
    fn orders_have_customers_and_some_are_special() {
        let size = Size::of_scale(0.01);
        let (mut special, mut lines) = (0, 0);
        for place in 0..size.orders {
            let ((row, [_, customer, ..]), of_order) = order(place, size);
            assert!((1..=size.customers).contains(&customer) && customer % 3 != 0);
            let comment = row.rsplit('\'').nth(1).unwrap();
            let begins = comment.find("special");
            special += i64::from(begins.is_some_and(|at| comment[at..].contains("requests")));
            lines += of_order.len();
        }
        assert!((50..120).contains(&(size.orders / special)), "one in {}", size.orders / special);
        assert!((3 * 15_000..5 * 15_000).contains(&lines), "{lines}");
    }
}
