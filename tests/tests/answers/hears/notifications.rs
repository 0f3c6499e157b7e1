//! Notifications: the sender is the one that pg_backend_pid() names, however late one comes; the
//! client's own come too; and an idle listener gets them immediately.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use tutti_tests::client::{Client, Endpoint};
use tutti_tests::gateway::TestCluster;
use tutti_wire::frame::Fields;
use tutti_wire::frontend;

/// Runs a query and gives the notifications that came until its end, with their senders.
fn heard(client: &mut Client, sql: &str) -> Result<Vec<(i32, String)>> {
    let mut message = bytes::BytesMut::new();
    frontend::put_query(&mut message, sql);
    client.send_bytes(&message)?;
    let mut all = Vec::new();
    loop {
        let frame = client.receive()?;
        match frame.tag() {
            b'A' => {
                let mut fields = Fields::of(&frame);
                let sender = fields.int32()?;
                fields.string()?;
                all.push((sender, fields.string()?));
            }
            b'E' => anyhow::bail!("{sql} failed"),
            b'Z' => return Ok(all),
            _ => (),
        }
    }
}

fn own_number(client: &mut Client) -> Result<i32> {
    Ok(client.value("SELECT pg_backend_pid()")?.parse()?)
}

fn connect(endpoint: &Endpoint) -> Result<Client> {
    Client::connect(endpoint)
}

#[test]
fn the_sender_is_who_it_says_it_is_however_late_it_is_heard() -> Result<()> {
    let cluster = TestCluster::start(3)?;
    let gateway = cluster.endpoint();
    let mut maker = connect(&gateway)?;
    maker.query("CREATE TABLE t (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)")?;
    let mut listener = connect(&gateway)?;
    listener.query("LISTEN c")?;
    let mut senders: Vec<Client> = (0..4).map(|_| connect(&gateway)).collect::<Result<_>>()?;
    let mut numbers = BTreeMap::new();
    for (index, sender) in senders.iter_mut().enumerate() {
        numbers.insert(index.to_string(), own_number(sender)?);
    }
    listener.query("BEGIN")?;
    // Each by another form, and meanwhile others use connections.
    for (index, sender) in senders.iter_mut().enumerate() {
        let forms = [
            format!("NOTIFY c, '{index}'"),
            format!("SELECT pg_notify('c', '{index}')"),
            format!("BEGIN; NOTIFY c, '{index}'; COMMIT"),
            format!("BEGIN; INSERT INTO t VALUES (1), (2), (3), (4); NOTIFY c, '{index}'; COMMIT"),
        ];
        sender.query(&forms[index])?;
        for other in 0..3 {
            let mut client = connect(&gateway)?;
            client.query("LISTEN somewhere_else")?;
            client.query(&format!("BEGIN; SELECT {other}; COMMIT"))?;
            maker.query("SELECT count(*) FROM t")?;
        }
    }
    let mut found = heard(&mut listener, "COMMIT")?;
    for _ in 0..20 {
        if found.len() == senders.len() {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
        found.extend(heard(&mut listener, "SELECT 1")?);
    }
    let expected: Vec<_> =
        numbers.iter().map(|(payload, number)| (*number, payload.clone())).collect();
    ensure!(found == expected, "{found:?}, not {expected:?}");
    Ok(())
}

#[test]
fn a_session_hears_itself_by_its_own_number() -> Result<()> {
    let cluster = TestCluster::start(3)?;
    let mut client = connect(&cluster.endpoint())?;
    let number = own_number(&mut client)?;
    client.query("LISTEN c")?;
    for (index, sql) in [
        "NOTIFY c, '0'",
        "SELECT pg_notify('c', '1')",
        "BEGIN; NOTIFY c, '2'; COMMIT",
        "DO $$ BEGIN PERFORM pg_notify('c', '3'); END $$",
    ]
    .iter()
    .enumerate()
    {
        let found = heard(&mut client, sql)?;
        ensure!(found == [(number, index.to_string())], "{sql}: {found:?}");
        ensure!(own_number(&mut client)? == number);
    }
    Ok(())
}

#[test]
fn who_listens_idly_hears_at_once_and_in_order() -> Result<()> {
    let cluster = TestCluster::start(3)?;
    for round in 0..10 {
        let mut one = connect(&cluster.endpoint())?;
        let mut other = connect(&cluster.endpoint())?;
        one.query("LISTEN boom")?;
        other.query("LISTEN boom")?;
        one.query("NOTIFY boom, '1'")?;
        let mut payloads = Vec::new();
        let mut hear = |client: &mut Client| -> Result<()> {
            // The client says nothing: it is idle.
            let frame = client.receive()?;
            ensure!(frame.tag() == b'A', "{:?}", char::from(frame.tag()));
            let mut fields = Fields::of(&frame);
            fields.int32()?;
            fields.string()?;
            payloads.push(fields.string()?);
            Ok(())
        };
        hear(&mut other)?;
        one.query("NOTIFY boom, '2'; NOTIFY boom, '3'")?;
        hear(&mut other)?;
        hear(&mut other)?;
        ensure!(payloads == ["1", "2", "3"], "round {round}: {payloads:?}");
    }
    Ok(())
}
