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

use std::cell::{Cell, RefCell};
use std::ffi::{CString, c_int, c_uint, c_void};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

use crate::Error;
use crate::compiler::{self, Code, Target};
use crate::driver::{Address, Driver, LaunchAttribute, LaunchConfig, Map, Matrix};
use crate::precision::Numbers;

mod recorder;
mod segment;
mod survey;
#[cfg(test)]
mod tests;

pub(crate) use recorder::{Answer, Sent};
use recorder::{Graph, HostMemory, Launch, Recorder, Stage};
pub(crate) use segment::{Arguments, Grown, Normed, Parties, Segment, Stored};
pub use survey::{Properties, Survey, devices, survey};
use survey::{count, properties};

/// Kernels that may ask for more shared memory than a block gets by default.
const LARGE_SHARED: [&str; 12] = [
    "product_few",
    "product_normed_512",
    "product_normed_1024",
    "product_thin",
    "product_slim",
    "product_middle",
    "product_tall",
    "product_large",
    "best_middle",
    "best_large",
    "merge",
    "attention_weights",
];
/// What they may ask for where the device has it.
const MOST_SHARED: usize = 160 << 10;
/// `CU_LAUNCH_PARAM_BUFFER_POINTER`.
const BUFFER_POINTER: usize = 1;
/// `CU_LAUNCH_PARAM_BUFFER_SIZE`.
const BUFFER_SIZE: usize = 2;
/// Graphs kept before all are forgotten.
const MOST_GRAPHS: usize = 1024;
/// First size of a stage.
const FIRST_STAGE: usize = 1 << 20;

/// A GPU with the kernels for one precision.
pub(crate) struct Device {
    driver: Driver,
    pub(crate) properties: Properties,
    pub(crate) numbers: Numbers,
    context: *mut c_void,
    module: *mut c_void,
    functions: FxHashMap<&'static str, *mut c_void>,
    overlaps: bool,
    warpgroups: bool,
    /// A number no other device has or had.
    identity: u64,
    /// All there are, to be taken down in the end,
    lanes: Mutex<Vec<Arc<Lane>>>,
    /// and those whose thread has ended.
    resting: Arc<Mutex<Vec<Arc<Lane>>>>,
}

/// A queue of the device and memory of its own.
pub(crate) struct Lane {
    stream: *mut c_void,
    recorder: Mutex<Recorder>,
    pool: Mutex<Pool>,
}

// SAFETY: as for [`Device`].
unsafe impl Send for Lane {}
// SAFETY: as for [`Device`].
unsafe impl Sync for Lane {}

/// The lanes of a thread, one a device.
#[derive(Default)]
struct Lanes(Vec<Held>);

struct Held {
    device: u64,
    lane: Arc<Lane>,
    /// Where it goes when the thread ends.
    resting: Arc<Mutex<Vec<Arc<Lane>>>>,
}

impl Drop for Lanes {
    fn drop(&mut self) {
        for held in self.0.drain(..) {
            lock(&held.resting).push(held.lane);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The last identity given out.
static LAST_IDENTITY: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The device that is current on this thread.
    static CURRENT: Cell<u64> = const { Cell::new(0) };
    static LANES: RefCell<Lanes> = RefCell::default();
}

// SAFETY: the driver's handles may be used from any thread once the context is current there, which
// every entry sees to; what changes is behind the mutexes.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Device {
    /// Opens GPU `number` with kernels for `numbers`.
    pub(crate) fn open(number: usize, numbers: Numbers) -> Result<Device, Error> {
        Device::with_driver(Driver::open()?, number, numbers, compiler::code)
    }

    /// The same with a certain driver, and kernels from elsewhere.
    fn with_driver(
        driver: Driver,
        number: usize,
        numbers: Numbers,
        kernels: impl FnOnce(&Target) -> Result<Code, Error>,
    ) -> Result<Device, Error> {
        let found = count(&driver)?;
        if number >= found {
            return Err(Error::NoDevice { wanted: number, found });
        }
        let properties = properties(&driver, number)?;
        if properties.capability < numbers.needs() {
            let (major, minor) = properties.capability;
            let needed = if numbers == Numbers::Fp8 { "8.9" } else { "8.0" };
            let found = format!("{major}.{minor}");
            return Err(Error::TooOld { name: properties.name, found, needed });
        }
        let target =
            Target { capability: properties.capability, driver: properties.driver, numbers };
        let code = kernels(&target)?;
        let (mut context, mut module) = (null(), null());
        const SPIN: c_uint = 1;
        // SAFETY: places for handles; the code is a whole module, text with a zero at its end.
        unsafe {
            // Whoever set the flags before us keeps theirs.
            (driver.context_flags)(number as c_int, SPIN);
            let retained = (driver.context_retain)(&mut context, number as c_int);
            driver.check("cuDevicePrimaryCtxRetain", retained)?;
            driver.check("cuCtxSetCurrent", (driver.context_set)(context))?;
            driver.check(
                "cuModuleLoadData",
                (driver.module_load)(&mut module, code.bytes.as_ptr().cast()),
            )?;
        }
        let overlaps = code.capability >= (9, 0);
        let warpgroups = code.capability == (9, 0);
        Ok(Device {
            driver,
            properties,
            numbers,
            context,
            module,
            functions: FxHashMap::default(),
            overlaps,
            warpgroups,
            identity: LAST_IDENTITY.fetch_add(1, Relaxed) + 1,
            lanes: Mutex::default(),
            resting: Arc::default(),
        })
        .and_then(Device::with_functions)
    }

    fn with_functions(mut self) -> Result<Device, Error> {
        const MOST_DYNAMIC_SHARED: c_int = 8;
        for name in kernels(self.numbers) {
            let symbol = CString::new(name).map_err(|e| Error::Compiler(e.to_string()))?;
            let mut function = null();
            // SAFETY: a place for a handle, and a name that ends in zero.
            let code = unsafe {
                (self.driver.module_function)(&mut function, self.module, symbol.as_ptr())
            };
            self.driver.check("cuModuleGetFunction", code)?;
            if LARGE_SHARED.contains(&name) {
                let most = self.most_shared() as c_int;
                // SAFETY: a function of our module.
                let code = unsafe {
                    (self.driver.function_attribute)(function, MOST_DYNAMIC_SHARED, most)
                };
                self.driver.check("cuFuncSetAttribute", code)?;
            }
            self.functions.insert(name, function);
        }
        Ok(self)
    }

    /// Whether products of many rows are done by warpgroups, with a copy engine to serve them.
    pub(crate) fn has_warpgroups(&self) -> bool {
        let exact = matches!(self.numbers, Numbers::Float16 | Numbers::Bfloat16 | Numbers::Int8);
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

    /// This thread's lane, the device being current.
    pub(crate) fn lane(&self) -> Result<Arc<Lane>, Error> {
        self.make_current()?;
        let known = LANES.with_borrow(|lanes| {
            let held = lanes.0.iter().find(|held| held.device == self.identity);
            held.map(|held| Arc::clone(&held.lane))
        });
        if let Some(lane) = known {
            return Ok(lane);
        }
        let rested = lock(&self.resting).pop();
        let lane = match rested {
            Some(lane) => self.woken(lane)?,
            None => self.new_lane()?,
        };
        let held = Held {
            device: self.identity,
            lane: Arc::clone(&lane),
            resting: Arc::clone(&self.resting),
        };
        LANES.with_borrow_mut(|lanes| lanes.0.push(held));
        Ok(lane)
    }

    /// A lane of a thread that ended: what it left undone nobody wants.
    fn woken(&self, lane: Arc<Lane>) -> Result<Arc<Lane>, Error> {
        let mut recorder = lock(&lane.recorder);
        recorder.forget_segment();
        self.wait(&lane, &mut recorder)?;
        drop(recorder);
        Ok(lane)
    }

    fn new_lane(&self) -> Result<Arc<Lane>, Error> {
        const NON_BLOCKING: c_uint = 1;
        let mut stream = null();
        // SAFETY: a place for a handle.
        let code = unsafe { (self.driver.stream_create)(&mut stream, NON_BLOCKING) };
        self.driver.check("cuStreamCreate", code)?;
        let lane = Arc::new(Lane { stream, recorder: Mutex::default(), pool: Mutex::default() });
        lock(&self.lanes).push(Arc::clone(&lane));
        Ok(lane)
    }

    fn make_current(&self) -> Result<(), Error> {
        if CURRENT.get() == self.identity {
            return Ok(());
        }
        // SAFETY: our context.
        let code = unsafe { (self.driver.context_set)(self.context) };
        CURRENT.set(self.identity);
        self.driver.check("cuCtxSetCurrent", code)
    }

    /// Takes memory back that this thread was the last to use.
    pub(crate) fn give_back(&self, address: Address, bytes: usize) {
        let lane = LANES.try_with(|lanes| {
            let lanes = lanes.try_borrow().ok()?;
            let held = lanes.0.iter().find(|held| held.device == self.identity)?;
            Some(Arc::clone(&held.lane))
        });
        match lane {
            Ok(Some(lane)) => lane.give_back(address, bytes),
            // A thread that has no lane did no work; the driver waits for that of others.
            _ if self.make_current().is_ok() => {
                // SAFETY: memory of ours that nobody refers to any more.
                unsafe { (self.driver.memory_free)(address) };
            }
            _ => {}
        }
    }

    /// Memory for `bytes` bytes, on this thread's lane.
    pub(crate) fn allocate(&self, lane: &Lane, bytes: usize) -> Result<(Address, usize), Error> {
        match self.take(lane, bytes) {
            Err(Error::OutOfMemory) => {
                self.trim(lane)?;
                self.take(lane, bytes)
            }
            taken => taken,
        }
    }

    /// The same, where there is room.
    fn take(&self, lane: &Lane, bytes: usize) -> Result<(Address, usize), Error> {
        let bytes = rounded(bytes);
        let kept = lock(&lane.pool).free.get_mut(&bytes).and_then(Vec::pop);
        match kept {
            Some(address) => Ok((address, bytes)),
            None => Ok((self.new_memory(bytes)?, bytes)),
        }
    }

    fn new_memory(&self, bytes: usize) -> Result<Address, Error> {
        let mut address = 0;
        // SAFETY: a place for an address.
        let code = unsafe { (self.driver.memory_allocate)(&mut address, bytes) };
        self.driver.check("cuMemAlloc", code).map(|()| address)
    }

    /// Frees what nobody uses.
    fn trim(&self, lane: &Lane) -> Result<(), Error> {
        let mut recorder = lock(&lane.recorder);
        self.submit(lane, &mut recorder)?;
        self.wait(lane, &mut recorder)?;
        // Graphs name places that are about to go.
        recorder.forget_graphs(&self.driver);
        for (_, addresses) in lock(&lane.pool).free.drain() {
            for address in addresses {
                // SAFETY: memory from `cuMemAlloc`, and the lane has finished all work.
                unsafe { (self.driver.memory_free)(address) };
            }
        }
        Ok(())
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
        let lane = self.lane()?;
        let mut recorder = lock(&lane.recorder);
        work(&mut Segment { device: self, lane: &lane, recorder: &mut recorder })
    }

    /// Ends a segment: what is recorded from here on will be alike from step to step. One that looks words of
    /// places up, as the next does (`follows`), is of the same step and goes on.
    pub(crate) fn new_segment(&self, follows: bool) -> Result<(), Error> {
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

    /// Sends all recorded work off, kernels that write `answer` among it.
    pub(crate) fn send(&self, answer: Answer) -> Result<Sent, Error> {
        let lane = self.lane()?;
        let mut recorder = lock(&lane.recorder);
        let stage = recorder.current;
        self.submit(&lane, &mut recorder)?;
        Ok(Sent { answer: answer.number, stage })
    }

    /// Waits for an answer and reads `words` four-byte words of it.
    pub(crate) fn read<T>(
        &self,
        sent: Sent,
        words: usize,
        read: impl FnOnce(&[u32]) -> T,
    ) -> Result<T, Error> {
        let lane = self.lane()?;
        let mut recorder = lock(&lane.recorder);
        self.wait_for(&mut recorder.stages[sent.stage])?;
        let answer = &recorder.answers[sent.answer];
        let words = words.min(answer.bytes / 4);
        // SAFETY: page-locked memory of at least that size, written by kernels that have ended.
        let answer = unsafe { answer.words(words) };
        Ok(read(answer))
    }

    /// Waits for what was last sent off with a stage.
    fn wait_for(&self, stage: &mut Stage) -> Result<(), Error> {
        if !stage.in_flight {
            return Ok(());
        }
        stage.in_flight = false;
        // SAFETY: an event of ours, made when the stage was first sent.
        let code = unsafe { (self.driver.event_wait)(stage.sent) };
        self.driver.check("cuEventSynchronize", code)
    }

    /// Marks the end of what was sent off with a stage.
    fn mark(&self, lane: &Lane, stage: &mut Stage) -> Result<(), Error> {
        const WITHOUT_TIMES: c_uint = 2;
        if stage.sent.is_null() {
            // SAFETY: a place for a handle.
            let code = unsafe { (self.driver.event_create)(&mut stage.sent, WITHOUT_TIMES) };
            self.driver.check("cuEventCreate", code)?;
        }
        // SAFETY: our event and our stream.
        let code = unsafe { (self.driver.event_record)(stage.sent, lane.stream) };
        stage.in_flight = true;
        self.driver.check("cuEventRecord", code)
    }

    fn wait(&self, lane: &Lane, recorder: &mut Recorder) -> Result<(), Error> {
        // SAFETY: our stream.
        let code = unsafe { (self.driver.stream_wait)(lane.stream) };
        recorder.stages.iter_mut().for_each(|stage| stage.in_flight = false);
        self.driver.check("cuStreamSynchronize", code)
    }

    /// Sends the recorded segment to the device.
    fn submit(&self, lane: &Lane, recorder: &mut Recorder) -> Result<(), Error> {
        if recorder.launches.is_empty() {
            return Ok(());
        }
        let key = recorder.key();
        let known = recorder.graphs.get(&key).copied();
        match known {
            Some(Graph::Ready(graph)) => {
                // SAFETY: a graph made below and not yet destroyed.
                let code = unsafe { (self.driver.graph_launch)(graph, lane.stream) };
                self.driver.check("cuGraphLaunch", code)?;
            }
            Some(Graph::SeenOnce) => {
                let graph = self.capture(lane, recorder)?;
                recorder.graphs.insert(key, Graph::Ready(graph));
                // SAFETY: as above.
                let code = unsafe { (self.driver.graph_launch)(graph, lane.stream) };
                self.driver.check("cuGraphLaunch", code)?;
            }
            None => {
                if recorder.graphs.len() >= MOST_GRAPHS {
                    self.wait(lane, recorder)?;
                    recorder.forget_graphs(&self.driver);
                }
                recorder.graphs.insert(key, Graph::SeenOnce);
                self.launch(lane, recorder)?;
            }
        }
        recorder.forget_segment();
        self.mark(lane, &mut recorder.stages[recorder.current])?;
        recorder.current = (recorder.current + 1) % recorder.stages.len();
        self.wait_for(&mut recorder.stages[recorder.current])
    }

    /// The segment as a graph.
    fn capture(&self, lane: &Lane, recorder: &Recorder) -> Result<*mut c_void, Error> {
        const THREAD_LOCAL: c_int = 1;
        let (mut graph, mut executable) = (null(), null());
        // SAFETY: our stream; places for handles; the graph is destroyed once.
        unsafe {
            let begun = (self.driver.capture_begin)(lane.stream, THREAD_LOCAL);
            self.driver.check("cuStreamBeginCapture", begun)?;
            let launched = self.launch(lane, recorder);
            let ended = (self.driver.capture_end)(lane.stream, &mut graph);
            launched?;
            self.driver.check("cuStreamEndCapture", ended)?;
            let made = (self.driver.graph_instantiate)(&mut executable, graph, 0);
            (self.driver.graph_destroy)(graph);
            self.driver.check("cuGraphInstantiate", made)?;
        }
        Ok(executable)
    }

    /// Puts the segment into the stream.
    fn launch(&self, lane: &Lane, recorder: &Recorder) -> Result<(), Error> {
        let stage = &recorder.stages[recorder.current];
        if stage.used > 0 {
            // SAFETY: both sides of a stage are as long; the host's is page-locked and not written
            // until the stream has been waited for.
            let code = unsafe {
                (self.driver.copy_to_device)(
                    stage.device,
                    stage.host.address,
                    stage.used,
                    lane.stream,
                )
            };
            self.driver.check("cuMemcpyHtoD", code)?;
        }
        for (i, launch) in recorder.launches.iter().enumerate() {
            // The first kernel must see the whole stage.
            let overlapped = self.overlaps && i > 0 && !recorder.launches[i - 1].ends_first;
            let config = LaunchConfig {
                grid: [launch.grid[0], launch.grid[1], 1],
                block: [launch.block, 1, 1],
                shared_bytes: launch.shared as c_uint,
                stream: lane.stream,
                attributes: &LaunchAttribute::OVERLAPPED,
                attribute_count: c_uint::from(overlapped),
            };
            let parameters = &recorder.parameters[launch.parameters.clone()];
            let mut size = parameters.len();
            let place = |at: usize| parameters[at..].as_ptr().cast_mut().cast::<c_void>();
            // The driver's way to say: a buffer of packed parameters, its size, the end.
            let mut extra: [*mut c_void; 5] = [
                BUFFER_POINTER as *mut c_void,
                place(0),
                BUFFER_SIZE as *mut c_void,
                (&raw mut size).cast(),
                null(),
            ];
            // Where maps must lie only the driver knows: then each parameter is named.
            let map = |from_end: usize| place(size - from_end * size_of::<Map>());
            let mut apart = match launch.maps {
                2 => [place(0), map(2), map(1)],
                _ => [null(); 3],
            };
            let (named, packed) = match launch.maps {
                0 => (null_mut(), extra.as_mut_ptr()),
                _ => (apart.as_mut_ptr(), null_mut()),
            };
            // SAFETY: the parameters are laid out as the kernel declares them, and the addresses in
            // them are of memory that lives on.
            let code = unsafe { (self.driver.launch)(&config, launch.function, named, packed) };
            self.driver.check("cuLaunchKernel", code)?;
        }
        Ok(())
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
        if self.make_current().is_err() {
            return;
        }
        for lane in lock(&self.lanes).drain(..) {
            self.take_down(&lane);
        }
        // SAFETY: everything is ours and given back once; the device has finished.
        unsafe {
            (self.driver.module_unload)(self.module);
            (self.driver.context_release)(self.properties.number as c_int);
        }
    }
}

impl Device {
    fn take_down(&self, lane: &Lane) {
        let mut recorder = lock(&lane.recorder);
        recorder.forget_segment();
        let _ = self.wait(lane, &mut recorder);
        recorder.forget_graphs(&self.driver);
        let stages = std::mem::take(&mut recorder.stages);
        let answers = std::mem::take(&mut recorder.answers);
        let answers = answers.iter().map(|answer| answer.address);
        let hosts = stages.iter().map(|stage| stage.host.address).chain(answers);
        let places = recorder.places.map(|places| places.memory);
        let others = [recorder.latest].into_iter().chain(recorder.raw).chain(places);
        let device = stages.iter().map(|stage| stage.device).chain(others.map(|memory| memory.0));
        let device = device.filter(|&address| address != 0);
        let free = std::mem::take(&mut lock(&lane.pool).free);
        // SAFETY: everything is the lane's and freed once; it has finished.
        unsafe {
            for host in hosts.filter(|host| !host.is_null()) {
                (self.driver.host_free)(host);
            }
            for stage in stages.iter().filter(|stage| !stage.sent.is_null()) {
                (self.driver.event_destroy)(stage.sent);
            }
            for address in device.chain(free.into_values().flatten()) {
                (self.driver.memory_free)(address);
            }
            (self.driver.stream_destroy)(lane.stream);
        }
    }
}

fn null() -> *mut c_void {
    std::ptr::null_mut()
}

fn null_mut() -> *mut *mut c_void {
    std::ptr::null_mut()
}

/// Names of the kernels a precision has.
pub(crate) fn kernels(numbers: Numbers) -> impl Iterator<Item = &'static str> {
    const ALL: [&str; 33] = [
        "embed",
        "add_norm_512",
        "add_norm_2048",
        "add_norm_any",
        "add_rows",
        "element",
        "average",
        "ssru",
        "load_states",
        "move_rows",
        "clear_rows",
        "copy_words",
        "gather_sum",
        "recur",
        "modulate",
        "store",
        "attend",
        "attend_wide_1",
        "attend_wide_2",
        "attention_weights",
        "align",
        "pack",
        "best_narrow",
        "merge",
        "race",
        "grow_lists",
        "begin_best",
        "add_bias",
        "softmax",
        "k_best",
        "fused_best",
        "shard_best",
        "best_of_shards",
    ];
    const PLAIN: [&str; 2] = ["product_16", "product_64"];
    const TENSOR: [&str; 11] = [
        "product_few",
        "product_normed_512",
        "product_normed_1024",
        "product_thin",
        "product_slim",
        "product_middle",
        "product_tall",
        "product_large",
        "best_few",
        "best_middle",
        "best_large",
    ];
    const TILES: [&str; 6] = [
        "attend_few_32",
        "attend_few_64",
        "attend_few_128",
        "attend_tile_32",
        "attend_tile_64",
        "attend_tile_128",
    ];
    let tiles = if numbers.row_size() == 2 { &TILES[..] } else { &[] };
    let products = if numbers.uses_tensor_cores() { &TENSOR[..] } else { &PLAIN };
    let quantise: &[&str] = if numbers.quantises() { &["quantise"] } else { &[] };
    ALL.iter().chain(tiles).chain(products).chain(quantise).copied()
}

/// Memory at rest, by size.
#[derive(Default)]
struct Pool {
    free: FxHashMap<usize, Vec<Address>>,
}

impl Lane {
    /// Takes memory back. Work recorded so far may still use it: whoever gets it next is recorded
    /// later.
    pub(crate) fn give_back(&self, address: Address, bytes: usize) {
        lock(&self.pool).free.entry(bytes).or_default().push(address);
    }
}

/// Sizes memory comes in: powers of two, from 32 MiB on in steps of 2 MiB.
fn rounded(bytes: usize) -> usize {
    const LARGE: usize = 32 << 20;
    match bytes {
        0..LARGE => bytes.max(256).next_power_of_two(),
        _ => bytes.next_multiple_of(2 << 20),
    }
}

/// A number rounded up so that few different ones remain: powers of two and half-way between.
pub(crate) fn bucket(n: usize) -> usize {
    let power = n.max(1).next_power_of_two();
    if power >= 32 && n <= power / 4 * 3 { power / 4 * 3 } else { power }
}
