//! `tutti_wire::copy` against COPY of a real PostgreSQL.
//!
//! Owns: for odd streams in all formats, that rows and fields are what the server loads, that rows
//! mean the same when they are loaded apart from each other, and that appended fields arrive.
//! Start reading at [`Loaded`] and [`check_stream`].

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tutti_tests::answer::Outcome;
use tutti_tests::client::Client;
use tutti_tests::servers;
use tutti_wire::copy::{CopyError, CopyFormat, CopyPiece, RowSplitter};

/// Random streams for each set of options.
const STREAMS: usize = 600;

/// Options of COPY, as the planner hands them on and as SQL spells them.
const OPTIONS: [&[(&str, &str)]; 8] = [
    &[],
    &[("delimiter", "|"), ("null", "")],
    &[("null", "N"), ("header", "true")],
    &[("format", "csv")],
    &[("format", "csv"), ("quote", "'"), ("escape", "\\")],
    &[("format", "csv"), ("delimiter", "|"), ("header", "match")],
    &[("format", "csv"), ("null", "N"), ("force_null", "k"), ("force_not_null", "v")],
    &[("format", "csv"), ("null", "N"), ("force_null", "k"), ("force_null", "v")],
];

/// Rows as text values, in the order of the data.
type Rows = Vec<Vec<Option<String>>>;

/// What became of a stream: the rows and where it was cut, or why it cannot be cut.
struct Split {
    headers: Vec<Bytes>,
    rows: Vec<Bytes>,
    error: Option<CopyError>,
}

fn split(format: &CopyFormat, stream: &[u8], rng: &mut StdRng) -> Split {
    let mut splitter = RowSplitter::new(format);
    let mut split = Split { headers: Vec::new(), rows: Vec::new(), error: None };
    let mut rest = stream;
    loop {
        let (chunk, after) = rest.split_at(rng.random_range(0..=rest.len().min(20)));
        rest = after;
        splitter.push(Bytes::copy_from_slice(chunk));
        loop {
            match splitter.next_piece() {
                Ok(Some(piece)) => split.take(piece),
                Ok(None) => break,
                Err(error) => return Split { error: Some(error), ..split },
            }
        }
        if rest.is_empty() {
            break;
        }
    }
    match splitter.finish() {
        Ok(last) => last.into_iter().for_each(|piece| split.take(piece)),
        Err(error) => split.error = Some(error),
    }
    split
}

impl Split {
    fn take(&mut self, piece: CopyPiece) {
        match piece {
            CopyPiece::Header(bytes) => self.headers.push(bytes),
            CopyPiece::Row(bytes) => self.rows.push(bytes),
            CopyPiece::End(_) => (),
        }
    }

    /// The first fields of every row.
    fn fields(&self, format: &CopyFormat, count: usize) -> Result<Rows, CopyError> {
        let text = |value: std::borrow::Cow<'_, [u8]>| String::from_utf8_lossy(&value).into_owned();
        self.rows
            .iter()
            .map(|row| (0..count).map(|index| Ok(format.field(row, index)?.map(text))).collect())
            .collect()
    }
}

/// What the server made of a stream.
#[derive(Debug)]
enum Loaded {
    Rows(Rows),
    Refused(String),
}

fn load(client: &mut Client, columns: &str, options: &str, stream: &[u8]) -> Result<Loaded> {
    let sql = format!(
        "rollback; begin; copy t ({columns}) from stdin {options}; select {columns} from t order by id"
    );
    let answer = client.simple(&sql, stream)?;
    Ok(match answer.error() {
        Some(error) => Loaded::Refused(format!("{} {}", error.sqlstate(), error.message())),
        None => Loaded::Rows(answer.texts()),
    })
}

fn with_options(options: &[(&str, &str)]) -> String {
    if options.is_empty() {
        return String::new();
    }
    let mut parts: Vec<String> = options
        .iter()
        .filter(|(name, _)| !name.starts_with("force"))
        .map(|(name, value)| format!("{name} '{}'", value.replace('\'', "''")))
        .collect();
    for name in ["force_null", "force_not_null"] {
        let columns: Vec<&str> = options
            .iter()
            .filter(|(option, _)| *option == name)
            .map(|(_, column)| *column)
            .collect();
        if !columns.is_empty() {
            parts.push(format!("{name} ({})", columns.join(", ")));
        }
    }
    format!("with ({})", parts.join(", "))
}

/// A stream that is often right and always odd.
fn random_stream(options: &[(&str, &str)], rng: &mut StdRng) -> Vec<u8> {
    let value = |name| options.iter().find(|(option, _)| *option == name).map(|(_, value)| *value);
    let csv = value("format") == Some("csv");
    let delimiter = value("delimiter").unwrap_or(if csv { "," } else { "\t" });
    let line_end = *["\n", "\n", "\r\n", "\r"].choose(rng).expect("not empty");
    let fragments: &[&str] = if csv {
        &[
            "a",
            "é",
            " ",
            "",
            "N",
            "\"\"",
            "\"N\"",
            "\"a,b|c\"",
            "\"x\ny\"",
            "\"\r\"",
            "\"q\"\"q\"",
            "'it\\'s'",
            "'\\\\'",
            "'\n'",
            "\\",
            "'\\x'",
        ]
    } else {
        &[
            "a", "é", " ", "", "N", "\\N", "\\\\", "\\n", "\\x4", "\\x41", "\\14", "\\144", "\\\n",
            "\\\r", "\\|", "\\\t", "\"", "\\q",
        ]
    };
    let mut stream = String::new();
    if let Some(header) = value("header") {
        stream.push_str(if header == "match" { "k" } else { "anything" });
        stream.push_str(delimiter);
        stream.push_str(if header == "match" { "\"v\"" } else { "" });
        stream.push_str(line_end);
    }
    if rng.random_ratio(1, 4) {
        let wild = ["a", delimiter, "\n", "\r", "\r\n", "\\", "\"", "'", ".", "\\.", "\\N", "N"];
        for _ in 0..rng.random_range(0..12) {
            stream.push_str(wild.choose(rng).expect("not empty"));
        }
        return stream.into_bytes();
    }
    let row_count = rng.random_range(0..5);
    for row in 0..row_count {
        for column in 0..2 {
            for _ in 0..rng.random_range(0..3) {
                stream.push_str(fragments.choose(rng).expect("not empty"));
            }
            stream.push_str(if column == 0 { delimiter } else { "" });
        }
        if row + 1 < row_count || rng.random() {
            stream.push_str(line_end);
        }
    }
    if rng.random_ratio(1, 10) {
        stream.push_str("\\.");
        stream.push_str(line_end);
        stream.push_str("whatever");
    }
    stream.into_bytes()
}

/// Checks one stream; whether the server took it.
fn check_stream(
    client: &mut Client,
    format: &CopyFormat,
    options: &str,
    stream: &[u8],
    rng: &mut StdRng,
) -> Result<bool> {
    let shown = format!("{options} {}", stream.escape_ascii());
    let split = split(format, stream, rng);
    let on_server = match (load(client, "k, v", options, stream)?, &split.error) {
        // Here PostgreSQL 17 and later are followed, which refuse what 15 and 16 take.
        (Loaded::Rows(_), Some(CopyError::EndMarkerNotAlone)) => return Ok(false),
        (Loaded::Rows(rows), None) => rows,
        (Loaded::Rows(rows), Some(error)) => panic!("{shown}: {error}; the server loads {rows:?}"),
        (Loaded::Refused(_), Some(_)) => return Ok(false),
        (Loaded::Refused(error), None) => {
            // The server counts fields, which is left to it.
            let short = split.fields(format, 2).is_err();
            let long = split.rows.iter().any(|row| format.field(row, 2).is_ok());
            let header = error.contains("header");
            assert!(short || long || header, "{shown}: rows are found; the server says {error}");
            return Ok(false);
        }
    };
    assert_eq!(split.fields(format, 2)?, on_server, "{shown}");

    // Rows that go to two nodes mean what they mean together.
    let mut apart = vec![Vec::new(); on_server.len()];
    for node in 0..2 {
        let own = split.rows.iter().skip(node).step_by(2);
        let stream = [&split.headers[..], &own.cloned().collect::<Vec<_>>()[..]].concat().concat();
        let Loaded::Rows(rows) = load(client, "k, v", options, &stream)? else {
            panic!("{shown}: rows of node {node} are refused")
        };
        for (index, row) in rows.into_iter().enumerate() {
            apart[2 * index + node] = row;
        }
    }
    assert_eq!(apart, on_server, "{shown} apart");

    // A field appended to each row arrives, and changes no other.
    let appended = [Some("7"), None, Some(""), Some("a\\\"'\r\n\t|,b"), Some("N"), Some("\\N")];
    let mut longer = Vec::new();
    if let [header] = &split.headers[..] {
        longer.extend(format.append_fields(header, &[Some(b"w")])?);
    }
    let mut expected = on_server;
    for (row, fields) in split.rows.iter().zip(&mut expected) {
        let mut value = *appended.choose(rng).expect("not empty");
        let longer_row = match format.append_fields(row, &[value.map(str::as_bytes)]) {
            Err(CopyError::NotRepresentable) => {
                value = Some("7");
                format.append_fields(row, &[Some(b"7")])?
            }
            other => other?,
        };
        longer.extend(longer_row);
        fields.push(value.map(str::to_owned));
    }
    match load(client, "k, v, w", options, &longer)? {
        Loaded::Rows(rows) => assert_eq!(rows, expected, "{shown} appended"),
        Loaded::Refused(error) => panic!("{shown} appended {}: {error}", longer.escape_ascii()),
    }
    Ok(true)
}

#[test]
fn lines_are_cut_as_the_server_cuts_them() -> Result<()> {
    let server = servers::start(1)?;
    let mut client = Client::connect(&servers::endpoint(&server, 0))?;
    client.query("create temp table t (id serial, k text, v text, w text)")?;
    let mut rng = StdRng::seed_from_u64(2);
    for options in OPTIONS {
        let sql_options = with_options(options);
        let pairs: Vec<(String, String)> =
            options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let format = CopyFormat::from_options(&pairs, &["k", "v"])?;
        let mut taken = 0;
        for index in 0..STREAMS {
            if index % 100 == 0 {
                client.query("rollback; truncate t")?;
            }
            let stream = random_stream(options, &mut rng);
            taken +=
                usize::from(check_stream(&mut client, &format, &sql_options, &stream, &mut rng)?);
        }
        assert!(STREAMS / 5 < taken, "{sql_options}: the server took only {taken} streams");
    }
    Ok(())
}

#[test]
fn tuples_are_cut_as_the_server_writes_them() -> Result<()> {
    let server = servers::start(1)?;
    let mut client = Client::connect(&servers::endpoint(&server, 0))?;
    client.query("create temp table t (id serial, k text, v text, w text)")?;
    client.query(
        "insert into t (k, v) select nullif(repeat('é', i % 40), ''), repeat(E'\\n', i * 17 % 300)
         from generate_series(1, 500) i",
    )?;
    let expected = client.query("select k, v from t order by id")?;
    let answer =
        client.simple("copy (select k, v from t order by id) to stdout (format binary)", &[])?;
    let Some(Outcome::CopyOut { data, .. }) = answer.outcomes.first() else {
        anyhow::bail!("no data: {answer}")
    };
    let split = split(&CopyFormat::Binary, data, &mut StdRng::seed_from_u64(3));
    ensure!(split.error.is_none(), "{:?}", split.error);
    assert_eq!(split.fields(&CopyFormat::Binary, 2)?, expected);

    let mut longer = split.headers.concat();
    for row in &split.rows {
        longer.extend(CopyFormat::Binary.append_fields(row, &[Some(b"7")])?);
    }
    client.query("truncate t")?;
    // Without a trailer: CopyDone says that there is no more.
    let Loaded::Rows(rows) = load(&mut client, "k, v, w", "(format binary)", &longer)? else {
        anyhow::bail!("refused")
    };
    assert_eq!(rows.len(), expected.len());
    let seven = rows.iter().all(|row| row.last() == Some(&Some("7".to_owned())));
    let first = rows.iter().map(|row| row[..2].to_vec()).collect::<Vec<_>>();
    ensure!(seven && first == expected, "appended fields changed rows");
    let extra = split.rows.first().context("no row")?;
    assert_eq!(CopyFormat::Binary.field(extra, 2), Err(CopyError::MissingField { index: 2 }));
    Ok(())
}
