//! The messages of a Pulsar batch as a log group: what `service/loghub_service/pulsar/records/sends.py` does.

use base64::engine::general_purpose::STANDARD;
use base64::Engine;

use crate::entries::{BASE64_KEY, EVENT_TIME};
use crate::protobuf::{
    put_sized, put_varint, read_varint, split_field, tag, varint_size, BYTES, FIXED32, VARINT,
};

/// Of the time of a log, which is 32 bits of seconds.
const MAX_LOG_MS: u64 = (1 << 32) * 1000 - 1;
const LOGS: u64 = tag(1, BYTES);
const TIME: u64 = tag(1, VARINT);
const CONTENTS: u64 = tag(2, BYTES);
const TIME_NS: u64 = tag(4, FIXED32);
const KEY: u64 = tag(1, BYTES);
const VALUE: u64 = tag(2, BYTES);

/// What is refused beyond.
pub struct Limits {
    pub group_bytes: usize,
    /// Fields of the metadata of all messages.
    pub fields: usize,
    /// Fields of the metadata of one message.
    pub message_fields: usize,
    /// Properties of one message.
    pub properties: usize,
}

/// A log for each message, the flags of each, and the highest sequence id.
#[derive(Default)]
pub struct Logs {
    pub group: Vec<u8>,
    pub flags: Vec<u8>,
    pub last: u64,
}

/// The metadata of one message.
#[derive(Default)]
struct Message<'a> {
    properties: Vec<(&'a [u8], &'a [u8])>,
    key: Option<&'a [u8]>,
    ordering_key: Option<&'a [u8]>,
    event_ms: u64,
    sequence: u64,
    payload_size: Option<usize>,
    is_base64: bool,
    is_null: bool,
    has_no_key: bool,
}

/// The log group of a batch of so many messages; None for a batch that is unusual, or that Python refuses.
pub fn logs_of(
    batch: &[u8],
    count: usize,
    publish_ms: u64,
    raw: bool,
    limits: &Limits,
) -> Option<Logs> {
    let mut logs = Logs {
        group: Vec::with_capacity(batch.len() + 16 * count.min(batch.len())),
        ..Logs::default()
    };
    let (mut message, mut log) = (Message::default(), Vec::new());
    let mut fields_left = limits.fields;
    let mut rest = batch;
    for _ in 0..count {
        let (size, after) = rest.split_first_chunk::<4>()?;
        let (metadata, after) = after.split_at_checked(u32::from_be_bytes(*size) as usize)?;
        let fields = read_metadata(
            metadata,
            fields_left.min(limits.message_fields),
            &mut message,
        )?;
        fields_left -= fields;
        let (payload, after) = after.split_at_checked(message.payload_size?)?;
        rest = after;
        if message.properties.len() > limits.properties {
            return None;
        }
        logs.flags
            .push(put_log(&mut log, &message, payload, publish_ms, raw)?);
        logs.last = logs.last.max(message.sequence);
        put_varint(&mut logs.group, LOGS);
        put_sized(&mut logs.group, &log);
        if logs.group.len() > limits.group_bytes {
            return None;
        }
    }
    rest.is_empty().then_some(logs)
}

/// The number of fields, which are at most so many.
fn read_metadata<'a>(
    metadata: &'a [u8],
    most_fields: usize,
    message: &mut Message<'a>,
) -> Option<usize> {
    let mut properties = std::mem::take(&mut message.properties);
    properties.clear();
    *message = Message {
        properties,
        ..Message::default()
    };
    let mut fields = 0;
    let mut rest = metadata;
    while !rest.is_empty() {
        let (field, after) = split_field(rest)?;
        rest = after;
        fields += 1;
        match (field.number, field.wire_type) {
            (1, BYTES) => {
                message.properties.push(property(field.bytes)?);
                fields += 2;
            }
            (2, BYTES) => message.key = Some(text(field.bytes)?),
            (3, VARINT) => {
                // An int32: the upper half of a number is dropped.
                let size = read_varint(field.bytes)?.0 as i32;
                message.payload_size = Some(usize::try_from(size).ok()?);
            }
            (5, VARINT) => message.event_ms = read_varint(field.bytes)?.0,
            (6, VARINT) => message.is_base64 = read_varint(field.bytes)?.0 != 0,
            (7, BYTES) => message.ordering_key = Some(field.bytes),
            (8, VARINT) => message.sequence = read_varint(field.bytes)?.0,
            (9, VARINT) => message.is_null = read_varint(field.bytes)?.0 != 0,
            (10, VARINT) => message.has_no_key = read_varint(field.bytes)?.0 != 0,
            _ => return None,
        }
        if fields > most_fields {
            return None;
        }
    }
    Some(fields)
}

/// Name and value, in this order and nothing else.
fn property(pair: &[u8]) -> Option<(&[u8], &[u8])> {
    let (name, rest) = split_field(pair)?;
    let (value, rest) = split_field(rest)?;
    let is_usual = (name.number, name.wire_type) == (1, BYTES)
        && (value.number, value.wire_type) == (2, BYTES)
        && rest.is_empty();
    is_usual.then_some((text(name.bytes)?, text(value.bytes)?))
}

#[inline]
fn text(bytes: &[u8]) -> Option<&[u8]> {
    (bytes.is_ascii() || std::str::from_utf8(bytes).is_ok()).then_some(bytes)
}

/// The flags of the message, whose log is written.
fn put_log(
    log: &mut Vec<u8>,
    message: &Message<'_>,
    payload: &[u8],
    publish_ms: u64,
    raw: bool,
) -> Option<u8> {
    let mut flags = 0;
    let mut time_ms = publish_ms.min(MAX_LOG_MS);
    if message.event_ms > 0 {
        if message.event_ms > MAX_LOG_MS {
            return None;
        }
        flags |= EVENT_TIME;
        time_ms = message.event_ms;
    }
    log.clear();
    put_varint(log, TIME);
    put_varint(log, time_ms / 1000);
    if let Some(key) = message.key.filter(|_| !message.has_no_key) {
        if message.is_base64 {
            flags |= BASE64_KEY;
            let key = STANDARD.decode(key).ok()?;
            if raw {
                put_content(log, &[b"key"], &key);
            }
        } else if raw {
            put_content(log, &[b"key"], key);
        }
    }
    if !raw {
        if message.is_null {
            return None;
        }
        put_content(log, &[b"content"], payload);
    } else {
        if !message.is_null {
            put_content(log, &[b"value"], payload);
        }
        for &(name, value) in &message.properties {
            put_content(log, &[b"header.", name], value);
        }
        if let Some(ordering_key) = message.ordering_key {
            put_content(log, &[b"ordering_key"], ordering_key);
        }
    }
    put_varint(log, TIME_NS);
    log.extend_from_slice(&((time_ms % 1000) as u32 * 1_000_000).to_le_bytes());
    Some(flags)
}

/// A field of a log, whose name is given in parts.
fn put_content(log: &mut Vec<u8>, name: &[&[u8]], value: &[u8]) {
    let name_size: usize = name.iter().map(|part| part.len()).sum();
    let size = 2
        + varint_size(name_size as u64)
        + name_size
        + varint_size(value.len() as u64)
        + value.len();
    put_varint(log, CONTENTS);
    put_varint(log, size as u64);
    put_varint(log, KEY);
    put_varint(log, name_size as u64);
    for part in name {
        log.extend_from_slice(part);
    }
    put_varint(log, VALUE);
    put_sized(log, value);
}
