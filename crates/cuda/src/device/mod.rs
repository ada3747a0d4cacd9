//! A GPU: its memory, its kernels, and the work recorded for it.
//!
//! Every thread has a *lane*: a queue of the device, and memory to go with it. What one lane does is
//! done in order; lanes run side by side, so that one worker's search overlaps with another's
//! kernels. What all share (weights) is finished before anybody else may see it.
//!
//! Verbs do not launch kernels, they record them; what a kernel must know of the step (which rows
//! read what) is laid into a *stage*, a piece of page-locked memory. When an answer is needed, or a
//! pass through a network begins, the recorded *segment* goes to the device: one copy of the stage
//! and all launches. Numbers of rows are rounded up where they decide grids and places, so one step
//! of decoding is recorded like the next; a segment seen before is replayed as a CUDA graph, in
//! one call.

use std::ffi::{CString, c_int, c_uint, c_void};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

use crate::Error;
use crate::compiler::{self, Code, Target};
use crate::driver::{Address, Driver, Map, Matrix};
use crate::precision::GpuPrecision;

mod beside;
mod kernels;
mod lanes;
mod recorder;
mod segment;
mod sending;
mod survey;
#[cfg(test)]
mod tests;

pub(crate) use beside::Beside;
pub(crate) use kernels::kernels;
use kernels::{LARGE_SHARED, MOST_SHARED};
pub(crate) use lanes::Lane;
pub(crate) use recorder::{Answer, Sent};
use recorder::{HostMemory, Launch, Recorder};
pub(crate) use segment::{Grown, Normed, Parties, Segment, Stored};
pub use survey::{Properties, Survey, devices, survey};
use survey::{count, properties};

/// First size of a stage.
const FIRST_STAGE: usize = 1 << 20;

/// A GPU with the kernels for one precision.
pub(crate) struct Device {
    driver: Driver,
    pub(crate) properties: Properties,
    pub(crate) numbers: GpuPrecision,
    context: *mut c_void,
    /// One for each kind of products.
    builds: Vec<Build>,
    overlaps: bool,
    warpgroups: bool,
    /// A number no other device has or had.
    identity: u64,
    /// All there are, to be taken down in the end,
    lanes: Mutex<Vec<Arc<Lane>>>,
    /// and those whose thread has ended.
    resting: Arc<Mutex<Vec<Arc<Lane>>>>,
}

/// The kernels, compiled for one precision. Those of one device store rows alike.
struct Build {
    numbers: GpuPrecision,
    module: *mut c_void,
    functions: FxHashMap<&'static str, *mut c_void>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The last identity given out.
static LAST_IDENTITY: AtomicU64 = AtomicU64::new(0);

// SAFETY: the driver's handles may be used from any thread once the context is current there, which
// every entry sees to; what changes is behind the mutexes.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Device {
    /// Opens GPU `number` with kernels for `numbers`.
    pub(crate) fn open(number: usize, numbers: GpuPrecision) -> Result<Device, Error> {
        Device::with_driver(Driver::open()?, number, numbers, compiler::code)
    }

    /// The same with a certain driver, and kernels from elsewhere.
    fn with_driver(
        driver: Driver,
        number: usize,
        numbers: GpuPrecision,
        kernels: impl Fn(&Target) -> Result<Code, Error>,
    ) -> Result<Device, Error> {
        let found = count(&driver)?;
        if number >= found {
            return Err(Error::NoDevice { wanted: number, found });
        }
        let properties = properties(&driver, number)?;
        if properties.capability < numbers.needs() {
            let (major, minor) = properties.capability;
            let needed = if numbers == GpuPrecision::Fp8 { "8.9" } else { "8.0" };
            let found = format!("{major}.{minor}");
            return Err(Error::TooOld { name: properties.name, found, needed });
        }
        let mut context = null();
        const SPIN: c_uint = 1;
        // SAFETY: a place for a handle.
        unsafe {
            // Whoever set the flags before us keeps theirs.
            (driver.context_flags)(number as c_int, SPIN);
            let retained = (driver.context_retain)(&mut context, number as c_int);
            driver.check("cuDevicePrimaryCtxRetain", retained)?;
        }
        let mut device = Device {
            driver,
            properties,
            numbers,
            context,
            builds: Vec::new(),
            overlaps: false,
            warpgroups: false,
            identity: LAST_IDENTITY.fetch_add(1, Relaxed) + 1,
            lanes: Mutex::default(),
            resting: Arc::default(),
        };
        device.make_current()?;
        device.load(numbers, &kernels)?;
        if numbers.for_source() != numbers {
            device.load(numbers.for_source(), &kernels)?;
        }
        Ok(device)
    }

    /// Gets the kernels for a kind of products.
    fn load(
        &mut self,
        numbers: GpuPrecision,
        code: &impl Fn(&Target) -> Result<Code, Error>,
    ) -> Result<(), Error> {
        let Properties { capability, driver, .. } = self.properties;
        let code = code(&Target { capability, driver, numbers })?;
        self.overlaps = code.capability >= (9, 0);
        self.warpgroups = code.capability == (9, 0);
        let mut module = null();
        // SAFETY: a place for a handle; the code is a whole module, text with a zero at its end.
        let loaded = unsafe { (self.driver.module_load)(&mut module, code.bytes.as_ptr().cast()) };
        self.driver.check("cuModuleLoadData", loaded)?;
        let functions = self.functions(module, numbers).inspect_err(|_| {
            // SAFETY: just loaded, and nobody else knows it.
            unsafe { (self.driver.module_unload)(module) };
        })?;
        self.builds.push(Build { numbers, module, functions });
        Ok(())
    }

    /// The kernels of a module, by their names.
    fn functions(
        &self,
        module: *mut c_void,
        numbers: GpuPrecision,
    ) -> Result<FxHashMap<&'static str, *mut c_void>, Error> {
        const MOST_DYNAMIC_SHARED: c_int = 8;
        let mut functions = FxHashMap::default();
        for name in kernels(numbers) {
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

    /// A kernel for a kind of products.
    fn function(&self, numbers: GpuPrecision, kernel: &str) -> Option<*mut c_void> {
        let build = self.builds.iter().find(|build| build.numbers == numbers)?;
        build.functions.get(kernel).copied()
    }

    /// Whether products of many rows are done by warpgroups, with a copy engine to serve them.
    pub(crate) fn has_warpgroups(&self, numbers: GpuPrecision) -> bool {
        let exact =
            matches!(numbers, GpuPrecision::Float16 | GpuPrecision::Bfloat16 | GpuPrecision::Int8);
        self.warpgroups && exact
    }

    /// How the copy engine finds a matrix.
    pub(crate) fn map(&self, matrix: &Matrix) -> Result<Map, Error> {
        self.driver.map(matrix)
    }

    /// Bytes of shared memory that kernels may ask for.
    pub(crate) fn most_shared(&self) -> usize {
        MOST_SHARED.min(self.properties.shared)
    }

    /// Makes the context current on this thread. The driver is asked every time which one is, since any
    /// other library may change it; that takes some ten nanoseconds, less than setting it does.
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
        let lane = self.lane()?;
        let mut recorder = lock(&lane.recorder);
        self.submit(&lane, &mut recorder)?;
        // SAFETY: the caller's memory is as long as it says, and pageable: the driver has read it
        // when the call returns.
        let code = unsafe {
            (self.driver.copy_to_device)(address, bytes.as_ptr().cast(), bytes.len(), lane.stream)
        };
        self.driver.check("cuMemcpyHtoD", code)
    }

    /// Copies from the device, after all that was recorded before.
    pub(crate) fn download(&self, address: Address, out: &mut [f32]) -> Result<(), Error> {
        let lane = self.lane()?;
        let mut recorder = lock(&lane.recorder);
        self.submit(&lane, &mut recorder)?;
        let bytes = size_of_val(out);
        // SAFETY: the caller's memory is as long as it says, and waited for before it is read.
        let code = unsafe {
            (self.driver.copy_to_host)(out.as_mut_ptr().cast(), address, bytes, lane.stream)
        };
        self.wait(&lane, &mut recorder)?;
        self.driver.check("cuMemcpyDtoH", code)
    }

    /// Records work.
    pub(crate) fn record<T>(
        &self,
        work: impl FnOnce(&mut Segment<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.record_as(self.numbers, work)
    }

    /// The same with the kernels for a certain kind of products.
    pub(crate) fn record_as<T>(
        &self,
        numbers: GpuPrecision,
        work: impl FnOnce(&mut Segment<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let lane = self.lane()?;
        let mut recorder = lock(&lane.recorder);
        work(&mut Segment { device: self, numbers, lane: &lane, recorder: &mut recorder })
    }

    /// Ends a segment: what is recorded from here on will be alike from step to step. One that looks words of
    /// places up, as the next does (`follows`), is of the same step and goes on; so does what is done beside, or
    /// the host would wait for its first parts there.
    pub(crate) fn new_segment(&self, follows: bool) -> Result<(), Error> {
        if self.is_aside() {
            return Ok(());
        }
        let lane = self.lane()?;
        let mut recorder = lock(&lane.recorder);
        if !(follows && recorder.follows) {
            self.submit(&lane, &mut recorder)?;
        }
        recorder.follows = follows;
        Ok(())
    }

    /// Sends all recorded work off and waits for it.
    pub(crate) fn finish(&self) -> Result<(), Error> {
        let lane = self.lane()?;
        let mut recorder = lock(&lane.recorder);
        self.submit(&lane, &mut recorder)?;
        self.wait(&lane, &mut recorder)
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
            for lane in lock(&self.lanes).drain(..) {
                self.take_down(&lane);
            }
            for build in &self.builds {
                // SAFETY: ours and unloaded once; the device has finished.
                unsafe { (self.driver.module_unload)(build.module) };
            }
        }
        // SAFETY: retained once when the device was opened. What could not be given back goes with the context.
        unsafe { (self.driver.context_release)(self.properties.number as c_int) };
    }
}

fn null() -> *mut c_void {
    std::ptr::null_mut()
}

fn null_mut() -> *mut *mut c_void {
    std::ptr::null_mut()
}

/// A number rounded up so that few different ones remain: powers of two and half-way between.
pub(crate) fn bucket(n: usize) -> usize {
    let power = n.max(1).next_power_of_two();
    if power >= 32 && n <= power / 4 * 3 { power / 4 * 3 } else { power }
}
