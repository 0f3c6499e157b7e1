//! Setting a cluster up, adopting tables, and reading the catalog back.

use std::future::pending;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::time::timeout;
use tutti_cluster::catalog::{PlacementKind, choose_placement, unregister_dropped, verify};
use tutti_cluster::setup::{check_default, init};
use tutti_cluster::status;
use tutti_embed::Cluster;
use tutti_gateway::{Config, DefaultDistribution, GatewayError, NodeConfig, serve};
use tutti_link::NodeError;
use tutti_sql::catalog::{Identity, NodeId, Placement, RelationKind, Volatility};
use tutti_sql::hash::KeyType;
use tutti_sql::statement::DistributeBy;

use super::support::*;

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

    let error = refused_to_serve(swapped).await?;
    assert!(matches!(error, GatewayError::OtherNode { .. }), "{error}");
    let mut twice = config.clone();
    twice.nodes[1].port = config.nodes[0].port;
    let error = refused_to_serve(twice).await?;
    assert!(matches!(error, GatewayError::OtherNode { .. }), "{error}");

    let mut renamed = config.clone();
    renamed.cluster = "other".to_owned();
    let error = init(&renamed, false).await.unwrap_err();
    assert!(matches!(error, GatewayError::OtherClusterName { .. }), "{error}");
    let error = refused_to_serve(renamed).await?;
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
    let error = refused_to_serve(mixed).await?;
    assert!(
        matches!(error, GatewayError::OtherCluster { .. } | GatewayError::NodeCount { .. }),
        "{error}"
    );
    Ok(())
}

/// What a gateway says that must not serve with this configuration.
async fn refused_to_serve(config: Config) -> Result<GatewayError> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let served = timeout(Duration::from_secs(60), serve(config, listener, pending())).await?;
    Ok(served.expect_err("it serves somebody else's servers"))
}

#[tokio::test]
async fn a_cluster_keeps_the_kind_of_default_it_was_made_with() -> Result {
    use DefaultDistribution::{Home, Replicated, RoundRobin};
    for (made, others, refused) in
        [(Home, [Home, Home], Replicated), (Replicated, [Replicated, RoundRobin], Home)]
    {
        let cluster = Cluster::create_temp(1)?;
        let with = |default| Config { default_distribution: default, ..config(&cluster) };
        init(&with(made), false).await?;
        let mut connections = connect(&with(made)).await?;
        let node_1 = home(&mut connections);
        for fits in others {
            check_default(node_1, &with(fits)).await?;
        }
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let served = tutti_gateway::serve(with(refused), listener, std::future::pending()).await;
        let error = served.unwrap_err();
        let is_told = match made {
            Home => matches!(error, GatewayError::MadeWithHome),
            _ => matches!(error, GatewayError::MadeWithoutHome),
        };
        assert!(is_told, "{error}");
        // Written by a version that did not note it: what the gateway says holds from then on.
        node_1.query("UPDATE tutti.cluster SET home_by_default = NULL").await?;
        check_default(node_1, &with(refused)).await?;
        assert!(check_default(node_1, &with(made)).await.is_err());
    }
    Ok(())
}

#[tokio::test]
async fn tables_that_exist_are_adopted_only_when_asked() -> Result {
    let cluster = Cluster::create_temp(2)?;
    let config = config(&cluster);
    let mut connections = connect(&config).await?;
    let node_1 = home(&mut connections);
    node_1
        .query(
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
    let copy = at(&mut connections, 2);
    assert_eq!(text(copy, "SELECT count(*) FROM shop.named").await?, "0");
    let error = copy.query("INSERT INTO shop.customer (name) VALUES ('Bob')").await.unwrap_err();
    assert!(matches!(error, NodeError::Refused(fields) if fields.sqlstate() == "2200H"));
    home(&mut connections).query("BEGIN").await?;
    verify(home(&mut connections)).await?;
    home(&mut connections).query("COMMIT").await?;
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
    let node_1 = home(&mut connections);
    node_1.query("SET search_path = \"Odd schema\", public; BEGIN").await?;
    let catalog = load(&mut connections).await?;
    let node_1 = home(&mut connections);
    assert_eq!(text(node_1, "SHOW search_path").await?, "\"Odd schema\", public");
    node_1.query("COMMIT").await?;
    assert_eq!(text(node_1, "SHOW search_path").await?, "\"Odd schema\", public");

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
    let map = tutti_cluster::catalog::maps::map_of(KeyType::Int8);
    assert_eq!(kinds.placement, Placement::Hash { key: 0, key_type: KeyType::Int8, map });
    assert_eq!(catalog.maps[&map].nodes.iter().filter(|node| **node == NodeId(2)).count(), 512);
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
    let events = catalog.relations["public"]["events"].oid;
    assert!(catalog.code.fires(events) && !catalog.code.fires(kinds.oid));
    let functions = &catalog.functions["public"];
    assert_eq!(functions["twice"].volatility, Volatility::Immutable);
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
    let node_1 = home(&mut connections);
    assert_eq!(text(node_1, "SELECT count(*) FROM tutti.placement").await?, "4");
    Ok(())
}

#[tokio::test]
async fn only_new_lasting_tables_are_registered() -> Result {
    let (_cluster, _, mut connections) = initialised(1).await?;
    let default = DefaultDistribution::RoundRobin;
    let sql = "CREATE TABLE t (k int); CREATE TEMP TABLE gone (k int)";
    create(&mut connections, sql, &created("t", by_hash("k"))).await?;
    let catalog = load(&mut connections).await?;
    let node_1 = home(&mut connections);
    let mut again = created("t", None);
    again.if_not_exists = true;
    assert!(choose_placement(node_1, default, &again, &catalog).await?.is_none(), "it has one");
    let temporary = created("gone", None);
    assert!(choose_placement(node_1, default, &temporary, &catalog).await?.is_none(), "temporary");

    // Dropped and created again within one statement string: a new table, though of a known name.
    node_1.query("DROP TABLE t; CREATE TABLE t (k int)").await?;
    let chosen = choose_placement(node_1, default, &again, &catalog).await?.expect("a new table");
    let chosen = chosen.registration;
    assert_eq!((chosen.schema.as_str(), &chosen.placement), ("public", &PlacementKind::RoundRobin));
    Ok(())
}

#[tokio::test]
async fn status_shows_tables_buckets_and_who_is_down() -> Result {
    let (mut cluster, config, mut connections) = initialised(2).await?;
    let table = created("orders", by_hash("customer"));
    create(&mut connections, "CREATE TABLE orders (customer int)", &table).await?;
    at(&mut connections, 1).query("INSERT INTO orders VALUES (1), (2); ANALYZE orders").await?;
    cluster.server_mut(1).kill9()?;
    let status = status(&config).await?;
    assert!(status.nodes[0].answer.is_ok() && status.nodes[1].answer.is_err());
    let orders = &status.tables[0];
    assert_eq!((orders.name.as_str(), orders.key.as_deref()), ("public.orders", Some("customer")));
    assert_eq!(orders.row_estimates, [Some(2), None]);
    let shares: Vec<_> = status.buckets.values().flat_map(|nodes| nodes.values()).collect();
    assert_eq!(shares, [&512, &512]);
    Ok(())
}
