//! What the simulator's model of a node says of gateways, against a real server: the lock of the one that
//! serves, the newest incarnation, and the list of backends that run clients' statements.
//!
//! Owns: scripts of gateways that come, fence and are refused, drawn from seeds.
//! Never: has a gateway; the statements are the product's (`recovery/fence.rs`, `one_gateway.sql`).
//! Start reading at [`run_script`].

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tutti_cluster::catalog::schema::CREATE_SCHEMA;
use tutti_sim::node::statement::Statement;

use super::sim_model::{Asked, Pair};

/// The session that never serves clients: it fences, and asks.
const OWN: usize = 0;
const GATEWAYS: u64 = 4;
const STEPS: u32 = 60;

#[derive(Default)]
struct Known {
    /// For which gateway each session serves.
    serves: BTreeMap<usize, u64>,
    has_lock: Option<usize>,
    ended: usize,
    refused: usize,
}

fn draw(rng: &mut ChaCha8Rng, known: &Known, first: u64) -> (usize, Statement) {
    let number = rng.random_range(first..first + GATEWAYS);
    let clients = 1..3;
    match rng.random_range(0..100) {
        0..40 => (rng.random_range(clients), Statement::Serve(number)),
        40..50 => (OWN, Statement::Raise(number)),
        50..65 => (OWN, Statement::EndListed(number)),
        65..72 => (OWN, Statement::ClearList(number)),
        72..82 => (OWN, Statement::ReadNewest),
        _ => {
            let session = rng.random_range(clients);
            match known.has_lock == Some(session) {
                true => (session, Statement::ReadNewest),
                false => (session, Statement::TakeLock),
            }
        }
    }
}

/// Gateways have the numbers from `first`; those of earlier scripts are smaller.
fn run_script(pair: &mut Pair, rng: &mut ChaCha8Rng, first: u64) -> Result<(usize, usize)> {
    let mut asked = Asked::new();
    let mut known = Known::default();
    for _ in 0..STEPS {
        let (session, statement) = draw(rng, &known, first);
        let is_locked = known.has_lock == Some(session);
        // Nothing else runs over the connection of the lock.
        if is_locked && statement != Statement::ReadNewest {
            continue;
        }
        let newest = pair.model.newest_gateway();
        pair.step(session, &statement, &mut asked)?;
        match statement {
            Statement::Serve(number) if number < newest => known.refused += 1,
            Statement::Serve(number) => {
                known.serves.insert(session, number);
            }
            Statement::TakeLock if known.has_lock.is_none() => known.has_lock = Some(session),
            // 55P03: the transaction that it had begun for the lock is over.
            Statement::TakeLock => pair.step(session, &Statement::Rollback, &mut asked)?,
            Statement::EndListed(number) => {
                for (session, of) in std::mem::take(&mut known.serves) {
                    if pair.model.is_connected(pair.sessions[session].backend) {
                        known.serves.insert(session, of);
                        continue;
                    }
                    ensure!(of < number, "the model has ended a backend of gateway {of}");
                    known.has_lock.take_if(|holder| *holder == session);
                    known.ended += 1;
                    pair.replace(session)?;
                }
            }
            // A row that is gone from the list is not ended later.
            Statement::ClearList(number) => known.serves.retain(|_, of| number <= *of),
            _ => (),
        }
    }
    // The list is empty after a crash, and the newest gateway is not forgotten.
    pair.crash()?;
    let mut asked = Asked::new();
    pair.step(OWN, &Statement::ReadNewest, &mut asked)?;
    pair.step(OWN, &Statement::EndListed(first + GATEWAYS), &mut asked)?;
    pair.step(1, &Statement::TakeLock, &mut asked)?;
    pair.crash()?;
    Ok((known.ended, known.refused))
}

/// Goal: the model takes locks, raises, lists, refuses and ends as a server does. Method: scripts of two
/// sessions that serve for several gateways and one that fences, each ended by a SIGKILL.
#[test]
fn the_model_knows_gateways_as_a_server_does() -> Result<()> {
    let mut pair = Pair::start()?;
    pair.admin.query(CREATE_SCHEMA)?;
    pair.admin.query(
        "CREATE OR REPLACE FUNCTION tutti.is_sealed(message text, seal text) RETURNS boolean \
         LANGUAGE sql AS 'SELECT true'",
    )?;
    let (mut ended, mut refused) = (0, 0);
    for seed in 0..8 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        pair.done.clear();
        let run = run_script(&mut pair, &mut rng, 10 * seed + 1);
        let run = run.with_context(|| format!("script {seed}"))?;
        ended += run.0;
        refused += run.1;
    }
    ensure!(10 < ended && 10 < refused, "{ended} ended, {refused} refused: this proves little");
    Ok(())
}
