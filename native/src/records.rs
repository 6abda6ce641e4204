//! Log groups as the records of a Kafka batch: what `service/loghub_service/kafka/records/records.py` does.

use std::collections::{HashMap, HashSet};

use crate::protobuf::{read_varint, split_field, BYTES, FIXED32, VARINT};

const KEY: &[u8] = b"key";
const VALUE: &[u8] = b"value";
const ORDERING_KEY: &[u8] = b"ordering_key";
const PLAIN: [&[u8]; 3] = [KEY, VALUE, ORDERING_KEY];
const HEADER: &[u8] = b"header.";
const NULL_HEADER: &[u8] = b"null_header.";
const IMPORTED: [&[u8]; 5] = [
    b"kafka_topic",
    b"kafka_partition",
    b"kafka_offset",
    KEY,
    VALUE,
];

/// Records that follow each other, and the times of the first and of the youngest in milliseconds.
#[derive(Default)]
pub struct Records {
    pub bytes: Vec<u8>,
    pub count: usize,
    pub base_ms: i64,
    pub top_ms: i64,
}

/// What the names of a log's fields make of its record.
enum Shape {
    Single,
    /// Indexes of key and value, and of the headers with whether they are null.
    KeyValue {
        key: Option<usize>,
        value: Option<usize>,
        headers: Vec<(usize, bool)>,
    },
    /// What precedes each value in the JSON object, and its size with the end of the object.
    Json {
        around: Vec<Vec<u8>>,
        size: usize,
    },
    /// Which field's value counts for each name that is not repeated.
    Repeated {
        around: Vec<Vec<u8>>,
        counts: Vec<usize>,
    },
}

/// The fields of one log, in order.
#[derive(Default)]
struct Log<'a> {
    names: Vec<&'a [u8]>,
    values: Vec<&'a [u8]>,
    time_ms: i64,
}

/// The records of the logs of a group, at most so many; None for a group that is unusual or damaged.
pub fn records_of(group: &[u8], raw: bool, most: usize) -> Option<Records> {
    let mut records = Records {
        bytes: Vec::with_capacity(group.len() + group.len() / 4),
        ..Records::default()
    };
    let mut log = Log::default();
    let mut known: Vec<&[u8]> = Vec::new();
    let mut shape: Option<Shape> = None;
    let mut body = Vec::new();
    let mut rest = group;
    while !rest.is_empty() && records.count < most {
        let (field, after) = split_field(rest)?;
        rest = after;
        if field.number != 1 {
            continue;
        }
        if field.wire_type != BYTES {
            return None;
        }
        read_log(field.bytes, &mut log)?;
        if shape.is_none() || known != log.names {
            shape = Some(shape_of(&log.names, raw)?);
            known.clone_from(&log.names);
        }
        body.clear();
        write_content(shape.as_ref()?, &log, &mut body)?;
        records.add(log.time_ms, &body);
    }
    Some(records)
}

impl Records {
    fn add(&mut self, time_ms: i64, content: &[u8]) {
        if self.count == 0 {
            self.base_ms = time_ms;
            self.top_ms = time_ms;
        }
        self.top_ms = self.top_ms.max(time_ms);
        let (delta, number) = (time_ms - self.base_ms, self.count as i64);
        let size = 1 + zigzag_size(delta) + zigzag_size(number) + content.len();
        put_zigzag(&mut self.bytes, size as i64);
        self.bytes.push(0);
        put_zigzag(&mut self.bytes, delta);
        put_zigzag(&mut self.bytes, number);
        self.bytes.extend_from_slice(content);
        self.count += 1;
    }
}

fn read_log<'a>(message: &'a [u8], log: &mut Log<'a>) -> Option<()> {
    log.names.clear();
    log.values.clear();
    let (mut time, mut nanoseconds) = (0, 0);
    let mut rest = message;
    while !rest.is_empty() {
        let (field, after) = split_field(rest)?;
        rest = after;
        match (field.number, field.wire_type) {
            (1, VARINT) => time = i64::from(u32::try_from(read_varint(field.bytes)?.0).ok()?),
            (2, BYTES) => {
                let (name, value) = read_content(field.bytes)?;
                log.names.push(name);
                log.values.push(value);
            }
            (4, FIXED32) => {
                nanoseconds = i64::from(u32::from_le_bytes(field.bytes.try_into().ok()?))
            }
            (1 | 2 | 4, _) => return None,
            _ => {}
        }
    }
    log.time_ms = time * 1000 + nanoseconds / 1_000_000;
    Some(())
}

/// Name and value; of each, the last one counts.
#[inline]
fn read_content(message: &[u8]) -> Option<(&[u8], &[u8])> {
    let (mut name, mut value): (&[u8], &[u8]) = (&[], &[]);
    let mut rest = message;
    while !rest.is_empty() {
        let (field, after) = split_field(rest)?;
        rest = after;
        match (field.number, field.wire_type) {
            (1, BYTES) => name = field.bytes,
            (2, BYTES) => value = field.bytes,
            (1 | 2, _) => return None,
            _ => {}
        }
    }
    Some((name, value))
}

fn shape_of(names: &[&[u8]], raw: bool) -> Option<Shape> {
    let place = |wanted: &[u8]| names.iter().position(|name| *name == wanted);
    if raw && is_raw(names) {
        let headers = names
            .iter()
            .enumerate()
            .filter(|(_, name)| !PLAIN.contains(name));
        return Some(Shape::KeyValue {
            key: place(KEY),
            value: place(VALUE),
            headers: headers
                .map(|(index, name)| (index, name.starts_with(NULL_HEADER)))
                .collect(),
        });
    }
    if IMPORTED.iter().all(|name| names.contains(name)) {
        return Some(Shape::KeyValue {
            key: place(KEY),
            value: place(VALUE),
            headers: Vec::new(),
        });
    }
    if names.len() == 1 {
        return Some(Shape::Single);
    }
    // A log may have as many fields as its bytes allow, so no name is looked for among all others.
    let last: HashMap<&[u8], usize> = names
        .iter()
        .enumerate()
        .map(|(at, name)| (*name, at))
        .collect();
    let mut seen = HashSet::with_capacity(names.len());
    let mut around = Vec::with_capacity(names.len());
    let mut counts = Vec::with_capacity(names.len());
    for (index, name) in names.iter().enumerate() {
        std::str::from_utf8(name).ok()?;
        if !seen.insert(*name) {
            continue; // its value takes the place of the first one
        }
        let mut text = if index == 0 {
            b"{\"".to_vec()
        } else {
            b"\",\"".to_vec()
        };
        put_escaped(&mut text, name);
        text.extend_from_slice(b"\":\"");
        around.push(text);
        counts.push(last[name]);
    }
    if around.len() < names.len() || names.is_empty() {
        return Some(Shape::Repeated { around, counts });
    }
    let size = around.iter().map(Vec::len).sum::<usize>() + 2;
    Some(Shape::Json { around, size })
}

/// Whether a log was produced in the form raw: at most one key, value and ordering key, and headers.
fn is_raw(names: &[&[u8]]) -> bool {
    let times = |wanted: &[u8]| names.iter().filter(|name| **name == wanted).count();
    let is_header = |name: &&[u8]| name.starts_with(HEADER) || name.starts_with(NULL_HEADER);
    let is_known = |name: &&[u8]| PLAIN.contains(name) || is_header(name);
    PLAIN.iter().all(|name| times(name) <= 1) && names.iter().all(is_known)
}

/// Key, value and headers of a record.
fn write_content(shape: &Shape, log: &Log<'_>, out: &mut Vec<u8>) -> Option<()> {
    match shape {
        Shape::Single => {
            put_sized(out, log.names[0]);
            put_sized(out, log.values[0]);
            out.push(0);
        }
        Shape::KeyValue {
            key,
            value,
            headers,
        } => {
            for index in [key, value] {
                put_optional(out, index.map(|index| log.values[index]));
            }
            put_zigzag(out, headers.len() as i64);
            for &(index, null) in headers {
                let prefix = if null { NULL_HEADER } else { HEADER };
                put_sized(out, &log.names[index][prefix.len()..]);
                put_optional(out, (!null).then(|| log.values[index]));
            }
        }
        Shape::Json { around, size } if log.values.iter().all(|value| is_plain(value)) => {
            let size = size + log.values.iter().map(|value| value.len()).sum::<usize>();
            out.push(1);
            put_zigzag(out, size as i64);
            for (text, value) in around.iter().zip(&log.values) {
                out.extend_from_slice(text);
                out.extend_from_slice(value);
            }
            out.extend_from_slice(b"\"}\0");
        }
        Shape::Json { around, .. } => put_object(out, around, log.values.iter().copied()),
        Shape::Repeated { around, counts } => {
            put_object(out, around, counts.iter().map(|&index| log.values[index]));
        }
    }
    Some(())
}

/// A record without a key whose value is a JSON object of texts that may need an escape.
fn put_object<'a>(out: &mut Vec<u8>, around: &[Vec<u8>], values: impl Iterator<Item = &'a [u8]>) {
    let mut object = Vec::new();
    for (text, value) in around.iter().zip(values) {
        object.extend_from_slice(text);
        put_escaped(&mut object, value);
    }
    object.extend_from_slice(if around.is_empty() { b"{}" } else { b"\"}" });
    out.push(1);
    put_sized(out, &object);
    out.push(0);
}

/// Whether a JSON string may contain these bytes as they are.
#[inline]
fn is_plain(value: &[u8]) -> bool {
    // Without a branch, so that the compiler looks at many bytes at once.
    let odd = value.iter().fold(false, |odd, &byte| {
        odd | (byte < 0x20) | (byte == b'"') | (byte == b'\\')
    });
    !odd && (value.is_ascii() || std::str::from_utf8(value).is_ok())
}

/// As text in a JSON string; bytes that are not UTF-8 become U+FFFD.
fn put_escaped(out: &mut Vec<u8>, value: &[u8]) {
    for &byte in String::from_utf8_lossy(value).as_bytes() {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            0x08 => out.extend_from_slice(b"\\b"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\n' => out.extend_from_slice(b"\\n"),
            0x0C => out.extend_from_slice(b"\\f"),
            b'\r' => out.extend_from_slice(b"\\r"),
            0..=0x1F => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
}

fn put_optional(out: &mut Vec<u8>, content: Option<&[u8]>) {
    match content {
        Some(content) => put_sized(out, content),
        None => out.push(1),
    }
}

#[inline]
fn put_sized(out: &mut Vec<u8>, content: &[u8]) {
    put_zigzag(out, content.len() as i64);
    out.extend_from_slice(content);
}

#[inline]
fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

#[inline]
fn zigzag_size(value: i64) -> usize {
    (64 - (zigzag(value) | 1).leading_zeros() as usize).div_ceil(7)
}

#[inline]
fn put_zigzag(out: &mut Vec<u8>, value: i64) {
    let mut left = zigzag(value);
    while left >= 0x80 {
        out.push(left as u8 & 0x7F | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
}
