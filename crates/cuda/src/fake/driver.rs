//! The functions of the fake driver.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use super::{Clock, DONE, ILLEGAL_ADDRESS, Launched, Work, World, world};
use crate::driver::{Address, Driver, LaunchConfig, Map};

type Handle = *mut c_void;

const INVALID_VALUE: c_int = 1;
const OUT_OF_MEMORY: c_int = 2;
const INVALID_CONTEXT: c_int = 201;
const NOT_FOUND: c_int = 500;

thread_local! {
    /// The context that is current on this thread.
    pub(super) static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// The context of the only device.
pub(super) const CONTEXT: usize = 1;

/// Does what a call does that needs the context.
fn in_context(action: impl FnOnce(&mut World) -> c_int) -> c_int {
    world(|w| match () {
        () if CURRENT.get() != CONTEXT => INVALID_CONTEXT,
        () if w.dead => ILLEGAL_ADDRESS,
        () => action(w),
    })
}

/// The table of all functions.
pub(super) fn driver() -> Driver {
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
        event_query: event_wait,
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

// The functions below are called as the real ones are, with valid places for results and texts that end in zero: that
// makes them sound.

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
    world(World::release_context);
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
        assert!(w.streams.contains(&(stream as usize)), "a stream that does not exist");
        DONE
    })
}
unsafe extern "C" fn stream_wait_event(stream: Handle, event: Handle, _: c_uint) -> c_int {
    in_context(|w| {
        assert!(w.recording.is_none(), "no graph waits for what is outside it");
        let met = w.clocks.get(&(event as usize)).cloned().unwrap_or_default();
        let clock = w.clocks.entry(stream as usize).or_default();
        for (other, ended) in met {
            let known = clock.entry(other).or_default();
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

/// Bytes of shared memory a block may have, by the compute capability.
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
