//! Bad input at every state of the protocol: an error or a close, as PostgreSQL has it, and never a
//! crash, a hang, or another client's data.
//!
//! Owns: that every [`inputs`] in every [`states`] has the same end as on a plain PostgreSQL, while
//! a [`neighbour`], who gets the very connection to a node that the bad session had, is served
//! rightly. Beside it: broken recordings (`mutations`), and what is merely large (`large`).
//! Never: tests decoders alone; `crates/fuzzing` does.
//! Start reading at [`compare`].

mod inputs;
mod large;
mod mutations;
mod neighbour;
mod raw;
mod states;

use anyhow::{Context, Result, ensure};
use tutti_tests::client::{Client, Endpoint, Flight, Request, text_arguments};
use tutti_tests::gateway::TestCluster;
use tutti_tests::servers;

use inputs::Input;
use neighbour::{Neighbour, TABLES};
use raw::{Fate, probe, startup_packet};
use states::State;

/// A plain server with the same tables.
fn start_plain() -> Result<(tutti_embed::Cluster, Endpoint)> {
    let plain = servers::start(1)?;
    let endpoint = servers::endpoint(&plain, 0);
    let mut maker = Client::connect(&endpoint)?;
    for statement in TABLES {
        maker.query(&statement.replace(" DISTRIBUTE BY HASH (id)", ""))?;
    }
    Ok((plain, endpoint))
}

/// What becomes of a session in `state` that sends `input` and then asks whether it is still there.
fn fate(endpoint: &Endpoint, state: State, input: &Input) -> Result<Fate> {
    let told = || format!("{state:?}: {}", input.name);
    let mut raw = state.reach(endpoint).with_context(told)?;
    raw.send(&input.bytes).with_context(told)?;
    if !states::BEFORE.contains(&state) {
        raw.send(&probe()).with_context(told)?;
    }
    Ok(Fate::of(raw.finish().with_context(told)?))
}

/// Every input in every state, on both; the neighbour is asked after each.
fn compare(
    plain: &Endpoint,
    cluster: &TestCluster,
    states: &[State],
    inputs: &[Input],
) -> Result<()> {
    let mut neighbour = Neighbour::of(cluster)?;
    let mut wrong = Vec::new();
    for state in states {
        for input in inputs {
            let expected = fate(plain, *state, input)?;
            let found = fate(&cluster.endpoint(), *state, input)?;
            neighbour.check().with_context(|| format!("after {state:?}: {}", input.name))?;
            if expected != found && !differs_rightly(*state, &expected, &found) {
                let name = &input.name;
                wrong.push(format!("{state:?}: {name}\n  {expected:?}\n  {found:?}"));
            }
        }
    }
    ensure!(wrong.is_empty(), "{} cases differ\n{}", wrong.len(), wrong.join("\n"));
    neighbour.see_all_quiet(cluster)
}

/// Where the gateway need not end as PostgreSQL does.
fn differs_rightly(state: State, expected: &Fate, found: &Fate) -> bool {
    // What has no business among COPY data PostgreSQL refuses by its tag alone; then it is in the
    // middle of a message and must close. The gateway has read the message and can go on.
    let told = |said: &[String]| said.first().is_some_and(|line| line.starts_with("Error"));
    match (expected, found) {
        (Fate::Ends(before), Fate::Lives(said)) => {
            state.copies() && before.is_empty() && told(said)
        }
        _ => false,
    }
}

#[test]
fn before_a_session_it_ends_as_with_postgresql_and_harms_nobody() -> Result<()> {
    let cluster = neighbour::start(1)?;
    let (_plain, plain) = start_plain()?;
    compare(&plain, &cluster, &states::BEFORE, &inputs::before_a_session())
}

#[test]
fn in_a_session_it_ends_as_with_postgresql_and_harms_nobody() -> Result<()> {
    let cluster = neighbour::start(1)?;
    let (_plain, plain) = start_plain()?;
    compare(&plain, &cluster, &states::WITHIN, &inputs::in_a_session())
}

#[test]
fn whoever_falls_silent_in_the_middle_holds_up_nobody() -> Result<()> {
    let cluster = neighbour::start(60)?;
    let cuts: [&[u8]; 4] = [b"", b"Q\0\0", b"Q\0\0\0\x20SEL", b"Q\x3f\xff\xff\xff"];
    let mut silent = Vec::new();
    for state in states::BEFORE.into_iter().chain(states::WITHIN) {
        // They would wait for each other's rows, or for the lock of a replicated table.
        let holds_locks = matches!(state, State::InFlight | State::CopyingToReplicas);
        for cut in if holds_locks { &cuts[..1] } else { &cuts[..] } {
            let mut raw = state.reach(&cluster.endpoint()).with_context(|| format!("{state:?}"))?;
            raw.send(cut)?;
            silent.push(raw);
        }
    }
    let mut neighbour = Neighbour::of(&cluster)?;
    for _ in 0..20 {
        neighbour.check()?;
    }
    // They leave without a word, and take nothing with them.
    drop(silent);
    neighbour.see_all_quiet(&cluster)?;
    neighbour.check()
}

#[test]
fn bytes_may_come_one_by_one() -> Result<()> {
    let cluster = neighbour::start(1)?;
    let mut neighbour = Neighbour::of(&cluster)?;
    let mut raw = raw::Raw::open(&cluster.endpoint())?;
    let mut bytes = startup_packet();
    bytes.extend(mutations::recording());
    bytes.extend(probe());
    for (index, byte) in bytes.iter().enumerate() {
        raw.send(&[*byte])?;
        if index % 100 == 99 && index < 200 {
            neighbour.check()?;
        }
    }
    let said = raw.finish()?;
    ensure!(matches!(Fate::of(said.clone()), Fate::Lives(_)), "{said:?}");
    neighbour.see_all_quiet(&cluster)
}

#[test]
fn a_statement_may_have_as_many_parameters_as_the_protocol_can_count() -> Result<()> {
    let cluster = neighbour::start(1)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    let numbers: Vec<u32> = (1..=u32::from(u16::MAX)).collect();
    let places: Vec<String> = numbers.iter().map(|number| format!("${number}")).collect();
    let values: Vec<_> = numbers.iter().map(|number| Some(number.to_string())).collect();
    for (sql, expected) in [
        (format!("SELECT sum(n) FROM unnest(ARRAY[{}]::int[]) n", places.join(",")), "2147450880"),
        (format!("SELECT count(*) FROM witness WHERE id IN ({})", places.join(",")), "20"),
    ] {
        let arguments = [text_arguments(&values)];
        let types = vec![23; values.len()];
        let request =
            Request { sql: &sql, types: &types, arguments: &arguments, ..Request::default() };
        let answer = client.extended(&request, Flight::OneFlight, &[])?;
        let found = answer.texts();
        ensure!(found == [[Some(expected.to_owned())]], "{found:?} {:?}", answer.error());
    }
    Neighbour::of(&cluster)?.check()
}
