//! Columns in Arrow's layout: https://arrow.apache.org/docs/format/Columnar.html

use std::collections::HashSet;

/// So many keys are compared with each other in less time than a set of them takes.
const FEW: usize = 24;

/// Texts one after the other, and the end of each after that of the one before.
pub struct Texts {
    pub ends: Vec<u8>,
    pub data: Vec<u8>,
}

impl Texts {
    pub fn new() -> Self {
        Self {
            ends: 0_i32.to_le_bytes().to_vec(),
            data: Vec::new(),
        }
    }

    /// All texts together must have at most `i32::MAX` bytes.
    #[inline]
    pub fn push(&mut self, text: &[u8]) {
        self.data.extend_from_slice(text);
        push_i32(&mut self.ends, self.data.len());
    }

    pub fn len(&self) -> usize {
        self.ends.len() / 4 - 1
    }

    /// Where the text with this number begins, or the one before it ends.
    fn end(&self, number: usize) -> usize {
        let at = number * 4;
        let end: [u8; 4] = self.ends[at..at + 4].try_into().unwrap();
        i32::from_le_bytes(end) as usize
    }

    fn get(&self, number: usize) -> &[u8] {
        &self.data[self.end(number)..self.end(number + 1)]
    }

    /// Forget the texts from this one on.
    pub fn truncate(&mut self, number: usize) {
        self.data.truncate(self.end(number));
        self.ends.truncate((number + 1) * 4);
    }
}

/// A bit for each value, which is 0 if it is null.
#[derive(Default)]
pub struct Validity {
    pub bits: Vec<u8>,
    pub nulls: usize,
    len: usize,
}

impl Validity {
    #[inline]
    pub fn push(&mut self, is_valid: bool) {
        let bit = self.len % 8;
        if bit == 0 {
            self.bits.push(0);
        }
        if is_valid {
            self.bits[self.len / 8] |= 1 << bit;
        } else {
            self.nulls += 1;
        }
        self.len += 1;
    }
}

/// Lists of pairs of texts: the end of each list, counted in pairs, after that of the one before. Each key is in
/// a list once: of pairs with the same key, the last one stays.
pub struct Pairs {
    pub ends: Vec<u8>,
    pub keys: Texts,
    pub values: Texts,
    /// The last list that was not empty: where it begins and ends.
    before: (usize, usize),
    /// Where the list begins that is not ended.
    begin: usize,
}

impl Pairs {
    pub fn new() -> Self {
        Self {
            ends: 0_i32.to_le_bytes().to_vec(),
            keys: Texts::new(),
            values: Texts::new(),
            before: (0, 0),
            begin: 0,
        }
    }

    #[inline]
    pub fn push(&mut self, (key, value): (&[u8], &[u8])) {
        self.keys.push(key);
        self.values.push(value);
    }

    pub fn end_list(&mut self) {
        if self.keys.len() > self.begin + 1 && !self.has_the_keys_of_before() {
            self.keep_last();
        }
        let end = self.keys.len();
        if end > self.begin {
            self.before = (self.begin, end);
        }
        self.begin = end;
        push_i32(&mut self.ends, end);
    }

    /// Whether the list has the keys of the one before in the same order, as the logs of one producer mostly do.
    #[inline]
    fn has_the_keys_of_before(&self) -> bool {
        let (first, last) = self.before;
        let (begin, end) = (self.begin, self.keys.len());
        if last - first != end - begin {
            return false;
        }
        let keys = &self.keys;
        let (from, to) = (keys.end(first), keys.end(begin));
        keys.data[from..keys.end(last)] == keys.data[to..keys.end(end)]
            && (1..end - begin).all(|n| keys.end(first + n) - from == keys.end(begin + n) - to)
    }

    fn keep_last(&mut self) {
        let (begin, end) = (self.begin, self.keys.len());
        let is_twice = |n: usize| (begin..n).any(|m| self.keys.get(m) == self.keys.get(n));
        if end - begin <= FEW && !(begin..end).any(is_twice) {
            return;
        }
        let mut seen = HashSet::with_capacity(end - begin);
        let mut kept: Vec<usize> = (begin..end)
            .rev()
            .filter(|n| seen.insert(self.keys.get(*n)))
            .collect();
        if kept.len() == end - begin {
            return;
        }
        kept.reverse();
        let pairs: Vec<(Vec<u8>, Vec<u8>)> = kept
            .into_iter()
            .map(|n| (self.keys.get(n).to_vec(), self.values.get(n).to_vec()))
            .collect();
        self.keys.truncate(begin);
        self.values.truncate(begin);
        for (key, value) in &pairs {
            self.push((key, value));
        }
    }
}

/// What is counted here is less than the bytes of a decoded body, which are fewer than `i32::MAX`.
#[inline]
pub fn push_i32(bytes: &mut Vec<u8>, value: usize) {
    bytes.extend_from_slice(&(value as i32).to_le_bytes());
}
