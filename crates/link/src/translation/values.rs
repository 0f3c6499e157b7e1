//! Numbers of types and tables inside values in binary format.
//!
//! Owns: finding them in arrays, rows and ranges, and changing them where they stand.
//! Never: says which number is which ([`OidMaps`](super::OidMaps) does), nor how a type is written ([`Code::layout`] does).
//! Start reading at [`Renumbering::value`].

use tutti_sql::closure::{Code, Layout};
use tutti_wire::frame::WireError;

/// What lies deeper, rows within rows within …, waits until the stack is free again.
const DEPTH_MAX: usize = 64;

/// Values that wait, with their types.
type Later<'v> = Vec<(u32, &'v mut [u8])>;

/// Numbers that are changed into others.
#[derive(Debug)]
pub(super) struct Renumbering<'r, T, C> {
    /// How types are written, by node 1's numbers.
    pub(super) code: &'r Code,
    /// Of a type's number: node 1's, and what it becomes.
    pub(super) types: T,
    /// What a table's number becomes.
    pub(super) tables: C,
}

impl<T: Fn(u32) -> (u32, u32), C: Fn(u32) -> u32> Renumbering<'_, T, C> {
    /// Changes the values of a row whose columns are of these types, by node 1's numbers; 0: nothing is to be changed there.
    /// It is the number of values, and these, as in a DataRow and in a row of a COPY in binary format.
    pub(super) fn fields(&self, types: &[u32], row: &mut [u8]) -> Result<(), WireError> {
        let (count, mut rest) = row.split_first_chunk_mut::<2>().ok_or(WireError::Malformed)?;
        for column in 0..usize::from(u16::from_be_bytes(*count)) {
            let (value, behind) = sized(rest)?;
            if let (Some(value), Some(oid)) = (value, types.get(column).filter(|oid| **oid != 0)) {
                self.value(*oid, value)?;
            }
            rest = behind;
        }
        Ok(())
    }

    /// Changes a value of this type, by node 1's number.
    ///
    /// Errors: it is not written as such values are. Then it may have been changed in part.
    pub(super) fn value(&self, oid: u32, value: &mut [u8]) -> Result<(), WireError> {
        let mut later = vec![(oid, value)];
        while let Some((oid, value)) = later.pop() {
            self.part(oid, value, 0, &mut later)?;
        }
        Ok(())
    }

    fn part<'v>(
        &self,
        oid: u32,
        value: &'v mut [u8],
        depth: usize,
        later: &mut Later<'v>,
    ) -> Result<(), WireError> {
        if depth == DEPTH_MAX {
            later.push((oid, value));
            return Ok(());
        }
        match self.code.layout(oid) {
            Layout::Plain => Ok(()),
            Layout::Array => self.array(value, depth, later),
            Layout::Row => self.composite(value, depth, later),
            // A row's second word is a type's number, and an array's is 0 or 1: whether it has NULLs.
            Layout::RowOrArray => match value.get(4..8) {
                Some([0, 0, 0, 0 | 1]) => self.array(value, depth, later),
                _ => self.composite(value, depth, later),
            },
            // Flags, and the bounds that there are.
            Layout::Range(bound) => {
                let (_, bounds) = value.split_first_mut().ok_or(WireError::Malformed)?;
                self.all(bound, bounds, depth, later)
            }
            // Number of ranges, and these.
            Layout::Multirange(range) => self.all(range, word(value)?.1, depth, later),
            Layout::OfType => self.number(value, |oid| (self.types)(oid).1),
            Layout::OfTable => self.number(value, &self.tables),
        }
    }

    /// Values of one type, each behind its length.
    fn all<'v>(
        &self,
        oid: u32,
        mut values: &'v mut [u8],
        depth: usize,
        later: &mut Later<'v>,
    ) -> Result<(), WireError> {
        while !values.is_empty() {
            let (value, behind) = sized(values)?;
            value.map_or(Ok(()), |value| self.part(oid, value, depth + 1, later))?;
            values = behind;
        }
        Ok(())
    }

    fn number(&self, value: &mut [u8], change: impl Fn(u32) -> u32) -> Result<(), WireError> {
        let (number, rest) = word(value)?;
        *number = change(u32::from_be_bytes(*number)).to_be_bytes();
        if rest.is_empty() { Ok(()) } else { Err(WireError::Malformed) }
    }

    /// Changes a type's number; what it is on node 1.
    fn type_number(&self, number: &mut [u8; 4]) -> u32 {
        let (at_home, becomes) = (self.types)(u32::from_be_bytes(*number));
        *number = becomes.to_be_bytes();
        at_home
    }

    /// Number of dimensions, whether there are NULLs, type, length and lower bound of each dimension, elements.
    fn array<'v>(
        &self,
        value: &'v mut [u8],
        depth: usize,
        later: &mut Later<'v>,
    ) -> Result<(), WireError> {
        let (dimensions, rest) = word(value)?;
        let (_, rest) = word(rest)?;
        let (number, rest) = word(rest)?;
        let element = self.type_number(number);
        let bounds = usize::try_from(u32::from_be_bytes(*dimensions))
            .ok()
            .and_then(|count| count.checked_mul(8))
            .ok_or(WireError::Malformed)?;
        let (_, values) = rest.split_at_mut_checked(bounds).ok_or(WireError::Malformed)?;
        match self.code.says_numbers(element) {
            true => self.all(element, values, depth, later),
            false => Ok(()),
        }
    }

    /// Number of fields; type and value of each.
    fn composite<'v>(
        &self,
        value: &'v mut [u8],
        depth: usize,
        later: &mut Later<'v>,
    ) -> Result<(), WireError> {
        let (_, mut rest) = word(value)?;
        while !rest.is_empty() {
            let (number, behind) = word(rest)?;
            let oid = self.type_number(number);
            let (value, behind) = sized(behind)?;
            value.map_or(Ok(()), |value| self.part(oid, value, depth + 1, later))?;
            rest = behind;
        }
        Ok(())
    }
}

fn word(bytes: &mut [u8]) -> Result<(&mut [u8; 4], &mut [u8]), WireError> {
    bytes.split_first_chunk_mut().ok_or(WireError::Malformed)
}

/// A value behind its length, -1 for NULL, and what stands behind it.
fn sized(bytes: &mut [u8]) -> Result<(Option<&mut [u8]>, &mut [u8]), WireError> {
    let (len, rest) = word(bytes)?;
    match i32::from_be_bytes(*len) {
        -1 => Ok((None, rest)),
        len => {
            let len = usize::try_from(len).map_err(|_| WireError::Malformed)?;
            let (value, behind) = rest.split_at_mut_checked(len).ok_or(WireError::Malformed)?;
            Ok((Some(value), behind))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use tutti_sql::closure::{TypeCode, TypeKind};

    use super::*;

    /// An enum, its array, and a row of a number, the enum and the array: node 1's numbers. Those of the other node are 1,000
    /// above.
    const MOOD: u32 = 20_000;
    const MOODS: u32 = 20_100;
    const NOTE: u32 = 20_001;
    const NOTES: u32 = 20_101;

    fn code() -> Code {
        let mut code = Code::default();
        code.add_type(MOOD, MOODS, TypeCode::default());
        let parts = vec![23, MOOD, MOODS];
        code.add_type(NOTE, NOTES, TypeCode { kind: TypeKind::Row, parts, ..TypeCode::default() });
        code
    }

    fn sized(value: &[u8]) -> Vec<u8> {
        [&u32::try_from(value.len()).expect("short").to_be_bytes(), value].concat()
    }

    fn array(element: u32, values: &[Vec<u8>]) -> Vec<u8> {
        let count = u32::try_from(values.len()).expect("few");
        let mut bytes: Vec<u8> =
            [1, 0, element, count, 1].into_iter().flat_map(u32::to_be_bytes).collect();
        values.iter().for_each(|value| bytes.extend(sized(value)));
        bytes
    }

    fn note(off: u32) -> Vec<u8> {
        let moods = array(MOOD + off, &[b"sad".to_vec(), b"glad".to_vec()]);
        let mut bytes = 4_u32.to_be_bytes().to_vec();
        for (oid, value) in [
            (23, sized(&20_000_u32.to_be_bytes())),
            (MOOD + off, sized(b"ok")),
            (MOODS + off, sized(&moods)),
        ] {
            bytes.extend(oid.to_be_bytes());
            bytes.extend(value);
        }
        bytes.extend(25_u32.to_be_bytes());
        bytes.extend((-1_i32).to_be_bytes());
        bytes
    }

    fn to_home(code: &Code, oid: u32, value: &mut [u8]) -> Result<(), WireError> {
        let types = |oid: u32| {
            let at_home = if oid < 21_000 { oid } else { oid - 1_000 };
            (at_home, at_home)
        };
        Renumbering { code, types, tables: |oid| oid }.value(oid, value)
    }

    #[test]
    fn numbers_are_changed_wherever_they_stand() {
        let code = code();
        let plain = [&1_u32.to_be_bytes()[..], &25_u32.to_be_bytes(), &sized(b"x")].concat();
        for (oid, value, wanted) in [
            (NOTE, note(1_000), note(0)),
            (2249, note(1_000), note(0)),
            (
                NOTES,
                array(NOTE + 1_000, &[note(1_000), note(1_000)]),
                array(NOTE, &[note(0), note(0)]),
            ),
            (2287, array(2249, &[note(1_000)]), array(2249, &[note(0)])),
            (MOODS, array(MOOD + 1_000, &[]), array(MOOD, &[])),
            // A table's row, of which nothing is known, and an array of such.
            (20_500, array(21_501, from_ref(&plain)), array(20_501, from_ref(&plain))),
            (20_501, plain.clone(), plain),
            // Not the number that is a value.
            (MOOD, 21_000_u32.to_be_bytes().to_vec(), 21_000_u32.to_be_bytes().to_vec()),
            (2206, 21_000_u32.to_be_bytes().to_vec(), 20_000_u32.to_be_bytes().to_vec()),
        ] {
            let mut changed = value;
            to_home(&code, oid, &mut changed).expect("it is well-formed");
            assert_eq!(changed, wanted, "{oid}");
        }
    }

    #[test]
    fn what_is_cut_off_is_malformed() {
        let code = code();
        let whole = array(NOTE, &[note(0)]);
        for len in 0..whole.len() {
            let cut = to_home(&code, NOTES, &mut whole[..len].to_vec());
            // Behind the dimensions it may be thought to end before its elements.
            assert!(cut.is_err() || len == 20, "{len} bytes");
        }
    }

    #[test]
    fn depth_has_no_end() {
        let of = |number: u32| {
            let mut value = note(number);
            for _ in 0..2_000 {
                let inner = sized(&value);
                value = [&1_u32.to_be_bytes()[..], &2249_u32.to_be_bytes()[..], &inner].concat();
            }
            value
        };
        let mut value = of(1_000);
        to_home(&code(), 2249, &mut value).expect("it is well-formed");
        assert!(value == of(0));
    }
}
