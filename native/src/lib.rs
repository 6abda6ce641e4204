//! Native parts of the embedded service (docs/decisions/kafka.md) and of the worker (docs/decisions/worker.md).
//! Each does what a module in Python does, for what is usual and valid; everything else it leaves to that module,
//! which also has the messages of errors.

mod acks;
mod batches;
mod buffer;
mod call_head;
mod columns;
mod decoded;
mod entries;
mod head;
mod lists;
mod loggroup;
mod lz4;
mod message_frames;
mod protobuf;
mod pull;
mod pulsar;
mod put;
mod put_head;
mod records;
mod shapes;
mod slots;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

/// The records of the first `most` logs of a group, their number, and the times of the first and of the youngest
/// in ms; None for a group that only the Python implementation can judge.
#[pyfunction]
fn records_of<'py>(
    py: Python<'py>,
    group: &[u8],
    raw: bool,
    most: usize,
) -> Option<(Bound<'py, PyBytes>, usize, i64, i64)> {
    let found = records::records_of(group, raw, most)?;
    Some((
        PyBytes::new(py, &found.bytes),
        found.count,
        found.base_ms,
        found.top_ms,
    ))
}

/// The number of logs in a valid group; None for one that only the Python implementation can judge.
#[pyfunction]
fn count_logs(group: &[u8]) -> Option<usize> {
    loggroup::count_logs(group)
}

/// The columns of some LogGroupLists; None for lists that only the Python implementation can judge.
#[pyfunction]
fn decode_lists(
    py: Python<'_>,
    bodies: Vec<Bound<'_, PyBytes>>,
    keys: Vec<Bound<'_, PyString>>,
    contents: bool,
) -> PyResult<Option<decoded::DecodedLists>> {
    let bodies: Vec<&[u8]> = bodies.iter().map(|body| body.as_bytes()).collect();
    let keys = keys
        .iter()
        .map(|key| key.to_cow())
        .collect::<PyResult<Vec<_>>>()?;
    let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
    py.detach(|| lists::decode(&bodies, &keys, contents))
        .map(|lists| decoded::DecodedLists::new(py, lists))
        .transpose()
}

#[pymodule]
mod loghub_native {
    #[pymodule_export]
    use super::call_head::{call_request, CallRequest};
    #[pymodule_export]
    use super::pulsar::{
        acked_entries, entries_of, frames_of, logs_of_batch, slots_of_fields, slots_of_keys,
    };
    #[pymodule_export]
    use super::pull::{lz4_list, whole_records};
    #[pymodule_export]
    use super::put::stored_group;
    #[pymodule_export]
    use super::put_head::{put_request, PutRequest};
    #[pymodule_export]
    use super::{count_logs, decode_lists, records_of};
}
