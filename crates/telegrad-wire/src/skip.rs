//! The length of a MessagePack value without decoding it.

use rmp::Marker;

/// Length in bytes of the first value in `input`; `None` if the input is too short.
///
/// Counts instead of recursing, because the peer chooses the nesting depth.
pub(crate) fn value_len(input: &[u8]) -> Option<usize> {
    let mut rest = input;
    let mut values_left = 1_usize;
    while values_left > 0 {
        let (payload, inside) = header(&mut rest)?;
        rest = rest.get(payload..)?;
        values_left = (values_left - 1).checked_add(inside)?;
        // A value takes at least one byte.
        if values_left > rest.len() {
            return None;
        }
    }
    Some(input.len() - rest.len())
}

/// Takes a value's marker and length; returns the number of payload bytes and of nested values.
fn header(rest: &mut &[u8]) -> Option<(usize, usize)> {
    let [byte] = take(rest)?;
    Some(match Marker::from_u8(byte) {
        Marker::Null | Marker::True | Marker::False | Marker::FixPos(_) | Marker::FixNeg(_) => (0, 0),
        // Not a value; the decoder rejects it.
        Marker::Reserved => (0, 0),
        Marker::U8 | Marker::I8 => (1, 0),
        Marker::U16 | Marker::I16 => (2, 0),
        Marker::U32 | Marker::I32 | Marker::F32 => (4, 0),
        Marker::U64 | Marker::I64 | Marker::F64 => (8, 0),
        Marker::FixStr(len) => (usize::from(len), 0),
        Marker::Str8 | Marker::Bin8 => (len8(rest)?, 0),
        Marker::Str16 | Marker::Bin16 => (len16(rest)?, 0),
        Marker::Str32 | Marker::Bin32 => (len32(rest)?, 0),
        Marker::FixArray(len) => (0, usize::from(len)),
        Marker::Array16 => (0, len16(rest)?),
        Marker::Array32 => (0, len32(rest)?),
        Marker::FixMap(len) => (0, usize::from(len) * 2),
        Marker::Map16 => (0, len16(rest)? * 2),
        Marker::Map32 => (0, len32(rest)?.checked_mul(2)?),
        // An extension has one more byte, its type.
        Marker::FixExt1 => (1 + 1, 0),
        Marker::FixExt2 => (1 + 2, 0),
        Marker::FixExt4 => (1 + 4, 0),
        Marker::FixExt8 => (1 + 8, 0),
        Marker::FixExt16 => (1 + 16, 0),
        Marker::Ext8 => (1 + len8(rest)?, 0),
        Marker::Ext16 => (1 + len16(rest)?, 0),
        Marker::Ext32 => (len32(rest)?.checked_add(1)?, 0),
    })
}

fn len8(rest: &mut &[u8]) -> Option<usize> {
    take(rest).map(|[len]| usize::from(len))
}

fn len16(rest: &mut &[u8]) -> Option<usize> {
    take(rest).map(|bytes| usize::from(u16::from_be_bytes(bytes)))
}

fn len32(rest: &mut &[u8]) -> Option<usize> {
    take(rest).and_then(|bytes| usize::try_from(u32::from_be_bytes(bytes)).ok())
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk()?;
    *rest = tail;
    Some(*head)
}
