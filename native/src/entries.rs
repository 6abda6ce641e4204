//! Log groups as what Pulsar's MESSAGE carries: what `service/loghub_service/pulsar/records/entries.py` does.

use base64::engine::general_purpose::STANDARD;
use base64::Engine;

use crate::protobuf::{put_sized, put_varint, tag, varint_size, BYTES, VARINT};
use crate::shapes::{each_shaped_log, put_object, Log, Shape, HEADER};

/// Flags of a message, as in `service/loghub_service/pulsar/origin.py`.
pub const EVENT_TIME: u8 = 1;
pub const BASE64_KEY: u8 = 2;
const MAGIC: [u8; 2] = [0x0E, 0x01];
/// Of an entry before its metadata: magic number, checksum, and the size of the metadata.
const HEAD_BYTES: usize = 10;
const CHECKED_FROM: usize = 6;

/// The keys of the fields that a message alone and a message of a batch both have.
struct Tags {
    properties: u64,
    key: u64,
    event_time: u64,
    is_base64: u64,
    ordering_key: u64,
    sequence: u64,
    null_value: u64,
}

const ALONE: Tags = Tags {
    properties: tag(4, BYTES),
    key: tag(6, BYTES),
    event_time: tag(12, VARINT),
    is_base64: tag(17, VARINT),
    ordering_key: tag(18, BYTES),
    sequence: tag(2, VARINT),
    null_value: tag(25, VARINT),
};
const IN_BATCH: Tags = Tags {
    properties: tag(1, BYTES),
    key: tag(2, BYTES),
    event_time: tag(5, VARINT),
    is_base64: tag(6, VARINT),
    ordering_key: tag(7, BYTES),
    sequence: tag(8, VARINT),
    null_value: tag(9, VARINT),
};
const BATCH_SIZE: u64 = tag(11, VARINT);
const HIGHEST_SEQUENCE: u64 = tag(24, VARINT);
const PAYLOAD_SIZE: u64 = tag(3, VARINT);
const NAME: u64 = tag(1, BYTES);
const VALUE: u64 = tag(2, BYTES);

/// A group, and what all of its entries have.
pub struct GroupToSend<'a> {
    pub group: &'a [u8],
    pub raw: bool,
    /// The metadata, which the fields of each entry follow.
    pub common: &'a [u8],
    /// The sequence id of the first log.
    pub sequence: u64,
    /// A byte for each message, or one if all have the same.
    pub flags: &'a [u8],
    pub max_payload_bytes: usize,
    /// Of metadata and payload.
    pub max_bytes: usize,
}

/// Entries one after the other, each with the log at which it begins, the number of its logs, and its end.
pub struct Entries {
    pub bytes: Vec<u8>,
    pub parts: Vec<(usize, usize, usize)>,
}

/// An entry for each log; None for a group that is unusual or damaged, or has a log that is larger than a frame.
pub fn single_entries(to_send: &GroupToSend<'_>) -> Option<Entries> {
    let mut entries = Entries::of(to_send);
    let mut object = Vec::new();
    let mut index = 0;
    each_shaped_log(to_send.group, to_send.raw, usize::MAX, |shape, log| {
        let payload = payload_of(shape, log, &mut object);
        let begin = entries.begin(to_send.common);
        let is_null = payload.is_none();
        put_fields(
            &mut entries.bytes,
            &ALONE,
            to_send,
            index,
            shape,
            log,
            is_null,
        )?;
        entries.end(to_send, begin, payload.unwrap_or(&[]), (index, 1))?;
        index += 1;
        Some(())
    })?;
    Some(entries)
}

/// The logs in batches, as few as possible; None as for single entries.
pub fn batches(to_send: &GroupToSend<'_>) -> Option<Entries> {
    let mut entries = Entries::of(to_send);
    let (mut object, mut metadata) = (Vec::new(), Vec::new());
    let mut run: Vec<u8> = Vec::with_capacity(to_send.group.len() + to_send.group.len() / 4);
    let (mut first, mut index) = (0, 0);
    each_shaped_log(to_send.group, to_send.raw, usize::MAX, |shape, log| {
        let payload = payload_of(shape, log, &mut object);
        let is_null = payload.is_none();
        let payload = payload.unwrap_or(&[]);
        metadata.clear();
        put_varint(&mut metadata, PAYLOAD_SIZE);
        put_varint(&mut metadata, payload.len() as u64);
        put_fields(
            &mut metadata,
            &IN_BATCH,
            to_send,
            index,
            shape,
            log,
            is_null,
        )?;
        let size = 4 + metadata.len() + payload.len();
        if !run.is_empty() && run.len() + size > to_send.max_payload_bytes {
            entries.add_batch(to_send, &run, (first, index - first))?;
            run.clear();
            first = index;
        }
        run.extend_from_slice(&u32::try_from(metadata.len()).ok()?.to_be_bytes());
        run.extend_from_slice(&metadata);
        run.extend_from_slice(payload);
        index += 1;
        Some(())
    })?;
    if !run.is_empty() {
        entries.add_batch(to_send, &run, (first, index - first))?;
    }
    Some(entries)
}

impl Entries {
    fn of(to_send: &GroupToSend<'_>) -> Self {
        Self {
            bytes: Vec::with_capacity(to_send.group.len() + to_send.group.len() / 4),
            parts: Vec::new(),
        }
    }

    /// Where the next entry begins, of which only the payload and more metadata are missing then.
    fn begin(&mut self, common: &[u8]) -> usize {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(&[0; HEAD_BYTES]);
        self.bytes.extend_from_slice(common);
        begin
    }

    fn end(
        &mut self,
        to_send: &GroupToSend<'_>,
        begin: usize,
        payload: &[u8],
        (first, logs): (usize, usize),
    ) -> Option<()> {
        let metadata = self.bytes.len() - begin - HEAD_BYTES;
        if payload.len() > to_send.max_payload_bytes || metadata + payload.len() > to_send.max_bytes
        {
            return None;
        }
        self.bytes.extend_from_slice(payload);
        let entry = &mut self.bytes[begin..];
        entry[CHECKED_FROM..HEAD_BYTES]
            .copy_from_slice(&u32::try_from(metadata).ok()?.to_be_bytes());
        let checksum = crc32c::crc32c(&entry[CHECKED_FROM..]);
        entry[..MAGIC.len()].copy_from_slice(&MAGIC);
        entry[MAGIC.len()..CHECKED_FROM].copy_from_slice(&checksum.to_be_bytes());
        self.parts.push((first, logs, self.bytes.len()));
        Some(())
    }

    fn add_batch(
        &mut self,
        to_send: &GroupToSend<'_>,
        run: &[u8],
        (first, logs): (usize, usize),
    ) -> Option<()> {
        let begin = self.begin(to_send.common);
        let sequence = to_send.sequence.checked_add(first as u64)?;
        for (key, number) in [
            (ALONE.sequence, sequence),
            (BATCH_SIZE, logs as u64),
            (HIGHEST_SEQUENCE, sequence.checked_add(logs as u64 - 1)?),
        ] {
            put_varint(&mut self.bytes, key);
            put_varint(&mut self.bytes, number);
        }
        self.end(to_send, begin, run, (first, logs))
    }
}

/// None if the message has no payload. A JSON object is made in `object`.
fn payload_of<'a>(shape: &Shape, log: &Log<'a>, object: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    match shape {
        Shape::Single => Some(log.values[0]),
        Shape::KeyValue { value, .. } => value.map(|index| log.values[index]),
        Shape::Json { .. } | Shape::Repeated { .. } => {
            object.clear();
            put_object(shape, log, object);
            Some(object)
        }
    }
}

/// The metadata of a message besides the size of its payload.
fn put_fields(
    out: &mut Vec<u8>,
    tags: &Tags,
    to_send: &GroupToSend<'_>,
    index: usize,
    shape: &Shape,
    log: &Log<'_>,
    is_null: bool,
) -> Option<()> {
    let flags = match to_send.flags {
        [all] => *all,
        each => *each.get(index)?,
    };
    put_varint(out, tags.sequence);
    put_varint(out, to_send.sequence.checked_add(index as u64)?);
    let (mut key, mut ordering_key) = (None, None);
    if let Shape::KeyValue {
        key: key_at,
        ordering_key: ordering_key_at,
        headers,
        ..
    } = shape
    {
        key = key_at.map(|index| log.values[index]);
        ordering_key = ordering_key_at.map(|index| log.values[index]);
        for &(index, is_null) in headers {
            if !is_null {
                put_property(
                    out,
                    tags,
                    &log.names[index][HEADER.len()..],
                    log.values[index],
                );
            }
        }
    }
    if let Some(key) = key {
        if flags & BASE64_KEY != 0 || std::str::from_utf8(key).is_err() {
            put_varint(out, tags.is_base64);
            out.push(1);
            put_varint(out, tags.key);
            put_sized(out, STANDARD.encode(key).as_bytes());
        } else {
            put_varint(out, tags.key);
            put_sized(out, key);
        }
    }
    if flags & EVENT_TIME != 0 {
        put_varint(out, tags.event_time);
        put_varint(out, u64::try_from(log.time_ms).ok()?);
    }
    if let Some(ordering_key) = ordering_key {
        put_varint(out, tags.ordering_key);
        put_sized(out, ordering_key);
    }
    if is_null {
        put_varint(out, tags.null_value);
        out.push(1);
    }
    Some(())
}

/// Name and value are text: bytes that are not UTF-8 become U+FFFD.
fn put_property(out: &mut Vec<u8>, tags: &Tags, name: &[u8], value: &[u8]) {
    let (name, value) = (
        String::from_utf8_lossy(name),
        String::from_utf8_lossy(value),
    );
    let size = [name.len(), value.len()]
        .iter()
        .map(|&size| 1 + varint_size(size as u64) + size)
        .sum::<usize>();
    put_varint(out, tags.properties);
    put_varint(out, size as u64);
    put_varint(out, NAME);
    put_sized(out, name.as_bytes());
    put_varint(out, VALUE);
    put_sized(out, value.as_bytes());
}
