//! What a distributed schema may hold, and sequences that count on node 1 only.

use tutti_cluster::catalog::{disarm_sequences, rearm_sequences, verify};
use tutti_gateway::GatewayError;
use tutti_link::NodeError;
use tutti_sql::plan::CreatedTable;
use tutti_sql::statement::DistributeBy;

use super::support::*;

/// A statement, and the table that it creates, if it does.
type Step<'a> = (&'a str, Option<CreatedTable>);

/// Runs DDL and verification in transactions that are rolled back; the refusal's message, if any.
async fn verdict(connections: &mut Connections, steps: &[Step<'_>]) -> Result<Option<String>> {
    everywhere(connections, "BEGIN").await?;
    let mut outcome = Ok(());
    for (sql, table) in steps {
        outcome = match table {
            Some(table) => create(connections, sql, table).await,
            None => everywhere(connections, sql).await,
        };
        if outcome.is_err() {
            break;
        }
    }
    if outcome.is_ok() {
        outcome = verify(home(connections)).await.map_err(Into::into);
    }
    everywhere(connections, "ROLLBACK").await?;
    match outcome {
        Ok(()) => Ok(None),
        Err(error) => match error.downcast_ref::<GatewayError>() {
            Some(GatewayError::Refused(refusal)) if refusal.sqlstate == "0A000" => {
                assert!(refusal.hint.is_some() && refusal.detail.is_some(), "{refusal:?}");
                Ok(Some(refusal.message.clone()))
            }
            _ => Err(error),
        },
    }
}

#[tokio::test]
async fn each_rule_accepts_and_refuses() -> Result {
    let (_cluster, _, mut connections) = initialised(2).await?;
    let hash = |sql, name, key| (sql, Some(created(name, by_hash(key))));
    let round_robin = |sql, name| (sql, Some(created(name, Some(DistributeBy::RoundRobin))));
    let replicated = |sql, name| (sql, Some(created(name, Some(DistributeBy::Replicated))));
    let alter = |sql| (sql, None);
    let parent = || hash("CREATE TABLE a (k int PRIMARY KEY, x int)", "a", "k");

    let accepted: Vec<Vec<Step<'_>>> = vec![
        vec![hash("CREATE TABLE t (k int, x int, PRIMARY KEY (x, k))", "t", "k")],
        vec![round_robin("CREATE TABLE t (k int)", "t")],
        vec![replicated("CREATE TABLE t (k int PRIMARY KEY, x int UNIQUE)", "t")],
        vec![parent(), hash("CREATE TABLE b (r bigint REFERENCES a ON DELETE CASCADE)", "b", "r")],
        vec![
            replicated("CREATE TABLE r (id int PRIMARY KEY)", "r"),
            hash("CREATE TABLE t (k int, r int REFERENCES r ON DELETE SET NULL)", "t", "k"),
            round_robin("CREATE TABLE u (r int REFERENCES r)", "u"),
        ],
        vec![
            replicated("CREATE TABLE r (id int)", "r"),
            alter("CREATE MATERIALIZED VIEW m AS SELECT * FROM r"),
        ],
        vec![
            hash("CREATE TABLE t (k varchar(3))", "t", "k"),
            alter("ALTER TABLE t ALTER k TYPE varchar(9)"),
        ],
    ];
    for steps in &accepted {
        assert_eq!(verdict(&mut connections, steps).await?, None, "{steps:?}");
    }

    let refused: Vec<(Vec<Step<'_>>, &str)> = vec![
        (
            vec![hash("CREATE TABLE t (k int, x int PRIMARY KEY)", "t", "k")],
            "primary key \"t_pkey\" of table \"t\"",
        ),
        (
            vec![
                hash("CREATE TABLE t (k int)", "t", "k"),
                alter("CREATE UNIQUE INDEX u ON t ((k + 1))"),
            ],
            "unique constraint \"u\" of table \"t\"",
        ),
        (
            vec![hash("CREATE TABLE t (k int, x int, UNIQUE (x) INCLUDE (k))", "t", "k")],
            "unique constraint \"t_x_k_key\"",
        ),
        (
            vec![hash(
                "CREATE TABLE t (k int, r int4range, EXCLUDE USING gist (r WITH &&))",
                "t",
                "k",
            )],
            "exclusion constraint \"t_r_excl\"",
        ),
        (vec![round_robin("CREATE TABLE t (k int PRIMARY KEY)", "t")], "primary key \"t_pkey\""),
        (
            vec![parent(), hash("CREATE TABLE b (k int, r int REFERENCES a)", "b", "k")],
            "foreign key \"b_r_fkey\" of table \"b\"",
        ),
        (
            vec![parent(), replicated("CREATE TABLE b (r int REFERENCES a)", "b")],
            "foreign key \"b_r_fkey\" of table \"b\"",
        ),
        (
            vec![parent(), hash("CREATE TABLE b (k int REFERENCES a ON UPDATE CASCADE)", "b", "k")],
            "foreign key \"b_k_fkey\" of table \"b\" would change",
        ),
        (
            vec![
                replicated("CREATE TABLE r (id int PRIMARY KEY)", "r"),
                hash("CREATE TABLE t (k int REFERENCES r ON DELETE SET NULL)", "t", "k"),
            ],
            "foreign key \"t_k_fkey\" of table \"t\" would change",
        ),
        (
            vec![parent(), alter("CREATE MATERIALIZED VIEW m AS SELECT * FROM a")],
            "materialized view \"m\"",
        ),
        (
            vec![
                parent(),
                alter("CREATE VIEW v AS SELECT * FROM a"),
                alter("CREATE MATERIALIZED VIEW m AS SELECT count(*) FROM v"),
            ],
            "materialized view \"m\" cannot use distributed table \"a\"",
        ),
        (
            vec![
                hash("CREATE TABLE p (k int) PARTITION BY LIST (k)", "p", "k"),
                replicated("CREATE TABLE c (k int)", "c"),
                alter("ALTER TABLE p ATTACH PARTITION c FOR VALUES IN (1)"),
            ],
            "table \"c\" must be distributed like its parent \"p\"",
        ),
        (vec![parent(), alter("ALTER TABLE a DROP COLUMN k")], "cannot drop the distribution key"),
        (vec![parent(), alter("ALTER TABLE a ALTER k TYPE text")], "cannot change the type"),
        (
            vec![
                hash("CREATE TABLE t (k numeric(8,2))", "t", "k"),
                alter("ALTER TABLE t ALTER k TYPE numeric(8,1)"),
            ],
            "cannot change the type",
        ),
        (
            vec![hash("CREATE TABLE t (k point)", "t", "k")],
            "cannot distribute \"t\" by column \"k\" of type point",
        ),
        (
            vec![
                alter(
                    "CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
                ),
                hash("CREATE TABLE t (k text COLLATE ci)", "t", "k"),
            ],
            "cannot distribute \"t\" by column \"k\"",
        ),
        (
            vec![hash(
                "CREATE TABLE t (x int, k oid GENERATED ALWAYS AS (tableoid) STORED)",
                "t",
                "k",
            )],
            "cannot be this generated column",
        ),
    ];
    for (steps, expected) in &refused {
        let message = verdict(&mut connections, steps).await?;
        let message = message.unwrap_or_else(|| panic!("accepted: {steps:?}"));
        assert!(message.contains(expected), "{message}");
    }
    let missing = [hash("CREATE TABLE t (k int)", "t", "nowhere")];
    let error = verdict(&mut connections, &missing).await.unwrap_err();
    assert_eq!(sqlstate(&error).as_deref(), Some("42703"));
    Ok(())
}

#[tokio::test]
async fn sequences_outside_node_1_give_no_values() -> Result {
    let (_cluster, _, mut connections) = initialised(2).await?;
    everywhere(
        &mut connections,
        "CREATE SEQUENCE up; CREATE SEQUENCE down INCREMENT -1; CREATE SEQUENCE round MAXVALUE 3 CYCLE;
         CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY)",
    )
    .await?;
    let copy = at(&mut connections, 2);
    disarm_sequences(copy).await?;
    disarm_sequences(copy).await?;
    let draws = [
        "SELECT nextval('up')",
        "SELECT nextval('down')",
        "SELECT nextval('round')",
        "INSERT INTO t DEFAULT VALUES",
    ];
    for sql in draws {
        let error = copy.query(sql).await.expect_err(sql);
        assert!(
            matches!(error, NodeError::Refused(fields) if fields.sqlstate() == "2200H"),
            "{sql}"
        );
    }

    // Bounds can be changed after rearming; a rollback leaves everything disarmed.
    copy.query("BEGIN").await?;
    rearm_sequences(copy).await?;
    copy.query("ALTER SEQUENCE up MAXVALUE 100; ROLLBACK").await?;
    copy.query("SELECT nextval('up')").await.expect_err("disarmed again");
    copy.query("BEGIN").await?;
    rearm_sequences(copy).await?;
    copy.query("ALTER SEQUENCE up MAXVALUE 100").await?;
    disarm_sequences(copy).await?;
    copy.query("COMMIT").await?;
    copy.query("SELECT nextval('up')").await.expect_err("disarmed at its new bound");
    let node_1 = home(&mut connections);
    assert_eq!(text(node_1, "SELECT nextval('up')").await?, "1");
    Ok(())
}
