//! Memory that Rust has filled and Python reads in place, through the buffer protocol.

use std::ffi::c_int;
use std::ptr;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

/// Bytes that never change, so that any number of views may be open.
#[pyclass(frozen, module = "loghub_native")]
pub struct Buffer(Vec<u8>);

impl Buffer {
    pub fn new(mut bytes: Vec<u8>) -> Self {
        bytes.shrink_to_fit();
        Self(bytes)
    }
}

#[pymethods]
impl Buffer {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// # Safety
    /// Python calls this with a `view` that it owns, as the protocol says.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view"));
        }
        let bytes = &slf.get().0;
        let (start, size) = (bytes.as_ptr(), bytes.len() as ffi::Py_ssize_t);
        // It fails if `flags` asks for a writable view, and otherwise takes a reference to this object, so the
        // bytes stay where they are until the view is released.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start.cast_mut().cast(), size, 1, flags)
        };
        if filled == -1 {
            unsafe { (*view).obj = ptr::null_mut() };
            return Err(PyErr::fetch(slf.py()));
        }
        Ok(())
    }
}
