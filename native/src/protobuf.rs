//! The few parts of the protobuf encoding that a LogGroup needs, as in `loghub/wire/protobuf.py`.

/// A field of a message: `bytes` is its content, of a varint its encoded form.
pub struct Field<'a> {
    pub number: u64,
    pub wire_type: u8,
    pub bytes: &'a [u8],
}

pub const VARINT: u8 = 0;
pub const BYTES: u8 = 2;
pub const FIXED32: u8 = 5;
const FIXED64: u8 = 1;
const MAX_VARINT_BYTES: usize = 10;
const MAX_FIELD: u64 = (1 << 29) - 1;

/// The varint at the begin and its size in bytes; None if it is truncated or longer than 64 bits.
#[inline]
pub fn read_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    if first < 0x80 {
        return Some((u64::from(first), 1));
    }
    let mut value = u64::from(first & 0x7F);
    for (index, &byte) in bytes.iter().enumerate().take(MAX_VARINT_BYTES).skip(1) {
        value |= u64::from(byte & 0x7F).wrapping_shl(7 * index as u32);
        if byte < 0x80 {
            return Some((value, index + 1));
        }
    }
    None
}

/// The first field of a message and what follows it; None if it is not whole or has an unknown wire type.
#[inline]
pub fn split_field(message: &[u8]) -> Option<(Field<'_>, &[u8])> {
    let (key, at) = read_varint(message)?;
    let (number, wire_type) = (key >> 3, (key & 7) as u8);
    if number == 0 || number > MAX_FIELD {
        return None;
    }
    let rest = &message[at..];
    let (begin, size) = match wire_type {
        BYTES => {
            let (size, begin) = read_varint(rest)?;
            (begin, usize::try_from(size).ok()?)
        }
        VARINT => (0, read_varint(rest)?.1),
        FIXED32 => (0, 4),
        FIXED64 => (0, 8),
        _ => return None,
    };
    let rest = &rest[begin..];
    if size > rest.len() {
        return None;
    }
    let (bytes, rest) = rest.split_at(size);
    Some((
        Field {
            number,
            wire_type,
            bytes,
        },
        rest,
    ))
}

#[inline]
pub fn put_varint(out: &mut Vec<u8>, value: u64) {
    let mut left = value;
    while left >= 0x80 {
        out.push(left as u8 & 0x7F | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
}

#[inline]
pub fn varint_size(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Length and bytes.
#[inline]
pub fn put_sized(out: &mut Vec<u8>, content: &[u8]) {
    put_varint(out, content.len() as u64);
    out.extend_from_slice(content);
}

/// The key that precedes a field.
pub const fn tag(number: u64, wire_type: u8) -> u64 {
    number << 3 | wire_type as u64
}
