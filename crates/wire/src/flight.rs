//! Examines in place what a client has sent: nothing is copied or consumed.
//!
//! Owns: recognising the three usual ways to have one statement run: a Query, the execution of a
//! prepared statement from its Bind to its Sync, and all of the extended protocol in one, from the Parse of the
//! unnamed statement to its Sync. Never: reports what is wrong with what it does not recognise; reading message
//! by message does.
//! Start reading at [`Flight::peek`].
//!
//! Source: PostgreSQL manual, "Message Formats"; Parse, Bind, Describe, Execute, Sync.

use crate::frame::{HEADER_LEN, frame_len};

/// Describe of the unnamed portal, as a whole message.
const DESCRIBE: [u8; 7] = [b'D', 0, 0, 0, 6, b'P', 0];
/// Execute of the unnamed portal, up to its row limit.
const EXECUTE: [u8; 6] = [b'E', 0, 0, 0, 9, 0];
/// Bytes of an Execute of the unnamed portal.
const EXECUTE_LEN: usize = EXECUTE.len() + 4;
/// Sync, as a whole message.
const SYNC: [u8; 5] = [b'S', 0, 0, 0, 4];

/// The messages at the front of a client's stream that run one statement.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Flight<'a> {
    /// Query.
    Query {
        /// Its text.
        text: &'a str,
        /// Bytes of the message.
        len: usize,
    },
    /// Bind of a named statement to the unnamed portal, perhaps Describe of it, Execute, Sync.
    Execution(Execution<'a>),
    /// Parse of the unnamed statement, and the same of that.
    Unnamed {
        /// The statement's text.
        text: &'a str,
        /// Four bytes for each parameter type that the client has fixed.
        types: &'a [u8],
        /// The messages after the Parse.
        execution: Execution<'a>,
        /// Bytes of all messages.
        len: usize,
    },
}

/// See [`Flight::Execution`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Execution<'a> {
    /// Name of the statement.
    pub statement: &'a str,
    /// What stands after the names in the Bind: formats and values.
    pub arguments: &'a [u8],
    /// The messages after the Bind.
    pub rest: &'a [u8],
    /// Bytes of all messages.
    pub len: usize,
    /// Two bytes for each.
    formats: &'a [u8],
    values: Values<'a>,
    result_formats: &'a [u8],
}

impl<'a> Flight<'a> {
    /// What is at the front of `bytes`; `None` where it is something else, not whole, or not right.
    pub fn peek(bytes: &'a [u8]) -> Option<Self> {
        let len = frame_len(bytes).ok()??;
        let body = bytes.get(HEADER_LEN..len)?;
        match bytes[0] {
            b'Q' => {
                let (text, []) = string(body)? else { return None };
                Some(Self::Query { text, len })
            }
            b'B' => Execution::peek(body, bytes.get(len..)?, len)
                .filter(|execution| !execution.statement.is_empty())
                .map(Self::Execution),
            b'P' => {
                let ("", body) = string(body)? else { return None };
                let (text, types) = string(body)?;
                let (count, types) = int16(types)?;
                let (types, []) = types.split_at_checked(4 * count)? else { return None };
                let behind = bytes.get(len..)?;
                let bind_len = frame_len(behind).ok()??;
                let bind = behind.get(HEADER_LEN..bind_len).filter(|_| behind[0] == b'B')?;
                let execution = Execution::peek(bind, &behind[bind_len..], bind_len)
                    .filter(|execution| execution.statement.is_empty())?;
                Some(Self::Unnamed { text, types, execution, len: len + execution.len })
            }
            _ => None,
        }
    }
}

impl<'a> Execution<'a> {
    /// A Bind's body, and what stands after it.
    fn peek(bind: &'a [u8], behind: &'a [u8], bind_len: usize) -> Option<Self> {
        let ("", names) = string(bind)? else { return None };
        let (statement, arguments) = string(names)?;
        let (formats, left) = int16s(arguments)?;
        let (count, left) = int16(left)?;
        let values = Values { count, bytes: left };
        let (result_formats, []) = int16s(values.behind()?)? else { return None };
        let described = if behind.starts_with(&DESCRIBE) { DESCRIBE.len() } else { 0 };
        let execute = behind.get(described..described + EXECUTE_LEN)?;
        let rest_len = described + EXECUTE_LEN + SYNC.len();
        let rest = behind.get(..rest_len)?;
        let is_whole = execute.starts_with(&EXECUTE) && rest.ends_with(&SYNC);
        let len = bind_len + rest_len;
        is_whole.then_some(Self {
            statement,
            arguments,
            rest,
            len,
            formats,
            values,
            result_formats,
        })
    }

    /// Whether the portal is described before it is executed.
    pub fn describes(&self) -> bool {
        self.rest.starts_with(&DESCRIBE)
    }

    /// Whether the portal may be left with rows that it has not returned.
    pub fn may_suspend(&self) -> bool {
        let described = if self.describes() { DESCRIBE.len() } else { 0 };
        let limit = self.rest[described + EXECUTE.len()..].first_chunk().copied();
        // Without one, or with a negative one, all rows are returned.
        limit.is_none_or(|limit| 0 < i32::from_be_bytes(limit))
    }

    /// Whether values and results are texts.
    pub fn is_text(&self) -> bool {
        [self.formats, self.result_formats].iter().all(|formats| formats.iter().all(|it| *it == 0))
    }

    /// How many values are bound.
    pub fn value_count(&self) -> usize {
        self.values.count
    }

    /// Whether the number of formats is one that PostgreSQL accepts for the values.
    pub fn has_formats_for_values(&self) -> bool {
        let count = self.formats.len() / 2;
        count <= 1 || count == self.values.count
    }

    /// The value at this index (`None`: NULL) and its format, 0 for text and 1 for binary. `None` if
    /// there is no such value.
    pub fn value(&self, index: usize) -> Option<(i16, Option<&'a [u8]>)> {
        let at = if self.formats.len() == 2 { 0 } else { 2 * index };
        let format =
            self.formats.get(at..at + 2).map_or(0, |it| i16::from_be_bytes([it[0], it[1]]));
        let mut values = self.values;
        values.nth(index).map(|value| (format, value))
    }
}

/// Values of a Bind, each with its length before it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Values<'a> {
    count: usize,
    bytes: &'a [u8],
}

impl<'a> Iterator for Values<'a> {
    type Item = Option<&'a [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.count == 0 {
            return None;
        }
        let (len, left) = self.bytes.split_first_chunk::<4>()?;
        let (value, left) = match i32::from_be_bytes(*len) {
            -1 => (None, left),
            len => {
                let (value, left) = left.split_at_checked(usize::try_from(len).ok()?)?;
                (Some(value), left)
            }
        };
        (self.count, self.bytes) = (self.count - 1, left);
        Some(value)
    }
}

impl<'a> Values<'a> {
    /// What stands after them; `None` if they are not whole.
    fn behind(mut self) -> Option<&'a [u8]> {
        while self.next().is_some() {}
        (self.count == 0).then_some(self.bytes)
    }
}

/// A string and what stands after its zero byte.
fn string(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let end = memchr::memchr(0, bytes)?;
    Some((std::str::from_utf8(&bytes[..end]).ok()?, &bytes[end + 1..]))
}

fn int16(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (number, left) = bytes.split_first_chunk::<2>()?;
    Some((usize::from(u16::from_be_bytes(*number)), left))
}

/// A count and so many 16-bit numbers.
fn int16s(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (count, left) = int16(bytes)?;
    left.split_at_checked(2 * count)
}

#[cfg(test)]
mod tests {
    use bytes::{Bytes, BytesMut};

    use super::*;
    use crate::frontend::{
        Arguments, Target, put_bind, put_describe, put_execute, put_flush, put_parse, put_query,
        put_sync,
    };

    fn arguments() -> Arguments {
        Arguments {
            formats: vec![0, 1],
            values: vec![Some(Bytes::from_static(b"ab")), None],
            result_formats: vec![1],
        }
    }

    fn execution(portal: &str, statement: &str, describe: bool) -> BytesMut {
        let mut bytes = BytesMut::new();
        put_bind(&mut bytes, portal, statement, &arguments());
        if describe {
            put_describe(&mut bytes, Target::Portal, portal);
        }
        put_execute(&mut bytes, portal, 7);
        put_sync(&mut bytes);
        bytes
    }

    #[test]
    fn a_query_is_looked_at_where_it_lies() {
        let mut bytes = BytesMut::new();
        put_query(&mut bytes, "SELECT 1");
        let len = bytes.len();
        bytes.extend_from_slice(b"more");
        assert_eq!(Flight::peek(&bytes), Some(Flight::Query { text: "SELECT 1", len }));
        assert_eq!(Flight::peek(&bytes[..len - 1]), None, "not whole");
        assert_eq!(Flight::peek(b"Q\0\0\0\x08a\0b\0"), None, "two strings");
        assert_eq!(Flight::peek(b"Q\0\0\0\x06\xff\0"), None, "not UTF-8");
    }

    #[test]
    fn an_execution_is_looked_at_where_it_lies() {
        for describe in [false, true] {
            let mut bytes = execution("", "s", describe);
            let len = bytes.len();
            bytes.extend_from_slice(b"more");
            let Some(Flight::Execution(found)) = Flight::peek(&bytes) else {
                panic!("it is one");
            };
            assert_eq!((found.statement, found.len, found.value_count()), ("s", len, 2));
            assert_eq!(found.value(0), Some((0, Some(&b"ab"[..]))));
            assert_eq!((found.value(1), found.value(2)), (Some((1, None)), None));
            assert!(found.has_formats_for_values() && found.may_suspend());
            // Header, both names.
            let bind = HEADER_LEN + 1 + 2;
            assert_eq!(found.arguments, &bytes[bind..bind + found.arguments.len()]);
            assert_eq!(bind + found.arguments.len() + found.rest.len(), len);
            for end in 0..len {
                assert_eq!(Flight::peek(&bytes[..end]), None, "only {end} bytes");
            }
        }
    }

    fn parsed(name: &str, execution: &BytesMut) -> BytesMut {
        let mut bytes = BytesMut::new();
        put_parse(&mut bytes, name, "SELECT $1", &[23, 0]);
        bytes.extend_from_slice(execution);
        bytes
    }

    #[test]
    fn all_of_the_extended_protocol_is_looked_at_where_it_lies() {
        for describe in [false, true] {
            let execution = execution("", "", describe);
            let mut bytes = parsed("", &execution);
            let whole = bytes.len();
            bytes.extend_from_slice(b"more");
            let Some(Flight::Unnamed { text, types, execution: found, len }) = Flight::peek(&bytes)
            else {
                panic!("it is one");
            };
            assert_eq!((text, types, len), ("SELECT $1", &[0, 0, 0, 23, 0, 0, 0, 0][..], whole));
            assert_eq!((found.statement, found.len, found.value_count()), ("", execution.len(), 2));
            for end in 0..whole {
                assert_eq!(Flight::peek(&bytes[..end]), None, "only {end} bytes");
            }
        }
    }

    #[test]
    fn what_is_unusual_goes_the_long_way() {
        let named = (execution("p", "s", true), "a named portal");
        let unnamed = (execution("", "", false), "the unnamed statement, parsed before");
        let prepared = (parsed("s", &execution("", "s", false)), "a Parse of a named statement");
        let other = (parsed("", &execution("", "s", false)), "a Bind of another statement");
        let mut flushed = execution("", "s", false);
        flushed.truncate(flushed.len() - SYNC.len());
        put_flush(&mut flushed);
        let mut described = BytesMut::new();
        put_bind(&mut described, "", "s", &arguments());
        put_describe(&mut described, Target::Statement, "s");
        put_execute(&mut described, "", 0);
        put_sync(&mut described);
        let described = (described, "Describe of the statement");
        let flushed = (flushed, "Flush instead of Sync");
        for (bytes, what) in [named, unnamed, prepared, other, flushed, described] {
            assert_eq!(Flight::peek(&bytes), None, "{what}");
        }
    }

    #[test]
    fn one_format_is_for_all_values() {
        let mut bytes = BytesMut::new();
        let one = Arguments { formats: vec![1], ..arguments() };
        put_bind(&mut bytes, "", "s", &one);
        put_execute(&mut bytes, "", 0);
        put_sync(&mut bytes);
        let Some(Flight::Execution(found)) = Flight::peek(&bytes) else { panic!("it is one") };
        assert!(!found.may_suspend(), "all rows are asked for");
        assert_eq!(
            (found.value(0), found.value(1)),
            (Some((1, Some(&b"ab"[..]))), Some((1, None)))
        );
    }
}
