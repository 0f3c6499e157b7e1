//! Every fuzz target over its committed corpus, and over bytes made from it at random.
//!
//! Owns: the driver that needs no set-up. The other one is libFuzzer: `./dev fuzz`.
//! `TUTTI_WRITE_SEEDS=1 cargo test -p tutti-fuzzing` rewrites the seeds.

use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestRunner;
use tutti_fuzzing::{TARGETS, Target, seeds};

/// Random inputs per target.
const CASES: u32 = 10_000;

fn fuzz() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz"))
}

/// The files of a target's corpus, by name.
fn corpus(target: &Target) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = fuzz().join("corpus").join(target.name);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a file").path()).collect();
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            let bytes = fs::read(&path).expect("a readable file");
            (path, bytes)
        })
        .collect()
}

#[test]
fn every_target_keeps_its_promise_for_its_corpus() {
    for target in TARGETS {
        let corpus = corpus(target);
        assert!(!corpus.is_empty(), "{} has no corpus", target.name);
        for (path, bytes) in corpus {
            println!("{}", path.display()); // shown if the check panics
            (target.check)(&bytes);
            // Cut anywhere, too.
            for len in 0..bytes.len() {
                (target.check)(&bytes[..len]);
            }
        }
    }
}

#[test]
fn seeds_are_the_committed_ones() {
    let write = std::env::var_os("TUTTI_WRITE_SEEDS").is_some();
    for (target, name, bytes) in seeds::all() {
        let path = fuzz().join("corpus").join(target).join(name);
        if write {
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(&path, &bytes).expect("a file");
        }
        let committed = fs::read(&path).unwrap_or_default();
        assert_eq!(committed, bytes, "{path:?} (TUTTI_WRITE_SEEDS=1 writes it)");
    }
}

#[test]
fn libfuzzer_drives_every_target() {
    let folder = fuzz().join("fuzz_targets");
    let mut driven: Vec<String> = fs::read_dir(folder)
        .expect("the fuzz targets")
        .map(|entry| entry.expect("a file").path())
        .map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned())
        .collect();
    driven.sort();
    let mut names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    names.sort_unstable();
    assert_eq!(driven, names);
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).expect("its manifest");
    for name in names {
        let path = format!("path = \"fuzz_targets/{name}.rs\"");
        assert!(manifest.contains(&path), "{name} is not built");
    }
}

/// A change to an input.
#[derive(Clone, Debug)]
enum Change {
    Set(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    Repeat(Index, usize),
}

fn any_change() -> impl Strategy<Value = Change> {
    let odd = prop::sample::select(vec![0, 1, 3, 4, 0x7f, 0x80, 0xff, b'\'', b'\\', b'\n', b'"']);
    let byte = prop_oneof![odd, any::<u8>()];
    prop_oneof![
        (any::<Index>(), byte.clone()).prop_map(|(at, byte)| Change::Set(at, byte)),
        (any::<Index>(), prop::collection::vec(byte, 1..6))
            .prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        (any::<Index>(), 1..9_usize).prop_map(|(at, len)| Change::Remove(at, len)),
        (any::<Index>(), 1..20_usize).prop_map(|(at, len)| Change::Repeat(at, len)),
    ]
}

fn changed(input: &[u8], changes: &[Change]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for change in changes {
        let (Change::Set(at, _)
        | Change::Insert(at, _)
        | Change::Remove(at, _)
        | Change::Repeat(at, _)) = change;
        let at = at.index(bytes.len() + 1);
        let reach = |len: usize| at..(at + len).min(bytes.len());
        match change {
            Change::Set(_, byte) => {
                if let Some(place) = bytes.get_mut(at) {
                    *place = *byte;
                }
            }
            Change::Insert(_, more) => {
                bytes.splice(at..at, more.iter().copied());
            }
            Change::Remove(_, len) => {
                bytes.drain(reach(*len));
            }
            Change::Repeat(_, len) => {
                let again = bytes[reach(*len)].to_vec();
                bytes.splice(at..at, again);
            }
        }
    }
    bytes
}

#[test]
fn every_target_keeps_its_promise_for_changed_inputs() {
    for target in TARGETS {
        let inputs: Vec<Vec<u8>> = corpus(target).into_iter().map(|(_, bytes)| bytes).collect();
        let changes = prop::collection::vec(any_change(), 1..8);
        let mut runner = TestRunner::new(ProptestConfig {
            cases: CASES,
            failure_persistence: None,
            ..ProptestConfig::default()
        });
        let ran = runner.run(&(prop::sample::select(inputs), changes), |(input, changes)| {
            (target.check)(&changed(&input, &changes));
            Ok(())
        });
        if let Err(error) = ran {
            panic!("{}: {error}", target.name);
        }
    }
}

#[test]
fn every_target_keeps_its_promise_for_any_bytes() {
    for target in TARGETS {
        let mut runner = TestRunner::new(ProptestConfig {
            cases: CASES,
            failure_persistence: None,
            ..ProptestConfig::default()
        });
        let ran = runner.run(&prop::collection::vec(any::<u8>(), 0..200), |bytes| {
            (target.check)(&bytes);
            Ok(())
        });
        if let Err(error) = ran {
            panic!("{}: {error}", target.name);
        }
    }
}
