//! Columns in Arrow's layout: https://arrow.apache.org/docs/format/Columnar.html

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

/// Lists of pairs of texts: the end of each list, counted in pairs, after that of the one before.
pub struct Pairs {
    pub ends: Vec<u8>,
    pub keys: Texts,
    pub values: Texts,
}

impl Pairs {
    pub fn new() -> Self {
        Self {
            ends: 0_i32.to_le_bytes().to_vec(),
            keys: Texts::new(),
            values: Texts::new(),
        }
    }

    #[inline]
    pub fn push(&mut self, (key, value): (&[u8], &[u8])) {
        self.keys.push(key);
        self.values.push(value);
    }

    pub fn end_list(&mut self) {
        push_i32(&mut self.ends, self.keys.len());
    }
}

/// What is counted here is less than the bytes of a decoded body, which are fewer than `i32::MAX`.
#[inline]
pub fn push_i32(bytes: &mut Vec<u8>, value: usize) {
    bytes.extend_from_slice(&(value as i32).to_le_bytes());
}
