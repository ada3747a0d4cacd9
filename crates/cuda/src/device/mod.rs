//! A GPU: its memory, its kernels, and the work recorded for it.
//!
//! Every thread has a CUDA stream of its own, a [`WorkerStream`], with memory to go with it. Streams run
//! concurrently, so that one worker's search on the host overlaps with another's kernels. Weights, which all share,
//! are finished before another thread may see them.
//!
//! Operations do not launch kernels, they record them. What a kernel must know of the step (which rows read which
//! positions) is written to a *stage*, a staging buffer of page-locked memory. When an answer is needed, or a pass
//! through a network begins, the recorded *segment* goes to the device: one copy of the stage and all launches. Row
//! counts are rounded up where they decide grids and addresses, so that one step of decoding is recorded like the
//! next. A segment seen before is captured as a CUDA graph and replayed in one call.

use std::ffi::{CString, c_int, c_uint, c_void};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

use crate::Error;
use crate::compiler::{self, Code, Target};
use crate::driver::{Address, Driver, Map, Matrix};
use crate::precision::GpuPrecision;

mod kernels;
mod pool;
mod recorder;
mod segment;
mod side_stream;
mod streams;
mod submit;
mod survey;
#[cfg(test)]
mod tests;

pub(crate) use kernels::kernels;
use kernels::{LARGE_SHARED, MOST_SHARED};
use recorder::HostMemory;
pub(crate) use recorder::{Answer, Grown, Normed, Parties, Sent, Stored};
pub(crate) use segment::Segment;
pub(crate) use side_stream::SideWork;
pub(crate) use streams::WorkerStream;
pub use survey::{Properties, Survey, devices, survey};
use survey::{count, properties};

/// The smallest size of a stage, in bytes.
const FIRST_STAGE: usize = 1 << 20;

/// A GPU with the kernels for one precision.
pub(crate) struct Device {
    driver: Driver,
    pub(crate) properties: Properties,
    pub(crate) precision: GpuPrecision,
    context: *mut c_void,
    /// The compiled kernels, one build for each precision of products.
    builds: Vec<Build>,
    /// Whether kernels use programmatic dependent launch.
    overlaps: bool,
    /// Whether kernels use `wgmma`.
    warpgroups: bool,
    /// Whether kernels convert to fp8 and back.
    converts_fp8: bool,
    /// A number no other device of this process has or had.
    identity: u64,
    /// Threads that wait for an event.
    waiting: AtomicUsize,
    /// All streams.
    streams: Mutex<Vec<Arc<WorkerStream>>>,
    /// The streams whose thread has ended.
    idle: Arc<Mutex<Vec<Arc<WorkerStream>>>>,
}

/// The kernels, compiled for one precision of products. All builds of a device store rows alike.
struct Build {
    precision: GpuPrecision,
    module: *mut c_void,
    functions: FxHashMap<&'static str, *mut c_void>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The last identity given out.
static LAST_IDENTITY: AtomicU64 = AtomicU64::new(0);

// SAFETY: the driver's handles may be used from any thread once the context is current there, which
// every entry sees to; what changes is behind mutexes.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Device {
    /// Opens GPU `number` with kernels for `precision`.
    pub(crate) fn open(number: usize, precision: GpuPrecision) -> Result<Device, Error> {
        #[cfg(feature = "fake")]
        if let Some(driver) = crate::fake::driver_in_use() {
            return Device::on_fake_driver(driver, number, precision);
        }
        Device::with_driver(Driver::open()?, number, precision, compiler::code)
    }

    /// Opens the device of the fake driver, whose kernels are empty.
    #[cfg(any(test, feature = "fake"))]
    fn on_fake_driver(
        driver: Driver,
        number: usize,
        precision: GpuPrecision,
    ) -> Result<Device, Error> {
        let kernels = |target: &Target| Ok(Code { bytes: vec![0], capability: target.capability });
        Device::with_driver(driver, number, precision, kernels)
    }

    /// Opens a GPU of `driver` with kernels from `kernels`.
    fn with_driver(
        driver: Driver,
        number: usize,
        precision: GpuPrecision,
        kernels: impl Fn(&Target) -> Result<Code, Error>,
    ) -> Result<Device, Error> {
        let found = count(&driver)?;
        if number >= found {
            return Err(Error::NoDevice { wanted: number, found });
        }
        let properties = properties(&driver, number)?;
        if properties.capability < precision.needs() {
            let (major, minor) = properties.capability;
            let needed = if precision == GpuPrecision::Fp8 { "8.9" } else { "8.0" };
            let found = format!("{major}.{minor}");
            return Err(Error::TooOld { name: properties.name, found, needed });
        }
        let mut context = null();
        const SPIN: c_uint = 1;
        // SAFETY: a place for a handle.
        unsafe {
            // Flags that were set before stay.
            (driver.context_flags)(number as c_int, SPIN);
            let retained = (driver.context_retain)(&mut context, number as c_int);
            driver.check("cuDevicePrimaryCtxRetain", retained)?;
        }
        let mut device = Device {
            driver,
            properties,
            precision,
            context,
            builds: Vec::new(),
            overlaps: false,
            warpgroups: false,
            converts_fp8: false,
            identity: LAST_IDENTITY.fetch_add(1, Relaxed) + 1,
            waiting: AtomicUsize::new(0),
            streams: Mutex::default(),
            idle: Arc::default(),
        };
        device.make_current()?;
        device.load(precision, &kernels)?;
        if precision.for_source() != precision {
            device.load(precision.for_source(), &kernels)?;
        }
        Ok(device)
    }

    /// Loads the kernels for a precision of products.
    fn load(
        &mut self,
        precision: GpuPrecision,
        code: &impl Fn(&Target) -> Result<Code, Error>,
    ) -> Result<(), Error> {
        let Properties { capability, driver, .. } = self.properties;
        let code = code(&Target { capability, driver, precision })?;
        self.overlaps = code.capability >= (9, 0);
        self.warpgroups = code.capability == (9, 0);
        self.converts_fp8 = code.capability >= (8, 9);
        let mut module = null();
        // SAFETY: a place for a handle; the code is a whole module, text with a zero at its end.
        let loaded = unsafe { (self.driver.module_load)(&mut module, code.bytes.as_ptr().cast()) };
        self.driver.check("cuModuleLoadData", loaded)?;
        let functions = self.functions(module, precision).inspect_err(|_| {
            // SAFETY: just loaded, and nobody else knows it.
            unsafe { (self.driver.module_unload)(module) };
        })?;
        self.builds.push(Build { precision, module, functions });
        Ok(())
    }

    /// The kernels of a module, by their names.
    fn functions(
        &self,
        module: *mut c_void,
        precision: GpuPrecision,
    ) -> Result<FxHashMap<&'static str, *mut c_void>, Error> {
        const MOST_DYNAMIC_SHARED: c_int = 8;
        let mut functions = FxHashMap::default();
        for name in kernels(precision) {
            let symbol = CString::new(name).map_err(|e| Error::Compiler(e.to_string()))?;
            let mut function = null();
            // SAFETY: a place for a handle, and a name that ends in zero.
            let code =
                unsafe { (self.driver.module_function)(&mut function, module, symbol.as_ptr()) };
            self.driver.check("cuModuleGetFunction", code)?;
            if LARGE_SHARED.contains(&name) {
                let most = self.most_shared() as c_int;
                // SAFETY: a function of our module.
                let code = unsafe {
                    (self.driver.function_attribute)(function, MOST_DYNAMIC_SHARED, most)
                };
                self.driver.check("cuFuncSetAttribute", code)?;
            }
            functions.insert(name, function);
        }
        Ok(functions)
    }

    /// A kernel for a precision of products.
    fn function(&self, precision: GpuPrecision, kernel: &str) -> Option<*mut c_void> {
        let build = self.builds.iter().find(|build| build.precision == precision)?;
        build.functions.get(kernel).copied()
    }

    /// Whether products of many rows use `wgmma`, with operands copied by TMA.
    pub(crate) fn has_warpgroups(&self, precision: GpuPrecision) -> bool {
        let exact = matches!(
            precision,
            GpuPrecision::Float16 | GpuPrecision::Bfloat16 | GpuPrecision::Int8
        );
        self.warpgroups && exact
    }

    /// Whether a KV cache may be in fp8.
    pub(crate) fn has_fp8_cache(&self) -> bool {
        self.converts_fp8 && self.precision.row_size() == 2
    }

    /// The TMA tensor map of a matrix.
    pub(crate) fn map(&self, matrix: &Matrix) -> Result<Map, Error> {
        self.driver.map(matrix)
    }

    /// Bytes of dynamic shared memory that a block may have.
    pub(crate) fn most_shared(&self) -> usize {
        MOST_SHARED.min(self.properties.shared)
    }

    /// Makes the context current on this thread. Another library may have changed it, so the driver is asked every
    /// time: that takes some ten nanoseconds, less than setting it.
    fn make_current(&self) -> Result<(), Error> {
        let mut current = null();
        // SAFETY: a place for a handle.
        let code = unsafe { (self.driver.context_get)(&mut current) };
        self.driver.check("cuCtxGetCurrent", code)?;
        if current == self.context {
            return Ok(());
        }
        // SAFETY: our context.
        let code = unsafe { (self.driver.context_set)(self.context) };
        self.driver.check("cuCtxSetCurrent", code)
    }

    /// Copies to the device, after all that was recorded before.
    pub(crate) fn upload(&self, address: Address, bytes: &[u8]) -> Result<(), Error> {
        let stream = self.stream()?;
        let mut recorder = lock(&stream.recorder);
        self.submit(&stream, &mut recorder)?;
        // SAFETY: the caller's memory is as long as its slice, and pageable: the driver has read it
        // when the call returns.
        let code = unsafe {
            (self.driver.copy_to_device)(address, bytes.as_ptr().cast(), bytes.len(), stream.handle)
        };
        self.driver.check("cuMemcpyHtoD", code)
    }

    /// Copies from the device, after all that was recorded before.
    pub(crate) fn download(&self, address: Address, out: &mut [f32]) -> Result<(), Error> {
        let stream = self.stream()?;
        let mut recorder = lock(&stream.recorder);
        self.submit(&stream, &mut recorder)?;
        let bytes = size_of_val(out);
        // SAFETY: the caller's memory is as long as its slice, and the copy is waited for.
        let code = unsafe {
            (self.driver.copy_to_host)(out.as_mut_ptr().cast(), address, bytes, stream.handle)
        };
        self.wait(&stream, &mut recorder)?;
        self.driver.check("cuMemcpyDtoH", code)
    }

    /// Records work for this thread's stream.
    pub(crate) fn record<T>(
        &self,
        work: impl FnOnce(&mut Segment<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.record_as(self.precision, work)
    }

    /// Records work with the kernels for a certain precision of products.
    pub(crate) fn record_as<T>(
        &self,
        precision: GpuPrecision,
        work: impl FnOnce(&mut Segment<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let stream = self.stream()?;
        let mut recorder = lock(&stream.recorder);
        work(&mut Segment { device: self, precision, stream: &stream, recorder: &mut recorder })
    }

    /// Ends a segment: what is recorded from here on is alike from step to step. If the segment and the next one look
    /// up words of places (`follows`), both are of the same step, and the segment goes on. So does one on a side
    /// stream, or the host would wait there for its first part.
    pub(crate) fn new_segment(&self, follows: bool) -> Result<(), Error> {
        if self.is_on_side_stream() {
            return Ok(());
        }
        let stream = self.stream()?;
        let mut recorder = lock(&stream.recorder);
        if !(follows && recorder.follows) {
            self.submit(&stream, &mut recorder)?;
        }
        recorder.follows = follows;
        Ok(())
    }

    /// Sends all recorded work and waits for it.
    pub(crate) fn finish(&self) -> Result<(), Error> {
        let stream = self.stream()?;
        let mut recorder = lock(&stream.recorder);
        self.submit(&stream, &mut recorder)?;
        self.wait(&stream, &mut recorder)
    }

    fn host_memory(&self, bytes: usize) -> Result<HostMemory, Error> {
        const PORTABLE: c_uint = 1;
        const MAPPED: c_uint = 2;
        let mut address = null();
        // SAFETY: a place for an address.
        let code = unsafe { (self.driver.host_allocate)(&mut address, bytes, PORTABLE | MAPPED) };
        self.driver.check("cuMemHostAlloc", code)?;
        Ok(HostMemory { address, bytes })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.make_current().is_ok() {
            for stream in lock(&self.streams).drain(..) {
                self.destroy_stream(&stream);
            }
            for build in &self.builds {
                // SAFETY: ours and unloaded once; the device has finished.
                unsafe { (self.driver.module_unload)(build.module) };
            }
        }
        // SAFETY: retained once when the device was opened. What could not be freed goes with the context.
        unsafe { (self.driver.context_release)(self.properties.number as c_int) };
    }
}

fn null() -> *mut c_void {
    std::ptr::null_mut()
}

fn null_mut() -> *mut *mut c_void {
    std::ptr::null_mut()
}

/// Rounds a number up so that few different ones remain: powers of two and half-way between.
pub(crate) fn bucket(n: usize) -> usize {
    let power = n.max(1).next_power_of_two();
    if power >= 32 && n <= power / 4 * 3 { power / 4 * 3 } else { power }
}
