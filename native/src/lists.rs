//! Lists of log groups as columns: what `worker/loghub_consumer/reading/decoding.py` does.

use std::collections::HashMap;

use crate::columns::{push_i32, Pairs, Texts, Validity};
use crate::protobuf::{read_varint, split_field, BYTES, FIXED32, VARINT};

const SECOND_NS: u32 = 1_000_000_000;

/// The columns of some lists. Those of log groups have a value for each log group, the others one for each log.
pub struct Lists {
    /// The number of log groups in each list.
    pub groups: Vec<usize>,
    /// Where the logs of each log group begin, and at last the number of all logs.
    pub first_rows: Vec<u8>,
    pub topics: Texts,
    pub sources: Texts,
    pub tags: Pairs,
    /// The number of each log's log group.
    pub group_of_log: Vec<u8>,
    pub times_us: Vec<u8>,
    pub time_ns: Vec<u8>,
    pub has_time_ns: Validity,
    /// If wanted.
    pub contents: Option<Pairs>,
    /// For each wanted key the last value that each log has with it.
    pub keys: Vec<KeyColumn>,
    logs: usize,
}

pub struct KeyColumn {
    pub values: Texts,
    pub has_value: Validity,
}

/// Which column takes the value of a key.
struct Wanted<'a> {
    columns: HashMap<&'a [u8], usize>,
    /// The keys of the log before by their place, and their columns: the next log mostly has the same.
    known: Vec<(&'a [u8], Option<usize>)>,
}

impl<'a> Wanted<'a> {
    #[inline]
    fn column(&mut self, place: usize, key: &'a [u8]) -> Option<usize> {
        match self.known.get(place) {
            Some((known, column)) if *known == key => *column,
            _ => {
                let column = self.columns.get(key).copied();
                match self.known.get_mut(place) {
                    Some(known) => *known = (key, column),
                    None => self.known.push((key, column)),
                }
                column
            }
        }
    }
}

/// The columns of these lists; None if one is damaged, is unusual, or has a text that is not UTF-8, and if one of
/// the keys is there twice.
pub fn decode(bodies: &[&[u8]], keys: &[&[u8]], contents: bool) -> Option<Lists> {
    let size: usize = bodies.iter().map(|body| body.len()).sum();
    if size > i32::MAX as usize {
        return None;
    }
    let mut lists = Lists {
        groups: Vec::with_capacity(bodies.len()),
        first_rows: 0_i32.to_le_bytes().to_vec(),
        topics: Texts::new(),
        sources: Texts::new(),
        tags: Pairs::new(),
        group_of_log: Vec::new(),
        times_us: Vec::new(),
        time_ns: Vec::new(),
        has_time_ns: Validity::default(),
        contents: contents.then(Pairs::new),
        keys: keys.iter().map(|_| KeyColumn::new()).collect(),
        logs: 0,
    };
    let mut wanted = Wanted {
        columns: keys.iter().enumerate().map(|(n, key)| (*key, n)).collect(),
        known: Vec::new(),
    };
    if wanted.columns.len() < keys.len() {
        return None;
    }
    for body in bodies {
        let before = lists.topics.len();
        let mut rest = *body;
        while !rest.is_empty() {
            let (field, after) = split_field(rest)?;
            rest = after;
            match (field.number, field.wire_type) {
                (1, BYTES) => lists.add_group(field.bytes, &mut wanted)?,
                (1, _) => return None,
                _ => {}
            }
        }
        lists.groups.push(lists.topics.len() - before);
    }
    Some(lists)
}

impl Lists {
    fn add_group<'a>(&mut self, group: &'a [u8], wanted: &mut Wanted<'a>) -> Option<()> {
        let number = self.topics.len();
        let (mut topic, mut source): (&[u8], &[u8]) = (b"", b"");
        let mut rest = group;
        while !rest.is_empty() {
            let (field, after) = split_field(rest)?;
            rest = after;
            match (field.number, field.wire_type) {
                (1, BYTES) => {
                    self.add_log(field.bytes, wanted)?;
                    push_i32(&mut self.group_of_log, number);
                }
                (3, BYTES) => topic = text(field.bytes)?,
                (4, BYTES) => source = text(field.bytes)?,
                (6, BYTES) => self.tags.push(pair(field.bytes)?),
                (1 | 3 | 4 | 6, _) => return None,
                _ => {}
            }
        }
        self.topics.push(topic);
        self.sources.push(source);
        self.tags.end_list();
        push_i32(&mut self.first_rows, self.logs);
        Some(())
    }

    fn add_log<'a>(&mut self, log: &'a [u8], wanted: &mut Wanted<'a>) -> Option<()> {
        let (mut time, mut time_ns) = (0_u32, None);
        let mut place = 0;
        let mut rest = log;
        while !rest.is_empty() {
            let (field, after) = split_field(rest)?;
            rest = after;
            match (field.number, field.wire_type) {
                (2, BYTES) => {
                    let (key, value) = pair(field.bytes)?;
                    if let Some(column) = wanted.column(place, key) {
                        self.keys[column].push_last(self.logs, value);
                    }
                    if let Some(contents) = &mut self.contents {
                        contents.push((key, value));
                    }
                    place += 1;
                }
                (1, VARINT) => time = u32::try_from(read_varint(field.bytes)?.0).ok()?,
                (4, FIXED32) => time_ns = Some(u32::from_le_bytes(field.bytes.try_into().ok()?)),
                (1 | 2 | 4, _) => return None,
                _ => {}
            }
        }
        self.logs += 1;
        for column in &mut self.keys {
            column.end_log(self.logs);
        }
        if let Some(contents) = &mut self.contents {
            contents.end_list();
        }
        self.add_time(time, time_ns.filter(|ns| *ns < SECOND_NS));
        Some(())
    }

    fn add_time(&mut self, seconds: u32, part_ns: Option<u32>) {
        let time_us = i64::from(seconds) * 1_000_000 + i64::from(part_ns.unwrap_or(0) / 1_000);
        self.times_us.extend_from_slice(&time_us.to_le_bytes());
        self.time_ns
            .extend_from_slice(&part_ns.unwrap_or(0).to_le_bytes());
        self.has_time_ns.push(part_ns.is_some());
    }
}

impl KeyColumn {
    fn new() -> Self {
        Self {
            values: Texts::new(),
            has_value: Validity::default(),
        }
    }

    /// The value of a log, before which there are so many, in place of the one that it may have already.
    #[inline]
    fn push_last(&mut self, logs_before: usize, value: &[u8]) {
        if self.values.len() == logs_before {
            self.has_value.push(true);
        } else {
            self.values.truncate(logs_before);
        }
        self.values.push(value);
    }

    #[inline]
    fn end_log(&mut self, logs: usize) {
        if self.values.len() < logs {
            self.values.push(b"");
            self.has_value.push(false);
        }
    }
}

/// Key and value of a Content or LogTag. One that is missing is empty.
#[inline]
fn pair(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (key, value) = usual_pair(bytes).or_else(|| any_pair(bytes))?;
    Some((text(key)?, text(value)?))
}

/// As every library writes it: the key, the value, and nothing else.
#[inline]
fn usual_pair(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (key, rest) = delimited(0x0A, bytes)?;
    let (value, rest) = delimited(0x12, rest)?;
    rest.is_empty().then_some((key, value))
}

/// What has this tag, and what follows it.
#[inline]
fn delimited(tag: u8, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&first, rest) = bytes.split_first()?;
    if first != tag {
        return None;
    }
    let (size, begin) = read_varint(rest)?;
    rest[begin..].split_at_checked(usize::try_from(size).ok()?)
}

fn any_pair(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (mut key, mut value): (&[u8], &[u8]) = (b"", b"");
    let mut rest = bytes;
    while !rest.is_empty() {
        let (field, after) = split_field(rest)?;
        rest = after;
        match (field.number, field.wire_type) {
            (1, BYTES) => key = field.bytes,
            (2, BYTES) => value = field.bytes,
            (1 | 2, _) => return None,
            _ => {}
        }
    }
    Some((key, value))
}

#[inline]
fn text(bytes: &[u8]) -> Option<&[u8]> {
    (bytes.is_ascii() || std::str::from_utf8(bytes).is_ok()).then_some(bytes)
}
