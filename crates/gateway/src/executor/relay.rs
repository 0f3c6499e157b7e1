//! Passing a node's answer on to the client.
//!
//! Owns: the loop that looks at each frame's header, and the pump of COPY data into a node.
//! Never: takes a data row apart.
//! Start reading at [`relay`].

use bytes::{Buf, BytesMut};
use tutti_link::Link;
use tutti_link::connection::{NodeError, told, told_notice};
use tutti_sql::catalog::NodeId;
use tutti_wire::backend::{decode_command_complete, put_command_complete};
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::frame::{Frame, frame_len};
use tutti_wire::frontend::{put_copy_data, put_copy_fail, put_sync};

use crate::client::Client;
use crate::client::failure::Failure;
use crate::plans::request::Call;

/// COPY data is sent to a node in pieces of about this size.
pub(super) const COPY_FLUSH_BYTES: usize = 64 * 1024;

/// What of an answer the client gets.
#[derive(Clone, Copy, Debug)]
pub struct Filter {
    /// RowDescription, NoData, CopyOutResponse.
    pub describe: bool,
    /// DataRow, CopyData, CopyDone.
    pub rows: bool,
    /// CommandComplete.
    pub complete: bool,
    /// The statement was sent by the extended protocol: the node swallows the Sync after a COPY's
    /// Execute, so its data must be followed by another.
    pub extended: bool,
}

impl Filter {
    /// Rows and, where the protocol wants it, their description; `complete`: also the end.
    pub fn rows(call: &Call, complete: bool) -> Self {
        let extended = call.is_extended();
        Self { describe: !extended, rows: true, complete, extended }
    }

    /// Rows of a further node: described already.
    pub fn more_rows(call: &Call) -> Self {
        Self { describe: false, ..Self::rows(call, false) }
    }

    /// Nothing.
    pub fn discard(call: &Call) -> Self {
        Self { rows: false, ..Self::more_rows(call) }
    }
}

/// How a statement ended on a node.
#[derive(Clone, Debug, Default)]
pub struct Relayed {
    /// Command tag.
    pub tag: String,
    /// The node saw an empty statement.
    pub empty: bool,
}

/// Reads one answer, to ReadyForQuery, and passes on what `filter` lets through.
///
/// Errors: what the node answered with, read to ReadyForQuery all the same, so that the link can be
/// used again.
pub(super) async fn relay(
    client: &mut Client,
    link: &mut Link,
    filter: Filter,
) -> Result<Relayed, Failure> {
    let refused_before = link.catch_up().await?;
    let answer = relay_one(client, link, filter).await;
    refused_before.map_or(Ok(()), Err)?;
    answer
}

/// Reads one answer, to ReadyForQuery, and passes on all of it but ReadyForQuery, as it is. `parsed`: whether
/// ParseComplete was in it.
///
/// Errors: as [`relay`]; [`Failure::Client`] if the node is lost after the beginning of a row that the
/// client has already.
pub(crate) async fn relay_all(
    client: &mut Client,
    link: &mut Link,
    parsed: &mut bool,
) -> Result<(), Failure> {
    link.begin_answer();
    let mut forwarder = Forwarder::new(link.node() == NodeId::HOME);
    let mut refused = Refused::default();
    loop {
        let frame = match forwarder.pass(client, link, parsed)? {
            true => link.connection().take_frame()?,
            false => None,
        };
        let Some(frame) = frame else {
            forwarder.wait_for_more(client, link).await?;
            continue;
        };
        match frame.tag() {
            b'T' => link.put_description(client.out(), &frame)?,
            b'D' => link.put_row(client.out(), &frame)?,
            b'E' if refused.is_end(link, &frame)? => break,
            b'E' => (),
            b'Z' => {
                link.answered();
                break;
            }
            b'A' | b'S' => pass_async_message(client, link, &frame)?,
            tag => {
                let message = format!("node {} sent {tag:#x} in an answer", link.node());
                return Err(Failure::error("08P01", message));
            }
        }
    }
    refused.into_result()
}

/// What a node has refused a statement with, if it has: the first error of an answer counts.
#[derive(Debug, Default)]
pub(crate) struct Refused(pub Option<ErrorFields>);

impl Refused {
    /// Takes an ErrorResponse. Whether nothing comes after it: the node ends the connection.
    pub(crate) fn is_end(&mut self, link: &mut Link, frame: &Frame) -> Result<bool, Failure> {
        let error = told(frame)?;
        let is_end = error.is_fatal();
        self.0.get_or_insert(error);
        if is_end {
            link.connection().note_end();
        }
        Ok(is_end)
    }

    pub(crate) fn into_result(self) -> Result<(), Failure> {
        self.0.map_or(Ok(()), |error| Err(error.into()))
    }
}

/// Bytes on their way from a node to a client, in as few copies as there are reads.
struct Forwarder {
    is_home: bool,
    /// Bytes of a row that has been passed on in part.
    due: usize,
    /// A notice has been passed on. The client gets it while the statement goes on: it may be what
    /// someone waits for.
    noticed: bool,
}

impl Forwarder {
    /// Rows of this many bytes do not wait in memory until they are whole.
    const PIECES_FROM_BYTES: usize = 1 << 20;

    fn new(is_home: bool) -> Self {
        Self { is_home, due: 0, noticed: false }
    }

    /// Waits until the node has sent more.
    async fn wait_for_more(&mut self, client: &mut Client, link: &mut Link) -> Result<(), Failure> {
        match std::mem::take(&mut self.noticed) {
            true => client.flush_early().await?,
            false => client.flush_if_full().await?,
        }
        link.connection().read_more().await.map_err(|error| self.failure(error))
    }

    /// Passes on what the client gets as it is. True if something else comes next.
    fn pass(
        &mut self,
        client: &mut Client,
        link: &mut Link,
        parsed: &mut bool,
    ) -> Result<bool, Failure> {
        let is_numbered = link.has_numbered_rows();
        let incoming = link.connection().incoming();
        let mut len = self.due.min(incoming.len());
        self.due -= len;
        let something_else = loop {
            let Some(frame) = frame_len(&incoming[len..])? else { break false };
            let there = incoming.len() - len;
            match incoming[len] {
                // Taken apart, because of the numbers in it.
                b'D' if is_numbered => break true,
                b'D' | b'C' | b'2' | b'n' | b'I' | b's' => (),
                b'1' => *parsed |= frame <= there,
                b'N' => self.noticed = true,
                b'T' if self.is_home => (),
                _ => break true,
            }
            if frame <= there {
                len += frame;
            } else if incoming[len] == b'D' && Self::PIECES_FROM_BYTES <= frame {
                (len, self.due) = (incoming.len(), frame - there);
                break false;
            } else {
                // It is not whole: this makes room for the rest.
                break true;
            }
        };
        client.out().extend_from_slice(&incoming[..len]);
        incoming.advance(len);
        Ok(something_else)
    }

    /// Passes on the rows at the front of what has arrived, and nothing else.
    fn pass_rows(&mut self, client: &mut Client, link: &mut Link) -> Result<(), Failure> {
        let incoming = link.connection().incoming();
        let mut len = self.due.min(incoming.len());
        self.due -= len;
        while matches!(incoming.get(len), Some(b'D' | b'd')) {
            let there = incoming.len() - len;
            match frame_len(&incoming[len..])? {
                Some(frame) if frame <= there => len += frame,
                Some(frame) if Self::PIECES_FROM_BYTES <= frame => {
                    (len, self.due) = (incoming.len(), frame - there);
                }
                _ => break,
            }
        }
        client.out().extend_from_slice(&incoming[..len]);
        incoming.advance(len);
        Ok(())
    }

    /// The node is lost. A client that has half a row cannot be told.
    fn failure(&self, error: NodeError) -> Failure {
        match self.due {
            0 => error.into(),
            _ => Failure::Client(std::io::Error::other(error).into()),
        }
    }
}

async fn relay_one(
    client: &mut Client,
    link: &mut Link,
    filter: Filter,
) -> Result<Relayed, Failure> {
    link.begin_answer();
    let copies_numbers = link.copies_numbers(&client.copied_types);
    let mut answer = Relayed::default();
    let mut refused = Refused::default();
    let mut forwarder = Forwarder::new(false);
    loop {
        if filter.rows && !link.has_numbered_rows() && !copies_numbers {
            forwarder.pass_rows(client, link)?;
        }
        let Some(frame) = link.connection().take_frame()? else {
            forwarder.wait_for_more(client, link).await?;
            continue;
        };
        match frame.tag() {
            b'D' if filter.rows && refused.0.is_none() => link.put_row(client.out(), &frame)?,
            b'd' if filter.rows && refused.0.is_none() && copies_numbers => {
                let data = link.copied_to_home(&client.copied_types, frame.body())?;
                put_copy_data(client.out(), &data);
            }
            b'd' | b'c' if filter.rows && refused.0.is_none() => forward(client, &frame),
            b'T' if filter.describe => link.put_description(client.out(), &frame)?,
            // Rows come that are understood by it.
            b'T' => link.put_description(&mut BytesMut::new(), &frame)?,
            // A portal has more rows than were asked for.
            b'H' | b's' if filter.rows => forward(client, &frame),
            b'C' => {
                answer.tag = decode_command_complete(&frame)?;
                if filter.complete {
                    put_command_complete(client.out(), &answer.tag);
                }
            }
            b'I' => answer.empty = true,
            b'E' if refused.is_end(link, &frame)? => break,
            b'E' => (),
            b'G' if filter.rows => {
                forward(client, &frame);
                pump_copy_data(client, link, filter.extended).await?;
            }
            b'G' => {
                put_copy_fail(link.connection().outgoing(), "no data for this COPY");
                end_copy(link, filter.extended).await?;
            }
            // The answer to a function call.
            b'V' if filter.rows => forward(client, &frame),
            b'A' => link.put_notification(client.out(), &frame),
            b'N' if filter.rows => forwarder.noticed |= client.pass_notice(&told_notice(frame)?),
            b'S' if filter.rows => client.report_setting(link, &frame)?,
            b'Z' => {
                link.answered();
                break;
            }
            _ => (),
        }
    }
    refused.into_result().map(|()| answer)
}

fn forward(client: &mut Client, frame: &Frame) {
    client.out().extend_from_slice(frame.as_bytes());
}

/// The node waits for COPY data: the client's messages go to it unread until the data ends.
pub(crate) async fn pump_copy_data(
    client: &mut Client,
    link: &mut Link,
    extended: bool,
) -> Result<(), Failure> {
    let stops = client.stops();
    loop {
        let next = if client.has_frame() {
            client.next_frame().await?
        } else {
            client.flush().await?;
            // What is wrong with the data must be known before more of it is sent.
            link.connection().flush().await?;
            tokio::select! {
                biased;
                frame = client.next_frame() => frame?,
                () = stops.notified() => {
                    // The node answers that the statement was cancelled, as it is.
                    put_copy_fail(link.connection().outgoing(), "the statement is ended for a change");
                    return end_copy(link, extended).await;
                }
                answered = link.wait_for_anything() => {
                    answered?;
                    if is_refused(link) {
                        return if extended { end_copy(link, extended).await } else { Ok(()) };
                    }
                    let noise = link.connection().next_frame().await?;
                    pass_async_message(client, link, &noise)?;
                    continue;
                }
            }
        };
        let Some(frame) = next else {
            put_copy_fail(link.connection().outgoing(), "client connection lost during COPY");
            link.connection().flush().await?;
            let lost = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
            return Err(Failure::Client(lost.into()));
        };
        match frame.tag() {
            b'd' | b'c' | b'f' => link.connection().outgoing().extend_from_slice(frame.as_bytes()),
            // Flush and Sync are allowed here and mean nothing.
            b'H' | b'S' => continue,
            tag => {
                let reason = format!("unexpected message type 0x{tag:02X} during COPY from stdin");
                put_copy_fail(link.connection().outgoing(), &reason);
                return end_copy(link, extended).await;
            }
        }
        if frame.tag() != b'd' {
            return end_copy(link, extended).await;
        }
        if COPY_FLUSH_BYTES < link.connection().outgoing().len() {
            link.connection().flush().await?;
            if is_refused(link) {
                return if extended { end_copy(link, extended).await } else { Ok(()) };
            }
        }
    }
}

/// Whether the node has answered a COPY with an error, and reads no more data.
fn is_refused(link: &mut Link) -> bool {
    link.connection().incoming().first() == Some(&b'E')
}

/// What a node may send at any time.
fn pass_async_message(client: &mut Client, link: &mut Link, frame: &Frame) -> Result<(), Failure> {
    match frame.tag() {
        b'N' => forward(client, frame),
        b'A' => link.put_notification(client.out(), frame),
        b'S' => client.report_setting(link, frame)?,
        tag => {
            let message = format!("node {} sent {tag:#x} during COPY", link.node());
            return Err(Failure::error("08P01", message));
        }
    }
    Ok(())
}

/// Sends what ends a COPY's data.
pub(super) async fn end_copy(link: &mut Link, extended: bool) -> Result<(), Failure> {
    if extended {
        put_sync(link.connection().outgoing());
    }
    Ok(link.connection().flush().await?)
}
