//! LZ4 blocks of PutLogs: whether every decoder accepts one, and where its last sequence begins, as
//! `loghub/wire/compression.py` finds it by trying. https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md

use std::ops::Range;

const LONG: usize = 15; // in a token: more bytes of the length follow
const MIN_COPY: usize = 4;
const LAST_LITERALS: usize = 5; // "The last 5 bytes of input are always literals"
const LAST_COPY: usize = 12; // "The last match must start at least 12 bytes before the end of block"
const AFTER_LITERALS: usize = 8; // a distance, a token, and the last literals

/// Where the last sequence begins of a block that decompresses to `raw_size` bytes, 0 if there is no other; None
/// for a block that the format does not allow.
pub fn last_sequence(block: &[u8], raw_size: usize) -> Option<usize> {
    let (mut at, mut written) = (0, 0);
    loop {
        let token = usize::from(*block.get(at)?);
        let (literals, begin) = length(block, at + 1, token >> 4)?;
        let copy = begin.checked_add(literals)?;
        written += literals;
        if copy == block.len() {
            let is_usual = written == raw_size && (at == 0 || literals >= LAST_LITERALS);
            return is_usual.then_some(at);
        }
        if copy + AFTER_LITERALS > block.len() || written + LAST_COPY > raw_size {
            return None;
        }
        let distance = usize::from(u16::from_le_bytes([block[copy], block[copy + 1]]));
        let (more, next) = length(block, copy + 2, token & LONG)?;
        if distance == 0 || distance > written {
            return None;
        }
        written += more + MIN_COPY;
        if written + LAST_LITERALS > raw_size {
            return None;
        }
        at = next;
    }
}

/// Where the literals of the sequence at `at` are.
pub fn literals_at(block: &[u8], at: usize) -> Option<Range<usize>> {
    let (literals, begin) = length(block, at + 1, usize::from(*block.get(at)? >> 4))?;
    Some(begin..begin.checked_add(literals)?)
}

/// A length that begins in a token, and what follows its last byte.
#[inline]
fn length(block: &[u8], mut at: usize, in_token: usize) -> Option<(usize, usize)> {
    let mut size = in_token;
    if size == LONG {
        loop {
            let more = *block.get(at)?;
            at += 1;
            size += usize::from(more);
            if more != u8::MAX {
                break;
            }
        }
    }
    Some((size, at))
}
