//! Arrow arrays of strings, in and out, through the Arrow C data interface: without a library of Arrow, and without a Python string
//! for each value.
//!
//! The layouts are those of <https://arrow.apache.org/docs/format/CDataInterface.html>. Formats `u` and `U` have offsets of 32 and 64
//! bits into one buffer of bytes, `vu` has views of 16 bytes: length, then the bytes themselves if they are twelve or fewer, or else
//! their first four, the number of a buffer and an offset. What is read is only looked at, never taken: its owner frees it.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null, null_mut};

use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

use crate::errors::{failed, kind};

/// The type of an array.
#[repr(C)]
struct Schema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut Schema,
    dictionary: *mut Schema,
    release: Option<unsafe extern "C" fn(*mut Schema)>,
    private_data: *mut c_void,
}

/// The values of an array.
#[repr(C)]
struct Array {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *const *const c_void,
    children: *mut *mut Array,
    dictionary: *mut Array,
    release: Option<unsafe extern "C" fn(*mut Array)>,
    private_data: *mut c_void,
}

/// Arrays of one type, one after the other.
#[repr(C)]
struct Stream {
    get_schema: Option<unsafe extern "C" fn(*mut Stream, *mut Schema) -> c_int>,
    get_next: Option<unsafe extern "C" fn(*mut Stream, *mut Array) -> c_int>,
    get_last_error: Option<unsafe extern "C" fn(*mut Stream) -> *const c_char>,
    release: Option<unsafe extern "C" fn(*mut Stream)>,
    private_data: *mut c_void,
}

// SAFETY: an exported schema or array owns what it points to, or points to constants, and may be released on any thread.
unsafe impl Send for Schema {}
// SAFETY: as above.
unsafe impl Send for Array {}

impl Drop for Schema {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: the callback is still there, so nobody has released or taken the structure.
            unsafe { release(self) };
        }
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: as above.
            unsafe { release(self) };
        }
    }
}

impl Schema {
    const fn empty() -> Schema {
        Schema {
            format: null(),
            name: null(),
            metadata: null(),
            flags: 0,
            n_children: 0,
            children: null_mut(),
            dictionary: null_mut(),
            release: None,
            private_data: null_mut(),
        }
    }
}

impl Array {
    const fn empty() -> Array {
        Array {
            length: 0,
            null_count: 0,
            offset: 0,
            n_buffers: 0,
            n_children: 0,
            buffers: null(),
            children: null_mut(),
            dictionary: null_mut(),
            release: None,
            private_data: null_mut(),
        }
    }
}

/// The strings of an object with the method `__arrow_c_array__` or `__arrow_c_stream__`.
pub(crate) fn read(object: &Bound<'_, PyAny>) -> PyResult<Vec<Option<String>>> {
    let mut strings = Vec::new();
    if object.hasattr("__arrow_c_array__")? {
        let pair = object.call_method0("__arrow_c_array__")?.cast_into::<PyTuple>()?;
        let (schema, array) = (pair.get_item(0)?, pair.get_item(1)?);
        let (schema, array) = (schema.cast::<PyCapsule>()?, array.cast::<PyCapsule>()?);
        let schema = schema.pointer_checked(Some(c"arrow_schema"))?.cast::<Schema>();
        let array = array.pointer_checked(Some(c"arrow_array"))?.cast::<Array>();
        // SAFETY: capsules of these names hold these structures (the PyCapsule interface of Arrow), and both capsules live until
        // the end of this block.
        unsafe { read_array(schema.as_ref(), array.as_ref(), &mut strings)? };
        return Ok(strings);
    }
    let stream = object.call_method0("__arrow_c_stream__")?.cast_into::<PyCapsule>()?;
    let stream = stream.pointer_checked(Some(c"arrow_array_stream"))?.cast::<Stream>().as_ptr();
    let mut schema = Schema::empty();
    // SAFETY: a capsule of this name holds a stream; its callbacks are called with that stream and with structures to fill, as the
    // interface wants it. What they fill is released when it is dropped.
    unsafe {
        let (Some(get_schema), Some(get_next)) = ((*stream).get_schema, (*stream).get_next) else {
            return Err(failed("an Arrow stream that has been read already"));
        };
        check(stream, get_schema(stream, &mut schema))?;
        loop {
            let mut array = Array::empty();
            check(stream, get_next(stream, &mut array))?;
            if array.release.is_none() {
                return Ok(strings);
            }
            read_array(&schema, &array, &mut strings)?;
        }
    }
}

/// Raises what a stream says is wrong.
///
/// # Safety
///
/// The stream must be alive.
unsafe fn check(stream: *mut Stream, code: c_int) -> PyResult<()> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: the stream is alive; its message, if there is one, ends with a zero.
    let message = unsafe {
        let message = (*stream).get_last_error.map_or(null(), |last| last(stream));
        if message.is_null() {
            c"it says no more".into()
        } else {
            CStr::from_ptr(message).to_owned()
        }
    };
    Err(failed(format!("an Arrow stream failed ({code}): {}", message.to_string_lossy())))
}

/// Adds the strings of an array.
///
/// # Safety
///
/// Both must be alive and keep the contract of the interface.
unsafe fn read_array(
    schema: &Schema,
    array: &Array,
    strings: &mut Vec<Option<String>>,
) -> PyResult<()> {
    // SAFETY: a format is a string that ends with a zero.
    let format = unsafe { CStr::from_ptr(schema.format) }.to_bytes();
    let known = schema.dictionary.is_null() && matches!(format, b"u" | b"U" | b"vu" | b"n");
    if !known {
        let format = String::from_utf8_lossy(format);
        let dictionary = if schema.dictionary.is_null() { "" } else { ", dictionary-encoded" };
        return Err(kind(format!(
            "expected an Arrow array of strings, not one of format {format:?}{dictionary}"
        )));
    }
    let (offset, length) = (array.offset as usize, array.length as usize);
    strings.reserve(length);
    if format == b"n" {
        strings.extend((0..length).map(|_| None));
        return Ok(());
    }
    // SAFETY: these formats have a bitmap of validity (or none), offsets or views for every value, and buffers of bytes that
    // those point into.
    unsafe {
        let buffer = |number: usize| (*array.buffers.add(number)).cast::<u8>();
        let validity = buffer(0);
        for at in offset..offset + length {
            let valid = validity.is_null() || *validity.add(at / 8) >> (at % 8) & 1 == 1;
            let bytes = match format {
                _ if !valid => {
                    strings.push(None);
                    continue;
                }
                b"u" => {
                    let offsets = buffer(1).cast::<i32>().add(at);
                    slice(buffer(2), *offsets as usize, *offsets.add(1) as usize)
                }
                b"U" => {
                    let offsets = buffer(1).cast::<i64>().add(at);
                    slice(buffer(2), *offsets as usize, *offsets.add(1) as usize)
                }
                _ => {
                    let view = buffer(1).add(16 * at);
                    let word = |number: usize| view.cast::<i32>().add(number).read() as usize;
                    match word(0) {
                        length @ 0..=12 => slice(view.add(4), 0, length),
                        length => slice(buffer(2 + word(2)), word(3), word(3) + length),
                    }
                }
            };
            strings.push(Some(String::from_utf8_lossy(bytes).into_owned()));
        }
    }
    Ok(())
}

/// Bytes of a buffer.
///
/// # Safety
///
/// The buffer must have bytes up to `end`, unless there are none between `start` and `end`.
unsafe fn slice<'a>(buffer: *const u8, start: usize, end: usize) -> &'a [u8] {
    match end.saturating_sub(start) {
        0 => &[],
        // SAFETY: the caller promises that the bytes are there.
        length => unsafe { std::slice::from_raw_parts(buffer.add(start), length) },
    }
}

/// Strings as an Arrow array of format `U`. Whatever reads the Arrow C data interface reads them.
#[pyclass(frozen, module = "peregrine")]
pub(crate) struct Strings {
    /// One bit for each value that is not null.
    validity: Vec<u8>,
    offsets: Vec<i64>,
    bytes: Vec<u8>,
    nulls: usize,
}

impl Strings {
    pub(crate) fn new(strings: impl ExactSizeIterator<Item = Option<String>>) -> Strings {
        let mut validity = vec![0; strings.len().div_ceil(8)];
        let (mut offsets, mut bytes, mut nulls) = (vec![0], Vec::new(), 0);
        for (at, string) in strings.enumerate() {
            match string {
                Some(string) => {
                    validity[at / 8] |= 1 << (at % 8);
                    bytes.extend_from_slice(string.as_bytes());
                }
                None => nulls += 1,
            }
            offsets.push(bytes.len() as i64);
        }
        Strings { validity, offsets, bytes, nulls }
    }
}

/// What an exported array keeps alive.
struct Exported {
    _strings: Py<Strings>,
    buffers: [*const c_void; 3],
}

#[pymethods]
impl Strings {
    fn __len__(&self) -> usize {
        self.offsets.len() - 1
    }

    fn __repr__(&self) -> String {
        format!("<peregrine.Strings, {} values, {} null>", self.__len__(), self.nulls)
    }

    /// The type and the values, as the Arrow PyCapsule interface has them. No other type can be asked for.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        this: &Bound<'py, Self>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        // The interface lets a producer ignore it.
        drop(requested_schema);
        const NULLABLE: i64 = 2;
        let mut schema = Schema::empty();
        (schema.format, schema.name) = (c"U".as_ptr(), c"".as_ptr());
        schema.flags = NULLABLE;
        schema.release = Some(release_schema);
        let strings = this.get();
        let exported = Box::new(Exported {
            _strings: this.clone().unbind(),
            buffers: [
                strings.validity.as_ptr().cast(),
                strings.offsets.as_ptr().cast(),
                strings.bytes.as_ptr().cast(),
            ],
        });
        let mut array = Array::empty();
        array.length = strings.__len__() as i64;
        array.null_count = strings.nulls as i64;
        array.n_buffers = 3;
        array.buffers = exported.buffers.as_ptr();
        array.release = Some(release_array);
        array.private_data = Box::into_raw(exported).cast();
        let py = this.py();
        let schema = PyCapsule::new_with_value(py, schema, c"arrow_schema")?;
        Ok((schema, PyCapsule::new_with_value(py, array, c"arrow_array")?))
    }
}

/// Releases a schema of constants.
unsafe extern "C" fn release_schema(schema: *mut Schema) {
    // SAFETY: whoever calls this has the schema.
    unsafe { (*schema).release = None };
}

/// Releases an array that [`Strings`] has exported.
unsafe extern "C" fn release_array(array: *mut Array) {
    // SAFETY: whoever calls this has the array, and its private data is what was exported with it.
    unsafe {
        drop(Box::from_raw((*array).private_data.cast::<Exported>()));
        (*array).release = None;
    }
}
