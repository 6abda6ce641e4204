//! A PutLogs request as clients usually send one, complete in one piece: its head, and the log group.

use std::ops::Range;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::head::{name_size, text, Head, Line, Parameter};
use crate::put::stored;

const KEY_DIGITS: usize = 32;

#[pyclass(frozen, module = "loghub_native")]
pub struct PutRequest {
    data: Py<PyBytes>,
    head: Head,
    logstore: Range<usize>,
}

/// The request in `data`; None for another one, and for one that only the Python implementation can judge.
#[pyfunction]
pub fn put_request(
    data: &Bound<'_, PyBytes>,
    most_headers: usize,
    most_head_bytes: usize,
) -> Option<PutRequest> {
    let bytes = data.as_bytes();
    let (line, logstore) = read_line(bytes)?;
    let head = Head::read(bytes, line, most_headers, most_head_bytes)?;
    let is_usual = bytes.len() > head.body
        && &bytes[head.content_type.clone()] == b"application/x-protobuf"
        && &bytes[head.compress_type.clone()] == b"lz4";
    is_usual.then(|| PutRequest {
        data: data.clone().unbind(),
        head,
        logstore,
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
        self.text(py, &self.logstore)
    }

    #[getter]
    fn hash_key<'a>(&'a self, py: Python<'a>) -> Option<&'a str> {
        Some(self.text(py, &self.head.line.query.first()?.value))
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
        if !self.head.is_signed(data, secret) {
            return Ok(None);
        }
        stored(&data[self.head.body..], self.head.raw_size, most_logs)
            .map(|one| Ok((one.logs, one.to_bytes(py)?)))
            .transpose()
    }
}

impl PutRequest {
    fn text<'a>(&'a self, py: Python<'a>, range: &Range<usize>) -> &'a str {
        text(self.data.as_bytes(py), range)
    }
}

/// The first line, with the path of PutLogs and at most a hash key, and where the logstore is.
fn read_line(data: &[u8]) -> Option<(Line, Range<usize>)> {
    let path = data.strip_prefix(b"POST ")?;
    let rest = path.strip_prefix(b"/logstores/")?;
    let size = name_size(rest, false)?;
    let begin = data.len() - rest.len();
    let mut rest = &rest[size..];
    for end in [b"/shards/lb".as_slice(), b"/shards/route"] {
        if let Some(after) = rest.strip_prefix(end) {
            rest = after;
            break;
        }
    }
    let path = data.len() - path.len()..data.len() - rest.len();
    let mut query = Vec::new();
    if let Some(key) = rest.strip_prefix(b"?key=") {
        let (digits, after) = key.split_at_checked(KEY_DIGITS)?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let value = data.len() - key.len();
        query.push(Parameter {
            name: path.end + 1..value - 1,
            value: value..value + KEY_DIGITS,
        });
        rest = after;
    }
    let rest = rest.strip_prefix(b" HTTP/1.1\r\n")?;
    let line = Line {
        method: "POST",
        path,
        query,
        headers: data.len() - rest.len(),
    };
    Some((line, begin..begin + size))
}
