//! The checker of histories on histories written by hand, good and bad.
//!
//! Owns: at least one example per anomaly, what is said of it, and at which level it is one.
//! Never: starts a server. The notation is explained in `tests/src/history/notation.rs`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::Result;
use expect_test::{Expect, expect};
use tutti_tests::history::anomaly::Kind;
use tutti_tests::history::checker::check;
use tutti_tests::history::model::{History, Level};

/// Histories whose transactions are at LEVEL, by what they show.
const EXAMPLES: &[(&str, &str)] = &[
    ("a value that nobody wrote", "T1 c1 LEVEL 1-2 committed | read r1 7"),
    (
        "an element appended twice",
        "T1 c1 LEVEL 1-2 committed | append l1 5
         T2 c2 LEVEL 3-4 committed | read l1 [5 5]",
    ),
    ("own write not seen", "T1 c1 LEVEL 1-6 committed | 2-3 append l1 5 | 4-5 read l1 []"),
    (
        "own write seen before it was made",
        "T1 c1 LEVEL 1-6 committed | 2-3 read l1 [5] | 4-5 append l1 5",
    ),
    (
        "own write to a register overwritten by somebody",
        "T1 c1 LEVEL 1-6 committed | 2-3 write r1 5 over 0 | 4-5 read r1 6 over 5
         T2 c2 LEVEL 1-4 committed | write r1 6 over 5",
    ),
    (
        "aborted read of a list",
        "T1 c1 LEVEL 1-2 aborted | append l1 5
         T2 c2 LEVEL 3-4 committed | read l1 [5]",
    ),
    (
        "aborted read of a register",
        "T1 c1 LEVEL 1-4 aborted | write r1 5 over 0
         T2 c2 LEVEL 2-3 committed | read r1 5 over 0",
    ),
    (
        "intermediate read",
        "T1 c1 LEVEL 1-8 committed | 2-3 append l1 5 | 6-7 append l1 6
         T2 c2 LEVEL 4-5 committed | read l1 [5]",
    ),
    (
        "incompatible orders of a list",
        "T1 c1 LEVEL 1-2 committed | append l1 1
         T2 c2 LEVEL 1-2 committed | append l1 2
         T3 c3 LEVEL 3-4 committed | read l1 [1 2]
         T4 c4 LEVEL 3-4 committed | read l1 [2 1]",
    ),
    (
        "one version of a register replaced twice",
        "T1 c1 LEVEL 1-2 committed | write r1 1 over 0
         T2 c2 LEVEL 1-2 committed | write r1 2 over 0",
    ),
    (
        "an acknowledged append is gone",
        "T1 c1 LEVEL 1-2 committed | append l1 1
         T2 c2 LEVEL 3-4 committed | append l1 2
         T3 c1 LEVEL 5-6 committed at rest | read l1 [2]",
    ),
    (
        "an acknowledged write of a register is gone",
        "T1 c1 LEVEL 1-2 committed | write r1 1 over 0
         T2 c2 LEVEL 3-4 committed | write r1 2 over 0
         T3 c1 LEVEL 5-6 committed at rest | read r1 2 over 0",
    ),
    (
        "half of an unknown transaction is there",
        "T1 c1 LEVEL 1-2 unknown | append l1 1, append l2 1
         T2 c1 LEVEL 5-6 committed at rest | 5-6 read l1 [1] | 5-6 read l2 []",
    ),
    (
        "writes of two transactions interleaved (G0)",
        "T1 c1 LEVEL 1-4 committed | append l1 1, append l2 1
         T2 c2 LEVEL 1-4 committed | append l1 2, append l2 2
         T3 c3 LEVEL 5-6 committed | read l1 [1 2]
         T4 c3 LEVEL 7-8 committed | read l2 [2 1]",
    ),
    (
        "two transactions saw each other (G1c)",
        "T1 c1 LEVEL 1-4 committed | append l1 1 | read l2 [2]
         T2 c2 LEVEL 1-4 committed | append l2 2 | read l1 [1]",
    ),
    (
        "a write from the future",
        "T1 c1 LEVEL 1-2 committed | read r1 5 over 0
         T2 c2 LEVEL 3-4 committed | write r1 5 over 0",
    ),
    (
        "a register read twice, changed between",
        "T1 c1 LEVEL 1-8 committed | 2-3 read r1 0 | 6-7 read r1 5 over 0
         T2 c2 LEVEL 4-5 committed | write r1 5 over 0",
    ),
    (
        "a statement that sees a part of a transaction",
        "T1 c1 LEVEL 1-4 committed | append l1 1, append l2 1
         T2 c2 LEVEL 2-3 committed | read l1 [1], read l2 []",
    ),
    (
        "a statement that sees a part of a transaction, behind a later write",
        "T1 c1 LEVEL 1-9 committed | write r1 1 over 0, append l2 1
         T2 c2 LEVEL 3-4 committed | append l2 2
         T3 c3 LEVEL 5-6 committed | read l2 [1 2], read r1 0",
    ),
    (
        "two statements, the first sees more than the second (and real time says so)",
        "T1 c1 LEVEL 1-9 committed | append l1 1, append l2 1
         T2 c2 LEVEL 2-8 committed | 3-4 read l1 [1] | 5-6 read l2 []",
    ),
    (
        "two statements, the second sees more than the first",
        "T1 c1 LEVEL 4-5 committed | append l1 1, append l2 1
         T2 c2 LEVEL 2-8 committed | 2-3 read l1 [] | 6-7 read l2 [1]",
    ),
    (
        "lost update of a register that does not tell what it replaced",
        "T1 c1 LEVEL 1-8 committed | 2-3 read r1 0 | 4-5 write r1 1
         T2 c2 LEVEL 1-8 committed | 2-3 read r1 0 | 4-5 write r1 2",
    ),
    (
        "lost update of a list",
        "T1 c1 LEVEL 1-8 committed | 2-3 read l1 [] | 6-7 append l1 1
         T2 c2 LEVEL 1-8 committed | append l1 2
         T3 c3 LEVEL 9-10 committed | read l1 [2 1]",
    ),
    (
        "read skew by way of a third transaction",
        "T1 c1 LEVEL 1-2 committed | append l1 1
         T2 c2 LEVEL 1-4 committed | read l1 [1] | append l2 2
         T3 c3 LEVEL 1-5 committed | read l2 [2], read l1 []",
    ),
    (
        "stale read",
        "T1 c1 LEVEL 1-2 committed | append l1 1
         T2 c2 LEVEL 3-4 committed | read l1 []
         T3 c2 LEVEL 5-6 committed | read l1 [1]",
    ),
    (
        "long fork",
        "T1 c1 LEVEL 1-8 committed | append l1 1
         T2 c2 LEVEL 1-8 committed | append l2 2
         T3 c3 LEVEL 1-8 committed | read l1 [1], read l2 []
         T4 c4 LEVEL 1-8 committed | read l1 [], read l2 [2]",
    ),
    (
        "write skew",
        "T1 c1 LEVEL 1-8 committed | 2-3 read r1 0, read r2 0 | 4-5 write r1 1 over 0
         T2 c2 LEVEL 1-8 committed | 2-3 read r1 0, read r2 0 | 4-5 write r2 2 over 0",
    ),
    (
        "write skew over a predicate",
        "T1 c1 LEVEL 1-8 committed | 2-3 predicate read r1 0, read r2 0 | 4-5 write r1 1 over 0
         T2 c2 LEVEL 1-8 committed | 2-3 predicate read r1 0, read r2 0 | 4-5 write r2 2 over 0",
    ),
    (
        "read-only anomaly (Fekete, O'Neil, O'Neil 2004)",
        "T1 c1 LEVEL 3-6 committed | 4-5 write r2 1 over 0
         T2 c2 LEVEL 1-12 committed | 1-2 read r1 0, read r2 0 | 10-11 write r1 2 over 0
         T3 c3 LEVEL 7-9 committed | 7-8 read r1 0, read r2 1 over 0
         T4 c4 LEVEL 13-14 committed at rest | read r1 2 over 0, read r2 1 over 0",
    ),
    (
        "nothing wrong: one after the other",
        "T1 c1 LEVEL 1-4 committed | 1-2 read r1 0, read l1 [] | 2-3 append l1 1, write r1 1 over 0
         T2 c2 LEVEL 5-8 committed | 5-6 read r1 1 over 0 | 6-7 append l1 2, append l1 3
         T3 c3 LEVEL 9-10 committed | read r1 1 over 0, read l1 [1 2 3]
         T4 c3 LEVEL 11-12 committed at rest | read r1 1 over 0, read l1 [1 2 3]",
    ),
    (
        "nothing wrong: a snapshot that is old because it was taken before",
        "T1 c1 LEVEL 1-10 committed | 1-2 read l1 [], read l2 [] | 8-9 read r1 0
         T2 c2 LEVEL 3-4 committed | append l1 1, append l2 1
         T3 c3 LEVEL 5-6 committed | read l1 [1], read l2 [1]",
    ),
    (
        "nothing wrong: an aborted write that nobody saw, an unknown one that all saw",
        "T1 c1 LEVEL 1-2 aborted | append l1 1, append l2 1
         T2 c2 LEVEL 3-4 unknown | append l1 2, append l2 2
         T3 c3 LEVEL 4-5 unknown | append l1 3, append l2 3
         T4 c1 LEVEL 6-7 committed at rest | read l1 [2], read l2 [2]",
    ),
    (
        "nothing wrong: the other way round than they were acknowledged, while both ran",
        "T1 c1 LEVEL 1-10 committed | append l1 1
         T2 c2 LEVEL 2-3 committed | append l1 2
         T3 c3 LEVEL 11-12 committed | read l1 [1 2]",
    ),
];

fn history(text: &str, level: Level) -> History {
    text.replace("LEVEL", &level.to_string()).parse().expect("the example can be read")
}

fn example(name: &str) -> &'static str {
    EXAMPLES.iter().find(|(n, _)| *n == name).map(|(_, text)| *text).expect("there is this example")
}

/// What is promised at each level: a table of the examples.
#[test]
fn each_level_forbids_what_it_should() {
    let mut table = String::new();
    for (name, text) in EXAMPLES {
        writeln!(table, "{name}").unwrap();
        for level in Level::ALL {
            let found = check(&history(text, level)).kinds();
            let names: Vec<&str> = found.iter().map(|kind| kind.name()).collect();
            let verdict = if names.is_empty() { "–".to_owned() } else { names.join(", ") };
            writeln!(table, "  {level:<3} {verdict}").unwrap();
        }
    }
    expect![[r#"
        a value that nobody wrote
          RC  value that nobody wrote
          RR  value that nobody wrote
          SER value that nobody wrote
        an element appended twice
          RC  element appended twice
          RR  element appended twice
          SER element appended twice
        own write not seen
          RC  internal inconsistency
          RR  internal inconsistency
          SER internal inconsistency
        own write seen before it was made
          RC  internal inconsistency
          RR  internal inconsistency
          SER internal inconsistency
        own write to a register overwritten by somebody
          RC  internal inconsistency
          RR  internal inconsistency
          SER internal inconsistency
        aborted read of a list
          RC  aborted read (G1a)
          RR  aborted read (G1a)
          SER aborted read (G1a)
        aborted read of a register
          RC  aborted read (G1a)
          RR  aborted read (G1a)
          SER aborted read (G1a)
        intermediate read
          RC  intermediate read (G1b), non-repeatable read
          RR  intermediate read (G1b), non-repeatable read
          SER intermediate read (G1b), non-repeatable read
        incompatible orders of a list
          RC  incompatible orders, stale read (G-single with real time)
          RR  incompatible orders, stale read (G-single with real time)
          SER incompatible orders, stale read (G-single with real time)
        one version of a register replaced twice
          RC  incompatible orders
          RR  incompatible orders
          SER incompatible orders
        an acknowledged append is gone
          RC  lost acknowledged write, back in time (G1c with real time), stale read (G-single with real time)
          RR  lost acknowledged write, back in time (G1c with real time), stale read (G-single with real time)
          SER lost acknowledged write, back in time (G1c with real time), stale read (G-single with real time)
        an acknowledged write of a register is gone
          RC  incompatible orders, lost acknowledged write
          RR  incompatible orders, lost acknowledged write
          SER incompatible orders, lost acknowledged write
        half of an unknown transaction is there
          RC  half-applied transaction
          RR  half-applied transaction, fractured read
          SER half-applied transaction, fractured read
        writes of two transactions interleaved (G0)
          RC  dirty write (G0)
          RR  dirty write (G0)
          SER dirty write (G0)
        two transactions saw each other (G1c)
          RC  circular information flow (G1c)
          RR  circular information flow (G1c)
          SER circular information flow (G1c)
        a write from the future
          RC  back in time (G1c with real time)
          RR  back in time (G1c with real time)
          SER back in time (G1c with real time)
        a register read twice, changed between
          RC  –
          RR  non-repeatable read
          SER non-repeatable read
        a statement that sees a part of a transaction
          RC  fractured read
          RR  fractured read
          SER fractured read
        a statement that sees a part of a transaction, behind a later write
          RC  fractured read, read skew (G-single)
          RR  fractured read, read skew (G-single)
          SER fractured read, read skew (G-single)
        two statements, the first sees more than the second (and real time says so)
          RC  stale read (G-single with real time)
          RR  fractured read
          SER fractured read
        two statements, the second sees more than the first
          RC  –
          RR  fractured read
          SER fractured read
        lost update of a register that does not tell what it replaced
          RC  –
          RR  lost update
          SER lost update, write skew (G2-item)
        lost update of a list
          RC  –
          RR  lost update
          SER lost update
        read skew by way of a third transaction
          RC  read skew (G-single)
          RR  read skew (G-single)
          SER read skew (G-single)
        stale read
          RC  stale read (G-single with real time)
          RR  stale read (G-single with real time)
          SER stale read (G-single with real time)
        long fork
          RC  long fork (G-nonadjacent)
          RR  long fork (G-nonadjacent)
          SER long fork (G-nonadjacent)
        write skew
          RC  –
          RR  –
          SER write skew (G2-item)
        write skew over a predicate
          RC  –
          RR  –
          SER write skew over a predicate (G2)
        read-only anomaly (Fekete, O'Neil, O'Neil 2004)
          RC  –
          RR  –
          SER write skew (G2-item)
        nothing wrong: one after the other
          RC  –
          RR  –
          SER –
        nothing wrong: a snapshot that is old because it was taken before
          RC  –
          RR  –
          SER –
        nothing wrong: an aborted write that nobody saw, an unknown one that all saw
          RC  –
          RR  –
          SER –
        nothing wrong: the other way round than they were acknowledged, while both ran
          RC  –
          RR  –
          SER –
    "#]]
    .assert_eq(&table);
}

/// A kind that no example shows might be one that the checker cannot find.
#[test]
fn every_kind_has_an_example() {
    let shown: BTreeSet<Kind> = EXAMPLES
        .iter()
        .flat_map(|(_, text)| check(&history(text, Level::Serializable)).kinds())
        .collect();
    let missing: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| !shown.contains(kind)).collect();
    assert_eq!(missing, []);
}

fn say(name: &str, level: Level, expected: &Expect) {
    expected.assert_eq(&check(&history(example(name), level)).to_string());
}

#[test]
fn a_fractured_read_is_explained() {
    say(
        "a statement that sees a part of a transaction",
        Level::ReadCommitted,
        &expect![[r#"
            fractured read, 2 found, for instance:
              T2's statement 1 saw T1: 1 in l1
              T2's statement 1 did not see T1: 1 in l2, which it read as of 0
                T1 c1 RC 1-4 committed | append l1 1, append l2 1
                T2 c2 RC 2-3 committed | read l1 [1], read l2 []
            in all: 2 committed, 0 aborted, 0 unknown (0 of them seen); 2 rows read, 2 written
        "#]],
    );
}

#[test]
fn a_long_fork_is_explained() {
    say(
        "long fork",
        Level::RepeatableRead,
        &expect![[r#"
        long fork (G-nonadjacent):
          T3 -rw-> T2: T3 read l2 = [], which T2 replaced by 2
          T2 -wr-> T4: T4 read T2's l2 = [… 2]
          T4 -rw-> T1: T4 read l1 = [], which T1 replaced by 1
          T1 -wr-> T3: T3 read T1's l1 = [… 1]
            T1 c1 RR 1-8 committed | append l1 1
            T2 c2 RR 1-8 committed | append l2 2
            T3 c3 RR 1-8 committed | read l1 [1], read l2 []
            T4 c4 RR 1-8 committed | read l1 [], read l2 [2]
        in all: 4 committed, 0 aborted, 0 unknown (0 of them seen); 4 rows read, 2 written
    "#]],
    );
}

#[test]
fn write_skew_is_explained() {
    say(
        "write skew",
        Level::Serializable,
        &expect![[r#"
        write skew (G2-item):
          T1 -rw-> T2: T1 read r2 = 0, which T2 replaced by 2
          T2 -rw-> T1: T2 read r1 = 0, which T1 replaced by 1
            T1 c1 SER 1-8 committed | 2-3 read r1 0, read r2 0 | 4-5 write r1 1 over 0
            T2 c2 SER 1-8 committed | 2-3 read r1 0, read r2 0 | 4-5 write r2 2 over 0
        in all: 2 committed, 0 aborted, 0 unknown (0 of them seen); 4 rows read, 2 written
    "#]],
    );
}

#[test]
fn a_stale_read_is_explained() {
    say(
        "stale read",
        Level::ReadCommitted,
        &expect![[r#"
        stale read (G-single with real time):
          T2's statement 1 -rw-> T1: T2's statement 1 read l1 = [], which T1 replaced by 1
          T1 -time-> T2's statement 1: T1 had ended (at 2) before T2's statement 1 began (at 3)
            T1 c1 RC 1-2 committed | append l1 1
            T2 c2 RC 3-4 committed | read l1 []
        in all: 3 committed, 0 aborted, 0 unknown (0 of them seen); 2 rows read, 1 written
    "#]],
    );
}

#[test]
fn the_read_only_anomaly_is_explained() {
    let name = "read-only anomaly (Fekete, O'Neil, O'Neil 2004)";
    say(
        name,
        Level::Serializable,
        &expect![[r#"
        write skew (G2-item):
          T2 -rw-> T1: T2 read r2 = 0, which T1 replaced by 1
          T1 -wr-> T3: T3 read T1's r2 = 1
          T3 -rw-> T2: T3 read r1 = 0, which T2 replaced by 2
            T1 c1 SER 3-6 committed | 4-5 write r2 1 over 0
            T2 c2 SER 1-12 committed | 1-2 read r1 0, read r2 0 | 10-11 write r1 2 over 0
            T3 c3 SER 7-9 committed | 7-8 read r1 0, read r2 1 over 0
        in all: 4 committed, 0 aborted, 0 unknown (0 of them seen); 6 rows read, 2 written
    "#]],
    );
}

#[test]
fn loss_is_explained() {
    say(
        "an acknowledged append is gone",
        Level::ReadCommitted,
        &expect![[r#"
            lost acknowledged write:
              T1 was acknowledged, and its 1 is not in l1 at rest
                T1 c1 RC 1-2 committed | append l1 1
            back in time (G1c with real time):
              T2 -ww-> T1: T1 replaced T2's l1 = [… 2] by 1
              T1 -time-> T2: T1 had ended (at 2) before T2 began (at 3)
                T1 c1 RC 1-2 committed | append l1 1
                T2 c2 RC 3-4 committed | append l1 2
            stale read (G-single with real time):
              T3's statement 1 -rw-> T1: T3's statement 1 read l1 = [… 2], which T1 replaced by 1
              T1 -time-> T3's statement 1: T1 had ended (at 2) before T3's statement 1 began (at 5)
                T1 c1 RC 1-2 committed | append l1 1
                T3 c1 RC 5-6 committed at rest | read l1 [2]
            in all: 3 committed, 0 aborted, 0 unknown (0 of them seen); 1 rows read, 2 written
        "#]],
    );
    say(
        "half of an unknown transaction is there",
        Level::ReadCommitted,
        &expect![[r#"
        half-applied transaction:
          T1 was seen in part, and its 1 is not in l2 at rest
            T1 c1 RC 1-2 unknown | append l2 1
        in all: 1 committed, 0 aborted, 1 unknown (1 of them seen); 2 rows read, 2 written
    "#]],
    );
}

/// A reader's level counts, not the writers': a snapshot is whole whichever level wrote.
#[test]
fn levels_may_be_mixed() {
    let mixed = |reader: &str| -> Vec<Kind> {
        let text = format!(
            "T1 c1 RC 4-5 committed | append l1 1, append l2 1
             T2 c2 {reader} 2-8 committed | 2-3 read l1 [] | 6-7 read l2 [1]"
        );
        check(&text.parse().expect("it can be read")).kinds()
    };
    assert_eq!(mixed("RC"), []);
    assert_eq!(mixed("RR"), [Kind::FracturedRead]);
    assert_eq!(mixed("SER"), [Kind::FracturedRead]);
    // Write skew is prevented among SERIALIZABLE transactions only.
    let skew = "T1 c1 SER 1-8 committed | 2-3 read r1 0, read r2 0 | 4-5 write r1 1 over 0
                T2 c2 RR 1-8 committed | 2-3 read r1 0, read r2 0 | 4-5 write r2 2 over 0";
    assert_eq!(check(&skew.parse().expect("it can be read")).kinds(), []);
}

#[test]
fn the_smallest_cycle_is_shown() {
    let text = "
        # T9 sees T1 in l1 and not in l2: two edges. Through T2 and T3 there is a longer way.
        T1 c1 RR 1-20 committed | append l1 1, append l2 1
        T2 c2 RR 1-20 committed | append l2 2
        T3 c3 RR 1-20 committed | read l2 [1 2] | append l3 3
        T9 c4 RR 1-20 committed | read l3 [3], read l1 [1], read l2 []
    ";
    let report = check(&text.parse().expect("it can be read"));
    expect![[r#"
        fractured read, 2 found, for instance:
          T9 saw T1: 1 in l1
          T9 did not see T1: 1 in l2, which it read as of 0
            T1 c1 RR 1-20 committed | append l1 1, append l2 1
            T9 c4 RR 1-20 committed | read l1 [1], read l2 []
        in all: 4 committed, 0 aborted, 0 unknown (0 of them seen); 4 rows read, 4 written
    "#]]
    .assert_eq(&report.to_string());
}

#[test]
fn what_is_shown_can_be_read_again() -> Result<()> {
    for (_, text) in EXAMPLES {
        let first = history(text, Level::RepeatableRead);
        let again: History = first.to_string().parse()?;
        assert_eq!(first, again);
    }
    Ok(())
}

#[test]
fn what_is_no_history_is_refused() {
    let mut refusals = String::new();
    for text in ["X1", "T1 c1 RC 1 committed", "T1 c1 RC 1-2 committed | read l1 1", "T1 c1 RC 1-2"]
    {
        writeln!(refusals, "{}", text.parse::<History>().unwrap_err()).unwrap();
    }
    expect![[r#"
        line 1: cannot read "X1": expected a transaction as T1
        line 1: cannot read "1": expected instants as 1-2
        line 1: cannot read "read l1 1": expected elements as [1 2 3]
        line 1: cannot read "nothing": expected committed, aborted or unknown
    "#]]
    .assert_eq(&refusals);
}
