//! The slots of the keys of logs: what `service/loghub_service/dispatch/keys.py` and `.../subscription/slots.py` do.

use crate::shapes::{each_log, each_shaped_log, Shape};

const SLOTS: u32 = 1 << 16;
/// Python has a digest in place of a longer key.
const MAX_HASHED_BYTES: usize = 1024;
/// Between fields.
const SEPARATOR: u8 = 0;

/// By the key with which each log was written, or by the producer and the number of the log; None for a group that
/// is unusual or damaged, and for one with a long key.
pub fn of_keys(group: &[u8], raw: bool, producer: &str, first: u64) -> Option<Vec<u32>> {
    let mut slots = Vec::new();
    each_shaped_log(group, raw, usize::MAX, |shape, log| {
        let key = match shape {
            Shape::KeyValue {
                key, ordering_key, ..
            } => ordering_key.or(*key).map(|index| log.values[index]),
            _ => None,
        };
        slots.push(match key {
            Some(key) => slot_of(key)?,
            None => {
                let number = first.checked_add(slots.len() as u64)?;
                slot_of(format!("{producer}-{number}").as_bytes())?
            }
        });
        Some(())
    })?;
    Some(slots)
}

/// By these fields of each log; None as above.
pub fn of_fields(group: &[u8], fields: &[&[u8]]) -> Option<Vec<u32>> {
    let (mut slots, mut key) = (Vec::new(), Vec::new());
    each_log(group, usize::MAX, |log| {
        key.clear();
        for (place, field) in fields.iter().enumerate() {
            if place > 0 {
                key.push(SEPARATOR);
            }
            if let Some(index) = log.names.iter().rposition(|name| name == field) {
                key.extend_from_slice(log.values[index]);
            }
        }
        slots.push(slot_of(&key)?);
        Some(())
    })?;
    Some(slots)
}

fn slot_of(key: &[u8]) -> Option<u32> {
    (key.len() <= MAX_HASHED_BYTES).then(|| (murmur3(key) & 0x7FFF_FFFF) % SLOTS)
}

/// MurmurHash3, 32 bits, seed 0: https://github.com/aappleby/smhasher/wiki/MurmurHash3
fn murmur3(data: &[u8]) -> u32 {
    let blocks = data.chunks_exact(4);
    let rest = blocks.remainder();
    let mut hash = 0_u32;
    for block in blocks {
        hash ^= mixed(u32::from_le_bytes(block.try_into().unwrap()));
        hash = hash
            .rotate_left(13)
            .wrapping_mul(5)
            .wrapping_add(0xE654_6B64);
    }
    if !rest.is_empty() {
        let block = rest
            .iter()
            .rev()
            .fold(0, |block, &byte| block << 8 | u32::from(byte));
        hash ^= mixed(block);
    }
    hash ^= data.len() as u32;
    hash ^= hash >> 16;
    hash = hash.wrapping_mul(0x85EB_CA6B);
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(0xC2B2_AE35);
    hash ^ hash >> 16
}

#[inline]
fn mixed(block: u32) -> u32 {
    block
        .wrapping_mul(0xCC9E_2D51)
        .rotate_left(15)
        .wrapping_mul(0x1B87_3593)
}
