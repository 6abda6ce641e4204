//! What PullLogs reads and sends: records of a segment (`service/loghub_service/storage/segment_format.py`), and
//! log groups that are stored as LZ4 blocks, joined to one (`loghub/wire/compression.py`).

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::lz4::literals_at;
use crate::protobuf::put_varint;

const RECORD_HEADER: usize = 32;
/// Length and CRC, which the CRC does not cover.
const CRC_SKIP: usize = 8;
const ALIGNED: usize = 8;
/// Of a log group that is stored as a block: 0, the form 1, 0, 0.
const PACKED: [u8; 4] = [0, 1, 0, 0];
const PACKED_HEADER: usize = 12;
/// Field 1 of a LogGroupList, with a length.
const GROUPS: u8 = 1 << 3 | 2;
const LONG: usize = 15;
const COPY_BITS: u8 = 15;

/// At most `most` records that lie one after the other in `window` from `at` on, each with cursor, time of receipt,
/// number of logs, and group; up to the first one that is not complete or is damaged.
#[pyfunction]
#[allow(clippy::type_complexity)]
pub fn whole_records<'py>(
    py: Python<'py>,
    window: &[u8],
    mut at: usize,
    mark_bytes: usize,
    most: usize,
) -> Vec<(i64, i64, u32, Bound<'py, PyBytes>)> {
    let mut found = Vec::new();
    while found.len() < most {
        let Some(header) = window.get(at..at + RECORD_HEADER) else { break };
        let length = number(header, 0) as usize;
        let end = at + RECORD_HEADER + length;
        if length == 0 || end > window.len() || crc32fast::hash(&window[at + CRC_SKIP..end]) != number(header, 4) {
            break;
        }
        let group = PyBytes::new(py, &window[at + RECORD_HEADER..end]);
        found.push((long(header, 8), long(header, 16), number(header, 24), group));
        at += (RECORD_HEADER + length + mark_bytes).next_multiple_of(ALIGNED);
    }
    found
}

/// The LogGroupList of these stored groups as an LZ4 block, and its size without compression; None unless each is
/// stored as a block.
#[pyfunction]
pub fn lz4_list<'py>(
    py: Python<'py>,
    groups: Vec<Bound<'py, PyBytes>>,
) -> Option<(Bound<'py, PyBytes>, usize)> {
    let groups: Vec<&[u8]> = groups.iter().map(|group| group.as_bytes()).collect();
    let (block, size) = py.detach(|| joined(&groups))?;
    Some((PyBytes::new(py, &block), size))
}

fn joined(groups: &[&[u8]]) -> Option<(Vec<u8>, usize)> {
    let mut out = Vec::with_capacity(groups.iter().map(|group| group.len()).sum());
    let mut waiting = Vec::new(); // literals of the sequence that is not complete yet
    let mut total = 0;
    for group in groups {
        if !group.starts_with(&PACKED) || group.len() <= PACKED_HEADER {
            return None;
        }
        let (size, last) = (number(group, 4), number(group, 8) as usize);
        let block = &group[PACKED_HEADER..];
        let before = waiting.len();
        waiting.push(GROUPS);
        put_varint(&mut waiting, u64::from(size));
        total += waiting.len() - before + size as usize;
        let literals = literals_at(block, 0)?;
        waiting.extend_from_slice(block.get(literals.clone())?);
        if last > 0 {
            push_head(&mut out, waiting.len(), block[0] & COPY_BITS);
            out.append(&mut waiting);
            out.extend_from_slice(block.get(literals.end..last)?);
            waiting.extend_from_slice(block.get(literals_at(block, last)?.start..)?);
        }
    }
    push_head(&mut out, waiting.len(), 0);
    out.append(&mut waiting);
    Some((out, total))
}

/// The begin of a sequence up to its literals; `copy` is what the token says of the copied bytes.
fn push_head(out: &mut Vec<u8>, literals: usize, copy: u8) {
    if literals < LONG {
        out.push((literals as u8) << 4 | copy);
        return;
    }
    out.push((LONG as u8) << 4 | copy);
    let mut more = literals - LONG;
    while more >= usize::from(u8::MAX) {
        out.push(u8::MAX);
        more -= usize::from(u8::MAX);
    }
    out.push(more as u8);
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap_or_default())
}

fn long(bytes: &[u8], at: usize) -> i64 {
    i64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default())
}
