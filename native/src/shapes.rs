//! The logs of a group, and what the names of their fields make of them: a key, a value and headers, or a JSON
//! object. What `service/loghub_service/kafka/records/record_forms.py` does.

use std::collections::{HashMap, HashSet};

use crate::protobuf::{read_varint, split_field, BYTES, FIXED32, VARINT};

const KEY: &[u8] = b"key";
const VALUE: &[u8] = b"value";
const ORDERING_KEY: &[u8] = b"ordering_key";
const PLAIN: [&[u8]; 3] = [KEY, VALUE, ORDERING_KEY];
pub const HEADER: &[u8] = b"header.";
pub const NULL_HEADER: &[u8] = b"null_header.";
const IMPORTED: [&[u8]; 5] = [
    b"kafka_topic",
    b"kafka_partition",
    b"kafka_offset",
    KEY,
    VALUE,
];

/// What the names of a log's fields make of it.
pub enum Shape {
    Single,
    /// Indexes of key, value and ordering key, and of the headers with whether they are null.
    KeyValue {
        key: Option<usize>,
        value: Option<usize>,
        ordering_key: Option<usize>,
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
pub struct Log<'a> {
    pub names: Vec<&'a [u8]>,
    pub values: Vec<&'a [u8]>,
    pub time_ms: i64,
}

/// Pass the logs of a group, at most so many; None for a group that is unusual or damaged, and if `pass` returns it.
pub fn each_log<'a>(
    group: &'a [u8],
    most: usize,
    mut pass: impl FnMut(&Log<'a>) -> Option<()>,
) -> Option<()> {
    let mut log = Log::default();
    let mut passed = 0;
    let mut rest = group;
    while !rest.is_empty() && passed < most {
        let (field, after) = split_field(rest)?;
        rest = after;
        if field.number != 1 {
            continue;
        }
        if field.wire_type != BYTES {
            return None;
        }
        read_log(field.bytes, &mut log)?;
        pass(&log)?;
        passed += 1;
    }
    Some(())
}

/// The same with the shape of each log; None also if a name is unusual.
pub fn each_shaped_log<'a>(
    group: &'a [u8],
    raw: bool,
    most: usize,
    mut pass: impl FnMut(&Shape, &Log<'a>) -> Option<()>,
) -> Option<()> {
    let mut known: Vec<&[u8]> = Vec::new();
    let mut shape: Option<Shape> = None;
    each_log(group, most, |log| {
        if shape.is_none() || known != log.names {
            shape = Some(shape_of(&log.names, raw)?);
            known.clone_from(&log.names);
        }
        pass(shape.as_ref()?, log)
    })
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
            ordering_key: place(ORDERING_KEY),
            headers: headers
                .map(|(index, name)| (index, name.starts_with(NULL_HEADER)))
                .collect(),
        });
    }
    if IMPORTED.iter().all(|name| names.contains(name)) {
        return Some(Shape::KeyValue {
            key: place(KEY),
            value: place(VALUE),
            ordering_key: None,
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

/// The size of the JSON object of a log if none of its values needs an escape, and no name is repeated.
pub fn object_size(shape: &Shape, log: &Log<'_>) -> Option<usize> {
    match shape {
        Shape::Json { size, .. } if log.values.iter().all(|value| is_plain(value)) => {
            Some(size + log.values.iter().map(|value| value.len()).sum::<usize>())
        }
        _ => None,
    }
}

/// The JSON object of a log that is neither a single field nor key and value.
pub fn put_object(shape: &Shape, log: &Log<'_>, out: &mut Vec<u8>) {
    let (around, counts) = match shape {
        Shape::Json { around, .. } => (around, None),
        Shape::Repeated { around, counts } => (around, Some(counts)),
        Shape::Single | Shape::KeyValue { .. } => return,
    };
    for (place, text) in around.iter().enumerate() {
        out.extend_from_slice(text);
        put_text(
            out,
            log.values[counts.map_or(place, |counts| counts[place])],
        );
    }
    out.extend_from_slice(if around.is_empty() { b"{}" } else { b"\"}" });
}

fn put_text(out: &mut Vec<u8>, value: &[u8]) {
    if is_plain(value) {
        out.extend_from_slice(value);
    } else {
        put_escaped(out, value);
    }
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
