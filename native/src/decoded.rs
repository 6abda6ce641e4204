//! Decoded lists as Python gets them: the columns of `lists::Lists`, each a `Buffer` or several.

use pyo3::prelude::*;

use crate::buffer::Buffer;
use crate::columns::{Pairs, Texts};
use crate::lists::{KeyColumn, Lists};

type Bytes = Py<Buffer>;
/// Ends and data.
type TextColumn = (Bytes, Bytes);
/// Ends, keys and values.
type PairColumn = (Bytes, TextColumn, TextColumn);
/// Validity, the number of nulls, and the values.
type NullableColumn<T> = (Bytes, usize, T);

#[pyclass(frozen, get_all, module = "loghub_native")]
pub struct DecodedLists {
    groups: Vec<usize>,
    first_rows: Bytes,
    topics: TextColumn,
    sources: TextColumn,
    tags: PairColumn,
    group_of_log: Bytes,
    times_us: Bytes,
    time_ns: NullableColumn<Bytes>,
    contents: Option<PairColumn>,
    keys: Vec<NullableColumn<TextColumn>>,
}

impl DecodedLists {
    pub fn new(py: Python<'_>, lists: Lists) -> PyResult<Self> {
        Ok(Self {
            groups: lists.groups,
            first_rows: bytes(py, lists.first_rows)?,
            topics: texts(py, lists.topics)?,
            sources: texts(py, lists.sources)?,
            tags: pairs(py, lists.tags)?,
            group_of_log: bytes(py, lists.group_of_log)?,
            times_us: bytes(py, lists.times_us)?,
            time_ns: (
                bytes(py, lists.has_time_ns.bits)?,
                lists.has_time_ns.nulls,
                bytes(py, lists.time_ns)?,
            ),
            contents: lists
                .contents
                .map(|contents| pairs(py, contents))
                .transpose()?,
            keys: lists
                .keys
                .into_iter()
                .map(|column| key_column(py, column))
                .collect::<PyResult<_>>()?,
        })
    }
}

fn bytes(py: Python<'_>, bytes: Vec<u8>) -> PyResult<Bytes> {
    Py::new(py, Buffer::new(bytes))
}

fn texts(py: Python<'_>, texts: Texts) -> PyResult<TextColumn> {
    Ok((bytes(py, texts.ends)?, bytes(py, texts.data)?))
}

fn pairs(py: Python<'_>, pairs: Pairs) -> PyResult<PairColumn> {
    Ok((
        bytes(py, pairs.ends)?,
        texts(py, pairs.keys)?,
        texts(py, pairs.values)?,
    ))
}

fn key_column(py: Python<'_>, column: KeyColumn) -> PyResult<NullableColumn<TextColumn>> {
    Ok((
        bytes(py, column.has_value.bits)?,
        column.has_value.nulls,
        texts(py, column.values)?,
    ))
}
