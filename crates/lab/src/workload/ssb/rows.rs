//! What is in the Star Schema Benchmark's tables: a row by its number, always the same one.
//!
//! Owns: how values are distributed, and which rows belong together. Never: asks a server.
//! Source: the paper's section 2 and its appendix; what differs is in docs/lab/workloads.md.
//! Start reading at [`Size`], then [`order`].

use super::super::draws::Draws;
use super::super::tpch::rows::{phone, retail_price as price};
use super::super::words::{
    COLOURS, CONTAINERS, MODES, NATIONS, PRIORITIES, REGIONS, SEGMENTS, TYPES,
};

/// The first day is 1992-01-01; there are seven years of them.
const FIRST_YEAR: i64 = 1992;
pub(super) const DAYS: i64 = 2_557;
/// Days on which something is ordered: the last one leaves time for what is committed to.
const ORDERED: std::ops::RangeInclusive<i64> = 0..=2_405;
const MONTHS: [(&str, i64); 12] = [
    ("January", 31),
    ("February", 28),
    ("March", 31),
    ("April", 30),
    ("May", 31),
    ("June", 30),
    ("July", 31),
    ("August", 31),
    ("September", 30),
    ("October", 31),
    ("November", 30),
    ("December", 31),
];
const WEEKDAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

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
    /// Of each of the original's rows this part; from scale 1 on, parts grow with its logarithm.
    pub(super) fn of_scale(scale: f64) -> Self {
        let of = |all: f64, least: i64| ((all * scale) as i64).max(least);
        let parts = if scale < 1.0 { scale } else { 1.0 + scale.log2() };
        Self {
            scale,
            suppliers: of(2_000.0, 100),
            parts: ((200_000.0 * parts) as i64).max(1_000),
            customers: of(30_000.0, 100),
            orders: of(1_500_000.0, 1_000),
        }
    }
}

/// A row as VALUES has it, and four figures of it whose sums are checked.
pub(super) type Row = (String, [i64; 4]);

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Year, month and day of the month, from 1, and the day of the year, from 1, of a day counted from the first one.
fn date(day: i64) -> (i64, i64, i64, i64) {
    let (mut year, mut left) = (FIRST_YEAR, day);
    loop {
        let length = 365 + i64::from(is_leap(year));
        if left < length {
            break;
        }
        (year, left) = (year + 1, left - length);
    }
    let of_year = left + 1;
    for (month, (_, days)) in (1..).zip(MONTHS) {
        let days = days + i64::from(month == 2 && is_leap(year));
        if left < days {
            return (year, month, left + 1, of_year);
        }
        left -= days;
    }
    unreachable!("a year has twelve months")
}

/// A day as the tables name it: 19920131.
fn date_key(day: i64) -> i64 {
    let (year, month, day, _) = date(day);
    10_000 * year + 100 * month + day
}

pub(super) fn day(number: i64) -> Row {
    let (year, month, day, of_year) = date(number);
    let (name, _) = MONTHS[(month - 1) as usize];
    // 1992-01-01 was a Wednesday.
    let weekday = (number + 3) % 7;
    let week = (of_year - 1) / 7 + 1;
    let key = date_key(number);
    let row = format!(
        "{key}, '{name} {day}, {year}', '{}', '{name}', {year}, {}, '{}{year}', {}, {day}, {of_year}, {month}, {week}",
        WEEKDAYS[weekday as usize],
        100 * year + month,
        &name[..3],
        weekday + 1,
    );
    (row, [key, year, week, of_year])
}

/// City, nation and region, quoted, with the nation's number.
fn place(draws: &mut Draws) -> (String, i64) {
    let number = draws.within(0..=24);
    let (nation, region) = NATIONS[number as usize];
    let city: String = format!("{nation:9}").chars().take(9).collect();
    let place =
        format!("'{city}{}', '{nation}', '{}'", draws.within(0..=9), REGIONS[region as usize]);
    (place, number)
}

pub(super) fn supplier(key: i64) -> Row {
    let draws = &mut Draws::of("ssb supplier", key);
    let address = draws.within(1..=9_999);
    let (place, nation) = place(draws);
    let phone = phone(draws, nation);
    let row = format!("{key}, 'Supplier#{key:09}', '{address} street', {place}, '{phone}'");
    (row, [key, address, 0, 0])
}

pub(super) fn customer(key: i64) -> Row {
    let draws = &mut Draws::of("ssb customer", key);
    let address = draws.within(1..=9_999);
    let (place, nation) = place(draws);
    let (phone, segment) = (phone(draws, nation), draws.one_of(&SEGMENTS));
    let row =
        format!("{key}, 'Customer#{key:09}', '{address} street', {place}, '{phone}', '{segment}'");
    (row, [key, address, 0, 0])
}

pub(super) fn part(key: i64) -> Row {
    let draws = &mut Draws::of("ssb part", key);
    let (maker, category) = (draws.within(1..=5), draws.within(1..=5));
    let brand = draws.within(1..=40);
    let (first, second) = (draws.one_of(&COLOURS), draws.one_of(&COLOURS));
    let kind: Vec<_> = TYPES.iter().map(|words| draws.one_of(words)).collect();
    let container: Vec<_> = CONTAINERS.iter().map(|words| draws.one_of(words)).collect();
    let size = draws.within(1..=50);
    let row = format!(
        "{key}, '{first} {second}', 'MFGR#{maker}', 'MFGR#{maker}{category}', 'MFGR#{maker}{category}{brand}', \
         '{first}', '{}', {size}, '{}'",
        kind.join(" "),
        container.join(" ")
    );
    (row, [key, size, brand, maker])
}

/// The lines of an order.
pub(super) fn order(key: i64, size: Size) -> Vec<Row> {
    let draws = &mut Draws::of("ssb lineorder", key);
    let customer = draws.within(1..=size.customers);
    let ordered = draws.within(ORDERED);
    let priority = draws.one_of(&PRIORITIES);
    let lines: Vec<_> = (0..draws.within(1..=7))
        .map(|_| {
            let part = draws.within(1..=size.parts);
            let quantity = draws.within(1..=50);
            (part, draws.within(1..=size.suppliers), quantity, draws.within(0..=10))
        })
        .collect();
    let total: i64 = lines.iter().map(|(part, _, quantity, _)| quantity * price(*part)).sum();
    (1..)
        .zip(lines)
        .map(|(number, (part, supplier, quantity, discount))| {
            let extended = quantity * price(part);
            let revenue = extended * (100 - discount) / 100;
            // Six tenths of the price.
            let cost = 6 * price(part) / 10;
            let tax = draws.within(0..=8);
            let committed = date_key(ordered + draws.within(30..=90));
            let row = format!(
                "{key}, {number}, {customer}, {part}, {supplier}, {}, '{priority}', '0', {quantity}, {extended}, {total}, \
                 {discount}, {revenue}, {cost}, {tax}, {committed}, '{}'",
                date_key(ordered),
                draws.one_of(&MODES)
            );
            (row, [key, part, quantity, revenue])
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (number, key) in [
            (0, 19_920_101),
            (59, 19_920_229),
            (60, 19_920_301),
            (365, 19_921_231),
            (366, 19_930_101),
        ] {
            assert_eq!(date_key(number), key);
        }
        assert_eq!(date_key(DAYS - 1), 19_981_231);
        let (row, _) = day(33);
        assert_eq!(
            row,
            "19920203, 'February 3, 1992', 'Monday', 'February', 1992, 199202, 'Feb1992', 2, 3, 34, 2, 5"
        );
    }

    #[test]
    fn a_city_has_ten_letters() {
        let cities = (1..200).map(|key| supplier(key).0);
        let all: String = cities.collect();
        assert!(all.contains("'UNITED KI") && all.contains("'CHINA    "), "{all}");
    }
}
