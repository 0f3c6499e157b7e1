//! `tutti_sql::hash` against the hash functions of a real PostgreSQL.
//!
//! Owns: for every key type, that a bucket told by the gateway is the server's, from text, from
//! binary and in SQL, by hash and by range; and that a value is never told a bucket when the server means another one.
//! Start reading at [`Probe`].

use anyhow::{Context, Result};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};
use tutti_sql::hash::{Bucket, Bucketing, CannotHash, KeyType, Splits};
use tutti_tests::servers;

/// Random values of each type that are compared in one query.
const VALUES_RANDOM: usize = 2_000;
/// Random spellings of each type, right and wrong ones, that are tried one by one.
const SPELLINGS_RANDOM: usize = 400;

/// What is known of a type here: its names, edge values, and how to make values up.
struct Probe {
    key_type: KeyType,
    sql_type: &'static str,
    send: &'static str,
    /// All of these must be given a bucket.
    values: &'static [&'static str],
    /// Correct or not, and perhaps left to the server.
    spellings: &'static [&'static str],
    /// A value that must be given a bucket.
    random: fn(&mut StdRng) -> String,
}

const PROBES: [Probe; 18] = [
    Probe {
        key_type: KeyType::Bool,
        sql_type: "boolean",
        send: "boolsend",
        values: &["true", "false", "t", "f", "YES", "no", "on", "of", "1", "0", " tr "],
        spellings: &["", "o", "01", "truest", "null", "ye s"],
        random: |rng| rng.random::<bool>().to_string(),
    },
    Probe {
        key_type: KeyType::Int2,
        sql_type: "int2",
        send: "int2send",
        values: &["0", "-0", "1", "-1", "32767", "-32768", " 00012 ", "+7"],
        spellings: &["", "32768", "0x1F", "1_000", "1.0", "1e2", "- 1", "--1"],
        random: |rng| rng.random::<i16>().to_string(),
    },
    Probe {
        key_type: KeyType::Int4,
        sql_type: "int4",
        send: "int4send",
        values: &["0", "1", "-1", "2147483647", "-2147483648", "\t\n42\r"],
        spellings: &["2147483648", "1 2", "0b1", "4 _2", "\u{a0}1"],
        random: |rng| rng.random::<i32>().to_string(),
    },
    Probe {
        key_type: KeyType::Int8,
        sql_type: "int8",
        send: "int8send",
        values: &["0", "-1", "4294967296", "9223372036854775807", "-9223372036854775808"],
        spellings: &["9223372036854775808", "-9223372036854775809", "0o17", "+"],
        random: |rng| (rng.random::<i64>() >> rng.random_range(0..64)).to_string(),
    },
    Probe {
        key_type: KeyType::Oid,
        sql_type: "oid",
        send: "oidsend",
        values: &["0", "1", "2147483648", "4294967295", " 7 "],
        spellings: &["-1", "010", "4294967296", "0x10", "", "+1", "-4294967295"],
        random: |rng| rng.random::<u32>().to_string(),
    },
    Probe {
        key_type: KeyType::Text,
        sql_type: "text",
        send: "textsend",
        values: &["", " ", "a", "abcdefghijk", "abcdefghijkl", "abcdefghijklm", "Ünïcödé €𝄞"],
        spellings: &["\\", "\\x41"],
        random: random_text,
    },
    Probe {
        key_type: KeyType::Varchar,
        sql_type: "varchar",
        send: "varcharsend",
        values: &["", "a ", "ß"],
        spellings: &[],
        random: random_text,
    },
    Probe {
        key_type: KeyType::Bpchar,
        sql_type: "bpchar",
        send: "bpcharsend",
        values: &["", "   ", "a", "a  ", " a ", "a\t "],
        spellings: &[],
        random: random_text,
    },
    Probe {
        key_type: KeyType::Name,
        sql_type: "name",
        send: "namesend",
        values: &["", "a", "a ", "pg_class"],
        spellings: &[
            "sixty-four bytes, which is one more than what a name is able to..",
            "sixty-three bytes of a name, which is the longest one there is.",
        ],
        random: |rng| random_text(rng).chars().take(15).collect(),
    },
    Probe {
        key_type: KeyType::Bytea,
        sql_type: "bytea",
        send: "byteasend",
        values: &["", "\\x", "\\xDEADbeef", "\\x de ad", "a\\\\b\\000\\377", "é"],
        spellings: &["\\xd", "\\xd e", "\\x0g", "\\", "\\1", "\\400", "\\X00", " \\x00"],
        random: |rng| {
            let bytes = (0..rng.random_range(0..40)).map(|_| format!("{:02x}", rng.random::<u8>()));
            format!("\\x{}", bytes.collect::<String>())
        },
    },
    Probe {
        key_type: KeyType::Uuid,
        sql_type: "uuid",
        send: "uuid_send",
        values: &[
            "00000000-0000-0000-0000-000000000000",
            "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
            "{a0eebc999c0b4ef8bb6d6bb9bd380a11}",
            "a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11",
        ],
        spellings: &[
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1",
            " a0eebc999c0b4ef8bb6d6bb9bd380a11",
            "a0eebc999c0b4ef8bb6d6bb9bd380a11-",
            "{a0eebc999c0b4ef8bb6d6bb9bd380a11",
            "a0-eebc999c0b4ef8bb6d6bb9bd380a11",
        ],
        random: |rng| {
            let hex = format!("{:032x}", rng.random::<u128>());
            [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
        },
    },
    Probe {
        key_type: KeyType::Date,
        sql_type: "date",
        send: "date_send",
        values: &["2000-01-01", "1999-12-31", "2024-02-29", "0001-01-01", "9999-12-31", "infinity"],
        spellings: &[
            "2023-02-29",
            "1900-02-29",
            "0000-01-01",
            "1-2-3",
            "today",
            "January 8, 1999",
            "-infinity",
            "2020-01-31 BC",
            "20200131",
            "2020-001",
            "2020-13-01",
            " 2020-01-31 ",
            "epoch",
        ],
        random: random_date,
    },
    Probe {
        key_type: KeyType::Time,
        sql_type: "time",
        send: "time_send",
        values: &["00:00", "23:59:59.999999", "12:34:56", "01:02:03.4"],
        spellings: &[
            "24:00:00",
            "23:59:60",
            "12",
            "1:2",
            "12:00 PM",
            "allballs",
            "12:00:00.1234567",
        ],
        random: random_time,
    },
    Probe {
        key_type: KeyType::Timestamp,
        sql_type: "timestamp",
        send: "timestamp_send",
        values: &[
            "2000-01-01",
            "1999-12-31 23:59:59.999999",
            "2020-01-31T10:00",
            "infinity",
            "-infinity",
        ],
        spellings: &["now", "2020-01-31 10:00+02", "2020-01-31 24:00:00", "2020-01-31  10:00", "x"],
        random: |rng| format!("{} {}", random_date(rng), random_time(rng)),
    },
    Probe {
        key_type: KeyType::Timestamptz,
        sql_type: "timestamptz",
        send: "timestamptz_send",
        values: &[
            "2000-01-01 00:00:00+00",
            "2020-01-31T10:00:00.5-05:30",
            "0001-01-01 00:00+14",
            "9999-12-31 23:59:59.999999-14",
            "infinity",
            "2020-06-01 00:00:00+0530",
        ],
        spellings: &[
            "2020-01-31",
            "2020-01-31 10:00",
            "2020-01-31 10:00Z",
            "2020-01-31 10:00+15:59",
            "2020-01-31 10:00 Europe/Berlin",
            "2020-01-31 10:00:00-5",
        ],
        random: |rng| {
            let offset = rng.random_range(-14..=14);
            format!("{} {}{offset:+03}", random_date(rng), random_time(rng))
        },
    },
    Probe {
        key_type: KeyType::Numeric,
        sql_type: "numeric",
        send: "numeric_send",
        values: &[
            "0",
            "-0.000",
            "1",
            "1.0",
            "1e0",
            "10000",
            "1e4",
            "0.0001",
            "1e-4",
            ".5",
            "5.",
            "NaN",
            "Infinity",
            "-inf",
            "99999999999999999999.99999999",
            " -12345.6780 ",
            "1e1000",
            "1e-1000",
            "123456789012345678901234567890e-7",
            "00100.00100",
        ],
        spellings: &[
            "", ".", "e5", "1e", "1e+", "0x1F", "1_000", "+nan", "--1", "1 2", "infinit", "1e2000",
            "1e-17000", "1.2.3",
        ],
        random: |rng| {
            let digits: i128 = rng.random::<i128>() >> rng.random_range(0..128);
            match rng.random_range(0..3) {
                0 => format!("{digits}e{}", rng.random_range(-60..60)),
                1 => format!("{digits}.{:04}00", rng.random_range(0..10_000)),
                _ => format!("{}", digits % 100_000_000),
            }
        },
    },
    Probe {
        key_type: KeyType::Float4,
        sql_type: "float4",
        send: "float4send",
        values: &["0", "-0", "1.5", "0.1", "NaN", "inf", "-Infinity", "3.4028235e38", "1e-45"],
        spellings: &[
            "1e39",
            "1e-46",
            "",
            "0x1p3",
            "1_0",
            "nan(1)",
            "-nan",
            "infinit",
            "3.4028236e38",
        ],
        random: |rng| f32::from_bits(rng.random::<u32>()).to_string(),
    },
    Probe {
        key_type: KeyType::Float8,
        sql_type: "float8",
        send: "float8send",
        values: &[
            "0",
            "-0.0",
            "1.5",
            " 1e10 ",
            "nan",
            "+inf",
            "-inf",
            "5e-324",
            "1.7976931348623157e308",
        ],
        spellings: &["1e309", "1e-400", ".", "1e", "0x10", "1d5", "1.5f", "+nan", "0e999999"],
        random: |rng| f64::from_bits(rng.random::<u64>()).to_string(),
    },
];

fn random_text(rng: &mut StdRng) -> String {
    let alphabet = ['a', 'B', '7', ' ', '\t', 'é', '€', '𝄞', '\\', '\''];
    (0..rng.random_range(0..40)).map(|_| alphabet[rng.random_range(0..alphabet.len())]).collect()
}

fn random_date(rng: &mut StdRng) -> String {
    let year =
        if rng.random() { rng.random_range(1..=9999) } else { rng.random_range(1990..=2040) };
    format!("{year:04}-{:02}-{:02}", rng.random_range(1..=12), rng.random_range(1..=28))
}

fn random_time(rng: &mut StdRng) -> String {
    let (hour, minute, second) =
        (rng.random_range(0..24), rng.random_range(0..60), rng.random_range(0..60));
    match rng.random_range(0..3) {
        0 => format!("{hour:02}:{minute:02}"),
        1 => format!("{hour:02}:{minute:02}:{second:02}"),
        _ => format!("{hour:02}:{minute:02}:{second:02}.{:06}", rng.random_range(0..1_000_000)),
    }
}

/// A value with a character or two changed, so that it is nearly one.
fn garbled(rng: &mut StdRng, value: &str) -> String {
    let alphabet: Vec<char> = "0159-+.:eExXTZ_ \\{}nNaAiftyo'\t".chars().collect();
    let mut characters: Vec<char> = value.chars().collect();
    for _ in 0..rng.random_range(1..=2) {
        let at = rng.random_range(0..=characters.len());
        let character = alphabet[rng.random_range(0..alphabet.len())];
        match rng.random_range(0..3) {
            0 => characters.insert(at, character),
            1 if at < characters.len() => characters[at] = character,
            _ if at < characters.len() => drop(characters.remove(at)),
            _ => characters.push(character),
        }
    }
    characters.into_iter().collect()
}

/// The server's bucket of `value`, independent of [`Bucketing::sql_bucket`]: an array of one element
/// hashes as 31 and the element's hash.
fn hash_on_server(value: &str) -> String {
    format!("((hash_array_extended(array[{value}], 0) & 1023) + 1024 - 31) & 1023")
}

async fn connect(port: u16) -> Result<Client> {
    let address = format!("host=127.0.0.1 port={port} user=postgres dbname=postgres");
    let (client, connection) = tokio_postgres::connect(&address, NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute("SET timezone = 'UTC'; SET datestyle = 'ISO, DMY'").await?;
    Ok(client)
}

fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// The first column of the only row as a bucket, or `None` if the server refuses the statement.
async fn bucket_on_server(client: &Client, sql: &str) -> Result<Option<Bucket>> {
    match client.simple_query(sql).await {
        Err(error) if error.as_db_error().is_some() => Ok(None),
        Err(error) => Err(error).context(sql.to_owned()),
        Ok(messages) => {
            let row = messages.iter().find_map(|message| match message {
                SimpleQueryMessage::Row(row) => row.get(0),
                _ => None,
            });
            Ok(Some(Bucket(row.context("no row")?.parse()?)))
        }
    }
}

#[tokio::test]
async fn buckets_are_the_servers() -> Result<()> {
    let server = servers::start(1)?;
    let client = connect(server.server(0).port()).await?;
    let mut rng = StdRng::seed_from_u64(1);
    for probe in &PROBES {
        values_agree(&client, probe, &mut rng).await?;
        spellings_are_never_misread(&client, probe, &mut rng).await?;
        null_is_bucket_zero(&client, probe).await?;
    }
    for probe in PROBES.iter().filter(|probe| probe.key_type.ordered_as().is_some()) {
        ranges_agree(&client, probe, &mut rng).await?;
    }
    for (definition, texts) in STORED {
        stored_values_agree(&client, definition, texts, &mut rng).await?;
    }
    Ok(())
}

/// Every good value has the server's bucket: from its text as sent and as the server writes it,
/// from its binary form, and from SQL.
async fn values_agree(client: &Client, probe: &Probe, rng: &mut StdRng) -> Result<()> {
    let Probe { key_type, sql_type, send, .. } = probe;
    let mut values: Vec<String> = probe.values.iter().map(|value| (*value).to_owned()).collect();
    values.extend((0..VALUES_RANDOM).map(|_| (probe.random)(rng)));

    let query = format!(
        "select s, v::text, encode({send}(v), 'hex'), {}, {} \
         from (select s, s::{sql_type} as v from unnest($1::text[]) s) t",
        hash_on_server("v"),
        Bucketing::Hash.sql_bucket(*key_type, "t.\"v\""),
    );
    let rows = client.query(&query, &[&values]).await?;
    assert_eq!(rows.len(), values.len());
    let mut left_to_server = 0;
    for row in &rows {
        let (sent, written, hex): (&str, &str, &str) = (row.get(0), row.get(1), row.get(2));
        let expected = Ok(Bucket(u16::try_from(row.get::<_, i64>(3))?));
        let in_sql: i64 = row.get(4);
        let binary: Vec<u8> = (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16))
            .collect::<Result<_, _>>()?;
        assert_eq!(Ok(Bucket(u16::try_from(in_sql)?)), expected, "{sql_type} {sent:?} in SQL");
        assert_eq!(
            Bucketing::Hash.bucket_of_text(*key_type, sent),
            expected,
            "{sql_type} {sent:?}"
        );
        assert_eq!(
            Bucketing::Hash.bucket_of_binary(*key_type, &binary),
            expected,
            "{sql_type} {sent:?} {hex}"
        );
        match Bucketing::Hash.bucket_of_text(*key_type, written) {
            // Only a year before 1 or after 9999, which an offset can lead to.
            Err(CannotHash::NotCanonical) => left_to_server += 1,
            found => assert_eq!(found, expected, "{sql_type} {written:?} as written"),
        }
    }
    assert!(left_to_server < 5, "{sql_type}: {left_to_server} left to the server");
    Ok(())
}

/// Whatever is sent: a bucket is the server's, and what is called malformed the server refuses.
async fn spellings_are_never_misread(
    client: &Client,
    probe: &Probe,
    rng: &mut StdRng,
) -> Result<()> {
    let Probe { key_type, sql_type, .. } = probe;
    let mut spellings: Vec<String> =
        probe.spellings.iter().map(|spelling| (*spelling).to_owned()).collect();
    for _ in 0..SPELLINGS_RANDOM {
        let value = match probe.values.get(rng.random_range(0..2 * probe.values.len())) {
            Some(value) => (*value).to_owned(),
            None => (probe.random)(rng),
        };
        spellings.push(garbled(rng, &value));
    }
    for spelling in &spellings {
        let value = format!("{}::{sql_type}", literal(spelling));
        let sql = format!("select {}", hash_on_server(&value));
        let on_server = bucket_on_server(client, &sql).await?;
        match Bucketing::Hash.bucket_of_text(*key_type, spelling) {
            Ok(bucket) => assert_eq!(Some(bucket), on_server, "{sql_type} {spelling:?}"),
            Err(CannotHash::Malformed) => assert_eq!(on_server, None, "{sql_type} {spelling:?}"),
            Err(CannotHash::NotCanonical) => (),
        }
    }
    Ok(())
}

async fn null_is_bucket_zero(client: &Client, probe: &Probe) -> Result<()> {
    let value = format!("null::{}", probe.sql_type);
    let sql = format!("select {}", Bucketing::Hash.sql_bucket(probe.key_type, &value));
    assert_eq!(bucket_on_server(client, &sql).await?, Some(Bucket::OF_NULL), "{value}");
    Ok(())
}

/// Columns whose type modifier may change what is stored, and values on the edge of that.
const STORED: [(&str, &[&str]); 9] = [
    ("varchar(3)", &["abc", "ab ", "abc  ", "äöü", "äöüß", ""]),
    ("char(3)", &["a", "abc   ", "abcd", "äöü "]),
    ("char", &["a", "a ", "", "ab"]),
    ("numeric(8,2)", &["1.005", "1.2300", "0.004", "-0.005", "1e6", "NaN", "12.34"]),
    ("numeric(3,-2)", &["1250", "1200", "49", "50", "0"]),
    ("numeric(2,5)", &["0.00012", "0.000123", "0.00099", "1"]),
    ("timestamp(0)", &["2020-01-31 23:59:59.5", "2020-01-31 10:00:00.000", "infinity"]),
    ("timestamptz(3)", &["2020-01-31 23:59:59.1235+00", "1999-12-31 23:59:59.999-01"]),
    ("time(2)", &["23:59:59.999", "10:00:00.12", "10:00:00.125"]),
];

/// A value that goes into a column gets the bucket of what the column then holds.
async fn stored_values_agree(
    client: &Client,
    definition: &str,
    texts: &[&str],
    rng: &mut StdRng,
) -> Result<()> {
    client
        .batch_execute(&format!("drop table if exists t; create temp table t (k {definition})"))
        .await?;
    let column = client
        .query_one("select atttypid, atttypmod from pg_attribute where attrelid = 't'::regclass and attname = 'k'", &[])
        .await?;
    let key_type = KeyType::from_oid(column.get(0)).context("not a key type")?;
    let typmod: i32 = column.get(1);
    let probe = PROBES.iter().find(|probe| probe.key_type == key_type).context("no probe")?;

    let mut texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
    texts.extend((0..SPELLINGS_RANDOM).map(|_| match key_type {
        KeyType::Numeric => {
            format!("{}e{}", rng.random_range(-20_000..20_000), rng.random_range(-6..4))
        }
        KeyType::Varchar | KeyType::Bpchar => random_text(rng).chars().take(5).collect(),
        _ => (probe.random)(rng),
    }));
    let (mut told, mut left_to_server) = (0, 0);
    for text in &texts {
        let bucket_sql = Bucketing::Hash.sql_bucket(key_type, "k");
        let sql = format!("insert into t values ({}) returning {bucket_sql}", literal(text));
        let on_server = bucket_on_server(client, &sql).await?;
        match (Bucketing::Hash.bucket_of_stored_text(key_type, text, key_type, typmod), on_server) {
            // A value may still be out of the column's range.
            (Ok(_), None) => (),
            (Ok(bucket), Some(stored)) => {
                assert_eq!(bucket, stored, "{definition} {text:?}");
                told += 1;
            }
            (Err(_), _) => left_to_server += 1,
        }
    }
    assert!(0 < told && 0 < left_to_server, "{definition}: {told} told, {left_to_server} left");
    Ok(())
}

#[test]
fn every_key_type_is_probed() {
    for key_type in KeyType::ALL {
        assert!(PROBES.iter().any(|probe| probe.key_type == key_type), "{key_type:?}");
    }
}

/// Values begin ranges in the server's order, and each is in the range that the server's `width_bucket` says, from text,
/// from binary and in SQL.
async fn ranges_agree(client: &Client, probe: &Probe, rng: &mut StdRng) -> Result<()> {
    let Probe { key_type, sql_type, send, .. } = probe;
    let mut values: Vec<String> = probe.values.iter().map(|value| (*value).to_owned()).collect();
    values.extend((0..VALUES_RANDOM).map(|_| (probe.random)(rng)));
    let as_type = key_type.ordered_as().context("no order")?;
    let collation = if as_type == "text" { " collate \"C\"" } else { "" };
    let ordered = format!("(s::{sql_type}::{as_type}){collation}");
    let query = format!(
        "select v::text as text from (select distinct {ordered} as v from unnest($1::text[]) s) t order by v"
    );
    let in_order: Vec<String> =
        client.query(&query, &[&values]).await?.iter().map(|row| row.get(0)).collect();
    let is_read = |text: &&String| Bucketing::Hash.bucket_of_text(*key_type, text).is_ok();
    let texts: Vec<String> = in_order.iter().filter(is_read).cloned().collect();
    let every = texts.len().div_ceil(1_023).max(1);
    // All of a small type; not the least of a big one, so that something is below it.
    let texts: Vec<String> = texts.into_iter().skip(every - 1).step_by(every).collect();
    let splits = Splits::new(key_type.family(), texts.clone())?;
    let by = Bucketing::Range(splits.into());
    let query = format!(
        "select s, v::text, encode({send}(v), 'hex'), width_bucket((v::{as_type}){collation}, $2::text[]::{as_type}[]), {} \
         from (select s, s::{sql_type} as v from unnest($1::text[]) s) t",
        by.sql_bucket(*key_type, "t.\"v\""),
    );
    let rows = client.query(&query, &[&values, &texts]).await?;
    let mut used = std::collections::BTreeSet::new();
    for row in &rows {
        let (sent, written, hex): (&str, &str, &str) = (row.get(0), row.get(1), row.get(2));
        let expected = Bucket(u16::try_from(row.get::<_, i32>(3))?);
        used.insert(expected);
        let in_sql: i64 = row.get(4);
        let binary: Vec<u8> = (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16))
            .collect::<Result<_, _>>()?;
        assert_eq!(in_sql, i64::from(expected.0), "{sql_type} {sent:?} in SQL");
        assert_eq!(by.bucket_of_text(*key_type, sent), Ok(expected), "{sql_type} {sent:?}");
        assert_eq!(by.bucket_of_binary(*key_type, &binary), Ok(expected), "{sql_type} {hex}");
        let stored = by.bucket_of_stored_text(*key_type, sent, *key_type, -1);
        assert_eq!(stored, Ok(expected), "{sql_type} {sent:?} stored");
        match by.bucket_of_text(*key_type, written) {
            Err(CannotHash::NotCanonical) => (),
            found => assert_eq!(found, Ok(expected), "{sql_type} {written:?} as written"),
        }
    }
    assert!(3 < used.len(), "{sql_type}: {} ranges", used.len());
    let null = format!("select {}", by.sql_bucket(*key_type, &format!("null::{sql_type}")));
    assert_eq!(bucket_on_server(client, &null).await?, Some(Bucket::OF_NULL), "{sql_type}");
    Ok(())
}
