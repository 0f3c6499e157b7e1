//! Rows that clients take in portions, and rows that are inserted from queries: far more of them than the gateway may keep.
//!
//! Owns: that they are all there and in their order, that a transaction goes on with other statements meanwhile, and that
//! nothing is left behind whatever ends it. That each answer is PostgreSQL's is in `differential/cursors.sql`.

use anyhow::{Context, Result, ensure};
use tutti_gateway::{Config, DefaultDistribution, Switches};
use tutti_tests::client::{Client, Flight, Request};
use tutti_tests::conversation;
use tutti_tests::gateway::{TestCluster, config};
use tutti_tests::servers;

/// A cluster of two nodes whose gateway keeps 1 MiB of rows, and fails where more than 4 MiB would have to be kept.
fn start() -> Result<TestCluster> {
    let servers = servers::start(2)?;
    let switches = Switches {
        check_plans: true,
        kept_bytes_max: 1 << 20,
        travelling_bytes_max: 4 << 20,
        ..Switches::default()
    };
    let default_distribution = DefaultDistribution::RoundRobin;
    let config = Config { switches, default_distribution, ..config(&servers, String::new()) };
    TestCluster::start_configured(servers, config)
}

fn run(client: &mut Client, statements: &[&str]) -> Result<()> {
    for sql in statements {
        let answer = client.simple(sql, b"")?;
        ensure!(answer.error().is_none(), "{sql}\n{answer}");
    }
    Ok(())
}

fn state(client: &mut Client, sql: &str) -> Result<String> {
    let answer = client.simple(sql, b"")?;
    Ok(answer.error().map(|error| error.sqlstate().to_owned()).unwrap_or_default())
}

/// The cursor is not there: node 1 says so, and is then asked something else, for it is looked at what it was asked last.
fn ensure_gone(client: &mut Client) -> Result<()> {
    assert_eq!(state(client, "FETCH 5 FROM c")?, "34000");
    run(client, &["ROLLBACK"])?;
    client.value("SELECT count(*) FROM pg_class").map(drop)
}

/// Backends that have temporary tables with rows. (Those of a transaction that is open are seen by nobody else, but the
/// backend is in one, and that was the last it was told.)
const HOLDS_ROWS: &str = "query LIKE '%tutti\\_spool%' OR query LIKE '%tutti\\_rows\\_%' OR query LIKE 'DECLARE c%' \
     OR query LIKE 'FETCH %c'";

const ROWS: u32 = 15_000;

/// About 15 MB.
fn fill(client: &mut Client) -> Result<()> {
    fill_placed(client, "DISTRIBUTE BY HASH (k)")
}

fn fill_placed(client: &mut Client, placement: &str) -> Result<()> {
    run(client, &[&format!("CREATE TABLE wide (k int PRIMARY KEY, g int, pad text) {placement}")])?;
    let pad = "x\"\\\\t,()".repeat(120);
    let data: String = (0..ROWS).map(|k| format!("{k}\t{}\t{pad}{k}\n", k % 701)).collect();
    let copied = client.simple("COPY wide FROM STDIN", data.as_bytes())?;
    ensure!(copied.error().is_none(), "{copied}");
    run(client, &["ANALYZE"])
}

/// What the client has of a portal or cursor: keys, and how long the rest is.
#[derive(Debug, Default, PartialEq)]
struct Sum {
    rows: u64,
    keys: i64,
    bytes: usize,
    /// Each key follows the one before.
    is_in_order: bool,
}

impl Sum {
    fn whole(client: &mut Client) -> Result<Self> {
        let value = client
            .value("SELECT count(*) || ' ' || sum(k) || ' ' || sum(length(pad)) FROM wide")?;
        let mut words = value.split(' ');
        let mut next = || words.next().context("three words");
        Ok(Self {
            rows: next()?.parse()?,
            keys: next()?.parse()?,
            bytes: next()?.parse()?,
            is_in_order: true,
        })
    }

    fn of(rows: &[Vec<Option<String>>]) -> Result<Self> {
        let mut sum = Self { is_in_order: true, ..Self::default() };
        let mut before = -1;
        for row in rows {
            let [Some(key), Some(pad)] = &row[..] else { anyhow::bail!("{row:?}") };
            let key: i64 = key.parse()?;
            sum.is_in_order &= before < key;
            before = key;
            (sum.rows, sum.keys, sum.bytes) = (sum.rows + 1, sum.keys + key, sum.bytes + pad.len());
        }
        Ok(sum)
    }
}

#[test]
fn portals_hand_out_far_more_than_is_kept() -> Result<()> {
    let cluster = start()?;
    let mut client = Client::connect(&cluster.endpoint())?;
    fill(&mut client)?;
    let expected = Sum::whole(&mut client)?;
    for (sql, is_ordered) in [
        ("SELECT k::text, pad FROM wide", false),
        ("SELECT k::text, pad FROM wide ORDER BY wide.k", true),
    ] {
        for around in
            [["", ""], ["BEGIN", "COMMIT"], ["BEGIN ISOLATION LEVEL SERIALIZABLE", "COMMIT"]]
        {
            run(&mut client, &around[..1])?;
            let request = Request { sql, row_limit: 400, ..Request::default() };
            let answer = client.extended(&request, Flight::TwoFlights, b"")?;
            ensure!(answer.error().is_none(), "{answer}");
            let mut sum = Sum::of(&answer.texts())?;
            ensure!(!is_ordered || sum.is_in_order, "{sql}");
            sum.is_in_order = true;
            assert_eq!(sum, expected, "{sql}");
            run(&mut client, &around[1..])?;
            cluster.ensure_no_backend_where(HOLDS_ROWS)?;
        }
    }
    // What a row cannot be computed of ends the statement.
    let wrong = "SELECT k, pad || 1 / (k - 14000) FROM wide ORDER BY k";
    let request = Request { sql: wrong, row_limit: 400, ..Request::default() };
    let answer = client.extended(&request, Flight::TwoFlights, b"")?;
    ensure!(answer.error().is_some_and(|error| error.sqlstate() == "22012"), "{answer}");
    cluster.ensure_no_backend_where(HOLDS_ROWS)
}

/// Fetches so many rows at a time until there are no more; between these, `between`.
fn fetch_all(client: &mut Client, between: &[&str]) -> Result<Vec<Vec<Option<String>>>> {
    let mut all = Vec::new();
    loop {
        let rows = client.query("FETCH 1000 FROM c")?;
        if rows.is_empty() {
            return Ok(all);
        }
        all.extend(rows);
        run(client, between)?;
    }
}

#[test]
fn cursors_give_far_more_than_is_kept() -> Result<()> {
    let cluster = start()?;
    let mut client = Client::connect(&cluster.endpoint())?;
    fill(&mut client)?;
    let expected = Sum::whole(&mut client)?;
    let query = "SELECT k, pad FROM wide ORDER BY k";
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        run(&mut client, &[&format!("BEGIN ISOLATION LEVEL {level}")])?;
        run(&mut client, &[&format!("DECLARE c CURSOR FOR {query}")])?;
        // What is written meanwhile is not seen, and the transaction commits on both nodes.
        let between =
            ["UPDATE wide SET pad = pad || '!' WHERE g = 5", "DELETE FROM wide WHERE k = 14999"];
        let rows = fetch_all(&mut client, &between)?;
        assert_eq!(Sum::of(&rows)?, expected, "{level}");
        run(&mut client, &["ROLLBACK"])?;
        cluster.ensure_no_backend_where(HOLDS_ROWS)?;
    }
    run(&mut client, &["BEGIN", &format!("DECLARE c CURSOR FOR {query}"), "FETCH 5 FROM c"])?;
    run(&mut client, &["UPDATE wide SET g = g + 0 WHERE k < 50", "COMMIT"])?;
    ensure_gone(&mut client)?;
    cluster.ensure_no_backend_where(HOLDS_ROWS)?;
    // All directions, and binary rows by the extended protocol.
    run(&mut client, &["BEGIN", &format!("DECLARE c SCROLL CURSOR FOR {query}")])?;
    let last = client.query("FETCH LAST FROM c")?;
    assert_eq!(Sum::of(&last)?.keys, i64::from(ROWS) - 1);
    let rows = client.query("FETCH BACKWARD 3 FROM c")?;
    assert_eq!(rows[2][0].as_deref(), Some("14996"));
    let request = Request { sql: "FETCH ABSOLUTE 7777 FROM c", ..Request::default() };
    for flight in [Flight::OneFlight, Flight::TwoFlights] {
        let answer = client.extended(&request, flight, b"")?;
        let rows = answer.texts();
        let pad = rows.first().and_then(|row| row.last()?.as_deref());
        ensure!(pad.is_some_and(|pad| pad.ends_with(")7776")), "{answer}");
    }
    run(
        &mut client,
        &["CLOSE c", &format!("DECLARE c CURSOR FOR {query}"), "FETCH c", "CLOSE ALL"],
    )?;
    cluster.ensure_no_backend_where(HOLDS_ROWS)?;
    run(&mut client, &["COMMIT"])
}

/// Drivers ask by messages what a cursor's columns are, and may take its rows by them too.
#[test]
fn cursors_are_portals_of_the_protocol() -> Result<()> {
    let alone = servers::start(1)?;
    let cluster = start()?;
    let endpoints = [servers::endpoint(&alone, 0), cluster.endpoint()];
    for (endpoint, placement) in endpoints.iter().zip(["", "DISTRIBUTE BY HASH (k)"]) {
        fill_placed(&mut Client::connect(endpoint)?, placement)?;
    }
    let query = "CURSOR WITH HOLD FOR SELECT k, right(pad, 9) FROM wide ORDER BY k";
    let rows = "D P c\nS\n--\nE c|3\nE c|2\nD P c\nS\n--\nQ FETCH c\n--\nQ SET TimeZone = 'UTC'\n--\nE c|1\nS\n--\n\
        P |SELECT $1::int\nB ||4\nE c|1\nE |0\nE c|1\nS\n--\nQ MOVE 14988 IN c\n--\nE c|2\nE c|0\nE c|0\nS\n--\n";
    let ends = [
        "C P c\nS\n--\nD P c\nS\n--\nQ ROLLBACK",
        "Q SELECT 1 / 0\n--\nD P c\nS\n--\nE c|1\nS\n--\nC P c\nS\n--\nQ ROLLBACK\n--\nE c|1\nS",
        "Q COMMIT\n--\nD P c\nE c|1\nS\n--\nQ FETCH c\n--\nQ CLOSE c\n--\nE c|1\nS",
        "C P c\nE c|1\nS\n--\nQ ROLLBACK",
    ];
    for (query, end) in ["BINARY ", ""].iter().flat_map(|binary| {
        let scrolls =
            [format!("DECLARE c {binary}{query}"), format!("DECLARE c {binary}SCROLL {query}")];
        let held = scrolls.clone().map(|declare| format!("Q {declare}\n--\nQ BEGIN"));
        let within = scrolls.map(|declare| format!("Q BEGIN\n--\nQ {declare}"));
        let brief = within.clone().map(|declare| declare.replace(" WITH HOLD", ""));
        let all: Vec<_> = held.into_iter().chain(within).chain(brief).collect();
        all.into_iter().flat_map(|declare| ends.map(|end| (declare.clone(), end)))
    }) {
        let text = format!("{query}\n--\n{rows}{end}");
        let [expected, found] = endpoints.each_ref().map(|endpoint| {
            let mut said = conversation::hold(&mut Client::connect(endpoint)?, &text)?;
            // When it is told that an error has undone a setting is another matter.
            said.retain(|line| !line.starts_with("ParameterStatus"));
            anyhow::Ok(said)
        });
        assert_eq!(found?, expected?, "{text}");
    }
    cluster.ensure_no_backend_where(HOLDS_ROWS)
}

#[test]
fn held_cursors_outlive_their_transaction() -> Result<()> {
    let cluster = start()?;
    let mut client = Client::connect(&cluster.endpoint())?;
    fill(&mut client)?;
    let expected = Sum::whole(&mut client)?;
    let query = "SELECT k, pad FROM wide ORDER BY k";
    let declare = format!("DECLARE c CURSOR WITH HOLD FOR {query}");
    let change = "UPDATE wide SET g = g + 1 WHERE k < 10";
    for around in [["", ""], ["BEGIN", "COMMIT"]] {
        run(&mut client, &[around[0], &declare, change, around[1]])?;
        let rows = fetch_all(&mut client, &[change])?;
        assert_eq!(Sum::of(&rows)?, expected, "{around:?}");
        run(&mut client, &["CLOSE c"])?;
        cluster.ensure_no_backend_where(HOLDS_ROWS)?;
    }
    run(&mut client, &["BEGIN", &declare, change, "ROLLBACK"])?;
    ensure_gone(&mut client)?;
    run(&mut client, &["BEGIN", "SAVEPOINT s", &declare, "ROLLBACK TO s"])?;
    ensure_gone(&mut client)?;
    cluster.ensure_no_backend_where(HOLDS_ROWS)?;
    // Its rows are computed by COMMIT, which fails with them.
    let wrong = "DECLARE c CURSOR WITH HOLD FOR SELECT 1 / (k - 14000), pad FROM wide ORDER BY k";
    run(&mut client, &["BEGIN", "UPDATE wide SET g = -7 WHERE k < 10", wrong])?;
    assert_eq!(state(&mut client, "COMMIT")?, "22012");
    assert_eq!(client.value("SELECT count(*) FROM wide WHERE g = -7")?, "0");
    ensure_gone(&mut client)?;
    run(&mut client, &["BEGIN", &declare])?;
    assert_eq!(state(&mut client, "PREPARE TRANSACTION 'p'")?, "0A000");
    run(&mut client, &["ROLLBACK"])?;
    run(&mut client, &[&declare, "FETCH c", "DISCARD ALL"])?;
    ensure_gone(&mut client)?;
    cluster.ensure_no_backend_where(HOLDS_ROWS)
}

#[test]
fn tables_are_filled_in_portions() -> Result<()> {
    let cluster = start()?;
    let mut client = Client::connect(&cluster.endpoint())?;
    fill(&mut client)?;
    let expected = Sum::whole(&mut client)?;
    let of = |client: &mut Client, table: &str| {
        client.value(&format!(
            "SELECT count(*) || ' ' || sum(k) || ' ' || sum(length(pad)) FROM {table}"
        ))
    };
    let expected = format!("{} {} {}", expected.rows, expected.keys, expected.bytes);
    for (table, sql) in [
        ("one", "CREATE TABLE one AS SELECT * FROM wide"),
        ("two", "SELECT k, pad INTO two FROM wide"),
        ("three", "CREATE TABLE three DISTRIBUTE BY HASH (k) AS SELECT k + 0 AS k, pad FROM wide"),
    ] {
        let answer = client.simple(sql, b"")?;
        ensure!(answer.to_string().contains("SELECT 15000"), "{answer}");
        assert_eq!(of(&mut client, table)?, expected, "{sql}");
        cluster.ensure_no_backend_where(HOLDS_ROWS)?;
    }
    // From itself: what is there already is read before.
    let answer = client.simple("INSERT INTO three SELECT k + 20000, pad FROM three", b"")?;
    ensure!(answer.to_string().contains("INSERT 0 15000"), "{answer}");
    assert_eq!(client.value("SELECT count(*) || ' ' || max(k) FROM three")?, "30000 34999");
    // To one node, and from it.
    run(&mut client, &["CREATE TABLE home DISTRIBUTE BY HOME AS SELECT k, pad FROM wide"])?;
    assert_eq!(of(&mut client, "home")?, expected);
    run(&mut client, &["INSERT INTO three SELECT k + 40000, pad FROM home"])?;
    assert_eq!(client.value("SELECT count(*) FROM three")?, "45000");
    // All of it, or nothing.
    run(
        &mut client,
        &["DELETE FROM three WHERE k <> 14999", "ALTER TABLE three ADD PRIMARY KEY (k)"],
    )?;
    for around in [["", ""], ["BEGIN", "ROLLBACK"]] {
        run(&mut client, &around[..1])?;
        let again = "INSERT INTO three SELECT k, pad FROM wide";
        assert_eq!(state(&mut client, again)?, "23505");
        run(&mut client, &around[1..])?;
        assert_eq!(client.value("SELECT count(*) FROM three")?, "1");
    }
    cluster.ensure_no_backend_where(HOLDS_ROWS)
}

#[test]
fn whatever_ends_it_leaves_nothing_behind() -> Result<()> {
    let cluster = start()?;
    let mut client = Client::connect(&cluster.endpoint())?;
    fill(&mut client)?;
    // Its rows take long, and a time limit ends that.
    let slow = "DECLARE c CURSOR FOR SELECT a.k, a.pad FROM wide a, wide b WHERE a.pad < b.pad AND b.pad || 'z' < a.pad";
    run(&mut client, &["BEGIN", slow, "SAVEPOINT s", "SET LOCAL statement_timeout = 700"])?;
    ensure!(0 < cluster.backends_where(HOLDS_ROWS)?, "the cursor is not where it is looked for");
    assert_eq!(state(&mut client, "FETCH ALL FROM c")?, "57014");
    run(&mut client, &["ROLLBACK TO s"])?;
    assert_eq!(state(&mut client, "FETCH 1 FROM c")?, "55000");
    run(&mut client, &["ROLLBACK TO s"])?;
    assert_eq!(client.value("SELECT count(*) FROM wide")?, ROWS.to_string());
    run(&mut client, &["COMMIT"])?;
    cluster.ensure_no_backend_where(HOLDS_ROWS)?;
    let slow = "DECLARE c CURSOR FOR SELECT k, pad FROM wide ORDER BY k";
    // A client that is gone.
    for declare in [slow, "DECLARE c CURSOR WITH HOLD FOR SELECT k, pad FROM wide ORDER BY k"] {
        let mut lost = Client::connect(&cluster.endpoint())?;
        run(&mut lost, &["BEGIN", declare, "FETCH 3 FROM c"])?;
        ensure!(0 < cluster.backends_where(HOLDS_ROWS)?);
        drop(lost);
        cluster.ensure_no_backend_where(HOLDS_ROWS)?;
    }
    // The rows of a portal that nobody asks for any more.
    let mut lost = Client::connect(&cluster.endpoint())?;
    run(&mut lost, &["BEGIN"])?;
    let mut out = bytes::BytesMut::new();
    use tutti_wire::frontend::{Arguments, put_bind, put_execute, put_flush, put_parse};
    put_parse(&mut out, "", "SELECT k, pad FROM wide", &[]);
    put_bind(&mut out, "p", "", &Arguments::default());
    put_execute(&mut out, "p", 2);
    put_flush(&mut out);
    lost.send_bytes(&out)?;
    while lost.receive().context("two rows")?.tag() != b's' {}
    ensure!(0 < cluster.backends_where(HOLDS_ROWS)?, "the portal is not where it is looked for");
    drop(lost);
    cluster.ensure_no_backend_where(HOLDS_ROWS)
}

/// Rows of all sizes: each portion ends within one, and what is left of it has another size each time.
#[test]
fn rows_of_all_sizes_wait_in_their_order() -> Result<()> {
    const SIZES: &str = "SELECT k, repeat('1', (hashint4(k) & 4095) % 1900) FROM wide";
    let mut cluster = start()?;
    let mut client = Client::connect(&cluster.endpoint())?;
    run(
        &mut client,
        &[
            "CREATE TABLE wide (k int PRIMARY KEY) DISTRIBUTE BY HASH (k)",
            "INSERT INTO wide SELECT g FROM generate_series(1, 60000) AS g",
            "CREATE TABLE copied (k int, m text) DISTRIBUTE BY ROUND ROBIN",
            &format!("INSERT INTO copied {SIZES}"),
        ],
    )?;
    let sum =
        |of: &str| format!("SELECT count(*) || ' ' || sum(k) || ' ' || sum(length(m)) FROM {of}");
    let expected = client.value(&sum(&format!("({SIZES}) AS q (k, m)")))?;
    ensure!(client.value(&sum("copied"))? == expected, "rows were lost: {expected}");
    let request = Request { sql: SIZES, types: &[], arguments: &[], row_limit: 5000 };
    client.query("BEGIN")?;
    let answer = client.extended(&request, Flight::OneFlight, b"")?;
    ensure!(answer.error().is_none(), "{:?}", answer.error());
    let rows = answer.texts();
    let number = |row: &Vec<Option<String>>| row[0].as_deref().unwrap_or_default().parse::<i64>();
    let keys: i64 = rows.iter().map(number).sum::<Result<_, _>>()?;
    let bytes: usize = rows.iter().map(|row| row[1].as_deref().map_or(0, str::len)).sum();
    ensure!(
        format!("{} {keys} {bytes}", rows.len()) == expected,
        "{} rows, {expected}",
        rows.len()
    );
    client.query("COMMIT")?;
    drop(client);
    cluster.ensure_no_backend_where(HOLDS_ROWS)?;
    cluster.stop_gateway()
}

/// What a session has set applies to the next FETCH, whoever may set what.
#[test]
fn settings_follow_to_cursors_of_any_role() -> Result<()> {
    let mut cluster = start()?;
    let mut owner = Client::connect(&cluster.endpoint())?;
    fill(&mut owner)?;
    run(&mut owner, &["CREATE ROLE joe LOGIN", "GRANT SELECT ON wide TO joe"])?;
    let mut client = Client::connect_as(&cluster.endpoint(), "joe")?;
    run(
        &mut client,
        &[
            "BEGIN",
            "DECLARE c CURSOR FOR SELECT timestamptz '2026-01-01 00:00+00', k, pad FROM wide ORDER BY k",
        ],
    )?;
    ensure!(0 < cluster.backends_where(HOLDS_ROWS)?, "the rows are in the gateway");
    for (zone, shown) in
        [("UTC", "2026-01-01 00:00:00+00"), ("Asia/Tokyo", "2026-01-01 09:00:00+09")]
    {
        run(&mut client, &[&format!("SET TimeZone = '{zone}'"), "SET my.own = 'it'"])?;
        let rows = client.query("FETCH 1 FROM c")?;
        ensure!(rows[0][0].as_deref() == Some(shown), "{zone}: {:?}", rows[0][0]);
    }
    run(&mut client, &["COMMIT"])?;
    drop(client);
    cluster.ensure_no_backend_where(HOLDS_ROWS)?;
    cluster.stop_gateway()
}
