//! What servers send: the messages the gateway builds itself, and those it decodes.
//!
//! Owns: their layout.
//! Never: touches data rows that only pass through.

use bytes::{Bytes, BytesMut};

use crate::frame::{
    Fields, Frame, HEADER_LEN, WireError, put_count, put_frame, put_string, put_values,
};

/// State of a session's transaction, as ReadyForQuery tells it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TransactionStatus {
    /// `I`.
    Idle,
    /// `T`.
    InTransaction,
    /// `E`: every statement is refused until ROLLBACK.
    Failed,
}

impl TransactionStatus {
    /// The byte on the wire.
    pub fn code(self) -> u8 {
        match self {
            Self::Idle => b'I',
            Self::InTransaction => b'T',
            Self::Failed => b'E',
        }
    }
}

/// One column of a RowDescription.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ColumnDescription {
    /// Column name.
    pub name: String,
    /// Table's OID, or 0.
    pub table_oid: u32,
    /// Column's number in the table, or 0.
    pub column_number: i16,
    /// Type OID.
    pub type_oid: u32,
    /// `typlen`.
    pub type_len: i16,
    /// `atttypmod`.
    pub type_modifier: i32,
    /// 0 text, 1 binary.
    pub format: i16,
}

impl ColumnDescription {
    /// A column of type text that belongs to no table.
    pub fn text(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            table_oid: 0,
            column_number: 0,
            type_oid: 25,
            type_len: -1,
            type_modifier: -1,
            format: 0,
        }
    }
}

/// Reads a RowDescription.
pub fn decode_row_description(frame: &Frame) -> Result<Vec<ColumnDescription>, WireError> {
    let mut fields = Fields::of(frame);
    let count = fields.count()?;
    let columns = (0..count)
        .map(|_| {
            Ok(ColumnDescription {
                name: fields.string()?,
                table_oid: fields.int32()?.cast_unsigned(),
                column_number: fields.int16()?,
                type_oid: fields.int32()?.cast_unsigned(),
                type_len: fields.int16()?,
                type_modifier: fields.int32()?,
                format: fields.int16()?,
            })
        })
        .collect::<Result<_, _>>()?;
    fields.end()?;
    Ok(columns)
}

/// Gives the columns of a RowDescription, a whole frame, other OIDs, where they lie: `change` maps
/// a column's table and type.
///
/// Errors: [`WireError::Malformed`]; some columns may have been changed.
pub fn change_oids_of_row_description(
    frame: &mut [u8],
    mut change: impl FnMut(u32, u32, i16) -> (u32, u32),
) -> Result<(), WireError> {
    /// After a column's name: table OID, column number, type OID, length, modifier, format.
    const BEHIND_NAME: usize = 4 + 2 + 4 + 2 + 4 + 2;
    const TYPE_OID: usize = 4 + 2;
    let body = frame.get_mut(HEADER_LEN..).ok_or(WireError::Malformed)?;
    let (count, mut rest) = body.split_first_chunk_mut::<2>().ok_or(WireError::Malformed)?;
    for _ in 0..u16::from_be_bytes(*count) {
        let name = memchr::memchr(0, rest).ok_or(WireError::Malformed)?;
        let (column, behind) =
            rest[name + 1..].split_at_mut_checked(BEHIND_NAME).ok_or(WireError::Malformed)?;
        let oid =
            |at: usize| u32::from_be_bytes(column[at..at + 4].try_into().expect("four bytes"));
        let format = i16::from_be_bytes([column[BEHIND_NAME - 2], column[BEHIND_NAME - 1]]);
        let (table_oid, type_oid) = change(oid(0), oid(TYPE_OID), format);
        column[..4].copy_from_slice(&table_oid.to_be_bytes());
        column[TYPE_OID..TYPE_OID + 4].copy_from_slice(&type_oid.to_be_bytes());
        rest = behind;
    }
    Ok(())
}

/// Appends a RowDescription.
pub fn put_row_description(out: &mut BytesMut, columns: &[ColumnDescription]) {
    put_frame(out, b'T', |body| {
        put_count(body, columns.len());
        for column in columns {
            put_string(body, &column.name);
            body.extend_from_slice(&column.table_oid.to_be_bytes());
            body.extend_from_slice(&column.column_number.to_be_bytes());
            body.extend_from_slice(&column.type_oid.to_be_bytes());
            body.extend_from_slice(&column.type_len.to_be_bytes());
            body.extend_from_slice(&column.type_modifier.to_be_bytes());
            body.extend_from_slice(&column.format.to_be_bytes());
        }
    });
}

/// Reads a ParameterDescription: the type OID of each parameter.
pub fn decode_parameter_description(frame: &Frame) -> Result<Vec<u32>, WireError> {
    let mut fields = Fields::of(frame);
    let count = fields.count()?;
    (0..count).map(|_| fields.int32().map(i32::cast_unsigned)).collect()
}

/// Appends a ParameterDescription.
pub fn put_parameter_description(out: &mut BytesMut, types: &[u32]) {
    put_frame(out, b't', |body| {
        put_count(body, types.len());
        for type_oid in types {
            body.extend_from_slice(&type_oid.to_be_bytes());
        }
    });
}

/// Reads a DataRow's values; `None` is NULL.
pub fn decode_data_row(frame: &Frame) -> Result<Vec<Option<Bytes>>, WireError> {
    let mut fields = Fields::of(frame);
    let count = fields.count()?;
    let values = (0..count).map(|_| fields.value()).collect::<Result<_, _>>()?;
    fields.end()?;
    Ok(values)
}

/// Appends a DataRow of text values.
pub fn put_data_row<'a>(
    out: &mut BytesMut,
    values: impl ExactSizeIterator<Item = Option<&'a [u8]>>,
) {
    put_frame(out, b'D', |body| put_values(body, values));
}

/// Reads a CommandComplete's tag.
pub fn decode_command_complete(frame: &Frame) -> Result<String, WireError> {
    Fields::of(frame).string()
}

/// Appends a CommandComplete.
pub fn put_command_complete(out: &mut BytesMut, tag: &str) {
    put_frame(out, b'C', |body| put_string(body, tag));
}

/// Appends a ReadyForQuery.
pub fn put_ready_for_query(out: &mut BytesMut, status: TransactionStatus) {
    put_frame(out, b'Z', |body| body.extend_from_slice(&[status.code()]));
}

/// Reads a ParameterStatus: name and value.
pub fn decode_parameter_status(frame: &Frame) -> Result<(String, String), WireError> {
    let mut fields = Fields::of(frame);
    Ok((fields.string()?, fields.string()?))
}

/// Appends a ParameterStatus.
pub fn put_parameter_status(out: &mut BytesMut, name: &str, value: &str) {
    put_frame(out, b'S', |body| {
        put_string(body, name);
        put_string(body, value);
    });
}

/// Appends AuthenticationOk.
pub fn put_authentication_ok(out: &mut BytesMut) {
    put_frame(out, b'R', |body| body.extend_from_slice(&0_i32.to_be_bytes()));
}

/// Appends BackendKeyData.
pub fn put_backend_key_data(out: &mut BytesMut, process_id: i32, secret: i32) {
    put_frame(out, b'K', |body| {
        body.extend_from_slice(&process_id.to_be_bytes());
        body.extend_from_slice(&secret.to_be_bytes());
    });
}

/// Appends a message that is only its tag: `1` ParseComplete, `2` BindComplete, `3` CloseComplete,
/// `n` NoData, `s` PortalSuspended, `I` EmptyQueryResponse.
pub fn put_bare(out: &mut BytesMut, tag: u8) {
    put_frame(out, tag, |_| ());
}

/// Appends NegotiateProtocolVersion: the newest version spoken, and options not understood. The documentation speaks of the
/// minor version; servers send the whole one, and libpq takes anything else for a protocol before 3.
pub fn put_negotiate_protocol_version(out: &mut BytesMut, version: i32, options: &[&str]) {
    put_frame(out, b'v', |body| {
        body.extend_from_slice(&version.to_be_bytes());
        let count = i32::try_from(options.len()).expect("few options");
        body.extend_from_slice(&count.to_be_bytes());
        for option in options {
            put_string(body, option);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::take_frame;

    #[test]
    fn rows_and_their_description_survive_the_way_there_and_back() {
        let columns = vec![ColumnDescription::text("a"), ColumnDescription::text("b")];
        let mut out = BytesMut::new();
        put_row_description(&mut out, &columns);
        put_data_row(&mut out, [Some(&b"x"[..]), None].into_iter());
        put_command_complete(&mut out, "SELECT 1");
        let frame = take_frame(&mut out).unwrap().unwrap();
        assert_eq!(decode_row_description(&frame).unwrap(), columns);
        let frame = take_frame(&mut out).unwrap().unwrap();
        assert_eq!(decode_data_row(&frame).unwrap(), vec![Some(Bytes::from_static(b"x")), None]);
        let frame = take_frame(&mut out).unwrap().unwrap();
        assert_eq!(decode_command_complete(&frame).unwrap(), "SELECT 1");
    }
}
