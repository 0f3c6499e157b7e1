//! Accounts that are spread over the nodes, and transfers between two of them.
//!
//! Owns: the choice of the two accounts and of the amount, from a seed. Never: sends a transfer.
//! Used by the demo and by the benchmarks. Start reading at [`Accounts`].

use anyhow::ensure;
use rand::Rng;
use rand::rngs::StdRng;

use crate::client;

const AMOUNT_MAX: i64 = 50;

/// What a transfer does: an account and the amount it is given, twice; the amounts add up to 0.
///
/// The accounts are in the order of their numbers. All transactions lock in this order, so none
/// waits in a cycle.
pub type Transfer = [(i64, i64); 2];

/// Account numbers by node: the first list is node 1's. Only tools need to know; a client never
/// does.
#[derive(Clone, Debug)]
pub struct Accounts {
    by_node: Vec<Vec<i64>>,
}

impl Accounts {
    /// Asks each node itself which accounts it has in `table`, by the column `key`.
    ///
    /// Nodes without accounts are left out. Errors: a node cannot be asked; no node has any.
    pub async fn ask_nodes(node_urls: &[String], table: &str, key: &str) -> anyhow::Result<Self> {
        let mut by_node = Vec::new();
        for url in node_urls {
            let client = client::connect(url).await?;
            let rows = client.query(&format!("SELECT {key}::bigint FROM {table}"), &[]).await?;
            by_node.push(rows.iter().map(|row| row.get(0)).collect::<Vec<i64>>());
        }
        by_node.retain(|on_node| !on_node.is_empty());
        ensure!(!by_node.is_empty(), "no node has an account");
        Ok(Self { by_node })
    }

    /// The accounts of each node.
    pub fn by_node(&self) -> &[Vec<i64>] {
        &self.by_node
    }

    /// An account on the node at `index`, counted round the nodes.
    pub fn any_on(&self, index: usize, random: &mut StdRng) -> i64 {
        let on_node = &self.by_node[index % self.by_node.len()];
        on_node[random.random_range(0..on_node.len())]
    }

    /// A transfer between two nodes, where there are two.
    pub fn transfer_between_nodes(&self, random: &mut StdRng) -> Transfer {
        let from = random.random_range(0..self.by_node.len());
        let to = match self.by_node.len() {
            1 => 0,
            nodes => (from + random.random_range(1..nodes)) % nodes,
        };
        self.transfer(from, to, random)
    }

    /// A transfer between two accounts of the node at `index`, counted round the nodes.
    pub fn transfer_on(&self, index: usize, random: &mut StdRng) -> Transfer {
        self.transfer(index, index, random)
    }

    fn transfer(&self, from: usize, to: usize, random: &mut StdRng) -> Transfer {
        let amount = random.random_range(1..=AMOUNT_MAX);
        let mut moves = [(self.any_on(from, random), -amount), (self.any_on(to, random), amount)];
        moves.sort_unstable();
        moves
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    fn accounts() -> Accounts {
        Accounts { by_node: vec![vec![1, 4, 7], vec![2, 5], vec![3]] }
    }

    fn node_of(id: i64) -> usize {
        accounts().by_node.iter().position(|on_node| on_node.contains(&id)).unwrap()
    }

    #[test]
    fn transfers_between_nodes_keep_the_sum_and_lock_in_order() {
        let mut random = StdRng::seed_from_u64(7);
        for _ in 0..1_000 {
            let [first, second] = accounts().transfer_between_nodes(&mut random);
            assert_eq!(first.1 + second.1, 0);
            assert!(first.0 < second.0);
            assert_ne!(node_of(first.0), node_of(second.0));
        }
    }

    #[test]
    fn transfers_on_a_node_stay_there() {
        let mut random = StdRng::seed_from_u64(7);
        for client in 0..100 {
            let [first, second] = accounts().transfer_on(client, &mut random);
            assert_eq!(first.1 + second.1, 0);
            assert!(first.0 <= second.0);
            assert_eq!([node_of(first.0), node_of(second.0)], [client % 3; 2]);
        }
    }
}
