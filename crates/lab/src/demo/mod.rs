//! `tutti up --demo`: a small shop, some questions to it, and money that moves between nodes.
//!
//! Owns: the order of the show. Never: uses more than any
//! client of the gateway could, except that it asks the nodes themselves where rows are.
//! Start reading at [`run`].

pub use self::money::Options;
use crate::client;

mod fill;
mod money;
mod questions;
mod readings;
mod shop;

/// Shows what a cluster does, through the gateway at `url`.
///
/// Recreates its schema `shop` each time. Fails if money was lost or made, or if a reading was
/// wrong while money moved.
pub async fn run(url: &str, node_urls: &[String], options: Options) -> anyhow::Result<()> {
    let client = client::connect(url).await?;
    println!("\n== A shop (nodes: {}) ==", node_urls.len());
    fill::make_and_fill(&client).await?;
    questions::ask(&client, node_urls).await?;
    money::move_and_watch(url, node_urls, options).await
}
