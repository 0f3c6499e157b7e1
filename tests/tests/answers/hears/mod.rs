//! What a client is told is the case: at the end of its flights, of its blocks, of its waits.
//!
//! Owns: the answers that drivers' ordinary use does not reach, each class with all of its forms.
//! (Commits under failures are `recovery/told`.)

mod flights;
mod modes;
mod moved_rows;
mod notifications;
mod several_nodes;

use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Result;
use tutti_tests::answer::Answer;
use tutti_tests::client::{Client, Endpoint};

/// SQLSTATE of the answer, or its last command tag.
fn ended(answer: &Answer) -> String {
    match answer.error() {
        Some(error) => error.sqlstate().to_owned(),
        None => answer.to_string().lines().next().unwrap_or_default().to_owned(),
    }
}

/// Runs a statement elsewhere; it has begun to wait when this returns, if it has to.
fn begin(mut client: Client, sql: &str) -> JoinHandle<Result<(Client, Answer)>> {
    let sql = sql.to_owned();
    let running = thread::spawn(move || {
        let answer = client.simple(&sql, &[])?;
        Ok((client, answer))
    });
    thread::sleep(Duration::from_millis(400));
    running
}

fn finish(running: JoinHandle<Result<(Client, Answer)>>) -> Result<(Client, Answer)> {
    running.join().expect("no panic")
}

/// The keys of a hash table's rows that are on each node, in order.
fn keys_by_node(nodes: &[Endpoint], table: &str, key: &str) -> Result<Vec<Vec<i64>>> {
    let of = |node: &Endpoint| {
        let rows =
            Client::connect(node)?.query(&format!("SELECT {key} FROM {table} ORDER BY 1"))?;
        let number = |row: &Vec<Option<String>>| Ok(row[0].as_deref().unwrap_or("0").parse()?);
        rows.iter().map(number).collect()
    };
    nodes.iter().map(of).collect()
}
