//! Frames: a tag byte, a length, a body.
//!
//! Owns: cutting a byte stream into frames without copying, and reading fields out of a body.
//! Never: interprets a body.

use bytes::{Buf, Bytes, BytesMut};

/// Bytes before a frame's body: the tag and the length, which counts itself.
pub const HEADER_LEN: usize = 5;

/// Largest frame that PostgreSQL accepts or sends: 1 GiB less one byte, plus the tag.
pub const FRAME_LEN_MAX: usize = 1 << 30;

/// Why bytes are not what the protocol allows.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum WireError {
    /// A length below 4 or above [`FRAME_LEN_MAX`].
    #[error("invalid message length {length}")]
    Length {
        /// As it was in the frame.
        length: i64,
    },
    /// A body that ends before its fields do, or has something after them.
    #[error("invalid message format")]
    Malformed,
    /// A string that is not UTF-8.
    #[error("invalid byte sequence for encoding \"UTF8\"")]
    NotUtf8,
    /// A tag that has no meaning here.
    #[error("invalid frontend message type {tag}")]
    UnknownTag {
        /// The tag byte.
        tag: u8,
    },
}

/// One whole message as it was on the wire.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Frame {
    bytes: Bytes,
}

impl Frame {
    /// The message type.
    pub fn tag(&self) -> u8 {
        self.bytes[0]
    }

    /// Everything after the length.
    pub fn body(&self) -> &[u8] {
        &self.bytes[HEADER_LEN..]
    }

    /// The body as shared bytes.
    pub fn body_bytes(&self) -> Bytes {
        self.bytes.slice(HEADER_LEN..)
    }

    /// The frame exactly as received.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A copy to keep: the frame itself keeps all that was read with it.
    pub fn copied(&self) -> Frame {
        Frame { bytes: Bytes::copy_from_slice(&self.bytes) }
    }
}

/// Length of the frame at the start of `bytes`, header included; `None` if its header is not whole.
///
/// Errors: [`WireError::Length`]: the stream cannot be followed any further.
pub fn frame_len(bytes: &[u8]) -> Result<Option<usize>, WireError> {
    let Some(header) = bytes.get(..HEADER_LEN) else { return Ok(None) };
    let length = i32::from_be_bytes([header[1], header[2], header[3], header[4]]);
    match usize::try_from(length) {
        Ok(len) if (4..FRAME_LEN_MAX).contains(&len) => Ok(Some(len + 1)),
        _ => Err(WireError::Length { length: i64::from(length) }),
    }
}

/// Takes the first frame off `buffer`, if it is whole; otherwise reserves room for the rest.
///
/// Errors: as [`frame_len`].
pub fn take_frame(buffer: &mut BytesMut) -> Result<Option<Frame>, WireError> {
    match frame_len(buffer)? {
        Some(len) if len <= buffer.len() => {
            Ok(Some(Frame { bytes: buffer.split_to(len).freeze() }))
        }
        Some(len) => {
            // Not in one step: a header alone must not make us allocate a gigabyte.
            buffer.reserve((len - buffer.len()).min(1 << 20));
            Ok(None)
        }
        None => Ok(None),
    }
}

/// Reads a body field by field.
#[derive(Clone, Debug)]
pub struct Fields {
    rest: Bytes,
}

impl Fields {
    /// The fields of `frame`'s body.
    pub fn of(frame: &Frame) -> Self {
        Self { rest: frame.body_bytes() }
    }

    /// The fields of a body without its frame (startup packets).
    pub fn of_body(body: Bytes) -> Self {
        Self { rest: body }
    }

    /// A NUL-terminated UTF-8 string.
    pub fn string(&mut self) -> Result<String, WireError> {
        let end = memchr::memchr(0, &self.rest).ok_or(WireError::Malformed)?;
        let string = std::str::from_utf8(&self.rest[..end]).map_err(|_| WireError::NotUtf8)?;
        let string = string.to_owned();
        self.rest.advance(end + 1);
        Ok(string)
    }

    /// A NUL-terminated string of which what is not UTF-8 is replaced.
    pub fn string_lossy(&mut self) -> Result<String, WireError> {
        let end = memchr::memchr(0, &self.rest).ok_or(WireError::Malformed)?;
        let string = String::from_utf8_lossy(&self.rest[..end]).into_owned();
        self.rest.advance(end + 1);
        Ok(string)
    }

    /// One byte.
    pub fn byte(&mut self) -> Result<u8, WireError> {
        self.need(1)?;
        Ok(self.rest.get_u8())
    }

    /// So many bytes.
    pub fn take(&mut self, len: usize) -> Result<Bytes, WireError> {
        self.need(len)?;
        Ok(self.rest.split_to(len))
    }

    /// A 16-bit integer.
    pub fn int16(&mut self) -> Result<i16, WireError> {
        self.need(2)?;
        Ok(self.rest.get_i16())
    }

    /// A 32-bit integer.
    pub fn int32(&mut self) -> Result<i32, WireError> {
        self.need(4)?;
        Ok(self.rest.get_i32())
    }

    /// A 16-bit count, unsigned as PostgreSQL reads parameter counts.
    pub fn count(&mut self) -> Result<usize, WireError> {
        self.need(2)?;
        Ok(usize::from(self.rest.get_u16()))
    }

    /// A value with a 32-bit length before it; -1 is NULL.
    pub fn value(&mut self) -> Result<Option<Bytes>, WireError> {
        match self.int32()? {
            -1 => Ok(None),
            len => {
                let len = usize::try_from(len).map_err(|_| WireError::Malformed)?;
                self.need(len)?;
                Ok(Some(self.rest.split_to(len)))
            }
        }
    }

    /// What is left.
    pub fn rest(self) -> Bytes {
        self.rest
    }

    /// Errors: [`WireError::Malformed`] if something is left.
    pub fn end(self) -> Result<(), WireError> {
        if self.rest.is_empty() { Ok(()) } else { Err(WireError::Malformed) }
    }

    fn need(&self, len: usize) -> Result<(), WireError> {
        if self.rest.len() < len { Err(WireError::Malformed) } else { Ok(()) }
    }
}

/// Appends one frame to `out`: writes the tag, lets `body` append, then fixes the length.
///
/// Requires: the body stays below [`FRAME_LEN_MAX`] (the caller's limits see to it).
pub fn put_frame(out: &mut BytesMut, tag: u8, body: impl FnOnce(&mut BytesMut)) {
    let start = out.len();
    out.extend_from_slice(&[tag, 0, 0, 0, 0]);
    body(out);
    let length = u32::try_from(out.len() - start - 1).expect("frame below 1 GiB");
    out[start + 1..start + HEADER_LEN].copy_from_slice(&length.to_be_bytes());
}

/// Appends a NUL-terminated string. A NUL inside would end it early, so it is left out.
pub fn put_string(out: &mut BytesMut, string: &str) {
    if string.as_bytes().contains(&0) {
        out.extend(string.bytes().filter(|byte| *byte != 0));
    } else {
        out.extend_from_slice(string.as_bytes());
    }
    out.extend_from_slice(&[0]);
}

/// Appends a 16-bit count of items.
///
/// Requires: at most 65,535, as the protocol can say no more.
pub fn put_count(out: &mut BytesMut, count: usize) {
    let count = u16::try_from(count).expect("at most 65535 items");
    out.extend_from_slice(&count.to_be_bytes());
}

/// Appends a count of values and the values, each with its length; `None` is NULL.
///
/// Requires: as [`put_count`].
pub(crate) fn put_values<'a>(
    out: &mut BytesMut,
    values: impl ExactSizeIterator<Item = Option<&'a [u8]>>,
) {
    put_count(out, values.len());
    for value in values {
        match value {
            None => out.extend_from_slice(&(-1_i32).to_be_bytes()),
            Some(value) => {
                let len = u32::try_from(value.len()).expect("values fit into a frame");
                out.extend_from_slice(&len.to_be_bytes());
                out.extend_from_slice(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_frame_survives_the_way_there_and_back() {
        let mut buffer = BytesMut::new();
        put_frame(&mut buffer, b'Q', |body| put_string(body, "select 1"));
        put_frame(&mut buffer, b'S', |_| ());
        let query = take_frame(&mut buffer).unwrap().unwrap();
        assert_eq!(query.tag(), b'Q');
        let mut fields = Fields::of(&query);
        assert_eq!(fields.string().unwrap(), "select 1");
        fields.end().unwrap();
        assert_eq!(take_frame(&mut buffer).unwrap().unwrap().tag(), b'S');
        assert_eq!(take_frame(&mut buffer).unwrap(), None);
    }

    #[test]
    fn absurd_lengths_are_refused() {
        for length in [3_i32, 0, -1, i32::MIN, i32::MAX] {
            let mut bytes = vec![b'Q'];
            bytes.extend(length.to_be_bytes());
            assert!(frame_len(&bytes).is_err(), "{length}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_cut_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut buffer = BytesMut::from(&bytes[..]);
            while let Ok(Some(frame)) = take_frame(&mut buffer) {
                let mut fields = Fields::of(&frame);
                while fields.value().is_ok() && fields.string().is_ok() {}
            }
        }
    }
}
