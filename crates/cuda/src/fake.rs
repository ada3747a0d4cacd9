//! A driver without a device, for tests of what needs none: it keeps memory, queues and graphs as the
//! real one does, and remembers what it was asked; kernels do nothing.
//!
//! The driver's functions take no argument of ours, so there is one fake for all: who has a [`Fake`] has
//! it to himself.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::driver::{Address, Driver, LaunchConfig, Map};

type Handle = *mut c_void;

const DONE: c_int = 0;
const INVALID_VALUE: c_int = 1;
const OUT_OF_MEMORY: c_int = 2;
const INVALID_CONTEXT: c_int = 201;
const NOT_FOUND: c_int = 500;
const ILLEGAL_ADDRESS: c_int = 700;

/// How many kernels have ended for certain, by their queue.
pub(crate) type Clock = BTreeMap<usize, usize>;

/// A kernel as the driver got it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Launched {
    pub(crate) kernel: String,
    pub(crate) grid: [u32; 2],
    /// Whether it may be brought up while the one before runs.
    pub(crate) overlapped: bool,
    pub(crate) parameters: Vec<u8>,
    /// What it waited for.
    pub(crate) after: Clock,
}

impl Launched {
    /// The address at this place of the parameters.
    pub(crate) fn address(&self, place: usize) -> Address {
        u64::from_le_bytes(self.parameters[place..place + 8].try_into().expect("eight bytes"))
    }
}

#[derive(Clone)]
enum Work {
    Launch(Launched),
    /// To the device, from a place of the host's memory that is read when it is done.
    Copy {
        to: Address,
        from: usize,
        bytes: usize,
    },
}

/// What exists in the driver, and what it has done.
#[derive(Default)]
pub(crate) struct World {
    /// Bytes the device has.
    pub(crate) room: usize,
    /// Compute capability of the device.
    pub(crate) capability: (i32, i32),
    /// A kernel the module does not have.
    pub(crate) missing: Option<&'static str>,
    /// Whether launches fail,
    pub(crate) broken: bool,
    /// or are not even taken.
    pub(crate) refuses_launches: bool,
    /// Whether a kernel has gone wrong: all that needs the context fails from then on.
    pub(crate) dead: bool,
    /// Whether no context can be made current.
    pub(crate) unavailable: bool,
    /// Whether there is no memory for graphs.
    pub(crate) no_graphs: bool,
    memory: BTreeMap<Address, Vec<u64>>,
    host: BTreeMap<usize, Vec<u64>>,
    kernels: Vec<String>,
    /// Shared memory that kernels may have beyond what all may.
    shared: BTreeMap<usize, u32>,
    streams: Vec<usize>,
    events: Vec<usize>,
    graphs: BTreeMap<usize, Vec<Work>>,
    /// What has ended when a queue goes on, or an event is met.
    clocks: BTreeMap<usize, Clock>,
    /// What is being recorded, and for which queue.
    recording: Option<(usize, Vec<Work>)>,
    contexts: usize,
    modules: usize,
    last_handle: usize,
    /// Kernels in the order in which they ran, with their queue.
    pub(crate) ran: Vec<(usize, Launched)>,
    /// Of those, launched one by one,
    pub(crate) launches: usize,
    /// and graphs launched.
    pub(crate) replays: usize,
}

impl World {
    /// Bytes of device memory in use.
    pub(crate) fn used(&self) -> usize {
        self.memory.values().map(|words| 8 * words.len()).sum()
    }

    /// Graphs that exist.
    pub(crate) fn graphs(&self) -> usize {
        self.graphs.len()
    }

    /// Whether everything was given back.
    pub(crate) fn is_empty(&self) -> bool {
        let memory = self.memory.is_empty() && self.host.is_empty();
        let queues = self.streams.is_empty() && self.events.is_empty();
        let handles = queues && self.graphs.is_empty();
        memory && handles && self.contexts == 0 && self.modules == 0
    }

    /// A four-byte word of device memory.
    pub(crate) fn word(&self, address: Address) -> u32 {
        let (start, words) = self.memory.range(..=address).next_back().expect("memory");
        let at = (address - start) as usize;
        (words[at / 8] >> (8 * (at % 8))) as u32
    }

    fn handle(&mut self) -> usize {
        self.last_handle += 1;
        self.last_handle
    }

    fn run(&mut self, stream: usize, work: &Work) -> c_int {
        match work {
            Work::Launch(_) if self.broken => return ILLEGAL_ADDRESS,
            Work::Launch(launched) => {
                let clock = self.clocks.entry(stream).or_default();
                let after = clock.clone();
                *clock.entry(stream).or_default() += 1;
                self.ran.push((stream, Launched { after, ..launched.clone() }));
            }
            Work::Copy { to, from, bytes } => {
                let (start, words) = self.memory.range_mut(..=*to).next_back().expect("memory");
                let at = (to - start) as usize;
                assert!(at + bytes <= 8 * words.len(), "a copy beyond the end of memory");
                // SAFETY: the caller of the driver says the bytes are there; the place was checked.
                unsafe {
                    let to = words.as_mut_ptr().cast::<u8>().add(at);
                    to.copy_from_nonoverlapping(*from as *const u8, *bytes);
                }
            }
        }
        DONE
    }

    /// Does work, or records it if the queue is being recorded.
    fn enqueue(&mut self, stream: usize, work: Work) -> c_int {
        assert!(self.streams.contains(&stream), "work for a queue that does not exist");
        match &mut self.recording {
            Some((recorded, list)) if *recorded == stream => {
                list.push(work);
                DONE
            }
            _ => {
                self.launches += usize::from(matches!(work, Work::Launch(_)));
                self.run(stream, &work)
            }
        }
    }
}

static WORLD: Mutex<Option<World>> = Mutex::new(None);
static TURN: Mutex<()> = Mutex::new(());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn world<T>(action: impl FnOnce(&mut World) -> T) -> T {
    action(lock(&WORLD).as_mut().expect("a fake that is in use"))
}

thread_local! {
    /// The context that is current on this thread.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// The context of the only device.
const CONTEXT: usize = 1;

/// What a call does that needs the context.
fn in_context(action: impl FnOnce(&mut World) -> c_int) -> c_int {
    world(|w| match () {
        () if CURRENT.get() != CONTEXT => INVALID_CONTEXT,
        () if w.dead => ILLEGAL_ADDRESS,
        () => action(w),
    })
}

/// The fake, until it is dropped.
pub(crate) struct Fake(#[expect(dead_code, reason = "held")] MutexGuard<'static, ()>);

impl Fake {
    /// A machine with one GPU that has room for so many bytes.
    pub(crate) fn new(room: usize) -> Fake {
        let turn = lock(&TURN);
        CURRENT.set(0);
        *lock(&WORLD) = Some(World { room, capability: (9, 0), ..World::default() });
        Fake(turn)
    }

    /// Looks at the world, or changes it.
    pub(crate) fn world<T>(&self, action: impl FnOnce(&mut World) -> T) -> T {
        world(action)
    }

    /// What another library may do on this thread: makes a context of its own current.
    pub(crate) fn use_other_context(&self) {
        CURRENT.set(CONTEXT + 1);
    }

    /// Names of the kernels that ran since this was last asked.
    pub(crate) fn ran(&self) -> Vec<String> {
        world(|w| w.ran.drain(..).map(|(_, launched)| launched.kernel).collect())
    }

    pub(crate) fn driver(&self) -> Driver {
        Driver {
            init,
            version,
            error_text,
            device_count,
            device_get,
            device_name,
            device_attribute,
            device_memory,
            context_flags,
            context_retain,
            context_release,
            context_get,
            context_set,
            memory_allocate,
            memory_free,
            host_allocate,
            host_free,
            copy_to_device,
            copy_to_host,
            stream_create,
            stream_destroy,
            stream_wait,
            stream_wait_event,
            event_create,
            event_destroy,
            event_record,
            event_wait,
            module_load,
            module_unload,
            module_function,
            function_attribute,
            launch,
            capture_begin,
            capture_end,
            graph_instantiate,
            graph_destroy,
            graph_launch,
            graph_exec_destroy,
            map_encode,
            _library: None,
        }
    }
}

// What follows is called as the real functions are, with places for results that are valid and texts
// that end in zero: that is what makes it sound.

/// Puts a result where the caller wants it.
///
/// # Safety
/// `place` is valid.
unsafe fn put<T>(place: *mut T, value: T) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { place.write(value) };
    DONE
}

unsafe extern "C" fn init(_: c_uint) -> c_int {
    DONE
}
unsafe extern "C" fn version(version: *mut c_int) -> c_int {
    // SAFETY: a place for a result.
    unsafe { put(version, 13_000) }
}
unsafe extern "C" fn error_text(code: c_int, text: *mut *const c_char) -> c_int {
    let name = if code == ILLEGAL_ADDRESS { c"an illegal address" } else { c"not found" };
    // SAFETY: a place for a result.
    unsafe { put(text, name.as_ptr()) }
}
unsafe extern "C" fn device_count(count: *mut c_int) -> c_int {
    // SAFETY: a place for a result.
    unsafe { put(count, 1) }
}
unsafe extern "C" fn device_get(device: *mut c_int, number: c_int) -> c_int {
    // SAFETY: a place for a result.
    unsafe { put(device, number) }
}
unsafe extern "C" fn device_name(name: *mut c_char, _: c_int, _: c_int) -> c_int {
    // SAFETY: there is room for many letters.
    unsafe { put(name.cast(), *b"fake\0") }
}
unsafe extern "C" fn device_attribute(value: *mut c_int, which: c_int, _: c_int) -> c_int {
    let (major, minor) = world(|w| w.capability);
    let known = match which {
        75 => major,
        76 => minor,
        97 => shared_memory(),
        _ => 132,
    };
    // SAFETY: a place for a result.
    unsafe { put(value, known) }
}
unsafe extern "C" fn device_memory(bytes: *mut usize, _: c_int) -> c_int {
    // SAFETY: a place for a result.
    unsafe { put(bytes, world(|w| w.room)) }
}
unsafe extern "C" fn context_flags(_: c_int, _: c_uint) -> c_int {
    DONE
}
unsafe extern "C" fn context_retain(context: *mut Handle, _: c_int) -> c_int {
    world(|w| w.contexts += 1);
    // SAFETY: a place for a result.
    unsafe { put(context, CONTEXT as Handle) }
}
unsafe extern "C" fn context_release(_: c_int) -> c_int {
    world(|w| w.contexts -= 1);
    DONE
}
unsafe extern "C" fn context_get(context: *mut Handle) -> c_int {
    // SAFETY: a place for a result.
    unsafe { put(context, CURRENT.get() as Handle) }
}
unsafe extern "C" fn context_set(context: Handle) -> c_int {
    if world(|w| w.unavailable) {
        return INVALID_CONTEXT;
    }
    CURRENT.set(context as usize);
    DONE
}
unsafe extern "C" fn memory_allocate(address: *mut Address, bytes: usize) -> c_int {
    in_context(|w| {
        if w.used() + bytes > w.room {
            return OUT_OF_MEMORY;
        }
        let memory = vec![0; bytes.div_ceil(8)];
        let place = memory.as_ptr() as Address;
        w.memory.insert(place, memory);
        // SAFETY: a place for a result.
        unsafe { put(address, place) }
    })
}
unsafe extern "C" fn memory_free(address: Address) -> c_int {
    in_context(|w| {
        w.memory.remove(&address).expect("memory that was given out");
        DONE
    })
}
unsafe extern "C" fn host_allocate(address: *mut Handle, bytes: usize, _: c_uint) -> c_int {
    in_context(|w| {
        let mut memory = vec![0_u64; bytes.div_ceil(8)];
        let place = memory.as_mut_ptr();
        w.host.insert(place as usize, memory);
        // SAFETY: a place for a result.
        unsafe { put(address, place.cast()) }
    })
}
unsafe extern "C" fn host_free(address: Handle) -> c_int {
    in_context(|w| {
        w.host.remove(&(address as usize)).expect("memory that was given out");
        DONE
    })
}
unsafe extern "C" fn copy_to_device(
    to: Address,
    from: *const c_void,
    bytes: usize,
    stream: Handle,
) -> c_int {
    let copy = Work::Copy { to, from: from as usize, bytes };
    in_context(|w| w.enqueue(stream as usize, copy))
}
unsafe extern "C" fn copy_to_host(to: Handle, from: Address, bytes: usize, _: Handle) -> c_int {
    in_context(|_| {
        // SAFETY: device memory is this process's, and the caller has room for the bytes.
        unsafe { to.cast::<u8>().copy_from_nonoverlapping(from as *const u8, bytes) };
        DONE
    })
}
unsafe extern "C" fn stream_create(stream: *mut Handle, _: c_uint, _: c_int) -> c_int {
    in_context(|w| {
        let handle = w.handle();
        w.streams.push(handle);
        // SAFETY: a place for a result.
        unsafe { put(stream, handle as Handle) }
    })
}
unsafe extern "C" fn stream_destroy(stream: Handle) -> c_int {
    in_context(|w| {
        w.streams.retain(|&other| other != stream as usize);
        DONE
    })
}
unsafe extern "C" fn stream_wait(stream: Handle) -> c_int {
    in_context(|w| {
        assert!(w.streams.contains(&(stream as usize)), "a queue that does not exist");
        DONE
    })
}
unsafe extern "C" fn stream_wait_event(stream: Handle, event: Handle, _: c_uint) -> c_int {
    in_context(|w| {
        assert!(w.recording.is_none(), "no graph waits for what is outside it");
        let met = w.clocks.get(&(event as usize)).cloned().unwrap_or_default();
        let clock = w.clocks.entry(stream as usize).or_default();
        for (queue, ended) in met {
            let known = clock.entry(queue).or_default();
            *known = ended.max(*known);
        }
        DONE
    })
}
unsafe extern "C" fn event_create(event: *mut Handle, _: c_uint) -> c_int {
    in_context(|w| {
        let handle = w.handle();
        w.events.push(handle);
        // SAFETY: a place for a result.
        unsafe { put(event, handle as Handle) }
    })
}
unsafe extern "C" fn event_destroy(event: Handle) -> c_int {
    in_context(|w| {
        w.events.retain(|&other| other != event as usize);
        DONE
    })
}
unsafe extern "C" fn event_record(event: Handle, stream: Handle) -> c_int {
    in_context(|w| {
        assert!(w.events.contains(&(event as usize)), "an event that does not exist");
        let clock = w.clocks.get(&(stream as usize)).cloned().unwrap_or_default();
        w.clocks.insert(event as usize, clock);
        DONE
    })
}
unsafe extern "C" fn event_wait(event: Handle) -> c_int {
    in_context(|w| {
        assert!(w.events.contains(&(event as usize)), "an event that does not exist");
        DONE
    })
}
unsafe extern "C" fn module_load(module: *mut Handle, _: *const c_void) -> c_int {
    in_context(|w| {
        w.modules += 1;
        // SAFETY: a place for a result.
        unsafe { put(module, 1 as Handle) }
    })
}
unsafe extern "C" fn module_unload(_: Handle) -> c_int {
    in_context(|w| {
        w.modules -= 1;
        DONE
    })
}
unsafe extern "C" fn module_function(
    function: *mut Handle,
    _: Handle,
    name: *const c_char,
) -> c_int {
    // SAFETY: a text that ends in zero.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    in_context(|w| {
        if w.missing == Some(name.as_str()) {
            return NOT_FOUND;
        }
        w.kernels.push(name);
        // SAFETY: a place for a result.
        unsafe { put(function, w.kernels.len() as Handle) }
    })
}
unsafe extern "C" fn function_attribute(function: Handle, _: c_int, bytes: c_int) -> c_int {
    if bytes > shared_memory() {
        return INVALID_VALUE;
    }
    world(|w| w.shared.insert(function as usize, bytes as u32));
    DONE
}

/// What a block may have, by the compute capability.
fn shared_memory() -> c_int {
    let kibibytes = match world(|w| w.capability) {
        (8, 0) => 163,
        (8, _) => 99,
        _ => 227,
    };
    kibibytes << 10
}
unsafe extern "C" fn launch(
    config: *const LaunchConfig,
    function: Handle,
    named: *mut Handle,
    extra: *mut Handle,
) -> c_int {
    // The structure all products begin with.
    const PRODUCT: usize = 104;
    // SAFETY: the caller's description of a launch: pointer and size of the parameters are second and
    // fourth, or else the first is a product.
    let (config, parameters) = unsafe {
        let (from, size) = match extra.is_null() {
            true => (*named, PRODUCT),
            false => (*extra.add(1), *(*extra.add(3)).cast::<usize>()),
        };
        (&*config, std::slice::from_raw_parts(from.cast::<u8>(), size).to_vec())
    };
    in_context(|w| {
        const SHARED: u32 = 48 << 10;
        let shared = w.shared.get(&(function as usize)).map_or(SHARED, |&most| most.max(SHARED));
        if w.refuses_launches || config.shared_bytes > shared {
            return INVALID_VALUE;
        }
        let launched = Launched {
            kernel: w.kernels[function as usize - 1].clone(),
            grid: [config.grid[0], config.grid[1]],
            overlapped: config.attribute_count > 0,
            parameters,
            after: Clock::new(),
        };
        w.enqueue(config.stream as usize, Work::Launch(launched))
    })
}
unsafe extern "C" fn capture_begin(stream: Handle, _: c_int) -> c_int {
    in_context(|w| {
        assert!(w.recording.is_none(), "one recording at a time");
        w.recording = Some((stream as usize, Vec::new()));
        DONE
    })
}
unsafe extern "C" fn capture_end(_: Handle, graph: *mut Handle) -> c_int {
    in_context(|w| {
        let (_, list) = w.recording.take().expect("a recording");
        let handle = w.handle();
        w.graphs.insert(handle, list);
        // SAFETY: a place for a result.
        unsafe { put(graph, handle as Handle) }
    })
}
unsafe extern "C" fn graph_instantiate(executable: *mut Handle, graph: Handle, _: u64) -> c_int {
    in_context(|w| {
        if w.no_graphs {
            return OUT_OF_MEMORY;
        }
        let list = w.graphs[&(graph as usize)].clone();
        let handle = w.handle();
        w.graphs.insert(handle, list);
        // SAFETY: a place for a result.
        unsafe { put(executable, handle as Handle) }
    })
}
unsafe extern "C" fn graph_destroy(graph: Handle) -> c_int {
    in_context(|w| {
        w.graphs.remove(&(graph as usize)).expect("a graph");
        DONE
    })
}
unsafe extern "C" fn map_encode(
    _: *mut Map,
    _: c_int,
    _: c_uint,
    _: Address,
    _: *const u64,
    _: *const u64,
    _: *const c_uint,
    _: *const c_uint,
    _: c_int,
    _: c_int,
    _: c_int,
    _: c_int,
) -> c_int {
    DONE
}
unsafe extern "C" fn graph_launch(graph: Handle, stream: Handle) -> c_int {
    in_context(|w| {
        w.replays += 1;
        let list = w.graphs.get(&(graph as usize)).expect("a graph that exists").clone();
        let codes: Vec<c_int> = list.iter().map(|work| w.run(stream as usize, work)).collect();
        codes.into_iter().max().unwrap_or(DONE)
    })
}
unsafe extern "C" fn graph_exec_destroy(graph: Handle) -> c_int {
    in_context(|w| {
        w.graphs.remove(&(graph as usize)).expect("a graph");
        DONE
    })
}
