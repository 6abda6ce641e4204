//! Log groups as the records of a Kafka batch: what `service/loghub_service/kafka/records/records.py` does.

use crate::protobuf::{put_varint, varint_size};
use crate::shapes::{each_shaped_log, object_size, put_object, Log, Shape, HEADER, NULL_HEADER};

/// Records that follow each other, and the times of the first and of the youngest in milliseconds.
#[derive(Default)]
pub struct Records {
    pub bytes: Vec<u8>,
    pub count: usize,
    pub base_ms: i64,
    pub top_ms: i64,
}

/// The records of the logs of a group, at most so many; None for a group that is unusual or damaged.
pub fn records_of(group: &[u8], raw: bool, most: usize) -> Option<Records> {
    let mut records = Records {
        bytes: Vec::with_capacity(group.len() + group.len() / 4),
        ..Records::default()
    };
    let mut content = Vec::new();
    each_shaped_log(group, raw, most, |shape, log| {
        content.clear();
        write_content(shape, log, &mut content);
        records.add(log.time_ms, &content);
        Some(())
    })?;
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

/// Key, value and headers of a record.
fn write_content(shape: &Shape, log: &Log<'_>, out: &mut Vec<u8>) {
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
            ..
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
        Shape::Json { .. } | Shape::Repeated { .. } => {
            out.push(1);
            match object_size(shape, log) {
                Some(size) => {
                    put_zigzag(out, size as i64);
                    put_object(shape, log, out);
                }
                None => {
                    let mut object = Vec::new();
                    put_object(shape, log, &mut object);
                    put_sized(out, &object);
                }
            }
            out.push(0);
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
    varint_size(zigzag(value))
}

#[inline]
fn put_zigzag(out: &mut Vec<u8>, value: i64) {
    put_varint(out, zigzag(value));
}
