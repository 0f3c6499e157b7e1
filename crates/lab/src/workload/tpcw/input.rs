//! What an interaction of TPC-W is asked to do, from its number alone.
//!
//! Owns: the mixes and what is drawn. Never: runs a statement.
//! Source: TPC Benchmark W, revision 1.8: clause 5.3 (the mixes), 2.2 to 2.17 (the interactions), 4.7 (names).
//! Start reading at [`Input::of`].

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// How much there is at first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Size {
    pub items: i64,
    pub customers: i64,
}

impl Size {
    /// Orders at first (clause 4.6: 0.9 for each customer).
    pub(super) fn orders(self) -> i64 {
        self.customers * 9 / 10
    }

    /// Authors (clause 4.6: a quarter of the books).
    pub(super) fn authors(self) -> i64 {
        (self.items / 4).max(1)
    }
}

/// Subjects of books (clause 4.6.2.12 has 24).
pub(super) const SUBJECTS: i64 = 24;

/// What a client asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Interaction {
    Home,
    NewProducts,
    BestSellers,
    ProductDetail,
    SearchRequest,
    SearchResults,
    ShoppingCart,
    Registration,
    BuyRequest,
    BuyConfirm,
    OrderInquiry,
    OrderDisplay,
    AdminRequest,
    AdminConfirm,
}

use Interaction::{
    AdminConfirm, AdminRequest, BestSellers, BuyConfirm, BuyRequest, Home, NewProducts,
    OrderDisplay, OrderInquiry, ProductDetail, Registration, SearchRequest, SearchResults,
    ShoppingCart,
};

const ALL: [Interaction; 14] = [
    Home,
    NewProducts,
    BestSellers,
    ProductDetail,
    SearchRequest,
    SearchResults,
    ShoppingCart,
    Registration,
    BuyRequest,
    BuyConfirm,
    OrderInquiry,
    OrderDisplay,
    AdminRequest,
    AdminConfirm,
];

impl Interaction {
    /// What it is called.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Home => "home",
            NewProducts => "new-products",
            BestSellers => "best-sellers",
            ProductDetail => "product-detail",
            SearchRequest => "search-request",
            SearchResults => "search-results",
            ShoppingCart => "shopping-cart",
            Registration => "registration",
            BuyRequest => "buy-request",
            BuyConfirm => "buy-confirm",
            OrderInquiry => "order-inquiry",
            OrderDisplay => "order-display",
            AdminRequest => "admin-request",
            AdminConfirm => "admin-confirm",
        }
    }
}

/// How often each interaction is asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mix {
    /// The standard's for browsing: 5 in 100 order.
    Browsing,
    /// For shopping: 20 in 100 order.
    Shopping,
    /// For ordering: half of them order.
    Ordering,
    /// Orders and nothing else.
    BuyConfirm,
    /// Changes of books by the shop and nothing else.
    AdminConfirm,
}

impl Mix {
    /// Of ten thousand, in the order of `ALL` (clause 5.3).
    fn shares(self) -> [u32; 14] {
        match self {
            Self::Browsing => [2900, 1100, 1100, 2100, 1200, 1100, 200, 82, 75, 69, 30, 25, 10, 9],
            Self::Shopping => {
                [1600, 500, 500, 1700, 2000, 1700, 1160, 300, 260, 120, 75, 66, 10, 9]
            }
            Self::Ordering => {
                [912, 46, 46, 1235, 1453, 1308, 1353, 1286, 1273, 1018, 25, 22, 12, 11]
            }
            Self::BuyConfirm => [0, 0, 0, 0, 0, 0, 0, 0, 0, 10_000, 0, 0, 0, 0],
            Self::AdminConfirm => [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10_000],
        }
    }
}

/// What an interaction is asked to do. What it does not need is drawn all the same.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Input {
    pub interaction: Interaction,
    pub customer: i64,
    pub item: i64,
    /// Put into a cart.
    pub quantity: i64,
    pub subject: i64,
    /// Which of the three searches, where one is asked for: by author, title or subject.
    pub search: Search,
    /// A book's new price.
    pub cents: i64,
}

/// By what books are searched.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Search {
    Author(i64),
    Title(i64),
    Subject,
}

impl Input {
    /// Of the interaction with a number.
    pub(super) fn of(number: i64, mix: Mix, size: Size) -> Self {
        let random = &mut StdRng::seed_from_u64(number.unsigned_abs());
        let mut drawn = random.random_range(0..10_000);
        let shares = ALL.iter().zip(mix.shares());
        let mut interaction = Home;
        for (it, share) in shares {
            if drawn < share {
                interaction = *it;
                break;
            }
            drawn -= share;
        }
        Self {
            interaction,
            customer: random.random_range(1..=size.customers),
            item: random.random_range(1..=size.items),
            quantity: random.random_range(1..=3),
            subject: random.random_range(0..SUBJECTS),
            search: match random.random_range(0..3) {
                0 => Search::Author(random.random_range(1..=size.authors())),
                1 => Search::Title(random.random_range(1..=size.items)),
                _ => Search::Subject,
            },
            cents: random.random_range(100..=9_999),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mix_is_all_of_ten_thousand_and_is_drawn_so() {
        let size = Size { items: 100, customers: 288 };
        for (mix, orders) in [(Mix::Browsing, 5), (Mix::Shopping, 20), (Mix::Ordering, 50)] {
            let shares = mix.shares();
            assert_eq!(shares.iter().sum::<u32>(), 10_000);
            assert_eq!(shares[6..].iter().sum::<u32>(), orders * 100, "{mix:?}");
            let drawn: Vec<_> = (0..20_000).map(|number| Input::of(number, mix, size)).collect();
            for (interaction, share) in ALL.iter().zip(shares) {
                let count = drawn.iter().filter(|it| it.interaction == *interaction).count() as f64;
                let expected = f64::from(share) * 2.0;
                assert!((count - expected).abs() < 6.0 * expected.sqrt() + 3.0, "{interaction:?}");
            }
        }
        let only = Input::of(7, Mix::AdminConfirm, size);
        assert_eq!(only.interaction, AdminConfirm);
    }
}
