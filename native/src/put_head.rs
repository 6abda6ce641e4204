//! A PutLogs request as clients usually send one, complete in one piece: its head, its signature of version 1
//! (docs/sls-protocol.md 1.3), the hash of its body, and the log group.

use std::ops::Range;

use base64::{engine::general_purpose::STANDARD, Engine};
use hmac::{Hmac, Mac};
use md5::{Digest, Md5};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use sha1::Sha1;

use crate::put::stored;

const SIGNATURE_BYTES: usize = 20;
const MD5_BYTES: usize = 16;
/// Of a number: any of this length fits 64 bits, and no limit of the service is longer.
const MAX_DIGITS: usize = 9;
const KEY_DIGITS: usize = 32;
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

/// A head; ranges are those of the request.
#[derive(Default)]
struct Head {
    target: Range<usize>,
    logstore: Range<usize>,
    hash_key: Option<Range<usize>>,
    host: Range<usize>,
    date: Range<usize>,
    key_id: Range<usize>,
    signature: Range<usize>,
    md5: Range<usize>,
    content_type: Range<usize>,
    raw_size: usize,
    /// What the signature covers besides, by name in lower case.
    signed: Vec<(Vec<u8>, Range<usize>)>,
    body: usize,
}

#[pyclass(frozen, module = "loghub_native")]
pub struct PutRequest {
    data: Py<PyBytes>,
    head: Head,
}

/// The request in `data`; None for another one, and for one that only the Python implementation can judge.
#[pyfunction]
pub fn put_request(
    data: &Bound<'_, PyBytes>,
    most_headers: usize,
    most_head_bytes: usize,
) -> Option<PutRequest> {
    let head = read_head(data.as_bytes(), most_headers)?;
    (head.body <= most_head_bytes).then(|| PutRequest {
        data: data.clone().unbind(),
        head,
    })
}

#[pymethods]
impl PutRequest {
    #[getter]
    fn key_id<'a>(&'a self, py: Python<'a>) -> &'a str {
        self.text(py, &self.head.key_id)
    }

    #[getter]
    fn host<'a>(&'a self, py: Python<'a>) -> &'a str {
        self.text(py, &self.head.host)
    }

    #[getter]
    fn date<'a>(&'a self, py: Python<'a>) -> &'a str {
        self.text(py, &self.head.date)
    }

    #[getter]
    fn logstore<'a>(&'a self, py: Python<'a>) -> &'a str {
        self.text(py, &self.head.logstore)
    }

    #[getter]
    fn hash_key<'a>(&'a self, py: Python<'a>) -> Option<&'a str> {
        Some(self.text(py, self.head.hash_key.as_ref()?))
    }

    #[getter]
    fn body_bytes(&self, py: Python<'_>) -> usize {
        self.data.as_bytes(py).len() - self.head.body
    }

    #[getter]
    fn raw_size(&self) -> usize {
        self.head.raw_size
    }

    /// The number of logs and the stored form of the group; None unless the request is signed with `secret`, and
    /// where `put::stored` has none.
    fn stored<'py>(
        &self,
        py: Python<'py>,
        secret: &str,
        most_logs: usize,
    ) -> PyResult<Option<(usize, Bound<'py, PyBytes>)>> {
        let data = self.data.as_bytes(py);
        let body = &data[self.head.body..];
        if !self.head.is_signed(data, secret) || !has_md5(body, &data[self.head.md5.clone()]) {
            return Ok(None);
        }
        stored(body, self.head.raw_size, most_logs)
            .map(|one| Ok((one.logs, one.to_bytes(py)?)))
            .transpose()
    }
}

impl PutRequest {
    fn text<'a>(&'a self, py: Python<'a>, range: &Range<usize>) -> &'a str {
        std::str::from_utf8(&self.data.as_bytes(py)[range.clone()]).unwrap_or_default()
    }
}

impl Head {
    fn is_signed(&self, data: &[u8], secret: &str) -> bool {
        let mut claim = [0; SIGNATURE_BYTES + 1]; // room for the padding that the decoder asks for
        let Ok(SIGNATURE_BYTES) = STANDARD.decode_slice(&data[self.signature.clone()], &mut claim)
        else {
            return false;
        };
        let Ok(mut mac) = Hmac::<Sha1>::new_from_slice(secret.as_bytes()) else {
            return false;
        };
        mac.update(b"POST");
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
        mac.update(&data[self.target.clone()]);
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

fn read_head(data: &[u8], most_headers: usize) -> Option<Head> {
    let mut head = Head::default();
    let mut at = read_line(data, &mut head)?;
    let mut names: Vec<&[u8]> = Vec::with_capacity(16);
    let (mut size, mut is_typed, mut is_packed) = (None, false, false);
    loop {
        if data.get(at..at + 2)? == b"\r\n" {
            break;
        }
        let (name, value, next) = read_header(data, at)?;
        if names.len() == most_headers || names.iter().any(|one| one.eq_ignore_ascii_case(name)) {
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
            b"content-length" => size = Some(number(text)?),
            b"content-type" => {
                is_typed = text == b"application/x-protobuf";
                head.content_type = value.clone();
            }
            b"x-log-compresstype" => is_packed = text == b"lz4",
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
    let named = [&head.host, &head.date, &head.md5, &head.key_id];
    let is_complete = is_typed && is_packed && named.iter().all(|range| !range.is_empty());
    (is_complete && size? > 0 && size? == data.len() - head.body).then_some(head)
}

/// The first line, with the path of PutLogs and at most a hash key; returns where the second line begins.
fn read_line(data: &[u8], head: &mut Head) -> Option<usize> {
    let target = 5;
    let path = data.strip_prefix(b"POST ")?;
    let rest = path.strip_prefix(b"/logstores/")?;
    let name = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
    let size = rest.iter().position(|byte| !name(byte)).filter(|size| *size > 0)?;
    let mut rest = &rest[size..];
    let begin = data.len() - rest.len() - size;
    head.logstore = begin..begin + size;
    for end in [b"/shards/lb".as_slice(), b"/shards/route"] {
        if let Some(after) = rest.strip_prefix(end) {
            rest = after;
            break;
        }
    }
    if let Some(query) = rest.strip_prefix(b"?key=") {
        let (key, after) = query.split_at_checked(KEY_DIGITS)?;
        if !key.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let begin = data.len() - query.len();
        head.hash_key = Some(begin..begin + KEY_DIGITS);
        rest = after;
    }
    head.target = target..data.len() - rest.len();
    let rest = rest.strip_prefix(b" HTTP/1.1\r\n")?;
    Some(data.len() - rest.len())
}

/// The header at `at`: its name, where its value is, and where the next line begins.
fn read_header(data: &[u8], at: usize) -> Option<(&[u8], Range<usize>, usize)> {
    let line = &data[at..];
    let colon = line.iter().position(|byte| !(byte.is_ascii_alphanumeric() || *byte == b'-'))?;
    let value = line[colon..].strip_prefix(b": ")?;
    let size = value.iter().position(|byte| !(b' '..=b'~').contains(byte))?;
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
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}
