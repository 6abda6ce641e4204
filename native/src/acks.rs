//! Acknowledgements of whole entries: what `service/loghub_service/pulsar/wire/frames.py` and
//! `.../pulsar/broker/consumers.py` do with an ACK.

use crate::protobuf::{read_varint, split_field, BYTES, VARINT};

/// Of a BaseCommand with an ACK, before the size of its message: its type, and the key of the message.
const BEGIN: [u8; 3] = [0x08, 10, 0x52];
/// With an index below it, a position has 64 bits. The service numbers log groups one by one.
const MAX_LEDGER_BITS: u32 = 46;

/// The runs of positions at which the entries begin, in their order, and joined inside a log group.
pub struct AckedEntries {
    pub consumer_id: u64,
    pub request_id: Option<u64>,
    /// How many ids there were.
    pub ids: usize,
    pub runs: Vec<(u64, u64)>,
}

/// What the ACK of a frame names, if its ids are all of whole entries, each acknowledged by itself; None for all else.
pub fn read(frame: &[u8], index_bits: u32, most_fields: usize) -> Option<AckedEntries> {
    let (size, command) = frame.split_first_chunk::<4>()?;
    if u32::from_be_bytes(*size) as usize != command.len() {
        return None;
    }
    let rest = command.strip_prefix(&BEGIN)?;
    let (size, begin) = read_varint(rest)?;
    let mut rest = &rest[begin..];
    if size != rest.len() as u64 {
        return None;
    }
    let (mut consumer_id, mut request_id, mut is_individual) = (None, None, false);
    let mut positions = Vec::new();
    let mut fields = 2;
    while !rest.is_empty() {
        let (field, after) = split_field(rest)?;
        rest = after;
        fields += 1;
        match (field.number, field.wire_type) {
            (1, VARINT) => consumer_id = Some(read_varint(field.bytes)?.0),
            (2, VARINT) => {
                is_individual = true;
                if read_varint(field.bytes)?.0 != 0 {
                    return None;
                }
            }
            (3, BYTES) => positions.push(position(field.bytes, index_bits, &mut fields)?),
            (6 | 7, VARINT) if field.bytes == [0] => {} // no transaction
            (8, VARINT) => request_id = Some(read_varint(field.bytes)?.0),
            _ => return None,
        }
        if fields > most_fields {
            return None;
        }
    }
    if !is_individual {
        return None;
    }
    let ids = positions.len();
    Some(AckedEntries {
        consumer_id: consumer_id?,
        request_id,
        ids,
        runs: joined(positions, index_bits),
    })
}

/// The position of the first log of an entry.
fn position(id: &[u8], index_bits: u32, fields: &mut usize) -> Option<u64> {
    let (mut ledger, mut entry) = (None, None);
    let mut rest = id;
    while !rest.is_empty() {
        let (field, after) = split_field(rest)?;
        rest = after;
        *fields += 1;
        match (field.number, field.wire_type) {
            (1, VARINT) => ledger = Some(read_varint(field.bytes)?.0),
            (2, VARINT) => entry = Some(read_varint(field.bytes)?.0),
            (3 | 4 | 6, VARINT) => {} // partition, and of a batch the index and the size
            _ => return None,
        }
    }
    let (ledger, entry) = (ledger?, entry?);
    (ledger >> MAX_LEDGER_BITS == 0 && entry >> index_bits == 0)
        .then_some(ledger << index_bits | entry)
}

fn joined(mut positions: Vec<u64>, index_bits: u32) -> Vec<(u64, u64)> {
    positions.sort_unstable();
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for position in positions {
        match runs.last_mut() {
            Some((first, stop))
                if position <= *stop && position >> index_bits == *first >> index_bits =>
            {
                *stop = position + 1;
            }
            _ => runs.push((position, position + 1)),
        }
    }
    runs
}
