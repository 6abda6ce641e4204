//! The check of a LogGroup: what `loghub/wire/loggroup_validation.py` accepts, without its messages.

use crate::protobuf::{read_varint, split_field, BYTES, FIXED32, VARINT};

/// The number of logs in a group that is valid; None for one that is not, or is unusual.
pub fn count_logs(group: &[u8]) -> Option<usize> {
    let mut logs = 0;
    let mut rest = group;
    while !rest.is_empty() {
        let is_short = rest[0] < 0x80;
        let (field, after) = split_field(rest)?;
        rest = after;
        match (field.number, field.wire_type) {
            (1, BYTES) if is_short => {
                check_log(field.bytes)?;
                logs += 1;
            }
            (6, BYTES) => check_pair(field.bytes, true)?,
            (2..=5, BYTES) => check_text(field.bytes)?,
            (1..=6, _) => return None,
            _ => {}
        }
    }
    Some(logs)
}

fn check_log(log: &[u8]) -> Option<()> {
    let mut time = None;
    let mut rest = log;
    while !rest.is_empty() {
        let is_short = rest[0] < 0x80;
        let (field, after) = split_field(rest)?;
        rest = after;
        match (field.number, field.wire_type) {
            (2, BYTES) if is_short => check_pair(field.bytes, false)?,
            (1, VARINT) if is_short => time = Some(read_varint(field.bytes)?.0),
            (4, FIXED32) => {}
            (1 | 2 | 4, _) => return None,
            _ => {}
        }
    }
    time.filter(|time| *time <= u64::from(u32::MAX)).map(|_| ())
}

/// A Content or LogTag: both need key and value.
fn check_pair(pair: &[u8], is_tag: bool) -> Option<()> {
    let (mut key, mut value) = (false, false);
    let mut rest = pair;
    while !rest.is_empty() {
        let (field, after) = split_field(rest)?;
        rest = after;
        match (field.number, field.wire_type) {
            (1, BYTES) => {
                check_text(field.bytes)?;
                key = true;
            }
            (2, BYTES) => {
                if is_tag {
                    check_text(field.bytes)?;
                }
                value = true;
            }
            (1 | 2, _) => return None,
            _ => {}
        }
    }
    (key && value).then_some(())
}

#[inline]
fn check_text(text: &[u8]) -> Option<()> {
    (text.is_ascii() || std::str::from_utf8(text).is_ok()).then_some(())
}
