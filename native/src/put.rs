//! The log group of a PutLogs as the service stores it: what `check_group` in
//! `service/loghub_service/api/logs.py` makes of a body in LZ4.

use std::cell::RefCell;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::loggroup::count_logs;
use crate::lz4::last_sequence;

/// `MIN_BYTES` of `service/loghub_service/storage/stored_group.py`: a smaller group is stored as it is.
const MIN_PACKED: usize = 1 << 10;
/// What a thread keeps for the next group. New pages of memory cost as much as the decompression into them.
const KEPT_BYTES: usize = 2 << 20;
/// Below, the check takes 0.1 ms at most, and another thread would keep the GIL for 5 ms.
const FREE_ABOVE_BYTES: usize = 32 << 10;

thread_local! {
    static RAW: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A valid log group with logs; `head` and `rest` together are its stored form.
pub struct Stored<'a> {
    pub logs: usize,
    pub head: Vec<u8>,
    pub rest: &'a [u8],
}

impl Stored<'_> {
    pub fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let (head, rest) = (&self.head, self.rest);
        PyBytes::new_with(py, head.len() + rest.len(), |bytes| {
            bytes[..head.len()].copy_from_slice(head);
            bytes[head.len()..].copy_from_slice(rest);
            Ok(())
        })
    }
}

/// None for a body that only the Python implementation can judge, or that it stores in another form, and for a
/// group without logs or with more than `most_logs`.
pub fn stored(body: &[u8], raw_size: usize, most_logs: usize) -> Option<Stored<'_>> {
    let last = last_sequence(body, raw_size)?;
    let is_packed = raw_size >= MIN_PACKED;
    if is_packed && body.len() >= raw_size {
        return None;
    }
    RAW.with_borrow_mut(|raw| {
        // The sizes are exact by now, so this is no more than the block expands to.
        raw.resize(raw_size, 0);
        let size = lz4_flex::block::decompress_into(body, raw).ok();
        let found = size.filter(|size| *size == raw_size).and_then(|_| count_logs(raw));
        let small = if is_packed { Vec::new() } else { raw.clone() };
        if raw.capacity() > KEPT_BYTES {
            *raw = Vec::new();
        }
        let logs = found.filter(|logs| (1..=most_logs).contains(logs))?;
        Some(if is_packed {
            Stored {
                logs,
                head: head(raw_size, last)?,
                rest: body,
            }
        } else {
            Stored {
                logs,
                head: small,
                rest: &[],
            }
        })
    })
}

/// The bytes before a block, as in `service/loghub_service/storage/stored_group.py`.
fn head(raw_size: usize, last: usize) -> Option<Vec<u8>> {
    let mut head = vec![0, 1, 0, 0];
    head.extend(u32::try_from(raw_size).ok()?.to_le_bytes());
    head.extend(u32::try_from(last).ok()?.to_le_bytes());
    Some(head)
}

/// The number of logs and the stored form; the GIL is free meanwhile if that takes longer than to get it back.
#[pyfunction]
pub fn stored_group<'py>(
    py: Python<'py>,
    body: &[u8],
    raw_size: usize,
    most_logs: usize,
) -> PyResult<Option<(usize, Bound<'py, PyBytes>)>> {
    let found = if raw_size > FREE_ABOVE_BYTES {
        py.detach(|| stored(body, raw_size, most_logs))
    } else {
        stored(body, raw_size, most_logs)
    };
    found.map(|one| Ok((one.logs, one.to_bytes(py)?))).transpose()
}
