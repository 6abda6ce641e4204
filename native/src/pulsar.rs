//! What the Pulsar endpoint and the driver of subscriptions call, as functions of Python.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::acks;
use crate::batches::{self, Limits};
use crate::entries::{self, GroupToSend};
use crate::message_frames::Heads;
use crate::slots;

/// An entry as Python's `EntryToSend`: ordinal, first log, number of logs, the same of a batch, and data.
type Entry<'py> = (u64, usize, usize, Option<usize>, Bound<'py, PyBytes>);
/// Ids, and runs of positions, of an ACK with its consumer and request.
type Acked = (u64, Option<u64>, usize, Vec<(u64, u64)>);

/// The entries of a group, in batches or one for each log; None for a group that only the Python implementation can
/// judge. `limits` has the most bytes of a payload, and of metadata and payload.
#[pyfunction]
pub fn entries_of<'py>(
    py: Python<'py>,
    group: &[u8],
    raw: bool,
    in_batches: bool,
    common: &[u8],
    numbering: (u64, u64),
    flags: &[u8],
    limits: (usize, usize),
) -> Option<Vec<Entry<'py>>> {
    let (ordinal, sequence) = numbering;
    let (max_payload_bytes, max_bytes) = limits;
    let to_send = GroupToSend {
        group,
        raw,
        common,
        sequence,
        flags,
        max_payload_bytes,
        max_bytes,
    };
    let make = if in_batches {
        entries::batches
    } else {
        entries::single_entries
    };
    let made = py.detach(|| make(&to_send))?;
    let mut begin = 0;
    let mut found = Vec::with_capacity(made.parts.len());
    for (first, logs, end) in made.parts {
        let data = PyBytes::new(py, &made.bytes[begin..end]);
        found.push((ordinal, first, logs, in_batches.then_some(logs), data));
        begin = end;
    }
    Some(found)
}

/// The slot of each log by its key, or else by the producer and the number of the log; None as above.
#[pyfunction]
pub fn slots_of_keys(
    py: Python<'_>,
    group: &[u8],
    raw: bool,
    producer: &str,
    first: u64,
) -> Option<Vec<u32>> {
    py.detach(|| slots::of_keys(group, raw, producer, first))
}

/// The slot of each log by these fields; None as above.
#[pyfunction]
pub fn slots_of_fields(
    py: Python<'_>,
    group: &[u8],
    fields: Vec<Bound<'_, PyBytes>>,
) -> Option<Vec<u32>> {
    let fields: Vec<&[u8]> = fields.iter().map(|field| field.as_bytes()).collect();
    py.detach(|| slots::of_fields(group, &fields))
}

/// The log group of a batch, the flags of each message, and the highest sequence id; None for a batch that only the
/// Python implementation can judge. `limits` has the most bytes of the group, and the most fields of all messages, of
/// one, and properties of one.
#[pyfunction]
pub fn logs_of_batch<'py>(
    py: Python<'py>,
    batch: &[u8],
    count: usize,
    publish_ms: u64,
    raw: bool,
    limits: (usize, usize, usize, usize),
) -> Option<(Bound<'py, PyBytes>, Bound<'py, PyBytes>, u64)> {
    let limits = Limits {
        group_bytes: limits.0,
        fields: limits.1,
        message_fields: limits.2,
        properties: limits.3,
    };
    let logs = py.detach(|| batches::logs_of(batch, count, publish_ms, raw, &limits))?;
    Some((
        PyBytes::new(py, &logs.group),
        PyBytes::new(py, &logs.flags),
        logs.last,
    ))
}

/// Consumer, request, number of ids, and the positions of the entries in runs, of an ACK of whole entries; None for
/// every other command.
#[pyfunction]
pub fn acked_entries(frame: &[u8], index_bits: u32, most_fields: usize) -> Option<Acked> {
    let acked = acks::read(frame, index_bits, most_fields)?;
    Some((acked.consumer_id, acked.request_id, acked.ids, acked.runs))
}

/// Frames of the logs in some runs, with the number of logs, from the log of a run on at which the last call has
/// ended, until they have so many bytes. `runs` has the indexes of logs, with the number of redeliveries.
#[pyfunction]
pub fn frames_of<'py>(
    py: Python<'py>,
    heads: (&[u8], &[u8], &[u8], &[u8]),
    entries: &Bound<'py, PyTuple>,
    runs: &Bound<'py, PyList>,
    begin: (u64, (usize, u64)),
    enough_bytes: usize,
) -> PyResult<(Bound<'py, PyBytes>, usize, (usize, u64))> {
    let heads = Heads {
        consumer: heads.0,
        ledger: heads.1,
        partition: heads.2,
        epoch: heads.3,
    };
    let (base, (mut run, mut index)) = begin;
    let mut out = Vec::with_capacity(enough_bytes + enough_bytes / 4);
    let mut logs = 0;
    while run < runs.len() && out.len() < enough_bytes {
        let (first, stop, times): (u64, u64, u64) = runs.get_item(run)?.extract()?;
        index = index.max(first - base);
        let stop = (stop - base).min(entries.len() as u64);
        while index < stop && out.len() < enough_bytes {
            let entry = entries.get_item(index as usize)?;
            let data = entry.getattr(intern!(py, "data"))?;
            if let Ok(data) = data.cast::<PyBytes>() {
                heads.put_frame(&mut out, index, times, data.as_bytes());
                logs += 1;
            }
            index += 1;
        }
        if index >= stop {
            run += 1;
            index = 0;
        }
    }
    Ok((PyBytes::new(py, &out), logs, (run, index)))
}
