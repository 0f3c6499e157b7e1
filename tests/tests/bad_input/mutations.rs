//! A recorded conversation, broken at random: from each seed one way.
//!
//! Owns: the recording and how it is broken. Never: expects an answer; it looks for crashes, hangs
//! and disturbed neighbours only.

use anyhow::{Context, Result};
use bytes::{Bytes, BytesMut};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tutti_tests::gateway::TestCluster;
use tutti_wire::frame::{HEADER_LEN, frame_len};
use tutti_wire::frontend::{
    Arguments, Target, put_bind, put_close, put_copy_data, put_copy_done, put_describe,
    put_execute, put_flush, put_parse, put_query, put_sync,
};

use super::neighbour::{self, Neighbour};
use super::raw::{Raw, probe};

/// Seeds of an ordinary run.
const SEEDS: u64 = 300;
/// Names the only seed to run.
const SEED: &str = "TUTTI_BAD_INPUT_SEED";

/// Something of everything, all of it right.
pub fn recording() -> Vec<u8> {
    let mut out = BytesMut::new();
    let key = |id: &'static str| Arguments {
        values: vec![Some(Bytes::from_static(id.as_bytes()))],
        ..Arguments::default()
    };
    put_query(&mut out, "SELECT v FROM t WHERE id = 5");
    put_query(&mut out, "SELECT count(*), max(v) FROM t; SELECT 1");
    put_parse(&mut out, "s", "SELECT id, v FROM t WHERE id = $1", &[23]);
    put_describe(&mut out, Target::Statement, "s");
    for id in ["1", "2", "77"] {
        put_bind(&mut out, "p", "s", &key(id));
        put_describe(&mut out, Target::Portal, "p");
        put_execute(&mut out, "p", 1);
        put_close(&mut out, Target::Portal, "p");
    }
    put_sync(&mut out);
    put_query(&mut out, "COPY t FROM STDIN");
    put_copy_data(&mut out, b"101\ta\n102\tb\n");
    put_copy_data(&mut out, b"103\t\\N\n");
    put_copy_done(&mut out);
    put_query(&mut out, "BEGIN; UPDATE t SET v = 'x' WHERE id IN (1, 2, 3)");
    put_parse(&mut out, "", "SELECT id FROM t ORDER BY id", &[]);
    put_bind(&mut out, "q", "", &Arguments::default());
    put_execute(&mut out, "q", 3);
    put_flush(&mut out);
    put_execute(&mut out, "q", 0);
    put_sync(&mut out);
    put_query(&mut out, "DELETE FROM t WHERE id > 100; COMMIT");
    put_query(&mut out, "COPY (SELECT * FROM t) TO STDOUT");
    out.to_vec()
}

/// Where the recording's messages begin, and its end.
fn borders(recording: &[u8]) -> Vec<usize> {
    let mut borders = vec![0];
    let mut at = 0;
    while let Ok(Some(len)) = frame_len(&recording[at..])
        && len <= recording.len() - at
    {
        at += len;
        borders.push(at);
    }
    borders
}

/// Breaks the recording in one to four places.
fn broken(rng: &mut StdRng) -> Vec<u8> {
    let mut bytes = recording();
    for _ in 0..rng.random_range(1..=4) {
        let borders = borders(&bytes);
        let message = borders[rng.random_range(0..borders.len())];
        let any = rng.random_range(0..=bytes.len());
        match rng.random_range(0..8) {
            // A length.
            0 if message + HEADER_LEN <= bytes.len() => {
                let length: i32 = match rng.random_range(0..4) {
                    0 => rng.random(),
                    1 => rng.random_range(0..8),
                    2 => i32::MAX,
                    _ => rng.random_range(4..200),
                };
                bytes[message + 1..message + HEADER_LEN].copy_from_slice(&length.to_be_bytes());
            }
            // A tag.
            1 if message < bytes.len() => bytes[message] = rng.random(),
            // A bit.
            2 if any < bytes.len() => bytes[any] ^= 1 << rng.random_range(0..8),
            // A message is lost, said twice, or comes too late.
            3..=5 if 2 < borders.len() => {
                let which = rng.random_range(0..borders.len() - 1);
                let said = bytes[borders[which]..borders[which + 1]].to_vec();
                if rng.random() {
                    bytes.drain(borders[which]..borders[which + 1]);
                }
                if rng.random() {
                    let at = borders[rng.random_range(0..=which)];
                    bytes.splice(at..at, said);
                }
            }
            // Anything comes between.
            6 => {
                let noise: Vec<u8> = (0..rng.random_range(1..40)).map(|_| rng.random()).collect();
                bytes.splice(any..any, noise);
            }
            // The rest is missing.
            _ => bytes.truncate(any),
        }
    }
    bytes
}

/// One session that says what the seed makes of the recording, to its end.
fn hold(seed: u64, cluster: &TestCluster, neighbour: &mut Neighbour) -> Result<()> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut raw = Raw::begin(&cluster.endpoint())?;
    raw.send(&broken(&mut rng))?;
    if rng.random() {
        raw.send(&probe())?;
    }
    raw.finish()?;
    neighbour.check()
}

#[test]
fn broken_recordings_harm_nobody() -> Result<()> {
    let seeds = match std::env::var(SEED) {
        Ok(seed) => {
            let seed: u64 = seed.parse().context(SEED)?;
            seed..seed + 1
        }
        Err(_) => 0..SEEDS,
    };
    let cluster = neighbour::start(1)?;
    let mut neighbour = Neighbour::of(&cluster)?;
    for seed in seeds {
        hold(seed, &cluster, &mut neighbour).with_context(|| {
            format!("{SEED}={seed} ./dev test --test bad_input broken_recordings")
        })?;
    }
    neighbour.see_all_quiet(&cluster)
}
