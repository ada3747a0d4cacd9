//! NVIDIA's driver API, loaded when a GPU is opened.
//!
//! Nothing of CUDA is needed to build or to start; without a driver the error says what was looked for.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use libloading::Library;

use crate::Error;

/// An address of device memory.
pub(crate) type Address = u64;
type Handle = *mut c_void;

/// Declares the functions of a library: a table of pointers, filled by name.
macro_rules! functions {
    ($table:ident { $($name:ident = $symbol:literal ($($arg:ty),* $(,)?);)* }) => {
        /// Functions of the library.
        pub(crate) struct $table {
            $(pub(crate) $name: unsafe extern "C" fn($($arg),*) -> c_int,)*
            /// Keeps the code of the functions in memory.
            pub(crate) _library: Option<libloading::Library>,
        }

        impl $table {
            /// Looks up all functions.
            fn from_library(library: libloading::Library) -> Result<$table, libloading::Error> {
                // SAFETY: the names and signatures are those of the library's headers, and the
                // library stays loaded as long as the table.
                unsafe {
                    $(let $name = *library.get::<unsafe extern "C" fn($($arg),*) -> c_int>(
                        concat!($symbol, "\0").as_bytes(),
                    )?;)*
                    Ok($table { $($name,)* _library: Some(library) })
                }
            }
        }
    };
}
pub(crate) use functions;

functions!(Driver {
    init = "cuInit" (c_uint);
    version = "cuDriverGetVersion" (*mut c_int);
    error_text = "cuGetErrorString" (c_int, *mut *const c_char);
    device_count = "cuDeviceGetCount" (*mut c_int);
    device_get = "cuDeviceGet" (*mut c_int, c_int);
    device_name = "cuDeviceGetName" (*mut c_char, c_int, c_int);
    device_attribute = "cuDeviceGetAttribute" (*mut c_int, c_int, c_int);
    device_memory = "cuDeviceTotalMem_v2" (*mut usize, c_int);
    context_flags = "cuDevicePrimaryCtxSetFlags_v2" (c_int, c_uint);
    context_retain = "cuDevicePrimaryCtxRetain" (*mut Handle, c_int);
    context_release = "cuDevicePrimaryCtxRelease_v2" (c_int);
    context_get = "cuCtxGetCurrent" (*mut Handle);
    context_set = "cuCtxSetCurrent" (Handle);
    memory_allocate = "cuMemAlloc_v2" (*mut Address, usize);
    memory_free = "cuMemFree_v2" (Address);
    host_allocate = "cuMemHostAlloc" (*mut Handle, usize, c_uint);
    host_free = "cuMemFreeHost" (Handle);
    copy_to_device = "cuMemcpyHtoDAsync_v2" (Address, *const c_void, usize, Handle);
    copy_to_host = "cuMemcpyDtoHAsync_v2" (*mut c_void, Address, usize, Handle);
    stream_create = "cuStreamCreateWithPriority" (*mut Handle, c_uint, c_int);
    stream_destroy = "cuStreamDestroy_v2" (Handle);
    stream_wait = "cuStreamSynchronize" (Handle);
    stream_wait_event = "cuStreamWaitEvent" (Handle, Handle, c_uint);
    event_create = "cuEventCreate" (*mut Handle, c_uint);
    event_destroy = "cuEventDestroy_v2" (Handle);
    event_record = "cuEventRecord" (Handle, Handle);
    event_query = "cuEventQuery" (Handle);
    event_wait = "cuEventSynchronize" (Handle);
    module_load = "cuModuleLoadData" (*mut Handle, *const c_void);
    module_unload = "cuModuleUnload" (Handle);
    module_function = "cuModuleGetFunction" (*mut Handle, Handle, *const c_char);
    function_attribute = "cuFuncSetAttribute" (Handle, c_int, c_int);
    launch = "cuLaunchKernelEx" (*const LaunchConfig, Handle, *mut Handle, *mut Handle);
    capture_begin = "cuStreamBeginCapture_v2" (Handle, c_int);
    capture_end = "cuStreamEndCapture" (Handle, *mut Handle);
    graph_instantiate = "cuGraphInstantiateWithFlags" (*mut Handle, Handle, u64);
    graph_destroy = "cuGraphDestroy" (Handle);
    graph_launch = "cuGraphLaunch" (Handle, Handle);
    graph_exec_destroy = "cuGraphExecDestroy" (Handle);
    map_encode = "cuTensorMapEncodeTiled" (
        *mut Map, c_int, c_uint, Address, *const u64, *const u64, *const c_uint, *const c_uint,
        c_int, c_int, c_int, c_int,
    );
});

/// `CUtensorMap`: the descriptor of a matrix for TMA.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(crate) struct Map(pub(crate) [u8; 128]);

/// A matrix of bytes, and the boxes in which TMA copies it.
pub(crate) struct Matrix {
    pub(crate) address: Address,
    /// Bytes of a row.
    pub(crate) bytes: usize,
    /// Bytes from one row to the next.
    pub(crate) stride: usize,
    pub(crate) rows: usize,
    /// Rows of a box, which is 128 bytes wide.
    pub(crate) box_rows: usize,
}

/// `CUlaunchConfig`.
#[repr(C)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
    pub(crate) shared_bytes: c_uint,
    pub(crate) stream: Handle,
    pub(crate) attributes: *const LaunchAttribute,
    pub(crate) attribute_count: c_uint,
}

/// `CUlaunchAttribute`: an id and a value of 64 bytes.
#[repr(C)]
pub(crate) struct LaunchAttribute {
    pub(crate) id: c_int,
    pub(crate) pad: [u8; 4],
    pub(crate) value: [c_int; 16],
}

impl LaunchAttribute {
    /// Programmatic dependent launch: the kernel may start before the one in front of it has ended.
    pub(crate) const OVERLAPPED: LaunchAttribute = {
        let mut value = [0; 16];
        value[0] = 1;
        LaunchAttribute { id: 6, pad: [0; 4], value }
    };
}

/// The names under which the driver is looked for.
pub(crate) const NAMES: [&str; 2] = ["libcuda.so.1", "nvcuda.dll"];

impl Driver {
    /// The tensor map of a matrix. TMA swizzles pieces of 16 bytes within 128, as `wgmma` expects them.
    pub(crate) fn map(&self, matrix: &Matrix) -> Result<Map, Error> {
        const BYTES: c_int = 0;
        const NOT_INTERLEAVED: c_int = 0;
        const SWIZZLE_128_BYTES: c_int = 3;
        const PROMOTE_TO_256_BYTES: c_int = 3;
        const ZEROS_OUTSIDE: c_int = 0;
        let mut map = Map([0; 128]);
        let size = [matrix.bytes as u64, matrix.rows as u64];
        let stride = [matrix.stride as u64];
        let (step, corner) = ([1, 1], [128, matrix.box_rows as c_uint]);
        // SAFETY: a place for a map, and lists as long as the matrix has dimensions.
        let code = unsafe {
            (self.map_encode)(
                &mut map,
                BYTES,
                2,
                matrix.address,
                size.as_ptr(),
                stride.as_ptr(),
                corner.as_ptr(),
                step.as_ptr(),
                NOT_INTERLEAVED,
                SWIZZLE_128_BYTES,
                PROMOTE_TO_256_BYTES,
                ZEROS_OUTSIDE,
            )
        };
        self.check("cuTensorMapEncodeTiled", code).map(|()| map)
    }

    /// Loads and initialises the driver.
    pub(crate) fn open() -> Result<Driver, Error> {
        let missing = |reason: String| Error::NoDriver { looked_for: NAMES.join(", "), reason };
        let library = open_first(&NAMES).map_err(missing)?;
        let driver = Driver::from_library(library).map_err(|e| missing(e.to_string()))?;
        // SAFETY: no argument but a reserved zero.
        driver.check("cuInit", unsafe { (driver.init)(0) })?;
        Ok(driver)
    }

    /// Turns a result code of the driver into an error.
    pub(crate) fn check(&self, call: &'static str, code: c_int) -> Result<(), Error> {
        const OUT_OF_MEMORY: c_int = 2;
        match code {
            0 => Ok(()),
            OUT_OF_MEMORY => Err(Error::OutOfMemory),
            _ => {
                let mut text = std::ptr::null();
                // SAFETY: the driver hands out a static text, or leaves the pointer null.
                let reason = unsafe {
                    (self.error_text)(code, &mut text);
                    if text.is_null() { None } else { CStr::from_ptr(text).to_str().ok() }
                };
                let reason = reason.unwrap_or("unknown error").to_owned();
                Err(Error::Driver { call, reason, code })
            }
        }
    }
}

/// The first library that can be loaded.
pub(crate) fn open_first(names: &[impl AsRef<str>]) -> Result<Library, String> {
    let mut reason = String::new();
    for name in names {
        // SAFETY: these are NVIDIA's libraries, whose initialisers have no preconditions.
        match unsafe { Library::new(name.as_ref()) } {
            Ok(library) => return Ok(library),
            Err(error) => reason = error.to_string(),
        }
    }
    Err(reason)
}
