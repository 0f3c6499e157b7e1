//! The seeds of the corpora: real messages, streams and statements, a few per decoder.
//!
//! Owns: the bytes. `tests/corpus.rs` compares them with the files in `fuzz/corpus`, and writes
//! those when asked. Files that a fuzzer has found are added beside them by hand.
//! Never: is a test itself.

use bytes::{Bytes, BytesMut};
use tutti_wire::backend::{self, ColumnDescription, TransactionStatus};
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::frontend::{self, Arguments, Target};
use tutti_wire::startup;

/// Name of the target, name of the file, contents.
pub fn all() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let (simple, extended, copying) = (simple(), extended(), copying());
    let said = said_by_server();
    vec![
        ("frames", "simple", [&[1], &simple[..]].concat()),
        ("frames", "extended", [&[7], &extended[..]].concat()),
        ("frames", "cut", [&[3], &said[..said.len() - 3]].concat()),
        ("frontend", "simple", simple),
        ("frontend", "extended", extended),
        ("frontend", "copying", copying),
        ("flights", "query", opening(|out| frontend::put_query(out, "SELECT 1"))),
        ("flights", "execution", execution()),
        ("backend", "rows", said),
        ("backend", "error", error()),
        ("startup", "session", opening(|out| startup::put_startup(out, SETTINGS))),
        ("startup", "cancel", opening(|out| startup::put_cancel(out, 77, -1))),
        ("startup", "other_protocol", vec![0, 0, 0, 9, 0, 2, 0, 0, 7]),
        ("startup", "tls", vec![0, 0, 0, 8, 4, 210, 22, 47]),
        ("copy_text", "plain", stream(&[0, 3], b"1\tann\n2\t\\N\n3\ta\\tb\\x41\\101\n\\.\n")),
        ("copy_text", "header", stream(&[9, 1], b"id|name\r\n1|a\\|b\r\n2|\\\\\r\n")),
        (
            "copy_csv",
            "plain",
            stream(&[0, 5], b"1,\"a \"\"b\"\", c\"\n2,\n3,\"two\nlines\"\n\\.\n"),
        ),
        ("copy_csv", "escapes", stream(&[11, 2], b"id;name\n1;\"a\\\"b\"\n2;N\n")),
        ("copy_binary", "rows", stream(&[4], BINARY)),
        ("statements", "several", TEXTS[0].as_bytes().to_vec()),
        ("statements", "distributed", TEXTS[1].as_bytes().to_vec()),
        ("statements", "parameters", TEXTS[2].as_bytes().to_vec()),
        ("shapes", "select", TEXTS[3].as_bytes().to_vec()),
        ("shapes", "insert", TEXTS[4].as_bytes().to_vec()),
    ]
}

/// A prepared statement from its Bind to its Sync.
fn execution() -> Vec<u8> {
    let mut out = BytesMut::new();
    let arguments = Arguments {
        formats: vec![0, 1],
        values: vec![Some(Bytes::from_static(b"42")), None],
        result_formats: vec![1],
    };
    frontend::put_bind(&mut out, "", "s1", &arguments);
    frontend::put_describe(&mut out, Target::Portal, "");
    frontend::put_execute(&mut out, "", 0);
    frontend::put_sync(&mut out);
    out.to_vec()
}

const SETTINGS: &[(&str, &str)] =
    &[("user", "ann"), ("database", "shop"), ("options", "-c search_path=a"), ("_pq_.x", "1")];

const TEXTS: [&str; 5] = [
    "BEGIN; SELECT 1 -- one;\n; /* two; */ SELECT ';', $$;$$, \"a;b\";; COMMIT",
    "CREATE TABLE größe (id int PRIMARY KEY, v text) DISTRIBUTE BY HASH (id); SELECT 1",
    "SELECT * FROM t WHERE a = $1 AND b = ANY ($2) OR c = '$3' LIMIT $4",
    "SELECT a, 'it''s', 1.5e-3 FROM t1 WHERE id = 42 AND b IN (-1, 2147483648); -- end",
    "insert into t (a, \"b\") values (1, 'x'), (2, date '2020-01-01') /* c */ returning a::numeric(8,2)",
];

const BINARY: &[u8] =
    b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x02\0\0\0\x04\0\0\0\x07\xff\xff\xff\xff\
                        \0\x02\0\0\0\x04\0\0\0\x08\0\0\0\x03ann\xff\xff";

fn stream(how: &[u8], data: &[u8]) -> Vec<u8> {
    [how, data].concat()
}

fn opening(put: impl FnOnce(&mut BytesMut)) -> Vec<u8> {
    let mut out = BytesMut::new();
    put(&mut out);
    out.to_vec()
}

fn simple() -> Vec<u8> {
    opening(|out| {
        frontend::put_query(out, "SELECT name FROM person WHERE id = 7");
        frontend::put_terminate(out);
    })
}

fn extended() -> Vec<u8> {
    opening(|out| {
        let arguments = Arguments {
            formats: vec![1, 0],
            values: vec![Some(Bytes::from_static(&[0, 0, 0, 7])), None],
            result_formats: vec![1],
        };
        frontend::put_parse(out, "s", "SELECT $1 + $2", &[23, 0]);
        frontend::put_describe(out, Target::Statement, "s");
        frontend::put_bind(out, "p", "s", &arguments);
        frontend::put_execute(out, "p", 10);
        frontend::put_flush(out);
        frontend::put_close(out, Target::Portal, "p");
        frontend::put_sync(out);
    })
}

fn copying() -> Vec<u8> {
    opening(|out| {
        frontend::put_query(out, "COPY person FROM STDIN");
        frontend::put_copy_data(out, b"1\tann\n");
        frontend::put_copy_done(out);
        frontend::put_copy_fail(out, "no more");
    })
}

fn said_by_server() -> Vec<u8> {
    opening(|out| {
        backend::put_parameter_status(out, "TimeZone", "UTC");
        backend::put_parameter_description(out, &[23, 25]);
        let columns = [ColumnDescription::text("name"), ColumnDescription::text("größe")];
        backend::put_row_description(out, &columns);
        backend::put_data_row(out, [Some(&b"ann"[..]), None].into_iter());
        backend::put_command_complete(out, "SELECT 1");
        backend::put_ready_for_query(out, TransactionStatus::Idle);
    })
}

fn error() -> Vec<u8> {
    let error = ErrorFields::error("42P01", "relation \"x\" does not exist").with(b'P', "15");
    opening(|out| {
        error.put(out, b'E');
        error.put(out, b'N');
    })
}
