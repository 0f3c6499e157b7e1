//! The catalog on real servers: set up, read, the rules of a distributed schema, moving tables.
//!
//! Every test has servers of its own and talks to them as the gateway does.

use std::collections::BTreeMap;

use tutti_embed::Cluster;
use tutti_gateway::catalog::{
    self, choose_placement, disarm_sequences, note_change, rearm_sequences, register,
    unregister_dropped, verify,
};
use tutti_gateway::init::init;
use tutti_gateway::node::{NodeConnection, NodeError};
use tutti_gateway::{Config, DefaultDistribution, GatewayError, NodeConfig};
use tutti_sql::catalog::{
    Catalog, Function, Identity, NodeId, Placement, RelationKind, Volatility,
};
use tutti_sql::hash::KeyType;
use tutti_sql::plan::CreatedTable;
use tutti_sql::statement::DistributeBy;

type Result<T = ()> = std::result::Result<T, anyhow::Error>;

fn config(cluster: &Cluster) -> Config {
    let node = |(index, server): (usize, &tutti_embed::Server)| NodeConfig {
        id: index as u16 + 1,
        host: "127.0.0.1".to_owned(),
        port: server.port(),
        user: "postgres".to_owned(),
        password: None,
    };
    Config {
        listen: "127.0.0.1:0".to_owned(),
        database: "postgres".to_owned(),
        cluster: "test".to_owned(),
        default_distribution: DefaultDistribution::Replicated,
        nodes: cluster.servers().iter().enumerate().map(node).collect(),
    }
}

type Connections = BTreeMap<NodeId, NodeConnection>;

async fn connect(config: &Config) -> Result<Connections> {
    let mut connections = Connections::new();
    for node in &config.nodes {
        let connection = NodeConnection::open(node, "postgres", "postgres", &[]).await?;
        connections.insert(NodeId(node.id), connection);
    }
    Ok(connections)
}

/// Servers that are a cluster, with a connection to each.
async fn initialised(nodes: u16) -> Result<(Cluster, Config, Connections)> {
    let cluster = Cluster::create_temp(nodes)?;
    let config = config(&cluster);
    init(&config, false).await?;
    let connections = connect(&config).await?;
    Ok((cluster, config, connections))
}

async fn everywhere(connections: &mut Connections, sql: &str) -> Result {
    for connection in connections.values_mut() {
        connection.query(sql).await?;
    }
    Ok(())
}

async fn load(connections: &mut Connections) -> Result<Catalog> {
    let home = connections.get_mut(&NodeId::HOME).expect("there is a node 1");
    let loaded = catalog::load(home).await?;
    let again = catalog::reload(home, &loaded).await?;
    assert_eq!((loaded.version, &loaded.relations), (again.version, &again.relations));
    Ok(loaded)
}

async fn text(connection: &mut NodeConnection, sql: &str) -> Result<String> {
    Ok(connection.rows(sql).await?.text(0, 0).unwrap_or("NULL").to_owned())
}

fn created(name: &str, distribute_by: Option<DistributeBy>) -> CreatedTable {
    CreatedTable {
        schema: None,
        name: name.to_owned(),
        distribute_by,
        parent: None,
        if_not_exists: false,
        filled_by: None,
    }
}

fn by_hash(column: &str) -> Option<DistributeBy> {
    Some(DistributeBy::Hash(column.to_owned()))
}

/// What the executor does for a CREATE TABLE: on all nodes, registered, in the open transactions.
async fn create(connections: &mut Connections, sql: &str, created: &CreatedTable) -> Result {
    everywhere(connections, sql).await?;
    let catalog = load(connections).await?;
    let home = connections.get_mut(&NodeId::HOME).expect("there is a node 1");
    let chosen = choose_placement(home, DefaultDistribution::Replicated, created, &catalog).await?;
    let Some(registration) = chosen else { return Ok(()) };
    let nodes: Vec<_> = connections.keys().copied().collect();
    for connection in connections.values_mut() {
        register(connection, &registration, &nodes).await?;
        note_change(connection).await?;
    }
    Ok(())
}

fn sqlstate(error: &anyhow::Error) -> Option<String> {
    if let Some(NodeError::Refused(fields)) = error.downcast_ref() {
        return Some(fields.sqlstate().to_owned());
    }
    error.downcast_ref::<GatewayError>().map(|error| error.to_fields().sqlstate().to_owned())
}

#[tokio::test]
async fn init_can_be_repeated_and_refuses_strangers() -> Result {
    let cluster = Cluster::create_temp(3)?;
    let mut config = config(&cluster);
    let third = config.nodes.pop().expect("three nodes");
    init(&config, false).await?;
    init(&config, false).await?;
    let mut connections = connect(&config).await?;
    let mut ids = Vec::new();
    for connection in connections.values_mut() {
        ids.push(text(connection, "SELECT id FROM tutti.cluster").await?);
    }
    assert_eq!(ids[0], ids[1], "both are of one cluster");
    let catalog = load(&mut connections).await?;
    assert_eq!((catalog.version, catalog.nodes.len()), (1, 2));

    let mut swapped = config.clone();
    (swapped.nodes[0].port, swapped.nodes[1].port) = (config.nodes[1].port, config.nodes[0].port);
    let error = init(&swapped, false).await.unwrap_err();
    assert!(matches!(error, GatewayError::OtherNode { .. }), "{error}");

    let mut renamed = config.clone();
    renamed.cluster = "other".to_owned();
    let error = init(&renamed, false).await.unwrap_err();
    assert!(matches!(error, GatewayError::OtherClusterName { .. }), "{error}");

    let mut alone = config.clone();
    alone.nodes = vec![NodeConfig { id: 1, ..third }];
    init(&alone, false).await?;
    let mut mixed = config.clone();
    mixed.nodes.push(NodeConfig { id: 3, ..alone.nodes[0].clone() });
    let error = init(&mixed, false).await.unwrap_err();
    assert!(matches!(error, GatewayError::NodeCount { configured: 3, stored: 2 }), "{error}");
    mixed.nodes.remove(1);
    mixed.nodes[1].id = 2;
    let error = init(&mixed, false).await.unwrap_err();
    assert!(matches!(error, GatewayError::OtherCluster { .. }), "{error}");
    Ok(())
}

#[tokio::test]
async fn tables_that_exist_are_adopted_only_when_asked() -> Result {
    let cluster = Cluster::create_temp(2)?;
    let config = config(&cluster);
    let mut connections = connect(&config).await?;
    let home = connections.get_mut(&NodeId::HOME).expect("there is a node 1");
    home.query(
        "CREATE ROLE clerk LOGIN; CREATE SCHEMA shop AUTHORIZATION clerk;
         CREATE TABLE shop.customer (id serial PRIMARY KEY, name text);
         CREATE TABLE shop.orders (id int PRIMARY KEY, customer int REFERENCES shop.customer);
         CREATE TABLE shop.item (id int PRIMARY KEY); GRANT SELECT ON shop.item TO clerk;
         CREATE VIEW shop.named AS SELECT name FROM shop.customer;
         INSERT INTO shop.customer (name) VALUES ('Ada')",
    )
    .await?;
    let error = init(&config, false).await.unwrap_err();
    assert!(error.to_string().contains("--adopt"), "{error}");
    if let Err(error) = init(&config, true).await {
        // Nothing was written, and the reader is told what is missing.
        assert!(matches!(error, GatewayError::NoDumpTool { .. }), "{error}");
        return Ok(());
    }
    init(&config, true).await?;
    let catalog = load(&mut connections).await?;
    let shop = &catalog.relations["shop"];
    assert_eq!(shop["customer"].placement, Placement::Home, "it has rows");
    assert_eq!(shop["orders"].placement, Placement::Home, "it refers to a table that has rows");
    assert_eq!(shop["item"].placement, Placement::Replicated);
    let copy = connections.get_mut(&NodeId(2)).expect("there is a node 2");
    assert_eq!(text(copy, "SELECT count(*) FROM shop.named").await?, "0");
    let error = copy.query("INSERT INTO shop.customer (name) VALUES ('Bob')").await.unwrap_err();
    assert!(matches!(error, NodeError::Refused(fields) if fields.sqlstate() == "2200H"));
    verify(connections.get_mut(&NodeId::HOME).expect("there is a node 1")).await?;
    Ok(())
}

#[tokio::test]
async fn load_reads_what_was_created() -> Result {
    let (_cluster, _, mut connections) = initialised(2).await?;
    everywhere(
        &mut connections,
        "CREATE SCHEMA \"Odd schema\"; CREATE TYPE mood AS ENUM ('sad', 'happy');
         CREATE DOMAIN positive AS int DEFAULT 7 CHECK (value > 0);",
    )
    .await?;
    create(
        &mut connections,
        "CREATE TABLE kinds (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, \"Mixed \"\"Case\" text,
            moods mood[], c \"char\", fixed char(3), amount numeric(8,2) NOT NULL DEFAULT 1.5,
            gone int, p positive, double_amount numeric GENERATED ALWAYS AS (amount * 2) STORED,
            s serial); ALTER TABLE kinds DROP COLUMN gone",
        &created("kinds", by_hash("id")),
    )
    .await?;
    let mut odd = created("odd \"table\"", Some(DistributeBy::RoundRobin));
    odd.schema = Some("Odd schema".to_owned());
    create(&mut connections, "CREATE TABLE \"Odd schema\".\"odd \"\"table\"\"\" (k int)", &odd)
        .await?;
    create(
        &mut connections,
        "CREATE TABLE events (day date, k int) PARTITION BY RANGE (day)",
        &created("events", by_hash("k")),
    )
    .await?;
    let mut partition = created("events_2026", None);
    partition.parent = Some((None, "events".to_owned()));
    create(
        &mut connections,
        "CREATE TABLE events_2026 PARTITION OF events FOR VALUES FROM ('2026-01-01') TO ('2027-01-01')",
        &partition,
    )
    .await?;
    create(&mut connections, "CREATE TABLE item (id int PRIMARY KEY)", &created("item", None))
        .await?;
    everywhere(
        &mut connections,
        "CREATE VIEW happy AS SELECT id FROM kinds WHERE 'happy' = ANY (moods);
         CREATE FUNCTION count_happy() RETURNS bigint STABLE LANGUAGE sql AS 'SELECT count(*) FROM happy';
         CREATE FUNCTION twice(x int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 2 * x';
         CREATE FUNCTION draw() RETURNS trigger LANGUAGE plpgsql
             AS 'BEGIN NEW.k := nextval(''kinds_s_seq''); RETURN NEW; END';
         CREATE TRIGGER draws BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION draw();",
    )
    .await?;
    // As on a client's connection: its own search_path, inside its transaction.
    let home = connections.get_mut(&NodeId::HOME).expect("there is a node 1");
    home.query("SET search_path = \"Odd schema\", public; BEGIN").await?;
    let catalog = load(&mut connections).await?;
    let home = connections.get_mut(&NodeId::HOME).expect("there is a node 1");
    assert_eq!(text(home, "SHOW search_path").await?, "\"Odd schema\", public");
    home.query("COMMIT").await?;
    assert_eq!(text(home, "SHOW search_path").await?, "\"Odd schema\", public");

    let kinds = &catalog.relations["public"]["kinds"];
    let types: Vec<_> = kinds.columns.iter().map(|c| c.type_name.as_str()).collect();
    assert_eq!(
        types,
        [
            "pg_catalog.int8",
            "pg_catalog.text",
            "public.mood[]",
            "pg_catalog.\"char\"",
            "pg_catalog.bpchar",
            "pg_catalog.\"numeric\"",
            "public.positive",
            "pg_catalog.\"numeric\"",
            "pg_catalog.int4"
        ]
    );
    let defaults: Vec<_> = kinds.columns.iter().map(|c| c.default.as_deref()).collect();
    assert_eq!(
        defaults,
        [
            Some("nextval('public.kinds_id_seq'::regclass)"),
            None,
            None,
            None,
            None,
            Some("1.5"),
            Some("7"),
            None,
            Some("nextval('public.kinds_s_seq'::regclass)")
        ]
    );
    assert_eq!(kinds.columns[0].identity, Some(Identity::Always));
    assert_eq!(kinds.columns[1].name, "Mixed \"Case");
    assert!(kinds.columns[5].not_null && kinds.columns[6].domain && kinds.columns[7].generated);
    assert_eq!(kinds.primary_key, [0]);
    let map = tutti_gateway::catalog::schema::map_of(KeyType::Int8);
    assert_eq!(kinds.placement, Placement::Hash { key: 0, key_type: KeyType::Int8, map });
    assert_eq!(catalog.maps[&map].0.iter().filter(|node| **node == NodeId(2)).count(), 512);
    let odd = &catalog.relations["Odd schema"]["odd \"table\""];
    assert_eq!(odd.placement, Placement::RoundRobin);
    let hash_k = Placement::Hash { key: 1, key_type: KeyType::Int4, map };
    for name in ["events", "events_2026"] {
        assert_eq!(catalog.relations["public"][name].placement, hash_k, "{name}");
    }
    assert_eq!(catalog.relations["public"]["item"].placement, Placement::Replicated);
    let RelationKind::View { definition } = &catalog.relations["public"]["happy"].kind else {
        panic!("happy is a view");
    };
    assert!(definition.contains("FROM public.kinds") && !definition.ends_with(';'), "{definition}");
    assert_eq!(catalog.relations["public"]["kinds_s_seq"].kind, RelationKind::Sequence);
    assert_eq!(catalog.relations["public"]["events"].unsafe_trigger.as_deref(), Some("draws"));
    assert_eq!(kinds.unsafe_trigger, None);
    let functions = &catalog.functions["public"];
    assert!(functions["count_happy"].needs_cluster && functions["draw"].needs_cluster);
    assert_eq!(functions["twice"].volatility, Volatility::Immutable);
    assert!(!functions["twice"].needs_cluster);
    assert_eq!(catalog.builtin_functions["random"].volatility, Volatility::Volatile);
    assert!(catalog.builtin_functions["generate_series"].returns_set);
    assert!(catalog.builtin_functions["sum"].aggregate);
    assert!(catalog.builtin_functions["row_number"].window);

    // Renaming needs no registration, dropping removes it.
    everywhere(&mut connections, "ALTER TABLE kinds RENAME TO renamed; DROP TABLE item").await?;
    for connection in connections.values_mut() {
        unregister_dropped(connection).await?;
    }
    let catalog = load(&mut connections).await?;
    assert!(catalog.relations["public"]["renamed"].placement.is_distributed());
    let home = connections.get_mut(&NodeId::HOME).expect("there is a node 1");
    assert_eq!(text(home, "SELECT count(*) FROM tutti.placement").await?, "4");
    Ok(())
}

/// Runs DDL and verification in transactions that are rolled back; the refusal's message, if any.
async fn verdict(
    connections: &mut Connections,
    steps: &[(&str, Option<CreatedTable>)],
) -> Result<Option<String>> {
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
        let home = connections.get_mut(&NodeId::HOME).expect("there is a node 1");
        outcome = verify(home).await.map_err(Into::into);
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

    let accepted: Vec<Vec<(&str, Option<CreatedTable>)>> = vec![
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

    let refused: Vec<(Vec<(&str, Option<CreatedTable>)>, &str)> = vec![
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
            vec![hash("CREATE TABLE t (x int, k int GENERATED ALWAYS AS (x) STORED)", "t", "k")],
            "generated column \"k\"",
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
    let copy = connections.get_mut(&NodeId(2)).expect("there is a node 2");
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
    let home = connections.get_mut(&NodeId::HOME).expect("there is a node 1");
    assert_eq!(text(home, "SELECT nextval('up')").await?, "1");
    Ok(())
}
