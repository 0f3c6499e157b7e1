//! TPC-W's fourteen interactions, up to their COMMIT.
//!
//! Owns: their statements. Never: begins or ends a transaction, nor chooses what it is about.
//! Source: TPC Benchmark W, revision 1.8, clauses 2.2 to 2.17. Which SQL is avoided is in docs/lab/workloads.md.
//! Start reading at [`Asked`].

use rand::SeedableRng;
use rand::rngs::StdRng;

use super::super::filling::cents;
use super::super::session::Session;
use super::super::steps::{Stop, Work, bail_impossible, integer, one};
use super::input::{Input, Interaction, Search, Size};
use super::load::{of_customer, title};

/// Orders that count for best sellers (clause 2.5.3.1), and for what is related (2.17.3.2).
const RECENT: i64 = 3_333;
/// Books on a page (clause 2.4.3.1).
const SHOWN: i64 = 50;
/// Books of one customer's cart that are bought at once; more of the kind are not in it.
const LINES_MAX: i64 = 100;

/// What the interaction with a number is asked to do.
pub(super) struct Asked {
    pub number: i64,
    pub input: Input,
    pub size: Size,
}

impl Work for Asked {
    async fn work<S: Session>(&self, session: &mut S) -> Result<(), Stop> {
        let Input { customer, item, subject, .. } = self.input;
        match self.input.interaction {
            Interaction::Home => {
                greet(session, customer).await?;
                related(session, item).await
            }
            Interaction::NewProducts => {
                let sql = format!(
                    "SELECT i_id, i_title, a_fname, a_lname FROM item JOIN author ON a_id = i_a_id \
                     WHERE i_subject = {subject} ORDER BY i_pub_date DESC, i_title LIMIT {SHOWN}"
                );
                some(session, &sql).await
            }
            Interaction::BestSellers => best_sellers(session, subject).await,
            Interaction::ProductDetail => detail(session, item).await,
            Interaction::SearchRequest => related(session, item).await,
            Interaction::SearchResults => self.search(session).await,
            Interaction::ShoppingCart => self.fill_cart(session).await,
            Interaction::Registration => self.register(session).await,
            Interaction::BuyRequest => self.request(session).await,
            Interaction::BuyConfirm => self.buy(session).await,
            Interaction::OrderInquiry => greet(session, customer).await,
            Interaction::OrderDisplay => display(session, customer).await,
            Interaction::AdminRequest => detail(session, item).await,
            Interaction::AdminConfirm => self.change_book(session).await,
        }
    }
}

impl Asked {
    async fn search<S: Session>(&self, session: &mut S) -> Result<(), Stop> {
        let by = match self.input.search {
            Search::Author(author) => format!("i_a_id = {author}"),
            Search::Title(item) => format!("i_title LIKE '{}%'", title(item)),
            Search::Subject => format!("i_subject = {}", self.input.subject),
        };
        let sql = format!(
            "SELECT i_id, i_title, a_fname, a_lname FROM item JOIN author ON a_id = i_a_id WHERE {by} \
             ORDER BY i_title LIMIT {SHOWN}"
        );
        some(session, &sql).await
    }

    /// Puts a book into the customer's cart, and shows what is in it.
    async fn fill_cart<S: Session>(&self, session: &mut S) -> Result<(), Stop> {
        let Input { customer, item, quantity, .. } = self.input;
        let sql = format!(
            "INSERT INTO shopping_cart_line VALUES ({customer}, {item}, {quantity}) \
             ON CONFLICT (scl_c_id, scl_i_id) DO UPDATE SET scl_qty = excluded.scl_qty"
        );
        session.query(&sql).await?;
        self.cart(session).await?;
        Ok(())
    }

    /// What is in the customer's cart: book, how many, price in cents; by book.
    async fn cart<S: Session>(&self, session: &mut S) -> Result<Vec<[i64; 3]>, Stop> {
        let sql = format!(
            "SELECT scl_i_id, scl_qty FROM shopping_cart_line WHERE scl_c_id = {} ORDER BY scl_i_id \
             LIMIT {LINES_MAX}",
            self.input.customer
        );
        let mut lines = Vec::new();
        for row in session.query(&sql).await? {
            lines.push([integer(&row, 0)?, integer(&row, 1)?, 0]);
        }
        if lines.is_empty() {
            return Ok(lines);
        }
        let items: Vec<String> = lines.iter().map(|[item, ..]| item.to_string()).collect();
        let sql = format!(
            "SELECT i_id, (i_cost * 100)::bigint FROM item WHERE i_id IN ({})",
            items.join(", ")
        );
        for row in session.query(&sql).await? {
            let (item, cost) = (integer(&row, 0)?, integer(&row, 1)?);
            let line = lines.iter_mut().find(|[it, ..]| *it == item);
            line.map(|line| line[2] = cost)
                .ok_or(())
                .or_else(|()| bail_impossible(format!("book {item} was not asked for")))?;
        }
        match lines.iter().find(|[.., cost]| *cost == 0) {
            Some([item, ..]) => bail_impossible(format!("book {item} is not there")),
            None => Ok(lines),
        }
    }

    async fn register<S: Session>(&self, session: &mut S) -> Result<(), Stop> {
        let random = &mut StdRng::seed_from_u64(self.number.unsigned_abs());
        let [customer, address] = of_customer(self.size.customers + self.number, random);
        session.query(&format!("INSERT INTO customer VALUES ({customer})")).await?;
        session.query(&format!("INSERT INTO address VALUES ({address})")).await?;
        Ok(())
    }

    async fn request<S: Session>(&self, session: &mut S) -> Result<(), Stop> {
        let customer = self.input.customer;
        greet(session, customer).await?;
        let sql = format!("SELECT * FROM address WHERE addr_c_id = {customer}");
        one(session, &sql).await?;
        self.cart(session).await?;
        Ok(())
    }

    /// Buys what is in the cart, or one book if nothing is (clause 2.7.3.3).
    async fn buy<S: Session>(&self, session: &mut S) -> Result<(), Stop> {
        let Input { customer, item, quantity, .. } = self.input;
        let order = self.number;
        let sql = format!("SELECT c_discount FROM customer WHERE c_id = {customer} FOR UPDATE");
        one(session, &sql).await?;
        let mut lines = self.cart(session).await?;
        if lines.is_empty() {
            let sql = format!("SELECT (i_cost * 100)::bigint FROM item WHERE i_id = {item}");
            lines.push([item, quantity, integer(&one(session, &sql).await?, 0)?]);
        }
        let sum: i64 = lines.iter().map(|[_, quantity, cost]| quantity * cost).sum();
        let (total, count) = (cents(sum), lines.len());
        let sql = format!(
            "INSERT INTO orders VALUES ({customer}, {order}, now()::timestamp, {total}, {count}, 'AIR', 'PENDING')"
        );
        session.query(&sql).await?;
        let rows = lines.iter().zip(1..).map(|([item, quantity, cost], line)| {
            format!("({customer}, {order}, {line}, {item}, {quantity}, {})", cents(*cost))
        });
        let rows: Vec<String> = rows.collect();
        session.query(&format!("INSERT INTO order_line VALUES {}", rows.join(", "))).await?;
        let sql = format!(
            "INSERT INTO cc_xacts VALUES ({customer}, {order}, 'VISA', '4111111111111111', {total}, \
             now()::timestamp)"
        );
        session.query(&sql).await?;
        // In the order of their numbers, so that none waits in a cycle.
        for [item, quantity, _] in &lines {
            let sql = format!(
                "UPDATE item SET i_stock = CASE WHEN i_stock - {quantity} < 10 \
                 THEN i_stock - {quantity} + 21 ELSE i_stock - {quantity} END, i_sold = i_sold + {quantity} \
                 WHERE i_id = {item} RETURNING i_stock"
            );
            one(session, &sql).await?;
        }
        let sql =
            format!("UPDATE customer SET c_ytd_pmt = c_ytd_pmt + {total} WHERE c_id = {customer}");
        session.query(&sql).await?;
        session
            .query(&format!("DELETE FROM shopping_cart_line WHERE scl_c_id = {customer}"))
            .await?;
        Ok(())
    }

    /// A book's new price and picture, and what those bought who bought it.
    async fn change_book<S: Session>(&self, session: &mut S) -> Result<(), Stop> {
        let Input { item, cents: cost, .. } = self.input;
        let sql = format!(
            "SELECT l.ol_i_id, sum(l.ol_qty) FROM order_line AS own JOIN order_line AS l ON l.ol_c_id = own.ol_c_id \
             WHERE own.ol_i_id = {item} AND l.ol_i_id <> {item} GROUP BY l.ol_i_id \
             ORDER BY sum(l.ol_qty) DESC, l.ol_i_id LIMIT 5"
        );
        let mut set = String::new();
        for (row, place) in session.query(&sql).await?.iter().zip(1..) {
            set += &format!(", i_related_{place} = {}", integer(row, 0)?);
        }
        let sql = format!(
            "UPDATE item SET i_cost = {}, i_image = 'image {}', i_pub_date = current_date, \
             i_changes = i_changes + 1{set} WHERE i_id = {item} RETURNING i_id",
            cents(cost),
            self.number
        );
        one(session, &sql).await?;
        Ok(())
    }
}

async fn greet<S: Session>(session: &mut S, customer: i64) -> Result<(), Stop> {
    let sql = format!("SELECT c_fname, c_lname FROM customer WHERE c_id = {customer}");
    one(session, &sql).await?;
    Ok(())
}

async fn detail<S: Session>(session: &mut S, item: i64) -> Result<(), Stop> {
    let sql = format!("SELECT * FROM item JOIN author ON a_id = i_a_id WHERE i_id = {item}");
    one(session, &sql).await?;
    Ok(())
}

/// The five books that are shown beside one.
async fn related<S: Session>(session: &mut S, item: i64) -> Result<(), Stop> {
    let sql = format!(
        "SELECT i_related_1, i_related_2, i_related_3, i_related_4, i_related_5 FROM item WHERE i_id = {item}"
    );
    let row = one(session, &sql).await?;
    let mut others = Vec::new();
    for place in 0..5 {
        others.push(integer(&row, place)?.to_string());
    }
    let sql = format!("SELECT i_id, i_image FROM item WHERE i_id IN ({})", others.join(", "));
    some(session, &sql).await
}

async fn best_sellers<S: Session>(session: &mut S, subject: i64) -> Result<(), Stop> {
    let sql = format!(
        "SELECT i_id, i_title, a_fname, a_lname, sold FROM \
         (SELECT ol_i_id, sum(ol_qty) AS sold FROM order_line WHERE ol_o_id IN \
             (SELECT o_id FROM orders ORDER BY o_date DESC LIMIT {RECENT}) GROUP BY ol_i_id) AS lines \
         JOIN item ON i_id = ol_i_id JOIN author ON a_id = i_a_id WHERE i_subject = {subject} \
         ORDER BY sold DESC, i_id LIMIT {SHOWN}"
    );
    session.query(&sql).await?;
    Ok(())
}

/// The last order of a customer, with its lines.
async fn display<S: Session>(session: &mut S, customer: i64) -> Result<(), Stop> {
    let sql = format!(
        "SELECT o_id, o_lines FROM orders WHERE o_c_id = {customer} ORDER BY o_date DESC, o_id DESC LIMIT 1"
    );
    let rows = session.query(&sql).await?;
    let Some(order) = rows.first() else { return Ok(()) };
    let (order, count) = (integer(order, 0)?, integer(order, 1)?);
    let sql = format!(
        "SELECT ol_i_id, ol_qty, ol_cost FROM order_line WHERE ol_c_id = {customer} AND ol_o_id = {order}"
    );
    match session.query(&sql).await?.len() as i64 {
        lines if lines == count => Ok(()),
        lines => bail_impossible(format!("order {customer}, {order} has {lines} of {count} lines")),
    }
}

/// A query of which a page shows what there is.
async fn some<S: Session>(session: &mut S, sql: &str) -> Result<(), Stop> {
    session.query(sql).await?;
    Ok(())
}
