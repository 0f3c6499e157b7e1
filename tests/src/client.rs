//! A small client with exact control over what goes over the wire, blocking.
//!
//! Owns: the connection and the order of messages. Never: hides a message that the server sent, and
//! never waits forever: a server that sends nothing for [`SILENCE_LIMIT`] is an error.
//! Start reading at [`Client::simple`], then [`Client::extended`].

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::{Bytes, BytesMut};
use tutti_wire::backend;
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::frame::{Fields, Frame, take_frame};
use tutti_wire::frontend::{self, Arguments, Target};
use tutti_wire::startup;

use crate::answer::{Answer, Column, Outcome, Row};

/// How long a server may say nothing before a test gives it up.
pub const SILENCE_LIMIT: Duration = Duration::from_secs(120);
/// OIDs from here on are given out by each server as it likes.
const FIRST_USER_OID: u32 = 16_384;

/// Where a server or gateway listens, as whom and to which database to connect.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Endpoint {
    /// Its address.
    pub host: Ipv4Addr,
    /// Its port.
    pub port: u16,
    /// The database.
    pub database: String,
}

impl Endpoint {
    /// Database `postgres` on a port of this machine's.
    pub fn on(port: u16) -> Self {
        Self::at(Ipv4Addr::LOCALHOST, port)
    }

    /// The same elsewhere.
    pub fn at(host: Ipv4Addr, port: u16) -> Self {
        Self { host, port, database: "postgres".to_owned() }
    }

    /// For libpq.
    pub fn url(&self) -> String {
        format!("postgres://postgres@{}:{}/{}", self.host, self.port, self.database)
    }
}

/// How extended statements are sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Flight {
    /// Parse and Describe first, then Bind with binary results where the type has the same OID on
    /// every server; a named statement.
    TwoFlights,
    /// All messages up to Sync in one write; the unnamed statement and text results.
    OneFlight,
}

/// A statement for the extended protocol.
#[derive(Clone, Debug, Default)]
pub struct Request<'a> {
    /// The text.
    pub sql: &'a str,
    /// Parameter types; 0 or missing: the server finds out.
    pub types: &'a [u32],
    /// The statement is executed once with each of these, at least once.
    pub arguments: &'a [Arguments],
    /// Most rows per Execute; 0 for all.
    pub row_limit: i32,
}

/// One session.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    inbox: BytesMut,
    outbox: BytesMut,
    named: u64,
    /// From BackendKeyData.
    pub process_id: i32,
    /// From BackendKeyData.
    pub secret: i32,
    /// What the server reported at the start.
    pub parameters: Vec<(String, String)>,
}

impl Client {
    /// Opens a session; no password, no TLS.
    pub fn connect(endpoint: &Endpoint) -> Result<Self> {
        Self::connect_as(endpoint, "postgres")
    }

    /// Opens a session of this role; no password, no TLS.
    pub fn connect_as(endpoint: &Endpoint, role: &str) -> Result<Self> {
        Self::connect_with(endpoint, role, &[("client_encoding", "UTF8")])
    }

    /// Opens a session of this role with these settings in its startup packet; no password, no TLS.
    pub fn connect_with(
        endpoint: &Endpoint,
        role: &str,
        settings: &[(&str, &str)],
    ) -> Result<Self> {
        let stream = TcpStream::connect((endpoint.host, endpoint.port))
            .with_context(|| format!("connect to {}:{}", endpoint.host, endpoint.port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE_LIMIT))?;
        stream.set_write_timeout(Some(SILENCE_LIMIT))?;
        let mut client = Self {
            stream,
            inbox: BytesMut::new(),
            outbox: BytesMut::new(),
            named: 0,
            process_id: 0,
            secret: 0,
            parameters: Vec::new(),
        };
        let mut parameters = vec![
            ("user", role),
            ("database", endpoint.database.as_str()),
            ("application_name", "tutti-tests"),
        ];
        parameters.extend_from_slice(settings);
        startup::put_startup(&mut client.outbox, &parameters);
        client.send()?;
        client.finish_startup()?;
        Ok(client)
    }

    fn finish_startup(&mut self) -> Result<()> {
        loop {
            let frame = self.receive()?;
            match frame.tag() {
                b'R' => ensure!(frame.body() == [0; 4], "the server asks for authentication"),
                b'S' => self.parameters.push(backend::decode_parameter_status(&frame)?),
                b'K' => {
                    let mut fields = Fields::of(&frame);
                    (self.process_id, self.secret) = (fields.int32()?, fields.int32()?);
                }
                b'N' => (),
                b'Z' => return Ok(()),
                b'E' => {
                    let error = ErrorFields::decode(&frame)?;
                    bail!("refused: {} {}", error.sqlstate(), error.message());
                }
                tag => bail!("unexpected {:?} at startup", char::from(tag)),
            }
        }
    }

    /// Sends one Query message and reads everything up to ReadyForQuery. `copy_in` is what a COPY
    /// … FROM STDIN in it is given.
    pub fn simple(&mut self, sql: &str, copy_in: &[u8]) -> Result<Answer> {
        frontend::put_query(&mut self.outbox, sql);
        self.send()?;
        self.collect(Vec::new(), copy_in, false, "", 0)
    }

    /// Runs a statement by Parse, Bind and Execute, and ends with Sync.
    pub fn extended(
        &mut self,
        request: &Request<'_>,
        flight: Flight,
        copy_in: &[u8],
    ) -> Result<Answer> {
        match flight {
            Flight::TwoFlights => self.two_flights(request, copy_in),
            Flight::OneFlight => self.one_flight(request, copy_in),
        }
    }

    fn one_flight(&mut self, request: &Request<'_>, copy_in: &[u8]) -> Result<Answer> {
        frontend::put_parse(&mut self.outbox, "", request.sql, request.types);
        let none = [Arguments::default()];
        let all = if request.arguments.is_empty() { &none[..] } else { request.arguments };
        for arguments in all {
            frontend::put_bind(&mut self.outbox, "", "", arguments);
            frontend::put_describe(&mut self.outbox, Target::Portal, "");
            frontend::put_execute(&mut self.outbox, "", 0);
        }
        // During a COPY the server reads CopyDone next; a Sync sent before it would be lost.
        let sync_later = request.sql.to_uppercase().contains("FROM STDIN");
        if sync_later {
            frontend::put_flush(&mut self.outbox);
        } else {
            frontend::put_sync(&mut self.outbox);
        }
        self.send()?;
        self.collect(Vec::new(), copy_in, sync_later, "", 0)
    }

    fn two_flights(&mut self, request: &Request<'_>, copy_in: &[u8]) -> Result<Answer> {
        self.named += 1;
        let name = format!("s{}", self.named);
        frontend::put_parse(&mut self.outbox, &name, request.sql, request.types);
        frontend::put_describe(&mut self.outbox, Target::Statement, &name);
        frontend::put_flush(&mut self.outbox);
        self.send()?;
        let mut before = Answer::default();
        let mut columns = Vec::new();
        loop {
            let frame = self.receive()?;
            match frame.tag() {
                b'1' | b't' => (),
                b'n' => break,
                b'T' => {
                    columns = columns_of(&frame)?;
                    break;
                }
                b'E' => {
                    before.outcomes.push(Outcome::Failed(ErrorFields::decode(&frame)?));
                    frontend::put_sync(&mut self.outbox);
                    self.send()?;
                    let rest = self.collect(columns, &[], false, "", 0)?;
                    return Ok(joined(before, rest));
                }
                _ => note(&frame, &mut before)?,
            }
        }
        for column in &mut columns {
            column.format = i16::from(column.type_oid < FIRST_USER_OID);
        }
        let result_formats: Vec<i16> = columns.iter().map(|column| column.format).collect();
        let none = [Arguments::default()];
        let all = if request.arguments.is_empty() { &none[..] } else { request.arguments };
        for (turn, arguments) in all.iter().enumerate() {
            let arguments =
                Arguments { result_formats: result_formats.clone(), ..arguments.clone() };
            let portal = format!("p{}_{turn}", self.named);
            frontend::put_bind(&mut self.outbox, &portal, &name, &arguments);
            frontend::put_execute(&mut self.outbox, &portal, request.row_limit);
            frontend::put_flush(&mut self.outbox);
            self.send()?;
            let part = self.collect(columns.clone(), copy_in, true, &portal, request.row_limit)?;
            let failed = part.error().is_some();
            before = joined(before, part);
            if failed {
                return Ok(before);
            }
        }
        frontend::put_close(&mut self.outbox, Target::Statement, &name);
        frontend::put_sync(&mut self.outbox);
        self.send()?;
        let rest = self.collect(Vec::new(), &[], false, "", 0)?;
        Ok(joined(before, rest))
    }

    /// Reads up to ReadyForQuery. With `one_statement`, returns after the statement's end instead
    /// (sending Sync itself after an error), and goes on after a suspended portal.
    fn collect(
        &mut self,
        columns: Vec<Column>,
        copy_in: &[u8],
        one_statement: bool,
        portal: &str,
        row_limit: i32,
    ) -> Result<Answer> {
        let mut answer = Answer::default();
        let mut rows: Vec<Row> = Vec::new();
        let mut has_rows = !columns.is_empty();
        let mut columns = columns;
        let mut suspensions = 0;
        let mut copy_out: Option<(bool, Vec<u8>)> = None;
        let mut sync_sent = !one_statement;
        loop {
            let frame = self.receive()?;
            match frame.tag() {
                b'1' | b'2' | b'3' | b't' | b'n' | b'c' => (),
                b'T' => (columns, has_rows) = (columns_of(&frame)?, true),
                b'D' => rows.push(backend::decode_data_row(&frame)?),
                b's' => {
                    suspensions += 1;
                    frontend::put_execute(&mut self.outbox, portal, row_limit);
                    frontend::put_flush(&mut self.outbox);
                    self.send()?;
                }
                b'C' => {
                    let tag = backend::decode_command_complete(&frame)?;
                    answer.outcomes.push(match copy_out.take() {
                        Some((binary, data)) => Outcome::CopyOut { binary, data, tag },
                        None if has_rows => Outcome::Rows {
                            columns: columns.clone(),
                            rows: std::mem::take(&mut rows),
                            suspensions,
                            tag,
                        },
                        None => Outcome::Done { tag },
                    });
                    (has_rows, suspensions) = (false, 0);
                    if !sync_sent && portal.is_empty() {
                        frontend::put_sync(&mut self.outbox);
                        self.send()?;
                        sync_sent = true;
                    } else if !sync_sent {
                        return Ok(answer);
                    }
                }
                b'I' => {
                    answer.outcomes.push(Outcome::Empty);
                    if !sync_sent {
                        return Ok(answer);
                    }
                }
                b'E' => {
                    let error = ErrorFields::decode(&frame)?;
                    ensure!(!error.is_fatal(), "FATAL {}: {}", error.sqlstate(), error.message());
                    answer.outcomes.push(Outcome::Failed(error));
                    has_rows = false;
                    rows.clear();
                    copy_out = None;
                    if !sync_sent {
                        frontend::put_sync(&mut self.outbox);
                        self.send()?;
                        sync_sent = true;
                    }
                }
                b'G' => {
                    for piece in copy_in.chunks(32 * 1024) {
                        frontend::put_copy_data(&mut self.outbox, piece);
                    }
                    frontend::put_copy_done(&mut self.outbox);
                    if !sync_sent {
                        frontend::put_sync(&mut self.outbox);
                        sync_sent = true;
                    }
                    self.send()?;
                }
                b'H' => copy_out = Some((frame.body().first() == Some(&1), Vec::new())),
                b'd' => {
                    let Some((_, data)) = &mut copy_out else { bail!("CopyData before CopyOut") };
                    data.extend_from_slice(frame.body());
                }
                b'Z' => {
                    answer.status = frame.body().first().copied().unwrap_or(0);
                    return Ok(answer);
                }
                _ => note(&frame, &mut answer)?,
            }
        }
    }

    /// Runs SQL text that must not fail and gives the last rows as text.
    pub fn query(&mut self, sql: &str) -> Result<Vec<Vec<Option<String>>>> {
        let answer = self.simple(sql, &[])?;
        match answer.error() {
            Some(error) => bail!("{sql}: {} {}", error.sqlstate(), error.message()),
            None => Ok(answer.texts()),
        }
    }

    /// The only value of a query; NULL is empty.
    pub fn value(&mut self, sql: &str) -> Result<String> {
        let rows = self.query(sql)?;
        let [row] = rows.as_slice() else { bail!("{sql}: {} rows, not one", rows.len()) };
        let [value] = row.as_slice() else { bail!("{sql}: {} columns, not one", row.len()) };
        Ok(value.clone().unwrap_or_default())
    }

    fn send(&mut self) -> Result<()> {
        let bytes = self.outbox.split();
        self.stream.write_all(&bytes).context("send")
    }

    /// Sends bytes as they are.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.outbox.extend_from_slice(bytes);
        self.send()
    }

    /// Waits for the next message.
    pub fn receive(&mut self) -> Result<Frame> {
        loop {
            if let Some(frame) = take_frame(&mut self.inbox)? {
                return Ok(frame);
            }
            let mut piece = [0; 16 * 1024];
            let len = match self.stream.read(&mut piece) {
                // A server of another test has ended: with a timeout the read is not taken up again.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                len => len.context("receive")?,
            };
            ensure!(len > 0, "the server closed the connection");
            self.inbox.extend_from_slice(&piece[..len]);
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.outbox.clear();
        frontend::put_terminate(&mut self.outbox);
        // The server may be gone already, which is what Terminate asks for.
        let _ = self.send();
    }
}

fn columns_of(frame: &Frame) -> Result<Vec<Column>> {
    let described = backend::decode_row_description(frame)?;
    let column = |c: backend::ColumnDescription| Column {
        name: c.name,
        type_oid: c.type_oid,
        type_modifier: c.type_modifier,
        format: c.format,
    };
    Ok(described.into_iter().map(column).collect())
}

/// Messages that may come at any time.
fn note(frame: &Frame, answer: &mut Answer) -> Result<()> {
    match frame.tag() {
        b'N' => answer.notices.push(ErrorFields::decode(frame)?),
        b'S' => answer.parameters.push(backend::decode_parameter_status(frame)?),
        b'A' => {
            let mut fields = Fields::of(frame);
            fields.int32()?;
            answer.notifications.push((fields.string()?, fields.string()?));
        }
        tag => bail!("unexpected message {:?}", char::from(tag)),
    }
    Ok(())
}

fn joined(mut first: Answer, second: Answer) -> Answer {
    first.outcomes.extend(second.outcomes);
    first.notices.extend(second.notices);
    first.parameters.extend(second.parameters);
    first.notifications.extend(second.notifications);
    first.status = second.status;
    first
}

/// Text arguments for a request.
pub fn text_arguments(values: &[Option<String>]) -> Arguments {
    let bytes = |value: &Option<String>| {
        value.as_ref().map(|value| Bytes::copy_from_slice(value.as_bytes()))
    };
    Arguments { values: values.iter().map(bytes).collect(), ..Arguments::default() }
}
