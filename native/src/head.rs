//! The head of an HTTP request as clients usually send one, complete in one piece with its body: its headers, its
//! signature of version 1 (docs/sls-protocol.md 1.3) and the hash of its body.

use std::ops::Range;

use base64::{engine::general_purpose::STANDARD, Engine};
use hmac::{Hmac, Mac};
use md5::{Digest, Md5};
use sha1::Sha1;

const SIGNATURE_BYTES: usize = 20;
const MD5_BYTES: usize = 16;
/// Of a number: any of this length fits 64 bits, and no limit of the service is longer.
const MAX_DIGITS: usize = 9;
const API_VERSION: &[u8] = b"0.6.0";
/// With these headers, a request is another one, or its body does not end where its length says.
const ODD: [&[u8]; 7] = [
    b"transfer-encoding",
    b"expect",
    b"upgrade",
    b"proxy-connection",
    b"content-encoding",
    b"x-log-mode",
    b"x-acs-security-token",
];

/// A parameter of a query, which is written as it is, without escapes.
pub struct Parameter {
    pub name: Range<usize>,
    pub value: Range<usize>,
}

/// The first line; ranges are those of the request. `headers` is where the next line begins.
pub struct Line {
    pub method: &'static str,
    pub path: Range<usize>,
    /// By name.
    pub query: Vec<Parameter>,
    pub headers: usize,
}

/// A head; ranges are those of the request, and empty for headers that it does not have.
pub struct Head {
    pub line: Line,
    pub host: Range<usize>,
    pub date: Range<usize>,
    pub key_id: Range<usize>,
    pub content_type: Range<usize>,
    pub compress_type: Range<usize>,
    pub raw_size: usize,
    /// Where the body begins, which is complete.
    pub body: usize,
    signature: Range<usize>,
    md5: Range<usize>,
    /// What the signature covers besides, by name in lower case.
    signed: Vec<(Vec<u8>, Range<usize>)>,
}

impl Head {
    /// The head with this first line; None for one that only the Python implementation can judge, or whose body is
    /// not all that follows.
    pub fn read(
        data: &[u8],
        line: Line,
        most_headers: usize,
        most_head_bytes: usize,
    ) -> Option<Self> {
        let mut at = line.headers;
        let mut head = Head {
            line,
            host: 0..0,
            date: 0..0,
            key_id: 0..0,
            content_type: 0..0,
            compress_type: 0..0,
            raw_size: 0,
            body: 0,
            signature: 0..0,
            md5: 0..0,
            signed: Vec::with_capacity(4),
        };
        let mut names: Vec<&[u8]> = Vec::with_capacity(16);
        let mut size = 0;
        loop {
            if data.get(at..at + 2)? == b"\r\n" {
                break;
            }
            let (name, value, next) = read_header(data, at)?;
            if names.len() == most_headers || names.iter().any(|one| one.eq_ignore_ascii_case(name))
            {
                return None;
            }
            names.push(name);
            at = next;
            let lower = name.to_ascii_lowercase();
            let text = &data[value.clone()];
            match lower.as_slice() {
                odd if ODD.contains(&odd) => return None,
                b"connection" if !text.eq_ignore_ascii_case(b"keep-alive") => return None,
                b"x-log-apiversion" if text != API_VERSION => return None,
                b"host" => head.host = value.clone(),
                b"date" => head.date = value.clone(),
                b"content-md5" => head.md5 = value.clone(),
                b"content-length" => size = number(text)?,
                b"content-type" => head.content_type = value.clone(),
                b"x-log-compresstype" => head.compress_type = value.clone(),
                b"x-log-bodyrawsize" => head.raw_size = number(text)?,
                b"authorization" => {
                    let claim = text.strip_prefix(b"LOG ")?;
                    let colon = claim.iter().position(|byte| *byte == b':')?;
                    let begin = value.end - claim.len();
                    head.key_id = begin..begin + colon;
                    head.signature = begin + colon + 1..value.end;
                }
                _ => {}
            }
            if is_signed_name(&lower) {
                head.signed.push((lower, value));
            }
        }
        head.body = at + 2;
        head.signed.sort_unstable_by(|one, two| one.0.cmp(&two.0));
        let named = [&head.host, &head.date, &head.key_id];
        let is_complete = size == data.len() - head.body
            && (size > 0) != head.md5.is_empty()
            && head.body <= most_head_bytes
            && named.iter().all(|range| !range.is_empty());
        is_complete.then_some(head)
    }

    /// Whether the request, head and body, is signed with `secret`.
    pub fn is_signed(&self, data: &[u8], secret: &str) -> bool {
        let body = &data[self.body..];
        self.has_signature(data, secret)
            && (body.is_empty() || has_md5(body, &data[self.md5.clone()]))
    }

    fn has_signature(&self, data: &[u8], secret: &str) -> bool {
        let mut claim = [0; SIGNATURE_BYTES + 1]; // room for the padding that the decoder asks for
        let Ok(SIGNATURE_BYTES) = STANDARD.decode_slice(&data[self.signature.clone()], &mut claim)
        else {
            return false;
        };
        let Ok(mut mac) = Hmac::<Sha1>::new_from_slice(secret.as_bytes()) else {
            return false;
        };
        mac.update(self.line.method.as_bytes());
        for part in [&self.md5, &self.content_type, &self.date] {
            mac.update(b"\n");
            mac.update(&data[part.clone()]);
        }
        for (name, value) in &self.signed {
            mac.update(b"\n");
            mac.update(name);
            mac.update(b":");
            mac.update(&data[value.clone()]);
        }
        mac.update(b"\n");
        mac.update(&data[self.line.path.clone()]);
        let mut before: &[u8] = b"?";
        for Parameter { name, value } in &self.line.query {
            mac.update(before);
            mac.update(&data[name.clone()]);
            mac.update(b"=");
            mac.update(&data[value.clone()]);
            before = b"&";
        }
        mac.verify_slice(&claim[..SIGNATURE_BYTES]).is_ok()
    }
}

fn has_md5(body: &[u8], hex: &[u8]) -> bool {
    let digest = Md5::digest(body);
    let digit = |byte: u8| char::from(byte).to_digit(16);
    hex.len() == 2 * MD5_BYTES
        && hex.chunks_exact(2).zip(digest).all(|(two, byte)| {
            matches!((digit(two[0]), digit(two[1])), (Some(high), Some(low)) if high << 4 | low == u32::from(byte))
        })
}

/// The header at `at`: its name, where its value is, and where the next line begins.
fn read_header(data: &[u8], at: usize) -> Option<(&[u8], Range<usize>, usize)> {
    let line = &data[at..];
    let colon = line
        .iter()
        .position(|byte| !(byte.is_ascii_alphanumeric() || *byte == b'-'))?;
    let value = line[colon..].strip_prefix(b": ")?;
    let size = value
        .iter()
        .position(|byte| !(b' '..=b'~').contains(byte))?;
    let is_usual = colon > 0 && size > 0 && value[0] != b' ' && value[size - 1] != b' ';
    let begin = at + colon + 2;
    (is_usual && value[size..].starts_with(b"\r\n"))
        .then(|| (&line[..colon], begin..begin + size, begin + size + 2))
}

/// As `loghub/wire/signing.py` has it.
fn is_signed_name(name: &[u8]) -> bool {
    (name.starts_with(b"x-log-") || name.starts_with(b"x-acs-"))
        && name != b"x-log-date"
        && !name.starts_with(b"x-log-meta-")
}

fn number(text: &[u8]) -> Option<usize> {
    let is_short = (1..=MAX_DIGITS).contains(&text.len());
    let text = std::str::from_utf8(text).ok().filter(|_| is_short)?;
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())?
}

/// The text of a range that was checked to be ASCII.
pub fn text<'a>(data: &'a [u8], range: &Range<usize>) -> &'a str {
    std::str::from_utf8(&data[range.clone()]).unwrap_or_default()
}

/// How many bytes at the begin of `rest` are of a name of a logstore, a group or a shard, of which there is one.
pub fn name_size(rest: &[u8], has_capitals: bool) -> Option<usize> {
    let is_of_name = |byte: &u8| match byte {
        b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' => true,
        b'A'..=b'Z' => has_capitals,
        _ => false,
    };
    rest.iter()
        .position(|byte| !is_of_name(byte))
        .filter(|size| *size > 0)
}
