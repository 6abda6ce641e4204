//! A small request about a group or a shard of a logstore as clients usually send one, complete in one piece.

use std::ops::Range;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::head::{name_size, text, Head, Line, Parameter};

/// More than any call has that is served here.
const MAX_PARAMETERS: usize = 4;
/// The method, and what the names of a logstore and of one of its groups or shards follow.
const KINDS: [(&str, &[u8], &str); 2] = [
    ("POST", b"/consumergroups/", "consumergroups"),
    ("GET", b"/shards/", "shards"),
];

#[pyclass(frozen, module = "loghub_native")]
pub struct CallRequest {
    data: Py<PyBytes>,
    head: Head,
    kind: &'static str,
    logstore: Range<usize>,
    name: Range<usize>,
}

/// The request in `data`; None for another one, and for one that only the Python implementation can judge.
#[pyfunction]
pub fn call_request(
    data: &Bound<'_, PyBytes>,
    most_headers: usize,
    most_head_bytes: usize,
) -> Option<CallRequest> {
    let bytes = data.as_bytes();
    let (line, kind, logstore, name) = read_line(bytes)?;
    let head = Head::read(bytes, line, most_headers, most_head_bytes)?;
    Some(CallRequest {
        data: data.clone().unbind(),
        head,
        kind,
        logstore,
        name,
    })
}

#[pymethods]
impl CallRequest {
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
    fn method(&self) -> &str {
        self.head.line.method
    }

    #[getter]
    fn path<'a>(&'a self, py: Python<'a>) -> &'a str {
        self.text(py, &self.head.line.path)
    }

    /// The segments of the path.
    #[getter]
    fn parts<'a>(&'a self, py: Python<'a>) -> (&'a str, &'a str, &'a str, &'a str) {
        let (logstore, name) = (self.text(py, &self.logstore), self.text(py, &self.name));
        ("logstores", logstore, self.kind, name)
    }

    #[getter]
    fn query<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let query = PyDict::new(py);
        for Parameter { name, value } in &self.head.line.query {
            query.set_item(self.text(py, name), self.text(py, value))?;
        }
        Ok(query)
    }

    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.data.as_bytes(py)[self.head.body..])
    }

    /// Whether head and body are signed with `secret`.
    fn is_signed(&self, py: Python<'_>, secret: &str) -> bool {
        self.head.is_signed(self.data.as_bytes(py), secret)
    }
}

impl CallRequest {
    fn text<'a>(&'a self, py: Python<'a>, range: &Range<usize>) -> &'a str {
        text(self.data.as_bytes(py), range)
    }
}

/// The first line, its kind, and where the names of the logstore, and of the group or the shard, are.
fn read_line(data: &[u8]) -> Option<(Line, &'static str, Range<usize>, Range<usize>)> {
    let is_of = |method: &str| data.starts_with(method.as_bytes());
    let (method, between, kind) = KINDS.into_iter().find(|(method, _, _)| is_of(method))?;
    let path = data[method.len()..].strip_prefix(b" ")?;
    let rest = path.strip_prefix(b"/logstores/")?;
    let (logstore, rest) = read_name(data, rest, false)?;
    let (name, rest) = read_name(data, rest.strip_prefix(between)?, true)?;
    let (query, rest) = read_query(data, rest)?;
    let rest = rest.strip_prefix(b" HTTP/1.1\r\n")?;
    let line = Line {
        method,
        path: data.len() - path.len()..name.end,
        query,
        headers: data.len() - rest.len(),
    };
    Some((line, kind, logstore, name))
}

fn read_name<'a>(
    data: &[u8],
    rest: &'a [u8],
    has_capitals: bool,
) -> Option<(Range<usize>, &'a [u8])> {
    let size = name_size(rest, has_capitals)?;
    let begin = data.len() - rest.len();
    Some((begin..begin + size, &rest[size..]))
}

/// Some parameters with values of which no character is escaped, by name, each of which is there once.
fn read_query<'a>(data: &[u8], rest: &'a [u8]) -> Option<(Vec<Parameter>, &'a [u8])> {
    let mut rest = rest.strip_prefix(b"?")?;
    let mut query: Vec<Parameter> = Vec::with_capacity(MAX_PARAMETERS);
    loop {
        let (name, after) = read_word(data, rest)?;
        let (value, after) = read_word(data, after.strip_prefix(b"=")?)?;
        let is_twice = |one: &Parameter| data[one.name.clone()] == data[name.clone()];
        if query.len() == MAX_PARAMETERS || query.iter().any(is_twice) {
            return None;
        }
        query.push(Parameter { name, value });
        match after.strip_prefix(b"&") {
            Some(next) => rest = next,
            None => {
                query.sort_unstable_by(|one, two| {
                    data[one.name.clone()].cmp(&data[two.name.clone()])
                });
                return Some((query, after));
            }
        }
    }
}

/// One or more of the characters that no client escapes.
fn read_word<'a>(data: &[u8], rest: &'a [u8]) -> Option<(Range<usize>, &'a [u8])> {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    let size = rest
        .iter()
        .position(|byte| !is_plain(byte))
        .filter(|size| *size > 0)?;
    let begin = data.len() - rest.len();
    Some((begin..begin + size, &rest[size..]))
}
